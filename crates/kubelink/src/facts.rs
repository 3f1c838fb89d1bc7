//! Facts of a cluster: version, nodes, ClusterOperators, certificates, critical pods. Reads only.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::client::ConfigExt;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certificate::{Validity, validity};
use crate::cordon::CORDONED_BY;
use crate::error::{Failure, LinkError};
use crate::link::{Link, display_name};

/// Page size of lists; this many pods are a few MiB.
const PAGE: u32 = 500;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Whether its Ready condition is true.
    pub ready: bool,
    /// Whether it is schedulable.
    pub schedulable: bool,
    /// The holder of its cordon, if Shipshape set it.
    pub cordoned_by: Option<String>,
    /// `control-plane`, `worker`, ...
    pub roles: Vec<String>,
    /// Its kubelet's version.
    pub kubelet_version: String,
    /// Type, status and reason of each condition.
    pub conditions: BTreeMap<String, (String, String)>,
}

/// One of OpenShift's ClusterOperators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorFacts {
    /// Its name.
    pub name: String,
    /// The version that it has reached.
    pub version: Option<String>,
    /// Whether it is available.
    pub available: bool,
    /// Whether it is progressing.
    pub progressing: bool,
    /// Whether it is degraded.
    pub degraded: bool,
    /// Its message about what is wrong.
    pub message: String,
}

/// The certificates of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The API server's certificate.
    pub serving: Option<Validity>,
    /// The client certificate, if one is used.
    pub client: Option<Validity>,
}

impl CertificateFacts {
    /// The earliest expiry of them.
    pub fn earliest_end(&self) -> Option<Timestamp> {
        [&self.serving, &self.client].into_iter().flatten().map(|validity| validity.not_after).min()
    }
}

/// The version of the API server, such as `v1.37.1`.
pub async fn version(link: &Link) -> Result<String, LinkError> {
    let found =
        link.client().apiserver_version().await.map_err(|error| link.failed("read", "the version", error))?;
    Ok(found.git_version)
}

/// All nodes, by name.
pub async fn nodes(link: &Link) -> Result<Vec<NodeFacts>, LinkError> {
    nodes_matching(link, "").await
}

/// The nodes whose labels match a selector, by name; an empty selector matches all.
pub async fn nodes_matching(link: &Link, selector: &str) -> Result<Vec<NodeFacts>, LinkError> {
    let label_selector = (!selector.is_empty()).then(|| selector.to_owned());
    let params = ListParams { label_selector, ..ListParams::default() };
    let all = list(link, Api::<Node>::all(link.client()), "nodes", params).await?;
    let mut facts: Vec<NodeFacts> = all.iter().map(of_node).collect();
    facts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(facts)
}

