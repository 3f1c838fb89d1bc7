//! What extends the API server and can break it: aggregated APIs that are not available, admission webhooks whose Service is not
//! there, certificate requests that nobody decides.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Collector, Findings, Profile, some_names};
use crate::series::{Metric, Series};
use crate::visit::{Condition, Listed, Metadata};

const API_SERVICE: Metric =
    Metric { name: "apiservice_unavailable", help: "1 for each aggregated API that is not available" };
const WEBHOOK: Metric = Metric {
    name: "webhook_failing",
    help: "1 for each admission webhook that must answer and whose Service has no ready address",
};
const REQUESTS: Metric = Metric {
    name: "certificatesigningrequest_pending",
    help: "Certificate requests that wait for a decision",
};

/// Fewer pending requests are those of nodes that are just joining.
const PENDING_MAX: usize = 20;

pub(super) const COLLECTOR: Collector = Collector {
    name: "api-extensions",
    profile: Profile::Kubernetes,
    every: 5,
    run: |visit| {
        Box::pin(async move {
            let fetcher = &visit.fetcher;
            let services = fetcher.list("/apis/apiregistration.k8s.io/v1/apiservices").await?;
            let requests = fetcher.list("/apis/certificates.k8s.io/v1/certificatesigningrequests").await?;
            let group = "/apis/admissionregistration.k8s.io/v1";
            let mut configurations = Vec::new();
            for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
                let listed: Option<Listed<Configuration>> = fetcher.list(&format!("{group}/{kind}")).await?;
                configurations.extend(listed.into_iter().flat_map(|it| it.items));
            }
            let mut unserved = BTreeSet::new();
            for service in backends(&configurations) {
                let label = format!("kubernetes.io%2Fservice-name%3D{}", service.name);
                let path = format!(
                    "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector={label}",
                    service.namespace
                );
                let slices: Option<Listed<EndpointSlice>> = fetcher.list(&path).await?;
                let ready = slices.is_some_and(|it| it.items.iter().any(EndpointSlice::is_ready));
                if !ready {
                    unserved.insert(service);
                }
            }
            Ok(decide(services.as_ref(), requests.as_ref(), &configurations, &unserved))
        })
    },
};

