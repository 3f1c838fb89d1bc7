//! Create, update, patch and delete over HTTP.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::handle::{ApiRequest, error_response, require_json, value, with_warnings};
use super::negotiate::{self, Form};
use super::{Body, decode, list, options, table};
use crate::objects::Object;
use crate::status::{ApiResult, StatusError};
use crate::verbs::{self, PatchType, Target, WriteResult};
use crate::webhooks::{self, Gate};

/// How often webhooks are asked again because the object has changed while they were asked.
const ADMISSIONS_MAX: usize = 10;

/// Handles a verb that changes objects, and asks admission webhooks about the change.
pub(super) async fn admitted(
    request: &ApiRequest<'_>,
    target: &Target,
    verb: &str,
    body: &[u8],
) -> ApiResult<Response<Body>> {
    let Some(gate) = &request.caller.gate else { return write(request, target, verb, body) };
    let result = match verb {
        "deletecollection" => match admit_collection(request, target, gate, body).await {
            Ok(()) => write(request, target, verb, body),
            Err(refusal) => Err(refusal),
        },
        _ => with_answers(request, target, gate, || write(request, target, verb, body)).await,
    };
    let warnings = gate.take_warnings();
    // Warnings reach the client also when the request fails.
    match result {
        Ok(response) => Ok(with_warnings(response, &warnings)),
        Err(failure) if warnings.is_empty() => Err(failure),
        Err(failure) => Ok(with_warnings(error_response(&failure), &warnings)),
    }
}

/// Calls `attempt` until it needs no more answers of webhooks. A change of one object has two questions.
async fn with_answers<T>(
    request: &ApiRequest<'_>,
    target: &Target,
    gate: &Gate,
    attempt: impl Fn() -> ApiResult<T>,
) -> ApiResult<T> {
    for _ in 0..=2 * ADMISSIONS_MAX {
        let failure = match attempt() {
            Err(failure) if webhooks::is_pending(&failure) => failure,
            result => return result,
        };
        let question = gate.take_pending().ok_or(failure)?;
        let answer = webhooks::ask(request.cluster, &request.caller.user, gate, &question).await?;
        gate.record(question, answer);
    }
    Err(StatusError::modified(&target.kind, &target.name))
}

/// Asks about each object of a collection before the first one is deleted.
async fn admit_collection(
    request: &ApiRequest<'_>,
    target: &Target,
    gate: &Gate,
    body: &[u8],
) -> ApiResult<()> {
    let options = delete_options(request, body)?;
    let selection = list::Selection::from_request(request, target)?;
    let names: Vec<(String, String)> = selection
        .select(&request.cluster.read(), target)
        .into_iter()
        .map(|object| (object.namespace().to_owned(), object.name().to_owned()))
        .collect();
    for (namespace, name) in names {
        let one = Target { namespace, name, ..target.clone() };
        with_answers(request, &one, gate, || {
            verbs::admit_deletion(&request.cluster.read(), &one, &options, &request.caller)
        })
        .await?;
        gate.forget();
    }
    Ok(())
}

/// Handles a verb that changes objects.
fn write(request: &ApiRequest<'_>, target: &Target, verb: &str, body: &[u8]) -> ApiResult<Response<Body>> {
    match verb {
        "create" if target.subresource == "eviction" => evict(request, target, body),
        "create" => create(request, target, body),
        "update" => update(request, target, body),
        "patch" => patch(request, target, body),
        "delete" => delete(request, target, body),
        _ => delete_collection(request, target, body),
    }
}

fn create(request: &ApiRequest<'_>, target: &Target, body: &[u8]) -> ApiResult<Response<Body>> {
    let form = negotiate::form(&request.headers, false)?;
    let object = decode::object(&request.headers, body)?;
    let options = options::write(&request.query, request.user_agent(), "CreateOptions")?;
    let mut state = request.cluster.write();
    if target.subresource == "binding" {
        verbs::bind(&mut state, target, &object, &options, &request.caller)?;
        return Ok(value(
            StatusCode::CREATED,
            &json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
            }),
        ));
    }
    let written = verbs::create(&mut state, target, object, &options, &request.caller)?;
    drop(state);
    write_response(request, target, form, &written)
}

fn update(request: &ApiRequest<'_>, target: &Target, body: &[u8]) -> ApiResult<Response<Body>> {
    let form = negotiate::form(&request.headers, false)?;
    let object = decode::object(&request.headers, body)?;
    let options = options::write(&request.query, request.user_agent(), "UpdateOptions")?;
    let mut state = request.cluster.write();
    let written = match target.subresource.as_str() {
        "scale" => verbs::update_scale(&mut state, target, &object, &options, &request.caller)?,
        "finalize" => verbs::finalize(&mut state, target, &object, &options)?,
        "approval" => verbs::approve(&mut state, target, object, &options, &request.caller)?,
        _ => verbs::update(&mut state, target, object, &options, &request.caller)?,
    };
    drop(state);
    update_response(request, target, form, &written)
}

