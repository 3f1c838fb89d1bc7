//! A browser, driven by the WebDriver protocol: JSON over HTTP to chromedriver.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use testkit::chromium::Chromium;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// Timeout of every wait, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// One window of a browser.
pub(crate) struct Window {
    http: Client<HttpConnector, Full<Bytes>>,
    base: String,
    axe: PathBuf,
    _driver: Child,
    _place: tempfile::TempDir,
}

impl Window {
    /// Starts a headless browser.
    pub(crate) async fn open(chromium: &Chromium) -> Window {
        let mut driver = Command::new(&chromium.driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        let place = tempfile::tempdir().unwrap();
        let http = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let mut window = Window {
            http,
            base: format!("http://127.0.0.1:{port}/session"),
            axe: chromium.axe.clone(),
            _driver: driver,
            _place: place,
        };
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--no-first-run".to_owned(),
            "--hide-scrollbars".to_owned(),
            "--window-size=1360,900".to_owned(),
            format!("--user-data-dir={}", window._place.path().display()),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": chromium.browser, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let session = window.send(Method::POST, "", &wanted).await;
        let id = session["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {session}"));
        window.base = format!("{}/{id}", window.base);
        window
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Value {
        let answer = self.try_send(method, path, body).await;
        assert!(answer.get("error").is_none(), "{path}: {answer}");
        answer
    }

    async fn try_send(&self, method: Method, path: &str, body: &Value) -> Value {
        let text = if method == Method::POST { body.to_string() } else { String::new() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(text)))
            .unwrap();
        let answer = tokio::time::timeout(PATIENCE * 2, self.http.request(request)).await.unwrap().unwrap();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&bytes).unwrap()["value"].take()
    }

    /// Navigates to a URL.
    pub(crate) async fn go(&self, url: &str) {
        self.send(Method::POST, "/url", &json!({"url": url})).await;
    }

    /// Runs a script in the page and returns its result.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.send(Method::POST, "/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Waits until a script returns something true.
    pub(crate) async fn until(&self, script: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = json!({"script": format!("return {script}"), "args": []});
            let found = self.try_send(Method::POST, "/execute/sync", &answer).await;
            let is_true = !matches!(&found, Value::Null | Value::Bool(false)) && found.get("error").is_none();
            if is_true && found != "" {
                return found;
            }
            if Instant::now() > deadline {
                let page = self.run("return document.body.innerText").await;
                panic!("{script} does not become true: {found}\n{}", page.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the page shows a text.
    pub(crate) async fn shows(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    /// Clicks the element of a selector.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        self.send(Method::POST, &format!("/element/{element}/click"), &json!({})).await;
    }

    /// Types into a field.
    pub(crate) async fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector).await;
        self.send(Method::POST, &format!("/element/{element}/clear"), &json!({})).await;
        self.send(Method::POST, &format!("/element/{element}/value"), &json!({"text": text})).await;
    }

    /// Presses keys in the focused element.
    pub(crate) async fn press(&self, keys: &str) {
        let press = |key: char| {
            let key = key.to_string();
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        let keyboard = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.send(Method::POST, "/actions", &keyboard).await;
    }

    async fn find(&self, selector: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = json!({"using": "css selector", "value": selector});
            let found = self.try_send(Method::POST, "/element", &asked).await;
            if let Some(id) = found.as_object().and_then(|it| it.values().next()).and_then(Value::as_str)
                && found.get("error").is_none()
            {
                return id.to_owned();
            }
            assert!(Instant::now() < deadline, "there is no {selector}: {found}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends a DevTools command.
    pub(crate) async fn command(&self, name: &str, parameters: Value) {
        self.send(Method::POST, "/goog/cdp/execute", &json!({"cmd": name, "params": parameters})).await;
    }

    /// Sets the colour scheme: light or dark.
    pub(crate) async fn colours(&self, scheme: &str) {
        let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", feature).await;
    }

    /// Sets the size of the screen.
    pub(crate) async fn size(&self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.command("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Saves a screenshot of the page.
    pub(crate) async fn picture(&self, name: &str) {
        let picture = self.send(Method::GET, "/screenshot", &Value::Null).await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture.as_str().unwrap()).unwrap();
        let directory = screenshots();
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("{name}.png")), bytes).unwrap();
    }

    /// Violations of accessibility rules on the page.
    pub(crate) async fn breaches(&self) -> Vec<String> {
        let axe = std::fs::read_to_string(&self.axe).unwrap();
        self.run(&format!("{axe}\nreturn true;")).await;
        let script = "const done = arguments[arguments.length - 1];
            axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations.map((it) =>
                it.id + ': ' + it.nodes.map((node) => node.html.slice(0, 200) + ' ' + (node.any[0] || node.all[0] || node.none[0] || {message: ''}).message).join(' | '))),
                (error) => done([String(error)]));";
        let found = self.send(Method::POST, "/execute/async", &json!({"script": script, "args": []})).await;
        found.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    /// Errors in the browser's log since the last call.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let lines = self.send(Method::POST, "/se/log", &json!({"type": "browser"})).await;
        let lines = lines.as_array().cloned().unwrap_or_default();
        let word = |line: &Value| {
            format!("{} {}", line["level"].as_str().unwrap_or(""), line["message"].as_str().unwrap_or(""))
        };
        lines
            .iter()
            .filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING")
            .map(word)
            .collect()
    }

    /// URLs of all requests since the last call.
    pub(crate) async fn requests(&self) -> Vec<String> {
        let lines = self.send(Method::POST, "/se/log", &json!({"type": "performance"})).await;
        let lines = lines.as_array().cloned().unwrap_or_default();
        let url = |line: &Value| {
            let message: Value = serde_json::from_str(line["message"].as_str()?).ok()?;
            let message = &message["message"];
            (message["method"] == "Network.requestWillBeSent")
                .then(|| message["params"]["request"]["url"].as_str().map(str::to_owned))?
        };
        lines.iter().filter_map(url).collect()
    }

    /// Closes the browser.
    pub(crate) async fn close(self) {
        self.try_send(Method::DELETE, "", &Value::Null).await;
    }
}

impl Drop for Window {
    /// Kills the browser of a failed test too, which its killed driver would leave running.
    fn drop(&mut self) {
        use std::io::{Read as _, Write as _};
        let Some((address, path)) = self.base.trim_start_matches("http://").split_once('/') else { return };
        let Ok(mut stream) = std::net::TcpStream::connect(address) else { return };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = write!(stream, "DELETE /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let _ = stream.read(&mut [0; 64]);
    }
}

/// Directory of screenshots.
#[expect(clippy::disallowed_methods, reason = "a setting of the tests, read where the tests run")]
fn screenshots() -> PathBuf {
    match std::env::var_os("SHIPSHAPE_TEST_SCREENSHOTS") {
        Some(directory) => directory.into(),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots"),
    }
}
