//! Access to a cluster: a certificate authority, certificates of the server and of the administrator, the tokens of
//! the administrator and of the customer, and the key that signs those of ServiceAccounts. They are generated once
//! and stored beside the journal.

pub(crate) mod service_account;
mod signing;
mod subject;
pub(crate) mod token;
mod user;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use serve::pki::{CertificateAuthority, CertificateRequest, PkiError, Purpose, Validity};
use serve::tls::{self, ClientAuthority, ClientCertificates, TlsError};
use serve::write_private_unsynced;
use sha2::{Digest, Sha256};

use token::{Claims, TokenKey};

pub(crate) use signing::{ApprovedRequest, is_served as is_served_signer};
pub use user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};
pub(crate) use user::{service_account_groups, service_account_of};

/// The keys and certificates of a cluster cannot be generated, read or written.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file cannot be read or written.
    #[error("failed to {operation} {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The cause.
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

/// The certificates and keys in PEM, and the administrator's token.
#[derive(Clone)]
struct KeyMaterial {
    authority: String,
    authority_key: Option<Secret<String>>,
    server: String,
    server_key: String,
    admin: String,
    admin_key: String,
    token: String,
}

/// The access of one cluster.
pub struct Access {
    keys: KeyMaterial,
    customer: String,
    tokens: TokenKey,
    clients: ClientAuthority,
    tls: Arc<ServerConfig>,
}

impl std::fmt::Debug for Access {
    /// Keys and tokens are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// The name of the certificate authority.
const AUTHORITY: &str = "kubernetes";
/// The key of the certificate authority. Clusters of earlier releases have none and sign nothing.
const AUTHORITY_KEY_FILE: &str = "ca.key";
/// Generated if it is missing: older clusters have none.
const CUSTOMER_FILE: &str = "customer-token";
const FILES: [&str; 6] = ["ca.crt", "apiserver.crt", "apiserver.key", "admin.crt", "admin.key", "token"];

impl Access {
    /// Opens the keys in `directory`, or generates them if there are none. Without a directory they are always
    /// generated.
    pub fn open(directory: Option<&Path>) -> Result<Access, AccessError> {
        let keys = match directory {
            None => KeyMaterial::generate()?,
            Some(directory) if directory.join(FILES[5]).exists() => KeyMaterial::read(directory)?,
            Some(directory) => {
                let keys = KeyMaterial::generate()?;
                keys.write(directory)?;
                keys
            }
        };
        let clients = ClientAuthority::from_pem(&keys.authority)?;
        let certificate = tls::fixed_certificate(&keys.server, &keys.server_key)?;
        let tls = tls::server_config(certificate, ClientCertificates::SignedBy(&clients))?;
        let customer = read_or_generate(directory, CUSTOMER_FILE, generate_token)?;
        let tokens = TokenKey::open(directory)?;
        Ok(Access { keys, customer, tokens, clients, tls })
    }

    /// The TLS configuration of the server.
    pub fn tls(&self) -> Arc<ServerConfig> {
        self.tls.clone()
    }

    /// The user of a client certificate, if it is valid.
    pub fn authenticate_certificate(&self, chain: &[CertificateDer<'_>]) -> Option<User> {
        self.clients.verify(chain, UnixTime::now()).ok()?;
        let certificate = chain.first()?;
        let digest: String = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
        let credential = format!("X509SHA256={digest}");
        Some(
            subject::user(certificate)?.with_extra("authentication.kubernetes.io/credential-id", &credential),
        )
    }

    /// The user of a token that is not that of a ServiceAccount, if it is valid.
    pub fn authenticate_token(&self, token: &str) -> Option<User> {
        match token {
            _ if token == self.keys.token => Some(User::admin()),
            _ if token == self.customer => Some(User::customer()),
            _ => None,
        }
    }

    /// What a token of a ServiceAccount says, if this cluster has signed it.
    pub(crate) fn claims(&self, token: &str) -> Option<Arc<Claims>> {
        self.tokens.verify(token)
    }

    /// Signs a token of a ServiceAccount.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, String> {
        self.tokens.sign(claims)
    }

    /// The certificate of the certificate authority, in PEM.
    pub fn authority(&self) -> &str {
        &self.keys.authority
    }

    /// The certificate for an approved request, or why it gets none; `None` if this cluster has no key to sign with.
    pub(crate) fn certify(
        &self,
        request: &ApprovedRequest<'_>,
        now: Timestamp,
    ) -> Option<Result<String, String>> {
        let key = self.keys.authority_key.as_ref()?;
        Some(signing::sign(AUTHORITY, key.expose(), request, now))
    }

