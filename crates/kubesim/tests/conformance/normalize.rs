//! Normalizes responses of two servers where they may differ: generated names, times, uids, versions.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

static UID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a valid pattern")
});
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").expect("a valid pattern"));
static AGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(\d+[smhd])+$|^<invalid>$").expect("a valid pattern"));
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b10\.\d+\.\d+\.\d+\b").expect("a valid pattern"));
static ETCD_KEY: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"Key: /[^/]+/").expect("a valid pattern"));
static TOKEN_VOLUME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("kube-api-access-[a-z0-9]{5}").expect("a valid pattern"));

/// Names of one run and their placeholders.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(Vec<(String, String)>);

impl Names {
    pub(crate) fn add(&mut self, found: &str, shown: &str) {
        self.0.push((found.to_owned(), shown.to_owned()));
    }

    /// Replaces placeholders in what a case sends.
    pub(crate) fn expand(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (found, shown)| text.replace(shown, found))
    }

    /// Replaces names in what a server returns.
    fn abstract_names(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (found, shown)| text.replace(found, shown))
    }

    pub(crate) fn text(&self, text: &str) -> String {
        let text = self.abstract_names(text);
        let text = UID.replace_all(&text, "<uid>");
        let text = TIME.replace_all(&text, "<time>");
        let text = ETCD_KEY.replace_all(&text, "Key: /<prefix>/");
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<drawn>");
        ADDRESS.replace_all(&text, "<address>").into_owned()
    }

    pub(crate) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                for (key, field) in fields.iter_mut() {
                    match (key.as_str(), &*field) {
                        ("resourceVersion", Value::String(version)) if !version.is_empty() => {
                            *field = "<version>".into();
                        }
                        ("continue", Value::String(token)) if !token.is_empty() => *field = "<token>".into(),
                        ("cells", Value::Array(_)) => self.cells(field),
                        // Descriptions of columns are prose that no client reads.
                        ("columnDefinitions", Value::Array(_)) => columns(field),
                        _ => self.value(field),
                    }
                }
                sort_causes(fields);
                sort_managers(fields);
                // Keys may contain names too, as in fieldsV1.
                let renamed: Vec<(String, String)> = fields
                    .keys()
                    .map(|key| (key.clone(), self.text(key)))
                    .filter(|(key, shown)| key != shown)
                    .collect();
                for (key, shown) in renamed {
                    if let Some(field) = fields.remove(&key) {
                        fields.insert(shown, field);
                    }
                }
            }
            _ => {}
        }
    }

    /// The age of an object is a cell of a table.
    fn cells(&self, cells: &mut Value) {
        self.value(cells);
        for cell in cells.as_array_mut().into_iter().flatten() {
            if cell.as_str().is_some_and(|text| AGE.is_match(text)) {
                *cell = "<age>".into();
            }
        }
    }
}

fn columns(definitions: &mut Value) {
    for column in definitions.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        column.remove("description");
    }
}

/// The real server reports errors in the random order of a Go map. The message must still list the causes in the
/// order of the causes.
fn sort_causes(status: &mut serde_json::Map<String, Value>) {
    let Some(causes) = status.get("details").and_then(|it| it["causes"].as_array()).cloned() else { return };
    let listed = |causes: &[Value]| {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let all: Vec<String> =
            causes.iter().map(|it| format!("{}: {}", text(&it["field"]), text(&it["message"]))).collect();
        format!("is invalid: [{}]", all.join(", "))
    };
    let message = status.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    if causes.len() < 2 || !message.ends_with(&listed(&causes)) {
        return;
    }
    let mut sorted = causes.clone();
    sorted.sort_by_key(Value::to_string);
    status.insert("message".into(), message.replace(&listed(&causes), &listed(&sorted)).into());
    status["details"]["causes"] = sorted.into();
}

/// Managers are in the order of the second of their last write, which a case cannot control.
fn sort_managers(metadata: &mut serde_json::Map<String, Value>) {
    if let Some(managers) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        managers.sort_by_key(|it| format!("{} {} {}", it["manager"], it["operation"], it["subresource"]));
    }
}
