//! The file behind a program's name.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The file that is started by the name of `program`.
pub(super) fn find(program: &OsStr) -> anyhow::Result<PathBuf> {
    let named = Path::new(program);
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = if named.components().count() > 1 {
        Some(named.to_owned()).filter(|path| path.is_file())
    } else {
        std::env::split_paths(&directories)
            .map(|directory| directory.join(named))
            .find(|path| is_program(path))
    };
    found.with_context(|| format!("there is no program {program:?}: is it installed, and in PATH?"))
}

pub(super) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
