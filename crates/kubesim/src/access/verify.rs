//! Client certificates are looked at after the handshake: one that nobody here signed gets a 401 in plain words, as from
//! the real server, rather than a broken connection.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::AccessError;

/// A verifier of what the authority signed.
pub(super) fn of_authority(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, AccessError> {
    let wrong = |error: &dyn std::fmt::Display| AccessError::Use(error.to_string());
    let authority = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| wrong(&error))?;
    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(|error| wrong(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| wrong(&error))
}

/// Lets every certificate through the handshake, whose holder proves that it is theirs; who signed it is asked later.
#[derive(Debug)]
pub(super) struct Lenient {
    inner: Arc<dyn ClientCertVerifier>,
}

impl Lenient {
    pub(super) fn of(inner: &Arc<dyn ClientCertVerifier>) -> Lenient {
        Lenient { inner: inner.clone() }
    }
}

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
