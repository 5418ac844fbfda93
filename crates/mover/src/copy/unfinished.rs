//! What a client remembers of copies that have not ended well: that they were begun, and whether they came to their end.
//!
//! A copy that was never begun sends at once. One that was asks first what is there, which costs a round trip and saves what would be
//! sent during it. Where that is forgotten (another user, a home that cannot be written, a season later) what is whole there is sent again, and
//! of a file that was begun only what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::state;

/// What earlier attempts of a copy have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// There were none, or the last ended well.
    Nothing,
    /// What was begun and did not come to its end.
    Begun,
    /// All but some names, at the end.
    Lacking,
}

impl Left {
    /// Whether the next attempt, an `update` or not, is to compare what is there. What came to its end and lacks some names has left no others that
    /// look as they should and are not: an update need not.
    pub(crate) const fn asks_to_compare(self, update: bool) -> bool {
        match self {
            Self::Nothing => false,
            Self::Begun => true,
            Self::Lacking => !update,
        }
    }
}

/// The mark of one copy.
#[derive(Debug)]
pub(crate) struct Mark(Option<PathBuf>);

impl Mark {
    /// The mark of the copy that `key` names.
    pub(crate) fn of(key: [u8; 16]) -> Self {
        let name = format!("{:032x}", u128::from_be_bytes(key));
        Self(state::directory().map(|directory| directory.join("unfinished").join(name)))
    }

    /// What earlier attempts have left.
    pub(crate) fn left(&self) -> Left {
        match self.0.as_ref().map(fs::read) {
            Some(Ok(said)) if said == LACKING => Left::Lacking,
            Some(Ok(_)) => Left::Begun,
            Some(Err(_)) | None => Left::Nothing,
        }
    }

    /// It is begun.
    pub(crate) fn set(&self) {
        self.write(b"");
        if let Some(directory) = self.0.as_ref().and_then(|path| path.parent()) {
            forget_old(directory);
        }
    }

    /// It came to its end, and some names were not copied.
    pub(crate) fn lacks_names(&self) {
        self.write(LACKING);
    }

    fn write(&self, said: &[u8]) {
        if let Some(path) = &self.0
            && let Some(directory) = path.parent()
        {
            // Where this cannot be written, the next attempt sends a round trip's worth again.
            let _ = fs::create_dir_all(directory).and_then(|()| fs::write(path, said));
        }
    }

    /// It has ended well.
    pub(crate) fn clear(&self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Forgets what nobody has taken up for a long time, and hardly will.
fn forget_old(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let begun = entry.metadata().and_then(|found| found.modified()).ok();
        if begun.and_then(|begun| begun.elapsed().ok()).is_some_and(|age| age > LONG_AGO) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// What the mark of a copy says that came to its end.
const LACKING: &[u8] = b"names are lacking\n";

/// Longer than any copy takes, and than most disks keep a partial file.
const LONG_AGO: Duration = Duration::from_secs(90 * 24 * 3600);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_nobody_took_up_in_a_season_is_forgotten() {
        let directory = std::env::temp_dir().join(format!("farlink-unfinished-{}", std::process::id()));
        let mark = |name: &str| Mark(Some(directory.join(name)));
        mark("old").set();
        let old = fs::File::options().write(true).open(directory.join("old")).unwrap();
        old.set_modified(SystemTime::now() - LONG_AGO * 2).unwrap();
        mark("recent").set();
        mark("new").set();
        let left = ["old", "recent", "new"].map(|name| mark(name).left());
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(left, [Left::Nothing, Left::Begun, Left::Begun]);
    }

    #[test]
    fn an_update_compares_what_did_not_come_to_its_end() {
        let directory = std::env::temp_dir().join(format!("farlink-lacking-{}", std::process::id()));
        let mark = Mark(Some(directory.join("mark")));
        let asks = || [false, true].map(|update| mark.left().asks_to_compare(update));
        assert_eq!(asks(), [false, false]);
        mark.set();
        assert_eq!(asks(), [true, true]);
        mark.lacks_names();
        assert_eq!(asks(), [true, false]);
        // Begun anew.
        mark.set();
        assert_eq!(asks(), [true, true]);
        mark.clear();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(asks(), [false, false]);
    }
}
