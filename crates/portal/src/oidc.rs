//! Sign-in at an OpenID Connect provider: the authorization code flow with PKCE, state and nonce. The provider's metadata and keys are
//! read at each sign-in, so that a rotated key needs no action.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use api::actor::{self, IdentityError};
use api::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use openidconnect::core::{CoreAuthenticationFlow, CoreClient, CoreProviderMetadata};
use openidconnect::{
    AsyncHttpClient, AuthorizationCode, ClientId, ClientSecret, CsrfToken, HttpRequest, HttpResponse,
    IssuerUrl, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    TokenResponse as _,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::PortalError;
use crate::session::Role;

/// Timeout of a request to the provider.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest response of a provider.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// The identity provider, and the groups that have access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OidcConfig {
    /// The issuer's URL, as its tokens spell it.
    pub issuer: String,
    /// Client id of the portal at the provider.
    pub client_id: String,
    /// File with the client secret; none for a public client.
    pub client_secret_file: Option<PathBuf>,
    /// Scopes to request besides `openid`.
    pub scopes: Vec<String>,
    /// Claim with the name of the user in histories and the audit log.
    pub user_claim: String,
    /// Claim with the user's groups.
    pub group_claim: String,
    /// Groups with the role operator, which may change things.
    pub operator_groups: Vec<String>,
    /// Groups with the role reader.
    pub reader_groups: Vec<String>,
    /// CA certificates (PEM) to verify the provider with, instead of the system's.
    pub ca_file: Option<PathBuf>,
}

impl Default for OidcConfig {
    fn default() -> OidcConfig {
        OidcConfig {
            issuer: String::new(),
            client_id: String::new(),
            client_secret_file: None,
            scopes: vec!["profile".to_owned()],
            user_claim: "preferred_username".to_owned(),
            group_claim: "groups".to_owned(),
            operator_groups: Vec::new(),
            reader_groups: Vec::new(),
            ca_file: None,
        }
    }
}

/// Why a sign-in failed. The log has the whole message, the user reads a part of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    #[error("the request to the identity provider failed: {0}")]
    Provider(String),
    #[error("the response of the identity provider was rejected: {0}")]
    Rejected(String),
    #[error("none of the groups of {user} has access")]
    NoGroup { user: String },
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HttpError(String);

type Http = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The provider.
#[derive(Debug)]
pub(crate) struct Provider {
    config: OidcConfig,
    secret: Option<Secret<String>>,
    issuer: IssuerUrl,
    redirect: RedirectUrl,
    http: HttpTransport,
}

/// HTTP transport to the provider.
#[derive(Debug)]
struct HttpTransport(Http);

impl<'c> AsyncHttpClient<'c> for HttpTransport {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

impl HttpTransport {
    /// Sends a request; redirects are not followed.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The endpoints, which receive codes, secrets and tokens, come from the provider's metadata.
        if !client::is_secure_or_local(request.uri()) {
            let message = format!("{} is neither https:// nor on this machine", request.uri());
            return Err(HttpError(message));
        }
        let request = request.map(|body| Full::new(Bytes::from(body)));
        let exchange = async {
            let response = self.0.request(request).await.map_err(|error| HttpError(error_chain(&error)))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| HttpError(error.to_string()))?.to_bytes();
            Ok(http::Response::from_parts(head, body.to_vec()))
        };
        let timed = tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await;
        timed.map_err(|_| HttpError(format!("no response within {} s", RESPONSE_TIMEOUT.as_secs())))?
    }
}

/// The redirect to the provider, and the secrets of the sign-in.
pub(crate) struct AuthorizationRequest {
    pub(crate) url: String,
    pub(crate) state: String,
    pub(crate) verifier: String,
    pub(crate) nonce: String,
}

