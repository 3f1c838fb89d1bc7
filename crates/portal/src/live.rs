//! Pages that live. One stream of events is read from the Admin API for all open pages. A page that an event concerns is rendered
//! again, at most four times a second and once for all browsers that show it to the same role; what changed of it is sent to
//! each. Whoever comes (back) is sent what they have not seen, so that a lost connection loses nothing.

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

/// A page is rendered again at most this often; one that needs the plan of the fleet, which is work, less.
const RENDER_PAUSE: Duration = Duration::from_millis(250);
const PLAN_PAUSE: Duration = Duration::from_secs(5);

/// PageEvent are gathered for this long before pages hear of them.
const GATHER: Duration = Duration::from_millis(50);

/// A page is looked at again this often though nobody told anything: health is no news, and time passes.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// A stream that has nothing to tell says so this often.
const COMMENT_PAUSE: Duration = Duration::from_secs(15);

/// More open pages than this are refused.
const PAGES_MAX: usize = 1_000;

/// More streams than this of one session, or from one client, are refused: one of them cannot take the room of all others.
const STREAMS_PER_SESSION_MAX: usize = 250;
const STREAMS_PER_CLIENT_MAX: usize = 500;

/// So many batches of news may wait for a page that is slow; one that missed some looks at everything.
const BATCHES: usize = 64;

/// The pauses between attempts to hear of anything.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PageEvent {
    /// To a thing of this kind: its id, and the cluster that it concerns, in lower case.
    Of { kind: String, id: String, cluster: String },
    /// Nobody knows what was missed.
    Anything,
}

type Batch = Arc<Vec<PageEvent>>;

/// A page as it was rendered last.
#[derive(Debug, Clone)]
struct Rendered {
    /// Of each live panel: its place, a mark of what is in it, and what is in it, as JSON: it is made once for all who listen.
    panels: Arc<Vec<(&'static str, String, String)>>,
    listens: PageEvents,
    pause: Duration,
    at: Instant,
    /// How many batches had been told when the rendering began.
    told: u64,
}

/// A page that somebody has open.
#[derive(Debug, Default)]
struct OpenPage {
    rendered: tokio::sync::Mutex<Option<Rendered>>,
}

/// Brings news to open pages.
#[derive(Debug)]
pub(crate) struct LivePages {
    news: broadcast::Sender<Batch>,
    told: watch::Sender<u64>,
    closed: watch::Sender<bool>,
    open: Mutex<HashMap<(String, Role), Weak<OpenPage>>>,
    listeners: Arc<Mutex<HashMap<Listener, usize>>>,
}

/// By what streams are counted.
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

/// Counts one stream until it is dropped.
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
            news: broadcast::Sender::new(BATCHES),
            told: watch::Sender::new(0),
            closed: watch::Sender::new(false),
            open: Mutex::default(),
            listeners: Arc::default(),
        }
    }
}

