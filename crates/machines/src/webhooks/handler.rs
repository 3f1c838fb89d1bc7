//! The HTTP side: one path per webhook, and one admission review per request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::{Instant, timeout};

use super::decide::{WebhookKind, defaults, validate};
use super::facts::PlatformFacts;
use super::registration::{Webhook, WebhookRole};
use super::review::{self, AdmissionRequest, AdmissionResponse, Operation};
use super::verdict::SecretReference;

/// The largest review: an object and its predecessor, which etcd limits to 1.5 MiB each, written as JSON.
const BODY_BYTES_MAX: usize = 7 * 1024 * 1024;

/// The longest wait for the answer whether a Secret exists. The API server waits for us meanwhile.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an existing Secret is not looked up again: a MachineSet creates many Machines with the same one.
const LOOKUP_LIFETIME: Duration = Duration::from_secs(10);

/// The most Secrets that are remembered.
const LOOKUPS_MAX: usize = 256;

/// What requests need.
pub(crate) struct HandlerState {
    facts: PlatformFacts,
    client: Client,
    /// Secrets that existed at a time.
    secrets: Mutex<HashMap<SecretReference, Instant>>,
}

impl HandlerState {
    pub(crate) fn new(client: Client, facts: PlatformFacts) -> Arc<HandlerState> {
        Arc::new(HandlerState { facts, client, secrets: Mutex::default() })
    }
}

/// The routes of all webhooks.
pub(crate) fn router(state: &Arc<HandlerState>) -> Router {
    Webhook::ALL.iter().fold(Router::new(), |router, webhook| {
        let (webhook, state) = (*webhook, state.clone());
        let handle = move |State(state): State<Arc<HandlerState>>, request: Request| async move {
            state.handle(webhook, request).await
        };
        router.merge(Router::new().route(webhook.path(), post(handle)).with_state(state))
    })
}

impl HandlerState {
    async fn handle(&self, webhook: Webhook, request: Request<Body>) -> Response {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            let text = "the content type must be application/json\n";
            return (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response();
        }
        let body = match axum::body::to_bytes(body, BODY_BYTES_MAX).await {
            Ok(body) => body,
            Err(error) if is_too_large(&error) => {
                let text = format!("the body is larger than {BODY_BYTES_MAX} bytes\n");
                return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
            }
            Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        };
        let request = match review::read(&body) {
            Ok(request) => request,
            Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        };
        let (response, warnings) = self.review(webhook, &request).await;
        if let AdmissionResponse::Denied(why) | AdmissionResponse::BadRequest(why) = &response {
            let AdmissionRequest { name, namespace, .. } = &request;
            tracing::info!(
                object.name = name,
                object.namespace = namespace,
                "{webhook} denied {name}: {why}"
            );
        }
        axum::Json(response.into_review(&request.uid, &warnings)).into_response()
    }

    async fn review(&self, webhook: Webhook, request: &AdmissionRequest) -> (AdmissionResponse, Vec<String>) {
        let bad_request = |message: String| (AdmissionResponse::BadRequest(message), Vec::new());
        if request.kind.group != api::crd::machine::names::GROUP || request.kind.kind != webhook.kind.as_str()
        {
            let expected = webhook.kind.as_str();
            return bad_request(format!("expected a {expected} but got a {}", request.kind));
        }
        if !matches!(request.operation, Operation::Create | Operation::Update) {
            return (AdmissionResponse::admitted(), Vec::new());
        }
        let Some(object) = &request.object else {
            return bad_request("the request has no object".to_owned());
        };
        match webhook.role {
            WebhookRole::Mutating => (self.default(webhook.kind, object), Vec::new()),
            WebhookRole::Validating => self.validate(webhook.kind, request.old_object.as_ref(), object).await,
        }
    }

    fn default(&self, kind: WebhookKind, object: &serde_json::Value) -> AdmissionResponse {
        match defaults(kind, object, &self.facts) {
            Ok(patch) => AdmissionResponse::Admitted { patch },
            Err(error) => AdmissionResponse::Denied(error.to_string()),
        }
    }

    async fn validate(
        &self,
        kind: WebhookKind,
        old: Option<&serde_json::Value>,
        new: &serde_json::Value,
    ) -> (AdmissionResponse, Vec<String>) {
        let verdict = validate(kind, old, new, &self.facts);
        let refusal = verdict.refusal();
        let mut warnings = verdict.warnings;
        if let Some(secret) = &verdict.credentials {
            warnings.extend(self.look_up(secret).await);
        }
        let response = refusal.map_or_else(AdmissionResponse::admitted, AdmissionResponse::Denied);
        (response, warnings)
    }

