//! Create, update, patch and delete over HTTP.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::handle::{Asked, expect_json, value, with_warnings};
use super::negotiate::{self, Form};
use super::{Body, decode, list, options, table};
use crate::objects::Object;
use crate::state::State;
use crate::status::{Failure, Outcome};
use crate::verbs::{self, PatchType, Target, Written};

/// Carries out a verb that changes something.
pub(super) fn write(asked: &Asked<'_>, target: &Target, verb: &str, body: &[u8]) -> Outcome<Response<Body>> {
    match verb {
        "create" if target.subresource == "eviction" => evict(asked, target, body),
        "create" => create(asked, target, body),
        "update" => update(asked, target, body),
        "patch" => patch(asked, target, body),
        "delete" => delete(asked, target, body),
        _ => delete_collection(asked, target, body),
    }
}

fn create(asked: &Asked<'_>, target: &Target, body: &[u8]) -> Outcome<Response<Body>> {
    let form = negotiate::form(&asked.headers, false)?;
    let object = decode::object(&asked.headers, body)?;
    let options = options::write(&asked.query, asked.agent(), "CreateOptions")?;
    let mut state = asked.cluster.write();
    if target.subresource == "binding" {
        verbs::bind(&mut state, target, &object, &options, &asked.caller)?;
        return Ok(value(
            StatusCode::CREATED,
            &json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
            }),
        ));
    }
    if target.kind.group() == "authorization.k8s.io" {
        return Ok(value(StatusCode::CREATED, &verbs::review(&target.kind, object, &options)?));
    }
    let written = verbs::create(&mut state, target, object, &options, &asked.caller)?;
    drop(state);
    answer(asked, target, form, &written)
}

fn update(asked: &Asked<'_>, target: &Target, body: &[u8]) -> Outcome<Response<Body>> {
    let form = negotiate::form(&asked.headers, false)?;
    let object = decode::object(&asked.headers, body)?;
    let options = options::write(&asked.query, asked.agent(), "UpdateOptions")?;
    let mut state = asked.cluster.write();
    let written = match target.subresource.as_str() {
        "scale" => verbs::scaled(&mut state, target, &object, &options, &asked.caller)?,
        "finalize" => verbs::finalize(&mut state, target, &object, &options)?,
        "approval" => verbs::approve(&mut state, target, object, &options, &asked.caller)?,
        _ => verbs::update(&mut state, target, object, &options, &asked.caller)?,
    };
    finish(asked, target, form, &written, &state)
}

fn patch(asked: &Asked<'_>, target: &Target, body: &[u8]) -> Outcome<Response<Body>> {
    let form = negotiate::form(&asked.headers, false)?;
    let (language, change) = match decode::media_type(&asked.headers).as_str() {
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
            let failure = Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            return Err(Failure { details: json!({}), ..failure });
        }
    };
    let mut options = options::write(&asked.query, asked.agent(), "PatchOptions")?;
    if language == PatchType::Apply {
        options.manager = asked.query.get("fieldManager").unwrap_or_default().to_owned();
    } else if options.force.is_some() {
        let cause = crate::schema::FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
    }
    let mut state = asked.cluster.write();
    let written = verbs::patch(&mut state, target, language, &change, &options, &asked.caller)?;
    finish(asked, target, form, &written, &state)
}

fn patch_body(body: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))
}

/// A change of `scale` is answered with the scale, any other with the object.
fn finish(
    asked: &Asked<'_>,
    target: &Target,
    form: Form,
    written: &Written,
    state: &State,
) -> Outcome<Response<Body>> {
    if target.subresource == "scale" {
        let scale = verbs::read_scale(state, target)?;
        return Ok(with_warnings(value(StatusCode::OK, &scale), &written.warnings));
    }
    answer(asked, target, form, written)
}

fn answer(asked: &Asked<'_>, target: &Target, form: Form, written: &Written) -> Outcome<Response<Body>> {
    let code = if written.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(with_warnings(one(asked, target, form, code, &written.object), &written.warnings))
}

/// One object as an answer, in the form that was asked for.
pub(super) fn one(
    asked: &Asked<'_>,
    target: &Target,
    form: Form,
    code: StatusCode,
    object: &Object,
) -> Response<Body> {
    match form {
        Form::Objects => super::handle::json_body(code, Body::whole(list::text_of(&target.kind, object))),
        Form::Table => {
            value(code, &table::table(&target.kind, &[object], asked.caller.now, &asked.query, json!({})))
        }
        Form::Metadata => value(code, &table::metadata_of(object)),
    }
}

fn delete_options(asked: &Asked<'_>, body: &[u8]) -> Outcome<verbs::DeleteOptions> {
    let given = if body.is_empty() { None } else { Some(decode::object(&asked.headers, body)?) };
    if let Some(given) = &given {
        // They are part of an eviction, so its types are theirs.
        verbs::expect_shape("policy", "Eviction", &json!({ "deleteOptions": given }))?;
    }
    options::delete(&asked.query, given.as_ref())
}

fn delete(asked: &Asked<'_>, target: &Target, body: &[u8]) -> Outcome<Response<Body>> {
    let form = negotiate::form(&asked.headers, false)?;
    let options = delete_options(asked, body)?;
    let mut state = asked.cluster.write();
    let deleted = verbs::delete(&mut state, target, &options, &asked.caller)?;
    drop(state);
    let kind = &target.kind;
    if !deleted.is_gone || kind.row().returns_deleted {
        return answer(asked, target, form, &deleted.written);
    }
    let mut details =
        json!({"name": target.name, "kind": kind.plural(), "uid": &**deleted.written.object.uid()});
    if !kind.group().is_empty() {
        details["group"] = json!(kind.group());
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    Ok(with_warnings(value(StatusCode::OK, &status), &deleted.written.warnings))
}

fn delete_collection(asked: &Asked<'_>, target: &Target, body: &[u8]) -> Outcome<Response<Body>> {
    let options = delete_options(asked, body)?;
    let selection = list::Selection::of(asked, target)?;
    let mut state = asked.cluster.write();
    let names: Vec<(String, String)> = selection
        .select(&state, target)
        .into_iter()
        .map(|object| (object.namespace().to_owned(), object.name().to_owned()))
        .collect();
    let deleted = verbs::delete_collection(&mut state, target, &names, &options, &asked.caller)?;
    let revision = state.objects.revision();
    drop(state);
    Ok(list::answer(
        asked,
        target,
        negotiate::form(&asked.headers, true)?,
        &deleted,
        json!({"resourceVersion": revision.to_string()}),
    ))
}

fn evict(asked: &Asked<'_>, target: &Target, body: &[u8]) -> Outcome<Response<Body>> {
    expect_json(asked)?;
    let eviction = decode::object(&asked.headers, body)?;
    verbs::expect_shape("policy", "Eviction", &eviction)?;
    let named = eviction["metadata"]["name"].as_str().unwrap_or(&target.name);
    if named != target.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let write = options::write(&asked.query, asked.agent(), "CreateOptions")?;
    let mut options = options::delete(&super::query::Query::default(), Some(&eviction["deleteOptions"]))?;
    options.dry_run |= write.dry_run;
    let mut state = asked.cluster.write();
    verbs::evict(&mut state, target, &options, &asked.caller)?;
    Ok(value(
        StatusCode::CREATED,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        }),
    ))
}
