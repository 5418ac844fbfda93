//! Whom a client trusts, and who it is.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use farlink_wire::key::PublicKey;
use rustls::ClientConfig;

use super::tls::{self, Expected, PROTOCOL, Pin};
use super::{Admission, Identity, IdentityError, KnownHosts, KnownHostsError, Places};

/// What a client shows, and the keys that it trusts.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    pin: Arc<Pin>,
    public: PublicKey,
}

impl Trust {
    /// Shows `identity`, and trusts who shows one of the keys of `server`; nobody where there are none, to learn who is there.
    ///
    /// # Errors
    /// Where the key cannot be used.
    pub fn new(identity: &Identity, server: impl IntoIterator<Item = PublicKey>) -> io::Result<Self> {
        Self::of(identity, Expected::Keys(server.into_iter().collect()), PROTOCOL)
    }

    /// Asks a far end whether it makes a claim ([`server_with_claim`](super::server_with_claim)), trusting the key of `identity` itself and
    /// those that `friends` lists. [`is_proved`](Self::is_proved) has the answer, whatever becomes of the handshake after that.
    ///
    /// # Errors
    /// Where the key cannot be used.
    pub fn question(identity: &Identity, friends: Arc<Admission>, claim: &str) -> io::Result<Self> {
        Self::of(identity, Expected::Friend(identity.public(), friends), claim.as_bytes())
    }

    fn of(identity: &Identity, expected: Expected, protocol: &[u8]) -> io::Result<Self> {
        let (config, pin) = tls::client(identity, expected, protocol).map_err(io::Error::other)?;
        Ok(Self { config, pin, public: identity.public() })
    }

    /// For the TLS of one connection.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The key that it shows.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// The key that a far end showed and that was not trusted.
    #[must_use]
    pub fn refused(&self) -> Option<PublicKey> {
        self.pin.refused()
    }

    /// Whether a far end has proved to have the key that is trusted, and to speak the protocol that was offered.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        self.pin.is_proved()
    }
}

/// Where a client has its key and those of far ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its own key.
    pub identity: PathBuf,
    /// Those of far ends.
    pub known_hosts: PathBuf,
}

impl Credentials {
    /// In a user's usual places.
    #[must_use]
    pub fn of_user() -> Self {
        let places = Places::of_user();
        Self { identity: places.identity(), known_hosts: places.known_hosts() }
    }

    /// Whether both files read.
    ///
    /// # Errors
    /// As [`Self::trust`].
    pub fn check(&self) -> Result<(), CredentialsError> {
        Identity::load(&self.identity)?;
        KnownHosts::of_file(&self.known_hosts)?;
        Ok(())
    }

    /// Whom to trust as `host` at `port`.
    ///
    /// # Errors
    /// [`CredentialsError`] where there is no key of one's own, or a file does not read. That the far end is not known is
    /// [told](Trusted::complaint) when its key is, too.
    pub fn trust(&self, host: &str, port: u16) -> Result<Trusted, CredentialsError> {
        let identity = Identity::load(&self.identity)?;
        let known = KnownHosts::of_file(&self.known_hosts)?;
        let trust = Trust::new(&identity, known.keys(host, port)).map_err(CredentialsError::Use)?;
        Ok(Trusted { trust, known, host: host.to_owned(), port })
    }
}

/// A far end that is trusted if it shows a key that is known of it.
#[derive(Debug)]
pub struct Trusted {
    /// What to show, and whom to trust.
    pub trust: Trust,
    known: KnownHosts,
    host: String,
    port: u16,
}

impl Trusted {
    /// Whether any key of the far end is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known.keys(&self.host, self.port).next().is_some()
    }

    /// What to tell the user where the far end showed `shown` instead.
    #[must_use]
    pub fn complaint(&self, shown: PublicKey) -> CredentialsError {
        self.known.complaint(&self.host, self.port, shown).into()
    }
}

/// Why there is nobody to trust, or nobody to be.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// No key of one's own.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No key of the far end, or another.
    #[error(transparent)]
    KnownHosts(#[from] KnownHostsError),
    /// The key is no good.
    #[error("use the key")]
    Use(#[source] io::Error),
}
