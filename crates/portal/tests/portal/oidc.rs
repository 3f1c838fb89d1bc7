//! Signing in at a provider: a small issuer of our own, whose keys change and whose answers can be wrong.

use std::sync::{Arc, Mutex};

use api::clock::{Clock as _, SystemClock};
use axum::body::Body;
use axum::extract::{RawForm, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Request};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use portal::{Login, OidcConfig};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};
use sha2::Digest as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::fixture::{Guest, Reply, Site, escaped};

/// What the issuer says, and what it was asked.
struct Issuer {
    url: String,
    key: KeyPair,
    kid: String,
    /// Laid over the claims of the next token.
    bend: Value,
    /// Extensions that the next token says must be understood.
    crit: Option<Vec<String>>,
    nonce: String,
    challenge: String,
    user_info: Value,
}

type Shared = Arc<Mutex<Issuer>>;

async fn issuer(tasks: &mut JoinSet<()>) -> Shared {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let issuer = Issuer {
        url: format!("http://{}", listener.local_addr().unwrap()),
        key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap(),
        kid: "first".to_owned(),
        bend: json!({}),
        crit: None,
        nonce: String::new(),
        challenge: String::new(),
        user_info: json!({}),
    };
    let shared = Arc::new(Mutex::new(issuer));
    let router = Router::new()
        .route("/.well-known/openid-configuration", get(configuration))
        .route("/keys", get(keys))
        .route("/token", post(token))
        .route("/userinfo", get(user_info))
        .with_state(shared.clone());
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    shared
}

