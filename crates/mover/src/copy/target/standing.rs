//! Files that stay as they stand at the destination, by their times and sizes.

use std::io;

use farlink_host::beneath::{Node, Status};
use farlink_wire::entry::{Entry, Kind, Metadata};
use farlink_wire::message::copy::Verdict;

use super::metadata::Refused;
use super::placing::Place;
use super::{Stays, Target, TargetError};

impl Target {
    /// What becomes of `entry` by what stands under its name, as [`Stays`] has it. One that is as old has its mode set right, and is on the disk where
    /// that was asked for; what an earlier run left beside it is removed.
    ///
    /// # Errors
    /// [`TargetError`]: what cannot be looked at may be newer, and is not replaced; nor is what stays, and cannot have its mode.
    pub fn judge(&self, entry: &Entry) -> Result<Verdict, TargetError> {
        if self.options.stays == Stays::None || !matches!(entry.kind, Kind::File { .. }) {
            return Ok(Verdict::Wanted);
        }
        self.placed(entry, |place| {
            let failed = |error| TargetError::of("look at", &place.shown, error);
            let status = match place.directory.status(&place.name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Verdict::Wanted),
                status => status.map_err(failed)?,
            };
            let verdict = self.verdict(&status, entry);
            if verdict != Verdict::Wanted {
                self.remove_partial(&place, &entry.path);
            }
            if verdict == Verdict::Current {
                self.set_right(&place, &status, &entry.metadata)?;
            }
            Ok(verdict)
        })
    }

    /// What becomes of `entry`, a file, by what stands under its name.
    pub(super) fn verdict(&self, status: &Status, entry: &Entry) -> Verdict {
        let comes = &entry.metadata;
        let is_as_long = entry.kind == Kind::File { size: status.size };
        if status.node != Node::File {
            Verdict::Wanted
        } else if is_as_old(status, comes) {
            let stays = is_as_long && self.options.stays == Stays::Current;
            if stays { Verdict::Current } else { Verdict::Wanted }
        } else if (status.mtime_s, status.mtime_ns) > (comes.mtime_s, comes.mtime_ns) {
            Verdict::Newer
        } else {
            Verdict::Wanted
        }
    }

    /// Sets the mode of one that is as old right, and has it on the disk where that was asked for.
    fn set_right(&self, place: &Place, status: &Status, comes: &Metadata) -> Result<(), TargetError> {
        let mode = comes.mode & self.options.mode_mask;
        if status.mode != mode {
            let set = Refused::of("mode", place.directory.set_mode_of(&place.name, mode), false);
            let refused = set.map_err(|error| TargetError::of("set the mode of", &place.shown, error))?;
            refused.map_or(Ok(()), |refused| Err(refused.at(&place.shown)))?;
        }
        // One that is another's, and that nobody else may open, is as old and as long all the same.
        if self.options.fsync
            && let Ok(file) = place.directory.open_read(&place.name)
        {
            let synced = file.sync_all().and_then(|()| place.directory.sync());
            synced.map_err(|error| TargetError::of("write to the disk", &place.shown, error))?;
        }
        Ok(())
    }
}

/// Whether a file was changed when `comes` says, as far as its file system keeps that.
pub(super) fn is_as_old(status: &Status, comes: &Metadata) -> bool {
    let is_kept = |grain: u32| status.mtime_ns == comes.mtime_ns / grain * grain;
    status.mtime_s == comes.mtime_s && GRAINS.into_iter().any(is_kept)
}

/// What nanoseconds are rounded down to: kept as they are, by NTFS and SMB, by network file systems' servers, by exFAT, and where seconds alone are
/// kept.
const GRAINS: [u32; 6] = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000];

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, UNIX_EPOCH};

    use super::super::TargetOptions;
    use super::super::tests::{Scratch, file};
    use super::*;

    /// What becomes of a file of so many bytes that was changed at a time, where one of three stands of another.
    fn judged(stays: Stays, stands: Duration, (size, comes): (u64, Duration)) -> Verdict {
        let scratch = Scratch::new("stays");
        let target = scratch.open("", true, TargetOptions { stays, ..TargetOptions::default() }).unwrap();
        let mut entry = file("x", size);
        assert_eq!(target.judge(&entry).unwrap(), Verdict::Wanted, "nothing is there");
        fs::write(scratch.0.join("x"), "abc").unwrap();
        File::open(scratch.0.join("x")).unwrap().set_modified(UNIX_EPOCH + stands).unwrap();
        (entry.metadata.mtime_s, entry.metadata.mtime_ns) = (comes.as_secs() as i64, comes.subsec_nanos());
        entry.metadata.mode = 0o640;
        let verdict = target.judge(&entry).unwrap();
        let mode = fs::metadata(scratch.0.join("x")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode == 0o640, verdict == Verdict::Current, "a newer one keeps its own");
        verdict
    }

    #[test]
    fn what_is_newer_stays_and_what_is_as_old_and_as_long_where_nothing_ended_badly() {
        use Verdict::{Current, Newer, Wanted};
        let at = |seconds, nanoseconds| Duration::new(seconds, nanoseconds);
        let old = at(1_000_000_000, 5);
        for (stands, comes, wanted) in [
            (old, (3, old), [Wanted, Wanted, Current]),
            (old, (4, old), [Wanted; 3]),
            (old, (3, at(1_000_000_000, 6)), [Wanted; 3]),
            (old, (3, at(1_000_000_000, 4)), [Wanted, Newer, Newer]),
            (old, (9, at(999_999_999, 6)), [Wanted, Newer, Newer]),
            // What a file system keeps of times that has seconds alone.
            (at(1_000_000_000, 0), (3, at(1_000_000_000, 7)), [Wanted, Wanted, Current]),
            (at(1_000_000_000, 0), (3, at(1_000_000_001, 0)), [Wanted; 3]),
            // And one that has hundreds of nanoseconds, or hundredths of a second.
            (at(1_000_000_000, 123_456_700), (3, at(1_000_000_000, 123_456_789)), [Wanted, Wanted, Current]),
            (at(1_000_000_000, 120_000_000), (3, at(1_000_000_000, 123_456_789)), [Wanted, Wanted, Current]),
            (at(1_000_000_000, 123_456_788), (3, at(1_000_000_000, 123_456_789)), [Wanted; 3]),
        ] {
            let found = [Stays::None, Stays::Newer, Stays::Current].map(|each| judged(each, stands, comes));
            assert_eq!(found, wanted, "{stands:?} {comes:?}");
        }
    }

    #[test]
    fn what_cannot_be_looked_at_may_be_newer() {
        let scratch = Scratch::new("unseen");
        let options = TargetOptions { stays: Stays::Current, ..TargetOptions::default() };
        let target = scratch.open("", true, options).unwrap();
        fs::write(scratch.0.join("d"), "in the way").unwrap();
        let error = target.judge(&file("d/x", 1)).unwrap_err();
        assert!(error.to_string().contains('d'), "{error}");
    }
}