impl LivePages {
    /// Reads events and tells open pages of them; for ever.
    pub(crate) async fn follow(&self, admin: &Client) {
        let mut pause = PAUSE_FIRST;
        loop {
            let mut events = admin.events(&Topic::ALL, None);
            while let Some(first) = events.next().await {
                let mut batch = match first {
                    Ok(event) => vec![news(event.change, &event.data)],
                    Err(error) => {
                        tracing::warn!("The portal hears of no changes: {error}");
                        break;
                    }
                };
                pause = PAUSE_FIRST;
                let until = Instant::now() + GATHER;
                while let Ok(Some(Ok(event))) = tokio::time::timeout_at(until, events.next()).await {
                    let next = news(event.change, &event.data);
                    if !batch.contains(&next) {
                        batch.push(next);
                    }
                }
                self.tell(batch);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            self.tell(vec![PageEvent::Anything]);
        }
    }

    /// Ends the streams of all open pages.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Counts one more stream; none when its session or its client has as many as it may.
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

    fn tell(&self, batch: Vec<PageEvent>) {
        self.told.send_modify(|told| *told += 1);
        // Nobody listens when no page is open.
        let _ = self.news.send(Arc::new(batch));
    }

    /// The page that others may have open too.
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

fn news(change: Change, data: &serde_json::Value) -> PageEvent {
    let lower = |text: &str| text.to_lowercase();
    match change {
        Change::Manifest(form) => PageEvent::Of {
            kind: "manifest".to_owned(),
            id: form.id.to_string(),
            cluster: lower(form.cluster_resource_id.as_deref().unwrap_or_default()),
        },
        Change::Schedule(form) => {
            PageEvent::Of { kind: "schedule".to_owned(), id: form.id.clone(), cluster: String::new() }
        }
        Change::Task(form) => {
            PageEvent::Of { kind: "task".to_owned(), id: form.name.clone(), cluster: String::new() }
        }
        Change::Cluster(form) => {
            PageEvent::Of { kind: "cluster".to_owned(), id: lower(&form.id), cluster: lower(&form.id) }
        }
        Change::Other(kind) => {
            let cluster = lower(data["clusterResourceID"].as_str().unwrap_or_default());
            PageEvent::Of { kind, id: data["id"].as_str().unwrap_or_default().to_owned(), cluster }
        }
        Change::Deleted { topic, id } => {
            let cluster = if topic == "cluster" { lower(&id) } else { String::new() };
            PageEvent::Of { kind: topic, id: lower(&id), cluster }
        }
        Change::Relist | Change::Interrupted { .. } => PageEvent::Anything,
    }
}

impl PageEvents {
    fn wants(&self, news: &PageEvent) -> bool {
        let PageEvent::Of { kind, id, cluster } = news else { return *self != PageEvents::Nothing };
        match self {
            PageEvents::Nothing => false,
            PageEvents::Kinds(kinds) => kinds.contains(&kind.as_str()),
            PageEvents::Cluster(wanted) => cluster.eq_ignore_ascii_case(wanted),
            // What happens to others decides whether this one may go: a budget, a place in the cluster's queue.
            PageEvents::Manifest(wanted) => kind == "manifest" && *id == wanted.to_string(),
            PageEvents::Schedule(wanted) => kind == "schedule" && id.eq_ignore_ascii_case(wanted),
        }
    }
}

impl OpenPage {
    /// The page as it is now: rendered after the batch `told`, by whoever comes first, and not more often than pages are.
    async fn now(&self, state: &Arc<PortalState>, address: &str, role: Role, told: u64) -> Option<Rendered> {
        let mut last = self.rendered.lock().await;
        if let Some(rendered) = last.as_ref() {
            if rendered.told >= told && rendered.at.elapsed() < LOOK_AGAIN {
                return Some(rendered.clone());
            }
            tokio::time::sleep_until(rendered.at + rendered.pause).await;
        }
        let (at, told) = (Instant::now(), *state.hub.told.borrow());
        let view = pages::view(state, address, role).await.ok()?;
        let pause = match view.section {
            Section::Plan | Section::Timeline => PLAN_PAUSE,
            _ => RENDER_PAUSE,
        };
        let live = view.panels.into_iter().filter(|panel| panel.is_live);
        let panels = live
            .map(|panel| (panel.id, digest(&panel.body), json!(panel.body.into_string()).to_string()))
            .collect();
        let rendered = Rendered { panels: Arc::new(panels), listens: view.listens, pause, at, told };
        *last = Some(rendered.clone());
        Some(rendered)
    }
}

/// What changes of a page, as server-sent events.
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
        .map(|(id, mark)| (id.to_owned(), mark.to_owned()))
        .collect();
    let Some(open) = state.hub.open(&address, user.role) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.").into_response();
    };
    // From before the first look: what happens meanwhile is looked at again.
    let batches = state.hub.news.subscribe();
    let listening = Listening {
        closed: state.hub.closed.subscribe(),
        listens: PageEvents::Nothing,
        state,
        user,
        address,
        open,
        batches,
        seen,
        due: Some(0),
        _guard: guard,
    };
    let events = stream::unfold(listening, |mut listening| async move {
        let event = listening.next().await?;
        Some((Ok::<_, Infallible>(event), listening))
    });
    let comments = KeepAlive::new().interval(COMMENT_PAUSE).text("still here");
    Sse::new(events).keep_alive(comments).into_response()
}

