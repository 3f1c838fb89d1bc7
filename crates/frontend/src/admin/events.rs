//! The store's change feed as server-sent events. A stream reads the feed when its client can receive, so a slow client needs no
//! memory; a client that falls too far behind gets a `relist` event.

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use api::doc::{Cluster, Document as _, Manifest, Operation, Schedule, ScheduleOutlook, Task};
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::StatusCode;
use serde_json::{Value, json};
use store::{Change, FeedBatch, FeedFollower, StoreError, Subject};
use tokio::time::Instant;
use uuid::Uuid;

use super::params::MaybeVersion;
use super::{AdminState, forms};
use crate::metrics::StreamGuard;
use crate::wire::{ApiError, ApiRequest, Code};

/// Time between comments on a stream without events.
const COMMENT_PAUSE: Duration = Duration::from_secs(15);

/// Changes that are read at once, and held for a client at most.
const PAGE: usize = 200;

/// Maximum number of streams; each holds a connection.
const STREAMS_MAX: usize = 500;

/// Maximum number of streams of one client, so that it cannot exclude others.
const STREAMS_PER_CLIENT_MAX: usize = 250;

/// Topics: the name in a request, the name of events, and the kind in the store. The status of a schedule is a document of its own,
/// whose changes are events of the schedule.
const TOPICS: [(&str, &str, &str); 6] = [
    ("manifests", "manifest", Manifest::KIND),
    ("schedules", "schedule", Schedule::KIND),
    ("schedules", "schedule", ScheduleOutlook::KIND),
    ("tasks", "task", Task::KIND),
    ("clusters", "cluster", Cluster::KIND),
    ("operations", "operation", Operation::KIND),
];

/// Streams changes as server-sent events.
///
/// `id` is the position in the feed, `event` the topic in the singular, `data` the object as a GET returns it, or
/// `{"id", "deleted": true}` after its deletion. `event: relist` means that events were missed.
#[utoipa::path(
    get, path = "/admin/events", operation_id = "watchEvents", tag = "events",
    params(
        MaybeVersion,
        ("topics" = Option<String>, Query, description = "`manifests`, `schedules`, `tasks`, `clusters` or `operations`, separated by commas; all when absent."),
        ("Last-Event-ID" = Option<String>, Header, description = "Continue after this event."),
    ),
    responses(
        (status = 200, description = "Events, until the connection is closed.", body = String, content_type = "text/event-stream"),
        (status = 429, description = "Too many streams are open."),
    )
)]
pub(super) async fn events(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<Response, ApiError> {
    let topics = topics(request.query.get("topics")?)?;
    let position = match request.headers().get("last-event-id") {
        None => state.store.feed_end().await?,
        Some(value) => value.to_str().ok().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
            ApiError::invalid_parameter("Last-Event-ID", "The id is not from an event of this server.")
        })?,
    };
    let Some(guard) = state.metrics.stream(request.network(), STREAMS_MAX, STREAMS_PER_CLIENT_MAX) else {
        let message = format!(
            "Too many event streams are open: at most {STREAMS_MAX} are served, and {STREAMS_PER_CLIENT_MAX} of one client."
        );
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, Code::TooManyRequests, message));
    };
    let kinds = topics.iter().map(|(_, kind)| *kind);
    let feed = state.store.follow_feed(kinds).batch_max(PAGE).from_position(position);
    let (ready, last_sent) = (VecDeque::new(), Instant::now());
    let stream = EventStream { state, topics, feed, ready, last_sent, is_started: false, _guard: guard };
    let events = stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    Ok(Sse::new(events).into_response())
}

/// The requested kinds of document, with the names of their events.
fn topics(text: Option<&str>) -> Result<Vec<(&'static str, &'static str)>, ApiError> {
    let Some(text) = text else { return Ok(TOPICS.iter().map(|(_, name, kind)| (*name, *kind)).collect()) };
    let mut wanted = Vec::new();
    for topic in text.split(',').map(str::trim) {
        let named = TOPICS.iter().filter(|(plural, ..)| plural.eq_ignore_ascii_case(topic));
        let before = wanted.len();
        wanted.extend(named.map(|(_, name, kind)| (*name, *kind)));
        if wanted.len() == before {
            let mut all: Vec<_> = TOPICS.iter().map(|(plural, ..)| *plural).collect();
            all.dedup();
            let message = format!("The topics are {}, separated by commas.", all.join(", "));
            return Err(ApiError::invalid_parameter("topics", message));
        }
    }
    Ok(wanted)
}

