//! One side of a copy as a person writes it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use farlink_mover::bootstrap::{Remote, Ssh};
use farlink_mover::far::{Far, Server};
use farlink_mover::far_host::FarHost;
use farlink_mover::secure::Credentials;
use farlink_wire::bootstrap::Ports;
use farlink_wire::message::copy::Place;
use farlink_wire::quantity::Bytes;

/// One side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// A path of this host.
    Here(Vec<u8>),
    /// `[user@]host:path`.
    Ssh {
        /// As ssh takes it: `[user@]host`.
        host: String,
        path: Vec<u8>,
    },
    /// `farlink://host[:port]/path`.
    Server {
        /// Host and port, as written.
        host: String,
        path: Vec<u8>,
    },
}

/// How far ends are reached.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) ssh: Option<String>,
    pub(super) ports: Option<Ports>,
    pub(super) identity: Option<PathBuf>,
    pub(super) known_hosts: Option<PathBuf>,
    /// Show no key, and trust nobody's: an emulated host lets that in.
    pub(super) no_keys: bool,
}

impl Reach {
    /// Refuses what is said of a far end of another kind than `far`: it would change nothing.
    pub(super) fn check(&self, far: &Far) -> anyhow::Result<()> {
        let (is_ssh, is_server) = (matches!(far, Far::Ssh(_)), matches!(far, Far::Server(_)));
        let of_ssh = [("--ports", self.ports.is_some()), ("--ssh", self.ssh.is_some())];
        let of_servers = [
            ("--identity", self.identity.is_some()),
            ("--known-hosts", self.known_hosts.is_some()),
            ("--no-auth", self.no_keys),
        ];
        let given = |options: &[(&'static str, bool)]| {
            options.iter().find(|(_, is_given)| *is_given).map(|(option, _)| *option)
        };
        if let Some(option) = given(&of_ssh).filter(|_| !is_ssh) {
            bail!("{option} is for a far end that ssh starts: name it as HOST:PATH, or leave {option} out");
        }
        if let Some(option) = given(&of_servers).filter(|_| !is_server) {
            bail!("{option} is for a farlink serve: name it as farlink://HOST/PATH, or leave {option} out");
        }
        Ok(())
    }
}

impl Location {
    /// What `text` names. As rsync has it, a colon before any slash makes it a place on another host.
    pub(super) fn parse(text: OsString) -> anyhow::Result<Self> {
        let bytes = text.into_vec();
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        if bytes.is_empty() {
            bail!("a source or destination is empty: write . for the working directory");
        }
        if bytes == b"-" {
            bail!("-: files are copied, and no standard input or output: write ./- for a file of that name");
        }
        let utf8 = |part: &[u8]| {
            std::str::from_utf8(part)
                .map(str::to_owned)
                .with_context(|| format!("{shown}: a host's name is plain text"))
        };
        if let Some(rest) = bytes.strip_prefix(b"farlink://") {
            let cut = rest.iter().position(|byte| *byte == b'/');
            let (host, path) = rest.split_at(cut.unwrap_or(rest.len()));
            if host.is_empty() {
                bail!("{shown}: name the host, as in farlink://HOST/PATH");
            }
            if !host.starts_with(b"[") && host.iter().filter(|byte| **byte == b':').count() > 1 {
                bail!("{shown}: an IPv6 address stands in brackets, as in farlink://[2001:db8::1]:5210/PATH");
            }
            if path.is_empty() {
                bail!("{shown}: name the path, as in {shown}/PATH");
            }
            return Ok(Self::Server { host: utf8(host)?, path: path.to_vec() });
        }
        let scheme =
            bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
        if let Some(path) = bytes.strip_prefix(b"file://").filter(|path| path.starts_with(b"/")) {
            bail!(
                "{shown}: a file of this host is named by its path alone: write {}",
                String::from_utf8_lossy(path)
            );
        }
        if scheme > 0 && bytes[scheme..].starts_with(b"://") {
            bail!(
                "{shown}: write farlink://HOST/PATH, or HOST:PATH for one that ssh reaches; ./{shown} for a path"
            );
        }
        let slash = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
        // An IPv6 address has colons of its own, and so stands in brackets: at the beginning, or behind the user's name.
        let first = bytes[..slash].iter().position(|byte| *byte == b':').unwrap_or(slash);
        let opens = bytes.starts_with(b"[") || bytes[..first].windows(2).any(|pair| pair == b"@[");
        let from = match bytes[..slash].iter().position(|byte| *byte == b']') {
            Some(end) if opens => end,
            _ => 0,
        };
        match bytes[from..slash].iter().position(|byte| *byte == b':') {
            Some(0) if from == 0 => bail!("{shown}: name the host, or write ./{shown} for a path"),
            Some(colon) => {
                let (host, path) = (&bytes[..from + colon], &bytes[from + colon + 1..]);
                if path.starts_with(b":") {
                    bail!(
                        "{shown}: there are no modules as rsync's daemon has: write HOST:PATH, farlink://HOST/PATH, or HOST:./:NAME for a name that begins so"
                    );
                }
                // What ssh gets as its host must not be read as an option.
                if host.starts_with(b"-") {
                    bail!("{shown}: a host's name does not begin with a dash");
                }
                // No shell reads it there: the home directory is where a far end is.
                let path = match path {
                    [b'~'] => b"",
                    [b'~', b'/', beneath @ ..] => beneath,
                    [b'~', ..] => bail!(
                        "{shown}: other people's homes are not looked up: write the whole path, or {}:./{} for what is called so",
                        String::from_utf8_lossy(host),
                        String::from_utf8_lossy(path)
                    ),
                    other => other,
                };
                let path = if path.is_empty() { b"." } else { path };
                Ok(Self::Ssh { host: utf8(host)?.replace(['[', ']'], ""), path: path.to_vec() })
            }
            None => Ok(Self::Here(bytes)),
        }
    }

