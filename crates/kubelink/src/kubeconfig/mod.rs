//! An imported kubeconfig, checked before it is used.
//!
//! It is untrusted input, so it must be self-contained: nothing that runs a program, reads a file of this host, or weakens TLS is
//! accepted unless the operator's configuration allows it by name. Parsing reads no file and no environment. Errors and `Debug`
//! contain no text of the kubeconfig beyond names, and no secret.

use std::fmt;

use api::error::{Class, Classify};
use api::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::{self as raw, AuthInfo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

mod risk;
#[cfg(test)]
mod tests;

pub use risk::{AllowedRisks, KubeconfigRisk};

/// Larger than any real one; limits what a caller can make us parse.
const SIZE_MAX: usize = 1024 * 1024;

/// Why a kubeconfig is rejected: one sentence, with what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kubeconfig is rejected: {0}")]
pub struct KubeconfigError(String);

impl Classify for KubeconfigError {
    fn class(&self) -> Class {
        Class::Terminal
    }
}

/// Address, trust and credential for one cluster; all of it checked.
#[derive(Clone)]
pub struct Kubeconfig {
    context: String,
    server: http::Uri,
    namespace: String,
    digest: String,
    config: Secret<kube::Config>,
    document: Secret<String>,
    client_certificate: Option<Vec<u8>>,
}

impl Kubeconfig {
    /// Parses `text` and selects the context `context`, or else its current one.
    pub fn parse(
        text: &str,
        context: Option<&str>,
        allow: &AllowedRisks,
    ) -> Result<Kubeconfig, KubeconfigError> {
        if text.len() > SIZE_MAX {
            return reject(format!("it has {} bytes, and at most {SIZE_MAX} are accepted", text.len()));
        }
        // The message of the parser quotes the text, which may be a secret: only the position is reported.
        let parsed: raw::Kubeconfig = serde_saphyr::from_str(text).map_err(|error| {
            let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            KubeconfigError(format!("it is not the YAML of a kubeconfig{}", place.unwrap_or_default()))
        })?;
        let chosen = SelectedContext::from(parsed, context)?;
        chosen.check_risks(allow)?;
        let server = chosen.server()?;
        let authority = chosen.authority()?;
        let (client_certificate, has_key) = chosen.identity(allow)?;
        chosen.check_credential(client_certificate.is_some() && has_key)?;

        let mut config = kube::Config::new(server.clone());
        config.default_namespace = chosen.namespace.clone();
        config.root_cert = authority;
        config.root_cert_file = chosen.cluster.certificate_authority.clone().map(Into::into);
        config.accept_invalid_certs = chosen.cluster.insecure_skip_tls_verify.unwrap_or(false);
        config.tls_server_name = chosen.cluster.tls_server_name.clone();
        config.proxy_url = chosen.proxy()?;
        config.auth_info = chosen.user.clone();
        let document = chosen.document()?;
        let digest = Sha256::digest(document.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Kubeconfig {
            context: chosen.context,
            server,
            namespace: chosen.namespace,
            digest,
            config: Secret::new(config),
            document: Secret::new(document),
            client_certificate,
        })
    }

    /// The name of the selected context.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The API server's address.
    pub fn server(&self) -> &http::Uri {
        &self.server
    }

    /// The namespace of the context, or `default`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Changes whenever the address, the trust or the credential changes; reveals none of them.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// A kubeconfig with the selected context and nothing else.
    pub fn document(&self) -> &Secret<String> {
        &self.document
    }

    pub(crate) fn config(&self) -> &kube::Config {
        self.config.expose()
    }

    /// The client certificate, in DER.
    pub(crate) fn client_certificate(&self) -> Option<&[u8]> {
        self.client_certificate.as_deref()
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("context", &self.context)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

fn reject<T>(why: String) -> Result<T, KubeconfigError> {
    Err(KubeconfigError(why))
}

/// The three parts of the selected context, with their names for messages.
struct SelectedContext {
    context: String,
    namespace: String,
    cluster_name: String,
    cluster: raw::Cluster,
    user_name: String,
    user: AuthInfo,
}

impl SelectedContext {
    fn from(parsed: raw::Kubeconfig, wanted: Option<&str>) -> Result<SelectedContext, KubeconfigError> {
        let known: Vec<_> = parsed.contexts.iter().map(|context| context.name.clone()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let context = match wanted
            .map(str::to_owned)
            .or(parsed.current_context.filter(|name| !name.is_empty()))
        {
            Some(name) => name,
            None => {
                return reject(format!("it has no current-context, so name one of its contexts ({known})"));
            }
        };
        let Some(found) = parsed.contexts.into_iter().find(|at| at.name == context).and_then(|at| at.context)
        else {
            return reject(format!("it has no context {context:?}; its contexts are: {known}"));
        };
        let cluster_name = found.cluster;
        let Some(cluster) =
            parsed.clusters.into_iter().find(|at| at.name == cluster_name).and_then(|at| at.cluster)
        else {
            return reject(format!(
                "context {context:?} names cluster {cluster_name:?}, which it does not have"
            ));
        };
        let Some(user_name) = found.user.filter(|name| !name.is_empty()) else {
            return reject(format!("context {context:?} names no user, so requests would be anonymous"));
        };
        let Some(user) =
            parsed.auth_infos.into_iter().find(|at| at.name == user_name).and_then(|at| at.auth_info)
        else {
            return reject(format!("context {context:?} names user {user_name:?}, which it does not have"));
        };
        let namespace =
            found.namespace.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
        Ok(SelectedContext { context, namespace, cluster_name, cluster, user_name, user })
    }

    fn check_risks(&self, allow: &AllowedRisks) -> Result<(), KubeconfigError> {
        let SelectedContext { cluster, user, .. } = self;
        let of_user = [
            (user.exec.is_some(), "exec", KubeconfigRisk::Exec),
            (user.auth_provider.is_some(), "auth-provider", KubeconfigRisk::AuthProvider),
            (user.token_file.is_some(), "tokenFile", KubeconfigRisk::TokenFile),
            (user.client_certificate.is_some(), "client-certificate", KubeconfigRisk::FilePath),
            (user.client_key.is_some(), "client-key", KubeconfigRisk::FilePath),
        ];
        let of_cluster = [
            (cluster.certificate_authority.is_some(), "certificate-authority", KubeconfigRisk::FilePath),
            (cluster.proxy_url.is_some(), "proxy-url", KubeconfigRisk::ProxyUrl),
            (
                cluster.insecure_skip_tls_verify == Some(true),
                "insecure-skip-tls-verify",
                KubeconfigRisk::InsecureTls,
            ),
        ];
        let of_user = of_user.map(|found| ("user", &self.user_name, found));
        let of_cluster = of_cluster.map(|found| ("cluster", &self.cluster_name, found));
        for (part, name, (present, field, risk)) in of_user.into_iter().chain(of_cluster) {
            if present && !allow.allows(risk) {
                let (instead, allowed) = (risk.instead(), risk.name());
                return reject(format!(
                    "{part} {name:?} uses {field}; accepted is {instead}, or {field} where the configuration allows {allowed:?}"
                ));
            }
        }
        Ok(())
    }

    fn server(&self) -> Result<http::Uri, KubeconfigError> {
        let name = &self.cluster_name;
        let Some(server) = self.cluster.server.as_deref().filter(|server| !server.is_empty()) else {
            return reject(format!("cluster {name:?} has no server; accepted is an https:// URL"));
        };
        let uri: http::Uri = match server.parse() {
            Ok(uri) => uri,
            Err(_) => {
                return reject(format!(
                    "the server of cluster {name:?} is not a URL; accepted is an https:// URL"
                ));
            }
        };
        let user_info = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        match uri.scheme_str() {
            Some("https") if uri.host().is_some_and(|host| !host.is_empty()) && !user_info => Ok(uri),
            Some("https") => {
                reject(format!("the server of cluster {name:?} must be https://HOST[:PORT] and no more"))
            }
            Some("http") => reject(format!(
                "the server of cluster {name:?} is an http:// URL, which is not encrypted; accepted is https://"
            )),
            _ => reject(format!("the server of cluster {name:?} is not a URL; accepted is an https:// URL")),
        }
    }

    fn proxy(&self) -> Result<Option<http::Uri>, KubeconfigError> {
        let Some(proxy) = &self.cluster.proxy_url else { return Ok(None) };
        match proxy.parse() {
            Ok(uri) => Ok(Some(uri)),
            Err(_) => reject(format!("the proxy-url of cluster {:?} is not a URL", self.cluster_name)),
        }
    }

    fn authority(&self) -> Result<Option<Vec<Vec<u8>>>, KubeconfigError> {
        let Some(data) = &self.cluster.certificate_authority_data else { return Ok(None) };
        let place = format!("certificate-authority-data of cluster {:?}", self.cluster_name);
        let found = certificates(&place, data)?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in &found {
            if roots.add(CertificateDer::from(certificate.as_slice())).is_err() {
                return reject(format!("{place} contains something that is not an X.509 certificate"));
            }
        }
        Ok(Some(found))
    }

    /// The client certificate, and whether there is a key for it.
    fn identity(&self, allow: &AllowedRisks) -> Result<(Option<Vec<u8>>, bool), KubeconfigError> {
        let name = &self.user_name;
        let fields = serde_json::to_value(&self.user).unwrap_or_default();
        let text = |field: &str| fields.get(field).and_then(|value| value.as_str());
        let certificate = match text("client-certificate-data") {
            Some(data) => {
                certificates(&format!("client-certificate-data of user {name:?}"), data)?.into_iter().next()
            }
            None => None,
        };
        let place = format!("client-key-data of user {name:?}");
        let key = match text("client-key-data") {
            Some(data) => {
                let pem = decode(&place, data)?;
                let Ok(key) = PrivateKeyDer::from_pem_slice(&pem) else {
                    return reject(format!("{place} is not a private key in PEM (PKCS#8, PKCS#1 or SEC1)"));
                };
                if rustls::crypto::ring::sign::any_supported_type(&key).is_err() {
                    return reject(format!("{place} is not an RSA, ECDSA or Ed25519 key that can be used"));
                }
                true
            }
            None => false,
        };
        match (certificate.is_some(), key) {
            (true, false) if !allow.allows(KubeconfigRisk::FilePath) => {
                reject(format!("user {name:?} has client-certificate-data but no client-key-data"))
            }
            (false, true) if !allow.allows(KubeconfigRisk::FilePath) => {
                reject(format!("user {name:?} has client-key-data but no client-certificate-data"))
            }
            _ => Ok((certificate, key)),
        }
    }

    fn check_credential(&self, has_identity: bool) -> Result<(), KubeconfigError> {
        let user = &self.user;
        let by_risk = user.exec.is_some()
            || user.auth_provider.is_some()
            || user.token_file.is_some()
            || user.client_certificate.is_some();
        if has_identity
            || by_risk
            || user.token.is_some()
            || (user.username.is_some() && user.password.is_some())
        {
            return Ok(());
        }
        let instead = KubeconfigRisk::Exec.instead();
        reject(format!("user {:?} has no credential; accepted is {instead}", self.user_name))
    }

    /// The selected parts as a kubeconfig of one context.
    fn document(&self) -> Result<String, KubeconfigError> {
        let part = |value: serde_json::Result<serde_json::Value>| {
            value.map_err(|_| KubeconfigError("it holds a value that cannot be written again".to_owned()))
        };
        let whole = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": self.context,
            "contexts": [{"name": self.context, "context": {
                "cluster": self.cluster_name, "user": self.user_name, "namespace": self.namespace}}],
            "clusters": [{"name": self.cluster_name, "cluster": part(serde_json::to_value(&self.cluster))?}],
            "users": [{"name": self.user_name, "user": part(serde_json::to_value(&self.user))?}],
        });
        Ok(whole.to_string())
    }
}

fn decode(place: &str, data: &str) -> Result<Vec<u8>, KubeconfigError> {
    BASE64.decode(data.trim()).map_err(|_| KubeconfigError(format!("{place} is not base64")))
}

fn certificates(place: &str, data: &str) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let pem = decode(place, data)?;
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&pem).map(|der| der.map(|der| der.to_vec())).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => reject(format!("{place} is not a certificate in PEM")),
    }
}
