//! Get and list.

use std::collections::VecDeque;
use std::sync::Arc;

use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::handle::{ApiRequest, json_body, value};
use super::negotiate::{self, Form};
use super::page::{ContinueToken, Page, PageContents, require_revision, revision};
use super::{Body, table, write};
use crate::kinds::Kind;
use crate::objects::Object;
use crate::selector::{FieldSelector, LabelSelector};
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::verbs::{self, Target};

/// Gets one object.
pub(super) fn get(request: &ApiRequest<'_>, target: &Target) -> ApiResult<Response<Body>> {
    let form = negotiate::form(&request.headers, false)?;
    let revision_min = revision(request.query.get("resourceVersion"))?;
    let state = request.cluster.read();
    require_revision(revision_min, &state)?;
    if target.subresource == "scale" {
        return Ok(value(StatusCode::OK, &verbs::read_scale(&state, target)?));
    }
    let object = state.get(&target.kind, &target.namespace, &target.name).cloned();
    drop(state);
    let object = object.ok_or_else(|| StatusError::not_found(&target.kind, &target.name))?;
    Ok(write::object_response(request, target, form, StatusCode::OK, &object))
}

/// The JSON of an object, with `kind` and `apiVersion`.
pub(super) fn object_json(kind: &Kind, object: &Object) -> Bytes {
    let head = kind.json_prefix();
    let json = served_json(kind, object);
    let rest = json.get(1..).unwrap_or_default();
    [head.as_bytes(), rest].concat().into()
}

/// The JSON of an object without `kind` and `apiVersion`.
fn served_json(kind: &Kind, object: &Object) -> Bytes {
    match kind.row().shared {
        Some(_) => kind.served(object.value()).to_string().into(),
        None => object.json().clone(),
    }
}

/// Lists a collection, or a page of it.
pub(super) fn list(request: &ApiRequest<'_>, target: &Target) -> ApiResult<Response<Body>> {
    let form = negotiate::form(&request.headers, true)?;
    let selection = Selection::from_request(request, target)?;
    let page = Page::from_request(request)?;
    let state = request.cluster.read();
    let prefix = prefix_of(target);
    let found = page.read(&state, target, &prefix)?;
    drop(state);
    let PageContents { objects, revision } = found;
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    let limit = page.limit.unwrap_or(usize::MAX);
    let mut chosen = Vec::new();
    let mut rest = objects.into_iter();
    for object in rest.by_ref() {
        if selection.matches(&object, &target.kind) {
            chosen.push(object);
        }
        if chosen.len() == limit {
            break;
        }
    }
    let left = rest.len();
    if left > 0
        && let Some(last) = chosen.last()
    {
        let last = last.key();
        let start = format!("{}\0", &last[prefix.len()..]);
        metadata["continue"] =
            json!(ContinueToken::new(i64::try_from(revision).unwrap_or(i64::MAX), start).encode());
        if selection.is_empty() {
            metadata["remainingItemCount"] = json!(left);
        }
    }
    Ok(list_response(request, target, form, &chosen, metadata))
}

/// The response for a list, in the form that the client requested.
pub(super) fn list_response(
    request: &ApiRequest<'_>,
    target: &Target,
    form: Form,
    objects: &[Arc<Object>],
    metadata: Value,
) -> Response<Body> {
    let kind = &target.kind;
    let borrowed = || objects.iter().map(|object| &**object).collect::<Vec<&Object>>();
    match form {
        Form::Table => value(
            StatusCode::OK,
            &table::table(kind, &borrowed(), request.caller.now, &request.query, metadata),
        ),
        Form::Metadata => {
            let items: Vec<Value> = borrowed().into_iter().map(table::metadata_of).collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
            });
            value(StatusCode::OK, &list)
        }
        Form::Objects => json_body(StatusCode::OK, Body::parts(list_text(kind, objects, &metadata))),
    }
}

/// The JSON of a list. Items of built-in kinds do not repeat `kind` and `apiVersion`, as in the real server.
fn list_text(kind: &Kind, objects: &[Arc<Object>], metadata: &Value) -> VecDeque<Bytes> {
    let mut parts = VecDeque::with_capacity(objects.len() * 3 + 2);
    let names = format!(
        "\"kind\":{},\"apiVersion\":{}",
        Value::from(kind.list_kind()),
        Value::from(kind.api_version())
    );
    let mut metadata = metadata.clone();
    if kind.custom().is_some() && metadata["continue"].is_null() {
        // Lists of custom resources always have this field.
        metadata["continue"] = json!("");
    }
    parts.push_back(Bytes::from(format!("{{{names},\"metadata\":{metadata},\"items\":[")));
    let item_head = kind.custom().map(|_| Bytes::from(kind.json_prefix()));
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            parts.push_back(Bytes::from_static(b","));
        }
        match &item_head {
            Some(head) => {
                parts.push_back(head.clone());
                parts.push_back(object.json().slice(1..));
            }
            None => parts.push_back(served_json(kind, object)),
        }
    }
    parts.push_back(Bytes::from_static(b"]}"));
    parts
}

/// The prefix of all keys of the collection.
pub(super) fn prefix_of(target: &Target) -> String {
    if target.namespace.is_empty() { String::new() } else { format!("{}/", target.namespace) }
}

/// Selects objects of a collection.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// The single object that the path names; empty for all.
    name: String,
}

impl Selection {
    /// Reads the selectors of a request.
    pub(super) fn from_request(request: &ApiRequest<'_>, target: &Target) -> ApiResult<Selection> {
        let labels = LabelSelector::parse(request.query.get("labelSelector").unwrap_or_default());
        let known = |field: &str| target.kind.selectable(field);
        let fields = FieldSelector::parse(request.query.get("fieldSelector").unwrap_or_default(), &known);
        Ok(Selection {
            labels: labels.map_err(StatusError::bad_request)?,
            fields: fields.map_err(StatusError::bad_request)?,
            name: target.name.clone(),
        })
    }

    /// Whether all objects are selected.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether this object is selected.
    pub(super) fn matches(&self, object: &Object, kind: &Kind) -> bool {
        (self.name.is_empty() || self.name == object.name())
            && self.labels.matches(|key| object.label(key))
            && (self.fields.is_empty() || self.fields_match(object, kind))
    }

    fn fields_match(&self, object: &Object, kind: &Kind) -> bool {
        let parsed = std::cell::OnceCell::new();
        self.fields.matches(&|field| match field {
            "metadata.name" => object.name().to_owned(),
            "metadata.namespace" => object.namespace().to_owned(),
            _ => field_of(parsed.get_or_init(|| object.value()), field, kind),
        })
    }

    /// The selected objects.
    pub(super) fn select(&self, state: &State, target: &Target) -> Vec<Arc<Object>> {
        let prefix = prefix_of(target);
        state
            .objects
            .range(target.kind.table(), &prefix, "")
            .map(|(_, object)| object.clone())
            .filter(|object| self.matches(object, &target.kind))
            .collect()
    }
}

/// The text that selectors compare with; the zero value for a missing field.
fn field_of(object: &Value, field: &str, kind: &Kind) -> String {
    let path: Vec<&str> = match (kind.kind(), field) {
        ("Event", "source") if object["source"]["component"].is_null() => vec!["reportingComponent"],
        ("Event", "source") => vec!["source", "component"],
        ("Job", "status.successful") => vec!["status", "succeeded"],
        _ => field.split('.').collect(),
    };
    match path.iter().fold(object, |value, field| &value[*field]) {
        Value::String(text) => text.clone(),
        Value::Null if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        Value::Null if field == "status.successful" => "0".to_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
