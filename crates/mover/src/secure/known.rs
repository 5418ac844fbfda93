//! The far ends that a user knows, each by the key that it must show, or by several: its next one may be known before it shows it.

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

    /// The lines that are about `host` at `port`, and their numbers, from 1.
    fn find(&self, host: &str, port: u16) -> impl Iterator<Item = (usize, &KnownHost)> {
        let about = move |(_, line): &&(usize, KnownHost)| line.is_about(host, port, PORT);
        self.lines.iter().filter(about).map(|(number, line)| (*number, line))
    }

    /// The keys of which `host` at `port` must show one; none where it is not known.
    pub fn keys(&self, host: &str, port: u16) -> impl Iterator<Item = PublicKey> {
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
        let known: Vec<_> = self.find(host, port).map(|(line, known)| (line, known.key)).collect();
        match known.split_first() {
            None => {
                let of_host = |line: &&(usize, KnownHost)| line.1.host.eq_ignore_ascii_case(host);
                let elsewhere = self.lines.iter().find(of_host);
                let elsewhere = elsewhere.map(|(line, known)| (*line, known.port.unwrap_or(PORT)));
                KnownHostsError::Unknown { path: self.path.clone(), named, port, elsewhere }
            }
            Some((&(line, known), others)) => {
                let others = others.iter().map(|(line, _)| *line).collect();
                KnownHostsError::Changed { path: self.path.clone(), line, known, others, named }
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
        "{} shows the key {}, but {}, line {line}, has {known}{}: somebody may be in between; if its key was \
         replaced, replace it in that line too",
        named.host, named.key, path.display(), other_lines(others)
    )]
    Changed {
        /// The file of known hosts.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What it has.
        known: PublicKey,
        /// Other lines of that host.
        others: Vec<usize>,
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

/// That other lines have other keys, too.
fn other_lines(others: &[usize]) -> String {
    others.iter().map(|line| format!(", and line {line} another")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_and_a_changed_key_are_told_with_the_mend() {
        let line = format!("b:99 {}", PublicKey([1; 32]));
        let known = KnownHosts { path: "/x/known_hosts".into(), lines: vec![(3, line.parse().unwrap())] };
        assert_eq!(known.keys("B", 99).collect::<Vec<_>>(), [PublicKey([1; 32])]);
        assert_eq!(known.keys("b", PORT).count(), 0);
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

    #[test]
    fn a_host_has_its_next_key_before_it_shows_it() {
        let of_line = |line: &str| line.parse().unwrap();
        let lines = [1, 2].map(|byte| format!("b {}", PublicKey([byte; 32])));
        let lines = vec![(1, of_line(&lines[0])), (4, of_line(&lines[1]))];
        let known = KnownHosts { path: "/x/known_hosts".into(), lines };
        assert_eq!(known.keys("b", PORT).collect::<Vec<_>>(), [PublicKey([1; 32]), PublicKey([2; 32])]);
        let changed = known.complaint("b", PORT, PublicKey([3; 32])).to_string();
        let said =
            format!("/x/known_hosts, line 1, has {}, and line 4 another: somebody", PublicKey([1; 32]));
        assert!(changed.contains(&said), "{changed}");
    }
}