/// All ClusterOperators, by name; `None` where the cluster has no such kind.
pub async fn operators(link: &Link) -> Result<Option<Vec<OperatorFacts>>, LinkError> {
    let resource = match link.resolve("config.openshift.io/v1", "ClusterOperator").await {
        Ok((resource, _)) => resource,
        Err(error) if matches!(error.failure, Failure::UnknownKind { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let api: Api<DynamicObject> = Api::all_with(link.client(), &resource);
    let all = list(link, api, "ClusterOperators", ListParams::default()).await?;
    let mut facts: Vec<OperatorFacts> = all.iter().map(of_operator).collect();
    facts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(facts))
}

/// Pods of the system's priority classes that are not ready, as `namespace/name` with the reason.
pub async fn critical_pods_not_ready(link: &Link) -> Result<Vec<(String, String)>, LinkError> {
    let all = list(link, Api::<Pod>::all(link.client()), "pods", ListParams::default()).await?;
    Ok(all
        .iter()
        .filter(|pod| is_critical(pod))
        .filter_map(|pod| Some((display_name(pod), not_ready(pod)?)))
        .collect())
}

/// When the certificates expire. The API server's is read from a TLS handshake of its own, verified like any other.
pub async fn certificates(link: &Link) -> Result<CertificateFacts, LinkError> {
    let Some(kubeconfig) = link.kubeconfig() else {
        return Ok(CertificateFacts { serving: None, client: None });
    };
    let client = kubeconfig.client_certificate().and_then(validity);
    let failed = |failure| link.error("read", "the API server's certificate", failure);
    let limit = link.timeouts().connect;
    let shown = tokio::time::timeout(limit, shown_certificate(kubeconfig.config())).await;
    let shown = shown.map_err(|_| failed(Failure::Timeout(limit)))?.map_err(failed)?;
    Ok(CertificateFacts { serving: validity(&shown), client })
}

async fn shown_certificate(config: &kube::Config) -> Result<Vec<u8>, Failure> {
    let tls = config.rustls_client_config().map_err(Failure::from_kube)?;
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = config.cluster_url.port_u16().unwrap_or(443);
    let expected = config.tls_server_name.as_deref().unwrap_or(host).to_owned();
    let expected = ServerName::try_from(expected).map_err(|error| Failure::Request(Box::new(error)))?;
    let broken = |error: std::io::Error| Failure::from_kube(kube::Error::Service(Box::new(error)));
    let stream = TcpStream::connect((host, port)).await.map_err(broken)?;
    let session = TlsConnector::from(Arc::new(tls)).connect(expected, stream).await.map_err(broken)?;
    let chain = session.get_ref().1.peer_certificates().unwrap_or_default();
    let leaf = chain.first().map(|certificate| certificate.to_vec());
    leaf.ok_or_else(|| Failure::Tls { why: "the API server presented no certificate".to_owned() })
}

/// Reads a whole list page by page.
async fn list<K>(link: &Link, api: Api<K>, label: &str, params: ListParams) -> Result<Vec<K>, LinkError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut all = Vec::new();
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list(&params).await.map_err(|error| link.failed("list", label, error))?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

fn of_node(node: &Node) -> NodeFacts {
    let status = node.status.clone().unwrap_or_default();
    let conditions: BTreeMap<String, (String, String)> = status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .map(|condition| (condition.type_, (condition.status, condition.reason.unwrap_or_default())))
        .collect();
    let mut roles: Vec<String> = node
        .labels()
        .iter()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None => (key == "kubernetes.io/role").then(|| value.clone()),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.dedup();
    NodeFacts {
        name: node.name_any(),
        ready: conditions.get("Ready").is_some_and(|(status, _)| status == "True"),
        schedulable: !node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
        cordoned_by: node.annotations().get(CORDONED_BY).cloned(),
        roles,
        kubelet_version: status.node_info.map(|it| it.kubelet_version).unwrap_or_default(),
        conditions,
    }
}

fn of_operator(operator: &DynamicObject) -> OperatorFacts {
    let conditions = operator.data.pointer("/status/conditions").and_then(Value::as_array);
    let condition = |type_: &str| {
        conditions.into_iter().flatten().find(|it| it.get("type").and_then(Value::as_str) == Some(type_))
    };
    let is = |type_: &str| condition(type_).and_then(|it| it.get("status")?.as_str()) == Some("True");
    let versions = operator.data.pointer("/status/versions").and_then(Value::as_array);
    let version =
        versions.into_iter().flatten().find(|it| it.get("name").and_then(Value::as_str) == Some("operator"));
    let wrong = if is("Degraded") {
        condition("Degraded")
    } else {
        condition("Available").filter(|_| !is("Available"))
    };
    OperatorFacts {
        name: operator.name_any(),
        version: version.and_then(|it| it.get("version")?.as_str().map(str::to_owned)),
        available: is("Available"),
        progressing: is("Progressing"),
        degraded: is("Degraded"),
        message: wrong.and_then(|it| it.get("message")?.as_str().map(str::to_owned)).unwrap_or_default(),
    }
}

fn is_critical(pod: &Pod) -> bool {
    let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref());
    matches!(class, Some("system-cluster-critical" | "system-node-critical"))
}

/// Why a pod is not ready; `None` if it is, or has succeeded.
fn not_ready(pod: &Pod) -> Option<String> {
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_else(|| "Unknown".to_owned());
    let ready =
        status.conditions.unwrap_or_default().into_iter().find(|condition| condition.type_ == "Ready");
    if phase == "Succeeded" || ready.as_ref().is_some_and(|ready| ready.status == "True") {
        return None;
    }
    let waiting = status
        .container_statuses
        .unwrap_or_default()
        .into_iter()
        .find_map(|container| Some(format!("{}: {}", container.name, container.state?.waiting?.reason?)));
    let why = waiting.or_else(|| ready.and_then(|ready| ready.reason));
    Some(why.map_or(phase.clone(), |why| format!("{phase}, {why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn facts_of_a_node_come_from_its_status() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "a", "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/infra": ""},
                "annotations": {CORDONED_BY: "m1"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "nodeInfo": {"kubeletVersion": "v1.37.1", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}},
        }))
        .unwrap();
        let facts = of_node(&node);
        assert!(facts.ready && !facts.schedulable);
        assert_eq!((facts.cordoned_by.as_deref(), facts.kubelet_version.as_str()), (Some("m1"), "v1.37.1"));
        assert_eq!(facts.roles, ["infra", "worker"]);
        let bare = of_node(&serde_json::from_value(json!({"metadata": {"name": "b"}})).unwrap());
        assert!(!bare.ready && bare.schedulable && bare.roles.is_empty());
    }

    #[test]
    fn a_pod_that_is_not_ready_has_a_reason() {
        let check = |status: serde_json::Value, expect: Option<&str>| {
            let pod: Pod = serde_json::from_value(json!({"status": status})).unwrap();
            assert_eq!(not_ready(&pod).as_deref(), expect);
        };
        check(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), None);
        check(json!({"phase": "Succeeded"}), None);
        check(json!({}), Some("Unknown"));
        let unready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]});
        check(unready, Some("Running, ContainersNotReady"));
        let waiting = json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        check(
            json!({"phase": "Running", "containerStatuses": waiting}),
            Some("Running, c: CrashLoopBackOff"),
        );
    }
}
