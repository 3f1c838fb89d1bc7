//! Calls to the vault through the libraries of Key Vault: responses as JSON, and errors from the raw response.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::{HttpClient, StatusCode};
use azure_security_keyvault_certificates::{CertificateClient, CertificateClientOptions};
use azure_security_keyvault_secrets::{SecretClient, SecretClientOptions};
use bytes::Bytes;
use cloud::CloudError;
use serde_json::Value;

use super::BEING_DELETED;
use crate::client::AzureClient;
use crate::credential::{Credentials, client_options};
use crate::error::{CallName, ServiceError};
use crate::settings::{Settings, SettingsError};
use crate::start_only::StartOnly;
use crate::token_renewal::TokenRenewal;
use crate::transport::NoResponse;

/// The clients of the vault.
pub(crate) struct VaultClients {
    pub(crate) certificates: CertificateClient,
    pub(super) secrets: SecretClient,
}

impl VaultClients {
    pub(crate) fn new(
        settings: &Settings,
        credentials: &Arc<Credentials>,
        http: Arc<dyn HttpClient>,
    ) -> Result<VaultClients, SettingsError> {
        let wrong = |error: Error| SettingsError { setting: "vault", why: error.to_string() };
        let credential: Arc<dyn TokenCredential> = Arc::new(ServiceToken(credentials.clone()));
        let verify = Some(settings.verify_vault_address);
        let http: Arc<dyn HttpClient> = Arc::new(TokenRenewal { http, credentials: credentials.clone() });
        let certificates = CertificateClientOptions {
            client_options: client_options(Arc::new(StartOnly(http.clone()))),
            verify_challenge_resource: verify,
            ..CertificateClientOptions::default()
        };
        let secrets = SecretClientOptions {
            client_options: client_options(http),
            verify_challenge_resource: verify,
            ..SecretClientOptions::default()
        };
        Ok(VaultClients {
            certificates: CertificateClient::new(&settings.vault, credential.clone(), Some(certificates))
                .map_err(wrong)?,
            secrets: SecretClient::new(&settings.vault, credential, Some(secrets)).map_err(wrong)?,
        })
    }
}

/// The service's credential as it is now: a renewed one is used at once.
#[derive(Debug)]
struct ServiceToken(Arc<Credentials>);

#[async_trait]
impl TokenCredential for ServiceToken {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        self.0.service().get_token(scopes, options).await
    }
}

impl AzureClient {
    /// Makes a call. The library repeats a request whose token was rejected, but not when the request was its first, which the
    /// challenge already made it repeat: so once more here.
    pub(super) async fn vault_call<T, F: Future<Output = azure_core::Result<T>>>(
        &self,
        method: &str,
        what: &str,
        call: impl Fn() -> F,
    ) -> Result<T, CloudError> {
        let mut result = call().await;
        if let Err(error) = &result
            && error.http_status() == Some(StatusCode::Unauthorized)
        {
            result = call().await;
        }
        result.map_err(|error| self.vault_error(method, what, error))
    }

    /// The same, where something absent is no error.
    pub(super) async fn vault_find<T, F: Future<Output = azure_core::Result<T>>>(
        &self,
        what: &str,
        call: impl Fn() -> F,
    ) -> Result<Option<T>, CloudError> {
        match self.vault_call("GET", what, call).await {
            Ok(found) => Ok(Some(found)),
            Err(CloudError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The error of a vault call, from the raw response.
    pub(crate) fn vault_error(&self, method: &str, what: &str, error: Error) -> CloudError {
        let principal = self.inner.credentials.principal();
        let subject = format!("{what} in {}", self.inner.settings.vault);
        match error.kind() {
            ErrorKind::HttpResponse { status, raw_response, .. } => {
                let body = raw_response.as_ref().map(|it| it.body().as_ref().to_vec()).unwrap_or_default();
                let mut service = ServiceError::parse(u16::from(*status), &body);
                service.retry_after =
                    raw_response.as_ref().and_then(|it| crate::arm::retry_after(it.headers()));
                if let Some(detail) = service.details.first().cloned() {
                    service.message = format!("{detail}: {}", service.message);
                    if detail == BEING_DELETED {
                        return busy(&subject, BEING_DELETED, service.message);
                    }
                }
                service.into_cloud_error(CallName { method, subject: &subject, principal })
            }
            ErrorKind::DataConversion if NoResponse::of(&error) != NoResponse::TooLarge => {
                CloudError::UnexpectedResponse {
                    what: format!("{method} {subject}"),
                    source: Some(Box::new(error)),
                }
            }
            ErrorKind::DataConversion | ErrorKind::Connection | ErrorKind::Io => {
                let cause = NoResponse::of(&error);
                let note = cause.describe(&self.inner.settings.vault, "vault");
                let what = CallName { method, subject: &subject, principal }.with_note(&note);
                let source: Option<Box<dyn std::error::Error + Send + Sync>> = Some(Box::new(error));
                match cause {
                    NoResponse::TooLarge => CloudError::UnexpectedResponse { what, source },
                    _ => CloudError::Unavailable { what, source },
                }
            }
            _ if error.to_string().contains("challenge") => CloudError::Configuration {
                setting: "vault".to_owned(),
                why: format!(
                    "'{}' is not in the domain that its challenge names: {error}",
                    self.inner.settings.vault
                ),
            },
            _ => self.inner.credentials.token_error(error, principal),
        }
    }
}

/// The body of a response as JSON.
pub(super) fn parse(body: &Bytes, name: &str) -> Result<Value, CloudError> {
    serde_json::from_slice(body).map_err(|error| CloudError::UnexpectedResponse {
        what: format!("the vault's response about {name}: {}", ServiceError::parse(200, body).message),
        source: Some(Box::new(error)),
    })
}

/// The error of a name that is about to be free: trying again helps.
pub(super) fn busy(what: &str, code: &str, why: String) -> CloudError {
    CloudError::Busy { what: what.to_owned(), code: code.to_owned(), why, after: None }
}

#[cfg(test)]
mod tests {
    use cloud::Vault as _;

    use super::*;
    use crate::testing::{Reply, ScriptedService};

    #[tokio::test]
    async fn an_unreachable_vault_is_reported_with_its_setting() {
        let client = ScriptedService::by(|_| Reply::Refused).client();
        for error in [client.secret("x").await.unwrap_err(), client.certificate("x").await.unwrap_err()] {
            assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
            let expect = "no connection to https://keys.vault.azure.net; check that setting vault is right";
            assert!(error.to_string().contains(expect), "{error}");
        }
    }
}