    /// A warning if a Secret does not exist, or if that cannot be found out.
    async fn look_up(&self, secret: &SecretReference) -> Option<String> {
        if self.is_known(secret) {
            return None;
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace);
        let failure = match timeout(LOOKUP_TIMEOUT, secrets.get_metadata_opt(&secret.name)).await {
            Ok(Ok(Some(_))) => {
                self.remember(secret);
                return None;
            }
            Ok(Ok(None)) => return Some(secret.missing_warning()),
            Ok(Err(kube::Error::Api(status))) => status.message.clone(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {} s", LOOKUP_TIMEOUT.as_secs()),
        };
        Some(secret.failure_warning(&failure))
    }

    fn is_known(&self, secret: &SecretReference) -> bool {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.get(secret).is_some_and(|time| time.elapsed() < LOOKUP_LIFETIME)
    }

    fn remember(&self, secret: &SecretReference) {
        let mut secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        if secrets.len() >= LOOKUPS_MAX {
            secrets.clear();
        }
        secrets.insert(secret.clone(), Instant::now());
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    given.split(';').next().is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json"))
}

fn is_too_large(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        source = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use axum::http::Method;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::super::facts::Platform;
    use super::*;

    /// A cluster that has the Secret `present` and fails for `broken`.
    fn client() -> Client {
        let respond = |request: axum::http::Request<kube::client::Body>| async move {
            let (code, body) = match request.uri().path().rsplit('/').next() {
                Some("present") => (
                    200,
                    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "present"}}),
                ),
                Some("broken") => (
                    500,
                    json!({"kind": "Status", "status": "Failure", "message": "etcd is down", "code": 500}),
                ),
                _ => (
                    404,
                    json!({"kind": "Status", "status": "Failure", "message": "not found", "reason": "NotFound", "code": 404}),
                ),
            };
            let response = axum::http::Response::builder().status(code);
            Ok::<_, std::convert::Infallible>(
                response.body(kube::client::Body::from(body.to_string().into_bytes())).unwrap(),
            )
        };
        Client::new(tower::service_fn(respond), "default")
    }

    async fn send(
        platform: Platform,
        method: Method,
        path: &str,
        content_type: &str,
        body: String,
    ) -> (StatusCode, String) {
        let facts = PlatformFacts { platform, cluster_id: Some("c1".to_owned()), ..PlatformFacts::default() };
        let router = router(&HandlerState::new(client(), facts));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::from(body));
        let response = router.oneshot(request.unwrap()).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn review(platform: Platform, path: &str, kind: &str, object: Value) -> Value {
        let kind = json!({"group": "machine.openshift.io", "version": "v1beta1", "kind": kind});
        let body = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u1", "kind": kind, "operation": "CREATE", "object": object}
        });
        let (status, text) = send(platform, Method::POST, path, "application/json", body.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let mut review: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(review["response"]["uid"], "u1");
        review["response"].take()
    }

    const MUTATE: &str = "/mutate-machine-openshift-io-v1beta1-machine";
    const VALIDATE: &str = "/validate-machine-openshift-io-v1beta1-machine";
    const VALIDATE_SET: &str = "/validate-machine-openshift-io-v1beta1-machineset";

    #[tokio::test]
    async fn wrong_content_is_one_clear_sentence() {
        let check = async |method, path, content_type, body: &str, status, text: &str| {
            let (found, response) = send(Platform::Other, method, path, content_type, body.to_owned()).await;
            assert_eq!((found, response.as_str()), (status, text));
        };
        let json = "application/json; charset=utf-8";
        check(Method::GET, VALIDATE, json, "", StatusCode::METHOD_NOT_ALLOWED, "").await;
        check(
            Method::POST,
            VALIDATE,
            "text/plain",
            "{}",
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the content type must be application/json\n",
        )
        .await;
        check(
            Method::POST,
            VALIDATE,
            json,
            "[",
            StatusCode::BAD_REQUEST,
            "the body is no AdmissionReview: EOF while parsing a list at line 1 column 1\n",
        )
        .await;
        let large = " ".repeat(BODY_BYTES_MAX + 1);
        let text = "the body is larger than 7340032 bytes\n";
        check(Method::POST, VALIDATE, json, &large, StatusCode::PAYLOAD_TOO_LARGE, text).await;
        check(Method::POST, "/other", json, "{}", StatusCode::NOT_FOUND, "").await;
    }

    #[tokio::test]
    async fn an_object_of_another_kind_is_a_bad_request() {
        let response = review(Platform::Other, VALIDATE, "Pod", json!({})).await;
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 400);
        assert_eq!(
            response["status"]["message"],
            "expected a Machine but got a machine.openshift.io/v1beta1 Pod"
        );
        let response = review(Platform::Other, VALIDATE, "Machine", Value::Null).await;
        assert_eq!(response["status"]["message"], "the request has no object");
    }

    #[tokio::test]
    async fn defaults_are_a_patch_and_refusals_a_status() {
        let machine = |spec: Value| json!({"metadata": {}, "spec": {"providerSpec": {"value": spec}}});
        let response = review(Platform::VSphere, MUTATE, "Machine", machine(json!({}))).await;
        assert_eq!((&response["allowed"], &response["patchType"]), (&json!(true), &json!("JSONPatch")));
        let response = review(Platform::VSphere, MUTATE, "Machine", machine(Value::Null)).await;
        assert_eq!(
            response["status"]["message"],
            "providerSpec.value: Required value: a value must be provided"
        );
        let response =
            review(Platform::Other, VALIDATE_SET, "MachineSet", json!({"spec": {"replicas": -1}})).await;
        assert_eq!(response["status"]["code"], 403);
        assert_eq!(
            response["status"]["message"],
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
    }

    #[tokio::test]
    async fn a_missing_credentials_secret_is_a_warning() {
        let warning = async |name: &str| {
            let spec = json!({"credentialsSecret": {"name": name}});
            let object = json!({"metadata": {"namespace": "n"}, "spec": {"providerSpec": {"value": spec}}});
            let response = review(Platform::Nutanix, VALIDATE, "Machine", object).await;
            let warnings = response["warnings"].as_array().unwrap().clone();
            warnings
                .into_iter()
                .filter(|it| it.as_str().unwrap().contains("credentialsSecret"))
                .collect::<Vec<_>>()
        };
        assert_eq!(warning("present").await, Vec::<Value>::new());
        assert_eq!(
            warning("absent").await,
            [
                "providerSpec.credentialsSecret: Invalid value: \"absent\": not found. Expected CredentialsSecret to exist"
            ]
        );
        assert_eq!(
            warning("broken").await,
            [
                "providerSpec.credentialsSecret: Invalid value: \"broken\": failed to get credentialsSecret: etcd is down"
            ]
        );
    }
}
