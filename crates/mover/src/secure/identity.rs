//! An end's own key: made once, kept in a file that nobody else may read.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farlink_host::process;
use farlink_wire::key::PublicKey;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::tls;

/// An end's own key.
#[derive(Clone)]
pub struct Identity {
    public: PublicKey,
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) certified: Arc<CertifiedKey>,
}

impl Identity {
    /// A new key, kept nowhere.
    ///
    /// # Errors
    /// The kernel's, where it has no randomness.
    pub fn generate() -> io::Result<Self> {
        Self::from_pkcs8(&new_secret()?).map_err(|reason| io::Error::other(reason.to_owned()))
    }

    /// Makes a new key and keeps it in `path`, which must not be there yet, for its owner alone.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn create(path: &Path) -> Result<Self, IdentityError> {
        let of = |attempt| move |source| IdentityError::File { attempt, path: path.to_owned(), source };
        let secret = new_secret().map_err(of("make a key for"))?;
        if let Some(directory) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(of("make the directory of"))?;
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(IdentityError::Exists { path: path.to_owned() });
            }
            other => other.map_err(of("make"))?,
        };
        let written = file.write_all(encode(&secret).as_bytes()).and_then(|()| file.sync_all());
        if let Err(source) = written {
            // Half a key is no key: the next attempt must not find it.
            let _ = fs::remove_file(path);
            return Err(of("write")(source));
        }
        Self::load(path)
    }

    /// The key that is kept in `path`: PKCS #8 as PEM, as OpenSSL's `genpkey -algorithm ed25519` writes it too.
    ///
    /// # Errors
    /// [`IdentityError`], also where others than its owner may read it.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let of = |attempt| move |source| IdentityError::File { attempt, path: path.to_owned(), source };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(IdentityError::Missing { path: path.to_owned() });
            }
            other => other.map_err(of("open"))?,
        };
        let found = file.metadata().map_err(of("look at"))?;
        if found.file_type().is_char_device() {
            return Err(IdentityError::Device { path: path.to_owned() });
        }
        let mode = found.mode();
        if mode & 0o077 != 0 {
            return Err(IdentityError::Readable { path: path.to_owned(), mode: mode & 0o7777 });
        }
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).map_err(of("read"))?;
        let bad = |reason| IdentityError::NoKey { path: path.to_owned(), reason };
        let secret = PrivatePkcs8KeyDer::from_pem_slice(&text).map_err(|_| bad("it is no PKCS #8 in PEM"))?;
        Self::from_pkcs8(&secret).map_err(bad)
    }

    fn from_pkcs8(secret: &PrivatePkcs8KeyDer<'_>) -> Result<Self, &'static str> {
        let provider = Arc::new(tls::provider());
        let secret = PrivateKeyDer::Pkcs8(secret.clone_key());
        let key =
            provider.key_provider.load_private_key(secret).map_err(|_| "it is no key that can be used")?;
        let described = key.public_key().ok_or("its public key cannot be told")?;
        let public = tls::key_of(&described).ok_or("it is of another kind than Ed25519")?;
        let shown = CertificateDer::from(described.as_ref().to_vec());
        Ok(Self { public, provider, certified: Arc::new(CertifiedKey::new(vec![shown], key)) })
    }

    /// What others know it by.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}

/// A new secret key as PKCS #8 (RFC 8410, section 7): fixed bytes, and 32 that nobody can guess.
fn new_secret() -> io::Result<PrivatePkcs8KeyDer<'static>> {
    let mut bytes = PKCS8.to_vec();
    bytes.extend(process::random::<32>()?);
    Ok(bytes.into())
}

/// `secret` as PEM (RFC 7468): 48 bytes, which are one line of base64.
fn encode(secret: &PrivatePkcs8KeyDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(secret.secret_pkcs8_der());
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
}

/// What stands before the 32 bytes of an Ed25519 key: a sequence of the version 0, the algorithm 1.3.101.112, and a string in
/// a string.
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Bytes of a file that are looked at: a key is far shorter.
const LONGEST: u64 = 64 << 10;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// None is there.
    #[error("there is no key in {}: make one with `farlink keygen --identity {}`", path.display(), path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// One is there already.
    #[error("{} is there already, and whoever trusts it would not know another: name another file with --identity, or remove it", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// It is none.
    #[error("{} is a device: name the file that has the key", path.display())]
    Device {
        /// Where.
        path: PathBuf,
    },
    /// Others may read it, or have.
    #[error("others than its owner may read {} (mode {mode:04o}): run `chmod 600 {}`", path.display(), path.display())]
    Readable {
        /// Where.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// No key that we can use.
    #[error("there is no key in {}, {reason}: make one with `farlink keygen`", path.display())]
    NoKey {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let name = format!("farlink-identity-{:032x}", u128::from_be_bytes(process::random().unwrap()));
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_key_is_kept_for_its_owner_alone_and_read_back() {
        let scratch = Scratch::new();
        let path = scratch.0.join("deep/identity");
        let made = Identity::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Identity::load(&path).unwrap().public(), made.public());
        assert_ne!(made.public(), Identity::generate().unwrap().public());
        let again = Identity::create(&path).unwrap_err().to_string();
        assert!(again.starts_with(&format!("{} is there already", path.display())), "{again}");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_with_the_mend() {
        let scratch = Scratch::new();
        let path = scratch.0.join("identity");
        Identity::create(&path).unwrap();
        for mode in [0o640, 0o604, 0o610] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Identity::load(&path).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("(mode {mode:04o}): run `chmod 600 {}`", path.display())),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_no_key_is_said_not_to_be() {
        let scratch = Scratch::new();
        let path = scratch.0.join("identity");
        let missing = Identity::load(&path).unwrap_err().to_string();
        assert!(missing.contains("make one with `farlink keygen"), "{missing}");
        Identity::create(&path).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        // The algorithm's last number: X25519, which signs nothing.
        for bad in [
            String::new(),
            good.replace("PRIVATE", "SECRET"),
            good.replace("K2Vw", "K2Vu"),
            good[..60].to_owned(),
        ] {
            assert_ne!(bad, good);
            fs::write(&path, bad).unwrap();
            let error = Identity::load(&path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("there is no key in {}, ", path.display())), "{error}");
        }
    }
}
