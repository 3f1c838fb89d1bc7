//! Kinds of CustomResourceDefinitions: one for each served version.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::row::{SCALE, STATUS, Subresource};
use super::{Kind, Names, Row, columns};
use crate::registry::precedence;
use crate::schema::{self, Rules};

/// The settings of one version of a CustomResourceDefinition.
#[derive(Debug)]
pub struct Custom {
    /// Whether it has the subresource `status`.
    pub has_status: bool,
    /// The paths of the subresource `scale`.
    pub scale: Option<Scale>,
    /// Subresources, for discovery.
    pub subresources: Vec<Subresource>,
    /// Columns besides the name; the age by default.
    pub columns: Vec<CustomColumn>,
    /// Fields by which objects can be selected, without the leading dot.
    pub selectable: Vec<String>,
    /// The validation rules in CEL.
    pub rules: Rules,
    /// Warnings about rules that are not enforced here.
    pub unenforced_rules: Vec<String>,
    /// The warning for every request, if the version is deprecated.
    pub deprecation: Option<String>,
    /// The schema of the definition, for OpenAPI.
    pub published: Value,
}

/// The paths of the `scale` subresource, as JSON pointers.
#[derive(Debug)]
pub struct Scale {
    /// The path of the desired number of replicas.
    pub spec_replicas: String,
    /// The path of the current number of replicas.
    pub status_replicas: String,
    /// The path of the selector.
    pub selector: Option<String>,
}

/// A printer column.
#[derive(Debug)]
pub struct CustomColumn {
    /// The heading.
    pub name: String,
    /// The type.
    pub kind: String,
    /// The format.
    pub format: String,
    /// The description.
    pub description: String,
    /// 0 is always shown.
    pub priority: i64,
    /// The path of the value.
    pub path: String,
}

impl CustomColumn {
    /// The cell of an object.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = json_path(object, &self.path);
        match (self.kind.as_str(), found.as_slice()) {
            (_, []) => Value::Null,
            ("date", [time, ..]) => match time.as_str().and_then(|time| time.parse::<Timestamp>().ok()) {
                Some(time) => json!(columns::human_duration(now.as_second() - time.as_second())),
                None => json!("<invalid>"),
            },
            ("integer", [value, ..]) => value.as_i64().map_or(Value::Null, |number| json!(number)),
            ("number", [value, ..]) => value.as_f64().map_or(Value::Null, |number| json!(number)),
            ("boolean", [value, ..]) => value.as_bool().map_or(Value::Null, |truth| json!(truth)),
            (_, values) => {
                let texts: Vec<String> = values
                    .iter()
                    .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                    .collect();
                json!(texts.join(","))
            }
        }
    }
}

impl Kind {
    /// The kinds of a definition: one for each served version. A version with an unusable schema has none.
    pub fn from_definition(definition: &Value) -> Vec<Arc<Kind>> {
        let versions = definition["spec"]["versions"].as_array();
        versions
            .into_iter()
            .flatten()
            .filter(|version| version["served"] == true)
            .filter_map(|version| Kind::custom_version(&definition["spec"], version).map(Arc::new))
            .collect()
    }

    fn custom_version(spec: &Value, version: &Value) -> Option<Kind> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let texts = |value: &Value| -> Vec<std::borrow::Cow<'static, str>> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| one.as_str().map(|one| one.to_owned().into()))
                .collect()
        };
        let names = &spec["names"];
        let (group, plural) = (text(&spec["group"]), text(&names["plural"]));
        let published = version["schema"]["openAPIV3Schema"].clone();
        let schema = schema::parse_crd(&published).ok()?;
        let rules = Rules::parse(&published);
        let subresources = &version["subresources"];
        let scale = subresources["scale"].is_object().then(|| Scale {
            spec_replicas: pointer(&text(&subresources["scale"]["specReplicasPath"])),
            status_replicas: pointer(&text(&subresources["scale"]["statusReplicasPath"])),
            selector: subresources["scale"]["labelSelectorPath"].as_str().map(pointer),
        });
        let has_status = subresources["status"].is_object();
        let row = Row {
            generation: true,
            ..if spec["scope"] == "Namespaced" {
                Row::namespaced("", "", "", "")
            } else {
                Row::cluster_scoped("", "", "", "")
            }
        };
        let selectable = version["selectableFields"].as_array();
        Some(Kind {
            row,
            table: format!("{group}/{plural}").into(),
            names: Names {
                group: group.into(),
                version: text(&version["name"]).into(),
                kind: text(&names["kind"]).into(),
                list: text(&names["listKind"]).into(),
                plural: plural.into(),
                singular: text(&names["singular"]).into(),
                short: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
            },
            schema: Some(if has_status { schema.with_status() } else { schema }),
            custom: Some(Custom {
                has_status,
                subresources: [(has_status, STATUS), (scale.is_some(), SCALE)]
                    .into_iter()
                    .filter_map(|(has, subresource)| has.then_some(subresource))
                    .collect(),
                scale,
                columns: printer_columns(&version["additionalPrinterColumns"]),
                selectable: selectable
                    .into_iter()
                    .flatten()
                    .map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned())
                    .collect(),
                unenforced_rules: rules
                    .unenforced()
                    .into_iter()
                    .map(|rule| {
                        format!("this simulated API server does not enforce the validation rule {rule}")
                    })
                    .collect(),
                rules,
                deprecation: deprecation(spec, version),
                published,
            }),
        })
    }
}

