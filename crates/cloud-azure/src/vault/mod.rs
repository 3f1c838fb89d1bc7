//! The vault role, on the clients of Key Vault: they answer its challenge and build its URLs. Bodies are read here.
//!
//! Creating a certificate is not idempotent, so it is read first, and the call is sent once. A deleted certificate keeps its name
//! until it is purged: it is purged for a new one, or recovered where the right to purge is missing.

mod calls;

use api::secret::Secret;
use async_trait::async_trait;
use azure_core::http::RequestContent;
use azure_security_keyvault_certificates::models::CreateCertificateParameters;
use azure_security_keyvault_secrets::models::{SecretClientGetSecretOptions, SetSecretParameters};
use bytes::Bytes;
use cloud::{CertificateSpec, CloudError, IssuedCertificate, Vault, VaultCertificate, VaultSecret};
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::client::AzureClient;
use crate::error::ServiceError;
use crate::json::{optional_text, text, texts};
use calls::{busy, parse};

pub(crate) use calls::VaultClients;

/// Longest subject of a certificate; longer names are in the list of DNS names alone.
const SUBJECT_CHARS_MAX: usize = 64;
const SHORT_SUBJECT: &str = "cluster.invalid";
/// The codes of names of deleted objects.
const BEING_DELETED: &str = "ObjectIsBeingDeleted";
const RECOVERABLE: &str = "ObjectIsDeletedButRecoverable";

#[async_trait]
impl Vault for AzureClient {
    async fn ensure_certificate(&self, spec: &CertificateSpec) -> Result<VaultCertificate, CloudError> {
        let found = self.observe_certificate(&spec.name).await?;
        if let Some(found) = found {
            return match found.dns_names == spec.dns_names {
                true => Ok(found),
                false => Err(CloudError::Conflict {
                    what: format!("certificate {}", spec.name),
                    why: format!("it is for {}", found.dns_names.join(", ")),
                }),
            };
        }
        let policy = policy(&spec.dns_names, &self.inner.settings.certificate_issuer);
        self.create_certificate(&spec.name, &policy).await?;
        let found = self.observe_certificate(&spec.name).await?;
        Ok(found.unwrap_or_else(|| pending(&spec.name, &spec.dns_names)))
    }

    async fn renew_certificate(
        &self,
        name: &str,
        newer_than: Option<&str>,
    ) -> Result<VaultCertificate, CloudError> {
        let Some(found) = self.vault_certificate(name).await? else {
            return Err(CloudError::NotFound { what: format!("certificate {name}") });
        };
        let is_newer =
            newer_than.is_some() && found.version.is_some() && found.version.as_deref() != newer_than;
        if found.issuing || is_newer {
            return Ok(found);
        }
        let what = format!("policy of certificate {name}");
        let read = || self.inner.vault.certificates.get_certificate_policy(name, None);
        let body = self.vault_call("GET", &what, read).await?;
        let mut policy: Value = parse(&body.into_body().into(), name)?;
        for assigned in ["id", "attributes"] {
            crate::json::set(&mut policy, &[assigned], Value::Null);
        }
        self.create_certificate(name, &policy).await?;
        let now = self.vault_certificate(name).await?;
        Ok(now.unwrap_or(VaultCertificate { issuing: true, ..found }))
    }

    async fn certificate(&self, name: &str) -> Result<Option<IssuedCertificate>, CloudError> {
        let Some(certificate) = self.vault_certificate(name).await? else { return Ok(None) };
        let Some(version) = certificate.version.clone() else { return Ok(None) };
        let Some(secret) = self.read_secret(name, Some(version)).await? else { return Ok(None) };
        let Some((key, chain_pem)) = split_pem(text(&secret, "/value")) else {
            let what = format!("the secret of certificate {name}: it is no PEM of a key and certificates");
            return Err(CloudError::UnexpectedResponse { what, source: None });
        };
        Ok(Some(IssuedCertificate { certificate, chain_pem, key_pem: Secret::new(key) }))
    }

