//! Limits on single values: lengths, bounds, patterns, formats, enumerations.

use serde_json::Value;

use super::path::Path;
use crate::schema::node::{Kind, Limits, Node, Origin};
use crate::schema::{FieldError, Schema, format, quoted};

impl Schema {
    pub(super) fn check_limits(
        &self,
        value: &Value,
        node: &Node,
        limits: &Limits,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let name = path.name();
        let mut refuse = |value: &Value, detail: String| {
            errors.push(FieldError::invalid(path.text(), value, &format!("{name} in body {detail}")));
        };
        match value {
            Value::String(text) => {
                let length = text.chars().count() as u64;
                // Only the first error is reported.
                if let Some(max) = limits.max_length.filter(|max| length > *max) {
                    errors.push(FieldError::too_long(path.text(), max));
                } else if let Some(min) = limits.min_length.filter(|min| length < *min) {
                    refuse(value, format!("should be at least {min} chars long"));
                } else if let Some(pattern) = &limits.pattern
                    && pattern.is_match(text) == Some(false)
                {
                    refuse(value, format!("should match '{}'", pattern.source));
                }
                let format = limits.format.as_deref().unwrap_or_default();
                if self.origin == Origin::Crd && !format::is_valid(format, text) {
                    let detail = format!("{name} in body must be of type {format}: {}", quoted(text));
                    errors.push(FieldError::type_invalid(path.text(), value, &detail));
                }
            }
            Value::Number(_) => {
                for detail in number_errors(value, node, limits) {
                    refuse(value, detail);
                }
                if has_unusable_factor(value, limits) {
                    let detail = format!("factor MultipleOf declared for {name} must be positive: 0");
                    errors.push(FieldError::invalid(path.text(), &Value::from(0), &detail));
                }
            }
            Value::Array(list) => {
                let length = list.len() as u64;
                if let Some(min) = limits.min_items.filter(|min| length < *min) {
                    refuse(&Value::from(length), format!("should have at least {min} items"));
                }
                if let Some(max) = limits.max_items.filter(|max| length > *max) {
                    errors.push(FieldError::too_many(path.text(), length, max));
                }
            }
            Value::Object(map) => {
                let length = map.len() as u64;
                if let Some(min) = limits.min_properties.filter(|min| length < *min) {
                    refuse(&Value::from(length), format!("should have at least {min} properties"));
                }
                if let Some(max) = limits.max_properties.filter(|max| length > *max) {
                    errors.push(FieldError::too_many(path.text(), length, max));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        let is_unset = self.origin == Origin::BuiltIn && value.as_str() == Some("");
        if !limits.enumeration.is_empty()
            && !is_unset
            && !limits.enumeration.iter().any(|allowed| is_same(allowed, value))
        {
            errors.push(FieldError::not_supported(path.text(), value, limits.enumeration.iter()));
        }
    }
}

fn number_errors(value: &Value, node: &Node, limits: &Limits) -> Vec<String> {
    let mut errors = Vec::new();
    let Some(number) = value.as_f64() else { return errors };
    let shown = |limit: &Value| match (value.as_i64(), limit.as_f64()) {
        // The real server converts the limit to the value's own type.
        (Some(_), Some(limit)) => format!("{}", limit as i64),
        (None, Some(limit)) => format!("{limit}"),
        (_, None) => limit.to_string(),
    };
    if let Some(max) = &limits.maximum {
        let limit = max.as_f64().unwrap_or(f64::MAX);
        if number > limit || (limits.exclusive_maximum && number >= limit) {
            let words = if limits.exclusive_maximum { "less than" } else { "less than or equal to" };
            errors.push(format!("should be {words} {}", shown(max)));
        }
    }
    if let Some(min) = &limits.minimum {
        let limit = min.as_f64().unwrap_or(f64::MIN);
        if number < limit || (limits.exclusive_minimum && number <= limit) {
            let words = if limits.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            errors.push(format!("should be {words} {}", shown(min)));
        }
    }
    if let Some(factor) = &limits.multiple_of
        && !has_unusable_factor(value, limits)
        && let Some(divisor) = factor.as_f64().filter(|divisor| *divisor > 0.0)
    {
        let quotient = number / divisor;
        if (quotient - quotient.round()).abs() > 1e-9 * quotient.abs().max(1.0) {
            errors.push(format!("should be a multiple of {}", shown(factor)));
        }
    }
    let format = limits.format.as_deref().unwrap_or_default();
    if node.kind == Kind::Integer
        && format == "int32"
        && value.as_i64().is_some_and(|number| i32::try_from(number).is_err())
    {
        errors.push("must be of type integer with format int32".to_owned());
    }
    errors
}

/// The real server truncates the factor for integers, and then rejects the resulting zero.
fn has_unusable_factor(value: &Value, limits: &Limits) -> bool {
    let factor = limits.multiple_of.as_ref().and_then(Value::as_f64);
    value.is_i64() && factor.is_some_and(|factor| factor < 1.0)
}

fn is_same(allowed: &Value, value: &Value) -> bool {
    allowed == value
        || match (allowed.as_f64(), value.as_f64()) {
            (Some(allowed), Some(value)) => allowed == value,
            _ => false,
        }
}
