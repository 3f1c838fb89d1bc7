//! Validation of roles and bindings.

use serde_json::{Value, json};

use super::check_immutable;
use crate::names::NameRule;
use crate::schema::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Validates a Role.
pub(in crate::kinds) fn role(value: &Value, _: Option<&Value>) -> Vec<FieldError> {
    rules(value, true)
}

/// Validates a ClusterRole.
pub(in crate::kinds) fn cluster_role(value: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let mut causes = rules(value, false);
    let aggregation = &value["aggregationRule"];
    if !aggregation.is_null() && aggregation["clusterRoleSelectors"].as_array().is_none_or(Vec::is_empty) {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        causes.push(FieldError::required("aggregationRule.clusterRoleSelectors", why));
    }
    causes
}

/// Validates a RoleBinding.
pub(in crate::kinds) fn role_binding(value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    binding(value, old, &["Role", "ClusterRole"])
}

/// Validates a ClusterRoleBinding.
pub(in crate::kinds) fn cluster_role_binding(value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    binding(value, old, &["ClusterRole"])
}

fn is_empty(rule: &Value, field: &str) -> bool {
    rule[field].as_array().is_none_or(Vec::is_empty)
}

fn rules(value: &Value, is_namespaced: bool) -> Vec<FieldError> {
    let mut causes = Vec::new();
    for (index, rule) in value["rules"].as_array().into_iter().flatten().enumerate() {
        let at = |field: &str| format!("rules[{index}].{field}");
        if is_empty(rule, "verbs") {
            causes.push(FieldError::required(at("verbs"), ""));
        }
        if is_empty(rule, "nonResourceURLs") {
            for (field, thing) in [("apiGroups", "api group"), ("resources", "resource")] {
                if is_empty(rule, field) {
                    let why = format!("resource rules must supply at least one {thing}");
                    causes.push(FieldError::required(at(field), &why));
                }
            }
            continue;
        }
        let mut refuse = |why: &str| {
            causes.push(FieldError::invalid(at("nonResourceURLs"), &rule["nonResourceURLs"], why));
        };
        if is_namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].into_iter().any(|field| !is_empty(rule, field)) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
    }
    causes
}

fn binding(value: &Value, old: Option<&Value>, kinds: &[&str]) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let role = &value["roleRef"];
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let expect = |causes: &mut Vec<FieldError>, path: String, found: &str, supported: &[&str]| {
        if !supported.contains(&found) {
            let supported: Vec<Value> = supported.iter().map(|one| json!(one)).collect();
            causes.push(FieldError::not_supported(path, &json!(found), supported.iter()));
        }
    };
    expect(&mut causes, "roleRef.apiGroup".to_owned(), &text(role, "apiGroup"), &[GROUP]);
    expect(&mut causes, "roleRef.kind".to_owned(), &text(role, "kind"), kinds);
    match text(role, "name").as_str() {
        "" => causes.push(FieldError::required("roleRef.name", "")),
        name => causes.extend(
            NameRule::PathSegment
                .errors(name)
                .into_iter()
                .map(|error| FieldError::invalid("roleRef.name", &json!(name), &error)),
        ),
    }
    for (index, subject) in value["subjects"].as_array().into_iter().flatten().enumerate() {
        let at = |field: &str| format!("subjects[{index}].{field}");
        let (kind, name) = (text(subject, "kind"), text(subject, "name"));
        if name.is_empty() {
            causes.push(FieldError::required(at("name"), ""));
        }
        match kind.as_str() {
            "ServiceAccount" => {
                if !name.is_empty() {
                    let errors = NameRule::Subdomain.errors(&name).into_iter();
                    causes.extend(
                        errors.map(|error| FieldError::invalid(at("name"), &subject["name"], &error)),
                    );
                }
                expect(&mut causes, at("apiGroup"), &text(subject, "apiGroup"), &[""]);
                // A binding in a namespace means that namespace.
                if !kinds.contains(&"Role") && text(subject, "namespace").is_empty() {
                    causes.push(FieldError::required(at("namespace"), ""));
                }
            }
            "User" | "Group" => {
                expect(&mut causes, at("apiGroup"), &text(subject, "apiGroup"), &[GROUP]);
            }
            other => expect(&mut causes, at("kind"), other, &["ServiceAccount", "User", "Group"]),
        }
    }
    if let Some(old) = old {
        // The real server shows its own names of the fields.
        let shown =
            |role: &Value| json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        check_immutable(&mut causes, "roleRef", &shown(role), &shown(&old["roleRef"]));
    }
    causes
}
