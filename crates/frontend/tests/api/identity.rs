//! Authentication: valid and invalid certificates and tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use frontend::ClientRule;
use http::Method;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fixture::{Http, Reply, TestServer, admin, client, exchange};

/// A certificate in files.
struct ClientCertificate {
    certificate: PathBuf,
    key: PathBuf,
}

/// Issues a client certificate, changed by `adjust`.
fn client_certificate(
    place: &Path,
    name: &str,
    issuer: &Issuer<'_, KeyPair>,
    adjust: impl FnOnce(&mut CertificateParams),
) -> ClientCertificate {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    adjust(&mut params);
    let signed = params.signed_by(&key, issuer).unwrap();
    let paper = ClientCertificate {
        certificate: place.join(format!("{name}.crt")),
        key: place.join(format!("{name}.key")),
    };
    std::fs::write(&paper.certificate, signed.pem()).unwrap();
    std::fs::write(&paper.key, key.serialize_pem()).unwrap();
    paper
}

/// A certificate authority of the test.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "test authority");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

async fn with(
    server: &TestServer,
    http: &Http,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Reply {
    let body = (method == Method::PUT).then(|| "{}".into());
    exchange(http, &server.url, method, path, headers, body).await.unwrap()
}

#[tokio::test]
async fn only_listed_certificates_of_the_authority_are_accepted() {
    let place = tempfile::tempdir().unwrap();
    let ours = authority();
    let theirs = authority();
    let file = place.path().join("clients.crt");
    std::fs::write(&file, ours.pem()).unwrap();
    let plain = |_: &mut CertificateParams| {};
    let operator = client_certificate(place.path(), "operator", &ours, plain);
    let reader = client_certificate(place.path(), "reader", &ours, plain);
    let pinned = client_certificate(place.path(), "pinned", &ours, plain);
    let unlisted = client_certificate(place.path(), "unlisted", &ours, plain);
    let old = client_certificate(place.path(), "old", &ours, |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let early = client_certificate(place.path(), "early", &ours, |params| {
        params.not_before = rcgen::date_time_ymd(4000, 1, 1);
    });
    let server_only = client_certificate(place.path(), "server", &ours, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let aimless =
        client_certificate(place.path(), "aimless", &ours, |params| params.extended_key_usages = Vec::new());
    std::fs::create_dir(place.path().join("foreign")).unwrap();
    let foreign = client_certificate(&place.path().join("foreign"), "operator", &theirs, plain);

    let names = ["operator", "old", "early", "server", "aimless"];
    let server = TestServer::guarded(|config, _| {
        config.client_ca = Some(file);
        config.operators = names.map(|name| ClientRule::Name(name.to_owned())).to_vec();
        let pem = std::fs::read(&pinned.certificate).unwrap();
        use rustls::pki_types::pem::PemObject as _;
        let der = rustls::pki_types::CertificateDer::from_pem_slice(&pem).unwrap();
        use sha2::Digest as _;
        config.operators.push(ClientRule::Fingerprint(sha2::Sha256::digest(&der).into()));
        config.readers = vec![ClientRule::Name("reader".to_owned())];
    })
    .await;
    let pki = server.pki.as_ref().unwrap();
    let holding = |paper: &ClientCertificate| client(pki, Some((&paper.certificate, &paper.key)));

    for paper in [&operator, &pinned, &reader] {
        with(&server, &holding(paper), Method::GET, "/admin/clusters", &[]).await.expect(200);
    }
    for paper in [&unlisted, &old, &early, &server_only, &aimless, &foreign] {
        let reply = with(&server, &holding(paper), Method::GET, "/admin/clusters", &[]).await;
        assert_eq!(reply.error().1, "Forbidden", "{}", paper.certificate.display());
        assert_eq!(reply.json()["error"]["message"], "Forbidden.");
    }
    let nobody = client(pki, None);
    // Authentication precedes routes, versions and bodies.
    for path in
        ["/admin/clusters", "/nowhere", "/admin/maintenancebudgets", "/admin/clusters?api-version=wrong"]
    {
        assert_eq!(with(&server, &nobody, Method::GET, path, &[]).await.error().0, 403, "{path}");
    }
    assert_eq!(
        with(&server, &nobody, Method::PUT, &format!("{}/import", admin("x")), &[]).await.error().0,
        403
    );
    with(&server, &nobody, Method::GET, "/openapi.json", &[]).await.expect(200);
    with(&server, &nobody, Method::GET, "/healthz/ready", &[]).await.expect(200);

    // A reader reads and changes nothing.
    let reader = holding(&reader);
    let path = "/admin/maintenancebudgets/fleet?api-version=admin";
    with(&server, &reader, Method::GET, path, &[]).await.expect(200);
    for method in [Method::PUT, Method::POST, Method::DELETE] {
        assert_eq!(with(&server, &reader, method, path, &[]).await.error().1, "Forbidden");
    }
    // A token is rejected where no issuer is configured, with any certificate.
    let token = [("authorization", "Bearer x")];
    let reply = with(&server, &holding(&operator), Method::GET, "/admin/clusters", &token).await;
    assert_eq!(reply.error().0, 403);
    server.close().await;
}

#[tokio::test]
async fn the_issued_operator_certificate_is_accepted() {
    let server = TestServer::guarded(|_, _| {}).await;
    let body = json!({"limit": 3, "reason": "trial"}).to_string().into();
    let path = "/admin/maintenancebudgets/fleet?api-version=admin";
    let headers = [("x-ms-client-principal-name", "jo@example")];
    server.send(Method::PUT, path, &headers, Some(body)).await.expect(200);
    let rows = server.store.audit_list(store::AuditQuery { limit: 10, ..Default::default() }).await.unwrap();
    let entry = &rows.iter().find(|row| row.record.entry.action == "budget.set").unwrap().record.entry;
    assert_eq!(entry.actor, "jo@example via shipshape-operator");
    // A padded name does not replace the authenticated caller; two names are rejected.
    let put = async |headers: &[(&str, &str)]| {
        let body = json!({"limit": 4}).to_string().into();
        server.send(Method::PUT, path, headers, Some(body)).await
    };
    for padded in [format!("jo{}x", " ".repeat(400)), "y".repeat(4000)] {
        put(&[("x-ms-client-principal-name", &padded)]).await.expect(200);
    }
    let twice = [("x-ms-client-principal-name", "jo"), ("x-ms-client-principal-name", "al")];
    assert_eq!(put(&twice).await.error().0, 403);
    let rows = server.store.audit_list(store::AuditQuery { limit: 10, ..Default::default() }).await.unwrap();
    let actors: Vec<&str> = rows
        .iter()
        .map(|row| &row.record.entry)
        .filter(|entry| entry.action == "budget.set")
        .map(|entry| entry.actor.as_str())
        .collect();
    assert!(actors.contains(&"jo x via shipshape-operator"), "{actors:?}");
    assert!(actors.iter().all(|actor| actor.ends_with(" via shipshape-operator")), "{actors:?}");
    assert!(server.url.starts_with("https://127.0.0.1:"));
    server.close().await;
}

/// A token issuer.
struct TokenIssuer {
    url: String,
    asked: Arc<AtomicUsize>,
}

fn signing_key() -> (EncodingKey, KeyPair) {
    let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    (EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap(), pair)
}

impl TokenIssuer {
    async fn open(key: &EncodingKey) -> TokenIssuer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut jwk = Jwk::from_encoding_key(key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some("one".to_owned());
        let keys = json!({ "keys": [jwk] });
        let discovery = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(async move || axum::Json(discovery)))
            .route(
                "/keys",
                get(async move || {
                    count.fetch_add(1, Ordering::SeqCst);
                    axum::Json(keys)
                }),
            );
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let service = hyper_util::service::TowerToHyperService::new(router.clone());
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(hyper_util::rt::TokioIo::new(stream), service),
                );
            }
        });
        TokenIssuer { url, asked }
    }
}

