//! Live updates of open pages. One event stream of the Admin API serves all open pages. A page is rendered again when an event
//! concerns it, at most four times a second and once for all browsers that show it to the same role; each browser receives the panels
//! that changed. A browser that reconnects receives the panels that it has not seen, so that a lost connection loses nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ::serve::ClientAddress;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use client::{Change, Client, Topic};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use serde_json::json;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::PortalState;
use crate::fields::Fields;
use crate::pages;
use crate::session::{Role, SessionUser};
use crate::view::{PageEvents, Section, digest};

/// Shortest interval between two renderings of a page, and of a page that needs the plan of the fleet, which is expensive.
const RENDER_PAUSE: Duration = Duration::from_millis(250);
const PLAN_PAUSE: Duration = Duration::from_secs(5);

/// Time during which events are collected into one batch.
const BATCH_TIME: Duration = Duration::from_millis(50);

/// Interval of renderings without an event: changes of health are not published, and relative times change.
const RENDER_INTERVAL: Duration = Duration::from_secs(15);

/// Interval of keep-alive comments on idle streams.
const COMMENT_PAUSE: Duration = Duration::from_secs(15);

/// Highest number of open pages.
const PAGES_MAX: usize = 1_000;

/// Highest number of streams of one session, and of one client address, so that none can exhaust the streams of others.
const STREAMS_PER_SESSION_MAX: usize = 250;
const STREAMS_PER_CLIENT_MAX: usize = 500;

/// Batches that may wait for a slow page; a page that missed some is rendered completely.
const BATCHES_MAX: usize = 64;

/// Shortest and longest delay between attempts to read the event stream.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A change that may concern a page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PageEvent {
    /// A change of an object: its kind, its id, and the cluster that it concerns, in lower case.
    Changed { kind: String, id: String, cluster: String },
    /// Events were missed, so that anything may have changed.
    Unknown,
}

type Batch = Arc<Vec<PageEvent>>;

/// The last rendering of a page.
#[derive(Debug, Clone)]
struct RenderedPage {
    /// Id, digest and JSON-encoded HTML of each live panel, shared by all subscribers.
    panels: Arc<Vec<(&'static str, String, String)>>,
    events: PageEvents,
    pause: Duration,
    at: Instant,
    /// Number of batches that were published before the rendering started.
    batches: u64,
}

/// A page that is open in at least one browser.
#[derive(Debug, Default)]
struct OpenPage {
    rendered: tokio::sync::Mutex<Option<RenderedPage>>,
}

/// Publishes events to open pages.
#[derive(Debug)]
pub(crate) struct LivePages {
    events: broadcast::Sender<Batch>,
    batches: watch::Sender<u64>,
    closed: watch::Sender<bool>,
    open: Mutex<HashMap<(String, Role), Weak<OpenPage>>>,
    listeners: Arc<Mutex<HashMap<Listener, usize>>>,
}

/// Keys by which streams are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Listener {
    Session([u8; 32]),
    Client(IpAddr),
}

impl Listener {
    fn streams_max(self) -> usize {
        match self {
            Listener::Session(_) => STREAMS_PER_SESSION_MAX,
            Listener::Client(_) => STREAMS_PER_CLIENT_MAX,
        }
    }
}

/// Counts a stream while it exists.
#[derive(Debug)]
struct StreamGuard {
    listeners: Arc<Mutex<HashMap<Listener, usize>>>,
    counted: Vec<Listener>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for listener in &self.counted {
            if let Some(count) = listeners.get_mut(listener) {
                *count -= 1;
                if *count == 0 {
                    listeners.remove(listener);
                }
            }
        }
    }
}

impl Default for LivePages {
    fn default() -> LivePages {
        LivePages {
            events: broadcast::Sender::new(BATCHES_MAX),
            batches: watch::Sender::new(0),
            closed: watch::Sender::new(false),
            open: Mutex::default(),
            listeners: Arc::default(),
        }
    }
}

