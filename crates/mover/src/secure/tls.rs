//! TLS 1.3 between two ends that know each other's raw public keys (RFC 8446, RFC 7250).
//!
//! No earlier version, no certificates, no tickets, no resumption, no early data: a session is new, and both ends have proved
//! who they are in it.

use std::sync::{Arc, OnceLock};

use farlink_flow::aead;
use farlink_wire::key::PublicKey;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{self, cipher_suite as of_aws_lc, kx_group};
use rustls::crypto::ring::cipher_suite as of_ring;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    ServerConfig, SignatureScheme,
};

use super::{Admission, Identity};

/// What both ends say that they speak (RFC 7301).
pub(crate) const PROTOCOL: &[u8] = b"farlink/1";

/// Which key a server must show.
#[derive(Debug)]
pub(crate) enum Expected {
    /// One of these; no server is trusted where there is none.
    Keys(Vec<PublicKey>),
    /// One's own, or one that is let in.
    Friend(PublicKey, Arc<Admission>),
}

impl Expected {
    fn is(&self, shown: PublicKey) -> bool {
        match self {
            Self::Keys(keys) => keys.contains(&shown),
            Self::Friend(own, admission) => *own == shown || admission.grant(shown).is_some(),
        }
    }
}

/// The key that a server must show, and the one that it did.
#[derive(Debug)]
pub(crate) struct Pin {
    expected: Expected,
    shown: OnceLock<PublicKey>,
    proved: OnceLock<()>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pin {
    /// The key that the server showed last where it was not the one that it must show.
    pub(crate) fn refused(&self) -> Option<PublicKey> {
        self.shown.get().copied()
    }

    /// Whether a server has shown the key that it must show, and signed this handshake with it.
    pub(crate) fn is_proved(&self) -> bool {
        self.proved.get().is_some()
    }
}

/// What a client uses that shows `identity`, trusts a server that shows what is `expected`, and speaks `protocol`. The pin tells which
/// key another server showed.
pub(crate) fn client(
    identity: &Identity,
    expected: Expected,
    protocol: &[u8],
) -> Result<(Arc<ClientConfig>, Arc<Pin>), Error> {
    let algorithms = identity.provider.signature_verification_algorithms;
    let pin = Arc::new(Pin { expected, shown: OnceLock::new(), proved: OnceLock::new(), algorithms });
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&identity.provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::<Pin>::clone(&pin))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
            &identity.certified,
        ))));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok((Arc::new(config), pin))
}

/// What a server uses that shows `identity` and lets in whom `admission` lists.
///
/// # Errors
/// Where the key cannot be used.
pub fn server(identity: &Identity, admission: Arc<Admission>) -> Result<Arc<ServerConfig>, Error> {
    serving(identity, admission, Vec::new())
}

/// As [`server`], and claims what `claim` says to whoever [asks](super::Trust::question), also one that it does not let in.
///
/// # Errors
/// Where the key cannot be used.
pub fn server_with_claim(
    identity: &Identity,
    admission: Arc<Admission>,
    claim: &str,
) -> Result<Arc<ServerConfig>, Error> {
    serving(identity, admission, vec![claim.as_bytes().to_vec()])
}

fn serving(
    identity: &Identity,
    admission: Arc<Admission>,
    mut protocols: Vec<Vec<u8>>,
) -> Result<Arc<ServerConfig>, Error> {
    protocols.insert(0, PROTOCOL.to_vec());
    let algorithms = identity.provider.signature_verification_algorithms;
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&identity.provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(Admit { admission, algorithms }))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(
            &identity.certified,
        ))));
    config.alpn_protocols = protocols;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// The cryptography that both ends use. AES-128-GCM first, which processors do fastest that have instructions for it; they
/// agree on a secret by X25519 with ML-KEM-768 beside it, so that who records a transfer today cannot read it with a quantum
/// computer later (as OpenSSH does since 9.9). X25519 alone is not offered beside that: whoever speaks this has both, and what a client says
/// first would not fit its first segment in packets of 1,500 bytes. Records are sealed by the faster library, and all else is done by aws-lc.
pub(super) fn provider() -> CryptoProvider {
    let cipher_suites = if aead::prefers_ring() {
        vec![
            of_ring::TLS13_AES_128_GCM_SHA256,
            of_ring::TLS13_CHACHA20_POLY1305_SHA256,
            of_ring::TLS13_AES_256_GCM_SHA384,
        ]
    } else {
        vec![
            of_aws_lc::TLS13_AES_128_GCM_SHA256,
            of_aws_lc::TLS13_CHACHA20_POLY1305_SHA256,
            of_aws_lc::TLS13_AES_256_GCM_SHA384,
        ]
    };
    CryptoProvider {
        cipher_suites,
        kx_groups: vec![kx_group::X25519MLKEM768],
        ..aws_lc_rs::default_provider()
    }
}

/// The Ed25519 key that `described` is.
pub(super) fn key_of(described: &[u8]) -> Option<PublicKey> {
    described.strip_prefix(&SPKI)?.try_into().ok().map(PublicKey)
}

/// The key that the far side of a connection has shown and proved to have.
pub(crate) fn shown(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    match certificates? {
        [only] => key_of(only),
        _ => None,
    }
}

/// What stands before the 32 bytes of an Ed25519 public key (RFC 8410, section 4).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Checks that who showed a key has it.
fn proved(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let described = SubjectPublicKeyInfoDer::from(certificate.as_ref());
    verify_tls13_signature_with_raw_key(message, &described, signature, algorithms)
}

