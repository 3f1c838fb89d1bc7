//! Connection settings of one server: address, trusted authority and credential.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::secret::Secret;
use http::Uri;
use http::uri::Scheme;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Connection settings of one server.
#[derive(Debug, Clone)]
pub struct Context {
    /// Address, such as `https://127.0.0.1:8443`.
    pub server: String,
    /// The only trusted certificate authority. Required for `https`.
    pub authority: Option<Pem>,
    /// Credential that authenticates the client.
    pub credential: Credential,
}

/// Credential of a client.
#[derive(Debug, Clone)]
pub enum Credential {
    /// No credential, for a server without authentication.
    None,
    /// Client certificate.
    Certificate {
        /// Certificate chain without the root.
        certificate: Pem,
        /// Private key.
        key: Pem,
    },
    /// Bearer token.
    Token(Secret<String>),
}

/// PEM text, inline or in a file.
#[derive(Clone)]
pub enum Pem {
    /// The text itself.
    Inline(String),
    /// File that is read when a client is created.
    File(PathBuf),
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pem::Inline(_) => f.write_str("Inline(…)"),
            Pem::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Invalid context.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The address cannot be parsed.
    #[error("invalid server address {server:?}; expected an address such as https://127.0.0.1:8443")]
    InvalidAddress {
        /// The invalid address.
        server: String,
    },
    /// The server's certificate could not be verified.
    #[error(
        "server {server} uses TLS, but the context has no certificate authority to verify its certificate"
    )]
    MissingAuthority {
        /// Address of the server.
        server: String,
    },
    /// The credential would be sent in plain text.
    #[error(
        "server {server} does not use TLS, so no token or certificate is sent to it; use its https:// address, or a context without a credential"
    )]
    PlainHttp {
        /// Address of the server.
        server: String,
    },
    /// A file does not exist or is not readable.
    #[error("cannot read {what} {}: {source}", path.display())]
    Unreadable {
        /// Expected content.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: std::io::Error,
    },
    /// A certificate, key or token is invalid.
    #[error("invalid {what}: {cause}")]
    Invalid {
        /// Expected content.
        what: &'static str,
        /// Parse error.
        cause: String,
    },
}

impl Credential {
    /// Whether there is no credential.
    pub fn is_none(&self) -> bool {
        matches!(self, Credential::None)
    }
}

/// Whether the scheme of an address is `http`, ignoring case.
pub fn is_plain_http(server: &str) -> bool {
    server.parse::<Uri>().is_ok_and(|uri| uri.scheme() == Some(&Scheme::HTTP))
}

/// Whether nobody on the network can read requests to `uri`: they use TLS, or do not leave this machine.
pub fn is_secure_or_local(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    uri.scheme() == Some(&Scheme::HTTPS) || (uri.scheme() == Some(&Scheme::HTTP) && is_local)
}

impl Context {
    /// TLS settings of this context.
    pub(crate) fn tls(&self) -> Result<ClientConfig, ContextError> {
        let mut roots = RootCertStore::empty();
        if let Some(authority) = &self.authority {
            for certificate in certificates("certificate authority", authority)? {
                roots.add(certificate).map_err(|error| ContextError::Invalid {
                    what: "certificate authority",
                    cause: error.to_string(),
                })?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ContextError::Invalid { what: "TLS versions", cause: error.to_string() })?
            .with_root_certificates(roots);
        match &self.credential {
            Credential::None | Credential::Token(_) => Ok(builder.with_no_client_auth()),
            Credential::Certificate { certificate, key } => {
                let chain = certificates("client certificate", certificate)?;
                let key = read("client key", key)?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| {
                    ContextError::Invalid { what: "client key", cause: error.to_string() }
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| ContextError::Invalid {
                    what: "client certificate and key",
                    cause: error.to_string(),
                })
            }
        }
    }
}

fn certificates(what: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, ContextError> {
    let text = read(what, pem)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| ContextError::Invalid { what, cause: error.to_string() })?;
    if found.is_empty() {
        return Err(ContextError::Invalid { what, cause: "it contains no certificate".to_owned() });
    }
    Ok(found)
}

fn read(what: &'static str, pem: &Pem) -> Result<String, ContextError> {
    let unreadable = |path: &Path, source| ContextError::Unreadable { what, path: path.to_owned(), source };
    match pem {
        Pem::Inline(text) => Ok(text.clone()),
        Pem::File(path) => std::fs::read_to_string(path).map_err(|error| unreadable(path, error)),
    }
}
