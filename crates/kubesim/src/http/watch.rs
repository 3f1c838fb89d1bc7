//! Watches. Every watch reads the cluster's log with a cursor of its own when its connection accepts data, so an idle
//! client costs nothing. A client that falls behind the log gets an error when it reads.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::handle::{ApiRequest, json_body};
use super::list::{Selection, prefix_of};
use super::negotiate::{self, Form};
use super::page::revision;
use super::query::Query;
use super::{Body, list, table};
use crate::cluster::ClusterInner;
use crate::kinds::Kind;
use crate::objects::{EventType, Object, WatchEvent};
use crate::schema::FieldError;
use crate::status::{ApiResult, StatusError};
use crate::verbs::Target;

/// Interval of bookmarks on an idle watch.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Timeout of a watch that requests none; the real server uses 30 to 60 minutes.
const TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// Limit on a requested timeout; the end of a longer one could not be computed.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Size up to which events are collected before they are sent.
const BATCH_BYTES: usize = 64 << 10;

/// Opens a watch.
pub(super) fn watch(request: &ApiRequest<'_>, target: &Target) -> ApiResult<Response<Body>> {
    let form = negotiate::form(&request.headers, false)?;
    let selection = Selection::from_request(request, target)?;
    let query = &request.query;
    let causes = watch_option_errors(query);
    if !causes.is_empty() {
        return Err(StatusError::invalid("meta.k8s.io", "ListOptions", "", &causes));
    }
    let from = revision(query.get("resourceVersion")).map_err(|failure| {
        // The real server reports this as an internal error.
        StatusError::new(500, "", failure.message.trim_start_matches("invalid resource version: "))
    })?;
    let initial = initial_events(query, from);
    let timeout = query
        .number("timeoutSeconds")?
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|one| *one > 0)
        .map(|one| Duration::from_secs(one).min(TIMEOUT_MAX));
    let now = Instant::now();
    let mut state = request.cluster.write();
    let present = state.objects.revision();
    let changed = state.objects.watch_table(target.kind.table());
    let backlog = if initial == InitialEvents::None { Vec::new() } else { selection.select(&state, target) };
    drop(state);
    let watcher = Watcher {
        cluster: request.cluster.clone(),
        kind: target.kind.clone(),
        prefix: prefix_of(target),
        selection,
        form,
        query: query.clone(),
        cursor: if initial == InitialEvents::None { from } else { present },
        backlog: backlog.into_iter(),
        ends_initial: initial == InitialEvents::WithEnd,
        bookmarks: query.flag("allowWatchBookmarks"),
        next_bookmark: now + BOOKMARK_EVERY,
        deadline: now + timeout.unwrap_or(TIMEOUT),
        dropped: request.cluster.faults.dropped(),
        columns_sent: false,
        is_over: false,
        changed,
    };
    let events =
        stream::unfold(
            watcher,
            |mut watcher| async move { watcher.next().await.map(|chunk| (chunk, watcher)) },
        );
    Ok(json_body(StatusCode::OK, Body::Stream(Box::pin(events))))
}

/// What a watch starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InitialEvents {
    /// Changes only.
    None,
    /// The existing objects, as ADDED events.
    Objects,
    /// The existing objects, and a bookmark after them.
    WithEnd,
}

fn initial_events(query: &Query, from: u64) -> InitialEvents {
    match query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")) {
        None if from == 0 => InitialEvents::Objects,
        Some(true) => InitialEvents::WithEnd,
        None | Some(false) => InitialEvents::None,
    }
}

