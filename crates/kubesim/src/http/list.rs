//! Get and list.

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::handle::{Asked, json_body, value};
use super::negotiate::{self, Form};
use super::query::Query;
use super::{Body, table, write};
use crate::kinds::Kind;
use crate::objects::Object;
use crate::schema::FieldError;
use crate::selector::{FieldSelector, LabelSelector};
use crate::state::State;
use crate::status::{Failure, Outcome};
use crate::verbs::{self, Target};

/// One object.
pub(super) fn get(asked: &Asked<'_>, target: &Target) -> Outcome<Response<Body>> {
    let form = negotiate::form(&asked.headers, false)?;
    let wanted = revision(asked.query.get("resourceVersion"))?;
    let state = asked.cluster.read();
    expect_reached(wanted, &state)?;
    if target.subresource == "scale" {
        return Ok(value(StatusCode::OK, &verbs::read_scale(&state, target)?));
    }
    let object = state.get(&target.kind, &target.namespace, &target.name).cloned();
    drop(state);
    let object = object.ok_or_else(|| Failure::not_found(&target.kind, &target.name))?;
    Ok(write::one(asked, target, form, StatusCode::OK, &object))
}

/// The text of an object as it is sent.
pub(super) fn text_of(kind: &Kind, object: &Object) -> Bytes {
    let head = kind.head();
    let rest = object.json().get(1..).unwrap_or_default();
    [head.as_bytes(), rest].concat().into()
}

/// A collection, or a page of it.
pub(super) fn list(asked: &Asked<'_>, target: &Target) -> Outcome<Response<Body>> {
    let form = negotiate::form(&asked.headers, true)?;
    let selection = Selection::of(asked, target)?;
    let page = Page::of(asked)?;
    let state = asked.cluster.read();
    let prefix = prefix_of(target);
    let found = page.read(&state, target, &prefix)?;
    drop(state);
    let Found { objects, revision } = found;
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
        metadata["continue"] = json!(Token::new(i64::try_from(revision).unwrap_or(i64::MAX), start).encode());
        if selection.is_empty() {
            metadata["remainingItemCount"] = json!(left);
        }
    }
    Ok(answer(asked, target, form, &chosen, metadata))
}

/// A list as an answer, in the form that was asked for.
pub(super) fn answer(
    asked: &Asked<'_>,
    target: &Target,
    form: Form,
    objects: &[Arc<Object>],
    metadata: Value,
) -> Response<Body> {
    let kind = &target.kind;
    let borrowed = || objects.iter().map(|object| &**object).collect::<Vec<&Object>>();
    match form {
        Form::Table => {
            value(StatusCode::OK, &table::table(kind, &borrowed(), asked.caller.now, &asked.query, metadata))
        }
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

/// The text of a list. Items of built-in kinds do not repeat what they are, as in the real server.
fn list_text(kind: &Kind, objects: &[Arc<Object>], metadata: &Value) -> VecDeque<Bytes> {
    let mut parts = VecDeque::with_capacity(objects.len() * 3 + 2);
    let names = format!(
        "\"kind\":{},\"apiVersion\":{}",
        Value::from(kind.list_kind()),
        Value::from(kind.api_version())
    );
    let mut metadata = metadata.clone();
    if kind.custom().is_some() && metadata["continue"].is_null() {
        // Lists of custom resources always say it.
        metadata["continue"] = json!("");
    }
    parts.push_back(Bytes::from(format!("{{{names},\"metadata\":{metadata},\"items\":[")));
    let item_head = kind.custom().map(|_| Bytes::from(kind.head()));
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            parts.push_back(Bytes::from_static(b","));
        }
        match &item_head {
            Some(head) => {
                parts.push_back(head.clone());
                parts.push_back(object.json().slice(1..));
            }
            None => parts.push_back(object.json().clone()),
        }
    }
    parts.push_back(Bytes::from_static(b"]}"));
    parts
}

/// The start of every key of the collection.
pub(super) fn prefix_of(target: &Target) -> String {
    if target.namespace.is_empty() { String::new() } else { format!("{}/", target.namespace) }
}

/// Which objects of a collection are meant.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// The one object that the path names, empty for all.
    name: String,
}

impl Selection {
    /// What the query asks for.
    pub(super) fn of(asked: &Asked<'_>, target: &Target) -> Outcome<Selection> {
        let labels = LabelSelector::parse(asked.query.get("labelSelector").unwrap_or_default());
        let known = |field: &str| target.kind.selectable(field);
        let fields = FieldSelector::parse(asked.query.get("fieldSelector").unwrap_or_default(), &known);
        Ok(Selection {
            labels: labels.map_err(Failure::bad_request)?,
            fields: fields.map_err(Failure::bad_request)?,
            name: target.name.clone(),
        })
    }

    /// Whether everything is meant.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether this object is meant.
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

