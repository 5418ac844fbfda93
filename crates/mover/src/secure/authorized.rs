//! Who may connect to a server. The list can be replaced while the server runs.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use farlink_host::namespace;
use farlink_wire::key::{Authorized, Grant, LineError, PublicKey, lines};

/// The keys that a server lets in, and what each may do.
#[derive(Debug)]
pub struct Admission {
    file: Option<PathBuf>,
    keys: RwLock<BTreeMap<PublicKey, Arc<Grant>>>,
}

impl Admission {
    /// Those that the file at `path` lists; [`reload`](Self::reload) reads it again.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn of_file(path: &Path) -> Result<Self, KeysError> {
        Ok(Self { file: Some(path.to_owned()), keys: RwLock::new(read(path)?) })
    }

    /// One key alone.
    #[must_use]
    pub fn of_one(key: PublicKey, grant: Grant) -> Self {
        Self { file: None, keys: RwLock::new(BTreeMap::from([(key, Arc::new(grant))])) }
    }

    /// Reads the file again, and returns how many keys it has. Sessions that run go on.
    ///
    /// # Errors
    /// [`KeysError`]; the keys of before stay.
    pub fn reload(&self) -> Result<usize, KeysError> {
        if let Some(path) = &self.file {
            let keys = read(path)?;
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        }
        Ok(self.len())
    }

    /// What the owner of `key` may do; `None` where they may not come in.
    #[must_use]
    pub fn grant(&self, key: PublicKey) -> Option<Arc<Grant>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// How many keys are let in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nobody is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn read(path: &Path) -> Result<BTreeMap<PublicKey, Arc<Grant>>, KeysError> {
    let text = text_of(path)?;
    let of_line = |source| KeysError::Line { path: path.to_owned(), source };
    let mut keys = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    for (line, Authorized { key, grant }) in lines(&text).map_err(of_line)? {
        if let Some(first) = numbers.insert(key, line) {
            return Err(KeysError::Twice { path: path.to_owned(), first, second: line });
        }
        keys.insert(key, Arc::new(grant));
    }
    Ok(keys)
}

/// What a file of keys says. Who can change such a file, or put another in its place, decides whom to trust: that may only be root and the
/// user of this process, as for sshd (`StrictModes`).
pub(super) fn text_of(path: &Path) -> Result<String, KeysError> {
    let of = |attempt| move |source| KeysError::File { attempt, path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(KeysError::Missing { path: path.to_owned() });
        }
        other => other.map_err(of("open"))?,
    };
    let user = namespace::user();
    check(path, Standing::of(&file.metadata().map_err(of("look at"))?), user)?;
    // The directory that it is in, and not one with a link to it.
    let place = fs::canonicalize(path).map_err(of("find"))?;
    if let Some(directory) = place.parent() {
        check(
            directory,
            Standing::of(&fs::metadata(directory).map_err(of("look at the directory of"))?),
            user,
        )?;
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(of("read"))?;
    if text.len() as u64 > LONGEST {
        return Err(KeysError::Long { path: path.to_owned() });
    }
    Ok(text)
}

/// Whose a file or a directory is, and who may change it.
#[derive(Clone, Copy, Debug)]
struct Standing {
    owner: u32,
    mode: u32,
}

impl Standing {
    fn of(found: &Metadata) -> Self {
        Self { owner: found.uid(), mode: found.mode() & 0o7777 }
    }
}

/// Whether nobody but root and `user` may change what is at `path`.
fn check(path: &Path, Standing { owner, mode }: Standing, user: u32) -> Result<(), KeysError> {
    if owner != 0 && owner != user {
        return Err(KeysError::Foreign { path: path.to_owned(), owner, user });
    }
    if mode & 0o022 != 0 {
        return Err(KeysError::Writable { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Bytes of the longest file of keys: about ten thousand lines.
const LONGEST: u64 = 1 << 20;

/// Why a file of keys is not used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// None is there.
    #[error("there is no {}: write into it a line \"read=/DIRECTORY write=/DIRECTORY KEY\" for each key that may connect", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// Others may change it.
    #[error("others than its owner may change {} (mode {mode:04o}): run `chmod go-w {}`", path.display(), path.display())]
    Writable {
        /// Where.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Somebody else may change it.
    #[error(
        "{} belongs to user {owner}, who is neither root nor the one who reads it: run `chown {user} {}`",
        path.display(), path.display()
    )]
    Foreign {
        /// Where.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who reads it.
        user: u32,
    },
    /// Far too long.
    #[error("{} has more than {} bytes: keep lines of keys alone in it", path.display(), LONGEST)]
    Long {
        /// Where.
        path: PathBuf,
    },
    /// A line does not read.
    #[error("{}, {source}", path.display())]
    Line {
        /// Where.
        path: PathBuf,
        /// Which line, and why.
        source: LineError,
    },
    /// A key has two lines.
    #[error("{}, line {second}: the key of line {first} again: keep one of the two", path.display())]
    Twice {
        /// Where.
        path: PathBuf,
        /// The one.
        first: usize,
        /// The other.
        second: usize,
    },
    /// The kernel's own words.
    #[error("{attempt} {}", path.display())]
    File {
        /// What was attempted.
        attempt: &'static str,
        /// Which file.
        path: PathBuf,
        /// The kernel's own words.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_of_keys_is_roots_or_the_readers_and_nobody_elses_to_change() {
        let said =
            |owner, mode| check(Path::new("/x"), Standing { owner, mode }, 7).map_err(|e| e.to_string());
        assert_eq!((said(0, 0o644), said(7, 0o600)), (Ok(()), Ok(())));
        let foreign = said(8, 0o600).unwrap_err();
        assert!(
            foreign.starts_with("/x belongs to user 8") && foreign.ends_with("`chown 7 /x`"),
            "{foreign}"
        );
        for mode in [0o620, 0o602] {
            assert!(said(7, mode).unwrap_err().ends_with("`chmod go-w /x`"));
        }
    }

    #[test]
    fn nor_is_the_directory_that_it_is_in_wherever_a_link_to_it_stands() {
        let directory = std::env::temp_dir().join(format!("farlink-list-{}", std::process::id()));
        let open = directory.join("open");
        fs::create_dir_all(&open).unwrap();
        let mode = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(open.join("keys"), "").unwrap();
        symlink(open.join("keys"), directory.join("link")).unwrap();
        let read = |name: &str| text_of(&directory.join(name)).map_err(|error| error.to_string());
        mode(0o755);
        assert_eq!((read("open/keys"), read("link")), (Ok(String::new()), Ok(String::new())));
        mode(0o777);
        for name in ["open/keys", "link"] {
            let refused = read(name).unwrap_err();
            assert!(refused.contains("(mode 0777)") && refused.contains("/open`"), "{refused}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
