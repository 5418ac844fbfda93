//! Who may talk with whom: keys in files, and TLS 1.3 that trusts those keys and nothing else.
//!
//! Both ends show a raw public key (RFC 7250), Ed25519. There are no certificates, no names in them, no authorities and no
//! expiry: a client trusts the one key that its user wrote down, a server the keys in its list.

mod authorized;
mod identity;
mod known;
mod places;
mod tls;
mod trust;

pub use authorized::{Admission, Admitted, KeysError};
pub use identity::{Identity, IdentityError};
pub use known::{KnownHosts, KnownHostsError};
pub use places::Places;
pub use tls::{server, server_with_claim};
pub use trust::{Credentials, CredentialsError, Trust, Trusted};

pub(crate) use tls::{PROTOCOL, Unlisted, shown};
