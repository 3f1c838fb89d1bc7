//! What Microsoft's `az` sent, replayed against the emulated Azure and the API of `up`: the recordings of `tests/azure-cli`. A replay sends
//! the recorded requests with the ids, addresses and tokens of its own run, and requires the recorded statuses, headers and members.

mod template;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use testkit::wait_until;
use tokio::runtime::Runtime;

use super::executable::Home;
use super::maintenance::{json, repository};
use template::Bindings;

/// Far longer than a cluster takes on a busy machine at this pace.
const PATIENCE: Duration = Duration::from_secs(300);

macro_rules! recordings {
    ($($test:ident: $name:literal),* $(,)?) => {
        const RECORDINGS: &[&str] = &[$($name),*];

        $(
            #[test]
            fn $test() {
                replay($name);
            }
        )*
    };
}

recordings! {
    az_signs_in_and_registers_providers: "account",
    az_group_works: "group",
    az_network_works: "network",
    az_identity_role_and_ad_work: "identity",
    az_keyvault_works: "keyvault",
    az_aro_works_with_a_service_principal: "aro",
    az_aro_works_with_managed_identities: "aro-identities",
}

fn directory() -> PathBuf {
    repository().join("tests/azure-cli/recordings")
}

#[test]
fn every_recording_is_replayed_and_has_no_token_and_no_address() {
    let mut files: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for forbidden in ["eyJ", "127.0.0.1:", "BEGIN "] {
            assert!(!text.contains(forbidden), "{} has {forbidden}", path.display());
        }
        files.push(path.file_stem().unwrap().to_string_lossy().into_owned());
    }
    files.sort();
    let mut replayed = RECORDINGS.to_vec();
    replayed.sort_unstable();
    assert_eq!(files, replayed);
}

/// A client of the servers, with what it knows of this run.
struct Replay {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Runtime,
    bindings: Bindings,
}

struct Response {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

fn replay(name: &str) {
    let text = std::fs::read_to_string(directory().join(format!("{name}.json"))).unwrap();
    let recording: Value = serde_json::from_str(&text).unwrap();
    let home = Home::new();
    let _up = home.up(&["--set", "cloud.pace=0", "--set", "frontend.retry_after_seconds=1"]);
    let mut replay = Replay::new(&json(&home, &["cloud", "endpoints"]));
    for command in recording["commands"].as_array().unwrap() {
        for (number, exchange) in command["exchanges"].as_array().unwrap().iter().enumerate() {
            let what = format!("exchange {} of `{}`", number + 1, command["command"].as_str().unwrap());
            replay.repeat(&what, exchange);
        }
    }
}

impl Replay {
    fn new(endpoints: &Value) -> Replay {
        let text = |member: &str| endpoints[member].as_str().unwrap().to_owned();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(text("caFile")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
        let mut bindings = Bindings::default();
        for name in ["resourceManager", "tenantId", "subscriptionId", "clientId"] {
            bindings.bind(name, &text(name));
        }
        bindings.bind("resourceManagerHost", text("resourceManager").trim_start_matches("https://"));
        let secret = std::fs::read_to_string(text("clientSecretFile")).unwrap();
        bindings.bind("clientSecret", secret.trim());
        for (vault, url) in endpoints["vaults"].as_object().unwrap() {
            bindings.bind(&format!("vaults.{vault}"), url.as_str().unwrap());
        }
        Replay {
            http: Client::builder(TokioExecutor::new()).build(connector),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            bindings,
        }
    }

    /// Sends the request of an exchange and compares the response; a poll is repeated until its response is as recorded.
    fn repeat(&mut self, what: &str, exchange: &Value) {
        let patience = if exchange["poll"] == true { PATIENCE } else { Duration::ZERO };
        let mut difference = String::new();
        let matched = wait_until(what, patience, || {
            let response = self.send(&exchange["request"]);
            let mut bindings = self.bindings.clone();
            match compare(&exchange["response"], &response, &mut bindings) {
                Ok(()) => Some(bindings),
                Err(why) => {
                    difference = format!("{why}\n{} {}", response.status, response.text);
                    None
                }
            }
        });
        self.bindings = matched.unwrap_or_else(|_| panic!("{what}: {difference}"));
    }

    fn send(&mut self, request: &Value) -> Response {
        let text = |member: &str| request[member].as_str().unwrap();
        let url = self.bindings.fill(&format!("{}{}", text("service"), text("path")));
        let mut built = Request::builder().method(text("method").parse::<Method>().unwrap()).uri(url);
        for (name, value) in request["headers"].as_object().unwrap() {
            built = built.header(name, self.bindings.fill(value.as_str().unwrap()));
        }
        if let Some(audience) = request["audience"].as_str() {
            let token = self.token(&self.bindings.fill(audience));
            built = built.header("authorization", format!("Bearer {token}"));
        }
        let body = match &request["body"] {
            Value::Null => String::new(),
            Value::Object(members) if members.contains_key("form") => {
                let form = members["form"].as_object().unwrap();
                encode(
                    form.iter()
                        .map(|(name, value)| (name.as_str(), self.bindings.fill(value.as_str().unwrap()))),
                )
            }
            body => self.bindings.fill_json(body).to_string(),
        };
        self.exchange(built.body(Full::new(body.into())).unwrap())
    }

    fn exchange(&self, request: Request<Full<Bytes>>) -> Response {
        let asked = format!("{} {}", request.method(), request.uri());
        self.runtime.block_on(async {
            let response =
                self.http.request(request).await.unwrap_or_else(|error| panic!("{asked}: {error}"));
            let (head, body) = response.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.into()).unwrap();
            Response { status: head.status, headers: head.headers, text }
        })
    }