#[tokio::test]
async fn only_valid_tokens_of_the_issuer_for_this_audience_are_accepted() {
    let (key, _) = signing_key();
    let (other_key, _) = signing_key();
    let idp = TokenIssuer::open(&key).await;
    let server = TestServer::guarded(|config, _| {
        config.oidc.issuer = Some(idp.url.clone());
        config.oidc.audience = Some("shipshape".to_owned());
        config.oidc.operators = vec!["fleet-operators".to_owned()];
        config.oidc.readers = vec!["fleet-readers".to_owned()];
    })
    .await;
    let now = api::clock::Clock::now(&api::clock::SystemClock).as_second();
    let claims = |changes: Value| {
        let mut claims = json!({
            "iss": idp.url, "aud": "shipshape", "sub": "jo", "exp": now + 600, "nbf": now - 10,
            "groups": ["people", "fleet-operators"],
        });
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    };
    let header = |kid: Option<&str>| Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::ES256) };
    let sign = |changes: Value| encode(&header(Some("one")), &claims(changes), &key).unwrap();
    let nobody = client(server.pki.as_ref().unwrap(), None);
    let path = "/admin/maintenancebudgets/fleet?api-version=admin";
    let ask = async |method: Method, token: &str| {
        let bearer = format!("Bearer {token}");
        let body = Some(json!({"limit": 1}).to_string().into());
        let body = if method == Method::PUT { body } else { None };
        exchange(&nobody, &server.url, method, path, &[("authorization", &bearer)], body).await.unwrap()
    };

    ask(Method::PUT, &sign(json!({}))).await.expect(200);
    ask(Method::GET, &sign(json!({"aud": ["other", "shipshape"]}))).await.expect(200);
    ask(Method::GET, &sign(json!({"groups": "people fleet-readers"}))).await.expect(200);
    ask(Method::GET, &encode(&header(None), &claims(json!({})), &key).unwrap()).await.expect(200);
    // Within the allowed clock skew.
    ask(Method::GET, &sign(json!({"exp": now - 5}))).await.expect(200);
    let rows = server.store.audit_list(store::AuditQuery { limit: 10, ..Default::default() }).await.unwrap();
    assert!(rows.iter().any(|row| row.record.entry.actor == "jo"));
    let put = json!({"sub": format!("al{}e", " ".repeat(3000))});
    ask(Method::PUT, &sign(put)).await.expect(200);
    let rows = server.store.audit_list(store::AuditQuery { limit: 10, ..Default::default() }).await.unwrap();
    assert!(rows.iter().any(|row| row.record.entry.actor == "al e"));

    let reader = sign(json!({"groups": ["fleet-readers"]}));
    ask(Method::GET, &reader).await.expect(200);
    assert_eq!(ask(Method::PUT, &reader).await.error().1, "Forbidden");

    let unsigned = |alg: &str| {
        use base64::Engine as _;
        let part = |value: &Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.", part(&json!({"alg": alg, "typ": "JWT", "kid": "one"})), part(&claims(json!({}))))
    };
    let symmetric = {
        let header = Header { kid: Some("one".to_owned()), ..Header::new(Algorithm::HS256) };
        encode(&header, &claims(json!({})), &EncodingKey::from_secret(b"guess")).unwrap()
    };
    let critical = |crit: Value| {
        use base64::Engine as _;
        let url_safe = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": "one", "crit": crit, "x": 1});
        let parts = [header, claims(json!({}))].map(|part| url_safe.encode(part.to_string()));
        let text = parts.join(".");
        let signature = jsonwebtoken::crypto::sign(text.as_bytes(), &key, Algorithm::ES256).unwrap();
        format!("{text}.{signature}")
    };
    let mut tampered = sign(json!({"groups": ["fleet-readers"]}));
    let at = tampered.find('.').unwrap() + 5;
    tampered.replace_range(at..=at, if &tampered[at..=at] == "A" { "B" } else { "A" });
    let strangers = [
        ("issuer", sign(json!({"iss": "https://elsewhere.example"}))),
        ("no issuer", sign(json!({"iss": null}))),
        ("audience", sign(json!({"aud": "other"}))),
        ("no audience", sign(json!({"aud": null}))),
        ("expired", sign(json!({"exp": now - 3600}))),
        ("no expiry", sign(json!({"exp": null}))),
        ("expiry in words", sign(json!({"exp": "tomorrow"}))),
        ("not yet", sign(json!({"nbf": now + 3600}))),
        ("no role", sign(json!({"groups": ["people"]}))),
        ("no groups", sign(json!({"groups": null}))),
        ("no name", sign(json!({"sub": null}))),
        ("other key", encode(&header(Some("one")), &claims(json!({})), &other_key).unwrap()),
        ("unknown key", encode(&header(Some("two")), &claims(json!({})), &other_key).unwrap()),
        ("alg none", unsigned("none")),
        ("alg nonsense", unsigned("XX1")),
        ("symmetric", symmetric),
        ("tampered", tampered),
        ("critical extension", critical(json!(["x"]))),
        ("critical extension of another", critical(json!(["b64"]))),
        ("no list of critical extensions", critical(json!(null))),
        ("long name", sign(json!({"sub": "x".repeat(201)}))),
        ("invisible name", sign(json!({"sub": " \u{200b}\t"}))),
        ("name of two", sign(json!({"sub": "jo via shipshape-operator"}))),
        ("empty", String::new()),
        ("nonsense", "a.b.c".to_owned()),
        ("long", "x".repeat(20_000)),
    ];
    for (what, token) in strangers {
        let reply = ask(Method::GET, &token).await;
        assert_eq!(reply.error(), (403, "Forbidden".to_owned(), String::new()), "{what}");
    }
    // Unknown keys cause at most one request to the issuer per minute.
    assert_eq!(idp.asked.load(Ordering::SeqCst), 1);
    server.close().await;
}