impl LivePages {
    /// Reads events and publishes them to open pages; never returns.
    pub(crate) async fn follow(&self, admin: &Client) {
        let mut pause = PAUSE_FIRST;
        loop {
            let mut events = admin.events(&Topic::ALL, None);
            while let Some(first) = events.next().await {
                let mut batch = match first {
                    Ok(event) => vec![page_event(event.change, &event.data)],
                    Err(error) => {
                        tracing::warn!("The portal cannot read the event stream: {error}");
                        break;
                    }
                };
                pause = PAUSE_FIRST;
                let until = Instant::now() + BATCH_TIME;
                while let Ok(Some(Ok(event))) = tokio::time::timeout_at(until, events.next()).await {
                    let next = page_event(event.change, &event.data);
                    if !batch.contains(&next) {
                        batch.push(next);
                    }
                }
                self.publish(batch);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            self.publish(vec![PageEvent::Unknown]);
        }
    }

    /// Ends the streams of all open pages.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Counts another stream; `None` if its session or client has the highest number already.
    fn count(&self, session: [u8; 32], client: Option<IpAddr>) -> Option<StreamGuard> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let counted: Vec<Listener> =
            std::iter::once(Listener::Session(session)).chain(client.map(Listener::Client)).collect();
        let is_full = |it: &Listener| listeners.get(it).is_some_and(|count| *count >= it.streams_max());
        if counted.iter().any(is_full) {
            return None;
        }
        for listener in &counted {
            *listeners.entry(*listener).or_default() += 1;
        }
        Some(StreamGuard { listeners: self.listeners.clone(), counted })
    }

    fn publish(&self, batch: Vec<PageEvent>) {
        self.batches.send_modify(|batches| *batches += 1);
        // There is no receiver when no page is open.
        let _ = self.events.send(Arc::new(batch));
    }

    /// The page at an address, shared with other browsers that show it; `None` if too many pages are open.
    fn open(&self, address: &str, role: Role) -> Option<Arc<OpenPage>> {
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (address.to_owned(), role);
        if let Some(open) = all.get(&key).and_then(Weak::upgrade) {
            return Some(open);
        }
        all.retain(|_, open| open.strong_count() > 0);
        if all.len() >= PAGES_MAX {
            return None;
        }
        let open = Arc::new(OpenPage::default());
        all.insert(key, Arc::downgrade(&open));
        Some(open)
    }
}

fn page_event(change: Change, data: &serde_json::Value) -> PageEvent {
    let lower = |text: &str| text.to_lowercase();
    match change {
        Change::Manifest(form) => PageEvent::Changed {
            kind: "manifest".to_owned(),
            id: form.id.to_string(),
            cluster: lower(form.cluster_resource_id.as_deref().unwrap_or_default()),
        },
        Change::Schedule(form) => {
            PageEvent::Changed { kind: "schedule".to_owned(), id: form.id.clone(), cluster: String::new() }
        }
        Change::Task(form) => {
            PageEvent::Changed { kind: "task".to_owned(), id: form.name.clone(), cluster: String::new() }
        }
        Change::Cluster(form) => {
            PageEvent::Changed { kind: "cluster".to_owned(), id: lower(&form.id), cluster: lower(&form.id) }
        }
        Change::Other(kind) => {
            let cluster = lower(data["clusterResourceID"].as_str().unwrap_or_default());
            PageEvent::Changed { kind, id: data["id"].as_str().unwrap_or_default().to_owned(), cluster }
        }
        Change::Deleted { topic, id } => {
            let cluster = if topic == "cluster" { lower(&id) } else { String::new() };
            PageEvent::Changed { kind: topic, id: lower(&id), cluster }
        }
        Change::Relist | Change::Interrupted { .. } => PageEvent::Unknown,
    }
}

impl PageEvents {
    fn includes(&self, event: &PageEvent) -> bool {
        let PageEvent::Changed { kind, id, cluster } = event else { return *self != PageEvents::Nothing };
        match self {
            PageEvents::Nothing => false,
            PageEvents::Kinds(kinds) => kinds.contains(&kind.as_str()),
            PageEvents::Cluster(wanted) => cluster.eq_ignore_ascii_case(wanted),
            // Changes of budgets and of the cluster's queue show at the next periodic rendering.
            PageEvents::Manifest(wanted) => kind == "manifest" && *id == wanted.to_string(),
            PageEvents::Schedule(wanted) => kind == "schedule" && id.eq_ignore_ascii_case(wanted),
        }
    }
}

