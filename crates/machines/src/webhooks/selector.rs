//! The rules of a MachineSet's selector: it does not change, and the template's labels match it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;

use super::field::FieldError;
use super::verdict::Verdict;

const PATH: &str = "spec.selector";

pub(super) fn validate(old: Option<&Value>, new: &Value, verdict: &mut Verdict) {
    let given = new.get("spec").and_then(|it| it.get("selector")).unwrap_or(&Value::Null);
    let selector = match read(given) {
        Ok(selector) => selector,
        Err(error) => {
            let detail = format!("could not convert label selector to selector: {error}");
            return verdict.error(FieldError::invalid(PATH, given.clone(), detail));
        }
    };
    if let Some(old) = old {
        let before = old.get("spec").and_then(|it| it.get("selector")).unwrap_or(&Value::Null);
        verdict.require(read(before).is_ok_and(|before| before == selector), || {
            FieldError::forbidden(PATH, "selector is immutable")
        });
    }
    if let Some(error) = selector.match_expressions.iter().flatten().find_map(malformed) {
        let detail = format!("could not convert label selector to selector: {error}");
        return verdict.error(FieldError::invalid(PATH, given.clone(), detail));
    }
    let labels = template_labels(new);
    verdict.require(matches(&selector, &labels), || {
        FieldError::invalid(
            "spec.template.metadata.labels",
            serde_json::to_value(&labels).unwrap_or_default(),
            "`selector` does not match template `labels`",
        )
    });
}

/// Reads a selector; lists and maps without entries are the same as absent ones.
fn read(value: &Value) -> Result<LabelSelector, String> {
    if value.is_null() {
        return Ok(LabelSelector::default());
    }
    let selector: LabelSelector =
        serde_path_to_error::deserialize(value.clone()).map_err(|error| error.to_string())?;
    Ok(LabelSelector {
        match_labels: selector.match_labels.filter(|it| !it.is_empty()),
        match_expressions: selector.match_expressions.filter(|it| !it.is_empty()),
    })
}

/// Why a requirement cannot be evaluated.
fn malformed(requirement: &LabelSelectorRequirement) -> Option<String> {
    let has_values = requirement.values.as_ref().is_some_and(|it| !it.is_empty());
    match requirement.operator.as_str() {
        "In" | "NotIn" if !has_values => Some(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".to_owned(),
        ),
        "Exists" | "DoesNotExist" if has_values => {
            Some("values: Invalid value: values set must be empty for exists and does not exist".to_owned())
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
        other => Some(format!("{other:?} is not a valid label selector operator")),
    }
}

fn template_labels(set: &Value) -> BTreeMap<&str, &str> {
    let labels =
        set.get("spec").and_then(|it| it.get("template")?.get("metadata")?.get("labels")?.as_object());
    labels.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect()
}

/// Whether labels match a well-formed selector; one without requirements matches everything.
fn matches(selector: &LabelSelector, labels: &BTreeMap<&str, &str>) -> bool {
    let equal = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    equal.into_iter().all(|(name, value)| labels.get(name.as_str()) == Some(&value.as_str()))
        && expressions.into_iter().all(|requirement| {
            let value = labels.get(requirement.key.as_str());
            let is_listed =
                value.is_some_and(|value| requirement.values.iter().flatten().any(|listed| listed == value));
            match requirement.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}
