//! Resource providers outside the emulator: which requests reach them, and with which headers.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use cloud::{LockLevel, Properties};
use cloudsim::settings::{Rights, Setting};
use cloudsim::{CloudFault, FaultRule};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::environment::{Environment, SUBSCRIPTION, group};

const NAMESPACE: &str = "Microsoft.RedHatOpenShift";

/// A request as the provider received it.
struct ReceivedRequest {
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: String,
}

impl ReceivedRequest {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }
}

/// What a provider received.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<ReceivedRequest>>>);

/// A provider that has no cluster and accepts everything. It cannot look up the cluster `unreadable`.
async fn provider(State(log): State<Log>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let status = match head.method {
        Method::GET if head.uri.path().ends_with("/unreadable") => StatusCode::SERVICE_UNAVAILABLE,
        Method::GET => StatusCode::NOT_FOUND,
        _ => StatusCode::CREATED,
    };
    let body = String::from_utf8(body.to_vec()).unwrap();
    let (method, uri, headers) = (head.method, head.uri.to_string(), head.headers);
    log.0.lock().unwrap().push(ReceivedRequest { method, uri, headers, body });
    (status, [("azure-asyncoperation", "https://provider.example/1")], "{}").into_response()
}

struct ProviderEnvironment {
    emulator: Environment,
    log: Log,
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl ProviderEnvironment {
    async fn new() -> ProviderEnvironment {
        let emulator = Environment::new().await;
        let log = Log::default();
        emulator.providers.register(NAMESPACE, Router::new().fallback(provider).with_state(log.clone()));
        emulator.put(group("g"), Properties::ResourceGroup { managed_by: None }).await;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&emulator.endpoints.ca_file).unwrap()).unwrap();
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
        let http = Client::builder(TokioExecutor::new()).build(connector);
        ProviderEnvironment { emulator, log, http }
    }

    fn received(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut *self.log.0.lock().unwrap())
    }

    /// The token of a principal for the resource manager.
    async fn token(&self, client_id: &str, secret: &str) -> String {
        let endpoints = &self.emulator.endpoints;
        let form = format!(
            "grant_type=client_credentials&client_id={client_id}&client_secret={secret}&scope=https%3A%2F%2Fmanagement.azure.com%2F.default"
        );
        let url = format!("{}/{}/oauth2/v2.0/token", endpoints.authority, endpoints.tenant_id);
        let request = http::Request::post(url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Full::new(form.into()))
            .unwrap();
        let (_, _, body) = self.exchange(request).await;
        body["access_token"].as_str().unwrap().to_owned()
    }

    /// The token of the principal that may do everything.
    async fn owner(&self) -> String {
        let endpoints = &self.emulator.endpoints;
        let secret = std::fs::read_to_string(&endpoints.client_secret_file).unwrap();
        self.token(&endpoints.client_id, secret.trim()).await
    }

    async fn exchange(&self, request: http::Request<Full<Bytes>>) -> (StatusCode, HeaderMap, Value) {
        let response = self.http.request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (head.status, head.headers, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Sends a request below the namespace in the group.
    async fn send(&self, method: Method, path: &str, token: &str) -> (StatusCode, HeaderMap, Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.emulator.endpoints.resource_manager))
            .header("authorization", format!("Bearer {token}"))
            .header("x-ms-client-principal-name", "somebody else")
            .header("x-ms-arm-resource-system-data", "{}")
            .header("content-type", "application/json")
            .body(Full::new("{}".into()))
            .unwrap();
        self.exchange(request).await
    }
}

fn cluster(name: &str) -> String {
    format!("{}/providers/{NAMESPACE}/openShiftClusters/{name}?api-version=2025-07-25", group("g"))
}

#[tokio::test]
async fn a_provider_gets_requests_with_the_headers_of_the_resource_manager() {
    let environment = ProviderEnvironment::new().await;
    let token = environment.owner().await;
    let (status, headers, _) = environment.send(Method::PUT, &cluster("c"), &token).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(headers["azure-asyncoperation"], "https://provider.example/1");

    let received = environment.received();
    let [registered, looked_up, put] = received.as_slice() else { panic!("{} requests", received.len()) };
    assert_eq!(registered.uri, format!("/subscriptions/{SUBSCRIPTION}?api-version=2.0"));
    assert!(registered.body.contains("\"Registered\""), "{}", registered.body);
    assert_eq!((&looked_up.method, &looked_up.uri), (&Method::GET, &cluster("c")));
    let endpoints = &environment.emulator.endpoints;
    assert_eq!((&put.method, &put.uri, put.body.as_str()), (&Method::PUT, &cluster("c"), "{}"));
    assert_eq!(put.header("referer"), format!("{}{}", endpoints.resource_manager, cluster("c")));
    assert_eq!(put.header("x-ms-client-principal-name"), endpoints.client_id);
    assert_eq!(put.header("x-ms-home-tenant-id"), endpoints.tenant_id);
    assert!(put.header("x-ms-identity-url").starts_with("https://"));
    assert!(!put.headers.contains_key("authorization"), "tokens stay with the resource manager");
    let data: Value = serde_json::from_str(put.header("x-ms-arm-resource-system-data")).unwrap();
    assert_eq!(data["createdBy"], endpoints.client_id.as_str());

    // A subscription is reported once, and again when its registration changes.
    environment.send(Method::GET, &cluster("c"), &token).await;
    assert_eq!(environment.received().len(), 1);
    let register = |verb: &str| {
        format!("/subscriptions/{SUBSCRIPTION}/providers/{NAMESPACE}/{verb}?api-version=2021-04-01")
    };
    assert_eq!(environment.send(Method::POST, &register("unregister"), &token).await.0, StatusCode::OK);
    assert!(environment.received()[0].body.contains("\"Unregistered\""));
    let (status, _, body) = environment.send(Method::GET, &cluster("c"), &token).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (StatusCode::CONFLICT, &"MissingSubscriptionRegistration".into())
    );
    assert_eq!(environment.send(Method::POST, &register("register"), &token).await.0, StatusCode::OK);
    assert!(environment.received()[0].body.contains("\"Registered\""));
}

