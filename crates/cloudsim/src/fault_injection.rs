//! Fault rules in front of the data planes: each service says how its errors look, and this module decides whether one occurs before or
//! after the effect of a request.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};

use crate::call_context::FaultEffects;
use crate::faults::{CloudFault, FaultTiming};
use crate::simulator::Simulator;

/// An error that a fault rule causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectedError {
    Throttled,
    Unavailable,
    Denied,
    TokenExpired,
    /// The token lacks claims, which [`claims_challenge`] names.
    ClaimsMissing,
}

impl InjectedError {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            InjectedError::Throttled => StatusCode::TOO_MANY_REQUESTS,
            InjectedError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            InjectedError::Denied => StatusCode::FORBIDDEN,
            InjectedError::TokenExpired | InjectedError::ClaimsMissing => StatusCode::UNAUTHORIZED,
        }
    }
}

/// Handles a request under the fault rules for a verb and a subject. `error` renders an error as the service does.
pub(crate) async fn with_faults(
    simulator: &Simulator,
    verb: &str,
    subject: &str,
    error: impl Fn(InjectedError) -> Response,
    work: impl FnOnce(FaultEffects) -> Response,
) -> Response {
    let met = simulator.faults.meet(verb, subject, |it| !matches!(it, CloudFault::InstallFails { .. }));
    let Some(fault) = met else { return work(FaultEffects::default()) };
    tracing::debug!("{verb} {subject}: {fault}");
    match fault {
        CloudFault::Throttled { after_seconds } => {
            let mut response = error(InjectedError::Throttled);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after_seconds));
            response
        }
        CloudFault::ThrottledBriefly { after_millis } => {
            let mut response = error(InjectedError::Throttled);
            response.headers_mut().insert("retry-after-ms", HeaderValue::from(after_millis));
            response
        }
        CloudFault::Unavailable { when: FaultTiming::Before } => error(InjectedError::Unavailable),
        CloudFault::Unavailable { when: FaultTiming::After } => {
            drop(work(FaultEffects::default()));
            error(InjectedError::Unavailable)
        }
        CloudFault::Reset { when: FaultTiming::Before } => reset(),
        CloudFault::Reset { when: FaultTiming::After } => {
            drop(work(FaultEffects::default()));
            reset()
        }
        CloudFault::Delayed { millis, when: FaultTiming::Before } => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            work(FaultEffects::default())
        }
        CloudFault::Delayed { millis, when: FaultTiming::After } => {
            let response = work(FaultEffects::default());
            tokio::time::sleep(Duration::from_millis(millis)).await;
            response
        }
        CloudFault::Denied {} => error(InjectedError::Denied),
        CloudFault::TokenExpires {} => error(InjectedError::TokenExpired),
        CloudFault::Claims {} => error(InjectedError::ClaimsMissing),
        CloudFault::ProvisioningFails { code, message } => {
            let fails_later = Some(cloud::ResourceFailure { code, message });
            work(FaultEffects { fails_later, ..FaultEffects::default() })
        }
        CloudFault::OperationHangs {} => {
            work(FaultEffects { operation_hangs: true, ..FaultEffects::default() })
        }
        CloudFault::DelayedVisibility { millis } => {
            work(FaultEffects { unseen: Duration::from_millis(millis), ..FaultEffects::default() })
        }
        // Faults of resources, role assignments and installations: a data plane has none.
        _ => work(FaultEffects::default()),
    }
}

/// The parameters of a challenge that asks for a new token with further claims.
pub(crate) fn claims_challenge() -> String {
    let claims = r#"{"access_token":{"nbf":{"essential":true,"value":"1"}}}"#;
    format!("error=\"insufficient_claims\", claims=\"{}\"", STANDARD.encode(claims))
}

/// A response body that fails, so that the connection is reset.
fn reset() -> Response {
    let cut = futures_util::stream::once(async { Err::<Bytes, _>(std::io::Error::other("reset")) });
    (StatusCode::OK, [(CONTENT_TYPE, "application/json")], Body::from_stream(cut)).into_response()
}