    async fn delete_certificate(&self, name: &str) -> Result<(), CloudError> {
        let delete = || self.inner.vault.certificates.delete_certificate(name, None);
        deleted_is_done(self.vault_call("DELETE", &format!("certificate {name}"), delete).await)
    }

    async fn put_secret(
        &self,
        name: &str,
        value: &str,
        expires: Option<Timestamp>,
    ) -> Result<VaultSecret, CloudError> {
        let mut body = json!({ "value": value, "attributes": { "enabled": true } });
        if let Some(expires) = expires {
            crate::json::set(&mut body, &["attributes", "exp"], json!(expires.as_second()));
        }
        let written = match self.set_secret(name, &body).await {
            Err(CloudError::Conflict { why, .. }) if is_recoverable(&why) => {
                // The name is that of a deleted secret: it becomes a further version of it.
                let what = format!("recovery of secret {name}");
                let recover = || self.inner.vault.secrets.recover_deleted_secret(name, None);
                self.vault_call("POST", &what, recover).await?;
                self.set_secret(name, &body).await.map_err(|error| match error {
                    CloudError::Conflict { why, .. } => recovering(&format!("secret {name}"), why),
                    error => error,
                })?
            }
            written => written?,
        };
        secret(name, &written)
    }

    async fn secret(&self, name: &str) -> Result<Option<VaultSecret>, CloudError> {
        self.read_secret(name, None).await?.map(|body| secret(name, &body)).transpose()
    }

    async fn delete_secret(&self, name: &str) -> Result<(), CloudError> {
        let delete = || self.inner.vault.secrets.delete_secret(name, None);
        deleted_is_done(self.vault_call("DELETE", &format!("secret {name}"), delete).await)
    }
}

impl AzureClient {
    /// A certificate with the state of its pending operation.
    pub(crate) async fn vault_certificate(&self, name: &str) -> Result<Option<VaultCertificate>, CloudError> {
        let what = format!("certificate {name}");
        let read = || self.inner.vault.certificates.get_certificate(name, None);
        let body = self.vault_find(&what, read).await?;
        let body = body.map(|it| parse(&it.into_body().into(), name)).transpose()?;
        let read = || self.inner.vault.certificates.get_certificate_operation(name, None);
        let operation = self.vault_find(&format!("operation of {what}"), read).await?;
        let operation: Option<Value> = operation.map(|it| parse(&it.into_body().into(), name)).transpose()?;
        let status = operation.as_ref().map(|it| text(it, "/status").to_lowercase()).unwrap_or_default();
        let can_retry =
            operation.as_ref().is_some_and(|it| text(it, "/error/code").contains("FailedCanRetry"));
        let issuing = status == "inprogress" || can_retry;
        let body = match (body, &operation) {
            (Some(body), _) => body,
            (None, Some(_)) => json!({}),
            (None, None) => return Ok(None),
        };
        let version = certificate_version(&body);
        if version.is_none() && operation.is_none() {
            // Nothing is issued and nothing is on its way, as after the removal of a failed operation.
            return Ok(None);
        }
        if let (None, "failed" | "cancelled", Some(operation), false) =
            (&version, status.as_str(), &operation, can_retry)
        {
            let error = ServiceError::from_value(operation);
            let code =
                if error.code.is_empty() { "CertificateOperationFailed".to_owned() } else { error.code };
            let why = format!("issuing certificate {name} failed: {}", error.message);
            return Err(CloudError::Invalid { code, why });
        }
        let time = |pointer: &str| {
            let seconds = body.pointer(pointer).and_then(Value::as_i64);
            seconds.and_then(|it| Timestamp::from_second(it).ok()).filter(|_| version.is_some())
        };
        Ok(Some(VaultCertificate {
            name: name.to_owned(),
            dns_names: texts(&body, "/policy/x509_props/sans/dns_names"),
            not_before: time("/attributes/nbf"),
            not_after: time("/attributes/exp"),
            issuing: issuing || version.is_none(),
            version,
        }))
    }

