//! Who may connect to a server. The list can be replaced while the server runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

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

/// What a file of keys says. Who can change such a file decides whom to trust: that may only be its owner.
pub(super) fn text_of(path: &Path) -> Result<String, KeysError> {
    let of = |attempt| move |source| KeysError::File { attempt, path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(KeysError::Missing { path: path.to_owned() });
        }
        other => other.map_err(of("open"))?,
    };
    let mode = file.metadata().map_err(of("look at"))?.mode();
    if mode & 0o022 != 0 {
        return Err(KeysError::Writable { path: path.to_owned(), mode: mode & 0o7777 });
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(of("read"))?;
    if text.len() as u64 > LONGEST {
        return Err(KeysError::Long { path: path.to_owned() });
    }
    Ok(text)
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