fn patch(request: &ApiRequest<'_>, target: &Target, body: &[u8]) -> ApiResult<Response<Body>> {
    let form = negotiate::form(&request.headers, false)?;
    let (patch_type, change) = match decode::media_type(&request.headers).as_str() {
        "application/json-patch+json" => (PatchType::Json, patch_body(body)?),
        "application/merge-patch+json" => (PatchType::Merge, patch_body(body)?),
        "application/strategic-merge-patch+json" => (PatchType::Strategic, patch_body(body)?),
        "application/apply-patch+yaml" => (PatchType::Apply, decode::yaml(body)?),
        _ if target.kind.custom().is_some() => {
            return Err(decode::unsupported(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        _ => {
            let failure = StatusError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            return Err(StatusError { details: json!({}), ..failure });
        }
    };
    let mut options = options::write(&request.query, request.user_agent(), "PatchOptions")?;
    if patch_type == PatchType::Apply {
        options.manager = request.query.get("fieldManager").unwrap_or_default().to_owned();
    } else if options.force.is_some() {
        let cause = crate::schema::FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(StatusError::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
    }
    let mut state = request.cluster.write();
    let written = verbs::patch(&mut state, target, patch_type, &change, &options, &request.caller)?;
    drop(state);
    update_response(request, target, form, &written)
}

fn patch_body(body: &[u8]) -> ApiResult<Value> {
    serde_json::from_slice(body)
        .map_err(|error| StatusError::bad_request(format!("error decoding patch: {error}")))
}

/// A change of `scale` returns the scale, any other change the object.
fn update_response(
    request: &ApiRequest<'_>,
    target: &Target,
    form: Form,
    written: &WriteResult,
) -> ApiResult<Response<Body>> {
    if target.subresource == "scale" {
        let scale = verbs::scale_of(&target.kind, &written.object.value())?;
        return Ok(with_warnings(value(StatusCode::OK, &scale), &written.warnings));
    }
    write_response(request, target, form, written)
}

fn write_response(
    request: &ApiRequest<'_>,
    target: &Target,
    form: Form,
    written: &WriteResult,
) -> ApiResult<Response<Body>> {
    let code = if written.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(with_warnings(object_response(request, target, form, code, &written.object), &written.warnings))
}

/// The response for one object, in the form that the client requested.
pub(super) fn object_response(
    request: &ApiRequest<'_>,
    target: &Target,
    form: Form,
    code: StatusCode,
    object: &Object,
) -> Response<Body> {
    match form {
        Form::Objects => super::handle::json_body(code, Body::whole(list::object_json(&target.kind, object))),
        Form::Table => {
            value(code, &table::table(&target.kind, &[object], request.caller.now, &request.query, json!({})))
        }
        Form::Metadata => value(code, &table::metadata_of(object)),
    }
}

fn delete_options(request: &ApiRequest<'_>, body: &[u8]) -> ApiResult<verbs::DeleteOptions> {
    let sent = if body.is_empty() { None } else { Some(decode::object(&request.headers, body)?) };
    if let Some(sent) = &sent {
        // Their types are those of the `deleteOptions` in an Eviction.
        verbs::check_types("policy", "Eviction", &json!({ "deleteOptions": sent }))?;
    }
    options::delete(&request.query, sent.as_ref())
}

fn delete(request: &ApiRequest<'_>, target: &Target, body: &[u8]) -> ApiResult<Response<Body>> {
    let form = negotiate::form(&request.headers, false)?;
    let options = delete_options(request, body)?;
    let mut state = request.cluster.write();
    let deleted = verbs::delete(&mut state, target, &options, &request.caller)?;
    drop(state);
    let kind = &target.kind;
    if !deleted.is_gone || kind.row().returns_deleted {
        return write_response(request, target, form, &deleted.result);
    }
    let mut details =
        json!({"name": target.name, "kind": kind.plural(), "uid": &**deleted.result.object.uid()});
    if !kind.group().is_empty() {
        details["group"] = json!(kind.group());
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    Ok(with_warnings(value(StatusCode::OK, &status), &deleted.result.warnings))
}

fn delete_collection(request: &ApiRequest<'_>, target: &Target, body: &[u8]) -> ApiResult<Response<Body>> {
    let options = delete_options(request, body)?;
    let selection = list::Selection::from_request(request, target)?;
    let mut state = request.cluster.write();
    let names: Vec<(String, String)> = selection
        .select(&state, target)
        .into_iter()
        .map(|object| (object.namespace().to_owned(), object.name().to_owned()))
        .collect();
    let deleted =
        verbs::delete_collection(&mut state, target, &names, &options, &request.caller.without_gate())?;
    let revision = state.objects.revision();
    drop(state);
    Ok(list::list_response(
        request,
        target,
        negotiate::form(&request.headers, true)?,
        &deleted,
        json!({"resourceVersion": revision.to_string()}),
    ))
}

fn evict(request: &ApiRequest<'_>, target: &Target, body: &[u8]) -> ApiResult<Response<Body>> {
    require_json(request)?;
    let eviction = decode::object(&request.headers, body)?;
    verbs::check_types("policy", "Eviction", &eviction)?;
    let named = eviction["metadata"]["name"].as_str().unwrap_or(&target.name);
    if named != target.name {
        return Err(StatusError::bad_request("name in URL does not match name in Eviction object"));
    }
    let write = options::write(&request.query, request.user_agent(), "CreateOptions")?;
    let mut options = options::delete(&super::query::Query::default(), Some(&eviction["deleteOptions"]))?;
    options.dry_run |= write.dry_run;
    let mut state = request.cluster.write();
    verbs::evict(&mut state, target, &options, &request.caller)?;
    Ok(value(
        StatusCode::CREATED,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        }),
    ))
}
