//! Errors of single fields, with the texts of the real API server.

use std::fmt;

use serde_json::Value;

/// An error of one field: a cause of a Status with code 422.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// The machine-readable reason, `FieldValueRequired` for example.
    pub reason: Reason,
    /// The path of the field: `spec.containers[0].image`. The real server writes `<nil>` where it has no path.
    pub field: String,
    /// The error without the path: `Required value`.
    pub message: String,
}

/// The reasons that the real API server gives for an invalid field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A required field is missing.
    Required,
    /// A value is out of range or has the wrong format.
    Invalid,
    /// A value has another JSON type than the schema.
    TypeInvalid,
    /// A value is not in its enumeration.
    NotSupported,
    /// A second item with the same key, in a list where keys are unique.
    Duplicate,
    /// A field that is not allowed, or not together with another one.
    Forbidden,
    /// A string exceeds its limit.
    TooLong,
    /// A list or map exceeds its limit.
    TooMany,
}

impl Reason {
    /// The reason as it appears in `details.causes[].reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Required => "FieldValueRequired",
            Reason::Invalid => "FieldValueInvalid",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Reason::Required => "Required value",
            Reason::Invalid | Reason::TypeInvalid => "Invalid value",
            Reason::NotSupported => "Unsupported value",
            Reason::Duplicate => "Duplicate value",
            Reason::Forbidden => "Forbidden",
            Reason::TooLong => "Too long",
            Reason::TooMany => "Too many",
        }
    }
}

impl fmt::Display for FieldError {
    /// Formats the error as a Status message does: `spec.replicas: Required value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for FieldError {}

impl FieldError {
    /// A field is missing; `detail` may be empty.
    pub fn required(field: impl Into<String>, detail: &str) -> FieldError {
        FieldError::new(Reason::Required, field, None, detail)
    }

    /// A field is not allowed.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> FieldError {
        FieldError::new(Reason::Forbidden, field, None, detail)
    }

    /// A field has a value that is not allowed.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> FieldError {
        FieldError::new(Reason::Invalid, field, Some(value), detail)
    }

    /// A field has a value of another type than its schema.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> FieldError {
        FieldError::new(Reason::TypeInvalid, field, Some(value), detail)
    }

    /// A second item has the key of an earlier one.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> FieldError {
        FieldError::new(Reason::Duplicate, field, Some(value), "")
    }

    /// A value is not in the enumeration.
    pub fn not_supported<'a>(
        field: impl Into<String>,
        value: &Value,
        supported: impl Iterator<Item = &'a Value>,
    ) -> FieldError {
        let supported: Vec<String> = supported
            .map(|value| match value {
                Value::String(text) => quoted(text),
                other => quoted(&other.to_string()),
            })
            .collect();
        let detail = match supported.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", supported.join(", ")),
        };
        FieldError::new(Reason::NotSupported, field, Some(value), &detail)
    }

    /// A string has more than `max` bytes (or characters, if the schema counts those: the text is the same).
    pub fn too_long(field: impl Into<String>, max: u64) -> FieldError {
        let unit = if max == 1 { "byte" } else { "bytes" };
        FieldError::new(Reason::TooLong, field, None, &format!("may not be more than {max} {unit}"))
    }

    /// A list or a map has more than `max` entries.
    pub fn too_many(field: impl Into<String>, found: u64, max: u64) -> FieldError {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        FieldError::new(Reason::TooMany, field, Some(&Value::from(found)), &detail)
    }

    fn new(reason: Reason, field: impl Into<String>, value: Option<&Value>, detail: &str) -> FieldError {
        let mut message = reason.title().to_owned();
        if let Some(value) = value {
            message.push_str(": ");
            match value {
                Value::String(text) => message.push_str(&quoted(text)),
                other => message.push_str(&other.to_string()),
            }
        }
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        FieldError { reason, field: field.into(), message }
    }
}

/// A string in quotes, like Go's `%q` (JSON's escapes are close enough for the contents of fields).
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A value as Go prints it in messages: `map[image:x name:y]`.
pub(crate) fn go_format(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_format).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(name, value)| format!("{name}:{}", go_format(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        other => other.to_string(),
    }
}

/// The Go type into which the real server decodes an untyped value.
pub(crate) fn go_type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
