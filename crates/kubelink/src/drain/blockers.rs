//! What blocks a drain: the PodDisruptionBudgets, found by their selectors and by the API server's message.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

/// A reason why pods remain, and the pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// The budgets that block the pods, as `namespace/name`; empty if something else does.
    pub budgets: Vec<String>,
    /// The pods, as `namespace/name`.
    pub pods: Vec<String>,
    /// The API server's message, or what is waited for.
    pub because: String,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pods = list(&self.pods);
        match self.budgets.as_slice() {
            [] => write!(f, "{pods} ({})", self.because),
            [one] => write!(f, "PodDisruptionBudget {one} blocks {pods} ({})", self.because),
            many => write!(f, "PodDisruptionBudgets {} block {pods} ({})", many.join(", "), self.because),
        }
    }
}

/// Most names in a sentence; the rest is a number. The fields contain all.
const NAMED_MAX: usize = 10;

pub(crate) fn list(names: &[String]) -> String {
    match names.len() {
        0 => "nothing".to_owned(),
        count if count <= NAMED_MAX => names.join(", "),
        count => format!("{} and {} more", names[..NAMED_MAX].join(", "), count - NAMED_MAX),
    }
}

/// A pod that could not be evicted, and the API server's message.
pub(crate) struct Held<'a> {
    pub(crate) name: &'a str,
    pub(crate) pod: &'a Pod,
    pub(crate) because: &'a str,
    /// Whether the API server named a budget as the cause.
    pub(crate) by_budget: bool,
}

/// Groups blocked pods by the budgets that block them. `budgets` are those of the pods' namespaces, if they could be read.
pub(crate) fn blockers(held: &[Held<'_>], budgets: &[PodDisruptionBudget]) -> Vec<Blocker> {
    let mut grouped: BTreeMap<(Vec<String>, &str), Vec<String>> = BTreeMap::new();
    for Held { name, pod, because, by_budget } in held {
        let namespace = pod.namespace().unwrap_or_default();
        // A pod with two budgets is rejected whatever they allow.
        let too_many = because.contains("more than one PodDisruptionBudget");
        let holds = |budget: &&PodDisruptionBudget| {
            budget.namespace().as_deref() == Some(&namespace)
                && (too_many || allows_none(budget))
                && covers(budget, pod)
        };
        let mut names: Vec<String> = Vec::new();
        if *by_budget || too_many {
            let found = budgets.iter().filter(holds);
            names.extend(found.map(|budget| format!("{namespace}/{}", budget.name_any())));
        }
        if names.is_empty() {
            names.extend(budget_in(because).map(|name| format!("{namespace}/{name}")));
        }
        grouped.entry((names, because)).or_default().push((*name).to_owned());
    }
    let all = grouped.into_iter();
    all.map(|((budgets, because), pods)| Blocker { budgets, pods, because: because.to_owned() }).collect()
}

/// The cause reads "The disruption budget NAME needs 2 healthy pods and has 2 currently".
fn budget_in(because: &str) -> Option<&str> {
    because.split_once("The disruption budget ")?.1.split_whitespace().next()
}

fn allows_none(budget: &PodDisruptionBudget) -> bool {
    budget.status.as_ref().is_none_or(|status| status.disruptions_allowed.unwrap_or(0) <= 0)
}

fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    budget
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.as_ref())
        .is_some_and(|selector| matches(selector, pod.labels()))
}

/// Whether a selector matches labels; an empty one matches all. An unknown operator matches nothing.
pub(crate) fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let mut expressions = selector.match_expressions.iter().flatten();
    exact
        && expressions.all(|expression| {
            let found = labels.get(&expression.key);
            let values = expression.values.as_deref().unwrap_or_default();
            match expression.operator.as_str() {
                "In" => found.is_some_and(|found| values.contains(found)),
                "NotIn" => found.is_none_or(|found| !values.contains(found)),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(labels: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "web", "labels": labels}}))
            .unwrap()
    }

    fn budget(name: &str, selector: serde_json::Value, allowed: i32) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "web"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .unwrap()
    }

    #[test]
    fn a_selector_matches_as_in_kubernetes() {
        let check = |selector: serde_json::Value, expect: bool| {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            let labels = BTreeMap::from([
                ("app".to_owned(), "web".to_owned()),
                ("tier".to_owned(), "front".to_owned()),
            ]);
            assert_eq!(matches(&selector, &labels), expect, "{selector:?}");
        };
        check(json!({}), true);
        check(json!({"matchLabels": {"app": "web"}}), true);
        check(json!({"matchLabels": {"app": "db"}}), false);
        check(json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}), true);
        check(json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false);
        check(json!({"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["web"]}]}), true);
        check(json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), true);
        check(json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}), false);
        check(
            json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}),
            false,
        );
    }

    #[test]
    fn a_pod_with_two_budgets_is_blocked_by_both_and_throttling_is_no_budget() {
        let front = pod(json!({"app": "web"}));
        let budgets = ["one", "two"].map(|name| budget(name, json!({"matchLabels": {"app": "web"}}), 1));
        let because = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let held = |because| [Held { name: "web/p", pod: &front, because, by_budget: false }];
        assert_eq!(blockers(&held(because), &budgets)[0].budgets, ["web/one", "web/two"]);
        assert!(blockers(&held("slow down"), &budgets)[0].budgets.is_empty());
    }

    #[test]
    fn blocking_budgets_are_named_with_their_pods() {
        let front = pod(json!({"app": "web"}));
        let back = pod(json!({"app": "db"}));
        let budgets = [
            budget("web-budget", json!({"matchLabels": {"app": "web"}}), 0),
            budget("easy", json!({"matchLabels": {"app": "web"}}), 1),
        ];
        let because = "The disruption budget db-budget needs 1 healthy pods and has 1 currently";
        let held = [
            Held { name: "web/front-1", pod: &front, because: "no", by_budget: true },
            Held { name: "web/front-2", pod: &front, because: "no", by_budget: true },
            Held { name: "web/back-1", pod: &back, because, by_budget: true },
        ];
        let found: Vec<_> = blockers(&held, &budgets).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "PodDisruptionBudget web/db-budget blocks web/back-1 (The disruption budget db-budget needs 1 healthy pods and has 1 currently)",
                "PodDisruptionBudget web/web-budget blocks web/front-1, web/front-2 (no)",
            ]
        );
    }
}