async fn configuration(State(issuer): State<Shared>) -> Json<Value> {
    let url = issuer.lock().unwrap().url.clone();
    Json(json!({
        "issuer": url, "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
        "jwks_uri": format!("{url}/keys"), "userinfo_endpoint": format!("{url}/userinfo"),
        "response_types_supported": ["code"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }))
}

async fn keys(State(issuer): State<Shared>) -> Json<Value> {
    let issuer = issuer.lock().unwrap();
    let point = issuer.key.public_key_raw();
    let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
    Json(
        json!({"keys": [{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": issuer.kid, "x": part(1..33), "y": part(33..65)}]}),
    )
}

async fn token(
    State(issuer): State<Shared>,
    headers: HeaderMap,
    RawForm(form): RawForm,
) -> (http::StatusCode, Json<Value>) {
    let issuer = issuer.lock().unwrap();
    let form = String::from_utf8(form.to_vec()).unwrap();
    let field = |name: &str| {
        let pair = form.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
        Some(percent_encoding::percent_decode_str(pair).decode_utf8().unwrap().into_owned())
    };
    let verifier = field("code_verifier").unwrap_or_default();
    let challenge = URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(verifier.as_bytes()));
    if field("code").as_deref() != Some("the-code")
        || challenge != issuer.challenge
        || !headers.contains_key("authorization")
    {
        return (http::StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"})));
    }
    let now = SystemClock.now().as_second();
    let mut claims = json!({
        "iss": issuer.url, "aud": "portal", "sub": "1", "exp": now + 300, "iat": now, "nonce": issuer.nonce,
        "preferred_username": "jo", "groups": ["sre"],
    });
    for (name, value) in issuer.bend.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let mut header = Header::new(Algorithm::ES256);
    header.kid = Some(issuer.kid.clone());
    header.crit = issuer.crit.clone();
    let key = EncodingKey::from_ec_pem(issuer.key.serialize_pem().as_bytes()).unwrap();
    let token = jsonwebtoken::encode(&header, &claims, &key).unwrap();
    (http::StatusCode::OK, Json(json!({"access_token": "a", "token_type": "Bearer", "id_token": token})))
}

async fn user_info(State(issuer): State<Shared>) -> Json<Value> {
    Json(issuer.lock().unwrap().user_info.clone())
}

async fn site(issuer: &Shared, place: &std::path::Path) -> Site {
    let secret = place.join("secret");
    std::fs::write(&secret, "hush\n").unwrap();
    let config = OidcConfig {
        issuer: issuer.lock().unwrap().url.clone(),
        client_id: "portal".to_owned(),
        client_secret_file: Some(secret),
        operator_groups: vec!["sre".to_owned()],
        reader_groups: vec!["staff".to_owned()],
        ..OidcConfig::default()
    };
    Site::with(Login::Oidc(config), super::fixture::ORIGIN).await
}

/// Leaves for the provider and comes back; `state` may be bent.
async fn sign_in(site: &Site, issuer: &Shared, to: &str, state: Option<&str>) -> (Guest, Reply) {
    let mut guest = site.stranger();
    let left = guest.get(&format!("/login/start?to={}", escaped(to))).await.expect(303);
    let url = left.header("location").to_owned();
    let field = |name: &str| {
        let (_, rest) = url.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("{name} in {url}"));
        rest.split('&').next().unwrap().to_owned()
    };
    assert!(url.starts_with(&issuer.lock().unwrap().url));
    assert_eq!((field("code_challenge_method").as_str(), field("response_type").as_str()), ("S256", "code"));
    {
        let mut issuer = issuer.lock().unwrap();
        issuer.nonce = field("nonce");
        issuer.challenge = field("code_challenge");
    }
    guest.cookie = left.header("set-cookie").split(';').next().unwrap().to_owned();
    let given = field("state");
    let back = format!("/login/callback?code=the-code&state={}", state.unwrap_or(&given));
    let reply = guest.get(&back).await;
    if reply.status.is_redirection() {
        let cookies = reply.headers.get_all("set-cookie").iter().map(|it| it.to_str().unwrap());
        let ours =
            cookies.filter(|it| it.starts_with("__Host-shipshape=")).map(|it| it.split(';').next().unwrap());
        guest.cookie = ours.fold("", |_, found| found).to_owned();
    }
    (guest, reply)
}

#[tokio::test]
async fn who_is_in_a_group_comes_in_as_what_the_group_may() {
    let (mut tasks, place) = (JoinSet::new(), tempfile::tempdir().unwrap());
    let issuer = issuer(&mut tasks).await;
    let site = site(&issuer, place.path()).await;
    site.stranger().get("/login?to=/plan").await.expect(200).shows("/login/start?to=%2Fplan");
    let (guest, reply) = sign_in(&site, &issuer, "/plan?for=7d", None).await;
    assert_eq!(reply.expect(303).header("location"), "/plan?for=7d");
    guest.get("/fleet").await.expect(200).shows("jo").shows("operator");
    issuer.lock().unwrap().bend = json!({"groups": ["staff"]});
    let (guest, _) = sign_in(&site, &issuer, "/", None).await;
    guest.get("/fleet").await.expect(200).shows("reader");
    issuer.lock().unwrap().bend = json!({"groups": ["others"]});
    let (guest, reply) = sign_in(&site, &issuer, "/", None).await;
    reply.expect(403).shows("in no group that may come in");
    assert!(guest.get("/fleet").await.status.is_redirection(), "and has no session");
    // A provider that keeps groups elsewhere is asked there.
    issuer.lock().unwrap().bend = json!({"groups": null, "_claim_names": {"groups": "src1"}});
    issuer.lock().unwrap().user_info = json!({"sub": "1", "groups": ["sre"]});
    let (guest, reply) = sign_in(&site, &issuer, "/", None).await;
    reply.expect(303);
    guest.get("/fleet").await.expect(200).shows("operator");
    // A name is one line, however it is padded, and everything is recorded under it.
    issuer.lock().unwrap().bend = json!({"preferred_username": format!("al{}e\n", " ".repeat(400))});
    let (guest, _) = sign_in(&site, &issuer, "/", None).await;
    guest.get("/fleet").await.expect(200).shows("al e");
    // A key that is new since the last login is found.
    {
        let mut issuer = issuer.lock().unwrap();
        issuer.bend = json!({});
        issuer.key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        issuer.kid = "second".to_owned();
    }
    sign_in(&site, &issuer, "/", None).await.1.expect(303);
}

#[tokio::test]
async fn an_answer_that_is_not_to_our_question_is_refused() {
    let (mut tasks, place) = (JoinSet::new(), tempfile::tempdir().unwrap());
    let issuer = issuer(&mut tasks).await;
    let site = site(&issuer, place.path()).await;
    let past = SystemClock.now().as_second() - 10_000;
    let bent = [
        json!({"nonce": "another"}),
        json!({"aud": "another"}),
        json!({"iss": "https://another.example"}),
        json!({"exp": past, "iat": past - 300}),
        // Whoever has such a name would be recorded under a part of it, or as somebody else.
        json!({"preferred_username": "x".repeat(201)}),
        json!({"preferred_username": "jo via shipshape-operator"}),
    ];
    for bend in bent {
        issuer.lock().unwrap().bend = bend.clone();
        let (_, reply) = sign_in(&site, &issuer, "/", None).await;
        assert_eq!(reply.status, 403, "{bend}");
        assert!(!reply.headers.contains_key("set-cookie"), "{bend}");
    }
    issuer.lock().unwrap().bend = json!({});
    issuer.lock().unwrap().crit = Some(vec!["x".to_owned()]);
    let (_, reply) = sign_in(&site, &issuer, "/", None).await;
    assert_eq!(reply.status, 403, "a token with an extension that must be understood");
    issuer.lock().unwrap().crit = None;
    let (_, reply) = sign_in(&site, &issuer, "/", Some("another-state")).await;
    reply.expect(403).shows("to no question of ours");
    // The state of somebody else's browser is no use in this one.
    let left = site.stranger().get("/login/start").await.expect(303);
    let (_, state) = left.header("location").split_once("&state=").unwrap();
    let state = state.split('&').next().unwrap();
    site.stranger().get(&format!("/login/callback?code=the-code&state={state}")).await.expect(403);
    site.stranger().get("/login/callback?error=access_denied").await.expect(403);
    issuer.lock().unwrap().challenge = "none".to_owned();
    let request = Request::get("/login/link/anything");
    site.stranger().ask(request, Body::empty()).await.expect(403);
}

#[tokio::test]
async fn nobody_is_sent_to_another_place_after_signing_in() {
    let (mut tasks, place) = (JoinSet::new(), tempfile::tempdir().unwrap());
    let issuer = issuer(&mut tasks).await;
    let site = site(&issuer, place.path()).await;
    for foreign in [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "evil",
        "/%0d%0aset-cookie:x",
        "/\t/evil",
    ] {
        let (_, reply) = sign_in(&site, &issuer, foreign, None).await;
        let to = reply.expect(303).header("location").to_owned();
        assert!(to == "/fleet" || to == "/%0d%0aset-cookie:x", "{foreign}: {to}");
    }
}

#[tokio::test]
async fn a_provider_that_is_away_is_told() {
    let place = tempfile::tempdir().unwrap();
    let mut tasks = JoinSet::new();
    let issuer = issuer(&mut tasks).await;
    let site = site(&issuer, place.path()).await;
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    site.stranger().get("/login/start").await.expect(502).shows("could not be asked");
}
