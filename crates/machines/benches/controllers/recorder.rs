//! What a process requests, and its repetition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::{StreamExt as _, iter};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tower::BoxError;

/// A write that had its effect.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) method: Method,
    uri: String,
    headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Requests of the clients that it made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    writes: Vec<Write>,
    refused: usize,
    requests: u64,
}

impl Recorder {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client whose writes are recorded with their content.
    pub(crate) fn client(&self, client: &Client) -> Client {
        let (recorder, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (recorder, inner) = (recorder.clone(), inner.clone());
            async move {
                recorder.record().requests += 1;
                if request.method() == Method::GET {
                    return Ok::<_, BoxError>(inner.send(request).await?);
                }
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes().to_vec();
                let (method, uri, headers) =
                    (parts.method.clone(), parts.uri.to_string(), parts.headers.clone());
                let write = Write { method, uri, headers, body: body.clone() };
                let response = inner.send(Request::from_parts(parts, Body::from(body))).await?;
                match response.status().is_success() {
                    true => recorder.record().writes.push(write),
                    false => recorder.record().refused += 1,
                }
                Ok(response)
            }
        });
        Client::new(service, client.default_namespace())
    }

    /// A client whose requests are counted.
    pub(crate) fn counting_client(&self, client: &Client) -> Client {
        let (recorder, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            recorder.record().requests += 1;
            let inner = inner.clone();
            async move { Ok::<_, BoxError>(inner.send(request).await?) }
        });
        Client::new(service, client.default_namespace())
    }

    pub(crate) fn requests(&self) -> u64 {
        self.record().requests
    }

    /// The number of writes that the API server refused.
    pub(crate) fn refused(&self) -> usize {
        self.record().refused
    }

    /// The number of writes for which this holds.
    pub(crate) fn count(&self, is_meant: impl Fn(&Write) -> bool) -> usize {
        self.record().writes.iter().filter(|write| is_meant(write)).count()
    }

    pub(crate) fn writes(&self) -> Vec<Write> {
        self.record().writes.clone()
    }
}

impl Write {
    pub(crate) fn path(&self) -> &str {
        self.uri.split('?').next().unwrap_or_default()
    }

    /// The same write elsewhere: every text of the first kind is replaced by the second, and no version is expected.
    pub(crate) fn translated(&self, translations: &[(&str, &str)]) -> anyhow::Result<Write> {
        let translate =
            |text: &str| translations.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        let body = match self.body.is_empty() {
            true => Vec::new(),
            false => {
                let mut body: Value = serde_json::from_str(&translate(std::str::from_utf8(&self.body)?))?;
                if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("resourceVersion");
                }
                serde_json::to_vec(&body)?
            }
        };
        Ok(Write { uri: translate(&self.uri), body, ..self.clone() })
    }

    /// What is written, without its subresource: writes of one object keep their order.
    fn object(&self) -> String {
        let path = self.path().trim_end_matches("/status");
        if self.method != Method::POST {
            return path.to_owned();
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default())
    }

    async fn send(&self, client: &Client) -> anyhow::Result<()> {
        let mut request = Request::builder().method(self.method.clone()).uri(&self.uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = client.send(request.body(Body::from(self.body.clone()))?).await?;
        let status = response.status();
        // A response counts when it is read, as it is by the controllers.
        let text = response.into_body().collect().await?.to_bytes();
        anyhow::ensure!(
            status.is_success(),
            "{} {} was refused with {status}: {}",
            self.method,
            self.uri,
            String::from_utf8_lossy(&text)
        );
        Ok(())
    }
}

/// Sends writes with so many in flight, those of one object one after another.
pub(crate) async fn repeat(client: &Client, writes: Vec<Write>, in_flight: usize) -> anyhow::Result<()> {
    let mut order: Vec<Vec<Write>> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for write in writes {
        let place = *known.entry(write.object()).or_insert_with(|| {
            order.push(Vec::new());
            order.len() - 1
        });
        if let Some(group) = order.get_mut(place) {
            group.push(write);
        }
    }
    let send = |group: Vec<Write>| async move {
        for write in &group {
            write.send(client).await?;
        }
        anyhow::Ok(())
    };
    let sent: Vec<anyhow::Result<()>> =
        iter(order.into_iter().map(send)).buffer_unordered(in_flight).collect().await;
    sent.into_iter().collect()
}
