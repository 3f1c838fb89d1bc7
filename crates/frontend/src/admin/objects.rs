//! Kubernetes objects of a cluster, read with its stored kubeconfig. Secrets are never read; objects outside the platform only with
//! `unrestricted`.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use kubelink::{Failure, LinkError, Target, objects};
use serde_json::{Value, json};

use super::AdminState;
use super::params::MaybeVersion;
use crate::params::ClusterPath;
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code};

/// Longest wait for the cluster.
const LOOK_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum number of objects in a list.
const OBJECTS_MAX: u32 = 500;

/// Longest Kubernetes name.
const NAME_BYTES_MAX: usize = 255;

/// Groups whose cluster-scoped objects belong to the platform.
const PLATFORM_GROUPS: [&str; 12] = [
    "apiserver.openshift.io",
    "aro.openshift.io",
    "authorization.openshift.io",
    "certificates.k8s.io",
    "config.openshift.io",
    "console.openshift.io",
    "imageregistry.operator.openshift.io",
    "machine.openshift.io",
    "machineconfiguration.openshift.io",
    "operator.openshift.io",
    "rbac.authorization.k8s.io",
    "metrics.k8s.io",
];

/// Namespaces of the platform, which contain nothing of a customer. They are listed one by one, because a prefix would match namespaces
/// of customers.
const PLATFORM_NAMESPACES: [&str; 62] = [
    "openshift",
    "openshift-apiserver",
    "openshift-apiserver-operator",
    "openshift-authentication",
    "openshift-authentication-operator",
    "openshift-azure-guardrails",
    "openshift-azure-logging",
    "openshift-azure-operator",
    "openshift-cloud-controller-manager",
    "openshift-cloud-controller-manager-operator",
    "openshift-cloud-credential-operator",
    "openshift-cloud-network-config-controller",
    "openshift-cluster-csi-drivers",
    "openshift-cluster-machine-approver",
    "openshift-cluster-node-tuning-operator",
    "openshift-cluster-samples-operator",
    "openshift-cluster-storage-operator",
    "openshift-cluster-version",
    "openshift-config",
    "openshift-config-managed",
    "openshift-config-operator",
    "openshift-console",
    "openshift-console-operator",
    "openshift-console-user-settings",
    "openshift-controller-manager",
    "openshift-controller-manager-operator",
    "openshift-dns",
    "openshift-dns-operator",
    "openshift-etcd",
    "openshift-etcd-operator",
    "openshift-host-network",
    "openshift-image-registry",
    "openshift-ingress",
    "openshift-ingress-canary",
    "openshift-ingress-operator",
    "openshift-insights",
    "openshift-kube-apiserver",
    "openshift-kube-apiserver-operator",
    "openshift-kube-controller-manager",
    "openshift-kube-controller-manager-operator",
    "openshift-kube-scheduler",
    "openshift-kube-scheduler-operator",
    "openshift-kube-storage-version-migrator",
    "openshift-kube-storage-version-migrator-operator",
    "openshift-machine-api",
    "openshift-machine-config-operator",
    "openshift-managed-upgrade-operator",
    "openshift-marketplace",
    "openshift-monitoring",
    "openshift-multus",
    "openshift-network-diagnostics",
    "openshift-network-node-identity",
    "openshift-network-operator",
    "openshift-node",
    "openshift-oauth-apiserver",
    "openshift-operator-lifecycle-manager",
    "openshift-operators",
    "openshift-ovn-kubernetes",
    "openshift-route-controller-manager",
    "openshift-sdn",
    "openshift-service-ca",
    "openshift-service-ca-operator",
];

/// Shows an object of a cluster, or all objects of a kind.
#[utoipa::path(
    get, path = "/kubernetesobjects", operation_id = "getKubernetesObjects", tag = "clusters",
    params(
        ClusterPath, MaybeVersion,
        ("kind" = String, Query, description = "The kind, or kind.group: `Node`, `Deployment.apps`. Never a Secret."),
        ("namespace" = Option<String>, Query, description = "Only of this namespace."),
        ("name" = Option<String>, Query, description = "Only this one."),
        ("unrestricted" = Option<bool>, Query, description = "Also what is not the platform's own."),
    ),
    responses(
        (status = 200, description = "The object, or a list of them.", body = Object),
        (status = 502, description = "The cluster does not respond, or rejects the request."),
        (status = 504, description = "The cluster did not respond in time."),
    )
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let word = |name: &'static str| named(name, request.query.get(name)?);
    let (namespace, name) = (word("namespace")?, word("name")?);
    let Some(kind) = word("kind")? else {
        return Err(ApiError::invalid_parameter(
            "kind",
            "The kind must be given, such as Node or Deployment.apps.",
        ));
    };
    let unrestricted = request.query.get_bool("unrestricted")?;
    let cluster = state.cluster_forms.find(&request.resource_id()?).await?.uuid;
    let reading = read(&state, cluster, kind, namespace, name, unrestricted);
    let found = tokio::time::timeout(LOOK_TIME_MAX, reading).await.map_err(|_| {
        let message = format!("The cluster did not respond within {} s.", LOOK_TIME_MAX.as_secs());
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, Code::InternalServerError, message)
    })??;
    Ok(ApiResponse::ok(&found))
}

