//! Templates in a step's `with`: `${{ parameters.X }}` and `${{ cluster.Y }}`, replaced by values.
//!
//! A string that is one template becomes the value with its JSON type; inside a longer string the value becomes text. An
//! inserted value is never parsed again, so that it cannot introduce templates, YAML or expressions. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::problem::Problem;

const OPEN: &str = "${{";
const CLOSE: &str = "}}";

/// The members of `cluster` that templates and expressions may name.
pub(crate) const CLUSTER_MEMBERS: [&str; 7] =
    ["uuid", "id", "name", "location", "version", "provisioningState", "labels"];

/// The names that templates may refer to.
#[derive(Debug, Clone, Default)]
pub struct TemplateNames {
    /// The parameters of the task.
    pub parameters: BTreeSet<String>,
}

/// The values that replace templates.
#[derive(Debug, Clone, Copy)]
pub struct TemplateValues<'a> {
    /// The parameters, with their defaults.
    pub parameters: &'a Map<String, Value>,
    /// The cluster's facts as JSON.
    pub cluster: &'a Value,
}

/// A piece of a string.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Template(Reference<'a>),
}

#[derive(Debug, PartialEq)]
enum Reference<'a> {
    Parameter(&'a str),
    Cluster(&'a str),
    Label(&'a str),
}

impl Reference<'_> {
    fn describe(&self) -> String {
        match self {
            Reference::Parameter(name) => format!("parameters.{name}"),
            Reference::Cluster(name) => format!("cluster.{name}"),
            Reference::Label(key) => format!("cluster.labels.{key}"),
        }
    }

    fn value(&self, given: TemplateValues<'_>) -> Option<Value> {
        let found = match self {
            Reference::Parameter(name) => given.parameters.get(*name),
            Reference::Cluster(name) => given.cluster.get(*name),
            Reference::Label(key) => given.cluster.get("labels").and_then(|labels| labels.get(*key)),
        };
        found.filter(|value| !value.is_null()).cloned()
    }
}

/// Whether a value contains a template.
pub(crate) fn has_template(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(OPEN),
        Value::Array(items) => items.iter().any(has_template),
        Value::Object(members) => members.values().any(has_template),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a value contains a template that names the cluster.
pub fn names_cluster(value: &Value) -> bool {
    match value {
        Value::String(text) => pieces(text).is_ok_and(|pieces| {
            pieces
                .iter()
                .any(|piece| matches!(piece, Piece::Template(Reference::Cluster(_) | Reference::Label(_))))
        }),
        Value::Array(items) => items.iter().any(names_cluster),
        Value::Object(members) => members.values().any(names_cluster),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a string is one template and nothing else.
pub(crate) fn is_whole_template(text: &str) -> bool {
    matches!(pieces(text).as_deref(), Ok([Piece::Template(_)]))
}

/// The value with a sample in place of each template, all of them distinct: for checks of its shape.
pub(crate) fn sampled(value: &Value, count: &mut u32) -> Value {
    match value {
        Value::String(text) => {
            let sample = |piece: Piece<'_>| match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Template(_) => {
                    *count += 1;
                    format!("sample{count}")
                }
            };
            Value::String(
                pieces(text).map_or_else(|_| text.clone(), |pieces| pieces.into_iter().map(sample).collect()),
            )
        }
        Value::Array(items) => items.iter().map(|item| sampled(item, count)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), sampled(value, count))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Rejects templates that are malformed or name something unknown.
pub(crate) fn check(value: &Value, place: &str, names: &TemplateNames) -> Result<(), Problem> {
    match value {
        Value::String(text) => {
            for piece in pieces(text).map_err(|message| Problem::at(place, message))? {
                if let Piece::Template(Reference::Parameter(name)) = piece
                    && !names.parameters.contains(name)
                {
                    let known = names.parameters.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                    let known = if known.is_empty() { "there are none".to_owned() } else { known };
                    let message = format!("parameters.{name} is not a parameter of the task ({known})");
                    return Err(Problem::at(place, message));
                }
            }
            Ok(())
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| check(item, &format!("{place}[{index}]"), names)),
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            if name.contains(OPEN) {
                return Err(Problem::at(place, "a template cannot stand in a member's name"));
            }
            check(value, &format!("{place}.{name}"), names)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// The value with its templates replaced. A whole string whose parameter is absent becomes null.
pub(crate) fn fill(value: &Value, place: &str, given: TemplateValues<'_>) -> Result<Value, Problem> {
    match value {
        Value::String(text) => fill_text(text, place, given),
        Value::Array(items) => {
            let filled =
                items.iter().enumerate().map(|(index, item)| fill(item, &format!("{place}[{index}]"), given));
            Ok(Value::Array(filled.collect::<Result<_, _>>()?))
        }
        Value::Object(members) => {
            let filled = members
                .iter()
                .map(|(name, value)| Ok((name.clone(), fill(value, &format!("{place}.{name}"), given)?)));
            Ok(Value::Object(filled.collect::<Result<_, Problem>>()?))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

fn fill_text(text: &str, place: &str, given: TemplateValues<'_>) -> Result<Value, Problem> {
    let pieces = pieces(text).map_err(|message| Problem::at(place, message))?;
    if let [Piece::Template(reference)] = pieces.as_slice() {
        return Ok(reference.value(given).unwrap_or_default());
    }
    let mut filled = String::with_capacity(text.len());
    for piece in pieces {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Template(reference) => match reference.value(given) {
                Some(Value::String(text)) => filled.push_str(&text),
                Some(value @ (Value::Bool(_) | Value::Number(_))) => filled.push_str(&value.to_string()),
                Some(_) => {
                    let message = format!(
                        "{} is not a plain value and cannot stand inside a text",
                        reference.describe()
                    );
                    return Err(Problem::at(place, message));
                }
                None => return Err(Problem::at(place, format!("{} is not given", reference.describe()))),
            },
        }
    }
    Ok(Value::String(filled))
}

/// Splits a string into pieces.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        if start > 0 {
            pieces.push(Piece::Text(&rest[..start]));
        }
        let after = &rest[start + OPEN.len()..];
        let end = after
            .find(CLOSE)
            .ok_or_else(|| format!("a template is opened by {OPEN} and not closed by {CLOSE}"))?;
        pieces.push(Piece::Template(reference(after[..end].trim())?));
        rest = &after[end + CLOSE.len()..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

fn reference(inside: &str) -> Result<Reference<'_>, String> {
    let word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    if let Some(name) = inside.strip_prefix("parameters.").filter(|name| word(name)) {
        return Ok(Reference::Parameter(name));
    }
    if let Some(key) = inside.strip_prefix("cluster.labels.") {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        return match !key.is_empty() && key.chars().all(fits) {
            true => Ok(Reference::Label(key)),
            false => Err(format!("{key:?} is not the key of a label")),
        };
    }
    match inside.strip_prefix("cluster.") {
        Some(name) if CLUSTER_MEMBERS.contains(&name) => Ok(Reference::Cluster(name)),
        Some(name) => Err(format!("cluster.{name} is not known; there are {}", CLUSTER_MEMBERS.join(", "))),
        None => Err(format!("{inside:?} is neither parameters.NAME nor cluster.NAME")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn filled(value: Value) -> Result<Value, Problem> {
        let parameters =
            json!({"count": 3, "list": ["a", "b"], "name": "web", "evil": "${{ parameters.name }}: {a: b}"});
        let cluster = json!({"name": "c1", "labels": {"a.b/c": "ring-1"}, "version": null});
        let parameters = parameters.as_object().unwrap();
        fill(&value, "with", TemplateValues { parameters, cluster: &cluster })
    }

    #[test]
    fn a_whole_template_keeps_its_type_and_a_part_becomes_text() {
        let check = |text: &str, expect: Value| assert_eq!(filled(json!(text)), Ok(expect), "{text}");
        check("${{ parameters.count }}", json!(3));
        check("${{parameters.list}}", json!(["a", "b"]));
        check("${{ parameters.absent }}", json!(null));
        check("n-${{ parameters.count }}-${{ cluster.name }}", json!("n-3-c1"));
        check("${{ cluster.labels.a.b/c }}", json!("ring-1"));
        check("${{ cluster.version }}", json!(null));
        check("nothing", json!("nothing"));
        check("${{ parameters.evil }}", json!("${{ parameters.name }}: {a: b}"));
        check("x ${{ parameters.evil }}", json!("x ${{ parameters.name }}: {a: b}"));
    }

    #[test]
    fn a_value_that_is_absent_or_no_text_is_rejected_with_its_place() {
        let error = filled(json!({"a": [0, "x ${{ parameters.list }}"]})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "with.a[1]: parameters.list is not a plain value and cannot stand inside a text"
        );
        let error = filled(json!({"a": "x ${{ parameters.absent }}"})).unwrap_err();
        assert_eq!(error.to_string(), "with.a: parameters.absent is not given");
    }

    #[test]
    fn unknown_names_are_refused() {
        let names = TemplateNames { parameters: BTreeSet::from(["count".to_owned()]) };
        let rejected = |text: &str| check(&json!({"a": text}), "with", &names).unwrap_err().to_string();
        assert_eq!(
            rejected("${{ parameters.cuont }}"),
            "with.a: parameters.cuont is not a parameter of the task (count)"
        );
        assert!(rejected("${{ cluster.nam }}").contains("cluster.nam is not known; there are uuid, id"));
        assert!(rejected("${{ secrets.x }}").contains("\"secrets.x\" is neither"));
        assert!(rejected("${{ parameters.count").contains("not closed"));
        assert!(check(&json!({"${{ parameters.count }}": 1}), "with", &names).is_err());
        assert!(check(&json!({"a": "${{ parameters.count }}"}), "with", &names).is_ok());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_text_without_templates_stays(text: String) {
            let found = filled(json!(text));
            if !text.contains("${{") {
                prop_assert_eq!(found, Ok(json!(text)));
            }
        }
    }
}
