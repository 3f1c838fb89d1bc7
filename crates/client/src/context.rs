//! Where a server is, whom to trust there and how to show who we are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::secret::Secret;
use http::Uri;
use http::uri::Scheme;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// How to reach one server.
#[derive(Debug, Clone)]
pub struct Context {
    /// Its address, such as `https://127.0.0.1:8443`.
    pub server: String,
    /// The only authority whose certificates are trusted there. Required for `https`.
    pub authority: Option<Pem>,
    /// How we show who we are.
    pub credential: Credential,
}

/// How a client shows who it is.
#[derive(Debug, Clone)]
pub enum Credential {
    /// It does not; only a server without authentication answers.
    None,
    /// By a certificate.
    Certificate {
        /// The certificate and those between it and its authority.
        certificate: Pem,
        /// Its private key.
        key: Pem,
    },
    /// By a bearer token.
    Token(Secret<String>),
}

/// Text in PEM, here or in a file.
#[derive(Clone)]
pub enum Pem {
    /// Here.
    Inline(String),
    /// In this file, which is read when a client is made.
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

/// Why a context cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The address is none.
    #[error("the server {server:?} is no address; expected one such as https://127.0.0.1:8443")]
    Address {
        /// What was given.
        server: String,
    },
    /// Nobody could say that a server is the right one.
    #[error(
        "the server {server} speaks TLS, but the context names no certificate authority to check it against"
    )]
    NoAuthority {
        /// The server.
        server: String,
    },
    /// What shows who we are could be read on its way.
    #[error(
        "the server {server} speaks no TLS, so no token or certificate is sent to it; use its https:// address, or a context without a credential"
    )]
    Unprotected {
        /// The server.
        server: String,
    },
    /// A file is not there or not readable.
    #[error("the {what} {} cannot be read: {source}", path.display())]
    Unreadable {
        /// What it should hold.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It does not hold what it should.
    #[error("the {what} is not PEM with what is needed: {why}")]
    NotPem {
        /// What it should hold.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
}

impl Credential {
    /// Whether there is nothing to show.
    pub fn is_none(&self) -> bool {
        matches!(self, Credential::None)
    }
}

/// Whether requests to that address go over plain HTTP, in whatever letters the scheme is written.
pub fn is_plain_http(server: &str) -> bool {
    server.parse::<Uri>().is_ok_and(|uri| uri.scheme() == Some(&Scheme::HTTP))
}

/// Whether nobody on the way can read what is sent to that address: it goes over TLS, or does not leave this machine.
pub fn is_protected(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    uri.scheme() == Some(&Scheme::HTTPS) || (uri.scheme() == Some(&Scheme::HTTP) && is_local)
}

impl Context {
    /// The settings of TLS that this context asks for.
    pub(crate) fn tls(&self) -> Result<ClientConfig, ContextError> {
        let mut roots = RootCertStore::empty();
        if let Some(authority) = &self.authority {
            for certificate in certificates("certificate authority", authority)? {
                roots.add(certificate).map_err(|error| ContextError::NotPem {
                    what: "certificate authority",
                    why: error.to_string(),
                })?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ContextError::NotPem { what: "set of TLS versions", why: error.to_string() })?
            .with_root_certificates(roots);
        match &self.credential {
            Credential::None | Credential::Token(_) => Ok(builder.with_no_client_auth()),
            Credential::Certificate { certificate, key } => {
                let chain = certificates("client certificate", certificate)?;
                let key = read("client key", key)?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|error| ContextError::NotPem { what: "client key", why: error.to_string() })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| ContextError::NotPem {
                    what: "client certificate and key",
                    why: error.to_string(),
                })
            }
        }
    }
}

fn certificates(what: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, ContextError> {
    let text = read(what, pem)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| ContextError::NotPem { what, why: error.to_string() })?;
    if found.is_empty() {
        return Err(ContextError::NotPem { what, why: "it holds no certificate".to_owned() });
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
