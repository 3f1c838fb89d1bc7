//! In which order objects are applied. Pure.

use serde_json::Value;

use super::documents::Document;

/// A step of an apply; everything of one is there before the next begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// What others live in.
    Namespace,
    /// Kinds that others are of; waited for until they are established.
    Definition,
    /// What workloads refer to.
    Ground,
    /// Everything else.
    Work,
    /// What calls back into what was applied before it: too early, it would refuse all else.
    Gate,
}

pub(crate) fn rank(document: &Document) -> Rank {
    match (document.group(), document.kind.as_str()) {
        ("", "Namespace") => Rank::Namespace,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Rank::Definition,
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
        | ("scheduling.k8s.io", "PriorityClass") => Rank::Ground,
        ("admissionregistration.k8s.io", _) | ("apiregistration.k8s.io", _) => Rank::Gate,
        _ => Rank::Work,
    }
}

/// What a CustomResourceDefinition among the documents says of the kinds that it brings.
pub(crate) struct Defined {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
    pub(crate) versions: Vec<String>,
}

/// The kinds that `documents` bring themselves.
pub(crate) fn defined(documents: &[Document]) -> Vec<Defined> {
    let definitions = documents.iter().filter(|document| rank(document) == Rank::Definition);
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
    fn what_others_need_comes_first() {
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
