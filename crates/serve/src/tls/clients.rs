//! Client certificates: requested in the handshake, verified by the handler.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::{TlsError, certificates, provider};

/// The client certificates that a server requests.
#[derive(Debug, Clone, Copy)]
pub enum ClientCertificates<'a> {
    /// None.
    NotRequested,
    /// Those of any issuer; the handshake names no authority.
    AnyIssuer,
    /// Those of an authority, which the handshake names. Others are accepted in the handshake as well.
    SignedBy(&'a ClientAuthority),
}

impl ClientCertificates<'_> {
    pub(super) fn verifier(self) -> Option<Arc<dyn ClientCertVerifier>> {
        let hints = match self {
            ClientCertificates::NotRequested => return None,
            ClientCertificates::AnyIssuer => Vec::new(),
            ClientCertificates::SignedBy(authority) => authority.0.root_hint_subjects().to_vec(),
        };
        let algorithms = provider().signature_verification_algorithms;
        Some(Arc::new(PossessionVerifier { hints, algorithms }))
    }
}

/// The authorities that sign client certificates.
#[derive(Debug, Clone)]
pub struct ClientAuthority(Arc<dyn ClientCertVerifier>);

impl ClientAuthority {
    /// Reads the certificates of the authorities from a PEM file.
    pub fn open(path: &Path) -> Result<ClientAuthority, TlsError> {
        ClientAuthority::new(certificates(path)?).map_err(|error| TlsError::unusable(path, error))
    }

    /// The authority with this certificate.
    pub fn from_pem(pem: &str) -> Result<ClientAuthority, TlsError> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(TlsError::invalid)?;
        ClientAuthority::new(vec![certificate]).map_err(TlsError::invalid)
    }

    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<ClientAuthority, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        verifier.map(ClientAuthority).map_err(|error| error.to_string())
    }

    /// Verifies that an authority signed this chain (the client's own certificate first) and that it is valid at `now`.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let (leaf, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.0.verify_client_cert(leaf, intermediates, now).map(drop)
    }
}

/// Accepts every client certificate in the handshake whose holder has its private key. The issuer is verified afterwards
/// ([`ClientAuthority::verify`]): a handshake that fails would show the client a broken connection instead of a response.
#[derive(Debug)]
struct PossessionVerifier {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for PossessionVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
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
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