    /// A certificate on its way. The error of a failed operation is returned once: a later call requests the certificate again.
    async fn observe_certificate(&self, name: &str) -> Result<Option<VaultCertificate>, CloudError> {
        match self.vault_certificate(name).await {
            Err(error @ CloudError::Invalid { .. }) => {
                self.forget_operation(name).await?;
                Err(error)
            }
            found => found,
        }
    }

    /// Removes a failed operation, with the certificate when it has no version.
    async fn forget_operation(&self, name: &str) -> Result<(), CloudError> {
        let what = format!("operation of certificate {name}");
        let delete = || self.inner.vault.certificates.delete_certificate_operation(name, None);
        deleted_is_done(self.vault_call("DELETE", &what, delete).await)
    }

    /// Starts the issuing of a version. Sent once.
    async fn create_certificate(&self, name: &str, policy: &Value) -> Result<(), CloudError> {
        let what = format!("certificate {name}");
        match self.post_certificate(name, policy).await {
            Err(CloudError::Conflict { why, .. }) if is_recoverable(&why) => {
                let purge = || self.inner.vault.certificates.purge_deleted_certificate(name, None);
                match self.vault_call("DELETE", &what, purge).await {
                    Ok(_) | Err(CloudError::NotFound { .. }) => {}
                    Err(CloudError::Denied { .. }) => {
                        let recover =
                            || self.inner.vault.certificates.recover_deleted_certificate(name, None);
                        self.vault_call("POST", &format!("recovery of {what}"), recover).await?;
                        return Err(recovering(&what, why));
                    }
                    Err(error) => return Err(error),
                }
                // Purging takes a moment; until then the name is still taken.
                self.post_certificate(name, policy).await.map_err(|error| match error {
                    CloudError::Conflict { why, .. } => recovering(&what, why),
                    error => error,
                })
            }
            Err(CloudError::Conflict { why, .. }) if why.contains("pending") => Ok(()),
            created => created,
        }
    }

    async fn post_certificate(&self, name: &str, policy: &Value) -> Result<(), CloudError> {
        let body = Bytes::from(json!({ "policy": policy }).to_string());
        let start = || async {
            let parameters: RequestContent<CreateCertificateParameters> = body.clone().into();
            let mut poller =
                self.inner.vault.certificates.begin_create_certificate(name, parameters, None)?;
            poller.try_next().await
        };
        self.vault_call("POST", &format!("certificate {name}"), start).await.map(drop)
    }

    async fn set_secret(&self, name: &str, body: &Value) -> Result<Value, CloudError> {
        let body = Bytes::from(body.to_string());
        let set = || async {
            let parameters: RequestContent<SetSecretParameters> = body.clone().into();
            self.inner.vault.secrets.set_secret(name, parameters, None).await
        };
        let written = self.vault_call("PUT", &format!("secret {name}"), set).await?;
        parse(&written.into_body().into(), name)
    }

    async fn read_secret(&self, name: &str, version: Option<String>) -> Result<Option<Value>, CloudError> {
        let read = || async {
            let options = SecretClientGetSecretOptions {
                secret_version: version.clone(),
                ..SecretClientGetSecretOptions::default()
            };
            self.inner.vault.secrets.get_secret(name, Some(options)).await
        };
        let found = self.vault_find(&format!("secret {name}"), read).await?;
        found.map(|it| parse(&it.into_body().into(), name)).transpose()
    }
}