/// Options of a watch that exclude each other.
fn watch_option_errors(query: &Query) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let matching = query.get("resourceVersionMatch");
    let has_initial_events = query.get("sendInitialEvents").is_some();
    let mut forbid = |why: &str| causes.push(FieldError::forbidden("resourceVersionMatch", why));
    if has_initial_events && matching != Some("NotOlderThan") {
        forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if matching.is_some() && !has_initial_events {
        forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    if matching.is_some() && query.get("continue").is_some() {
        forbid("resourceVersionMatch is forbidden when continue is provided");
    }
    if let Some(other) = matching.filter(|matching| *matching != "NotOlderThan") {
        let known = [json!("NotOlderThan")];
        causes.push(FieldError::not_supported("resourceVersionMatch", &json!(other), known.iter()));
    }
    causes
}

struct Watcher {
    cluster: Arc<ClusterInner>,
    kind: Arc<Kind>,
    prefix: String,
    selection: Selection,
    form: Form,
    query: Query,
    /// All events up to this revision were read.
    cursor: u64,
    backlog: std::vec::IntoIter<Arc<Object>>,
    ends_initial: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    changed: Receiver<u64>,
    dropped: Receiver<u64>,
    columns_sent: bool,
    is_over: bool,
}

impl Watcher {
    /// The next events, or `None` when the watch ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over {
                return None;
            }
            let chunk = self.collect_events();
            if !chunk.is_empty() {
                return Some(chunk.into());
            }
            tokio::select! {
                changed = self.changed.changed() => if changed.is_err() { return None },
                _ = self.dropped.changed() => return None,
                () = self.cluster.stopped.cancelled() => return None,
                () = tokio::time::sleep_until(self.deadline) => return None,
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    self.cursor = self.cursor.max(self.cluster.read().objects.revision());
                    return Some(self.bookmark(false).into());
                }
            }
        }
    }

    /// The events that are available now.
    fn collect_events(&mut self) -> Vec<u8> {
        let now = self.cluster.clock.now();
        let mut chunk = Vec::new();
        while let Some(object) = self.backlog.next() {
            self.write_event(&mut chunk, "ADDED", &object, now);
            if chunk.len() > BATCH_BYTES {
                return chunk;
            }
        }
        if self.ends_initial {
            self.ends_initial = false;
            chunk.extend(self.bookmark(true));
        }
        self.changed.mark_unchanged();
        let cluster = self.cluster.clone();
        let state = cluster.read();
        let present = state.objects.revision();
        let Some(events) = state.objects.events_since(self.cursor) else {
            self.is_over = true;
            let message = format!("too old resource version: {} ({})", self.cursor, state.objects.oldest());
            chunk.extend(line("ERROR", StatusError::expired(message).status().to_string().as_bytes()));
            return chunk;
        };
        let mut seen = self.cursor.max(present);
        for event in events {
            if *event.table == **self.kind.table() && event.key.starts_with(&self.prefix) {
                self.write_matching(&mut chunk, event, now);
            }
            if chunk.len() > BATCH_BYTES {
                seen = event.revision;
                self.changed.mark_changed();
                break;
            }
        }
        self.cursor = seen;
        chunk
    }

    /// Writes an event as this watch sees it: an object that no longer matches is DELETED.
    fn write_matching(&mut self, chunk: &mut Vec<u8>, event: &WatchEvent, now: Timestamp) {
        let matches = |object: &Object| self.selection.matches(object, &self.kind);
        let before = event.previous.as_deref().is_some_and(matches);
        let after = event.kind != EventType::Deleted && matches(&event.object);
        match (before, after) {
            (false, true) => self.write_event(chunk, "ADDED", &event.object, now),
            (true, true) => self.write_event(chunk, "MODIFIED", &event.object, now),
            (true, false) if event.kind == EventType::Deleted => {
                self.write_event(chunk, "DELETED", &event.object, now);
            }
            (true, false) => {
                if let Some(previous) = &event.previous {
                    self.write_event(chunk, "DELETED", &previous.at_revision(event.revision), now);
                }
            }
            (false, false) => {}
        }
    }

    fn write_event(&mut self, chunk: &mut Vec<u8>, event_type: &str, object: &Object, now: Timestamp) {
        let json = match self.form {
            Form::Objects => list::object_json(&self.kind, object),
            Form::Metadata => table::metadata_of(object).to_string().into(),
            Form::Table => {
                let mut table = table::table(&self.kind, &[object], now, &self.query, json!({}));
                if self.columns_sent {
                    table["columnDefinitions"] = Value::Null;
                }
                self.columns_sent = true;
                table.to_string().into()
            }
        };
        chunk.extend(line(event_type, &json));
    }

    fn bookmark(&self, ends_initial: bool) -> Vec<u8> {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({"metadata": metadata});
        match self.form {
            Form::Objects => self.kind.set_type_meta(&mut object),
            Form::Metadata => {
                object["kind"] = json!("PartialObjectMetadata");
                object["apiVersion"] = json!("meta.k8s.io/v1");
            }
            Form::Table => {
                self.kind.set_type_meta(&mut object);
                let metadata = json!({"resourceVersion": self.cursor.to_string()});
                object = json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null,
                    "rows": [{"cells": null, "object": object}],
                });
            }
        }
        line("BOOKMARK", object.to_string().as_bytes())
    }
}

fn line(event_type: &str, object: &[u8]) -> Vec<u8> {
    [format!("{{\"type\":\"{event_type}\",\"object\":").as_bytes(), object, b"}\n"].concat()
}