impl Provider {
    pub(crate) fn new(config: OidcConfig, origin: &str) -> Result<Provider, PortalError> {
        let invalid = |message: String| PortalError::Setting(message);
        let issuer = IssuerUrl::new(config.issuer.clone())
            .map_err(|error| invalid(format!("the issuer {:?} is not a URL: {error}", config.issuer)))?;
        let is_local = matches!(issuer.url().host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        if issuer.url().scheme() != "https" && !is_local {
            let message = format!("the issuer {:?} must be an https:// URL", config.issuer);
            return Err(invalid(message));
        }
        if config.client_id.is_empty() {
            return Err(invalid(
                "the client id of the portal at its identity provider is missing".to_owned(),
            ));
        }
        if config.operator_groups.is_empty() && config.reader_groups.is_empty() {
            return Err(invalid("nobody has access: name operator groups or reader groups".to_owned()));
        }
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path)
                .map_err(|error| invalid(format!("{} cannot be read: {error}", path.display())))
        };
        let secret = config.client_secret_file.as_ref().map(read).transpose()?;
        let secret = secret.map(|text| Secret::new(text.trim().to_owned()));
        let redirect = RedirectUrl::new(format!("{origin}/login/callback"))
            .map_err(|error| invalid(format!("the portal's address is not a URL: {error}")))?;
        let http = HttpTransport(http_client(config.ca_file.as_ref())?);
        Ok(Provider { config, secret, issuer, redirect, http })
    }

    /// Starts a sign-in: the URL to redirect to, and the values to verify in the callback.
    pub(crate) async fn authorization_request(&self) -> Result<AuthorizationRequest, LoginError> {
        let metadata = self.metadata().await?;
        let client = CoreClient::from_provider_metadata(metadata, self.client_id(), self.client_secret())
            .set_redirect_uri(self.redirect.clone());
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let mut request = client.authorize_url(
            CoreAuthenticationFlow::AuthorizationCode,
            CsrfToken::new_random,
            Nonce::new_random,
        );
        for scope in &self.config.scopes {
            request = request.add_scope(Scope::new(scope.clone()));
        }
        let (url, state, nonce) = request.set_pkce_challenge(challenge).url();
        Ok(AuthorizationRequest {
            url: url.to_string(),
            state: state.into_secret(),
            verifier: verifier.into_secret(),
            nonce: nonce.secret().clone(),
        })
    }

    /// Exchanges the code of a callback for the user and their role.
    pub(crate) async fn exchange(
        &self,
        code: &str,
        verifier: String,
        nonce: String,
    ) -> Result<(String, Role), LoginError> {
        let metadata = self.metadata().await?;
        let user_info = metadata.userinfo_endpoint().map(ToString::to_string);
        let client = CoreClient::from_provider_metadata(metadata, self.client_id(), self.client_secret())
            .set_redirect_uri(self.redirect.clone());
        let exchange = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|error| LoginError::Provider(error.to_string()))?
            .set_pkce_verifier(PkceCodeVerifier::new(verifier));
        let tokens = exchange
            .request_async(&self.http)
            .await
            .map_err(|error| LoginError::Rejected(error_chain(&error)))?;
        let token = tokens.id_token().ok_or_else(|| LoginError::Rejected("it has no ID token".to_owned()))?;
        // Signature, issuer, audience, times and nonce.
        token
            .claims(&client.id_token_verifier(), &Nonce::new(nonce))
            .map_err(|error| LoginError::Rejected(error_chain(&error)))?;
        let mut claims = claims(&token.to_string())
            .ok_or_else(|| LoginError::Rejected("the claims of its ID token cannot be read".to_owned()))?;
        // If a user has too many groups for a token, the provider refers to the user info endpoint.
        let is_elsewhere = claims["_claim_names"].get(&self.config.group_claim).is_some();
        if let (true, Some(url)) = (is_elsewhere, user_info) {
            let more = self.user_info(&url, tokens.access_token().secret()).await?;
            if more["sub"] == claims["sub"] {
                claims[&self.config.group_claim] = more[&self.config.group_claim].clone();
            }
        }
        self.authorize(&claims)
    }

    /// The user and their role, from verified claims.
    fn authorize(&self, claims: &Value) -> Result<(String, Role), LoginError> {
        let user = self.user(claims)?;
        let groups: Vec<&str> = match &claims[&self.config.group_claim] {
            Value::Array(groups) => groups.iter().filter_map(Value::as_str).collect(),
            Value::String(group) => vec![group],
            _ => Vec::new(),
        };
        let is_in = |wanted: &[String]| wanted.iter().any(|wanted| groups.contains(&wanted.as_str()));
        if is_in(&self.config.operator_groups) {
            Ok((user, Role::Operator))
        } else if is_in(&self.config.reader_groups) {
            Ok((user, Role::Reader))
        } else {
            Err(LoginError::NoGroup { user })
        }
    }

    /// The name under which the user's actions are recorded: the first claim that is not empty. A name that would have to be
    /// shortened is rejected, so that nobody is recorded as somebody else.
    fn user(&self, claims: &Value) -> Result<String, LoginError> {
        for name in [self.config.user_claim.as_str(), "email", "sub"] {
            match actor::identity(claims[name].as_str().unwrap_or_default()) {
                Ok(user) => return Ok(user),
                Err(IdentityError::Empty) => {}
                Err(why @ (IdentityError::TooLong | IdentityError::Via)) => {
                    return Err(LoginError::Rejected(format!(
                        "the claim {name:?} is not a valid name: {why}"
                    )));
                }
            }
        }
        Err(LoginError::Rejected("no claim names the user".to_owned()))
    }

    fn client_id(&self) -> ClientId {
        ClientId::new(self.config.client_id.clone())
    }

    fn client_secret(&self) -> Option<ClientSecret> {
        self.secret.as_ref().map(|secret| ClientSecret::new(secret.expose().clone()))
    }

    async fn metadata(&self) -> Result<CoreProviderMetadata, LoginError> {
        CoreProviderMetadata::discover_async(self.issuer.clone(), &self.http)
            .await
            .map_err(|error| LoginError::Provider(error_chain(&error)))
    }

    async fn user_info(&self, url: &str, token: &str) -> Result<Value, LoginError> {
        let request = http::Request::get(url)
            .header(http::header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Vec::new())
            .map_err(|error| LoginError::Provider(error.to_string()))?;
        let response =
            self.http.send(request).await.map_err(|error| LoginError::Provider(error.to_string()))?;
        serde_json::from_slice(response.body()).map_err(|error| LoginError::Provider(error.to_string()))
    }
}

