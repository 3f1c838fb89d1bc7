//! Who may come in: each cluster has an authority of its own, a certificate for its server, one for its administrator, and
//! two tokens: the administrator's, and that of whoever the cluster was made for. They are made once and kept beside the
//! journal.

mod subject;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use serve::pki::{CertificateAuthority, CertificateRequest, PkiError, Purpose, Validity};
use serve::tls::{self, ClientAuthority, ClientCertificates, TlsError};
use serve::write_private_unsynced;

use crate::http::User;

/// The keys and certificates of a cluster cannot be made, read or kept.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file cannot be read or written.
    #[error("the file {} could not be {doing}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A certificate cannot be issued.
    #[error(transparent)]
    Issue(#[from] PkiError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system has no random numbers.
    #[error("cannot generate a token: {0}")]
    Token(String),
}

/// The texts that make up a cluster's access, in PEM.
#[derive(Debug, Clone)]
struct Texts {
    authority: String,
    server: String,
    server_key: String,
    admin: String,
    admin_key: String,
    token: String,
}

/// The access of one cluster.
#[derive(Debug)]
pub struct Access {
    texts: Texts,
    customer: String,
    clients: ClientAuthority,
    tls: Arc<ServerConfig>,
}

/// Beside the others, and made when it is not there: older clusters had none.
const CUSTOMER_FILE: &str = "customer-token";
const FILES: [&str; 6] = ["ca.crt", "apiserver.crt", "apiserver.key", "admin.crt", "admin.key", "token"];

impl Access {
    /// The access that is kept in `directory`, made if there is none yet; without a directory, a fresh one.
    pub fn open(directory: Option<&Path>) -> Result<Access, AccessError> {
        let texts = match directory {
            None => Texts::make()?,
            Some(directory) if directory.join(FILES[5]).exists() => Texts::read(directory)?,
            Some(directory) => {
                let texts = Texts::make()?;
                texts.keep(directory)?;
                texts
            }
        };
        let clients = ClientAuthority::from_pem(&texts.authority)?;
        let certificate = tls::fixed_certificate(&texts.server, &texts.server_key)?;
        let tls = tls::server_config(certificate, ClientCertificates::SignedBy(&clients))?;
        let customer = customer_token(directory)?;
        Ok(Access { texts, customer, clients, tls })
    }

    /// How the server speaks TLS.
    pub fn tls(&self) -> Arc<ServerConfig> {
        self.tls.clone()
    }

    /// The user that a verified certificate names.
    pub fn user_of_certificates(&self, chain: &[CertificateDer<'_>]) -> Option<User> {
        self.clients.verify(chain, UnixTime::now()).ok()?;
        subject::user(chain.first()?)
    }

    /// The user that a token names.
    pub fn user_of_token(&self, token: &str) -> Option<User> {
        match token {
            _ if token == self.texts.token => Some(User::admin()),
            _ if token == self.customer => Some(User::customer()),
            _ => None,
        }
    }

    /// The certificate of the authority, in PEM.
    pub fn authority(&self) -> &str {
        &self.texts.authority
    }

    /// A kubeconfig for the administrator, with everything inline.
    pub fn kubeconfig(&self, cluster: &str, url: &str) -> String {
        let (certificate, key) = (STANDARD.encode(&self.texts.admin), STANDARD.encode(&self.texts.admin_key));
        let proof = format!("client-certificate-data: {certificate}\n    client-key-data: {key}");
        self.kubeconfig_of("admin", &proof, cluster, url)
    }

    /// A kubeconfig for whoever the cluster was made for, with everything inline.
    pub fn customer_kubeconfig(&self, cluster: &str, url: &str) -> String {
        self.kubeconfig_of("customer-admin", &format!("token: {}", self.customer), cluster, url)
    }

    fn kubeconfig_of(&self, user: &str, proof: &str, cluster: &str, url: &str) -> String {
        let ca = STANDARD.encode(&self.texts.authority);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {cluster}\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {ca}\nusers:\n- name: {user}\n  user:\n    {proof}\n\
             contexts:\n- name: {cluster}\n  context:\n    cluster: {cluster}\n    user: {user}\n\
             current-context: {cluster}\n",
        )
    }
}

impl Texts {
    fn make() -> Result<Texts, AccessError> {
        let validity = Validity::UNLIMITED;
        let authority = CertificateAuthority::generate("kubernetes", validity)?;
        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let server = authority.issue(&CertificateRequest {
            common_name: "kube-apiserver",
            organization: None,
            alternative_names: names.map(str::to_owned).to_vec(),
            purpose: Purpose::Server,
            validity,
        })?;
        let admin = authority.issue(&CertificateRequest {
            common_name: "admin",
            organization: Some("system:masters"),
            alternative_names: Vec::new(),
            purpose: Purpose::Client,
            validity,
        })?;
        Ok(Texts {
            authority: authority.certificate().to_owned(),
            server: server.certificate,
            server_key: server.key,
            admin: admin.certificate,
            admin_key: admin.key,
            token: fresh_token()?,
        })
    }

    fn fields(&self) -> [&str; 6] {
        [&self.authority, &self.server, &self.server_key, &self.admin, &self.admin_key, &self.token]
    }

    fn keep(&self, directory: &Path) -> Result<(), AccessError> {
        for (name, text) in FILES.iter().zip(self.fields()) {
            let path = directory.join(name);
            write_private_unsynced(&path, text).map_err(|source| AccessError::Io {
                path,
                doing: "written",
                source,
            })?;
        }
        Ok(())
    }

    fn read(directory: &Path) -> Result<Texts, AccessError> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(|source| AccessError::Io { path, doing: "read", source })
        };
        let [authority, server, server_key, admin, admin_key, token] = FILES;
        Ok(Texts {
            authority: read(authority)?,
            server: read(server)?,
            server_key: read(server_key)?,
            admin: read(admin)?,
            admin_key: read(admin_key)?,
            token: read(token)?,
        })
    }
}

fn fresh_token() -> Result<String, AccessError> {
    let mut token = [0_u8; 32];
    getrandom::fill(&mut token).map_err(|error| AccessError::Token(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(token))
}

/// The token that is kept for whoever the cluster was made for.
fn customer_token(directory: Option<&Path>) -> Result<String, AccessError> {
    let Some(path) = directory.map(|it| it.join(CUSTOMER_FILE)) else { return fresh_token() };
    match fs::read_to_string(&path) {
        Ok(kept) => Ok(kept),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token = fresh_token()?;
            let written = write_private_unsynced(&path, &token);
            written.map_err(|source| AccessError::Io { path, doing: "written", source })?;
            Ok(token)
        }
        Err(source) => Err(AccessError::Io { path, doing: "read", source }),
    }
}
