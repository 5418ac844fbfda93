//! The manifest of a copy: what became of each name, a line each.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use farlink_mover::copy::Plan;
use farlink_mover::record_file::{Lines, is_of_objects};
use farlink_wire::message::Way;
use farlink_wire::message::copy::Place;

/// A manifest that is written. What an earlier copy wrote stays until there is something to say.
#[derive(Debug)]
pub(super) struct Manifest {
    file: File,
    path: PathBuf,
    /// Whether there was nothing of that name.
    is_new: bool,
    begun: bool,
    /// What is still to be written.
    lines: Vec<u8>,
    /// What failed first: nothing is written after it, which would leave a gap that nobody is told of.
    failed: Option<io::Error>,
}

/// Refuses one that would be copied while it is written, or that the copy would take the place of.
pub(super) fn check(path: &Path, plan: &Plan) -> anyhow::Result<()> {
    if path == Path::new("-") {
        bail!("--manifest -: name a file; --json prints the same lines on standard output");
    }
    let Some(name) = path.file_name() else { return Ok(()) };
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Where there is no such directory, it cannot be opened.
    let Ok(above) = above.canonicalize() else { return Ok(()) };
    let whole = above.join(name);
    let of = |place: &Place| Path::new(OsStr::from_bytes(place.as_bytes())).canonicalize();
    // Where names are chosen, it may not be among them; and a link is copied as a link.
    let all = plan.way == Way::Forward && plan.rules.is_empty() && plan.names.is_none();
    let is_link = |place: &&Place| {
        Path::new(OsStr::from_bytes(place.as_bytes()))
            .symlink_metadata()
            .is_ok_and(|about| about.is_symlink())
    };
    let sources = plan.sources.iter().filter(|place| all && !is_link(place));
    if sources.flat_map(of).any(|source| whole.starts_with(source)) {
        bail!("--manifest {} is in what is copied: name a file outside of it", path.display());
    }
    let is_here = plan.way == Way::Reverse || plan.far.is_local();
    let destination = PathBuf::from(OsStr::from_bytes(plan.destination.as_bytes()));
    let takes =
        |name: &[u8]| of(&plan.destination).is_ok_and(|place| place.join(OsStr::from_bytes(name)) == whole);
    let name_of = |place: &Place| place.as_bytes().rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
    let mut names = plan.sources.iter().filter_map(name_of);
    let is_destination = destination == path || takes(b"") || names.any(|name| takes(&name));
    if is_here && is_destination {
        bail!("--manifest {} is where the copy goes: name another file", path.display());
    }
    Ok(())
}

/// Refuses one that is the file of records, too.
pub(super) fn check_apart(path: &Path, record: &Path) -> anyhow::Result<()> {
    let place = |path: &Path| {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // What is there may be a link.
        let there = path
            .canonicalize()
            .or_else(|_| Ok(above.canonicalize()?.join(path.file_name().unwrap_or_default())));
        there.map_err(|_: io::Error| ())
    };
    if let (Ok(manifest), Ok(records)) = (place(path), place(record))
        && manifest == records
        && !manifest.starts_with("/dev")
    {
        bail!("--manifest and --record are both {}: name a file for each", path.display());
    }
    Ok(())
}

impl Manifest {
    /// That in `path`.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let is_new = fs::symlink_metadata(path).is_err();
        if !is_new && (!is_of_objects(path) || matches!(Lines::of(path), Lines::Records)) {
            bail!("{} is no manifest: it would be lost. Name another file, or remove it", path.display());
        }
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("write the manifest {}", path.display()))?;
        Ok(Self { file, path: path.to_owned(), is_new, begun: false, lines: Vec::new(), failed: None })
    }

    /// One more line. What fails is said when it is closed.
    pub(super) fn write(&mut self, line: &serde_json::Value) {
        if !self.begun {
            self.begin();
        }
        self.lines.extend(format!("{line}\n").into_bytes());
        if self.lines.len() >= MOST_WAITING {
            self.write_out();
        }
    }

    /// What it says is told anew.
    pub(super) fn begin(&mut self) {
        self.begun = true;
        // Of a pipe nothing is taken back.
        if self.file.set_len(0).and_then(|()| self.file.rewind()).is_ok() {
            self.lines.clear();
            self.failed = None;
        }
    }

    /// Nothing more comes, of a copy that was `begun` or was refused.
    pub(super) fn close(mut self, begun: bool) -> anyhow::Result<()> {
        if begun && !self.begun {
            self.begin();
        }
        if !self.begun && self.is_new {
            let _ = fs::remove_file(&self.path);
        }
        self.write_out();
        let written = self.failed.take().map_or(Ok(()), Err);
        written.with_context(|| format!("write the manifest {}", self.path.display()))
    }

    fn write_out(&mut self) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(&self.lines).err();
        }
        self.lines.clear();
    }
}

/// Bytes that are written at once.
const MOST_WAITING: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_earlier_manifest_stays_until_there_is_something_to_say() {
        let path = std::env::temp_dir().join(format!("farlink-manifest-{}", std::process::id()));
        let read = || fs::read_to_string(&path).ok();
        Manifest::open(&path).unwrap().close(false).unwrap();
        assert_eq!(read(), None, "a new one of a copy that was refused");
        let mut manifest = Manifest::open(&path).unwrap();
        manifest.write(&json!(1));
        manifest.begin();
        manifest.write(&json!({"a": 22}));
        manifest.close(true).unwrap();
        Manifest::open(&path).unwrap().close(false).unwrap();
        assert_eq!(read().as_deref(), Some("{\"a\":22}\n"));
        let mut manifest = Manifest::open(&path).unwrap();
        manifest.write(&json!({"a": 3}));
        manifest.close(false).unwrap();
        assert_eq!(read().as_deref(), Some("{\"a\":3}\n"));
        Manifest::open(&path).unwrap().close(true).unwrap();
        assert_eq!(read().as_deref(), Some(""), "a copy of nothing");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn records_are_no_manifest() {
        let path = std::env::temp_dir().join(format!("farlink-manifest-records-{}", std::process::id()));
        let records = "{\"schema\":1,\"id\":\"x\"}\n";
        fs::write(&path, records).unwrap();
        let error = Manifest::open(&path).unwrap_err();
        assert!(error.to_string().contains("is no manifest"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), records);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn behind_what_could_not_be_written_nothing_is() {
        let path = std::env::temp_dir().join(format!("farlink-manifest-full-{}", std::process::id()));
        let mut manifest = Manifest::open(&path).unwrap();
        manifest.write(&json!("first"));
        manifest.write_out();
        // As a full disk that has room again soon.
        let there =
            std::mem::replace(&mut manifest.file, File::options().write(true).open("/dev/full").unwrap());
        manifest.write(&json!("second"));
        manifest.write_out();
        manifest.file = there;
        manifest.write(&json!("third"));
        let error = manifest.close(true).unwrap_err();
        assert!(format!("{error:#}").contains("No space left"), "{error:#}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "\"first\"\n");
        fs::remove_file(&path).unwrap();
    }
}
