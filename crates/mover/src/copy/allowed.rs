//! What a client may reach, and how that is opened.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farlink_host::beneath::{Directory, Links, is_link_in_the_way};
use farlink_wire::key::Grant;
use farlink_wire::message::copy::Place;
use farlink_wire::path::readable;

use super::CopyError;
use super::source::{absolute, plain};
use crate::secure::Admitted;

/// Where a client may read and write: beneath these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    grant: Grant,
    /// Where any client may write: what is called there is not this host's own choice.
    written: Vec<PathBuf>,
    /// Whether the client is in the same process.
    is_here: bool,
}

/// A place that a client may reach.
#[derive(Debug)]
pub(super) struct Reached {
    /// What is granted.
    pub(super) base: Arc<Directory>,
    /// The place beneath that.
    pub(super) beneath: Vec<u8>,
    /// What was granted, as it stands before `beneath` in what the client named.
    pub(super) granted: Vec<u8>,
}

impl Allowed {
    /// What was granted to who came in.
    pub(crate) fn of(admitted: &Admitted) -> Self {
        Self { grant: admitted.grant.clone(), written: admitted.written.to_vec(), is_here: false }
    }

    /// Everything that the user of this process may.
    pub(crate) fn everything() -> Self {
        Self { grant: Grant::everything("everything"), written: Vec::new(), is_here: false }
    }

    /// The same, of a client in this process.
    pub(super) fn everything_here() -> Self {
        Self { is_here: true, ..Self::everything() }
    }

    pub(super) const fn is_of_this_process(&self) -> bool {
        self.is_here
    }

    /// Whether it is everything: then a path that does not begin with a slash is one beneath the working directory.
    pub(super) fn is_everything(&self) -> bool {
        self.grant.is_everything()
    }

    /// The place to write to.
    pub(super) fn to_write(&self, place: &Place) -> Result<Reached, CopyError> {
        self.within(place, &self.grant.write, "write")
    }

    /// The place to read from. What is granted itself has its own name beneath what it is in.
    pub(super) fn to_read(&self, place: &Place) -> Result<Reached, CopyError> {
        let mut reached = self.within(place, &self.grant.read, "read")?;
        let whole = plain(place.as_bytes());
        if !reached.beneath.is_empty() {
            return Ok(reached);
        }
        if whole.ends_with(b"/") {
            reached.beneath = b"./".to_vec();
            return Ok(reached);
        }
        let name = whole.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (above, name) = whole.split_at(name);
        let above = if above.is_empty() { b"/" } else { above };
        Ok(Reached { base: self.open(above)?, beneath: name.to_vec(), granted: above.to_vec() })
    }

    /// Where `place` is beneath the nearest of `roots`.
    fn within(&self, place: &Place, roots: &[PathBuf], to: &'static str) -> Result<Reached, CopyError> {
        if self.is_everything() {
            let beneath = absolute(place.as_bytes()).map_err(CopyError::working_directory)?;
            return Ok(Reached { base: self.open(b"/")?, beneath, granted: Vec::new() });
        }
        let bytes = plain(place.as_bytes());
        // Beneath what is granted nothing leads up.
        if bytes.split(|byte| *byte == b'/').any(|component| component == b"..") {
            return Err(CopyError::LeadsUp { place: place.to_string() });
        }
        let mut found: Option<(&[u8], Vec<u8>)> = None;
        for root in roots {
            let root = root.as_os_str().as_bytes();
            let Some(beneath) = beneath(&bytes, root) else { continue };
            // What is nearest: it may be a link that leads out of one above it.
            if found.as_ref().is_none_or(|(_, other)| beneath.len() < other.len()) {
                found = Some((root, beneath));
            }
        }
        let (root, beneath) = found.ok_or_else(|| CopyError::NotAllowed { to, place: place.to_string() })?;
        let granted = bytes[..bytes.len() - beneath.len()].to_vec();
        Ok(Reached { base: self.open(root)?, beneath, granted })
    }

    /// How much of `path` is this host's own choice: up to the outermost directory that a client may write to, by whatever name.
    fn end_of_own(&self, path: &[u8]) -> usize {
        let ends = (1..=path.len()).filter(|end| path.get(*end).is_none_or(|next| *next == b'/'));
        let is_written = |end: &usize| {
            let named = Path::new(OsStr::from_bytes(&path[..*end]));
            let is_in = |path: &Path| self.written.iter().any(|root| path.starts_with(root));
            is_in(named) || named.canonicalize().is_ok_and(|found| is_in(&found))
        };
        ends.into_iter().find(is_written).unwrap_or(path.len())
    }