    /// A kubeconfig for the administrator, with everything inline.
    pub fn kubeconfig(&self, cluster: &str, url: &str) -> String {
        let (certificate, key) = (STANDARD.encode(&self.keys.admin), STANDARD.encode(&self.keys.admin_key));
        let credentials = format!("client-certificate-data: {certificate}\n    client-key-data: {key}");
        self.render_kubeconfig("admin", &credentials, cluster, url)
    }

    /// A kubeconfig for the customer who owns the cluster, with everything inline.
    pub fn customer_kubeconfig(&self, cluster: &str, url: &str) -> String {
        self.token_kubeconfig("customer-admin", &self.customer, cluster, url)
    }

    /// A kubeconfig with a token, with everything inline.
    pub(crate) fn token_kubeconfig(&self, user: &str, token: &str, cluster: &str, url: &str) -> String {
        self.render_kubeconfig(user, &format!("token: {token}"), cluster, url)
    }

    fn render_kubeconfig(&self, user: &str, credentials: &str, cluster: &str, url: &str) -> String {
        let ca = STANDARD.encode(&self.keys.authority);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {cluster}\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {ca}\nusers:\n- name: {user}\n  user:\n    {credentials}\n\
             contexts:\n- name: {cluster}\n  context:\n    cluster: {cluster}\n    user: {user}\n\
             current-context: {cluster}\n",
        )
    }
}

impl KeyMaterial {
    fn generate() -> Result<KeyMaterial, AccessError> {
        let validity = Validity::UNLIMITED;
        let authority = CertificateAuthority::generate(AUTHORITY, validity)?;
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
        Ok(KeyMaterial {
            authority: authority.certificate().to_owned(),
            authority_key: Some(Secret::new(authority.pair().key)),
            server: server.certificate,
            server_key: server.key,
            admin: admin.certificate,
            admin_key: admin.key,
            token: generate_token()?,
        })
    }

    fn fields(&self) -> [&str; 6] {
        [&self.authority, &self.server, &self.server_key, &self.admin, &self.admin_key, &self.token]
    }

    fn write(&self, directory: &Path) -> Result<(), AccessError> {
        // The token is last: with it the keys are complete.
        let key = self.authority_key.as_ref().map(|key| (&AUTHORITY_KEY_FILE, key.expose().as_str()));
        for (name, text) in key.into_iter().chain(FILES.iter().zip(self.fields())) {
            let path = directory.join(name);
            write_private_unsynced(&path, text).map_err(|source| AccessError::Io {
                path,
                operation: "write",
                source,
            })?;
        }
        Ok(())
    }

    fn read(directory: &Path) -> Result<KeyMaterial, AccessError> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(|source| AccessError::Io { path, operation: "read", source })
        };
        let authority_key = directory.join(AUTHORITY_KEY_FILE).exists().then(|| read(AUTHORITY_KEY_FILE));
        let [authority, server, server_key, admin, admin_key, token] = FILES;
        Ok(KeyMaterial {
            authority: read(authority)?,
            authority_key: authority_key.transpose()?.map(Secret::new),
            server: read(server)?,
            server_key: read(server_key)?,
            admin: read(admin)?,
            admin_key: read(admin_key)?,
            token: read(token)?,
        })
    }
}

fn generate_token() -> Result<String, AccessError> {
    let mut token = [0_u8; 32];
    getrandom::fill(&mut token).map_err(|error| AccessError::Token(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(token))
}

/// Reads what is stored in a file, or generates and stores it.
fn read_or_generate(
    directory: Option<&Path>,
    file: &str,
    generate: impl FnOnce() -> Result<String, AccessError>,
) -> Result<String, AccessError> {
    let Some(path) = directory.map(|it| it.join(file)) else { return generate() };
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = generate()?;
            let written = write_private_unsynced(&path, &text);
            written.map_err(|source| AccessError::Io { path, operation: "write", source })?;
            Ok(text)
        }
        Err(source) => Err(AccessError::Io { path, operation: "read", source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_neither_keys_nor_tokens() {
        let access = Access::open(None).unwrap();
        let shown = format!("{access:?}");
        let keys = &access.keys;
        for secret in [&keys.server_key, &keys.admin_key, &keys.token, &access.customer] {
            assert!(!shown.contains(secret.trim()), "{shown}");
        }
        assert!(!shown.contains("PRIVATE KEY"), "{shown}");
    }
}
