//! Label selectors of the machine API: whether they are valid, what they match, and their text.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// A selector that was checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Equals(String),
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Selector {
    /// Checks a selector; the error names the field.
    pub(crate) fn parse(selector: &LabelSelector) -> Result<Selector, String> {
        let exact = selector.match_labels.iter().flatten();
        let exact =
            exact.map(|(key, value)| Ok(Requirement { key: key.clone(), test: Test::Equals(value.clone()) }));
        let expressions = selector.match_expressions.iter().flatten().map(requirement);
        let mut requirements = exact.chain(expressions).collect::<Result<Vec<Requirement>, String>>()?;
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(Selector { requirements })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether labels meet every requirement; an empty selector matches all.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| {
            let found = labels.get(&requirement.key);
            match &requirement.test {
                Test::Equals(value) => found == Some(value),
                Test::In(values) => found.is_some_and(|found| values.contains(found)),
                Test::NotIn(values) => found.is_none_or(|found| !values.contains(found)),
                Test::Exists => found.is_some(),
                Test::Absent => found.is_none(),
            }
        })
    }
}

impl std::fmt::Display for Selector {
    /// The form of `kubectl -l` and of the scale subresource.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, Requirement { key, test }) in self.requirements.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            match test {
                Test::Equals(value) => write!(f, "{key}={value}")?,
                Test::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Test::Exists => f.write_str(key)?,
                Test::Absent => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

fn requirement(expression: &LabelSelectorRequirement) -> Result<Requirement, String> {
    let mut values = expression.values.clone().unwrap_or_default();
    values.sort();
    values.dedup();
    let key = expression.key.clone();
    let test = match (expression.operator.as_str(), values.is_empty()) {
        ("In", false) => Test::In(values),
        ("NotIn", false) => Test::NotIn(values),
        ("Exists", true) => Test::Exists,
        ("DoesNotExist", true) => Test::Absent,
        ("In" | "NotIn", true) => {
            return Err(format!(
                "spec.selector.matchExpressions: {} of key {key} needs values",
                expression.operator
            ));
        }
        ("Exists" | "DoesNotExist", false) => {
            return Err(format!(
                "spec.selector.matchExpressions: {} of key {key} takes no values",
                expression.operator
            ));
        }
        (other, _) => {
            return Err(format!(
                "spec.selector.matchExpressions: operator {other:?} of key {key} must be In, NotIn, Exists or DoesNotExist"
            ));
        }
    };
    Ok(Requirement { key, test })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(selector: serde_json::Value) -> Result<Selector, String> {
        Selector::parse(&serde_json::from_value(selector).unwrap())
    }

    #[test]
    fn a_selector_matches_as_in_kubernetes() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let check = |selector: serde_json::Value, expect: bool| {
            assert_eq!(parse(selector.clone()).unwrap().matches(&labels), expect, "{selector}");
        };
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), true);
        check(json!({"matchLabels": {"app": "web"}}), true);
        check(json!({"matchLabels": {"app": "db"}}), false);
        check(expression("app", "In", &["web", "db"]), true);
        check(expression("app", "NotIn", &["web"]), false);
        check(expression("gone", "NotIn", &["web"]), true);
        check(expression("app", "Exists", &[]), true);
        check(expression("app", "DoesNotExist", &[]), false);
    }

    #[test]
    fn the_text_of_a_selector_is_that_of_kubectl() {
        let selector = json!({
            "matchLabels": {"zone": "a", "app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]},
                {"key": "old", "operator": "DoesNotExist"},
                {"key": "new", "operator": "Exists"},
                {"key": "rack", "operator": "NotIn", "values": ["9"]},
            ],
        });
        let text = parse(selector).unwrap().to_string();
        assert_eq!(text, "app=web,new,!old,rack notin (9),tier in (a,b),zone=a");
    }

    #[test]
    fn an_invalid_requirement_is_named() {
        let check = |operator: &str, values: &[&str], expect: &str| {
            let given = json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]});
            let error = parse(given).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        check("In", &[], "In of key k needs values");
        check("Exists", &["a"], "Exists of key k takes no values");
        check("Like", &["a"], "operator \"Like\"");
    }
}