#[tokio::test]
async fn an_unreachable_issuer_rejects_tokens_and_not_certificates() {
    let (key, _) = signing_key();
    // A port without a listener.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = TestServer::guarded(|config, _| {
        config.oidc.issuer = Some(url.clone());
        config.oidc.audience = Some("shipshape".to_owned());
        config.oidc.operators = vec!["fleet-operators".to_owned()];
    })
    .await;
    let now = api::clock::Clock::now(&api::clock::SystemClock).as_second();
    let claims = json!({
        "iss": url, "aud": "shipshape", "sub": "jo", "exp": now + 600, "groups": ["fleet-operators"],
    });
    let token = encode(&Header::new(Algorithm::ES256), &claims, &key).unwrap();
    let nobody = client(server.pki.as_ref().unwrap(), None);
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let reply = with(&server, &nobody, Method::GET, "/admin/clusters", &headers).await;
    assert_eq!(reply.error().1, "Forbidden");
    server.get("/admin/clusters").await.expect(200);
    server.close().await;
}

#[tokio::test]
async fn an_insecure_server_is_never_open_to_the_network() {
    let place = tempfile::tempdir().unwrap();
    let store = crate::fixture::sqlite(place.path()).await;
    let config =
        frontend::Config { insecure: true, listen: ([0, 0, 0, 0], 0).into(), ..frontend::Config::default() };
    let deps = frontend::Deps {
        store: store.clone(),
        clock: Arc::new(api::clock::SystemClock),
        metrics: frontend::Metrics::default(),
        cloud: None,
    };
    let error = frontend::Server::bind(config, deps).await.unwrap_err().to_string();
    assert!(error.contains("loopback"), "{error}");
    store.close().await;
}