async fn read(
    state: &AdminState,
    cluster: uuid::Uuid,
    kind: &str,
    namespace: Option<&str>,
    name: Option<&str>,
    unrestricted: bool,
) -> Result<Value, ApiError> {
    let link = state.connections.link(cluster).await.map_err(|error| trouble(error.to_string()))?;
    let (resource, scope) = objects::resolve_kind(&link, kind).await.map_err(|error| link_error(&error))?;
    // A namespace does not apply to cluster-scoped objects.
    let namespace = namespace.filter(|_| scope == objects::Scope::Namespaced);
    check(&resource.group, &resource.plural, namespace, unrestricted)?;
    if let Some(name) = name {
        let target = Target { resource, namespace: namespace.map(str::to_owned), name: name.to_owned() };
        let found = link.get(&target).await.map_err(|error| link_error(&error))?;
        let object = found.ok_or_else(|| ApiError::not_found(format!("The cluster has no {target}.")))?;
        return serde_json::to_value(&object).map(plain).map_err(ApiError::internal);
    }
    let found =
        objects::list(&link, &resource, namespace, OBJECTS_MAX).await.map_err(|error| link_error(&error))?;
    let items: Result<Vec<Value>, _> = found.objects.iter().map(serde_json::to_value).collect();
    let items: Vec<Value> = items.map_err(ApiError::internal)?.into_iter().map(plain).collect();
    Ok(json!({
        "apiVersion": resource.api_version,
        "kind": format!("{}List", resource.kind),
        "metadata": {"continue": if found.is_cut { "cut" } else { "" }},
        "items": items,
    }))
}

/// Checks whether objects may be shown: secrets never, objects outside the platform only with `unrestricted`.
fn check(group: &str, plural: &str, namespace: Option<&str>, unrestricted: bool) -> Result<(), ApiError> {
    let forbidden = |message: &str| Err(ApiError::new(StatusCode::FORBIDDEN, Code::Forbidden, message));
    if plural == "secrets" || group == "oauth.openshift.io" {
        return forbidden("Secrets cannot be shown.");
    }
    if unrestricted {
        return Ok(());
    }
    match namespace {
        Some(namespace) if !PLATFORM_NAMESPACES.contains(&namespace) => {
            forbidden("The namespace does not belong to the platform; set unrestricted=true to show it.")
        }
        None if !PLATFORM_GROUPS.contains(&group) && (group, plural) != ("", "nodes") => {
            forbidden("The kind does not belong to the platform; set unrestricted=true to show it.")
        }
        Some(_) | None => Ok(()),
    }
}

/// Validates a Kubernetes name.
fn named<'a>(parameter: &'static str, text: Option<&'a str>) -> Result<Option<&'a str>, ApiError> {
    let accepted = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' || byte == b':';
    match text {
        // Path components with a special meaning are not names.
        Some(text)
            if text.len() > NAME_BYTES_MAX || !text.bytes().all(accepted) || matches!(text, "." | "..") =>
        {
            let message =
                format!("It must have 1 to {NAME_BYTES_MAX} letters, digits, hyphens, dots or colons.");
            Err(ApiError::invalid_parameter(parameter, message))
        }
        text => Ok(text),
    }
}

/// Removes metadata that only controllers read.
fn plain(mut object: Value) -> Value {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    object
}

/// The error response for a failed request to a cluster.
fn link_error(error: &LinkError) -> ApiError {
    let status = match &error.failure {
        Failure::UnknownKind { kind, .. } => {
            return ApiError::invalid_parameter("kind", format!("The cluster has no kind {kind:?}."));
        }
        Failure::NotFound { .. } => StatusCode::NOT_FOUND,
        Failure::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let code = if status == StatusCode::NOT_FOUND { Code::NotFound } else { Code::InternalServerError };
    let text = format!("The request to the cluster failed: {}.", kubelink::error::error_chain(error));
    ApiError::new(status, code, text)
}

fn trouble(text: String) -> ApiError {
    let message = format!("The request to the cluster failed: {text}.");
    ApiError::new(StatusCode::BAD_GATEWAY, Code::InternalServerError, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown_and_customer_objects_only_when_unrestricted() {
        let check = |group: &str, plural: &str, namespace: Option<&str>, unrestricted: bool, expect: bool| {
            let checked = check(group, plural, namespace, unrestricted);
            assert_eq!(checked.is_ok(), expect, "{group} {plural} {namespace:?} {unrestricted}");
        };
        for unrestricted in [true, false] {
            check("", "secrets", Some("openshift-config"), unrestricted, false);
            check("", "secrets", None, unrestricted, false);
            check("oauth.openshift.io", "oauthaccesstokens", None, unrestricted, false);
            check("", "nodes", None, unrestricted, true);
            check("config.openshift.io", "clusteroperators", None, unrestricted, true);
            check("", "pods", Some("openshift-etcd"), unrestricted, true);
            check("", "pods", Some("shop"), unrestricted, unrestricted);
            check("", "pods", Some("openshift-etcd-of-mine"), unrestricted, unrestricted);
            check("", "namespaces", None, unrestricted, unrestricted);
        }
    }

    #[test]
    fn invalid_names_are_rejected_and_controller_metadata_is_removed() {
        assert!(named("name", Some(".")).is_err() && named("namespace", Some("..")).is_err());
        assert!(named("name", Some("a/b")).is_err() && named("name", Some(&"a".repeat(256))).is_err());
        assert!(named("name", Some("system:masters")).is_ok() && named("name", None).is_ok());
        let object = json!({"metadata": {"name": "n", "managedFields": [1],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"}}});
        assert_eq!(plain(object), json!({"metadata": {"name": "n", "annotations": {"kept": "yes"}}}));
    }
}
