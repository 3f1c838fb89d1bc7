//! Sign-in at a provider: a test issuer whose keys rotate and whose responses can be wrong.

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

use super::fixture::{Reply, TestPortal, TestUser, escaped};

/// State of the issuer.
struct Issuer {
    url: String,
    key: KeyPair,
    kid: String,
    /// Claims of the next token, besides the defaults.
    bend: Value,
    /// Critical extensions of the next token.
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

async fn site(issuer: &Shared, place: &std::path::Path) -> TestPortal {
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
    TestPortal::with(Login::Oidc(config), super::fixture::ORIGIN).await
}

/// Signs in at the provider; `state` replaces the state of the callback.
async fn sign_in(site: &TestPortal, issuer: &Shared, to: &str, state: Option<&str>) -> (TestUser, Reply) {
    let mut user = site.anonymous();
    let left = user.get(&format!("/login/start?to={}", escaped(to))).await.expect(303);
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
    user.cookie = left.header("set-cookie").split(';').next().unwrap().to_owned();
    let given = field("state");
    let back = format!("/login/callback?code=the-code&state={}", state.unwrap_or(&given));
    let reply = user.get(&back).await;
    if reply.status.is_redirection() {
        let cookies = reply.headers.get_all("set-cookie").iter().map(|it| it.to_str().unwrap());
        let ours =
            cookies.filter(|it| it.starts_with("__Host-shipshape=")).map(|it| it.split(';').next().unwrap());
        user.cookie = ours.fold("", |_, found| found).to_owned();
    }
    (user, reply)
}

#[tokio::test]
async fn the_groups_of_a_user_decide_their_role() {
    let (mut tasks, place) = (JoinSet::new(), tempfile::tempdir().unwrap());
    let issuer = issuer(&mut tasks).await;
    let site = site(&issuer, place.path()).await;
    site.anonymous().get("/login?to=/plan").await.expect(200).shows("/login/start?to=%2Fplan");
    let (user, reply) = sign_in(&site, &issuer, "/plan?for=7d", None).await;
    assert_eq!(reply.expect(303).header("location"), "/plan?for=7d");
    user.get("/fleet").await.expect(200).shows("jo").shows("operator");
    issuer.lock().unwrap().bend = json!({"groups": ["staff"]});
    let (user, _) = sign_in(&site, &issuer, "/", None).await;
    user.get("/fleet").await.expect(200).shows("reader");
    issuer.lock().unwrap().bend = json!({"groups": ["others"]});
    let (user, reply) = sign_in(&site, &issuer, "/", None).await;
    reply.expect(403).shows("None of your groups has access");
    assert!(user.get("/fleet").await.status.is_redirection(), "and has no session");
    // Groups that are not in the token are read from the user info endpoint.
    issuer.lock().unwrap().bend = json!({"groups": null, "_claim_names": {"groups": "src1"}});
    issuer.lock().unwrap().user_info = json!({"sub": "1", "groups": ["sre"]});
    let (user, reply) = sign_in(&site, &issuer, "/", None).await;
    reply.expect(303);
    user.get("/fleet").await.expect(200).shows("operator");
    // A name is normalised to one line, and actions are recorded under it.
    issuer.lock().unwrap().bend = json!({"preferred_username": format!("al{}e\n", " ".repeat(400))});
    let (user, _) = sign_in(&site, &issuer, "/", None).await;
    user.get("/fleet").await.expect(200).shows("al e");
    // A key that was rotated since the last sign-in is found.
    {
        let mut issuer = issuer.lock().unwrap();
        issuer.bend = json!({});
        issuer.key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        issuer.kid = "second".to_owned();
    }
    sign_in(&site, &issuer, "/", None).await.1.expect(303);
}

#[tokio::test]
async fn a_callback_that_does_not_match_the_sign_in_is_rejected() {
    let (mut tasks, place) = (JoinSet::new(), tempfile::tempdir().unwrap());
    let issuer = issuer(&mut tasks).await;
    let site = site(&issuer, place.path()).await;
    let past = SystemClock.now().as_second() - 10_000;
    let bent = [
        json!({"nonce": "another"}),
        json!({"aud": "another"}),
        json!({"iss": "https://another.example"}),
        json!({"exp": past, "iat": past - 300}),
        // Such a name would be recorded in part, or as somebody else.
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
    reply.expect(403).shows("was not started in this browser");
    // The state of another browser is rejected.
    let left = site.anonymous().get("/login/start").await.expect(303);
    let (_, state) = left.header("location").split_once("&state=").unwrap();
    let state = state.split('&').next().unwrap();
    site.anonymous().get(&format!("/login/callback?code=the-code&state={state}")).await.expect(403);
    site.anonymous().get("/login/callback?error=access_denied").await.expect(403);
    issuer.lock().unwrap().challenge = "none".to_owned();
    let request = Request::get("/login/link/anything");
    site.anonymous().send(request, Body::empty()).await.expect(403);
}

#[tokio::test]
async fn sign_in_never_redirects_to_another_site() {
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
async fn an_unreachable_provider_is_reported() {
    let place = tempfile::tempdir().unwrap();
    let mut tasks = JoinSet::new();
    let issuer = issuer(&mut tasks).await;
    let site = site(&issuer, place.path()).await;
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    site.anonymous().get("/login/start").await.expect(502).shows("did not respond");
}
