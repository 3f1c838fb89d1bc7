//! TLS, version 1.2 or later. A client certificate is requested but not required; the handler verifies it after the handshake, so
//! that a client without access gets a response that explains the reason.

mod clients;
mod files;
mod replaceable;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{Error, ServerConfig};

pub use clients::{ClientAuthority, ClientCertificates};
pub use files::CertificateFiles;
pub use replaceable::ReplaceableCertificate;
pub use rustls::server::ResolvesServerCert;

/// A certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A file has invalid content.
    #[error("cannot use {}: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// A certificate or key that is not in a file has invalid content.
    #[error("cannot use the certificate: {0}")]
    Invalid(String),
    /// TLS cannot be configured.
    #[error("cannot configure TLS")]
    Protocol(#[source] Error),
}

impl TlsError {
    /// A file with invalid content.
    pub fn unusable(path: &Path, why: impl std::fmt::Display) -> TlsError {
        TlsError::Unusable { path: path.to_owned(), why: why.to_string() }
    }

    fn invalid(why: impl std::fmt::Display) -> TlsError {
        TlsError::Invalid(why.to_string())
    }
}

/// The cryptographic algorithms of every TLS client and server.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// All certificates of a PEM file; at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(unreadable)?.collect();
    let found = found.map_err(|error| TlsError::unusable(path, error))?;
    if found.is_empty() {
        return Err(TlsError::unusable(path, "it contains no PEM certificate"));
    }
    Ok(found)
}

/// A server certificate with its key in PEM that does not change.
pub fn fixed_certificate(certificate: &str, key: &str) -> Result<Arc<dyn ResolvesServerCert>, TlsError> {
    Ok(ReplaceableCertificate::new(certificate, key)?)
}

/// The TLS configuration of a server.
pub fn server_config(
    certificate: Arc<dyn ResolvesServerCert>,
    clients: ClientCertificates<'_>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?;
    let builder = match clients.verifier() {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would carry the client certificate of an earlier handshake.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