/// No key of an older version is taken: none is spoken.
fn refused_version() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(shown) = key_of(end_entity) else { return Err(CertificateError::BadEncoding.into()) };
        if self.expected.is(shown) {
            return Ok(ServerCertVerified::assertion());
        }
        let _ = self.shown.set(shown);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refused_version()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let proved = proved(message, cert, dss, &self.algorithms)?;
        let _ = self.proved.set(());
        Ok(proved)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Lets clients in whose key is listed.
#[derive(Debug)]
pub(crate) struct Admit {
    admission: Arc<Admission>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Why who showed this key is not let in.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not listed")]
pub(crate) struct Unlisted(pub(crate) PublicKey);

impl ClientCertVerifier for Admit {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let Some(key) = key_of(end_entity) else { return Err(CertificateError::BadEncoding.into()) };
        let grant = self.admission.grant(key);
        match grant {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(CertificateError::Other(OtherError(Arc::new(Unlisted(key)))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refused_version()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        proved(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use farlink_host::readiness::Wake;
    use farlink_wire::key::Grant;
    use farlink_wire::message::Preamble;
    use farlink_wire::quantity::Nanos;
    use rustls::{SupportedCipherSuite, Tls13CipherSuite};

    use super::*;
    use crate::channel::{Channel, Wait};
    use crate::secure::Trust;

    /// An identity whose keys wear out after a few records, instead of after 2^24.
    fn wearing_out() -> Identity {
        let mut identity = Identity::generate().unwrap();
        let mut provider = provider();
        for suite in &mut provider.cipher_suites {
            let SupportedCipherSuite::Tls13(usual) = *suite;
            let common = rustls::crypto::CipherSuiteCommon { confidentiality_limit: 40, ..usual.common };
            let short = Tls13CipherSuite { common, ..*usual };
            *suite = SupportedCipherSuite::Tls13(Box::leak(Box::new(short)));
        }
        identity.provider = Arc::new(provider);
        identity
    }

    /// Whether `asker`, who trusts its own key and those of `friends`, is convinced that a server with `identity` claims "x".
    fn is_convinced(asker: &Identity, friends: &Arc<Admission>, identity: &Identity, claims: bool) -> bool {
        let nobody = Arc::new(Admission::of_one(Identity::generate().unwrap().public(), Grant::default()));
        let serving = if claims {
            server_with_claim(identity, nobody, "x").unwrap()
        } else {
            server(identity, nobody).unwrap()
        };
        let (near, far) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (Channel::over_unix(near).unwrap(), Channel::over_unix(far).unwrap());
        let question = Trust::question(asker, Arc::clone(friends), "x").unwrap();
        near.seal_as_client(question.config(), &[]).unwrap();
        far.seal_as_server(serving, &[]).unwrap();
        for _ in 0..4 {
            let _ = (near.shake_hands(), far.shake_hands());
        }
        question.is_proved()
    }

    #[test]
    fn a_claim_is_proved_by_a_trusted_key_also_to_one_that_is_not_let_in() {
        let (own, friend, stranger) =
            (Identity::generate().unwrap(), Identity::generate().unwrap(), Identity::generate().unwrap());
        let friends = Arc::new(Admission::of_one(friend.public(), Grant::default()));
        for trusted in [&own, &friend] {
            assert!(is_convinced(&own, &friends, trusted, true));
            assert!(!is_convinced(&own, &friends, trusted, false), "it claims nothing");
        }
        assert!(!is_convinced(&own, &friends, &stranger, true));
    }

    /// Bytes of payload that leave with a SYN in packets of 1,500 bytes over IPv4: 40 are kept for options (`tcp_send_syn_data` of the kernel's
    /// net/ipv4/tcp_output.c).
    const FIRST_SEGMENT: usize = 1500 - 20 - 20 - 40;

    #[test]
    fn what_a_data_connection_says_first_fits_its_first_segment() {
        let (ours, theirs) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut near = Channel::over_unix(near).unwrap();
        let trust = Trust::new(&ours, Some(theirs.public())).unwrap();
        near.seal_as_client(trust.config(), &[0; Preamble::LEN]).unwrap();
        assert!(!near.shake_hands().unwrap());
        let said = far.read(&mut [0; 4096]).unwrap();
        assert!(said <= FIRST_SEGMENT, "{said} bytes");
    }

    #[test]
    fn keys_are_renewed_before_they_wear_out() {
        let (ours, theirs) = (wearing_out(), wearing_out());
        let admission = Arc::new(Admission::of_one(ours.public(), Grant::default()));
        let (near, far) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (Channel::over_unix(near).unwrap(), Channel::over_unix(far).unwrap());
        let trust = Trust::new(&ours, Some(theirs.public())).unwrap();
        near.seal_as_client(trust.config(), &[]).unwrap();
        far.seal_as_server(server(&theirs, admission).unwrap(), &[]).unwrap();
        for channel in [&mut near, &mut far] {
            let wait =
                Wait { patience: Nanos(20_000_000_000), stop: Wake::new().unwrap(), while_full: false };
            channel.set_wait(Some(wait));
        }
        let sent: Vec<u8> = (0..5_000_000).map(|at| (at % 251) as u8).collect();
        let copy = sent.clone();
        let writer = std::thread::spawn(move || {
            near.write_all(&copy).unwrap();
            near.finish().unwrap();
            let mut word = [0; 3];
            near.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"end");
        });
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert!(got == sent, "other bytes arrived");
        far.write_all(b"end").unwrap();
        writer.join().unwrap();
    }
}
