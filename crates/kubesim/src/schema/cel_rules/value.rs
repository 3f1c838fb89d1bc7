//! Values of custom resources as CEL values, with the types that the schema gives them.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use serde_json::Value;

/// Words that cannot be names of members.
const RESERVED: [&str; 19] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "void",
];

/// A value of a schema. Of the metadata of a whole object only the name can be read.
pub(super) fn of_object(value: &Value, schema: &Value, is_root: bool) -> cel::Value {
    let Some(fields) = value.as_object().filter(|_| is_root) else { return of_value(value, schema) };
    let mut members = members(fields, schema);
    for name in ["apiVersion", "kind"] {
        if let Some(text) = fields.get(name).and_then(Value::as_str) {
            members.insert(name.into(), text.into());
        }
    }
    let named = ["name", "generateName"]
        .into_iter()
        .filter_map(|name| Some((Key::from(name), cel::Value::from(value["metadata"][name].as_str()?))));
    members.insert("metadata".into(), cel::Value::Map(Map { map: Arc::new(named.collect()) }));
    cel::Value::Map(Map { map: Arc::new(members) })
}

fn of_value(value: &Value, schema: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if schema["type"] != "number" => cel::Value::Int(whole),
            _ => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => of_text(text, schema["format"].as_str().unwrap_or_default()),
        Value::Array(items) => {
            cel::Value::List(Arc::new(items.iter().map(|item| of_value(item, &schema["items"])).collect()))
        }
        Value::Object(fields) => cel::Value::Map(Map { map: Arc::new(members(fields, schema)) }),
    }
}

/// A text; a time if the schema says so.
fn of_text(text: &str, format: &str) -> cel::Value {
    if format == "date-time"
        && let Ok(at) = text.parse::<jiff::Timestamp>()
        && let Some(at) = timestamp(at)
    {
        return at;
    }
    cel::Value::from(text)
}

/// A timestamp is made by the function of that name, so that no other library of time is needed.
fn timestamp(at: jiff::Timestamp) -> Option<cel::Value> {
    let program = super::program::Program::compiled("timestamp(self)").ok()?;
    let mut context = cel::Context::default();
    context.add_variable_from_value("self", at.to_string());
    program.execute(&context).ok()
}

fn members(fields: &serde_json::Map<String, Value>, schema: &Value) -> HashMap<Key, cel::Value> {
    let mut members = HashMap::with_capacity(fields.len());
    for (name, field) in fields {
        if let Some(property) = schema["properties"].get(name) {
            members.insert(escaped(name).into(), of_value(field, property));
        } else if schema["additionalProperties"].is_object() {
            members.insert(name.as_str().into(), of_value(field, &schema["additionalProperties"]));
        }
    }
    members
}

/// The name of a property in an expression.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
