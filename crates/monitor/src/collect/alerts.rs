//! Firing alerts, from the cluster's Alertmanager. It listens on its pod's loopback only, so it is reached by a port-forward.

use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};

use super::pods::is_platform_namespace;
use super::{Collector, Fact, Findings, Profile, some_names};
use crate::series::{Metric, Series};
use crate::visit::{FetchError, Fetcher, Labels};

const COUNT: Metric =
    Metric { name: "prometheus_alerts_count", help: "Alerts that are firing, before any is left out" };
const ALERTS: Metric = Metric { name: "prometheus_alerts", help: "Firing alerts of the platform" };

const NAMESPACE: &str = "openshift-monitoring";
const REPLICAS: usize = 3;
const PORT: u16 = 9093;

/// Largest list of alerts.
const BODY_MAX: usize = 16 * 1024 * 1024;

pub(super) const COLLECTOR: Collector = Collector {
    name: "alerts",
    profile: Profile::OpenShift,
    every: 1,
    run: |visit| {
        Box::pin(
            async move { Ok(read(&visit.fetcher).await?.map_or_else(Findings::default, |it| decide(&it))) },
        )
    },
};

/// An alert of Alertmanager's API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Alert {
    labels: Labels,
    status: AlertStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AlertStatus {
    state: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodPhase {
    status: Phase,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Phase {
    phase: String,
}

/// The alerts that the first replica that answers knows; none if there is no replica.
async fn read(fetcher: &Fetcher) -> Result<Option<Vec<Alert>>, FetchError> {
    let mut failed = None;
    for replica in 0..REPLICAS {
        let name = format!("alertmanager-main-{replica}");
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
        match fetcher.object::<PodPhase>(&path).await? {
            Some(pod) if pod.status.phase == "Running" => {}
            _ => continue,
        }
        match fetcher.within_visit(forwarded(fetcher, &name)).await {
            Ok(alerts) => return Ok(Some(alerts)),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(None), Err)
}

async fn forwarded(fetcher: &Fetcher, pod: &str) -> Result<Vec<Alert>, FetchError> {
    let link = fetcher.link();
    let failed = |error: kube::Error| FetchError::Link(link.failed("forward a port to", pod, error));
    let gone = || unreadable("the port-forward ended at once".to_owned());
    let pods: Api<Pod> = Api::namespaced(link.client(), NAMESPACE);
    let mut forward = pods.portforward(pod, &[PORT]).await.map_err(failed)?;
    let stream = forward.take_stream(PORT).ok_or_else(gone)?;
    request(stream).await
}

async fn request<S>(stream: S) -> Result<Vec<Alert>, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |error: hyper::Error| unreadable(error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let request = Request::get("/api/v2/alerts?active=true&silenced=false&inhibited=false")
        .header(http::header::HOST, "localhost")
        .body(Empty::<Bytes>::new())
        .map_err(|error| unreadable(error.to_string()))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(FetchError::Status { path: PATH.to_owned(), status: response.status() });
        }
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
        let body = body.map_err(|error| unreadable(error.to_string()))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| unreadable(format!("{:?} error", error.classify())))
    };
    // The connection moves the bytes. When it ends, the exchange has its result or its error.
    let drive = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        result = exchange => result,
        never = drive => match never {},
    }
}

/// What is read, for messages.
const PATH: &str = "Alertmanager's /api/v2/alerts";

fn unreadable(why: String) -> FetchError {
    FetchError::Unreadable { path: PATH.to_owned(), why }
}

/// Alerts that say nothing about the health of a cluster of ours.
fn is_ignored(name: &str) -> bool {
    name.starts_with("UsingDeprecatedAPI")
        || name.starts_with("APIRemovedInNext")
        || matches!(
            name,
            "ImagePruningDisabled" | "InsightsDisabled" | "Watchdog" | "AlertmanagerReceiversNotConfigured"
        )
}

