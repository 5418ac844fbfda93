//! What a client remembers of copies that have not ended well: that they were begun.
//!
//! A copy that was never begun sends at once. One that was asks first what is there, which costs a round trip and saves what would be
//! sent during it. Forgetting (another user, a home that cannot be written) costs no more than that.

use std::fs;
use std::path::PathBuf;

use super::state;

/// The mark of one copy.
#[derive(Debug)]
pub(crate) struct Mark(Option<PathBuf>);

impl Mark {
    /// The mark of the copy that `key` names.
    pub(crate) fn of(key: [u8; 16]) -> Self {
        let name = format!("{:032x}", u128::from_be_bytes(key));
        Self(state::directory().map(|directory| directory.join("unfinished").join(name)))
    }

    /// Whether the copy was begun before.
    pub(crate) fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|path| path.exists())
    }

    /// It is begun.
    pub(crate) fn set(&self) {
        if let Some(path) = &self.0
            && let Some(directory) = path.parent()
        {
            // Where this cannot be written, the next attempt sends a round trip's worth again.
            let _ = fs::create_dir_all(directory).and_then(|()| fs::write(path, ""));
        }
    }

    /// It has ended well.
    pub(crate) fn clear(&self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
