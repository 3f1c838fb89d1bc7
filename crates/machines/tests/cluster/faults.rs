//! What goes wrong in the cloud and in the API server, as a test asks for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cloud::{InstanceError, InstanceRequest};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::BoxError;

/// Requests of a process that fail.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApiFaults(Arc<Mutex<Vec<ApiFault>>>);

#[derive(Debug)]
struct ApiFault {
    method: Method,
    path: String,
    left: u32,
    code: u16,
}

impl ApiFaults {
    /// Lets the next `times` requests with this method and end of the path fail with this code.
    pub(crate) fn fail(&self, method: Method, path: &str, times: u32, code: u16) {
        self.0.lock().unwrap().push(ApiFault { method, path: path.to_owned(), left: times, code });
    }

    /// Whether all requests that shall fail have failed.
    pub(crate) fn are_over(&self) -> bool {
        self.0.lock().unwrap().iter().all(|fault| fault.left == 0)
    }

    /// A client that sends its requests through `client`.
    pub(crate) fn client(&self, client: &Client) -> Client {
        let (faults, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (failure, inner) = (faults.failure_of(&request), inner.clone());
            async move {
                match failure {
                    None => Ok::<_, BoxError>(inner.send(request).await?),
                    Some(code) => Ok(failed(code)),
                }
            }
        });
        Client::new(service, client.default_namespace())
    }

    fn failure_of(&self, request: &Request<Body>) -> Option<u16> {
        let mut faults = self.0.lock().unwrap();
        let fault = faults.iter_mut().find(|fault| {
            fault.left > 0 && fault.method == *request.method() && request.uri().path().ends_with(&fault.path)
        })?;
        fault.left -= 1;
        Some(fault.code)
    }
}

fn failed(code: u16) -> Response<Body> {
    let reason = if code == 429 { "TooManyRequests" } else { "InternalError" };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "asked for by the test",
    });
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string().into_bytes())).unwrap()
}

/// A call of the provider that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Find,
    Create,
    /// The creation of the instance itself, after that of its parts.
    CreateAfterParts,
    Delete,
}

/// Faults of the cloud. Without any, every call succeeds at once.
#[derive(Debug, Default)]
pub(crate) struct CloudFaults {
    failures: Mutex<BTreeMap<Call, Vec<InstanceError>>>,
    /// How many looks do not see a new instance.
    unlisted_looks: Mutex<u32>,
    unlisted: Mutex<BTreeMap<String, u32>>,
}

impl CloudFaults {
    /// Lets the next `times` of these calls fail.
    pub(crate) fn fail(&self, call: Call, times: usize, error: &InstanceError) {
        let failures = std::iter::repeat_n(error.clone(), times);
        self.failures.lock().unwrap().entry(call).or_default().extend(failures);
    }

    /// Ends the failures that are left.
    pub(crate) fn clear(&self) {
        self.failures.lock().unwrap().clear();
    }

    /// The failure of this call, if it has one.
    pub(crate) fn check(&self, call: Call) -> Result<(), InstanceError> {
        let failure = self.failures.lock().unwrap().get_mut(&call).and_then(Vec::pop);
        failure.map_or(Ok(()), Err)
    }

    /// Hides every new instance from so many looks.
    pub(crate) fn list_late(&self, looks: u32) {
        *self.unlisted_looks.lock().unwrap() = looks;
    }

    pub(crate) fn created(&self, name: &str) {
        let looks = *self.unlisted_looks.lock().unwrap();
        self.unlisted.lock().unwrap().insert(name.to_owned(), looks);
    }

    /// Whether the cloud lists the instance. Of one that the Machine knows, a provider must not say that it is gone.
    pub(crate) fn is_listed(&self, request: &InstanceRequest) -> Result<bool, InstanceError> {
        let mut unlisted = self.unlisted.lock().unwrap();
        let Some(looks) = unlisted.get_mut(&request.name).filter(|looks| **looks > 0) else {
            return Ok(true);
        };
        *looks -= 1;
        match &request.provider_id {
            None => Ok(false),
            Some(_) => {
                let wait = Duration::from_millis(20);
                Err(InstanceError::RequeueAfter(wait, "the instance is not listed yet".to_owned()))
            }
        }
    }
}
