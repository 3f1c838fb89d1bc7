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

/// So much of the feed is read at once, and so much at most is held for a client.
const PAGE: usize = 200;

/// Maximum number of streams; each holds a connection.
const STREAMS_MAX: usize = 500;

/// Maximum number of streams of one client, so that it cannot exclude others.
const STREAMS_PER_CLIENT_MAX: usize = 250;

/// What can be listened to: as it is asked for, as events are called, and the kind in the store. How a schedule fares is a
/// document of its own, and news of the schedule.
const TOPICS: [(&str, &str, &str); 6] = [
    ("manifests", "manifest", Manifest::KIND),
    ("schedules", "schedule", Schedule::KIND),
    ("schedules", "schedule", ScheduleOutlook::KIND),
    ("tasks", "task", Task::KIND),
    ("clusters", "cluster", Cluster::KIND),
    ("operations", "operation", Operation::KIND),
];

/// Streams what happens as server-sent events.
///
/// `id` is the place in the feed, `event` the topic in the singular, `data` the object as a GET would show it, or
/// `{"id", "deleted": true}` when it is gone. `event: relist` says that events were missed.
#[utoipa::path(
    get, path = "/admin/events", operation_id = "watchEvents", tag = "events",
    params(
        MaybeVersion,
        ("topics" = Option<String>, Query, description = "Of `manifests`, `schedules`, `tasks`, `clusters`, `operations`, with commas between; all when absent."),
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
    let (ready, told) = (VecDeque::new(), Instant::now());
    let listening = EventStream { state, topics, feed, ready, told, begun: false, _guard: guard };
    let events = stream::unfold(listening, |mut listening| async move {
        let event = listening.next().await?;
        Some((Ok::<_, Infallible>(event), listening))
    });
    Ok(Sse::new(events).into_response())
}

/// The kinds of document that are listened to, with the names of their events.
fn topics(text: Option<&str>) -> Result<Vec<(&'static str, &'static str)>, ApiError> {
    let Some(text) = text else { return Ok(TOPICS.iter().map(|(_, name, kind)| (*name, *kind)).collect()) };
    let mut wanted = Vec::new();
    for word in text.split(',').map(str::trim) {
        let named = TOPICS.iter().filter(|(plural, ..)| plural.eq_ignore_ascii_case(word));
        let before = wanted.len();
        wanted.extend(named.map(|(_, name, kind)| (*name, *kind)));
        if wanted.len() == before {
            let mut known: Vec<_> = TOPICS.iter().map(|(plural, ..)| *plural).collect();
            known.dedup();
            let message = format!("The topics are {}, with commas between.", known.join(", "));
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
    told: Instant,
    begun: bool,
    _guard: StreamGuard,
}

impl EventStream {
    /// The next event; none when the stream ends.
    async fn next(&mut self) -> Option<Event> {
        if !self.begun {
            self.begun = true;
            // The client gets its position at once.
            return Some(self.sign_of_life());
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.told = Instant::now();
                return Some(event);
            }
            if self.state.closing.is_cancelled() {
                return None;
            }
            if let Err(error) = self.read().await {
                // The client comes back with the id of the last event it saw.
                tracing::warn!(error = &error as &dyn std::error::Error, "Closing an event stream: {error}");
                return None;
            }
            if !self.ready.is_empty() {
                continue;
            }
            let closing = self.state.closing.clone();
            closing.run_until_cancelled(self.feed.wait(store::SAFETY_POLL)).await?;
            if self.told.elapsed() >= COMMENT_PAUSE {
                return Some(self.sign_of_life());
            }
        }
    }

    /// A comment that carries the position: who is cut off now goes on from here, however long nothing was told.
    fn sign_of_life(&mut self) -> Event {
        self.told = Instant::now();
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
            // The client lists, so there is nothing to do here but to say from where on it gets events again.
            self.feed.acknowledge();
            self.ready.push_back(self.at_position(Event::default().event("relist").data("{}")));
            return Ok(());
        };
        let changes = newest(changes);
        if !changes.is_empty() {
            let forms =
                forms::of_many(&self.state, changes.iter().map(|change| change.uuid).collect()).await?;
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
        let is_gone = matches!(change.subject, Subject::Document { deleted: true, .. });
        if is_gone && change.kind == ScheduleOutlook::KIND {
            return None;
        }
        let data = match (form, path) {
            (Some(form), _) => form.to_string(),
            (None, Some(path)) if is_gone => {
                json!({ "id": forms::id_of_path(path), "deleted": true }).to_string()
            }
            (None, None) if is_gone => json!({ "id": change.uuid, "deleted": true }).to_string(),
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
