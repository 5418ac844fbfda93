//! The file that records are appended to, by several movers at once if they like.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use farlink_wire::record::Record;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A records file, open for appending.
#[derive(Debug)]
pub struct RecordFile {
    file: File,
    path: PathBuf,
}

impl RecordFile {
    /// Opens `path`, making it where it is not there: do so before anything moves.
    ///
    /// # Errors
    /// [`RecordFileError::Open`]; [`RecordFileError::Other`] and [`RecordFileError::Output`], where it is no file of records.
    pub fn open(path: &Path) -> Result<Self, RecordFileError> {
        if path == Path::new("-") {
            return Err(RecordFileError::Output);
        }
        // What is called so is this process's own output, whatever else is written there.
        let is_output = path.starts_with("/dev") || path.starts_with("/proc");
        if !is_output && (!is_of_objects(path) || matches!(Lines::of(path), Lines::Names)) {
            return Err(RecordFileError::Other { path: path.to_owned() });
        }
        let opened = OpenOptions::new().append(true).create(true).open(path);
        let file = opened.map_err(|source| RecordFileError::Open { path: path.to_owned(), source })?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends `record` in one write. A line that did not fit is taken back whole, where that can be done.
    ///
    /// # Errors
    /// [`RecordFileError::Write`], [`RecordFileError::Cut`].
    pub fn append(&mut self, record: &Record) -> Result<(), RecordFileError> {
        let line = record.line();
        let written = loop {
            match self.file.write(line.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let path = self.path.clone();
        match written {
            Ok(written) if written == line.len() => Ok(()),
            Ok(written) => {
                let taken_back = self.take_back(written as u64).unwrap_or(false);
                Err(RecordFileError::Cut { path, written, length: line.len(), taken_back })
            }
            Err(source) => Err(RecordFileError::Write { path, source }),
        }
    }

    /// Removes the last `written` bytes, where they are ours and the file's last.
    fn take_back(&mut self, written: u64) -> io::Result<bool> {
        let about = self.file.metadata()?;
        // After an appending write the position is the end of what was written.
        let end = self.file.stream_position()?;
        if !about.is_file() || about.len() != end || end < written {
            return Ok(false);
        }
        self.file.set_len(end - written)?;
        Ok(true)
    }
}

/// Whether `path` can be a file of JSON objects, a line each: it begins as one, is empty, is no regular file, or is not there.
#[must_use]
pub fn is_of_objects(path: &Path) -> bool {
    let is_other = || -> io::Result<bool> {
        let mut first = [0];
        // A pipe must not be read from.
        Ok(path.metadata()?.is_file() && File::open(path)?.read(&mut first)? == 1 && first != *b"{")
    };
    !is_other().unwrap_or(false)
}

/// What the lines of a file are, by the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Records.
    Records,
    /// What became of names, as the manifest of a copy has it.
    Names,
    /// Something else, or nothing that can be read.
    Other,
}

/// What tells a record from what became of a name.
#[derive(Deserialize)]
struct First {
    schema: Option<IgnoredAny>,
    outcome: Option<IgnoredAny>,
}

impl Lines {
    /// Those of `path`.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let first = || -> Option<First> {
            if !path.metadata().ok()?.is_file() {
                return None;
            }
            let mut line = Vec::new();
            BufReader::new(File::open(path).ok()?).take(MOST_FIRST).read_until(b'\n', &mut line).ok()?;
            serde_json::from_slice(&line).ok()
        };
        match first() {
            Some(First { schema: Some(_), .. }) => Self::Records,
            Some(First { outcome: Some(_), .. }) => Self::Names,
            _ => Self::Other,
        }
    }
}

/// Bytes of a first line that are read: a record's samples may be long.
const MOST_FIRST: u64 = 16 << 20;

/// Why a record was not kept.
#[derive(Debug, thiserror::Error)]
pub enum RecordFileError {
    /// Standard output was meant.
    #[error("--record -: name a file; with --json records are printed on standard output")]
    Output,
    /// The file cannot be there.
    #[error("open records file {}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// The kernel's own words.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} has other content than records: name another file", path.display())]
    Other {
        /// Which.
        path: PathBuf,
    },
    /// Nothing was written.
    #[error("write to records file {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// The kernel's own words.
        source: io::Error,
    },
    /// Part of the line was written.
    #[error(
        "write to records file {}: only {written} of {length} bytes fitted{}", path.display(),
        if *.taken_back { "" } else { ", and the broken line is still there" }
    )]
    Cut {
        /// Which.
        path: PathBuf,
        /// Bytes that were written.
        written: usize,
        /// Bytes of the line.
        length: usize,
        /// Whether they were removed again.
        taken_back: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain;

    #[test]
    fn records_are_appended_a_line_each() {
        let path = std::env::temp_dir().join(format!("farlink-records-{}", std::process::id()));
        for id in ["one", "two"] {
            let record = Record { id: id.into(), ..Record::default() };
            RecordFile::open(&path).unwrap().append(&record).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let ids: Vec<_> = text.lines().map(|line| Record::parse(line).unwrap().id).collect();
        assert_eq!(ids, ["one", "two"]);
    }

    #[test]
    fn what_is_no_file_of_records_is_refused() {
        let path = std::env::temp_dir().join(format!("farlink-other-{}", std::process::id()));
        for content in ["words\n", "{\"path\":\"x\",\"outcome\":\"copied\"}\n"] {
            std::fs::write(&path, content).unwrap();
            let error = RecordFile::open(&path).unwrap_err();
            assert!(error.to_string().contains("other content than records"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        // Of another mover, or cut short.
        for content in ["{\"of\": \"another\"}\n", "{\"cut"] {
            std::fs::write(&path, content).unwrap();
            RecordFile::open(&path).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        let error = RecordFile::open(Path::new("-")).unwrap_err();
        assert!(error.to_string().contains("--json"), "{error}");
    }

    #[test]
    fn a_full_disk_and_a_bad_path_are_named() {
        let error = RecordFile::open(Path::new("/dev/full")).unwrap().append(&Record::default()).unwrap_err();
        assert!(chain(&error).starts_with("write to records file /dev/full: No space left"), "{error}");
        let error = RecordFile::open(Path::new("/no/such/place")).unwrap_err();
        assert!(chain(&error).starts_with("open records file /no/such/place: No such file"), "{error}");
    }

    #[test]
    fn half_a_line_is_taken_back() {
        let path = std::env::temp_dir().join(format!("farlink-cut-{}", std::process::id()));
        let mut records = RecordFile::open(&path).unwrap();
        records.append(&Record::default()).unwrap();
        let before = std::fs::metadata(&path).unwrap().len();
        records.file.write_all(b"{\"half").unwrap();
        assert!(records.take_back(6).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
        std::fs::remove_file(&path).unwrap();
    }
}