/// The warning for requests to a deprecated version: that of the definition, or one that names the version to use.
fn deprecation(spec: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind, name) = (text(&spec["group"]), text(&spec["names"]["kind"]), text(&version["name"]));
    let newest = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(&other["name"]))
        .filter(|other| precedence(other) > precedence(&name))
        .max_by_key(|other| precedence(other));
    let mut warning = format!("{group}/{name} {kind} is deprecated");
    if let Some(newest) = newest {
        warning += &format!("; use {group}/{newest} {kind}");
    }
    Some(warning)
}

fn printer_columns(definitions: &Value) -> Vec<CustomColumn> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(definitions) = definitions.as_array().filter(|columns| !columns.is_empty()) else {
        return vec![CustomColumn {
            name: "Age".into(),
            kind: "date".into(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            path: ".metadata.creationTimestamp".into(),
        }];
    };
    definitions
        .iter()
        .map(|column| CustomColumn {
            name: text(&column["name"]),
            kind: text(&column["type"]),
            format: text(&column["format"]),
            description: text(&column["description"]),
            priority: column["priority"].as_i64().unwrap_or(0),
            path: text(&column["jsonPath"]),
        })
        .collect()
}

/// `.spec.replicas` as a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// The values at a path of a printer column: fields, `['quoted']` fields, indexes, `[*]` and `[?(@.field=="value")]`.
/// An invalid path finds nothing.
pub fn json_path<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}');
    while !rest.is_empty() && !found.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let Some(end) = end_of_bracket(after) else { return Vec::new() };
            found = found.into_iter().flat_map(|value| bracket(value, &after[..end])).collect();
            rest = &after[end + 1..];
        } else {
            let after = rest.strip_prefix('.').unwrap_or(rest);
            let (name, remaining) = field_name(after);
            if !name.is_empty() {
                found = found.into_iter().filter_map(|value| value.get(&name)).collect();
            } else if remaining == after && !after.starts_with('[') {
                return Vec::new();
            }
            rest = remaining;
        }
    }
    found.retain(|value| !value.is_null());
    found
}

/// The index of the closing bracket; brackets within quotes do not count.
fn end_of_bracket(text: &str) -> Option<usize> {
    let mut quote = None;
    for (index, character) in text.char_indices() {
        match quote {
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if character == '\'' || character == '"' => quote = Some(character),
            None if character == ']' => return Some(index),
            None => {}
        }
    }
    None
}

/// A field's name up to the next dot or bracket; `\.` is a dot in the name.
fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => {
                if let Some((_, escaped)) = characters.next() {
                    name.push(escaped);
                }
            }
            '.' | '[' => return (name, &text[index..]),
            other => name.push(other),
        }
    }
    (name, "")
}

fn bracket<'a>(value: &'a Value, inside: &str) -> Vec<&'a Value> {
    let items = || value.as_array().into_iter().flatten();
    if inside == "*" {
        return match value {
            Value::Object(fields) => fields.values().collect(),
            _ => items().collect(),
        };
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        let Some((left, right)) = condition.split_once("==") else { return Vec::new() };
        let left = left.trim().trim_start_matches('@');
        let expected = right.trim().trim_matches(['\'', '"']);
        return items()
            .filter(|item| {
                json_path(item, left).iter().any(|found| match found {
                    Value::String(text) => text == expected,
                    other => *other.to_string() == *expected,
                })
            })
            .collect();
    }
    if let Some(name) = inside.strip_prefix(['\'', '"']).and_then(|text| text.strip_suffix(['\'', '"'])) {
        return value.get(name.replace("\\.", ".")).into_iter().collect();
    }
    match inside.parse::<i64>() {
        Ok(index) if index < 0 => {
            let from_end = usize::try_from(-index).unwrap_or(usize::MAX);
            items().rev().nth(from_end.saturating_sub(1)).into_iter().collect()
        }
        Ok(index) => value.get(usize::try_from(index).unwrap_or(usize::MAX)).into_iter().collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_json_path_finds_the_values_of_printer_columns() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "status": {"n": 3, "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
        });
        let check = |path: &str, expect: &[Value]| {
            let found: Vec<Value> = json_path(&object, path).into_iter().cloned().collect();
            assert_eq!(found, expect, "{path}");
        };
        check(".status.n", &[json!(3)]);
        check(r#".status.conditions[?(@.type=="Ready")].status"#, &[json!("True")]);
        check(".status.conditions[?(@.type=='Other')].status", &[json!("False")]);
        check(".status.conditions[*].type", &[json!("Ready"), json!("Other")]);
        check(".status.conditions[0].type", &[json!("Ready")]);
        check(".status.conditions[-1].type", &[json!("Other")]);
        check(r".metadata.labels['a\.b/c']", &[json!("x")]);
        check(r".metadata.labels.a\.b/c", &[json!("x")]);
        check(".missing.field", &[]);
        check(".status.conditions[", &[]);
    }

    proptest! {
        #[test]
        fn no_path_panics_or_hangs(path in "[.\\[\\]a-z0-9*?()@='\"\\\\-]{0,30}") {
            let _ = json_path(&json!({"a": [{"b": 1}]}), &path);
        }
    }
}
