//! Validation rules of custom resources in CEL (`x-kubernetes-validations`). A rule that uses something that only the
//! real server knows is not enforced; [`Rules::unenforced`] names it, for a warning.
//!
//! Nothing in a rule can hold a server up: its length and nesting are limited, and its loops are estimated before it is
//! evaluated.

mod program;
mod value;

use std::sync::Arc;

use cel::{Context, ExecutionError};
use serde_json::Value;

use super::error::{FieldError, Reason};
use program::Program;

/// Limit on the estimated steps of all rules of an object; the real server has a limit too.
const STEPS_MAX: u64 = 1_000_000;

/// The rules of a schema.
#[derive(Debug, Default)]
pub struct Rules {
    root: Option<RuleNode>,
}

/// A part of a schema that has rules, in itself or further down.
#[derive(Debug)]
struct RuleNode {
    schema: Value,
    rules: Vec<Rule>,
    properties: Vec<(String, RuleNode)>,
    items: Option<Box<RuleNode>>,
    additional: Option<Box<RuleNode>>,
}

/// One rule.
#[derive(Debug)]
struct Rule {
    text: String,
    message: String,
    message_expression: Option<Result<Arc<Program>, String>>,
    reason: Reason,
    field_path: String,
    program: Result<Arc<Program>, String>,
}

impl Rules {
    /// The rules of a structural schema.
    pub fn parse(schema: &Value) -> Rules {
        Rules { root: RuleNode::parse(schema) }
    }

    /// Whether the schema has no rules.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The rules that are not enforced, each with the cause.
    pub fn unenforced(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(root) = &self.root {
            root.unenforced(&mut found);
        }
        found
    }

    /// The violations of an object, on an update together with the previous one.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut validation = Validation { errors: Vec::new(), steps_left: STEPS_MAX };
        if let Some(root) = &self.root {
            validation.node(root, object, old, "", true);
        }
        validation.errors
    }
}

impl RuleNode {
    fn parse(schema: &Value) -> Option<RuleNode> {
        if !schema.is_object() {
            return None;
        }
        let rules: Vec<Rule> = schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Rule::parse)
            .collect();
        let properties: Vec<(String, RuleNode)> = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, property)| Some((name.clone(), RuleNode::parse(property)?)))
            .collect();
        let items = RuleNode::parse(&schema["items"]).map(Box::new);
        let additional = RuleNode::parse(&schema["additionalProperties"]).map(Box::new);
        let is_empty = rules.is_empty() && properties.is_empty() && items.is_none() && additional.is_none();
        (!is_empty).then(|| RuleNode { schema: schema.clone(), rules, properties, items, additional })
    }

    fn unenforced(&self, found: &mut Vec<String>) {
        for rule in &self.rules {
            if let Err(why) = &rule.program {
                found.push(format!("{}: {why}", rule.text));
            }
        }
        let below = self.properties.iter().map(|(_, node)| node);
        below
            .chain(self.items.as_deref())
            .chain(self.additional.as_deref())
            .for_each(|node| node.unenforced(found));
    }

    /// The type, as messages name it.
    fn type_name(&self) -> Value {
        self.schema["type"].clone()
    }
}

impl Rule {
    fn parse(rule: &Value) -> Option<Rule> {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().trim().to_owned();
        let source = text("rule");
        if source.is_empty() {
            return None;
        }
        let program = match rule["optionalOldSelf"] == true {
            true => Err("optionalOldSelf is not supported".to_owned()),
            false => Program::compiled(&source),
        };
        let expression = text("messageExpression");
        let reason = match rule["reason"].as_str() {
            Some("FieldValueForbidden") => Reason::Forbidden,
            Some("FieldValueRequired") => Reason::Required,
            Some("FieldValueDuplicate") => Reason::Duplicate,
            _ => Reason::Invalid,
        };
        Some(Rule {
            message: text("message"),
            message_expression: (!expression.is_empty()).then(|| Program::compiled(&expression)),
            reason,
            field_path: text("fieldPath"),
            program,
            text: source,
        })
    }