/// One browser that listens.
struct Listening {
    state: Arc<PortalState>,
    user: SessionUser,
    address: String,
    open: Arc<OpenPage>,
    listens: PageEvents,
    batches: broadcast::Receiver<Batch>,
    closed: watch::Receiver<bool>,
    /// What the browser shows, by panel.
    seen: HashMap<String, String>,
    /// A look is due, at what was told so far.
    due: Option<u64>,
    _guard: StreamGuard,
}

impl Listening {
    /// The next event; none when the stream ends.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if *self.closed.borrow() || !self.state.sessions.is_there(&self.user, self.state.clock.now()) {
                return None;
            }
            if let Some(told) = self.due.take() {
                let looking = self.open.now(&self.state, &self.address, self.user.role, told);
                if let Some(rendered) = looking.await {
                    self.listens = rendered.listens.clone();
                    if let Some(event) = self.changed(&rendered) {
                        return Some(event);
                    }
                }
            }
            self.due = Some(self.wait().await?);
        }
    }

    /// Waits until a look is worth while; none at the end.
    async fn wait(&mut self) -> Option<u64> {
        let again = tokio::time::sleep(LOOK_AGAIN);
        tokio::pin!(again);
        loop {
            tokio::select! {
                _ = self.closed.changed() => return None,
                () = &mut again => return Some(*self.state.hub.told.borrow()),
                batch = self.batches.recv() => match batch {
                    Ok(batch) if batch.iter().any(|news| self.listens.wants(news)) => {
                        return Some(*self.state.hub.told.borrow());
                    }
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => return Some(*self.state.hub.told.borrow()),
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            }
        }
    }

    /// What the browser has not seen yet.
    fn changed(&mut self, rendered: &Rendered) -> Option<Event> {
        let fresh: Vec<_> = rendered
            .panels
            .iter()
            .filter(|(id, mark, _)| self.seen.get(*id).is_none_or(|seen| seen != mark))
            .collect();
        if fresh.is_empty() {
            return None;
        }
        let panels: Vec<String> =
            fresh.iter().map(|(id, _, html)| format!("{{\"id\":\"{id}\",\"html\":{html}}}")).collect();
        // Neither the mark nor a token has a letter that JSON would write in another way.
        let data = format!("[{}]", panels.join(",")).replace(&self.state.mark, &self.user.csrf);
        for (id, mark, _) in fresh {
            self.seen.insert((*id).to_owned(), mark.clone());
        }
        let seen: Vec<String> = rendered.panels.iter().map(|(id, mark, _)| format!("{id}.{mark}")).collect();
        Some(Event::default().event("panels").id(seen.join(",")).data(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, id: &str, cluster: &str) -> PageEvent {
        PageEvent::Of { kind: kind.to_owned(), id: id.to_owned(), cluster: cluster.to_owned() }
    }

    #[test]
    fn neither_a_session_nor_a_client_takes_the_room_of_all_others() {
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
    fn a_page_hears_only_what_concerns_it_and_of_whatever_was_missed() {
        let id = uuid::Uuid::from_u128(7);
        let check = |listens: &PageEvents, news: &PageEvent, expect: bool| {
            assert_eq!(listens.wants(news), expect, "{listens:?} {news:?}");
        };
        let manifest = PageEvents::Manifest(id);
        check(&manifest, &of("manifest", &id.to_string(), "/c"), true);
        check(&manifest, &of("manifest", "another", "/c"), false);
        check(&PageEvents::Cluster("/C".to_owned()), &of("manifest", "x", "/c"), true);
        check(&PageEvents::Cluster("/C".to_owned()), &of("manifest", "x", "/d"), false);
        check(&PageEvents::Kinds(&["cluster"]), &of("cluster", "/c", "/c"), true);
        check(&PageEvents::Kinds(&["cluster"]), &of("task", "t", ""), false);
        check(&PageEvents::Schedule("Weekly".to_owned()), &of("schedule", "weekly", ""), true);
        check(&manifest, &PageEvent::Anything, true);
        check(&PageEvents::Nothing, &PageEvent::Anything, false);
    }
}
