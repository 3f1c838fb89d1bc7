//! Tokens of Entra ID, for this service and for principals whose credentials it is given.
//!
//! azure_identity asks for tokens and caches them until five minutes before they expire. What it asks with, and what comes back
//! when it is refused, is in `entra.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use api::clock::{Clock as _, SystemClock};
use api::error::{Class, Classify as _};
use api::secret::Secret;
use azure_core::cloud::CustomConfiguration;
use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::error::Error;
use azure_core::http::{ClientOptions, HttpClient, RetryOptions, Transport};
use azure_identity::{
    ClientAssertionCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cloud::CloudError;
use serde::Deserialize;

use crate::certificate::CertificateAssertion;
use crate::entra::{ClaimsPolicy, TokenTransport, token_error};
use crate::error::shorten;
use crate::redact::redact;
use crate::settings::{ServiceCredential, Settings, SettingsError};
use crate::token_file::TokenFile;

/// Validity that a token must have left to be used when no new one can be had.
const VALIDITY_MIN_SECONDS: i64 = 30;

/// The sources of tokens of one cloud.
#[derive(Debug)]
pub(crate) struct Credentials {
    settings: Settings,
    http: Arc<dyn HttpClient>,
    service: RwLock<ServiceSource>,
    /// The newest token by scope, for the time in which a new one is due and cannot be had.
    newest: Mutex<HashMap<String, Newest>>,
}

/// The source of the service's own tokens. It is replaced to forget what it has cached.
#[derive(Debug, Clone)]
struct ServiceSource {
    credential: Arc<dyn TokenCredential>,
    generation: u64,
    claims: Option<String>,
}

#[derive(Debug, Clone)]
struct Newest {
    token: AccessToken,
    generation: u64,
}

/// A token of the service.
pub(crate) struct ServiceToken {
    pub(crate) text: String,
    /// The generation of its source, by which a rejected token is distinguished from its successor.
    pub(crate) generation: u64,
}

impl Credentials {
    pub(crate) fn new(settings: &Settings, http: Arc<dyn HttpClient>) -> Result<Credentials, SettingsError> {
        let credential = service_credential(settings, &http, None)?;
        let service = ServiceSource { credential, generation: 0, claims: None };
        Ok(Credentials {
            settings: settings.clone(),
            http,
            service: RwLock::new(service),
            newest: Mutex::default(),
        })
    }

    /// The client id of the service, for messages.
    pub(crate) fn principal(&self) -> &str {
        self.settings.credential.name()
    }

    /// The service's own credential.
    pub(crate) fn service(&self) -> Arc<dyn TokenCredential> {
        self.source().credential
    }

    fn source(&self) -> ServiceSource {
        self.service.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The generation of the service's tokens, for [`Credentials::renew`].
    pub(crate) fn generation(&self) -> u64 {
        self.source().generation
    }

    /// Forgets the service's tokens, because one of this generation was rejected; new ones answer the claims of the challenge. Of
    /// several calls with the same rejected token, the first renews it for all.
    pub(crate) fn renew(&self, generation: u64, claims: Option<&str>) {
        let mut service = self.service.write().unwrap_or_else(PoisonError::into_inner);
        let answers_claims = claims.is_none() || service.claims.as_deref() == claims;
        if service.generation != generation && answers_claims {
            return;
        }
        // The settings were accepted when the client was made, so this cannot fail; the old credential stays if it does.
        let claims = claims.map(str::to_owned).or_else(|| service.claims.clone());
        if let Ok(credential) = service_credential(&self.settings, &self.http, claims.as_deref()) {
            *service = ServiceSource { credential, generation: service.generation + 1, claims };
        }
    }

    /// The text of a token of the service.
    pub(crate) async fn token(&self, scope: &str) -> Result<String, CloudError> {
        self.service_token(scope).await.map(|it| it.text)
    }

    /// A token of the service. While no new one can be had, the present one is used to its end.
    pub(crate) async fn service_token(&self, scope: &str) -> Result<ServiceToken, CloudError> {
        let ServiceSource { credential, generation, .. } = self.source();
        let result = credential.get_token(&[scope], None).await;
        let token = match result.map_err(|error| self.token_error(error, self.principal())) {
            Ok(token) => {
                let newest = Newest { token: token.clone(), generation };
                let mut all = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(scope.to_owned(), newest);
                token
            }
            Err(error) if error.class() == Class::Transient => {
                let valid_after = SystemClock.now().as_second() + VALIDITY_MIN_SECONDS;
                let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).get(scope).cloned();
                let usable = newest.filter(|it| {
                    it.generation == generation && it.token.expires_on.unix_timestamp() > valid_after
                });
                usable.ok_or(error)?.token
            }
            Err(error) => return Err(error),
        };
        Ok(ServiceToken { text: token.token.secret().to_owned(), generation })
    }

    /// A token of a principal with a secret. Not cached: the caller wants to know whether the secret is good now.
    pub(crate) async fn client_token(
        &self,
        client_id: &str,
        secret: &Secret<String>,
        scope: &str,
    ) -> Result<String, CloudError> {
        let credential =
            ServiceCredential::ClientSecret { client_id: client_id.to_owned(), secret: secret.clone() };
        let settings = Settings { credential, ..self.settings.clone() };
        let who = settings.credential.name().to_owned();
        let source = settings
            .credential
            .validate()
            .and_then(|()| service_credential(&settings, &self.http, None))
            .map_err(|error| CloudError::Credential { who: who.clone(), why: error.why })?;
        let token = source.get_token(&[scope], None).await;
        let token = token.map_err(|error| self.token_error(error, &who))?;
        Ok(token.token.secret().to_owned())
    }

    /// The error of a token request.
    pub(crate) fn token_error(&self, error: Error, who: &str) -> CloudError {
        token_error(error, who, &self.settings)
    }
}

/// Options of a library's client: our transport, no repetition.
pub(crate) fn client_options(http: Arc<dyn HttpClient>) -> ClientOptions {
    ClientOptions {
        retry: RetryOptions::none(),
        transport: Some(Transport::new(http)),
        ..ClientOptions::default()
    }
}

fn service_credential(
    settings: &Settings,
    http: &Arc<dyn HttpClient>,
    claims: Option<&str>,
) -> Result<Arc<dyn TokenCredential>, SettingsError> {
    let mut cloud = CustomConfiguration::default();
    cloud.authority_host.clone_from(&settings.authority);
    let mut options = client_options(Arc::new(TokenTransport(http.clone())));
    options.cloud = Some(Arc::new(cloud.into()));
    if let Some(claims) = claims {
        options.per_call_policies.push(Arc::new(ClaimsPolicy(claims.to_owned())));
    }
    let tenant = settings.tenant_id.clone();
    let wrong = |error: Error| SettingsError {
        setting: settings.credential.setting(),
        why: shorten(&redact(&error.to_string()), 300),
    };
    match &settings.credential {
        ServiceCredential::ClientSecret { client_id, secret } => {
            let options = ClientSecretCredentialOptions { client_options: options };
            let secret = azure_core::credentials::Secret::new(secret.expose().clone());
            let made = ClientSecretCredential::new(&tenant, client_id.clone(), secret, Some(options));
            made.map(|it| it as Arc<dyn TokenCredential>).map_err(wrong)
        }
        ServiceCredential::ClientCertificate { client_id, pem } => {
            let endpoint = format!("{}/{tenant}/oauth2/v2.0/token", settings.authority.trim_end_matches('/'));
            let assertion = CertificateAssertion::new(pem, client_id, &endpoint)?;
            let options = ClientAssertionCredentialOptions { client_options: options };
            let made = ClientAssertionCredential::new(tenant, client_id.clone(), assertion, Some(options));
            made.map(|it| it as Arc<dyn TokenCredential>).map_err(wrong)
        }
        ServiceCredential::WorkloadIdentity { client_id, token_file } => {
            let assertion = TokenFile(token_file.clone());
            let options = ClientAssertionCredentialOptions { client_options: options };
            let made = ClientAssertionCredential::new(tenant, client_id.clone(), assertion, Some(options));
            made.map(|it| it as Arc<dyn TokenCredential>).map_err(wrong)
        }
        ServiceCredential::ManagedIdentity { client_id } => {
            let options = ManagedIdentityCredentialOptions {
                user_assigned_id: client_id.clone().map(UserAssignedId::ClientId),
                client_options: options,
            };
            let made = ManagedIdentityCredential::new(Some(options));
            made.map(|it| it as Arc<dyn TokenCredential>).map_err(wrong)
        }
    }
}

/// The claims of a token, read without verifying it: only its audience can.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct TokenClaims {
    #[serde(default)]
    pub(crate) oid: String,
    #[serde(default)]
    pub(crate) tid: String,
    #[serde(default)]
    pub(crate) appid: String,
    #[serde(default)]
    pub(crate) roles: Vec<String>,
    #[serde(flatten)]
    pub(crate) others: std::collections::BTreeMap<String, serde_json::Value>,
}

impl TokenClaims {
    /// The claims of a JWT; `None` when the text is none.
    pub(crate) fn read(token: &str) -> Option<TokenClaims> {
        let payload = token.split('.').nth(1)?;
        let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
        serde_json::from_slice(&payload).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ScriptedService, settings};

    #[test]
    fn a_credential_that_cannot_be_made_is_named_by_its_setting() {
        let http: Arc<dyn HttpClient> = Arc::new(ScriptedService::new([]));
        // The library refuses such a tenant.
        let settings = Settings { tenant_id: "a/b".to_owned(), ..settings() };
        let error = service_credential(&settings, &http, None).expect_err("it is refused");
        assert_eq!(error.setting, "client_secret_file");
    }
}