impl OpenPage {
    /// A rendering that includes the first `batches` batches: the last one if it is recent enough, otherwise a new one for all
    /// subscribers.
    async fn render(
        &self,
        state: &Arc<PortalState>,
        address: &str,
        role: Role,
        batches: u64,
    ) -> Option<RenderedPage> {
        let mut last = self.rendered.lock().await;
        if let Some(rendered) = last.as_ref() {
            if rendered.batches >= batches && rendered.at.elapsed() < RENDER_INTERVAL {
                return Some(rendered.clone());
            }
            tokio::time::sleep_until(rendered.at + rendered.pause).await;
        }
        let (at, batches) = (Instant::now(), *state.hub.batches.borrow());
        let view = pages::view(state, address, role).await.ok()?;
        let pause = match view.section {
            Section::Plan | Section::Timeline => PLAN_PAUSE,
            _ => RENDER_PAUSE,
        };
        let live = view.panels.into_iter().filter(|panel| panel.is_live);
        let panels = live
            .map(|panel| (panel.id, digest(&panel.body), json!(panel.body.into_string()).to_string()))
            .collect();
        let rendered = RenderedPage { panels: Arc::new(panels), events: view.events, pause, at, batches };
        *last = Some(rendered.clone());
        Some(rendered)
    }
}

/// Streams the changed panels of a page as server-sent events.
pub(crate) async fn live(
    State(state): State<Arc<PortalState>>,
    Extension(user): Extension<SessionUser>,
    RawQuery(query): RawQuery,
    client: Option<Extension<ClientAddress>>,
    headers: HeaderMap,
) -> Response {
    let client = client.map(|Extension(address)| address.network());
    let Some(guard) = state.hub.count(user.key(), client) else {
        let message = format!(
            "Too many pages are open: at most {STREAMS_PER_SESSION_MAX} of one session and {STREAMS_PER_CLIENT_MAX} of one client."
        );
        return (StatusCode::TOO_MANY_REQUESTS, message).into_response();
    };
    let query = Fields::parse(&query.unwrap_or_default());
    let address = query.text("at").to_owned();
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let seen = last.unwrap_or(query.text("seen"));
    let seen: HashMap<String, String> = seen
        .split(',')
        .filter_map(|pair| pair.split_once('.'))
        .map(|(id, digest)| (id.to_owned(), digest.to_owned()))
        .collect();
    let Some(open) = state.hub.open(&address, user.role) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.").into_response();
    };
    // Subscribed before the first rendering, so that no event between the two is lost.
    let batches = state.hub.events.subscribe();
    let subscriber = Subscriber {
        closed: state.hub.closed.subscribe(),
        events: PageEvents::Nothing,
        state,
        user,
        address,
        open,
        batches,
        seen,
        due: Some(0),
        _guard: guard,
    };
    let events = stream::unfold(subscriber, |mut subscriber| async move {
        let event = subscriber.next().await?;
        Some((Ok::<_, Infallible>(event), subscriber))
    });
    let comments = KeepAlive::new().interval(COMMENT_PAUSE).text("keep-alive");
    Sse::new(events).keep_alive(comments).into_response()
}

/// The stream of one browser.
struct Subscriber {
    state: Arc<PortalState>,
    user: SessionUser,
    address: String,
    open: Arc<OpenPage>,
    events: PageEvents,
    batches: broadcast::Receiver<Batch>,
    closed: watch::Receiver<bool>,
    /// Digests of the panels that the browser shows, by panel id.
    seen: HashMap<String, String>,
    /// If a rendering is due: the number of batches that it must include.
    due: Option<u64>,
    _guard: StreamGuard,
}

