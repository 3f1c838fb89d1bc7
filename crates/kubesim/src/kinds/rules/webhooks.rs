//! Validation of the configurations of admission webhooks.

use serde_json::{Value, json};

use crate::schema::FieldError;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Validates a MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
pub(in crate::kinds) fn webhook_configuration(value: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let mut names = Vec::new();
    for (index, webhook) in value["webhooks"].as_array().into_iter().flatten().enumerate() {
        let path = format!("webhooks[{index}]");
        validate(webhook, &path, &mut causes);
        let name = webhook["name"].as_str().unwrap_or_default();
        if names.contains(&name) {
            causes.push(FieldError::duplicate(format!("{path}.name"), &webhook["name"]));
        }
        names.push(name);
    }
    causes
}

fn validate(webhook: &Value, path: &str, causes: &mut Vec<FieldError>) {
    let at = |field: &str| format!("{path}.{field}");
    let text = |field: &str| webhook[field].as_str().unwrap_or_default();
    review_versions(&webhook["admissionReviewVersions"], &at("admissionReviewVersions"), causes);
    let name = text("name");
    if name.is_empty() {
        causes.push(FieldError::required(at("name"), ""));
    } else if name.split('.').filter(|part| !part.is_empty()).count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        causes.push(FieldError::invalid(at("name"), &json!(name), why));
    }
    for (index, rule) in webhook["rules"].as_array().into_iter().flatten().enumerate() {
        validate_rule(rule, &at(&format!("rules[{index}]")), causes);
    }
    for (field, supported) in [
        ("failurePolicy", &["Fail", "Ignore"][..]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("reinvocationPolicy", &["IfNeeded", "Never"]),
    ] {
        if !webhook[field].is_null() {
            expect_one_of(webhook, field, supported, path, causes);
        }
    }
    let side_effects = ["None", "NoneOnDryRun"];
    match webhook["sideEffects"].is_null() {
        true => {
            let why = format!("must specify one of {}", side_effects.join(", "));
            causes.push(FieldError::required(at("sideEffects"), &why));
        }
        false => expect_one_of(webhook, "sideEffects", &side_effects, path, causes),
    }
    if webhook["timeoutSeconds"].as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(FieldError::invalid(at("timeoutSeconds"), &webhook["timeoutSeconds"], why));
    }
    client(&webhook["clientConfig"], &at("clientConfig"), causes);
    if webhook["matchConditions"].as_array().is_some_and(|conditions| !conditions.is_empty()) {
        let why = "this simulated API server does not evaluate them; use rules and selectors";
        causes.push(FieldError::forbidden(at("matchConditions"), why));
    }
}

fn expect_one_of(value: &Value, field: &str, supported: &[&str], path: &str, causes: &mut Vec<FieldError>) {
    if value[field].as_str().is_none_or(|found| !supported.contains(&found)) {
        let supported: Vec<Value> = supported.iter().map(|one| json!(one)).collect();
        causes.push(FieldError::not_supported(format!("{path}.{field}"), &value[field], supported.iter()));
    }
}

fn review_versions(versions: &Value, path: &str, causes: &mut Vec<FieldError>) {
    let found: Vec<&str> = versions.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let known = REVIEW_VERSIONS.join(", ");
    if found.is_empty() {
        causes.push(FieldError::required(path, &format!("must specify one of {known}")));
    } else if !found.iter().any(|one| REVIEW_VERSIONS.contains(one)) {
        causes.push(FieldError::invalid(path, versions, &format!("must include at least one of {known}")));
    }
}

fn validate_rule(rule: &Value, path: &str, causes: &mut Vec<FieldError>) {
    let list = |field: &str| -> Vec<&str> {
        rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    for (field, things) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
        ("resources", "resources"),
    ] {
        let found = list(field);
        if found.is_empty() {
            causes.push(FieldError::required(format!("{path}.{field}"), ""));
        }
        // `*` excludes resources, but not subresources.
        let others = found.iter().filter(|one| field != "resources" || !one.contains('/')).count();
        if found.contains(&"*") && others > 1 {
            let why = match field {
                "resources" => {
                    "if '*' is present, must not specify other resources without subresources".to_owned()
                }
                _ => format!("if '*' is present, must not specify other {things}"),
            };
            causes.push(FieldError::invalid(format!("{path}.{field}"), &rule[field], &why));
        }
    }
    for (index, operation) in list("operations").into_iter().enumerate() {
        if !OPERATIONS.contains(&operation) {
            let supported = OPERATIONS.map(Value::from);
            let path = format!("{path}.operations[{index}]");
            causes.push(FieldError::not_supported(path, &json!(operation), supported.iter()));
        }
    }
    if !rule["scope"].is_null() {
        expect_one_of(rule, "scope", &["*", "Cluster", "Namespaced"], path, causes);
    }
}

fn client(client: &Value, path: &str, causes: &mut Vec<FieldError>) {
    let (url, service) = (&client["url"], &client["service"]);
    if url.is_null() == service.is_null() {
        causes.push(FieldError::required(path, "exactly one of url or service is required"));
        return;
    }
    if let Some(url) = url.as_str() {
        let path = format!("{path}.url");
        let form = "; desired format: https://host[/path]";
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        if scheme != "https" {
            let why = format!("'https' is the only allowed URL scheme{form}");
            causes.push(FieldError::invalid(&path, &json!(scheme), &why));
        }
        if scheme.is_empty() || rest.starts_with('/') || rest.is_empty() {
            causes.push(FieldError::invalid(&path, &json!(""), &format!("host must be specified{form}")));
        }
        if let Some((_, query)) = rest.split_once('?') {
            let why = "query parameters are not permitted in the URL";
            causes.push(FieldError::invalid(&path, &json!(query), why));
        }
        return;
    }
    // The real server mixes up the two: it reports a missing name as a missing namespace.
    for (field, shown) in [("name", "namespace"), ("namespace", "name")] {
        if service[field].as_str().unwrap_or_default().is_empty() {
            causes.push(FieldError::required(format!("{path}.service.{shown}"), ""));
        }
    }
}
