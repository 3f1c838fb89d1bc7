//! Callers of the resource manager's API: listed certificates, validated tokens, operators. The first two have no access to the Admin
//! API.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use base64::Engine as _;
use http::{HeaderMap, Method, StatusCode};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;
use tokio::net::TcpListener;

use super::{NEW, at};
use crate::fixture::{Http, Reply, TestServer, client, exchange};

/// A self-signed certificate in files.
struct ClientCertificate {
    certificate: std::path::PathBuf,
    key: std::path::PathBuf,
    der: Vec<u8>,
}

fn client_certificate(
    place: &std::path::Path,
    name: &str,
    adjust: impl FnOnce(&mut CertificateParams),
) -> ClientCertificate {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    adjust(&mut params);
    let signed = params.self_signed(&key).unwrap();
    let paper = ClientCertificate {
        certificate: place.join(format!("{name}.crt")),
        key: place.join(format!("{name}.key")),
        der: signed.der().to_vec(),
    };
    std::fs::write(&paper.certificate, signed.pem()).unwrap();
    std::fs::write(&paper.key, key.serialize_pem()).unwrap();
    paper
}

async fn ask(server: &TestServer, http: &Http, path: &str, headers: &[(&str, &str)]) -> Reply {
    exchange(http, &server.url, Method::GET, path, headers, None).await.unwrap()
}

/// Whether the client has access to the resource manager's API, where it gets "not found", and none to the Admin API.
async fn is_caller(server: &TestServer, http: &Http, headers: &[(&str, &str)]) -> bool {
    for path in ["/admin/clusters", "/admin/versions", &at("one", "admin"), &at("one", "Admin"), "/admin"] {
        assert_eq!(ask(server, http, path, headers).await.error().0, 403, "{path}");
    }
    let reply = ask(server, http, &at("one", NEW), headers).await;
    match reply.status.as_u16() {
        404 => true,
        403 => {
            assert_eq!(reply.json()["error"], json!({"code": "Forbidden", "message": "Forbidden."}));
            false
        }
        other => panic!("{other}: {}", reply.text),
    }
}