/// One open stream.
struct EventStream {
    state: AdminState,
    topics: Vec<(&'static str, &'static str)>,
    feed: FeedFollower,
    ready: VecDeque<Event>,
    /// When the last event or comment was sent.
    last_sent: Instant,
    is_started: bool,
    _guard: StreamGuard,
}

impl EventStream {
    /// The next event; none when the stream ends.
    async fn next(&mut self) -> Option<Event> {
        if !self.is_started {
            self.is_started = true;
            // The client gets its position at once.
            return Some(self.position_comment());
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last_sent = Instant::now();
                return Some(event);
            }
            if self.state.closing.is_cancelled() {
                return None;
            }
            if let Err(error) = self.read().await {
                // The client reconnects with the id of the last event that it received.
                tracing::warn!(error = &error as &dyn std::error::Error, "Closing an event stream: {error}");
                return None;
            }
            if !self.ready.is_empty() {
                continue;
            }
            let closing = self.state.closing.clone();
            closing.run_until_cancelled(self.feed.wait(store::SAFETY_POLL)).await?;
            if self.last_sent.elapsed() >= COMMENT_PAUSE {
                return Some(self.position_comment());
            }
        }
    }

    /// A comment with the position, from which a disconnected client continues even if no event was sent for long.
    fn position_comment(&mut self) -> Event {
        self.last_sent = Instant::now();
        self.at_position(Event::default().comment(""))
    }

    /// The event with the id of the follower's position.
    fn at_position(&self, event: Event) -> Event {
        match self.feed.position() {
            Some(position) => event.id(position.to_string()),
            None => event,
        }
    }

    /// Reads the next batch of the feed into events.
    async fn read(&mut self) -> Result<(), StoreError> {
        let FeedBatch::Changes(changes) = self.feed.read().await? else {
            // The client lists the objects again; the event has the position from which its events continue.
            self.feed.acknowledge();
            self.ready.push_back(self.at_position(Event::default().event("relist").data("{}")));
            return Ok(());
        };
        let changes = newest(changes);
        if !changes.is_empty() {
            let forms =
                forms::for_documents(&self.state, changes.iter().map(|change| change.uuid).collect()).await?;
            let gone = changes.iter().map(|change| change.uuid).filter(|uuid| !forms.contains_key(uuid));
            let gone: HashMap<Uuid, String> =
                self.state.store.deleted_paths(gone.collect()).await?.into_iter().collect();
            for change in changes {
                if let Some(event) = self.event(&change, forms.get(&change.uuid), gone.get(&change.uuid)) {
                    self.ready.push_back(event);
                }
            }
        }
        self.feed.acknowledge();
        Ok(())
    }

    fn event(&self, change: &Change, form: Option<&Value>, path: Option<&String>) -> Option<Event> {
        let (name, _) = self.topics.iter().find(|(_, kind)| *kind == change.kind)?;
        let is_deleted = matches!(change.subject, Subject::Document { deleted: true, .. });
        if is_deleted && change.kind == ScheduleOutlook::KIND {
            return None;
        }
        let data = match (form, path) {
            (Some(form), _) => form.to_string(),
            (None, Some(path)) if is_deleted => {
                json!({ "id": forms::id_from_path(path), "deleted": true }).to_string()
            }
            (None, None) if is_deleted => json!({ "id": change.uuid, "deleted": true }).to_string(),
            // It was deleted since; its deletion is further on in the feed.
            (None, _) => return None,
        };
        Some(Event::default().event(name).id(change.position.to_string()).data(data))
    }
}

/// The last change of each document, in the order of the feed. States in between are no longer stored.
fn newest(changes: Vec<Change>) -> Vec<Change> {
    let mut seen: HashSet<Uuid> = HashSet::new();
    let last = changes.into_iter().rev().filter(|change| seen.insert(change.uuid));
    let mut last: Vec<Change> = last.collect();
    last.reverse();
    last
}
