//! Whether an object satisfies its schema, in the words of the real server's validator.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::FieldError;
use super::node::{Kind, Limits, List, Node, NodeId, Origin};
use super::{DEPTH_MAX, Schema, format, rules};

impl Schema {
    /// Everything that is wrong with an object (of this kind, pruned and defaulted), for a Status with code 422.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check_value(object, self.root, &Path::root(), &mut errors, DEPTH_MAX);
        if let Some((node, metadata)) = self.metadata.zip(object.get("metadata")) {
            self.check_value(metadata, node, &Path::root().field("metadata"), &mut errors, DEPTH_MAX);
        }
        self.check_lists(object, self.root, &Path::root(), &mut errors, DEPTH_MAX);
        if let (Origin::BuiltIn, Some(go_type)) = (self.origin, &self.root().go_type) {
            rules::check(go_type, object, &mut errors);
        }
        errors
    }

    /// Adds what is wrong; says how many places matched, by which the real server picks the best of several failures.
    fn check_value(
        &self,
        value: &Value,
        id: NodeId,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
        left: usize,
    ) -> usize {
        let Some(left) = left.checked_sub(1) else {
            errors.push(FieldError::invalid(path.text(), &Value::from(""), "nested too deep"));
            return 0;
        };
        let node = self.node(id);
        let mut matches = 1;
        if let Some(error) = self.type_error(value, node, path) {
            errors.push(error);
        } else {
            matches += 1;
        }
        if value.is_null() {
            return matches;
        }
        if let Some(limits) = &node.limits {
            matches += self.check_alternatives(value, limits, path, errors, left);
            self.check_limits(value, node, limits, path, errors);
        }
        match value {
            Value::Array(list) => {
                if let Some(items) = node.items {
                    for (index, item) in list.iter().enumerate() {
                        matches += self.check_value(item, items, &path.index(index), errors, left);
                    }
                }
            }
            Value::Object(map) => matches += self.check_object(map, node, path, errors, left),
            _ => {}
        }
        matches
    }

    fn check_object(
        &self,
        map: &Map<String, Value>,
        node: &Node,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
        left: usize,
    ) -> usize {
        let mut matches = 0;
        for (name, value) in map {
            // What stands in metadata is the same for all kinds and checked elsewhere.
            if path.is_root() && name == "metadata" {
                continue;
            }
            let child = node.properties.get(name).map(|field| field.node).or(node.additional);
            if let Some(child) = child {
                matches += self.check_value(value, child, &path.field(name), errors, left);
            }
        }
        for name in &node.required {
            let is_missing = match (self.origin, map.get(name)) {
                (_, None) => true,
                // Go cannot tell an empty value of a required field from a missing one.
                (Origin::BuiltIn, Some(Value::String(text))) => text.is_empty(),
                (Origin::BuiltIn, Some(value)) => value.is_null(),
                (Origin::Crd, Some(_)) => false,
            };
            if is_missing {
                errors.push(FieldError::required(path.field(name).text(), ""));
            }
        }
        matches
    }

    fn type_error(&self, value: &Value, node: &Node, path: &Path<'_>) -> Option<FieldError> {
        if self.origin == Origin::BuiltIn {
            return None; // decoding has settled it
        }
        let found = type_name(value);
        let fits = match (node.kind, value) {
            (Kind::Any, _) => true,
            (_, Value::Null) => node.nullable,
            (Kind::Object, _) => value.is_object(),
            (Kind::Array, _) => value.is_array(),
            (Kind::String, _) => value.is_string(),
            (Kind::Integer, _) => is_whole(value),
            (Kind::Number, _) => value.is_number(),
            (Kind::Boolean, _) => value.is_boolean(),
            (Kind::IntOrString, _) => value.is_string() || is_whole(value),
        };
        if fits {
            return None;
        }
        let detail = format!("{} in body must be of type {}: \"{found}\"", path.name(), node.kind.as_str());
        Some(FieldError::type_invalid(path.text(), &Value::from(found), &detail))
    }

    fn check_alternatives(
        &self,
        value: &Value,
        limits: &Limits,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
        left: usize,
    ) -> usize {
        // In built-in kinds these only say which types a value may have.
        if self.origin == Origin::BuiltIn {
            return 0;
        }
        let mut matches = 0;
        let attempt = |id: NodeId| {
            let mut errors = Vec::new();
            let matches = self.check_value(value, id, path, &mut errors, left);
            (errors, matches)
        };
        let name = super::quoted(&path.name());
        let complain = |errors: &mut Vec<FieldError>, detail: String| {
            // The real server loses the path here.
            errors.push(FieldError::invalid("<nil>", &Value::from(""), &detail));
        };
        if !limits.any_of.is_empty() {
            let mut best: Option<(Vec<FieldError>, usize)> = None;
            let mut is_satisfied = false;
            for id in &limits.any_of {
                let (found, count) = attempt(*id);
                if found.is_empty() {
                    is_satisfied = true;
                    matches += count;
                    break;
                }
                if best.as_ref().is_none_or(|(_, most)| count > *most) {
                    best = Some((found, count));
                }
            }
            if !is_satisfied {
                complain(errors, format!("{name} must validate at least one schema (anyOf)"));
                errors.extend(best.into_iter().flat_map(|(found, _)| found));
            }
        }
        if !limits.one_of.is_empty() {
            let mut best: Option<(Vec<FieldError>, usize)> = None;
            let mut valid = 0;
            for id in &limits.one_of {
                let (found, count) = attempt(*id);
                if found.is_empty() {
                    valid += 1;
                    best = None;
                } else if valid == 0 && best.as_ref().is_none_or(|(_, most)| count > *most) {
                    best = Some((found, count));
                }
            }
            if valid != 1 {
                let detail = match valid {
                    0 => "Found none valid".to_owned(),
                    count => format!("Found {count} valid alternatives"),
                };
                complain(errors, format!("{name} must validate one and only one schema (oneOf). {detail}"));
                errors.extend(best.into_iter().flat_map(|(found, _)| found));
            }
        }
        if !limits.all_of.is_empty() {
            let mut valid = 0;
            for id in &limits.all_of {
                let (found, count) = attempt(*id);
                valid += usize::from(found.is_empty());
                matches += count;
                errors.extend(found);
            }
            if valid != limits.all_of.len() {
                let detail = if valid == 0 { ". None validated" } else { "" };
                complain(errors, format!("{name} must validate all the schemas (allOf){detail}"));
            }
        }
        if let Some(not) = limits.not
            && attempt(not).0.is_empty()
        {
            complain(errors, format!("{name} must not validate the schema (not)"));
        }
        matches
    }

    fn check_limits(
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
                if let Some(min) = limits.min_length.filter(|min| length < *min) {
                    refuse(value, format!("should be at least {min} chars long"));
                }
                if let Some(pattern) = &limits.pattern
                    && pattern.is_match(text) == Some(false)
                {
                    refuse(value, format!("should match '{}'", pattern.source));
                }
                if let Some(max) = limits.max_length.filter(|max| length > *max) {
                    errors.push(FieldError::too_long(path.text(), max));
                }
                let format = limits.format.as_deref().unwrap_or_default();
                if self.origin == Origin::Crd && !format::is_valid(format, text) {
                    let detail = format!("{name} in body must be of type {format}: {}", super::quoted(text));
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

    /// Lists that are sets or maps have each item once.
    fn check_lists(
        &self,
        value: &Value,
        id: NodeId,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
        left: usize,
    ) {
        let Some(left) = left.checked_sub(1) else { return };
        let node = self.node(id);
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    if let Some(field) = node.properties.get(name) {
                        self.check_lists(value, field.node, &path.field(name), errors, left);
                    } else if let Some(additional) = node.additional {
                        self.check_lists(value, additional, &path.key(name), errors, left);
                    }
                }
            }
            Value::Array(list) => {
                // Go code decides about duplicates in built-in kinds, by other keys than the schema's.
                if self.origin == Origin::Crd {
                    check_duplicates(list, &node.list, path, errors);
                }
                if let Some(items) = node.items {
                    for (index, item) in list.iter().enumerate() {
                        self.check_lists(item, items, &path.index(index), errors, left);
                    }
                }
            }
            _ => {}
        }
    }
}

