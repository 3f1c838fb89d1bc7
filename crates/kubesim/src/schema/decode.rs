//! Values of the wrong JSON type in built-in objects. The real server cannot decode them and returns 400 with Go's
//! error text.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use super::node::{Kind, Node, NodeId, Origin};
use super::{DEPTH_MAX, Schema, scalar};

/// Why an object cannot be decoded into its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// Go's error text: `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type
    /// int32`.
    pub message: String,
    /// The Go type of the field: `int32`.
    pub(crate) expected_type: String,
    /// Whether that type is a struct.
    pub(crate) expects_struct: bool,
    /// The JSON type of the value.
    pub(crate) found: String,
}

impl Schema {
    /// The first value in a built-in object whose JSON type is not that of its field. Objects of CRDs pass:
    /// [`Schema::validate`] checks them, with another error.
    pub fn check_types(&self, object: &Value) -> Result<(), DecodeError> {
        if self.origin == Origin::Crd {
            return match object.get("metadata").zip(self.root().properties.get("metadata")) {
                Some((metadata, field)) => {
                    self.check(metadata, field.node, "ObjectMeta", &mut vec!["metadata"])
                }
                None => Ok(()),
            };
        }
        let name = short(self.root().go_type.as_deref().unwrap_or_default());
        self.check(object, self.root, name, &mut Vec::new())
    }

    fn check<'a>(
        &self,
        value: &'a Value,
        id: NodeId,
        owner: &str,
        path: &mut Vec<&'a str>,
    ) -> Result<(), DecodeError> {
        let node = self.node(id);
        if path.len() > DEPTH_MAX || value.is_null() {
            return Ok(());
        }
        if let Some(message) = node.go_type.as_deref().and_then(|go_type| scalar::error_text(go_type, value))
        {
            let expected_type = self.go_type(node);
            return Err(DecodeError {
                message,
                expected_type,
                expects_struct: false,
                found: json_type(value).to_owned(),
            });
        }
        let fits = match node.kind {
            Kind::Any => true,
            Kind::Object => value.is_object() || (node.preserve && node.properties.is_empty()),
            Kind::Array => value.is_array(),
            Kind::String => value.is_string(),
            Kind::Integer => return self.check_integer(value, node, owner, path),
            Kind::Number => value.is_number(),
            Kind::Boolean => value.is_boolean(),
            Kind::IntOrString => value.is_string() || value.is_i64(),
        };
        if !fits {
            return Err(self.mismatch(json_type(value), node, owner, path));
        }
        if let Some(message) = unreadable(value, node) {
            let expected_type = self.go_type(node);
            return Err(DecodeError {
                message,
                expected_type,
                expects_struct: false,
                found: json_type(value).to_owned(),
            });
        }
        match value {
            Value::Object(map) => {
                let owner = node.go_type.as_deref().map_or(owner, short);
                for (name, value) in map {
                    if let Some(field) = node.properties.get(name) {
                        path.push(name);
                        self.check(value, field.node, owner, path)?;
                        path.pop();
                    } else if let Some(additional) = node.additional {
                        // Go does not report the key of a map.
                        self.check(value, additional, owner, path)?;
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = node.items else { return Ok(()) };
                for item in list {
                    self.check(item, items, owner, path)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_integer(
        &self,
        value: &Value,
        node: &Node,
        owner: &str,
        path: &[&str],
    ) -> Result<(), DecodeError> {
        let Value::Number(number) = value else {
            return Err(self.mismatch(json_type(value), node, owner, path));
        };
        let is_int32 = self.go_type(node) == "int32";
        let fits = number.as_i64().is_some_and(|number| !is_int32 || i32::try_from(number).is_ok());
        match fits {
            true => Ok(()),
            false => Err(self.mismatch(&format!("number {number}"), node, owner, path)),
        }
    }

    fn mismatch(&self, found: &str, node: &Node, owner: &str, path: &[&str]) -> DecodeError {
        let expected_type = self.go_type(node);
        let message = match path.is_empty() {
            true => format!("json: cannot unmarshal {found} into Go value of type {expected_type}"),
            false => format!(
                "json: cannot unmarshal {found} into Go struct field {owner}.{} of type {expected_type}",
                path.join(".")
            ),
        };
        let expects_struct = node.kind == Kind::Object && node.additional.is_none();
        DecodeError { message, expected_type, expects_struct, found: found.to_owned() }
    }

    fn go_type(&self, node: &Node) -> String {
        if let Some(name) = &node.go_type {
            return name.clone();
        }
        let format = node.limits.as_ref().and_then(|limits| limits.format.as_deref());
        match (node.kind, format) {
            (Kind::Integer, Some("int32")) => "int32".to_owned(),
            (Kind::Integer, _) => "int64".to_owned(),
            (Kind::Number, _) => "float64".to_owned(),
            (Kind::Boolean, _) => "bool".to_owned(),
            (Kind::IntOrString, _) => "intstr.IntOrString".to_owned(),
            (Kind::String, Some("byte")) => "[]uint8".to_owned(),
            (Kind::String, _) => "string".to_owned(),
            (Kind::Array, _) => match node.items {
                Some(items) => format!("[]{}", self.go_type(self.node(items))),
                None => "[]interface {}".to_owned(),
            },
            (Kind::Object, _) => match node.additional {
                Some(additional) => format!("map[string]{}", self.go_type(self.node(additional))),
                None => "map[string]interface {}".to_owned(),
            },
            (Kind::Any, _) => "interface {}".to_owned(),
        }
    }
}

/// Go's error for a string that cannot be decoded in its format.
fn unreadable(value: &Value, node: &Node) -> Option<String> {
    let format = node.limits.as_ref().and_then(|limits| limits.format.as_deref());
    match value {
        Value::String(text) if format == Some("byte") => {
            illegal_base64(text).map(|place| format!("illegal base64 data at input byte {place}"))
        }
        _ => None,
    }
}

/// The position of the first byte that is not base64.
fn illegal_base64(text: &str) -> Option<usize> {
    use base64::DecodeError as Problem;
    let lenient = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let plain: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match GeneralPurpose::new(&STANDARD, lenient).decode(&plain) {
        Ok(_) => None,
        Err(Problem::InvalidByte(place, _)) => Some(place),
        Err(_) => Some(plain.len() - plain.len() % 4),
    }
}

/// The name of a value's JSON type in Go's decoder.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn short(go_type: &str) -> &str {
    go_type.rsplit('.').next().unwrap_or(go_type)
}
