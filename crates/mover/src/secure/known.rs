//! The far ends that a user knows, each by the key that it must show.

use std::path::{Path, PathBuf};

use farlink_wire::key::{KnownHost, PublicKey, lines};

use super::KeysError;
use super::authorized::text_of;
use crate::ports::PORT;

/// The lines of a file of known hosts.
#[derive(Debug)]
pub struct KnownHosts {
    path: PathBuf,
    lines: Vec<(usize, KnownHost)>,
}

impl KnownHosts {
    /// Those of the file at `path`; none where there is no such file.
    ///
    /// # Errors
    /// [`KnownHostsError`].
    pub fn of_file(path: &Path) -> Result<Self, KnownHostsError> {
        let text = match text_of(path, None) {
            Err(KeysError::Missing { .. }) => String::new(),
            other => other?,
        };
        let lines = lines(&text).map_err(|line| KeysError::Line { path: path.to_owned(), line })?;
        Ok(Self { path: path.to_owned(), lines })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The line that is about `host` at `port`, and its number, from 1.
    fn find(&self, host: &str, port: u16) -> Option<(usize, &KnownHost)> {
        let about = |line: &&(usize, KnownHost)| line.1.is_about(host, port, PORT);
        self.lines.iter().find(about).map(|(number, line)| (*number, line))
    }

    /// The key that `host` at `port` must show; `None` where it is not known.
    #[must_use]
    pub fn key(&self, host: &str, port: u16) -> Option<PublicKey> {
        self.find(host, port).map(|(_, line)| line.key)
    }

    /// What to tell the user where `host` at `port` showed `shown`, which is not the key that it must show.
    #[must_use]
    pub fn complaint(&self, host: &str, port: u16, shown: PublicKey) -> KnownHostsError {
        let named = Box::new(KnownHost {
            host: host.to_owned(),
            port: Some(port).filter(|port| *port != PORT),
            key: shown,
        });
        match self.find(host, port) {
            None => {
                let of_host = |line: &&(usize, KnownHost)| line.1.host.eq_ignore_ascii_case(host);
                let elsewhere = self.lines.iter().find(of_host);
                let elsewhere = elsewhere.map(|(line, known)| (*line, known.port.unwrap_or(PORT)));
                KnownHostsError::Unknown { path: self.path.clone(), named, port, elsewhere }
            }
            Some((line, known)) => {
                KnownHostsError::Changed { path: self.path.clone(), line, known: known.key, named }
            }
        }
    }
}

/// Why a far end is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum KnownHostsError {
    /// It was never written down.
    #[error(
        "{} is not known{}: if farlink there says that its key is {}, add this line to {}: {named}",
        named.host, other_port(*port, *elsewhere), named.key, path.display()
    )]
    Unknown {
        /// The file of known hosts.
        path: PathBuf,
        /// The port that it was reached at.
        port: u16,
        /// The line that has a key of this host at another port, and that port.
        elsewhere: Option<(usize, u16)>,
        /// The line that would make it known.
        named: Box<KnownHost>,
    },
    /// It has another key than was written down: it was set up anew, or it is somebody else.
    #[error(
        "{} shows the key {}, but {}, line {line}, has {known}: somebody may be in between; if its key was \
         replaced, replace it in that line too",
        named.host, named.key, path.display()
    )]
    Changed {
        /// The file of known hosts.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What it has.
        known: PublicKey,
        /// What the far end showed.
        named: Box<KnownHost>,
    },
    /// The file does not read.
    #[error(transparent)]
    File(#[from] KeysError),
}

/// Why a host is not known that has a line.
fn other_port(port: u16, elsewhere: Option<(usize, u16)>) -> String {
    elsewhere.map_or_else(String::new, |(line, other)| {
        format!(" at port {port} (line {line} is of port {other}, and a server on another port may have another key)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_and_a_changed_key_are_told_with_the_mend() {
        let line = format!("b:99 {}", PublicKey([1; 32]));
        let known = KnownHosts { path: "/x/known_hosts".into(), lines: vec![(3, line.parse().unwrap())] };
        assert_eq!(known.key("B", 99), Some(PublicKey([1; 32])));
        assert_eq!(known.key("b", PORT), None);
        let new = PublicKey([2; 32]);
        assert_eq!(
            known.complaint("b", PORT, new).to_string(),
            format!(
                "b is not known at port {PORT} (line 3 is of port 99, and a server on another port may have another key): \
                 if farlink there says that its key is {new}, add this line to /x/known_hosts: b {new}"
            )
        );
        assert!(known.complaint("c", PORT, new).to_string().starts_with("c is not known: if "));
        let changed = known.complaint("b", 99, new).to_string();
        assert!(
            changed.starts_with(&format!("b shows the key {new}, but /x/known_hosts, line 3, has ")),
            "{changed}"
        );
    }
}
