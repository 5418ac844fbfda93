//! Where a client keeps what it remembers from one copy to the next.

use std::env;
use std::path::PathBuf;

/// `$XDG_STATE_HOME/farlink`, which is `~/.local/state/farlink` where nothing else is set; `None` where there is no home.
pub(super) fn directory() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.or_else(home).map(|directory| directory.join("farlink"))
}
