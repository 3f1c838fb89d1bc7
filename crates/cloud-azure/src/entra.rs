//! Token requests on the wire: claims that a challenge asks for, and errors by their numeric codes.
//!
//! Responses are read here before the library sees them. It would take an escape in the description for broken JSON and lose the
//! numeric codes, which alone are dependable; and it would say of the page of a proxy only that it cannot be parsed.

use std::fmt;
use std::sync::Arc;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{AsyncRawResponse, Body, Context, HttpClient, Method, Request};
use bytes::Bytes;
use cloud::CloudError;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{ServiceError, shorten};
use crate::headers::{Correlation, retry_after};
use crate::redact::redact;
use crate::settings::{Settings, SettingsError};
use crate::transport::{METADATA_HOST, NoResponse};

/// Adds the claims of a challenge to a token request. The metadata service takes none.
#[derive(Debug)]
pub(crate) struct ClaimsPolicy(pub(crate) String);

#[async_trait::async_trait]
impl Policy for ClaimsPolicy {
    async fn send(&self, cx: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        if let (Method::Post, Body::Bytes(form)) = (request.method(), request.body()) {
            let mut form = form.to_vec();
            let claims = utf8_percent_encode(&self.0, NON_ALPHANUMERIC);
            form.extend_from_slice(format!("&claims={claims}").as_bytes());
            request.set_body(form);
        }
        next[0].send(cx, request, &next[1..]).await
    }
}

/// The transport of token requests: whatever is no token becomes a [`TokenFailure`].
#[derive(Debug)]
pub(crate) struct TokenTransport(pub(crate) Arc<dyn HttpClient>);

#[async_trait::async_trait]
impl HttpClient for TokenTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let issuer = match request.url().host_str() {
            Some(METADATA_HOST) => Issuer::Metadata,
            _ => Issuer::Authority,
        };
        let failed = |reason| Error::new(ErrorKind::Credential, TokenFailure { issuer, reason });
        let response = self.0.execute_request(request).await.map_err(|error| {
            tracing::debug!(error = &error as &dyn std::error::Error, "The token request has no response");
            failed(Reason::NoResponse(NoResponse::of(&error)))
        })?;
        let response = response.try_into_raw_response().await?;
        let (status, headers, body) = response.deconstruct();
        let body: Bytes = body.into();
        if status.is_success()
            && let Some(body) = token_body(issuer, &body)
        {
            return Ok(AsyncRawResponse::from_bytes(status, headers, body));
        }
        let mut error = EntraError::parse(u16::from(status), &body);
        error.service.retry_after = retry_after(&headers);
        error.service.correlation = Correlation::read("", &headers);
        tracing::info!(
            status = error.service.status,
            codes = ?error.codes,
            request_id = error.service.correlation.request,
            "The token request was rejected with {}",
            error.name()
        );
        Err(failed(Reason::Rejected(Box::new(error))))
    }
}

/// The body of a response that holds a token. The metadata service writes numbers as texts, and the library takes nothing else.
fn token_body(issuer: Issuer, body: &Bytes) -> Option<Bytes> {
    let mut value: Value = serde_json::from_slice(body).ok()?;
    value.get("access_token").and_then(Value::as_str).filter(|it| !it.is_empty())?;
    if issuer == Issuer::Authority {
        return Some(body.clone());
    }
    for member in value.as_object_mut()?.values_mut() {
        if let Value::Number(number) = member {
            *member = Value::String(number.to_string());
        }
    }
    Some(Bytes::from(value.to_string()))
}

/// Who issues tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Issuer {
    Authority,
    Metadata,
}

/// A token request without a token.
#[derive(Debug)]
pub(crate) struct TokenFailure {
    issuer: Issuer,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    NoResponse(NoResponse),
    Rejected(Box<EntraError>),
}

impl fmt::Display for TokenFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::NoResponse(_) => f.write_str("the token request has no response"),
            Reason::Rejected(error) => write!(f, "the token request was rejected with {}", error.name()),
        }
    }
}

impl std::error::Error for TokenFailure {}

/// The error of a token request, for messages about a principal.
pub(crate) fn token_error(error: Error, who: &str, settings: &Settings) -> CloudError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = cause {
        if let Some(failure) = current.downcast_ref::<TokenFailure>() {
            return failure.to_cloud_error(who, settings);
        }
        if let Some(SettingsError { setting, why }) = current.downcast_ref::<SettingsError>() {
            return CloudError::Configuration { setting: (*setting).to_owned(), why: why.clone() };
        }
        cause = current.source();
    }
    let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    CloudError::Credential { who: who.to_owned(), why: shorten(&redact(&why), 300) }
}

impl TokenFailure {
    fn to_cloud_error(&self, who: &str, settings: &Settings) -> CloudError {
        match (&self.reason, self.issuer) {
            (Reason::NoResponse(cause), Issuer::Authority) => {
                let note = cause.describe(&settings.authority, "authority");
                no_response(*cause, format!("the token request for {who} ({note})"))
            }
            (Reason::NoResponse(cause), Issuer::Metadata) => {
                let note = "no response from the metadata service; check that this machine runs in Azure, or \
                            set another credential";
                no_response(*cause, format!("the token request for {who} ({note})"))
            }
            (Reason::Rejected(error), Issuer::Authority) => error.to_cloud_error(who, settings),
            (Reason::Rejected(error), Issuer::Metadata) => error.to_metadata_error(who),
        }
    }
}

