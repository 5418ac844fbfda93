//! Who may connect to a server. The list can be replaced while the server runs.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use farlink_host::namespace;
use farlink_wire::key::{Authorized, Grant, LineError, PublicKey, lines};

/// The keys that a server lets in, and what each may do.
#[derive(Debug)]
pub struct Admission {
    file: Option<PathBuf>,
    /// Who else than root and the user of this process may own the file.
    owner: Option<u32>,
    keys: RwLock<BTreeMap<PublicKey, Arc<Admitted>>>,
}

/// What the owner of a key may do, and what others may that are let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What this one may do.
    pub grant: Grant,
    /// Where any of them may write, but for who may write everywhere.
    pub written: Arc<[PathBuf]>,
}

impl Admission {
    /// Those that the file at `path` lists; [`reload`](Self::reload) reads it again.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn of_file(path: &Path) -> Result<Self, KeysError> {
        Self::of_file_of(path, None)
    }

    /// The same, of a process that is about to become the user `owner`: the file may be theirs.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn of_file_of(path: &Path, owner: Option<u32>) -> Result<Self, KeysError> {
        Ok(Self { file: Some(path.to_owned()), owner, keys: RwLock::new(read(path, owner)?) })
    }

    /// One key alone.
    #[must_use]
    pub fn of_one(key: PublicKey, grant: Grant) -> Self {
        Self { file: None, owner: None, keys: RwLock::new(admitted(BTreeMap::from([(key, grant)]))) }
    }

    /// Reads the file again, and returns how many keys it has. Sessions that run go on.
    ///
    /// # Errors
    /// [`KeysError`]; the keys of before stay.
    pub fn reload(&self) -> Result<usize, KeysError> {
        if let Some(path) = &self.file {
            let keys = read(path, self.owner)?;
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        }
        Ok(self.len())
    }

    /// What the owner of `key` may do; `None` where they may not come in.
    #[must_use]
    pub fn grant(&self, key: PublicKey) -> Option<Arc<Admitted>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// What its lines say that they may not have been meant to: keys that may do nothing, and directories that are not there.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        // Where a file system does not answer, nobody waits for the list.
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(file) = self.file.as_ref().filter(|_| keys.is_empty()) {
            doubts.push(format!("{} lists no key, and nobody is let in by one", file.display()));
        }
        for (key, admitted) in &keys {
            let grant = &admitted.grant;
            let whose =
                if grant.comment.is_empty() { key.to_string() } else { format!("{key} ({})", grant.comment) };
            if grant.read.is_empty() && grant.write.is_empty() {
                doubts.push(format!(
                    "the key {whose} may copy nothing: put read=/DIRECTORY, write=/DIRECTORY or both before it"
                ));
            }
            for (word, directory) in grant
                .read
                .iter()
                .map(|path| ("read", path))
                .chain(grant.write.iter().map(|path| ("write", path)))
            {
                let wrong = match fs::metadata(directory) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        "is not there: each directory has a word of its own, with a blank between them"
                    }
                    Ok(found) if !found.is_dir() => "is no directory: name the one that it is in",
                    // What may not be looked at may be there.
                    _ => continue,
                };
                doubts.push(format!("the key {whose} has {word}={}, which {wrong}", directory.display()));
            }
        }
        doubts
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

fn read(path: &Path, owner: Option<u32>) -> Result<BTreeMap<PublicKey, Arc<Admitted>>, KeysError> {
    let text = text_of(path, owner)?;
    let of_line = |line| KeysError::Line { path: path.to_owned(), line };
    let mut keys = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    for (line, Authorized { key, grant }) in lines(&text).map_err(of_line)? {
        if let Some(first) = numbers.insert(key, line) {
            return Err(KeysError::Twice { path: path.to_owned(), first, second: line });
        }
        keys.insert(key, grant);
    }
    Ok(admitted(keys))
}

fn admitted(keys: BTreeMap<PublicKey, Grant>) -> BTreeMap<PublicKey, Arc<Admitted>> {
    let everywhere = Path::new("/");
    let written = keys.values().flat_map(|grant| &grant.write).filter(|directory| *directory != everywhere);
    // As they are found whatever name leads there, and as they are called: that may not be there yet, or lead elsewhere later.
    let found = |directory: &PathBuf| [Some(directory.clone()), directory.canonicalize().ok()];
    let mut written: Vec<_> = written.flat_map(found).flatten().collect();
    written.sort_unstable();
    written.dedup();
    let written: Arc<[PathBuf]> = written.into();
    let admit = |(key, grant)| (key, Arc::new(Admitted { grant, written: Arc::clone(&written) }));
    keys.into_iter().map(admit).collect()
}