/// Most Services of webhooks that are looked at.
const BACKENDS_MAX: usize = 50;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ApiService {
    metadata: Metadata,
    status: Conditions,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SigningRequest {
    status: Conditions,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Configuration {
    metadata: Metadata,
    webhooks: Vec<Webhook>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Webhook {
    name: String,
    failure_policy: Option<String>,
    client_config: ClientConfig,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClientConfig {
    service: Option<Service>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
struct Service {
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct EndpointSlice {
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    conditions: EndpointConditions,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct EndpointConditions {
    ready: Option<bool>,
}

impl EndpointSlice {
    /// Without a statement an endpoint counts as ready.
    fn is_ready(&self) -> bool {
        self.endpoints.iter().any(|it| it.conditions.ready.unwrap_or(true))
    }
}

/// Names as Kubernetes has them; others are not put into a path.
fn is_name(text: &str) -> bool {
    let is_part = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-' || it == '.';
    !text.is_empty() && text.len() <= 253 && text.chars().all(is_part) && !text.contains("..")
}

/// A webhook that may be ignored when it fails does no harm.
fn must_answer(webhook: &Webhook) -> Option<&Service> {
    let is_required = webhook.failure_policy.as_deref().is_none_or(|it| it == "Fail");
    webhook
        .client_config
        .service
        .as_ref()
        .filter(|it| is_required && is_name(&it.namespace) && is_name(&it.name))
}

fn backends(configurations: &[Configuration]) -> BTreeSet<Service> {
    let required = configurations.iter().flat_map(|it| &it.webhooks).filter_map(must_answer);
    required.cloned().collect::<BTreeSet<_>>().into_iter().take(BACKENDS_MAX).collect()
}

fn decide(
    services: Option<&Listed<ApiService>>,
    requests: Option<&Listed<SigningRequest>>,
    configurations: &[Configuration],
    unserved: &BTreeSet<Service>,
) -> Findings {
    let mut findings = Findings::default();
    let mut unavailable = Vec::new();
    for service in services.iter().flat_map(|it| &it.items) {
        let is_false = |it: &Condition| it.kind == "Available" && it.status != "True";
        if service.status.conditions.iter().any(is_false) {
            findings.add(Series::new(API_SERVICE, 1.0).label("name", service.metadata.name.clone()));
            unavailable.push(service.metadata.name.clone());
        }
    }
    if !unavailable.is_empty() {
        findings.cause("apiservices", format!("APIs not available: {}", some_names(&unavailable)), false);
    }
    let mut failing = Vec::new();
    for configuration in configurations {
        for webhook in &configuration.webhooks {
            if must_answer(webhook).is_some_and(|service| unserved.contains(service)) {
                findings.add(
                    Series::new(WEBHOOK, 1.0)
                        .label("configuration", configuration.metadata.name.clone())
                        .label("webhook", webhook.name.clone()),
                );
                failing.push(webhook.name.clone());
            }
        }
    }
    if !failing.is_empty() {
        let text = format!("admission webhooks without a ready backend: {}", some_names(&failing));
        findings.cause("webhooks", text, false);
    }
    if let Some(requests) = requests {
        let pending = requests.items.iter().filter(|it| it.status.conditions.is_empty()).count();
        findings.gauge(REQUESTS, pending as f64);
        if pending > PENDING_MAX {
            findings.cause(
                "certificaterequests",
                format!("{pending} certificate requests wait for a decision"),
                false,
            );
        }
    }
    findings.unreadable = services.map_or(0, |it| it.unreadable) + requests.map_or(0, |it| it.unreadable);
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{causes, lines, listed};

    #[test]
    fn what_extends_the_api_server_and_is_broken_is_named() {
        let services = listed(json!([
            {"metadata": {"name": "v1.apps"}, "status": {"conditions": [{"type": "Available", "status": "True"}]}},
            {"metadata": {"name": "v1beta1.metrics.k8s.io"}, "status": {"conditions": [{"type": "Available", "status": "False"}]}},
        ]));
        let requests =
            listed(json!([{}, {"status": {"conditions": [{"type": "Approved", "status": "True"}]}}]));
        let configurations: Vec<Configuration> = serde_json::from_value(json!([{"metadata": {"name": "policy"}, "webhooks": [
            {"name": "a.example.com", "clientConfig": {"service": {"namespace": "policy", "name": "gone"}}},
            {"name": "b.example.com", "failurePolicy": "Ignore", "clientConfig": {"service": {"namespace": "policy", "name": "gone"}}},
            {"name": "c.example.com", "clientConfig": {"service": {"namespace": "policy", "name": "there"}}},
            {"name": "d.example.com", "clientConfig": {"service": {"namespace": "../../x", "name": "there"}}},
            {"name": "e.example.com", "clientConfig": {"url": "https://elsewhere"}},
        ]}]))
        .unwrap();
        let service = |name: &str| Service { namespace: "policy".to_owned(), name: name.to_owned() };
        assert_eq!(backends(&configurations), BTreeSet::from([service("gone"), service("there")]));
        let findings =
            decide(Some(&services), Some(&requests), &configurations, &BTreeSet::from([service("gone")]));
        assert_eq!(
            lines(&findings),
            [
                "apiservice_unavailable{name=v1beta1.metrics.k8s.io} 1",
                "certificatesigningrequest_pending{} 1",
                "webhook_failing{configuration=policy,webhook=a.example.com} 1",
            ]
        );
        assert_eq!(
            causes(&findings),
            [
                "APIs not available: v1beta1.metrics.k8s.io",
                "admission webhooks without a ready backend: a.example.com"
            ]
        );
        let many = listed(serde_json::Value::Array(vec![json!({}); 21]));
        let findings = decide(None, Some(&many), &[], &BTreeSet::new());
        assert_eq!(causes(&findings), ["21 certificate requests wait for a decision"]);
    }
}
