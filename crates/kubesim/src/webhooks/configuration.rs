//! The webhooks of a cluster, and which writes they want to see.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::review::{Operation, Phase, Question};
use crate::kinds::Kind;
use crate::objects::Objects;
use crate::registry::Registry;
use crate::selector::LabelSelector;

/// The start of the tables of all configurations.
pub(crate) const TABLES: &str = "admissionregistration.k8s.io/";
const MUTATING: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";

/// All webhooks, in the order in which they are called.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    mutating: Vec<Arc<Webhook>>,
    validating: Vec<Arc<Webhook>>,
}

/// One webhook.
#[derive(Debug)]
pub(super) struct Webhook {
    pub(super) name: String,
    /// Its configuration: URL or service, and the certificates that are trusted.
    pub(super) client: Value,
    pub(super) timeout: Duration,
    /// A failed call does not fail the request.
    pub(super) ignores_failure: bool,
    /// It can be called although nothing will be written.
    pub(super) supports_dry_run: bool,
    /// It is called again if a later webhook has changed the object.
    pub(super) is_reinvoked: bool,
    /// The version of AdmissionReview that it is sent.
    pub(super) review_version: Option<&'static str>,
    matches_equivalent: bool,
    rules: Vec<Rule>,
    namespaces: Option<LabelSelector>,
    objects: Option<LabelSelector>,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl Webhooks {
    /// Reads all configurations.
    pub(crate) fn new(objects: &Objects) -> Webhooks {
        let read = |table: &str| {
            let configurations = objects.range(table, "", "").map(|(_, object)| object.value());
            configurations
                .flat_map(|one| one["webhooks"].as_array().cloned().unwrap_or_default())
                .map(|webhook| Arc::new(Webhook::new(&webhook)))
                .collect()
        };
        Webhooks { mutating: read(MUTATING), validating: read(VALIDATING) }
    }

    /// Whether there are no webhooks at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    /// The webhooks that are called in this phase.
    pub(super) fn of(&self, phase: Phase) -> &[Arc<Webhook>] {
        match phase {
            Phase::Mutate => &self.mutating,
            Phase::Validate => &self.validating,
        }
    }

    /// Whether a webhook may want to see this, judged by its rules alone.
    pub(crate) fn concern(&self, question: &Question, kinds: &Registry) -> bool {
        self.of(question.phase).iter().any(|webhook| webhook.kind_of(question, kinds).is_some())
    }
}

impl Webhook {
    fn new(value: &Value) -> Webhook {
        let text = |field: &str| value[field].as_str().unwrap_or_default();
        let strings = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let rules = value["rules"].as_array().into_iter().flatten().map(|rule| Rule {
            operations: strings(&rule["operations"]),
            groups: strings(&rule["apiGroups"]),
            versions: strings(&rule["apiVersions"]),
            resources: strings(&rule["resources"]),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        });
        let versions = strings(&value["admissionReviewVersions"]);
        Webhook {
            name: text("name").to_owned(),
            client: value["clientConfig"].clone(),
            timeout: Duration::from_secs(value["timeoutSeconds"].as_u64().unwrap_or(10)),
            ignores_failure: text("failurePolicy") == "Ignore",
            supports_dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            review_version: versions.iter().find_map(|version| match version.as_str() {
                "v1" => Some("v1"),
                "v1beta1" => Some("v1beta1"),
                _ => None,
            }),
            matches_equivalent: text("matchPolicy") != "Exact",
            rules: rules.collect(),
            namespaces: selector(&value["namespaceSelector"]),
            objects: selector(&value["objectSelector"]),
        }
    }

    /// The kind in whose version the webhook wants to see a write, if it wants to see it.
    pub(super) fn kind_of(&self, question: &Question, kinds: &Registry) -> Option<Arc<Kind>> {
        let matches = |kind: &Kind| self.rules.iter().any(|rule| rule.matches(question, kind));
        if matches(&question.kind) {
            return Some(question.kind.clone());
        }
        if !self.matches_equivalent {
            return None;
        }
        kinds.all().find(|kind| kind.table() == question.kind.table() && matches(kind)).cloned()
    }