#[tokio::test]
async fn a_listed_certificate_has_access_to_the_resource_managers_api_only() {
    let place = tempfile::tempdir().unwrap();
    let listed = client_certificate(place.path(), "arm", |_| {});
    let old = client_certificate(place.path(), "old", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let stranger = client_certificate(place.path(), "arm2", |_| {});
    let file = place.path().join("callers.pem");
    let both = [&listed, &old].map(|paper| std::fs::read_to_string(&paper.certificate).unwrap()).concat();
    std::fs::write(&file, both).unwrap();
    let server = TestServer::guarded(|config, _| config.arm.certificates = Some(file)).await;
    let pki = server.pki.as_ref().unwrap();
    let holding = |paper: &ClientCertificate| client(pki, Some((&paper.certificate, &paper.key)));
    assert!(is_caller(&server, &holding(&listed), &[]).await);
    // An Authorization header without a token is ignored.
    let basic = [("authorization", "Basic x")];
    let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
    for headers in [&basic[..], &twice[..], &[("authorization", "Bearer")]] {
        assert!(is_caller(&server, &holding(&listed), headers).await, "{headers:?}");
        assert!(!is_caller(&server, &holding(&stranger), headers).await, "{headers:?}");
    }
    for paper in [&old, &stranger] {
        assert!(!is_caller(&server, &holding(paper), &[]).await);
    }
    assert!(!is_caller(&server, &client(pki, None), &[]).await);
    // The operator has access to both, unless the settings forbid it.
    assert_eq!(server.get(&at("one", NEW)).await.error().0, 404);
    server.get("/admin/clusters").await.expect(200);
    // A rejected caller gets no other information.
    let nobody = client(pki, None);
    for path in ["/subscriptions/x", "/nowhere", &at("one", "1999-01-01")] {
        assert_eq!(ask(&server, &nobody, path, &[]).await.error().0, 403, "{path}");
    }
    server.close().await;
    let strict = TestServer::guarded(|config, _| config.arm.admit_operators = false).await;
    assert_eq!(strict.get(&at("one", NEW)).await.error().0, 403);
    strict.get("/admin/clusters").await.expect(200);
    strict.close().await;
}

/// Serves a router; returns its base URL.
async fn serving(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

#[tokio::test]
async fn certificates_are_listed_by_the_metadata_end_point_within_its_dates() {
    let place = tempfile::tempdir().unwrap();
    let (listed, over) =
        (client_certificate(place.path(), "arm", |_| {}), client_certificate(place.path(), "over", |_| {}));
    let entry = |paper: &ClientCertificate, from: &str, to: &str| {
        let certificate = base64::engine::general_purpose::STANDARD.encode(&paper.der);
        json!({"thumbprint": "T", "notBefore": from, "notAfter": to, "certificate": certificate})
    };
    let answer = json!({"clientCertificates": [
        entry(&listed, "2020-01-01T00:00:00Z", "2120-01-01T00:00:00Z"),
        entry(&over, "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
    ]});
    let router = Router::new().route("/metadata/authentication", get(async move || axum::Json(answer)));
    let base = serving(router).await;
    let url = format!("{base}/metadata/authentication?api-version=2015-01-01");
    let server = TestServer::guarded(|config, _| config.arm.metadata_url = Some(url)).await;
    let pki = server.pki.as_ref().unwrap();
    let ready = async {
        while server.get("/healthz/ready").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ready).await.unwrap();
    let holding = |paper: &ClientCertificate| client(pki, Some((&paper.certificate, &paper.key)));
    assert!(is_caller(&server, &holding(&listed), &[]).await);
    assert!(!is_caller(&server, &holding(&over), &[]).await);
    server.close().await;
    // The server is not ready until the list was read once.
    let server =
        TestServer::guarded(|config, _| config.arm.metadata_url = Some("http://127.0.0.1:1/x".to_owned()))
            .await;
    assert_eq!(server.get("/healthz/ready").await.error().0, 500);
    server.close().await;
    // With a token service callers are accepted meanwhile, and with enforced tokens the list is ignored.
    for is_enforced in [false, true] {
        let server = TestServer::guarded(|config, _| {
            config.arm.metadata_url = Some("http://127.0.0.1:1/x".to_owned());
            config.arm.token_service = Some("http://127.0.0.1:1".to_owned());
            config.arm.enforce_tokens = is_enforced;
        })
        .await;
        let ready = async {
            while server.get("/healthz/ready").await.status != 200 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ready).await.unwrap();
        server.close().await;
    }
}

#[tokio::test]
async fn a_token_is_validated_by_the_token_service() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let judge = async move |headers: HeaderMap| {
        let word =
            |name: &str| headers.get(name).map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default();
        assert_eq!(word("original-method"), "GET");
        // In the caller's spelling, for which its token was issued.
        assert!(word("original-uri").ends_with(&at("one", NEW)), "{}", word("original-uri"));
        assert!(!word("x-forwarded-for").is_empty());
        match word("authorization").as_str() {
            "Bearer good" => StatusCode::OK,
            // The first response of a failing service.
            "Bearer later" if count.fetch_add(1, Ordering::SeqCst) == 0 => StatusCode::BAD_GATEWAY,
            "Bearer later" => StatusCode::OK,
            _ => StatusCode::UNAUTHORIZED,
        }
    };
    let url = serving(Router::new().route("/ValidateRequest", post(judge))).await;
    let with = |token: &'static str| [("authorization", token)];
    let server = TestServer::guarded(|config, _| config.arm.token_service = Some(url.clone())).await;
    let nobody = client(server.pki.as_ref().unwrap(), None);
    assert!(is_caller(&server, &nobody, &with("Bearer good")).await);
    assert!(is_caller(&server, &nobody, &with("Bearer later")).await);
    assert!(!is_caller(&server, &nobody, &with("Bearer bad")).await);
    assert!(!is_caller(&server, &nobody, &[]).await);
    // Without enforced tokens a certificate is sufficient.
    assert_eq!(ask(&server, &server.http, &at("one", NEW), &with("Bearer bad")).await.error().0, 404);
    assert_eq!(ask(&server, &server.http, &at("one", NEW), &with("Basic x")).await.error().0, 404);
    server.close().await;
    let strict = TestServer::guarded(|config, _| {
        config.arm.token_service = Some(url);
        config.arm.enforce_tokens = true;
    })
    .await;
    assert_eq!(strict.get(&at("one", NEW)).await.error().0, 403);
    assert_eq!(ask(&strict, &strict.http, &at("one", NEW), &with("Bearer bad")).await.error().0, 403);
    assert_eq!(ask(&strict, &strict.http, &at("one", NEW), &with("Basic x")).await.error().0, 403);
    assert_eq!(ask(&strict, &strict.http, &at("one", NEW), &with("Bearer good")).await.error().0, 404);
    strict.get("/admin/clusters").await.expect(200);
    strict.close().await;
}
