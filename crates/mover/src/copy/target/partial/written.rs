//! The journal of a partial file as it is on the disk.

use std::fs::File;
use std::io;

use farlink_host::beneath::status_of;
use farlink_host::sparse;
use farlink_wire::journal::{Journal, Row};

/// An open journal, and where its next row goes: a row that did not fit is written over.
#[derive(Debug)]
pub(super) struct Written {
    file: File,
    name: Vec<u8>,
    journal: Journal,
    len: u64,
}

impl Written {
    /// That in `file`, which has the name `name`. It must be resumed or begun before rows are added.
    pub(super) const fn new(file: File, name: Vec<u8>, journal: Journal) -> Self {
        Self { file, name, journal, len: 0 }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// What an earlier run of the same claims; `None` where there was none. `partial` is the file, of `size` bytes at the end, that it
    /// wrote.
    pub(super) fn resume(&mut self, partial: &File, size: u64) -> io::Result<Option<Vec<Row>>> {
        let len = status_of(&self.file)?.size;
        if len > self.journal.most_len() || status_of(partial)?.size > size {
            return Ok(None);
        }
        let mut bytes = vec![0; len as usize];
        let read = sparse::read_at(&self.file, 0, &mut bytes)?;
        match Journal::decode(&bytes[..read]) {
            // Of one that says nothing all would have to be emptied, which beginning anew does at once.
            Ok(earlier) if earlier.journal == self.journal && !earlier.rows.is_empty() => {
                self.len = earlier.len as u64;
                self.file.set_len(self.len)?;
                Ok(Some(earlier.rows))
            }
            _ => Ok(None),
        }
    }

    /// Whether it says anything of any block.
    pub(super) const fn has_rows(&self) -> bool {
        self.len > Journal::LEN as u64
    }

    /// Begins anew.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        sparse::write_at(&self.file, 0, &self.journal.encode())?;
        self.len = Journal::LEN as u64;
        Ok(())
    }

    /// Appends `row`.
    pub(super) fn add(&mut self, row: &Row) -> io::Result<()> {
        sparse::write_at(&self.file, self.len, &self.journal.encode_row(row))?;
        self.len += Row::LEN as u64;
        Ok(())
    }
}
