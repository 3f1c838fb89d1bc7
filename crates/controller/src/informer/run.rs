//! The watch of an informer: lists, watches, and never gives up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher as watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::change::Object;
use crate::error::error_chain;
use crate::informer::{Selection, Shared};
use crate::informers::Observability;
use crate::metrics::RestartReason;

#[cfg(test)]
mod tests;

/// Longest duration of one watch request; the next one continues where it ended. A dead connection is noticed by then.
const WATCH_SECONDS: u32 = 120;

/// Objects of one page of a listing: bounds what the API server and this process hold at once.
const PAGE_SIZE: u32 = 500;

/// Longest time after which the watch must have confirmed a write of this process; then everything is listed again.
const CONFIRM_MAX: Duration = Duration::from_secs(30);

/// Interval of the heartbeat, and of the check for unconfirmed writes.
const BEAT: Duration = Duration::from_secs(5);

/// A loop without a heartbeat for this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);

const RETRY_FIRST: Duration = Duration::from_millis(250);
/// Short, because everything in the cluster waits for it, and one request of each watch in 5 s is no load.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// A watch to run.
pub(crate) struct Watch<K: Object> {
    pub(crate) shared: Arc<Shared<K>>,
    pub(crate) api: Api<K>,
    pub(crate) selection: Selection,
    pub(crate) kind: String,
    pub(crate) observability: Observability,
    pub(crate) end: CancellationToken,
}

/// An observer of an informer panicked.
#[derive(Debug, thiserror::Error)]
#[error("a mapping of changes of {kind} panicked")]
pub struct ObserverPanicked {
    kind: String,
}

/// Watches until the informer is dropped.
pub(crate) async fn run<K: Object>(watch: Watch<K>) -> Result<(), ObserverPanicked> {
    let Watch { shared, api, selection, kind, observability, end } = watch;
    let config = watcher::Config {
        label_selector: selection.labels,
        field_selector: selection.fields,
        timeout: Some(WATCH_SECONDS),
        page_size: Some(PAGE_SIZE),
        ..watcher::Config::default()
    };
    let beat = observability.health.heartbeat(&format!("watch of {kind}"), HANGS_AFTER);
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut panicked = shared.observer_panicked.subscribe();
    let mut failures: u32 = 0;
    // The time at which the stream is read again after a failure.
    let mut resume: Option<Instant> = None;
    let mut listing = Listing::begin(&shared, &api, &config);
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => return Ok(()),
            () = wait_until_true(&mut panicked) => return Err(ObserverPanicked { kind }),
            _ = beats.tick() => {
                beat.beat();
                let unconfirmed = shared.read(super::Cache::oldest_unconfirmed);
                if unconfirmed.is_some_and(|at| at.elapsed() > CONFIRM_MAX) && listing.is_complete {
                    observability.metrics.watch_restarted(&kind, RestartReason::Unconfirmed);
                    listing = Listing::begin(&shared, &api, &config);
                }
            }
            () = shared.relist.notified() => {}
            () = wait_until(resume), if resume.is_some() => resume = None,
            event = listing.stream.next(), if resume.is_none() => match event {
                Some(Ok(event)) => {
                    // A listing that begins is no success yet.
                    if !matches!(event, Event::Init) && failures > 0 {
                        tracing::info!(kind, failures, "Watch of {kind} works again");
                        failures = 0;
                    }
                    listing.apply(&shared, event);
                }
                Some(Err(error)) => {
                    let delay = retry_delay(failures, &error);
                    failures = failures.saturating_add(1);
                    observability.metrics.watch_restarted(&kind, RestartReason::of(&error));
                    if failures == 1 {
                        tracing::info!(kind, "Watch of {kind} failed, retrying: {}", error_chain(&error));
                    } else {
                        tracing::debug!(kind, failures, "Watch of {kind} failed, retrying: {}", error_chain(&error));
                    }
                    resume = Some(Instant::now() + delay);
                }
                // The watcher never ends; if it did, listing again is right.
                None => listing = Listing::begin(&shared, &api, &config),
            },
        }
        // A listing in progress is left to complete, so that many requests cannot keep it from doing so.
        if listing.is_complete && shared.requested.load(Ordering::SeqCst) > listing.request {
            listing = Listing::begin(&shared, &api, &config);
        }
    }
}

/// A stream of the watcher, from its listing on.
struct Listing<K: Object> {
    stream: BoxStream<'static, Result<Event<K>, watcher::Error>>,
    /// The newest request for a listing when this one began.
    request: u64,
    is_complete: bool,
}

impl<K: Object> Listing<K> {
    fn begin(shared: &Shared<K>, api: &Api<K>, config: &watcher::Config) -> Listing<K> {
        let request = shared.requested.load(Ordering::SeqCst);
        Listing { stream: watch(api.clone(), config.clone()).boxed(), request, is_complete: false }
    }

    fn apply(&mut self, shared: &Shared<K>, event: Event<K>) {
        match event.modify(|object| object.meta_mut().managed_fields = None) {
            Event::Init => {
                self.request = shared.requested.load(Ordering::SeqCst);
                self.is_complete = false;
                shared.update(|cache| {
                    cache.begin_listing();
                    Vec::new()
                });
            }
            Event::InitApply(object) => shared.update(|cache| {
                cache.listed(object);
                Vec::new()
            }),
            Event::InitDone => {
                shared.update(super::Cache::finish_listing);
                self.is_complete = true;
                let request = self.request;
                shared.listed.send_if_modified(|served| {
                    let is_newer = request > *served;
                    *served = request.max(*served);
                    is_newer
                });
            }
            Event::Apply(object) => {
                shared.update(|cache| cache.watched(object).into_iter().collect());
            }
            Event::Delete(object) => {
                shared.update(|cache| cache.watched_deletion(&object).into_iter().collect());
            }
        }
    }
}

/// The delay after one more failure: doubles, or what the API server asks for.
fn retry_delay(failures: u32, error: &watcher::Error) -> Duration {
    let doubled = RETRY_FIRST.saturating_mul(1 << failures.min(5)).min(RETRY_MAX);
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    };
    let details = status.and_then(|status| status.details.as_ref());
    let asked = details.map_or(0, |details| details.retry_after_seconds.min(30));
    doubled.max(Duration::from_secs(asked.into()))
}

async fn wait_until_true(flag: &mut tokio::sync::watch::Receiver<bool>) {
    if flag.wait_for(|is_set| *is_set).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