    /// The message of a violation where the rule has no expression for it.
    fn message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.text) } else { self.message.clone() }
    }
}

/// The validation of one object.
struct Validation {
    errors: Vec<FieldError>,
    steps_left: u64,
}

impl Validation {
    fn node(&mut self, node: &RuleNode, value: &Value, old: Option<&Value>, path: &str, is_root: bool) {
        if value.is_null() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        for rule in &node.rules {
            self.rule(node, rule, value, old, path, is_root);
        }
        for (name, property) in &node.properties {
            let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.node(property, &value[name], old.and_then(|old| old.get(name)), &inner, false);
        }
        if let (Some(additional), Some(fields)) = (&node.additional, value.as_object()) {
            let named = |name: &String| node.schema["properties"].get(name).is_some();
            for (name, field) in fields.iter().filter(|(name, _)| !named(name)) {
                let inner = format!("{path}[{name}]");
                self.node(additional, field, old.and_then(|old| old.get(name)), &inner, false);
            }
        }
        if let (Some(items), Some(list)) = (&node.items, value.as_array()) {
            for (index, item) in list.iter().enumerate() {
                let before = old.and_then(|old| same_item(&node.schema, old, item));
                self.node(items, item, before, &format!("{path}[{index}]"), false);
            }
        }
    }

    fn rule(
        &mut self,
        node: &RuleNode,
        rule: &Rule,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        is_root: bool,
    ) {
        let Ok(program) = &rule.program else { return };
        // A transition rule needs something to compare with. Any other rule is not repeated for what stays as it was.
        let is_skipped = if program.uses_old_self { old.is_none() } else { old == Some(value) };
        if is_skipped {
            return;
        }
        let steps = program.steps(value);
        let Some(left) = self.steps_left.checked_sub(steps) else {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            // Reported once.
            if self.steps_left > 0 {
                self.errors.push(FieldError::invalid(path_or_nil(path), &node.type_name(), why));
            }
            self.steps_left = 0;
            return;
        };
        self.steps_left = left;
        let mut context = Context::default();
        context.add_variable_from_value("self", value::of_object(value, &node.schema, is_root));
        if let Some(old) = old {
            context.add_variable_from_value("oldSelf", value::of_object(old, &node.schema, is_root));
        }
        match program.execute(&context) {
            Ok(cel::Value::Bool(true)) => {}
            Ok(_) => {
                let detail = rule.message_expression.as_ref().and_then(|expression| {
                    match expression.as_ref().ok()?.execute(&context) {
                        Ok(cel::Value::String(text)) => Some(text.to_string()),
                        _ => None,
                    }
                });
                let detail = detail.unwrap_or_else(|| rule.message());
                self.errors.push(violation(node, rule, value, path, &detail));
            }
            Err(error) => {
                let why = match &error {
                    ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
                    other => other.to_string(),
                };
                let why = format!("{why} evaluating rule: {}", rule.text_or_message());
                self.errors.push(FieldError::invalid(path_or_nil(path), &node.type_name(), &why));
            }
        }
    }
}

impl Rule {
    /// How messages name the rule.
    fn text_or_message(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }
}

fn path_or_nil(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}

fn violation(node: &RuleNode, rule: &Rule, value: &Value, path: &str, detail: &str) -> FieldError {
    let field = match rule.field_path.as_str() {
        "" => path_or_nil(path).to_owned(),
        below => format!("{path}{below}").trim_start_matches('.').to_owned(),
    };
    // Whole objects and lists are not shown.
    let is_shown = !matches!(node.schema["type"].as_str(), Some("object" | "array"));
    match rule.reason {
        Reason::Forbidden => FieldError::forbidden(field, detail),
        Reason::Required => FieldError::required(field, detail),
        Reason::Duplicate if is_shown => FieldError::duplicate(field, value),
        Reason::Duplicate => {
            FieldError { reason: Reason::Duplicate, field, message: "Duplicate value".to_owned() }
        }
        _ if is_shown => FieldError::invalid(field, value, detail),
        _ => FieldError { reason: Reason::Invalid, field, message: format!("Invalid value: {detail}") },
    }
}