fn severity(alert: &Alert) -> &'static str {
    match alert.labels.get("severity").map(String::as_str) {
        Some("critical") => "critical",
        Some("warning") => "warning",
        Some("info") => "info",
        _ => "none",
    }
}

fn decide(alerts: &[Alert]) -> Findings {
    let mut findings = Findings::default();
    findings.gauge(COUNT, alerts.len() as f64);
    let mut counts: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
    for alert in alerts.iter().filter(|it| it.status.state != "suppressed") {
        let name = alert.labels.get("alertname").map_or("", String::as_str);
        // An alert without a namespace is of the platform.
        let of_platform = alert.labels.get("namespace").is_none_or(|it| is_platform_namespace(it));
        if of_platform && !is_ignored(name) {
            *counts.entry((name.to_owned(), severity(alert))).or_default() += 1;
        }
    }
    let critical: Vec<String> =
        counts.keys().filter(|(_, severity)| *severity == "critical").map(|(name, _)| name.clone()).collect();
    for ((name, severity), count) in counts {
        findings.add(Series::new(ALERTS, count as f64).label("alert", name).label("severity", severity));
    }
    if !critical.is_empty() {
        findings.cause("alerts", format!("critical alerts: {}", some_names(&critical)), false);
    }
    findings.facts.push(Fact::CriticalAlerts(critical));
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::collect::testing::{causes, lines};

    #[test]
    fn alerts_of_the_platform_are_counted_by_name_and_severity() {
        let alerts: Vec<Alert> = serde_json::from_value(json!([
            {"labels": {"alertname": "etcdNoLeader", "severity": "critical", "namespace": "openshift-etcd"}, "status": {"state": "active"}},
            {"labels": {"alertname": "KubePodCrashLooping", "severity": "warning", "namespace": "shop"}, "status": {"state": "active"}},
            {"labels": {"alertname": "TargetDown", "severity": "warning"}, "status": {"state": "active"}},
            {"labels": {"alertname": "TargetDown", "severity": "warning"}, "status": {"state": "active"}},
            {"labels": {"alertname": "Quiet", "severity": "critical"}, "status": {"state": "suppressed"}},
            {"labels": {"alertname": "APIRemovedInNextReleaseInUse", "severity": "info"}},
            {"labels": {"alertname": "Odd", "severity": "very"}},
        ]))
        .unwrap();
        let findings = decide(&alerts);
        assert_eq!(
            lines(&findings),
            [
                "prometheus_alerts_count{} 7",
                "prometheus_alerts{alert=Odd,severity=none} 1",
                "prometheus_alerts{alert=TargetDown,severity=warning} 2",
                "prometheus_alerts{alert=etcdNoLeader,severity=critical} 1",
            ]
        );
        assert_eq!(causes(&findings), ["critical alerts: etcdNoLeader"]);
        assert_eq!(findings.facts, [Fact::CriticalAlerts(vec!["etcdNoLeader".to_owned()])]);
    }

    /// What stands at the other end of the forwarded port.
    async fn answer(response: &'static str) -> Result<Vec<Alert>, FetchError> {
        let (near, mut far) = tokio::io::duplex(4096);
        let server = async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(far.read_u8().await.unwrap());
            }
            far.write_all(response.as_bytes()).await.unwrap();
            String::from_utf8(head).unwrap()
        };
        let (result, head) = tokio::join!(request(near), server);
        assert!(head.starts_with("GET /api/v2/alerts?active=true"), "{head}");
        result
    }

    #[tokio::test]
    async fn a_response_is_read_over_any_stream_and_a_bad_one_is_an_error() {
        let body = "HTTP/1.1 200 OK\r\ncontent-length: 37\r\n\r\n[{\"labels\":{\"alertname\":\"Watchdog\"}}]";
        assert_eq!(answer(body).await.unwrap().len(), 1);
        let error = answer("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n").await.unwrap_err();
        assert!(matches!(error, FetchError::Status { .. }), "{error}");
        let error = answer("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "Alertmanager's /api/v2/alerts returned something that cannot be read: Syntax error"
        );
    }
}