    /// Whether the labels of the namespace and of the object are those that the webhook wants to see.
    pub(super) fn selects(&self, question: &Question, object: &Value, namespace: Option<&Value>) -> bool {
        let in_namespace = match (&self.namespaces, namespace) {
            (Some(selector), Some(namespace)) => selector.matches_object(namespace),
            // Objects outside of namespaces are never exempt.
            _ => true,
        };
        let by_labels = self.objects.as_ref().is_none_or(|selector| {
            [object, &question.old].into_iter().any(|one| !one.is_null() && selector.matches_object(one))
        });
        in_namespace && by_labels
    }
}

/// A selector, unless it selects everything.
fn selector(value: &Value) -> Option<LabelSelector> {
    let selector = LabelSelector::from_object(Some(value))?;
    (!selector.is_empty()).then_some(selector)
}

impl Rule {
    fn matches(&self, question: &Question, kind: &Kind) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        let is_namespace = kind.group().is_empty() && kind.kind() == "Namespace";
        let in_scope = match self.scope.as_str() {
            "Namespaced" => kind.is_namespaced() && !is_namespace,
            "Cluster" => !kind.is_namespaced(),
            _ => true,
        };
        in_scope
            && has(&self.operations, question.operation.as_str())
            && has(&self.groups, kind.group())
            && has(&self.versions, kind.version())
            && self.resources.iter().any(|resource| {
                let (resource, below) = resource.split_once('/').unwrap_or((resource, ""));
                (resource == "*" || resource == kind.plural())
                    && (below == "*" || below == question.subresource)
            })
    }
}

/// Which operations exist, as rules name them.
impl Operation {
    /// The name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    fn webhook(change: Value) -> Webhook {
        let mut value = json!({
            "name": "a.example.test",
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "nodes/status"]}],
        });
        crate::patch::merge(&value.clone(), &change).map(|merged| value = merged).unwrap();
        Webhook::new(&value)
    }

    fn question(operation: Operation, kind: &str, subresource: &str) -> Question {
        Question {
            phase: Phase::Mutate,
            operation,
            kind: kinds::find("", kind).unwrap().clone(),
            subresource: subresource.to_owned(),
            namespace: "default".to_owned(),
            name: "a".to_owned(),
            object: json!({"metadata": {"labels": {"tier": "web"}}}),
            old: Value::Null,
            dry_run: false,
        }
    }

    #[test]
    fn rules_select_writes() {
        let registry = Registry::default();
        let hook = webhook(json!({}));
        for (question, expect) in [
            (question(Operation::Create, "Pod", ""), true),
            (question(Operation::Update, "Pod", ""), false),
            (question(Operation::Create, "Pod", "status"), false),
            (question(Operation::Create, "Node", ""), false),
            (question(Operation::Create, "Node", "status"), true),
        ] {
            assert_eq!(hook.kind_of(&question, &registry).is_some(), expect, "{question:?}");
        }
    }

    #[test]
    fn labels_select_objects_and_namespaces() {
        let question = question(Operation::Create, "Pod", "");
        let namespace = json!({"metadata": {"labels": {"team": "a"}}});
        let selects = |change| webhook(change).selects(&question, &question.object, Some(&namespace));
        assert!(selects(json!({"objectSelector": {}, "namespaceSelector": {}})));
        assert!(selects(json!({"objectSelector": {"matchLabels": {"tier": "web"}}})));
        assert!(!selects(json!({"objectSelector": {"matchLabels": {"tier": "db"}}})));
        assert!(!selects(json!({"namespaceSelector": {"matchLabels": {"team": "b"}}})));
        let outside = webhook(json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}));
        assert!(outside.selects(&question, &question.object, None));
    }
}
