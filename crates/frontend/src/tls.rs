//! TLS: at least version 1.2; a client certificate is asked for but not demanded, and judged after the handshake, so that
//! a stranger is told 403 in plain words.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};

/// Certificates or keys that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A file does not hold what it should.
    #[error("{} cannot be used: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// TLS itself cannot be set up.
    #[error("TLS cannot be set up")]
    Protocol(#[source] Error),
}

impl TlsError {
    pub(crate) fn unusable(path: &Path, why: impl std::fmt::Display) -> TlsError {
        TlsError::Unusable { path: path.to_owned(), why: why.to_string() }
    }
}

/// The algorithms that we speak.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// All certificates of a PEM file; at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(unreadable)?.collect();
    let found = found.map_err(|error| TlsError::unusable(path, error))?;
    if found.is_empty() {
        return Err(TlsError::unusable(path, "it holds no certificate in PEM"));
    }
    Ok(found)
}

/// How the server speaks TLS. `clients` says which authorities are named to those who come.
pub(crate) fn server(
    certificate: &Path,
    key: &Path,
    clients: Option<&Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, TlsError> {
    let chain = certificates(certificate)?;
    let unreadable = |source| TlsError::Unreadable { path: key.to_owned(), source };
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?;
    let builder = match clients {
        Some(inner) => builder.with_client_cert_verifier(Arc::new(Lenient { inner: inner.clone() })),
        None => builder.with_no_client_auth(),
    };
    let mut config =
        builder.with_single_cert(chain, private).map_err(|error| TlsError::unusable(certificate, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would carry the judgement of an earlier handshake.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Lets every certificate through the handshake whose holder proves that it is theirs; who signed it is asked later.
#[derive(Debug)]
struct Lenient {
    inner: Arc<dyn ClientCertVerifier>,
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