    /// The objects that are meant.
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

/// A field as selectors compare it: text, with the zero value for what is missing.
fn field_of(object: &Value, field: &str, kind: &Kind) -> String {
    let path: Vec<&str> = match (kind.kind(), field) {
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

/// Reads a resourceVersion; zero and nothing mean any.
pub(super) fn revision(text: Option<&str>) -> Outcome<u64> {
    let Some(text) = text else { return Ok(0) };
    text.parse().map_err(|_| {
        let problem = if text.bytes().all(|byte| byte.is_ascii_digit()) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        let why = format!("strconv.ParseUint: parsing \"{text}\": {problem}");
        let cause = FieldError::invalid("resourceVersion", &json!(text), &why);
        Failure::bad_request(format!("invalid resource version: {cause}"))
    })
}

/// A revision from the future is answered with a time-out, as the real server does after waiting for it.
pub(super) fn expect_reached(wanted: u64, state: &State) -> Outcome<()> {
    let present = state.objects.revision();
    if wanted <= present {
        return Ok(());
    }
    let message = format!("Timeout: Too large resource version: {wanted}, current: {present}");
    let mut failure = Failure::new(504, "Timeout", message);
    failure.details = json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1,
    });
    failure.retry_after = Some(1);
    Err(failure)
}

/// Where a list goes on: what the caller gets as an opaque token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    fn new(revision: i64, start: String) -> Token {
        Token { v: "meta.k8s.io/v1".to_owned(), rv: revision, start }
    }

    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_string(self).unwrap_or_default())
    }

    fn decode(text: &str) -> Outcome<Token> {
        let invalid = |why: &str| {
            Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .or_else(|_| URL_SAFE.decode(text))
            .or_else(|_| STANDARD.decode(text))
            .or_else(|_| STANDARD_NO_PAD.decode(text))
            .map_err(|error| invalid(&error.to_string()))?;
        let token: Token = serde_json::from_slice(&bytes)
            .map_err(|error| invalid(&no_beginning(&bytes).unwrap_or_else(|| error.to_string())))?;
        if token.v != "meta.k8s.io/v1" {
            return Err(invalid(&format!("server does not recognize this encoded version \"{}\"", token.v)));
        }
        if token.rv == 0 {
            return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        if token.start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)"));
        }
        if token.start.starts_with('/') || token.start.split('/').any(|part| part == "..") {
            return Err(invalid(&token.start.clone()));
        }
        Ok(token)
    }
}

/// Options of a list that exclude each other.
fn refuse_contradictions(query: &Query) -> Outcome<()> {
    let mut causes = Vec::new();
    let given = query.get("resourceVersion");
    if let Some(matching) = query.get("resourceVersionMatch") {
        let mut forbid = |why: &str| causes.push(FieldError::forbidden("resourceVersionMatch", why));
        if given.is_none() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if query.get("continue").is_some() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if matching == "Exact" && given == Some("0") {
            forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let known = ["Exact", "NotOlderThan", ""].map(Value::from);
            causes.push(FieldError::not_supported("resourceVersionMatch", &json!(matching), known.iter()));
        }
    }
    if query.get("sendInitialEvents").is_some() {
        causes.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &causes)) }
}

/// What Go says of bytes that do not even begin like JSON.
fn no_beginning(bytes: &[u8]) -> Option<String> {
    let first = *bytes.iter().find(|byte| !byte.is_ascii_whitespace())?;
    let begins = matches!(first, b'{' | b'[' | b'"' | b'-' | b't' | b'f' | b'n' | b'0'..=b'9');
    let shown = match char::from(first) {
        '\'' => "\\'".to_owned(),
        letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    };
    (!begins).then(|| format!("invalid character '{shown}' looking for beginning of value"))
}

struct Page {
    limit: Option<usize>,
    token: Option<Token>,
    wanted: u64,
    exact: bool,
}

struct Found {
    objects: Vec<Arc<Object>>,
    revision: u64,
}

impl Page {
    fn of(asked: &Asked<'_>) -> Outcome<Page> {
        let query = &asked.query;
        let limit =
            query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let given = query.get("resourceVersion");
        let matching = query.get("resourceVersionMatch");
        refuse_contradictions(query)?;
        let token = query.get("continue").map(Token::decode).transpose()?;
        let exact = match matching {
            None => limit.is_some() && given.is_some_and(|given| given != "0"),
            Some(matching) => matching == "Exact",
        };
        if token.is_some() && given.is_some_and(|given| given != "0") {
            return Err(Failure::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Ok(Page { limit, token, wanted: revision(given)?, exact })
    }

    fn read(&self, state: &State, target: &Target, prefix: &str) -> Outcome<Found> {
        let table = target.kind.table();
        let start = self.token.as_ref().map(|token| format!("{prefix}{}", token.start)).unwrap_or_default();
        expect_reached(self.wanted, state)?;
        let revision = match &self.token {
            Some(token) if token.rv > 0 => token.rv.unsigned_abs(),
            None if self.exact => self.wanted,
            _ => state.objects.revision(),
        };
        expect_reached(revision, state)?;
        match state.objects.range_at(table, prefix, &start, revision) {
            Some(objects) => Ok(Found { objects, revision }),
            None => Err(self.expired()),
        }
    }

    fn expired(&self) -> Failure {
        let Some(token) = &self.token else {
            return Failure::expired("The resourceVersion for the provided list is too old.");
        };
        let mut failure = Failure::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        failure.resume = Some(Token::new(-1, token.start.clone()).encode());
        failure
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_that_was_tampered_with_is_refused() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for text in [
            "",
            "%%%",
            "{}",
            &encode("{}"),
            &encode(r#"{"v":"v9","rv":1,"start":"a"}"#),
            &encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            &encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            &encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#),
            &encode(r#"{"v":"meta.k8s.io/v1","rv":99999999999999999999,"start":"a"}"#),
        ] {
            assert_eq!(Token::decode(text).unwrap_err().code, 400, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_token_is_read_back_as_it_was_written(revision in 1_i64.., start in "[a-z]{1,9}(/[a-z]{1,9})?") {
            let token = Token::new(revision, start);
            prop_assert_eq!(Token::decode(&token.encode()), Ok(token));
        }

        #[test]
        fn no_token_panics(text in ".{0,60}") {
            let _ = Token::decode(&text);
        }
    }
}