fn no_response(cause: NoResponse, what: String) -> CloudError {
    match cause {
        NoResponse::TooLarge => CloudError::UnexpectedResponse { what, source: None },
        _ => CloudError::Unavailable { what, source: None },
    }
}

/// A rejected token request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EntraError {
    codes: Vec<u64>,
    service: ServiceError,
}

impl EntraError {
    fn parse(status: u16, body: &[u8]) -> EntraError {
        #[derive(Deserialize)]
        struct Codes {
            #[serde(default)]
            error_codes: Vec<u64>,
        }
        let codes = serde_json::from_slice::<Codes>(body).map(|it| it.error_codes).unwrap_or_default();
        EntraError { codes, service: ServiceError::parse(status, body) }
    }

    /// The numeric code, or what comes nearest to one.
    fn name(&self) -> String {
        match (self.codes.first(), self.service.code.as_str()) {
            (Some(code), _) => format!("AADSTS{code}"),
            (None, "") => format!("status {}", self.service.status),
            (None, code) => code.to_owned(),
        }
    }

    fn to_cloud_error(&self, who: &str, settings: &Settings) -> CloudError {
        let name = self.name();
        let Settings { authority, tenant_id: tenant, scope, .. } = settings;
        let rejected =
            |why: &str| CloudError::Credential { who: who.to_owned(), why: format!("{name}: {why}") };
        let configuration = |setting: &str, why: String| CloudError::Configuration {
            setting: setting.to_owned(),
            why: format!("{name}: {why}"),
        };
        match self.codes.first() {
            Some(7_000_215 | 7_000_216) => {
                return rejected("the client secret is wrong or missing; give the current secret");
            }
            Some(7_000_222) => {
                return rejected(
                    "the client secret has expired; add a new one to the application and give it",
                );
            }
            Some(700_016 | 7_000_229) => {
                return rejected(&format!(
                    "the application is not in tenant '{tenant}'; check client id and tenant"
                ));
            }
            Some(7_000_112) => return rejected("the application is disabled; enable it in the directory"),
            Some(700_027) => {
                return rejected(
                    "the certificate is not registered with the application; register it, or give its current one",
                );
            }
            Some(700_024 | 1_000_502) => {
                return rejected(
                    "the assertion or its certificate is outside its validity; check the clock and the certificate",
                );
            }
            Some(70_021 | 700_211 | 700_212 | 700_213 | 7_002_137 | 7_002_138) => {
                return CloudError::Busy {
                    what: format!("the credential of {who}"),
                    code: name,
                    why: "no federated credential matches issuer, audience and subject; a new one takes minutes to spread".to_owned(),
                    after: self.service.retry_after,
                };
            }
            Some(90_061 | 50_166 | 501_661) => {
                return CloudError::Busy {
                    what: format!("the credential of {who}"),
                    code: name,
                    why:
                        "the directory cannot read the documents of the token's issuer, which must be public"
                            .to_owned(),
                    after: self.service.retry_after,
                };
            }
            Some(90_002 | 900_023 | 50_059) => {
                return configuration("tenant_id", format!("{authority} does not know tenant '{tenant}'"));
            }
            Some(500_011 | 70_011 | 1_002_012) => {
                return configuration(
                    "scope",
                    format!("tenant '{tenant}' does not know the audience of '{scope}'"),
                );
            }
            _ => {}
        }
        let ServiceError { status, code, message, retry_after, is_foreign, .. } = &self.service;
        let what = format!("the token request to {authority} ({status}: {message})");
        match *status {
            429 => CloudError::Throttled { after: *retry_after },
            408 | 500..=599 => CloudError::Unavailable { what, source: None },
            400..=499 if !code.is_empty() && !is_foreign => rejected(message),
            _ => CloudError::UnexpectedResponse {
                what: format!(
                    "the token request to {authority} ({status}: {message}; check setting authority)"
                ),
                source: None,
            },
        }
    }

    fn to_metadata_error(&self, who: &str) -> CloudError {
        let ServiceError { status, message, retry_after, .. } = &self.service;
        let name = self.name();
        match *status {
            400 => CloudError::Configuration {
                setting: "client_id".to_owned(),
                why: format!(
                    "{name}: the machine does not have the identity {who} ({message}); assign it to the machine"
                ),
            },
            429 => CloudError::Throttled { after: *retry_after },
            // 404 and 410 are returned while the service is updated.
            404 | 408 | 410 | 500..=599 => CloudError::Unavailable {
                what: format!("the token request to the metadata service ({status}: {message})"),
                source: None,
            },
            _ => CloudError::UnexpectedResponse {
                what: format!("the token request to the metadata service ({status}: {message})"),
                source: None,
            },
        }
    }
}

#[cfg(test)]
mod tests;