/// What a file of keys says. Who can change such a file, or put another in its place, decides whom to trust: that may only be root, the
/// user of this process, and `owner`. The file is looked at and the directory that it is in, and no others above it.
pub(super) fn text_of(path: &Path, owner: Option<u32>) -> Result<String, KeysError> {
    let of = |attempt| move |source| KeysError::File { attempt, path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(KeysError::Missing { path: path.to_owned() });
        }
        other => other.map_err(of("open"))?,
    };
    let users = [namespace::user(), owner.unwrap_or(0), 0];
    let found = file.metadata().map_err(of("look at"))?;
    if found.file_type().is_char_device() {
        return Err(KeysError::Device { path: path.to_owned() });
    }
    let found = Standing::of(&found);
    if let Some(Wrong { owner, mode }) = found.wrong(users) {
        let path = path.to_owned();
        return Err(match owner {
            Some(owner) => KeysError::Foreign { path, owner, user: users[0] },
            None => KeysError::Writable { path, mode },
        });
    }
    // The directory that it is in, and not one with a link to it.
    let place = fs::canonicalize(path).map_err(of("find"))?;
    if let Some(directory) = place.parent() {
        let found = Standing::of(&fs::metadata(directory).map_err(of("look at the directory of"))?);
        if found.wrong(users).is_some() {
            return Err(KeysError::Place { path: path.to_owned(), directory: directory.to_owned() });
        }
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

/// What lets others change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wrong {
    /// Whose it is, where that is the reason.
    owner: Option<u32>,
    mode: u32,
}

impl Standing {
    fn of(found: &Metadata) -> Self {
        Self { owner: found.uid(), mode: found.mode() & 0o7777 }
    }

    /// What lets others than `users` change it; `None` where nothing does.
    fn wrong(self, users: [u32; 3]) -> Option<Wrong> {
        let Self { owner, mode } = self;
        let owner = Some(owner).filter(|owner| !users.contains(owner));
        (owner.is_some() || mode & 0o022 != 0).then_some(Wrong { owner, mode })
    }
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
    /// It is none.
    #[error("{} is a device: name the file that has the keys", path.display())]
    Device {
        /// Where.
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
    /// Others may put another in its place.
    #[error(
        "others may change {}, the directory that {} is in: move that file to a directory that nobody else may write to",
        directory.display(), path.display()
    )]
    Place {
        /// Which file.
        path: PathBuf,
        /// The directory that it is in.
        directory: PathBuf,
    },
    /// Far too long.
    #[error("{} has more than {} bytes: keep lines of keys alone in it", path.display(), LONGEST)]
    Long {
        /// Where.
        path: PathBuf,
    },
    /// A line does not read.
    #[error("{}, {line}", path.display())]
    Line {
        /// Where.
        path: PathBuf,
        /// Which line, and why: part of the words, and so not their source.
        line: LineError,
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
        let wrong = |owner, mode| Standing { owner, mode }.wrong([7, 9, 0]);
        for owner in [0, 7, 9] {
            assert_eq!(wrong(owner, 0o644), None);
            for mode in [0o620, 0o602] {
                assert_eq!(wrong(owner, mode), Some(Wrong { owner: None, mode }));
            }
        }
        assert_eq!(wrong(8, 0o600), Some(Wrong { owner: Some(8), mode: 0o600 }));
    }

    #[test]
    fn a_list_that_belongs_to_who_this_process_will_be_is_read() {
        if namespace::user() != 0 {
            return;
        }
        let nobody = 65534;
        let directory = std::env::temp_dir().join(format!("farlink-owner-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let list = directory.join("keys");
        fs::write(&list, "").unwrap();
        fs::set_permissions(&list, fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::chown(&list, Some(nobody), None).unwrap();
        let refused = Admission::of_file(&list).unwrap_err().to_string();
        assert!(refused.contains("belongs to user 65534") && refused.contains("chown 0"), "{refused}");
        let admission = Admission::of_file_of(&list, Some(nobody)).unwrap();
        assert_eq!(admission.reload().unwrap(), 0);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn nor_is_the_directory_that_it_is_in_wherever_a_link_to_it_stands() {
        let directory = std::env::temp_dir().join(format!("farlink-list-{}", std::process::id()));
        let open = directory.join("open");
        fs::create_dir_all(&open).unwrap();
        let mode = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(open.join("keys"), "").unwrap();
        fs::set_permissions(open.join("keys"), fs::Permissions::from_mode(0o644)).unwrap();
        symlink(open.join("keys"), directory.join("link")).unwrap();
        let read = |name: &str| text_of(&directory.join(name), None).map_err(|error| error.to_string());
        mode(0o755);
        assert_eq!((read("open/keys"), read("link")), (Ok(String::new()), Ok(String::new())));
        mode(0o777);
        for name in ["open/keys", "link"] {
            let refused = read(name).unwrap_err();
            let said = format!("/open, the directory that {} is in: move", directory.join(name).display());
            assert!(refused.contains(&said) && !refused.contains("chmod"), "{refused}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