    /// A token for an audience.
    fn token(&self, audience: &str) -> String {
        let filled = |template: &str| self.bindings.fill(template);
        let form = encode([
            ("grant_type", "client_credentials".to_owned()),
            ("client_id", filled("<<clientId>>")),
            ("client_secret", filled("<<clientSecret>>")),
            ("scope", format!("{audience}/.default")),
        ]);
        let request = Request::post(filled("<<resourceManager>>/<<tenantId>>/oauth2/v2.0/token"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Full::new(form.into()))
            .unwrap();
        let response = self.exchange(request);
        let body: Value = serde_json::from_str(&response.text).unwrap();
        body["access_token"].as_str().expect(&response.text).to_owned()
    }
}

/// Compares a response with the recorded one; what the recording does not have may be anything.
fn compare(wanted: &Value, got: &Response, bindings: &mut Bindings) -> Result<(), String> {
    if wanted["status"] != got.status.as_u16() {
        return Err(format!("status {} in place of {}", got.status, wanted["status"]));
    }
    for (name, value) in wanted["headers"].as_object().unwrap() {
        let found = got.headers.get(name).and_then(|it| it.to_str().ok());
        let found = found.ok_or_else(|| format!("header {name} is missing"))?;
        bindings.compare(value.as_str().unwrap(), found).map_err(|why| format!("header {name}: {why}"))?;
    }
    match &wanted["body"] {
        Value::Null => Ok(()),
        Value::String(text) => bindings.compare(text, &got.text),
        body => {
            let mut found =
                serde_json::from_str(&got.text).map_err(|error| format!("the body is no JSON: {error}"))?;
            leave_out_controllers(&mut found);
            bindings.compare_json(body, &found, "")
        }
    }
}

/// Removes the role assignments that the emulator's installer makes for the controllers in a cluster: `az` was recorded without them.
fn leave_out_controllers(body: &mut Value) {
    let is_of_controllers =
        |it: &Value| it["properties"]["description"] == "Machine controllers of a simulated cluster";
    if let Some(listed) = body.get_mut("value").and_then(Value::as_array_mut) {
        listed.retain(|it| !is_of_controllers(it));
    }
}

/// The pairs of a form, with every byte encoded that could have a meaning.
fn encode<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let encoded = |text: &str| -> String {
        let byte = |it: u8| match it {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(it).to_string(),
            _ => format!("%{it:02X}"),
        };
        text.bytes().map(byte).collect()
    };
    let pairs = pairs.into_iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(&value)));
    pairs.collect::<Vec<_>>().join("&")
}
