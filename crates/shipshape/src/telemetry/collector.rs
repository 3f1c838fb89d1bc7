//! The HTTP client that carries traces to the collector.
//!
//! The exporter's own clients are reqwest, which doubles the build, and a hyper client that only works
//! inside a runtime, while the exporter calls from a thread outside it. This one is the same hyper, with
//! the request handed to the runtime. TLS is rustls with ring, as everywhere here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Handle;

use crate::config::OtlpEndpoint;

/// Longest wait for the collector.
pub(super) const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);

/// Largest response of the collector.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// A collector, called on the runtime in which this was created.
#[derive(Debug)]
pub(super) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    endpoint: String,
    is_failing: AtomicBool,
}

impl Collector {
    pub(super) fn new(endpoint: &OtlpEndpoint) -> anyhow::Result<Collector> {
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls(endpoint)?).https_or_http().enable_http1();
        Ok(Collector {
            client: Client::builder(TokioExecutor::new()).build(connector.build()),
            runtime: Handle::try_current().context("traces need a runtime")?,
            endpoint: endpoint.to_string(),
            is_failing: AtomicBool::new(false),
        })
    }

    /// Logs one line when the collector fails and one when it recovers.
    fn note(&self, failure: Option<&dyn fmt::Display>) {
        let was_failing = self.is_failing.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(error) if !was_failing => {
                tracing::warn!(error = %error, "Traces cannot be sent to {} and are dropped for now: {error}", self.endpoint);
            }
            None if was_failing => tracing::info!("Traces are sent to {} again", self.endpoint),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.client.request(request.map(Full::new));
        let exchange = async move {
            let (head, body) = response.await?.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        };
        // Created inside the runtime, because a timer needs it.
        let bounded = async move { tokio::time::timeout(REQUEST_TIME_MAX, exchange).await };
        let outcome = match self.runtime.spawn(bounded).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(format!("no response within {REQUEST_TIME_MAX:?}").into()),
            Err(_) => Err("the process is shutting down".into()),
        };
        match &outcome {
            Ok(response) if response.status().is_success() => self.note(None),
            Ok(response) => self.note(Some(&format!("it responded with {}", response.status()))),
            Err(error) => self.note(Some(error)),
        }
        outcome
    }
}

fn tls(endpoint: &OtlpEndpoint) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if endpoint.is_https() {
        let found = rustls_native_certs::load_native_certs();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        anyhow::ensure!(
            usable > 0,
            "telemetry.otlp_endpoint {endpoint}: this machine has no certificates to check it with; \
             install ca-certificates or set SSL_CERT_FILE"
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
