//! The order in which objects are applied. Pure.

use serde_json::Value;

use super::documents::Document;

/// A phase of an apply; its objects exist before the next phase begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApplyPhase {
    /// Namespaces.
    Namespace,
    /// Custom resource definitions; the apply waits until they are established.
    Definition,
    /// Objects that workloads refer to.
    Ground,
    /// Everything else.
    Work,
    /// Webhooks, which call what was applied before; applied too early, they would reject everything else.
    Gate,
}

pub(crate) fn rank(document: &Document) -> ApplyPhase {
    match (document.group(), document.kind.as_str()) {
        ("", "Namespace") => ApplyPhase::Namespace,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => ApplyPhase::Definition,
        (
            "",
            "ServiceAccount"
            | "Secret"
            | "ConfigMap"
            | "PersistentVolume"
            | "PersistentVolumeClaim"
            | "LimitRange"
            | "ResourceQuota",
        )
        | ("rbac.authorization.k8s.io", _)
        | ("storage.k8s.io", "StorageClass")
        | ("scheduling.k8s.io", "PriorityClass") => ApplyPhase::Ground,
        ("admissionregistration.k8s.io", _) | ("apiregistration.k8s.io", _) => ApplyPhase::Gate,
        _ => ApplyPhase::Work,
    }
}

/// The kinds that a CustomResourceDefinition among the documents defines.
pub(crate) struct Defined {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
    pub(crate) versions: Vec<String>,
}

/// The kinds that `documents` define themselves.
pub(crate) fn defined(documents: &[Document]) -> Vec<Defined> {
    let definitions = documents.iter().filter(|document| rank(document) == ApplyPhase::Definition);
    definitions
        .filter_map(|document| {
            let text = |path: &str| document.object.pointer(path).and_then(Value::as_str).map(str::to_owned);
            let versions = document.object.pointer("/spec/versions").and_then(Value::as_array);
            let served = versions
                .into_iter()
                .flatten()
                .filter(|version| version.get("served") == Some(&Value::Bool(true)));
            Some(Defined {
                group: text("/spec/group")?,
                kind: text("/spec/names/kind")?,
                plural: text("/spec/names/plural")?,
                namespaced: text("/spec/scope")? == "Namespaced",
                versions: served
                    .filter_map(|version| version.get("name")?.as_str().map(str::to_owned))
                    .collect(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::documents::Documents;
    use super::*;

    #[test]
    fn dependencies_are_applied_first() {
        let yaml = [
            "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
            "apps/v1 Deployment",
            "v1 ConfigMap",
            "example.dev/v1 Thing",
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            "v1 Namespace",
        ]
        .map(|it| it.split_once(' ').unwrap())
        .map(|(version, kind)| format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}}}"))
        .join("\n---\n");
        let documents = Documents::parse(&yaml).unwrap();
        let mut order: Vec<&Document> = documents.all().iter().collect();
        order.sort_by_key(|document| rank(document));
        let kinds: Vec<_> = order.iter().map(|document| document.kind.as_str()).collect();
        let expect = [
            "Namespace",
            "CustomResourceDefinition",
            "ConfigMap",
            "Deployment",
            "Thing",
            "ValidatingWebhookConfiguration",
        ];
        assert_eq!(kinds, expect);
    }
}