#[tokio::test]
async fn a_write_is_not_forwarded_when_the_look_up_before_it_fails() {
    let environment = ProviderEnvironment::new().await;
    let token = environment.owner().await;
    let (status, ..) = environment.send(Method::PUT, &cluster("unreadable"), &token).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let received = environment.received();
    assert!(received.iter().all(|it| !it.uri.contains("unreadable") || it.method == Method::GET));
}

#[tokio::test]
async fn a_provider_gets_nothing_that_the_resource_manager_rejects() {
    let environment = ProviderEnvironment::new().await;
    let owner = environment.owner().await;
    let stranger = environment.emulator.cloud.create_principal("stranger", Rights::ByRoles).await.unwrap();
    let stranger = environment.token(&stranger.principal.client_id, stranger.secret.expose().as_str()).await;
    let lock = group("g").sibling("Microsoft.Authorization", "locks", "keep");
    let lock_properties = Properties::Lock { level: LockLevel::CanNotDelete, notes: None };
    environment.emulator.put(lock, lock_properties).await;
    let absent = cluster("c").replace("/g/", "/absent/");
    let admin = cluster("c").replace("2025-07-25", "admin");
    let twice = format!("{}&Api-Version=admin", cluster("c"));
    let around = |dots: &str| format!("/providers/{NAMESPACE}/{dots}/{dots}{}", cluster("c"));
    let own =
        |dots: &str| format!("/subscriptions/own/providers/{NAMESPACE}/x/{dots}/{dots}{}", cluster("c"));
    let subscription =
        format!("/providers/{NAMESPACE}/../../subscriptions/{SUBSCRIPTION}?api-version=2025-07-25");
    let credentials = around("..").replace('?', "/listCredentials?");
    for (method, path, token, status, code) in [
        (Method::GET, cluster("c"), "none", 401, "InvalidAuthenticationToken"),
        (Method::PUT, cluster("c"), &stranger, 403, "AuthorizationFailed"),
        (Method::POST, cluster("c").replace('?', "/listCredentials?"), &stranger, 403, "AuthorizationFailed"),
        (Method::DELETE, cluster("c"), &owner, 409, "ScopeLocked"),
        (Method::PUT, absent, &owner, 404, "ResourceGroupNotFound"),
        (Method::PUT, admin, &owner, 400, "InvalidApiVersionParameter"),
        (Method::PUT, twice, &owner, 400, "InvalidApiVersionParameter"),
        (Method::POST, credentials, &stranger, 400, "InvalidRequestUri"),
        (Method::DELETE, around("%2e%2E"), &stranger, 400, "InvalidRequestUri"),
        (Method::PUT, around(".%2e"), &stranger, 400, "InvalidRequestUri"),
        (Method::GET, own(".."), &stranger, 400, "InvalidRequestUri"),
        (Method::GET, own("x%2F..%2F.."), &stranger, 400, "InvalidRequestUri"),
        (Method::PUT, subscription, &stranger, 400, "InvalidRequestUri"),
    ] {
        let (found, _, body) = environment.send(method.clone(), &path, token).await;
        assert_eq!((found.as_u16(), body["error"]["code"].as_str()), (status, Some(code)), "{method} {path}");
    }
    let policy = CloudFault::Policy { name: "no-clusters".to_owned() };
    environment
        .emulator
        .faults
        .inject(FaultRule::new(policy).on("put").about("openShiftClusters").times(1))
        .unwrap();
    let (status, _, body) = environment.send(Method::PUT, &cluster("c"), &owner).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (StatusCode::FORBIDDEN, &"RequestDisallowedByPolicy".into())
    );
    environment
        .emulator
        .cloud
        .arrange(Setting::Provider {
            subscription: SUBSCRIPTION.to_owned(),
            namespace: NAMESPACE.to_owned(),
            registered: false,
        })
        .await
        .unwrap();
    let (status, ..) = environment.send(Method::PUT, &cluster("c"), &owner).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(environment.received().is_empty());
}
