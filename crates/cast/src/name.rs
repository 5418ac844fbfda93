//! What stands for a product's name, in less memory.

use farlink_wire::path::RelativePath;

/// No two names have the same.
pub(crate) type Name = [u8; 16];

/// What stands for the name `path`.
pub(crate) fn name(path: &RelativePath) -> Name {
    of(path.as_bytes())
}

/// What stands for a name of these bytes.
pub(crate) fn of(bytes: &[u8]) -> Name {
    blake3::hash(bytes).as_bytes().first_chunk().copied().unwrap_or_default()
}
