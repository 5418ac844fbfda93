//! Whether ranks used Farlink: each that does leaves a line.
//!
//! A rank whose endpoint begins writes a file of its own in the directory that `FARLINK_PROOF` names, with one line of JSON: its `host`,
//! and as its launcher says, `rank` and `local` (how many ranks that host has). Where there is no such
//! directory, on hosts that do not share this one's files, it writes nothing.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use farlink_host::beneath::Directory;
use farlink_host::{namespace, process};
use serde::Deserialize;

/// The directory for the lines, private and empty; it goes with this, or where this was killed, when somebody makes another.
#[derive(Debug)]
pub(crate) struct Proof {
    directory: PathBuf,
    /// Locked as long as this lives, where the file system has locks.
    held: Option<File>,
}

/// A rank's line.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    host: String,
    #[serde(default)]
    rank: Option<u64>,
    #[serde(default)]
    local: Option<usize>,
}

/// What is known of ranks that did not use something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// They used Farlink.
    Proven,
    /// None was so far when the job failed.
    NoneBegan,
    /// Nothing.
    Unknown,
}

impl Proof {
    /// Makes the directory.
    pub(crate) fn expect() -> anyhow::Result<Self> {
        let temporary = std::env::temp_dir();
        remove_leftovers(&temporary);
        let random = u128::from_le_bytes(process::random().context("make a name that nobody knows")?);
        let directory = temporary.join(format!("{}{random:032x}", prefix()));
        DirBuilder::new().mode(0o700).create(&directory).with_context(|| {
            let temporary = temporary.display();
            format!("make a directory in {temporary}, where temporary files go (TMPDIR names another)")
        })?;
        // Without a lock nobody else takes it for one that is left, as that cannot be locked either.
        let held = File::create_new(directory.join(HELD)).and_then(|file| file.lock().map(|()| file)).ok();
        Ok(Self { directory, held })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads what ranks left, of a job that has `failed` or not. Of one that failed before any began no more is known.
    pub(crate) fn judge(self, failed: bool) -> anyhow::Result<Judged> {
        match read(&self.directory) {
            // Temporary directories are cleaned of what is old.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Judged::Unknown),
            Ok(lines) if lines.is_empty() && failed => Ok(Judged::NoneBegan),
            read => judge(&read.context("read what ranks left")?).map(|()| Judged::Proven),
        }
    }
}

impl Drop for Proof {
    fn drop(&mut self) {
        // NFS keeps what is open under another name.
        self.held = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes the directories of this user's and this host's that nobody holds any more. One that has just been made may not be held yet.
fn remove_leftovers(temporary: &Path) {
    let prefix = prefix();
    let named = fs::read_dir(temporary).into_iter().flatten().flatten();
    for directory in named.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)) {
        // What another user gave that name is not looked into.
        let is_own = |status: &fs::Metadata| status.is_dir() && status.uid() == namespace::user();
        if !directory.metadata().is_ok_and(|status| is_own(&status)) {
            continue;
        }
        let path = directory.path();
        let is_old = |held: &File| {
            let age = held.metadata().and_then(|status| status.modified()).map(|time| time.elapsed());
            age.is_ok_and(|age| age.is_ok_and(|age| age > NEW))
        };
        let held = Directory::open(&path).and_then(|directory| directory.open_read(HELD.as_bytes()));
        if held.is_ok_and(|held| is_old(&held) && held.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// What the directories of this host are called: others may have the same place for what is temporary, and no locks in common.
fn prefix() -> String {
    format!("farlink-mpi-{}-", process::host_name())
}

fn read(directory: &Path) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(directory)? {
        let text = fs::read_to_string(entry?.path())?;
        lines.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
    }
    Ok(lines)
}

/// All ranks of every host that left a line must have left theirs. A rank may have several endpoints, and one without a launcher's words
/// counts for itself.
fn judge(lines: &[Line]) -> anyhow::Result<()> {
    if lines.is_empty() {
        bail!(
            "no rank of this host used Farlink: is the program built for this MPI, does an option, a script or a file of parameters choose another \
             network, or do all ranks run on hosts that do not share this one's files (then --unproven)?"
        );
    }
    let mut hosts: BTreeMap<&str, (Vec<u64>, usize)> = BTreeMap::new();
    for line in lines {
        let (ranks, most) = hosts.entry(&line.host).or_default();
        ranks.extend(line.rank);
        *most = line.local.unwrap_or(0).max(*most);
    }
    for (host, (mut proven, ranks)) in hosts {
        proven.sort_unstable();
        proven.dedup();
        if proven.len() < ranks {
            let proven = proven.len();
            bail!("{proven} of {ranks} ranks on {host} used Farlink, and the others something else");
        }
    }
    Ok(())
}

/// In each the file that is locked.
const HELD: &str = ".held";

/// Until when one may not be held yet.
const NEW: Duration = Duration::from_secs(60);

/// Names the directory to ranks.
pub(crate) const VARIABLE: &str = "FARLINK_PROOF";

#[cfg(test)]
mod tests {
    use super::*;

    fn line(host: &str, rank: u64, local: usize) -> Line {
        Line { host: host.to_owned(), rank: Some(rank), local: Some(local) }
    }

    fn judged(lines: &[Line]) -> String {
        judge(lines).map_or_else(|error| error.to_string(), |()| "all of them".to_owned())
    }

    #[test]
    fn a_host_is_proven_when_all_its_ranks_are() {
        assert!(judged(&[]).starts_with("no rank of this host used Farlink"));
        assert_eq!(judged(&[line("a", 0, 2), line("a", 1, 2)]), "all of them");
        // Of other ranks of b nothing is known; of c one is missing, and the one that is there has two endpoints.
        assert_eq!(judged(&[line("a", 0, 1), line("b", 3, 1)]), "all of them");
        let missing = judged(&[line("a", 0, 1), line("c", 2, 2), line("c", 2, 2)]);
        assert_eq!(missing, "1 of 2 ranks on c used Farlink, and the others something else");
        let alone = Line { host: "a".to_owned(), rank: None, local: None };
        assert_eq!(judged(&[alone]), "all of them");
    }

    #[test]
    fn the_directory_is_private_and_goes() {
        use std::os::unix::fs::PermissionsExt;
        let proof = Proof::expect().unwrap();
        let directory = proof.directory().to_owned();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(directory.join("0"), "{\"host\": \"a\", \"rank\": 0, \"local\": 1}\n").unwrap();
        assert_eq!(proof.judge(false).unwrap(), Judged::Proven);
        assert!(!directory.exists());
    }

    #[test]
    fn what_one_that_was_killed_left_goes_when_another_is_made() {
        let long_ago = std::time::SystemTime::now() - 2 * NEW;
        let made = |is_held: bool| {
            let proof = Proof::expect().unwrap();
            let held = proof.directory().join(HELD);
            File::options().write(true).open(&held).unwrap().set_modified(long_ago).unwrap();
            if !is_held {
                // As a killed one leaves it.
                proof.held.as_ref().unwrap().unlock().unwrap();
            }
            proof
        };
        let (alive, killed) = (made(true), made(false));
        let another = Proof::expect().unwrap();
        assert!(alive.directory().exists() && another.directory().exists());
        assert!(!killed.directory().exists());
    }

    #[test]
    fn nothing_is_said_of_ranks_of_which_nothing_is_known() {
        // The launcher refused.
        assert_eq!(Proof::expect().unwrap().judge(true).unwrap(), Judged::NoneBegan);
        assert!(Proof::expect().unwrap().judge(false).is_err());
        // Somebody cleaned up behind a long job.
        let proof = Proof::expect().unwrap();
        fs::remove_dir_all(proof.directory()).unwrap();
        assert_eq!(proof.judge(false).unwrap(), Judged::Unknown);
    }
}
