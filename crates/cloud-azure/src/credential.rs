//! Tokens of Entra ID, for this service and for principals whose credentials it is given.
//!
//! azure_identity asks for tokens and caches them. Responses that are no success are read here, before the library sees them: it
//! would lose the numeric codes, which alone are dependable.

use std::error::Error as _;
use std::sync::{Arc, RwLock};

use api::secret::Secret;
use azure_core::cloud::CustomConfiguration;
use azure_core::credentials::TokenCredential;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{
    AsyncRawResponse, Body, ClientOptions, Context, HttpClient, Request, RetryOptions, Transport,
};
use azure_identity::{
    ClientAssertionCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cloud::CloudError;
use serde::Deserialize;

use crate::certificate::CertificateAssertion;
use crate::error::{ServiceError, shorten};
use crate::redact::redact;
use crate::settings::{ServiceCredential, Settings, SettingsError};

/// The sources of tokens of one cloud.
#[derive(Debug)]
pub(crate) struct Credentials {
    settings: Settings,
    http: Arc<dyn HttpClient>,
    service: RwLock<Arc<dyn TokenCredential>>,
}

impl Credentials {
    pub(crate) fn new(settings: &Settings, http: Arc<dyn HttpClient>) -> Result<Credentials, SettingsError> {
        let service = service_credential(settings, &http, None)?;
        Ok(Credentials { settings: settings.clone(), http, service: RwLock::new(service) })
    }

    /// The client id of the service, for messages.
    pub(crate) fn principal(&self) -> &str {
        self.settings.credential.name()
    }

    /// The service's own credential.
    pub(crate) fn service(&self) -> Arc<dyn TokenCredential> {
        self.service.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Forgets the service's tokens, because one was rejected; new ones answer the claims of the challenge.
    pub(crate) fn renew(&self, claims: Option<&str>) {
        // The settings were accepted when the client was made, so this cannot fail; the old credential stays if it does.
        if let Ok(renewed) = service_credential(&self.settings, &self.http, claims) {
            *self.service.write().unwrap_or_else(std::sync::PoisonError::into_inner) = renewed;
        }
    }

    /// A token of the service.
    pub(crate) async fn token(&self, scope: &str) -> Result<String, CloudError> {
        self.token_of(&*self.service(), self.principal(), scope).await
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
        self.other_token(credential, &self.settings.authority, &self.settings.tenant_id, scope).await
    }

    /// A token of any credential at an authority and tenant.
    pub(crate) async fn other_token(
        &self,
        credential: ServiceCredential,
        authority: &str,
        tenant: &str,
        scope: &str,
    ) -> Result<String, CloudError> {
        let settings = Settings {
            credential,
            authority: authority.to_owned(),
            tenant_id: tenant.to_owned(),
            ..self.settings.clone()
        };
        let who = settings.credential.name().to_owned();
        let source = service_credential(&settings, &self.http, None)
            .map_err(|error| CloudError::Credential { who: who.clone(), why: error.to_string() })?;
        self.token_of(&*source, &who, scope).await
    }

    async fn token_of(
        &self,
        source: &dyn TokenCredential,
        who: &str,
        scope: &str,
    ) -> Result<String, CloudError> {
        match source.get_token(&[scope], None).await {
            Ok(token) => Ok(token.token.secret().to_owned()),
            Err(error) => Err(self.token_error(error, who)),
        }
    }

    /// The error of a token request.
    pub(crate) fn token_error(&self, error: Error, who: &str) -> CloudError {
        let authority = &self.settings.authority;
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        let mut kind = None;
        while let Some(current) = cause {
            if let Some(entra) = current.downcast_ref::<EntraError>() {
                return entra.clone().into_cloud_error(who, &self.settings);
            }
            if let Some(inner) = current.downcast_ref::<Error>() {
                kind = Some(inner.kind().clone());
            }
            cause = current.source();
        }
        let what = format!("the token request to {authority}");
        match kind {
            Some(ErrorKind::Connection) => CloudError::Unavailable {
                what: format!("{what}; check that setting authority is right and reachable"),
                source: Some(Box::new(error)),
            },
            Some(ErrorKind::Io) => CloudError::Unavailable { what, source: Some(Box::new(error)) },
            Some(ErrorKind::DataConversion) => {
                CloudError::UnexpectedResponse { what, source: Some(Box::new(error)) }
            }
            _ => {
                let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                CloudError::Credential { who: who.to_owned(), why: shorten(&redact(&why), 300) }
            }
        }
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
        setting: "credential",
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
            let options = WorkloadIdentityCredentialOptions {
                credential_options: ClientAssertionCredentialOptions { client_options: options },
                client_id: Some(client_id.clone()),
                tenant_id: Some(tenant),
                token_file_path: Some(token_file.clone()),
            };
            let made = WorkloadIdentityCredential::new(Some(options));
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

/// Adds the claims of a challenge to a token request.
#[derive(Debug)]
struct ClaimsPolicy(String);

#[async_trait::async_trait]
impl Policy for ClaimsPolicy {
    async fn send(&self, cx: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        if let Body::Bytes(form) = request.body() {
            let mut form = form.to_vec();
            let claims = percent_encoding::utf8_percent_encode(&self.0, percent_encoding::NON_ALPHANUMERIC);
            form.extend_from_slice(format!("&claims={claims}").as_bytes());
            request.set_body(form);
        }
        next[0].send(cx, request, &next[1..]).await
    }
}

/// The transport of token requests: responses that are no success become an [`EntraError`].
#[derive(Debug)]
struct TokenTransport(Arc<dyn HttpClient>);

#[async_trait::async_trait]
impl HttpClient for TokenTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let response = self.0.execute_request(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let retry_after = crate::arm::retry_after(response.headers());
        let response = response.try_into_raw_response().await?;
        let error = EntraError::parse(u16::from(response.status()), response.body().as_ref(), retry_after);
        Err(Error::new(ErrorKind::Credential, error))
    }
}

/// A rejected token request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}", .service.message)]
pub(crate) struct EntraError {
    codes: Vec<u64>,
    service: ServiceError,
}

impl EntraError {
    fn parse(status: u16, body: &[u8], retry_after: Option<std::time::Duration>) -> EntraError {
        #[derive(Deserialize)]
        struct Codes {
            #[serde(default)]
            error_codes: Vec<u64>,
        }
        let codes = serde_json::from_slice::<Codes>(body).map(|it| it.error_codes).unwrap_or_default();
        EntraError { codes, service: ServiceError { retry_after, ..ServiceError::parse(status, body) } }
    }

    fn into_cloud_error(self, who: &str, settings: &Settings) -> CloudError {
        let ServiceError { status, code, message, retry_after, .. } = self.service;
        let number = self.codes.first().map(|it| format!("AADSTS{it}"));
        let name =
            number.unwrap_or_else(|| if code.is_empty() { format!("status {status}") } else { code.clone() });
        let rejected =
            |why: &str| CloudError::Credential { who: who.to_owned(), why: format!("{name}: {why}") };
        let configuration =
            |setting: &str, why: String| CloudError::Configuration { setting: setting.to_owned(), why };
        match self.codes.first() {
            Some(7_000_215 | 7_000_216) => rejected("the client secret is wrong or missing; give the current secret"),
            Some(7_000_222) => rejected("the client secret has expired; make a new one"),
            Some(700_016) => rejected("the application is not in the tenant; check client id and tenant"),
            Some(700_027) => rejected("the certificate is not registered with the application"),
            Some(700_024) => rejected("the assertion is outside its validity; check the clock and the certificate"),
            Some(70_021 | 700_211 | 700_212 | 700_213 | 7_002_137 | 7_002_138) => CloudError::Busy {
                what: format!("the credential of {who}"),
                code: name.clone(),
                why: "no federated credential matches issuer, audience and subject; a new one takes minutes to spread".to_owned(),
                after: None,
            },
            Some(90_002) => {
                configuration("tenant_id", format!("{name}: the authority does not know tenant '{}'", settings.tenant_id))
            }
            Some(500_011) => {
                configuration("scope", format!("{name}: the tenant does not know the audience of '{}'", settings.scope))
            }
            _ if status == 429 => CloudError::Throttled { after: retry_after },
            _ if status >= 500 => CloudError::Unavailable {
                what: format!("the token request to {} ({status}): {message}", settings.authority),
                source: None,
            },
            _ if !code.is_empty() => rejected(&message),
            _ => CloudError::UnexpectedResponse {
                what: format!(
                    "the token request to {} ({status}): {message}; check setting authority",
                    settings.authority
                ),
                source: None,
            },
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