/// An object that is absent or on its way out is deleted.
fn deleted_is_done<T>(outcome: Result<T, CloudError>) -> Result<(), CloudError> {
    match outcome {
        Ok(_) | Err(CloudError::NotFound { .. }) => Ok(()),
        Err(CloudError::Busy { code, .. }) if code == BEING_DELETED => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_recoverable(why: &str) -> bool {
    why.contains(RECOVERABLE)
}

fn recovering(what: &str, why: String) -> CloudError {
    busy(what, RECOVERABLE, why)
}

/// The issued version of a certificate; a version without content is still being issued.
fn certificate_version(body: &Value) -> Option<String> {
    let has_content = body.get("cer").is_some_and(|it| it.as_str().is_some_and(|it| !it.is_empty()));
    let is_enabled = body.pointer("/attributes/enabled").and_then(Value::as_bool) != Some(false);
    let version = text(body, "/id").rsplit('/').next().filter(|it| !it.is_empty()).map(str::to_owned);
    version.filter(|_| has_content && is_enabled)
}

fn pending(name: &str, dns_names: &[String]) -> VaultCertificate {
    VaultCertificate {
        name: name.to_owned(),
        dns_names: dns_names.to_vec(),
        version: None,
        not_before: None,
        not_after: None,
        issuing: true,
    }
}

fn policy(dns_names: &[String], issuer: &str) -> Value {
    let subject = dns_names.first().map_or(SHORT_SUBJECT, String::as_str);
    let subject = if subject.chars().count() > SUBJECT_CHARS_MAX { SHORT_SUBJECT } else { subject };
    json!({
        "key_props": {"kty": "RSA", "key_size": 2048, "exportable": true},
        "secret_props": {"contentType": "application/x-pem-file"},
        "x509_props": {
            "subject": format!("CN={subject}"),
            "sans": {"dns_names": dns_names},
            "ekus": ["1.3.6.1.5.5.7.3.1"],
            "key_usage": ["digitalSignature", "keyEncipherment"],
            "validity_months": 3,
        },
        "issuer": {"name": issuer},
        "lifetime_actions": [{"trigger": {"days_before_expiry": 30}, "action": {"action_type": "AutoRenew"}}],
    })
}

fn secret(name: &str, body: &Value) -> Result<VaultSecret, CloudError> {
    let missing = |member: &str| CloudError::UnexpectedResponse {
        what: format!("the vault's response about {name}: it has no {member}"),
        source: None,
    };
    let version = text(body, "/id").rsplit('/').next().unwrap_or_default().to_owned();
    let value = optional_text(body, "/value")
        .or_else(|| body.get("value").and_then(Value::as_str).map(str::to_owned));
    let expires = body
        .pointer("/attributes/exp")
        .and_then(Value::as_i64)
        .and_then(|it| Timestamp::from_second(it).ok());
    let value = Secret::new(value.ok_or_else(|| missing("value"))?);
    Ok(VaultSecret { name: name.to_owned(), version, expires, value })
}

/// The key and the chain of a PEM that holds both.
pub(crate) fn split_pem(pem: &str) -> Option<(String, String)> {
    let (mut key, mut chain) = (String::new(), String::new());
    let mut rest = pem;
    while let Some(start) = rest.find("-----BEGIN ") {
        let block = &rest[start..];
        let label = block["-----BEGIN ".len()..].split("-----").next()?;
        let end_line = format!("-----END {label}-----");
        let end = block.find(&end_line)? + end_line.len();
        let target = if label.ends_with("PRIVATE KEY") { &mut key } else { &mut chain };
        target.push_str(&block[..end]);
        target.push('\n');
        rest = &block[end..];
    }
    (!key.is_empty() && !chain.is_empty()).then_some((key, chain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_chain_are_taken_apart() {
        let block =
            |label: &str, text: &str| format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
        let pem = [block("PRIVATE KEY", "k"), block("CERTIFICATE", "a"), block("CERTIFICATE", "b")].concat();
        let (key, chain) = split_pem(&pem).unwrap();
        assert_eq!(key, block("PRIVATE KEY", "k"));
        assert_eq!(chain, [block("CERTIFICATE", "a"), block("CERTIFICATE", "b")].concat());
        assert_eq!(split_pem(&block("CERTIFICATE", "a")), None);
        assert_eq!(split_pem("-----BEGIN X-----"), None);
    }

    #[test]
    fn a_long_name_is_no_subject() {
        let long = format!("{}.example.org", "a".repeat(60));
        let policy = policy(std::slice::from_ref(&long), "Self");
        assert_eq!(text(&policy, "/x509_props/subject"), "CN=cluster.invalid");
        assert_eq!(texts(&policy, "/x509_props/sans/dns_names"), [long]);
    }
}