    /// A directory that a key may reach, or that one is in. Where a client may write what it is called by, it may have put a link in the
    /// way, and none is followed.
    fn open(&self, path: &[u8]) -> Result<Arc<Directory>, CopyError> {
        let whole = |path: &[u8]| Directory::open(Path::new(OsStr::from_bytes(path)));
        let end = self.end_of_own(path);
        let (own, beneath) = path.split_at(end);
        let beneath: Vec<u8> = beneath.iter().copied().skip_while(|byte| *byte == b'/').collect();
        let opened = match beneath.is_empty() {
            true => whole(path),
            false => whole(own).and_then(|own| own.open_dir(&beneath, Links::Refuse)),
        };
        opened.map(Arc::new).map_err(|source: io::Error| {
            if is_link_in_the_way(&source) {
                CopyError::Led { place: readable(path) }
            } else {
                CopyError::Granted { place: readable(path), source }
            }
        })
    }
}

/// `path` beneath `root`, where it is there.
fn beneath(path: &[u8], root: &[u8]) -> Option<Vec<u8>> {
    let root = root.strip_suffix(b"/").unwrap_or(root);
    let rest = path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))?;
    Some(rest.iter().copied().skip_while(|byte| *byte == b'/').collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::copy::target::tests::Scratch;

    fn allowed(read: &[&str], written: &[PathBuf]) -> Allowed {
        let read = read.iter().map(PathBuf::from).collect();
        Allowed { grant: Grant { read, ..Grant::default() }, written: written.to_vec(), is_here: false }
    }

    #[test]
    fn of_directories_that_are_granted_the_nearest_is_opened() {
        // A link among them may lead out of those above it.
        for roots in [["/", "/usr/share"], ["/usr/share/", "/"], ["/usr", "/usr/share"]] {
            let place = Place::new("/usr/share/x/y").unwrap();
            let reached = allowed(&roots, &[]).to_read(&place).unwrap();
            assert_eq!(
                (&reached.beneath[..], &reached.granted[..]),
                (&b"x/y"[..], &b"/usr/share/"[..]),
                "{roots:?}"
            );
        }
    }

    #[test]
    fn what_clients_may_have_put_in_the_way_is_not_followed() {
        let scratch = Scratch::new("allowed");
        let (open, own) = (scratch.0.join("in"), scratch.0.join("own"));
        fs::create_dir_all(open.join("real/deep")).unwrap();
        fs::create_dir(&own).unwrap();
        symlink("/", open.join("link")).unwrap();
        symlink(&open, scratch.0.join("to-in")).unwrap();
        symlink(&scratch.0, scratch.0.join("alias")).unwrap();
        let root = |name: &str| scratch.0.join(name).to_str().unwrap().to_owned();
        let reach = |name: &str, written: &[PathBuf], place: &str| {
            let place = Place::new(place.as_bytes()).unwrap();
            allowed(&[&root(name)], written).to_read(&place).map(|reached| reached.beneath)
        };
        let written = [open.clone(), own];
        assert_eq!(reach("in/real", &written, &root("in/real/x")).unwrap(), b"x");
        assert_eq!(reach("in/real/deep", &written, &root("in/real/deep")).unwrap(), b"deep");
        for name in ["in/link", "in/link/etc", "alias/in/link"] {
            let error = reach(name, &written, &root(&format!("{name}/x"))).unwrap_err().to_string();
            assert!(error.contains("symbolic link") && error.contains(name), "{error}");
            // Where nobody may write, it is the host's own.
            assert_eq!(reach(name, &[], &root(&format!("{name}/x"))).unwrap(), b"x");
        }
        assert_eq!(reach("alias/in/real", &written, &root("alias/in/real/x")).unwrap(), b"x");
        // What is granted itself, by a link of the host's.
        assert_eq!(reach("to-in", &[scratch.0.join("to-in")], &root("to-in/x")).unwrap(), b"x");
    }

    #[test]
    fn a_path_is_within_what_is_granted_however_it_is_written() {
        for (given, want) in [
            ("//data/in/x", "/data/in/x"),
            ("/data//in/./x/", "/data/in/x/"),
            ("/./data/in/.", "/data/in/."),
            ("/data/in/.x/..y", "/data/in/.x/..y"),
            ("/", "/"),
            ("x", "x"),
        ] {
            assert_eq!(String::from_utf8(plain(given.as_bytes())).unwrap(), want);
        }
    }
}
