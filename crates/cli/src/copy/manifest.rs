//! The manifest of a copy: what became of each name, a line each.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A manifest that is written. What an earlier copy wrote stays until there is something to say.
#[derive(Debug)]
pub(super) struct Manifest {
    file: BufWriter<File>,
    path: PathBuf,
    /// Whether there was nothing of that name.
    is_new: bool,
    begun: bool,
}

impl Manifest {
    /// That in `path`.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let is_new = fs::symlink_metadata(path).is_err();
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("write the manifest {}", path.display()))?;
        Ok(Self { file: BufWriter::new(file), path: path.to_owned(), is_new, begun: false })
    }

    /// One more line. What fails here fails again when it is closed, and is said then.
    pub(super) fn write(&mut self, line: &serde_json::Value) {
        if !self.begun {
            self.begin();
        }
        let _ = writeln!(self.file, "{line}");
    }

    /// What it says is told anew.
    pub(super) fn begin(&mut self) {
        self.begun = true;
        // Of a pipe nothing is taken back; what fails otherwise fails again when it is closed.
        let _ = self.file.flush();
        let file = self.file.get_mut();
        let _ = file.set_len(0).and_then(|()| file.rewind());
    }

    /// Nothing more comes, of a copy that was `begun` or was refused.
    pub(super) fn close(mut self, begun: bool) -> anyhow::Result<()> {
        if begun && !self.begun {
            self.begin();
        }
        if !self.begun && self.is_new {
            let _ = fs::remove_file(&self.path);
        }
        self.file.flush().with_context(|| format!("write the manifest {}", self.path.display()))
    }
}

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
        manifest.write(&json!(22));
        manifest.close(true).unwrap();
        Manifest::open(&path).unwrap().close(false).unwrap();
        assert_eq!(read().as_deref(), Some("22\n"));
        let mut manifest = Manifest::open(&path).unwrap();
        manifest.write(&json!(3));
        manifest.close(false).unwrap();
        assert_eq!(read().as_deref(), Some("3\n"));
        Manifest::open(&path).unwrap().close(true).unwrap();
        assert_eq!(read().as_deref(), Some(""), "a copy of nothing");
        fs::remove_file(&path).unwrap();
    }
}