/// The claims of a verified token.
fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

/// The messages of an error and its sources.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn http_client(ca_file: Option<&PathBuf>) -> Result<Http, PortalError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let invalid = |why: String| PortalError::Setting(format!("{}: {why}", path.display()));
            let found = CertificateDer::pem_file_iter(path).map_err(|error| invalid(error.to_string()))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
                roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| PortalError::Setting(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .build();
    Ok(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provider() -> Provider {
        let config = OidcConfig {
            issuer: "https://login.example".to_owned(),
            client_id: "portal".to_owned(),
            operator_groups: vec!["sre".to_owned()],
            reader_groups: vec!["staff".to_owned()],
            ..OidcConfig::default()
        };
        Provider::new(config, "https://portal.example").unwrap()
    }

    #[test]
    fn groups_decide_the_role() {
        let check = |claims: Value, expect: Option<(&str, Role)>| {
            let authorized = provider().authorize(&claims).ok();
            assert_eq!(authorized, expect.map(|(user, role)| (user.to_owned(), role)), "{claims}");
        };
        check(json!({"preferred_username": "jo", "groups": ["staff", "sre"]}), Some(("jo", Role::Operator)));
        check(json!({"email": "jo@x", "groups": ["staff"]}), Some(("jo@x", Role::Reader)));
        check(json!({"sub": "1", "groups": "staff"}), Some(("1", Role::Reader)));
        check(json!({"preferred_username": "jo", "groups": ["others"]}), None);
        check(json!({"preferred_username": "jo"}), None);
        check(json!({"preferred_username": "jo", "groups": {"sre": true}}), None);
    }

    #[tokio::test]
    async fn nothing_is_sent_over_plain_http_beyond_this_machine() {
        for url in ["http://login.example/token", "HTTP://login.example/userinfo"] {
            let request = http::Request::post(url).body(b"secret".to_vec()).unwrap();
            let error = provider().http.send(request).await.unwrap_err().to_string();
            assert!(error.ends_with("is neither https:// nor on this machine"), "{error}");
        }
    }

    #[test]
    fn a_name_is_normalised_and_never_shortened() {
        let admit =
            |claims: Value| provider().authorize(&claims).map(|(user, _)| user).map_err(|it| it.to_string());
        let named = |name: &str| admit(json!({"preferred_username": name, "sub": "1", "groups": ["sre"]}));
        assert_eq!(named(&format!(" jo{}x\t", " ".repeat(500))), Ok("jo x".to_owned()));
        assert_eq!(named("jo\u{7}\u{202e}\r\nx"), Ok("jo x".to_owned()));
        assert_eq!(named(" \u{200b} "), Ok("1".to_owned()), "the next claim names them");
        let error = named(&"x".repeat(201)).unwrap_err();
        assert!(
            error.contains("\"preferred_username\" is not a valid name: it has more than 200 bytes"),
            "{error}"
        );
        assert!(named("jo via shipshape-operator").unwrap_err().contains("\" via \""));
        assert!(admit(json!({"groups": ["sre"]})).unwrap_err().contains("no claim names the user"));
    }

    #[test]
    fn settings_that_give_nobody_or_everybody_access_are_rejected() {
        let check = |adjust: &dyn Fn(&mut OidcConfig), word: &str| {
            let mut config = provider().config;
            adjust(&mut config);
            let error = Provider::new(config, "https://portal.example").unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        check(&|config| config.issuer = "http://login.example".to_owned(), "https://");
        check(&|config| config.issuer = "login".to_owned(), "not a URL");
        check(&|config| config.client_id.clear(), "client id");
        check(
            &|config| {
                config.operator_groups.clear();
                config.reader_groups.clear();
            },
            "nobody",
        );
        check(&|config| config.client_secret_file = Some("/nowhere/secret".into()), "cannot be read");
    }
}
