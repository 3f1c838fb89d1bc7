//! Errors of the token endpoint: `AADSTS` codes in the envelope of Entra ID.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;

use crate::failure::Failure;

/// A rejected token request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntraError {
    pub(crate) code: u32,
    pub(crate) status: StatusCode,
    pub(crate) error: &'static str,
    pub(crate) text: String,
}

impl EntraError {
    fn new(code: u32, status: StatusCode, error: &'static str, text: impl Into<String>) -> EntraError {
        EntraError { code, status, error, text: text.into() }
    }

    fn client(code: u32, text: impl Into<String>) -> EntraError {
        EntraError::new(code, StatusCode::UNAUTHORIZED, "invalid_client", text)
    }

    fn request(code: u32, text: impl Into<String>) -> EntraError {
        EntraError::new(code, StatusCode::BAD_REQUEST, "invalid_request", text)
    }

    pub(crate) fn wrong_secret(client: &str) -> EntraError {
        EntraError::client(
            7_000_215,
            format!(
                "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '{client}'."
            ),
        )
    }

    pub(crate) fn missing_credential() -> EntraError {
        EntraError::client(
            7_000_216,
            "'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' grant type.",
        )
    }

    pub(crate) fn expired_secret(client: &str) -> EntraError {
        EntraError::client(
            7_000_222,
            format!(
                "The provided client secret keys for app '{client}' are expired. Visit the Azure portal to create new keys for your app: https://aka.ms/NewClientSecret, or consider using certificate credentials for added security: https://aka.ms/certCreds."
            ),
        )
    }

    pub(crate) fn unknown_application(client: &str, tenant: &str) -> EntraError {
        let text = format!(
            "Application with identifier '{client}' was not found in the directory '{tenant}'. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You may have sent your authentication request to the wrong tenant."
        );
        EntraError::new(700_016, StatusCode::BAD_REQUEST, "unauthorized_client", text)
    }

    pub(crate) fn unknown_tenant(tenant: &str) -> EntraError {
        let shown: String = tenant.chars().take(100).collect();
        EntraError::request(
            90_002,
            format!(
                "Tenant '{shown}' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant."
            ),
        )
    }

    pub(crate) fn unknown_audience(audience: &str, tenant: &str) -> EntraError {
        let shown: String = audience.chars().take(200).collect();
        let text = format!(
            "The resource principal named {shown} was not found in the tenant named {tenant}. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You might have sent your authentication request to the wrong tenant."
        );
        EntraError::new(500_011, StatusCode::BAD_REQUEST, "invalid_resource", text)
    }

    pub(crate) fn unusable_scope(scope: &str) -> EntraError {
        let shown: String = scope.chars().take(200).collect();
        let text = format!(
            "The provided value for scope {shown} is not valid. Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI)."
        );
        EntraError::new(1_002_012, StatusCode::BAD_REQUEST, "invalid_scope", text)
    }

    pub(crate) fn missing_parameter(name: &str) -> EntraError {
        EntraError::request(
            900_144,
            format!("The request body must contain the following parameter: '{name}'."),
        )
    }

    pub(crate) fn unusable_grant(grant: &str) -> EntraError {
        let shown: String = grant.chars().take(100).collect();
        let text = format!("The app requested an unsupported grant type '{shown}'.");
        EntraError::new(70_003, StatusCode::BAD_REQUEST, "unsupported_grant_type", text)
    }

    pub(crate) fn malformed_assertion(why: &str) -> EntraError {
        EntraError::request(50_027, format!("JWT token is invalid or malformed: {why}."))
    }

    pub(crate) fn unknown_key(thumbprint: &str) -> EntraError {
        let shown: String = thumbprint.chars().take(100).collect();
        EntraError::client(
            700_027,
            format!(
                "The certificate with identifier used to sign the client assertion is not registered on application. [Reason - The key was not found., Thumbprint of key used by client: '{shown}']."
            ),
        )
    }

    pub(crate) fn wrong_signature() -> EntraError {
        EntraError::client(
            700_027,
            "Client assertion failed signature validation. [Reason - The key was found, but use of the key to verify the signature failed.]",
        )
    }

    pub(crate) fn assertion_outside_time(now: Timestamp) -> EntraError {
        EntraError::client(
            700_024,
            format!("Client assertion is not within its valid time range. Current time: {now}."),
        )
    }

    pub(crate) fn wrong_assertion_audience(audience: &str) -> EntraError {
        let shown: String = audience.chars().take(200).collect();
        EntraError::client(
            700_023,
            format!("Client assertion audience claim '{shown}' does not match Realm issuer."),
        )
    }

    pub(crate) fn no_federation(client: &str) -> EntraError {
        EntraError::request(
            70_021,
            format!(
                "No matching federated identity record found for presented assertion. The application '{client}' has no federated identity credential."
            ),
        )
    }

    pub(crate) fn unknown_issuer(issuer: &str) -> EntraError {
        EntraError::client(
            700_211,
            format!(
                "No matching federated identity record found for presented assertion issuer '{issuer}'. Please check your federated identity credential Subject, Audience and Issuer against the presented assertion."
            ),
        )
    }

    pub(crate) fn unknown_assertion_audience(audience: &str) -> EntraError {
        EntraError::client(
            700_212,
            format!(
                "No matching federated identity record found for presented assertion audience '{audience}'. Please check your federated identity credential Subject, Audience and Issuer against the presented assertion."
            ),
        )
    }

    pub(crate) fn unknown_subject(subject: &str) -> EntraError {
        EntraError::client(
            700_213,
            format!(
                "No matching federated identity record found for presented assertion subject '{subject}'. Please check your federated identity credential Subject, Audience and Issuer against the presented assertion."
            ),
        )
    }

    pub(crate) fn unreachable_issuer() -> EntraError {
        EntraError::request(90_061, "Request to External OIDC endpoint failed.")
    }

    /// A condition of the service itself, which a repetition may heal.
    pub(crate) fn temporary(status: StatusCode) -> EntraError {
        EntraError::new(
            90_033,
            status,
            "temporarily_unavailable",
            "A transient error has occurred. Please try again.",
        )
    }

    pub(crate) fn response(&self, now: Timestamp) -> Response {
        let (trace, correlation) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        let time = now.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        let EntraError { code, text, .. } = self;
        let body = json!({
            "error": self.error,
            "error_description":
                format!("AADSTS{code}: {text} Trace ID: {trace} Correlation ID: {correlation} Timestamp: {time}"),
            "error_codes": [code],
            "timestamp": time,
            "trace_id": trace,
            "correlation_id": correlation,
            "error_uri": format!("https://login.microsoftonline.com/error?code={code}"),
        });
        (self.status, Json(body)).into_response()
    }
}

/// The response to a defect of the emulator.
pub(super) fn failed(failure: &Failure) -> Response {
    tracing::error!(error = failure as &dyn std::error::Error, "The emulated Entra ID failed");
    let body = json!({ "error": "server_error", "error_description": "The emulated Entra ID failed.", "error_codes": [] });
    (StatusCode::INTERNAL_SERVER_ERROR, Json(body)).into_response()
}
