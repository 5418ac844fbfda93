//! Where keys are kept, where nobody says otherwise.

use std::env;
use std::path::PathBuf;

use farlink_host::process;

/// The directory that has `identity`, `authorized_keys` and `known_hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    directory: PathBuf,
}

impl Places {
    /// A user's: `$XDG_CONFIG_HOME/farlink`, which is `~/.config/farlink` where nothing else is set.
    #[must_use]
    pub fn of_user() -> Self {
        let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || set("HOME").unwrap_or_else(|| PathBuf::from("/")).join(".config");
        Self { directory: set("XDG_CONFIG_HOME").unwrap_or_else(home).join("farlink") }
    }

    /// A server's: `/etc/farlink` where root runs it, that of the user otherwise.
    #[must_use]
    pub fn of_server() -> Self {
        if process::is_root() { Self { directory: SERVICE.into() } } else { Self::of_user() }
    }

    /// The secret key.
    #[must_use]
    pub fn identity(&self) -> PathBuf {
        self.directory.join("identity")
    }

    /// Who may connect.
    #[must_use]
    pub fn authorized_keys(&self) -> PathBuf {
        self.directory.join("authorized_keys")
    }

    /// Far ends and their keys.
    #[must_use]
    pub fn known_hosts(&self) -> PathBuf {
        self.directory.join("known_hosts")
    }
}

/// Where a service of the host has its keys.
const SERVICE: &str = "/etc/farlink";