/// The item of an old list that has the keys of an item; other lists have no counterparts.
fn same_item<'a>(schema: &Value, old: &'a Value, item: &Value) -> Option<&'a Value> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    old.as_array()?.iter().find(|other| keys.iter().all(|key| other[*key] == item[*key]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(rules: &Value) -> Value {
        json!({ "type": "object", "properties": { "spec": {
            "type": "object", "x-kubernetes-validations": rules, "properties": {
                "low": { "type": "integer" }, "high": { "type": "integer" }, "share": { "type": "number" },
                "names": { "type": "array", "items": { "type": "string" } },
                "dashed-name": { "type": "string" },
            },
        } } })
    }

    fn errors(rule: &str, new: Value, old: Option<Value>) -> Vec<String> {
        let rules = Rules::parse(&schema(&json!([{ "rule": rule }])));
        assert_eq!(rules.unenforced(), Vec::<String>::new());
        let object = |spec: Value| json!({ "spec": spec });
        let (new, old) = (object(new), old.map(object));
        rules.validate(&new, old.as_ref()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_violation_names_the_rule_or_its_message() {
        let rule = "self.low <= self.high";
        assert_eq!(errors(rule, json!({ "low": 1, "high": 2 }), None), Vec::<String>::new());
        let expect = format!("spec: Invalid value: failed rule: {rule}");
        assert_eq!(errors(rule, json!({ "low": 3, "high": 2 }), None), [expect]);
        let expect = format!("spec: Invalid value: \"object\": no such key: high evaluating rule: {rule}");
        assert_eq!(errors(rule, json!({ "low": 3 }), None), [expect]);
    }

    #[test]
    fn a_transition_rule_is_evaluated_on_updates_only() {
        let rule = "self.low >= oldSelf.low";
        assert_eq!(errors(rule, json!({ "low": 1 }), None), Vec::<String>::new());
        assert_eq!(errors(rule, json!({ "low": 2 }), Some(json!({ "low": 1 }))), Vec::<String>::new());
        assert_eq!(errors(rule, json!({ "low": 1 }), Some(json!({ "low": 2 }))).len(), 1);
    }

    #[test]
    fn values_have_the_types_of_the_schema() {
        for (rule, spec) in [
            ("self.share > 0.5 && self.share + 1.0 == 2.0", json!({ "share": 1 })),
            ("has(self.low) && !has(self.high)", json!({ "low": 1 })),
            ("self.names.all(name, name.matches('^[a-z]+$'))", json!({ "names": ["a", "b"] })),
            ("self.dashed__dash__name == 'x'", json!({ "dashed-name": "x" })),
            ("size(self.names) == 0 || self.names.exists(name, name == 'a')", json!({ "names": ["b", "a"] })),
        ] {
            assert_eq!(errors(rule, spec, None), Vec::<String>::new(), "{rule}");
        }
    }

    #[test]
    fn what_is_not_supported_is_not_enforced_but_named() {
        for rule in ["quantity(self.low).isGreaterThan(1)", "self.low ===", &"(".repeat(5000)] {
            let rules = Rules::parse(&schema(&json!([{ "rule": rule }])));
            assert_eq!(rules.unenforced().len(), 1, "{rule}");
            assert_eq!(rules.validate(&json!({ "spec": { "low": 1 } }), None), []);
        }
    }

    #[test]
    fn loops_within_loops_are_limited() {
        let rule = "self.names.all(a, self.names.all(b, self.names.all(c, a + b + c != 'x')))";
        let names: Vec<String> = (0..1000).map(|number| format!("n{number}")).collect();
        let found = errors(rule, json!({ "names": names }), None);
        assert!(found.len() == 1 && found[0].contains("cost budget"), "{found:?}");
    }
}