    /// Refuses a single source of this host of which nothing, or only a link that is of use to this process alone, would be copied.
    pub(super) fn check_alone(&self, length: Option<Bytes>) -> anyhow::Result<()> {
        let Self::Here(path) = self else { return Ok(()) };
        let path = Path::new(OsStr::from_bytes(path));
        let is_of_process = |path: &Path| {
            path == "/dev/stdin" || path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd")
        };
        if is_of_process(path) {
            bail!(
                "{self}: it leads to what this process has open, and links are copied as links: name the file itself, or write what comes to one first"
            );
        }
        if length.is_none() && fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_char_device()) {
            bail!(
                "{self}: a device has no length of its own: say how much to read of it, as in --length 10GiB"
            );
        }
        Ok(())
    }

    /// Whether it is on another host.
    pub(super) const fn is_far(&self) -> bool {
        !matches!(self, Self::Here(_))
    }

    /// Whether `other` is on the same host, reached in the same way.
    pub(super) fn same_host(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Here(_), Self::Here(_)) => true,
            (Self::Ssh { host, .. }, Self::Ssh { host: other, .. })
            | (Self::Server { host, .. }, Self::Server { host: other, .. }) => host == other,
            _ => false,
        }
    }

    /// The path there.
    pub(super) fn place(&self) -> anyhow::Result<Place> {
        let (Self::Here(path) | Self::Ssh { path, .. } | Self::Server { path, .. }) = self;
        Ok(Place::new(path.clone())?)
    }

    /// What is in the directory there.
    pub(super) fn within(&self) -> anyhow::Result<Place> {
        let (Self::Here(path) | Self::Ssh { path, .. } | Self::Server { path, .. }) = self;
        Ok(Place::new([path.as_slice(), b"/"].concat())?)
    }

    /// The end of a copy that is there.
    pub(super) fn far(&self, reach: &Reach) -> anyhow::Result<Far> {
        match self {
            Self::Here(_) => Ok(Far::Local),
            Self::Ssh { host, .. } => {
                let ssh = Ssh::new(reach.ssh.as_deref(), host)?;
                Ok(Far::Ssh(Remote { ssh, ports: reach.ports, bind: None }))
            }
            Self::Server { host, .. } => {
                let target: FarHost = host.parse()?;
                let usual = Credentials::of_user();
                let credentials = Credentials {
                    identity: reach.identity.clone().unwrap_or(usual.identity),
                    known_hosts: reach.known_hosts.clone().unwrap_or(usual.known_hosts),
                };
                let credentials = Some(credentials).filter(|_| !reach.no_keys);
                Ok(Far::Server(Server { target, credentials }))
            }
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &[u8]| OsStr::from_bytes(path).to_string_lossy().into_owned();
        match self {
            Self::Here(here) => f.write_str(&path(here)),
            Self::Ssh { host, path: there } => write!(f, "{host}:{}", path(there)),
            Self::Server { host, path: there } => write!(f, "farlink://{host}{}", path(there)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Location {
        Location::parse(text.into()).unwrap()
    }

    fn ssh(host: &str, path: &str) -> Location {
        Location::Ssh { host: host.to_owned(), path: path.as_bytes().to_vec() }
    }

    #[test]
    fn a_colon_before_any_slash_names_a_host() {
        for here in ["a", "./a:b", "/a:b", "a/b:c"] {
            assert_eq!(parsed(here), Location::Here(here.as_bytes().to_vec()));
        }
        assert_eq!(parsed("me@host:/data/x"), ssh("me@host", "/data/x"));
        for home in ["host:", "host:~", "host:~/"] {
            assert_eq!(parsed(home), ssh("host", "."));
        }
        assert_eq!(parsed("host:~/x"), ssh("host", "x"));
        assert_eq!(parsed("host:./~x"), ssh("host", "./~x"));
        assert_eq!(parsed("me@[2001:db8::1]:x"), ssh("me@2001:db8::1", "x"));
        assert_eq!(parsed("[2001:db8::1]:a[2]:x"), ssh("2001:db8::1", "a[2]:x"));
        for path in ["out[2].h5", "run[1]/x", "me@[1]:x", "]"] {
            assert_eq!(parsed(&format!("host:{path}")), ssh("host", path));
        }
        assert_eq!(parsed("out[2].h5"), Location::Here(b"out[2].h5".to_vec()));
        let server = Location::Server { host: "h:7411".to_owned(), path: b"/data".to_vec() };
        assert_eq!(parsed("farlink://h:7411/data"), server);
    }

    #[test]
    fn a_device_and_what_a_process_has_open_are_no_sources_by_themselves() {
        let refusal = |text: &str, length| {
            parsed(text).check_alone(length).err().map(|error| error.to_string()).unwrap_or_default()
        };
        for of_process in ["/dev/stdin", "/dev/fd/63", "/proc/self/fd/0"] {
            for length in [None, Some(Bytes(1))] {
                assert!(refusal(of_process, length).contains("name the file itself"), "{of_process}");
            }
        }
        assert!(refusal("/dev/zero", None).contains("--length 10GiB"));
        assert_eq!(refusal("/dev/zero", Some(Bytes(1))), "");
        for fine in ["/dev", "/dev/fdx", "/proc/self", "host:/dev/zero", "nothing"] {
            assert_eq!(refusal(fine, None), "", "{fine}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for bad in [
            "",
            "-",
            ":x",
            "http://h/x",
            "sftp://me@h/x",
            "farlink:///x",
            "farlink://host",
            "-oProxyCommand=x:y",
            "host:~other/x",
            "host:~other",
        ] {
            assert!(Location::parse(bad.into()).is_err(), "{bad}");
        }
        let said = Location::parse("file:///tmp/x".into()).unwrap_err().to_string();
        assert!(said.ends_with("write /tmp/x"), "{said}");
    }
}