impl Subscriber {
    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if *self.closed.borrow() || !self.state.sessions.is_valid(&self.user, self.state.clock.now()) {
                return None;
            }
            if let Some(batches) = self.due.take() {
                let rendering = self.open.render(&self.state, &self.address, self.user.role, batches);
                if let Some(rendered) = rendering.await {
                    self.events = rendered.events.clone();
                    if let Some(event) = self.changed(&rendered) {
                        return Some(event);
                    }
                }
            }
            self.due = Some(self.wait().await?);
        }
    }

    /// Waits until a rendering is due; `None` at the end of the stream.
    async fn wait(&mut self) -> Option<u64> {
        let interval = tokio::time::sleep(RENDER_INTERVAL);
        tokio::pin!(interval);
        loop {
            tokio::select! {
                _ = self.closed.changed() => return None,
                () = &mut interval => return Some(*self.state.hub.batches.borrow()),
                batch = self.batches.recv() => match batch {
                    Ok(batch) if batch.iter().any(|event| self.events.includes(event)) => {
                        return Some(*self.state.hub.batches.borrow());
                    }
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => return Some(*self.state.hub.batches.borrow()),
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            }
        }
    }

    /// An event with the panels that the browser does not show yet.
    fn changed(&mut self, rendered: &RenderedPage) -> Option<Event> {
        let fresh: Vec<_> = rendered
            .panels
            .iter()
            .filter(|(id, digest, _)| self.seen.get(*id).is_none_or(|seen| seen != digest))
            .collect();
        if fresh.is_empty() {
            return None;
        }
        let panels: Vec<String> =
            fresh.iter().map(|(id, _, html)| format!("{{\"id\":\"{id}\",\"html\":{html}}}")).collect();
        // Neither the placeholder nor a token has a character that JSON escapes.
        let data = format!("[{}]", panels.join(",")).replace(&self.state.csrf_placeholder, &self.user.csrf);
        for (id, digest, _) in fresh {
            self.seen.insert((*id).to_owned(), digest.clone());
        }
        let seen: Vec<String> =
            rendered.panels.iter().map(|(id, digest, _)| format!("{id}.{digest}")).collect();
        Some(Event::default().event("panels").id(seen.join(",")).data(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(kind: &str, id: &str, cluster: &str) -> PageEvent {
        PageEvent::Changed { kind: kind.to_owned(), id: id.to_owned(), cluster: cluster.to_owned() }
    }

    #[test]
    fn neither_a_session_nor_a_client_exhausts_the_streams_of_others() {
        let hub = LivePages::default();
        let [here, there] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse::<IpAddr>().ok());
        let mut open: Vec<_> = std::iter::from_fn(|| hub.count([1; 32], here)).collect();
        assert_eq!(open.len(), STREAMS_PER_SESSION_MAX);
        assert!(hub.count([1; 32], there).is_none() && hub.count([2; 32], here).is_some());
        for session in 2_u8.. {
            let more: Vec<_> = std::iter::from_fn(|| hub.count([session; 32], here)).collect();
            if more.is_empty() {
                break;
            }
            open.extend(more);
        }
        assert_eq!(open.len(), STREAMS_PER_CLIENT_MAX);
        assert!(hub.count([200; 32], here).is_none() && hub.count([200; 32], there).is_some());
        open.pop();
        assert!(hub.count([200; 32], here).is_some());
        drop(open);
        assert!(hub.listeners.lock().unwrap().is_empty());
    }

    #[test]
    fn a_page_receives_the_events_that_concern_it_and_unknown_ones() {
        let id = uuid::Uuid::from_u128(7);
        let check = |events: &PageEvents, event: &PageEvent, expect: bool| {
            assert_eq!(events.includes(event), expect, "{events:?} {event:?}");
        };
        let manifest = PageEvents::Manifest(id);
        check(&manifest, &changed("manifest", &id.to_string(), "/c"), true);
        check(&manifest, &changed("manifest", "another", "/c"), false);
        check(&PageEvents::Cluster("/C".to_owned()), &changed("manifest", "x", "/c"), true);
        check(&PageEvents::Cluster("/C".to_owned()), &changed("manifest", "x", "/d"), false);
        check(&PageEvents::Kinds(&["cluster"]), &changed("cluster", "/c", "/c"), true);
        check(&PageEvents::Kinds(&["cluster"]), &changed("task", "t", ""), false);
        check(&PageEvents::Schedule("Weekly".to_owned()), &changed("schedule", "weekly", ""), true);
        check(&manifest, &PageEvent::Unknown, true);
        check(&PageEvents::Nothing, &PageEvent::Unknown, false);
    }
}
