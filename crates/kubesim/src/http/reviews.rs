//! Reviews: questions about users and permissions, which are answered and not stored; and requests for tokens.

use hyper::{Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::auth::token_user;
use super::handle::{ApiRequest, value, with_warnings};
use super::{Body, decode, options};
use crate::access::User;
use crate::access::token::{BoundClaims, Claims, ISSUER, ObjectClaim};
use crate::fields;
use crate::kinds;
use crate::objects::{Object, object_key};
use crate::rbac::{self, AccessTarget, Attributes, ResourceAttributes, Rule};
use crate::schema::FieldError;
use crate::state::{State, time};
use crate::status::{ApiResult, StatusError};
use crate::verbs::{self, Target};

/// Shortest and longest validity of a token, in seconds.
const TOKEN_SECONDS: std::ops::RangeInclusive<i64> = 600..=1 << 32;

/// Whether a target is a review.
pub(super) fn is_review(target: &Target) -> bool {
    matches!(target.kind.group(), "authorization.k8s.io" | "authentication.k8s.io")
}

/// Answers a review.
pub(super) fn review(request: &ApiRequest<'_>, target: &Target, body: &[u8]) -> ApiResult<Response<Body>> {
    let sent = decode::object(&request.headers, body)?;
    let options = options::write(&request.query, request.user_agent(), "CreateOptions")?;
    let (mut object, warnings) = verbs::prepare_review(target, sent, &options, request.caller.now)?;
    let user = &request.caller.user;
    match target.kind.kind() {
        "SelfSubjectReview" => {
            object = json!({
                "metadata": {"creationTimestamp": time(request.caller.now)}, "status": {"userInfo": user.info()},
            });
            target.kind.set_type_meta(&mut object);
        }
        "TokenReview" => object["status"] = token_status(request, &object)?,
        "SelfSubjectRulesReview" => {
            let namespace = object["spec"]["namespace"].as_str().unwrap_or_default();
            if namespace.is_empty() {
                return Err(StatusError::bad_request("no namespace on request"));
            }
            let status = rules_status(&request.cluster.read(), user, namespace);
            object = json!({"metadata": {}, "spec": {}, "status": status});
            target.kind.set_type_meta(&mut object);
        }
        _ => object["status"] = access_status(request, target, &object)?,
    }
    Ok(with_warnings(value(StatusCode::CREATED, &object), &warnings))
}

fn token_status(request: &ApiRequest<'_>, review: &Value) -> ApiResult<Value> {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(StatusError::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted: Vec<&str> =
        review["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let wanted = if wanted.is_empty() { vec![ISSUER] } else { wanted };
    Ok(match token_user(request.cluster, token, &wanted, request.caller.now) {
        Ok(user) => {
            let own = request.cluster.access.claims(token);
            let audiences: Vec<&str> = wanted
                .into_iter()
                .filter(|one| own.as_ref().is_none_or(|own| own.aud.iter().any(|two| two == one)))
                .collect();
            json!({"authenticated": true, "user": user.info(), "audiences": audiences})
        }
        Err(error) => json!({"user": {}, "error": error}),
    })
}

fn rules_status(state: &State, user: &User, namespace: &str) -> Value {
    let (rules, errors) = rbac::rules_of(state, user, namespace);
    let strings = |items: &[Box<str>]| -> Value { items.iter().map(|item| json!(**item)).collect() };
    let resource = |rule: &Rule| {
        let mut shown = json!({
            "verbs": strings(&rule.verbs), "apiGroups": strings(&rule.groups), "resources": strings(&rule.resources),
        });
        if !rule.names.is_empty() {
            shown["resourceNames"] = strings(&rule.names);
        }
        shown
    };
    let path = |rule: &Rule| json!({"verbs": strings(&rule.verbs), "nonResourceURLs": strings(&rule.paths)});
    let mut status = json!({
        "resourceRules": rules.iter().filter(|rule| !rule.resources.is_empty()).map(resource).collect::<Vec<_>>(),
        "nonResourceRules": rules.iter().filter(|rule| !rule.paths.is_empty()).map(path).collect::<Vec<_>>(),
        "incomplete": false,
    });
    match errors.as_slice() {
        [] => {}
        [one] => status["evaluationError"] = json!(one),
        many => status["evaluationError"] = json!(format!("[{}]", many.join(", "))),
    }
    status
}

fn access_status(request: &ApiRequest<'_>, target: &Target, review: &Value) -> ApiResult<Value> {
    let spec = &review["spec"];
    let is_own = target.kind.kind() == "SelfSubjectAccessReview";
    let causes = access_errors(target, review, is_own);
    if !causes.is_empty() {
        return Err(StatusError::invalid(target.kind.group(), "", "", &causes));
    }
    let other;
    let user = if is_own {
        &request.caller.user
    } else {
        let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        other = User::new(spec["user"].as_str().unwrap_or_default(), groups);
        &other
    };
    let decision = rbac::authorize(&request.cluster.read(), user, &attributes_in(spec));
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    Ok(status)
}

fn attributes_in(spec: &Value) -> Attributes<'_> {
    let resource = &spec["resourceAttributes"];
    if resource.is_null() {
        let text = |field: &str| spec["nonResourceAttributes"][field].as_str().unwrap_or_default();
        return Attributes { verb: text("verb"), target: AccessTarget::Path(text("path")) };
    }
    let text = |field: &str| resource[field].as_str().unwrap_or_default();
    let target = ResourceAttributes {
        namespace: text("namespace"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        name: text("name"),
    };
    Attributes::on(text("verb"), target)
}

fn access_errors(target: &Target, review: &Value, is_own: bool) -> Vec<FieldError> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    // The real server shows its own names of these fields.
    let shown_path = match path {
        Value::Null => Value::Null,
        path => json!({"Path": path["path"], "Verb": path["verb"]}),
    };
    let mut causes = Vec::new();
    if resource.is_null() == path.is_null() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.push(FieldError::invalid("spec", &shown_path, why));
    }
    let is_empty = |field: &str| match &spec[field] {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    if !is_own && is_empty("user") && is_empty("groups") {
        let why = "at least one of user or group must be specified";
        causes.push(FieldError::invalid("spec.user", &json!(""), why));
    }
    let mut metadata = review["metadata"].as_object().cloned().unwrap_or_default();
    let local = target.kind.is_namespaced();
    metadata.retain(|field, _| field != "managedFields" && !(local && field == "namespace"));
    if !metadata.is_empty() {
        let why = if local { "must be empty except for namespace" } else { "must be empty" };
        causes.push(FieldError::invalid("metadata", &review["metadata"], why));
    }
    if local {
        if !resource.is_null() && resource["namespace"] != review["metadata"]["namespace"] {
            let shown = json!(resource["namespace"].as_str().unwrap_or_default());
            let why = "must match metadata.namespace";
            causes.push(FieldError::invalid("spec.resourceAttributes.namespace", &shown, why));
        }
        if !path.is_null() {
            let why = "disallowed on this kind of request";
            causes.push(FieldError::invalid("spec.nonResourceAttributes", &shown_path, why));
        }
    }
    causes
}

/// Signs a token for a ServiceAccount.
pub(super) fn token(request: &ApiRequest<'_>, target: &Target, body: &[u8]) -> ApiResult<Response<Body>> {
    let sent = decode::object(&request.headers, body)?;
    let options = options::write(&request.query, request.user_agent(), "CreateOptions")?;
    let now = request.caller.now;
    let mut object = verbs::prepare_token_request(sent, &options, now)?;
    let (namespace, name) = (&*target.namespace, &*target.name);
    let text =
        |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let mismatch = |field: &str, found: &str| {
        let why = format!("must match the service account {field} if specified");
        let cause = FieldError::invalid(format!("metadata.{field}"), &json!(found), &why);
        StatusError::invalid("authentication.k8s.io", "TokenRequest", name, &[cause])
    };
    for (field, expected) in [("name", name), ("namespace", namespace)] {
        let found = text(&object, field);
        if !found.is_empty() && found != expected {
            return Err(mismatch(field, &found));
        }
    }
    let state = request.cluster.read();
    let account =
        state.get(&target.kind, namespace, name).ok_or_else(|| StatusError::not_found(&target.kind, name))?;
    let uid = text(&object, "uid");
    if !uid.is_empty() && uid != **account.uid() {
        let why = format!(
            "the UID in the token request ({uid}) does not match the UID of the service account ({})",
            account.uid()
        );
        return Err(token_conflict("authentication.k8s.io", "TokenRequest", name, &why));
    }
    fields::set(&mut object, &["metadata", "name"], json!(name));
    fields::set(&mut object, &["metadata", "namespace"], json!(namespace));
    fields::set(&mut object, &["metadata", "uid"], json!(&**account.uid()));
    fields::set(&mut object, &["metadata", "creationTimestamp"], json!(time(now)));
    if object["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        fields::set(&mut object, &["spec", "audiences"], json!([ISSUER]));
    }
    let seconds = object["spec"]["expirationSeconds"].as_i64().unwrap_or_default();
    if !TOKEN_SECONDS.contains(&seconds) {
        let why = if seconds < *TOKEN_SECONDS.start() {
            "may not specify a duration less than 10 minutes"
        } else {
            "may not specify a duration larger than 2^32 seconds"
        };
        let cause = FieldError::invalid("spec.expirationSeconds", &json!(seconds), why);
        return Err(StatusError::invalid("authentication.k8s.io", "TokenRequest", "", &[cause]));
    }
    let mut bound = BoundClaims {
        namespace: namespace.to_owned(),
        serviceaccount: claim(account),
        pod: None,
        secret: None,
        node: None,
    };
    bind(&state, &object["spec"]["boundObjectRef"], name, &mut bound)?;
    drop(state);
    let audiences = object["spec"]["audiences"].as_array().into_iter().flatten();
    let audiences = audiences.filter_map(Value::as_str).map(str::to_owned).collect();
    let token = request
        .cluster
        .access
        .sign(&Claims::new(bound, audiences, now, seconds))
        .map_err(|error| StatusError::internal(format!("failed to generate token: {error}")))?;
    let end = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    object["status"] = json!({"token": token, "expirationTimestamp": time(end)});
    Ok(value(StatusCode::CREATED, &object))
}

fn claim(object: &Object) -> ObjectClaim {
    ObjectClaim { name: object.name().to_owned(), uid: object.uid().to_string() }
}

fn token_conflict(group: &str, kind: &str, name: &str, why: &str) -> StatusError {
    let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
    StatusError::new(409, "Conflict", message).about(group, kind, name)
}

/// Binds a token to the object of the request, with which it ends.
fn bind(state: &State, reference: &Value, account: &str, bound: &mut BoundClaims) -> ApiResult<()> {
    if reference.is_null() {
        return Ok(());
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (version, word, name) = (text("apiVersion"), text("kind"), text("name"));
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    if !group.is_empty() || !matches!(word, "Pod" | "Secret" | "Node") {
        let shown = match (group, version) {
            ("", "") => format!("/, Kind={word}"),
            ("", version) => format!("/{version}, Kind={word}"),
            (group, version) => format!("{group}/{version}, Kind={word}"),
        };
        return Err(StatusError::bad_request(format!("cannot bind token to object of type {shown}")));
    }
    let kind = kinds::find("", word).ok_or_else(StatusError::no_such_resource)?;
    let namespace = if kind.is_namespaced() { bound.namespace.clone() } else { String::new() };
    let object = state.get(kind, &namespace, name).ok_or_else(|| StatusError::not_found(kind, name))?.clone();
    match word {
        "Pod" => {
            let pod = object.value();
            if pod["spec"]["serviceAccountName"] != account {
                return Err(StatusError::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
                let found = state.objects.get("/nodes", &object_key("", node));
                let uid = found.map(|node| node.uid().to_string()).unwrap_or_default();
                bound.node = Some(ObjectClaim { name: node.to_owned(), uid });
            }
            bound.pod = Some(claim(&object));
        }
        "Secret" => bound.secret = Some(claim(&object)),
        _ => bound.node = Some(claim(&object)),
    }
    let uid = text("uid");
    if !uid.is_empty() && *uid != **object.uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(token_conflict("", word, name, &why));
    }
    Ok(())
}
