//! Where a client keeps what it remembers from one copy to the next.

use std::env;
use std::path::PathBuf;

/// `$XDG_STATE_HOME/farlink`, which is `~/.local/state/farlink` where nothing else is set, of who has no `HOME` by the users' list, too; `None` where
/// there is no home.
pub(super) fn directory() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".local/state"));
    state.or_else(home).map(|directory| directory.join("farlink"))
}