fn check_duplicates(list: &[Value], kind: &List, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let keys: Vec<Value> = match kind {
        List::Atomic => return,
        List::Set => list.to_vec(),
        List::Map(names) => {
            if let Some((index, item)) =
                list.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null())
            {
                let detail = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(path.index(index).text(), item, detail));
                return;
            }
            let key = |item: &Value| {
                let pairs = names.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
                Value::Object(pairs.collect())
            };
            list.iter().map(key).collect()
        }
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, key) in keys.iter().enumerate() {
        let times = seen.entry(key.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(path.index(index).text(), key));
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

/// The real server takes the whole part of a factor for whole numbers, and then refuses its own zero.
fn has_unusable_factor(value: &Value, limits: &Limits) -> bool {
    let factor = limits.multiple_of.as_ref().and_then(Value::as_f64);
    value.is_i64() && factor.is_some_and(|factor| factor < 1.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            !number.is_f64()
                || number.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() < 9e15)
        }
        _ => false,
    }
}

fn is_same(allowed: &Value, value: &Value) -> bool {
    allowed == value
        || match (allowed.as_f64(), value.as_f64()) {
            (Some(allowed), Some(value)) => allowed == value,
            _ => false,
        }
}

/// A path to a value, as a chain of stack frames: text is made only for errors.
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    fn root() -> Path<'a> {
        Path { parent: None, step: Step::Root }
    }

    fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    fn key(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(name) }
    }

    fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    /// The path as a cause's `field`.
    fn text(&self) -> String {
        match self.is_root() {
            true => "<nil>".to_owned(),
            false => self.name(),
        }
    }

    /// The path inside a message: empty for the whole object.
    fn name(&self) -> String {
        let mut text = self.parent.map(Path::name).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Key(name) => text.push_str(&format!("[{name}]")),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
        text
    }
}
