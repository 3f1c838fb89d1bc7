//! The objects of one kind that a verb works with, kept up to date by one list and one watch.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use api::error::Class;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::error::{Failure, LinkError};
use crate::link::{Link, display_name};
use crate::progress::ProgressSink;

/// Longest duration of one watch request; the next one continues where it ended. A dead connection is noticed by then.
const WATCH_SECONDS: u32 = 120;

/// Denials in a row after which they are believed. An API server that has just started may deny requests for a moment.
const DOUBTS_MAX: u32 = 4;

/// A set of objects as last reported by the API server.
pub(crate) struct Watched<K> {
    link: Link,
    verb: &'static str,
    target: String,
    stream: BoxStream<'static, Result<Event<K>, watcher::Error>>,
    objects: BTreeMap<String, K>,
    listing: BTreeMap<String, K>,
    listed: bool,
    doubts: u32,
}

impl<K> Watched<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Watches what `config` selects; `verb` and `target` are for errors.
    pub(crate) fn new(
        link: &Link,
        verb: &'static str,
        target: String,
        api: Api<K>,
        config: watcher::Config,
    ) -> Self {
        let stream = watch(api, config.timeout(WATCH_SECONDS)).backoff(RetryDelays::default()).boxed();
        let (objects, listing) = (BTreeMap::new(), BTreeMap::new());
        Watched { link: link.clone(), verb, target, stream, objects, listing, listed: false, doubts: 0 }
    }

    /// The objects, by `namespace/name`. Empty until the first [`Watched::changed`] has returned.
    pub(crate) fn objects(&self) -> &BTreeMap<String, K> {
        &self.objects
    }

    /// Waits until the set is known or changes. A transient failure is reported to `progress` and retried with backoff; a terminal
    /// one is returned. Cancel-safe.
    pub(crate) async fn changed(&mut self, progress: &ProgressSink) -> Result<(), LinkError> {
        loop {
            match self.stream.next().await {
                Some(Ok(Event::Init)) => self.listing.clear(),
                Some(Ok(Event::InitApply(object))) => {
                    self.listing.insert(display_name(&object), object);
                }
                Some(Ok(Event::InitDone)) => {
                    self.objects = std::mem::take(&mut self.listing);
                    (self.listed, self.doubts) = (true, 0);
                    return Ok(());
                }
                Some(Ok(Event::Apply(object))) => {
                    self.objects.insert(display_name(&object), object);
                    return Ok(());
                }
                Some(Ok(Event::Delete(object))) => {
                    self.objects.remove(&display_name(&object));
                    return Ok(());
                }
                Some(Err(error)) => {
                    let failure = Failure::from_watch(error);
                    let error = self.link.error(self.verb, &self.target, failure);
                    let denied = matches!(error.failure, Failure::Unauthorized | Failure::Forbidden { .. });
                    let doubtful = denied && self.listed && self.doubts < DOUBTS_MAX;
                    if error.failure.class() == Class::Terminal && !doubtful {
                        return Err(error);
                    }
                    self.doubts += u32::from(denied);
                    progress.say(
                        &self.target,
                        format!("watch interrupted, retrying: {}", crate::error::error_chain(&error)),
                    );
                }
                None => {
                    let ended = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                    return Err(self.link.error(
                        self.verb,
                        &self.target,
                        Failure::Connection(Box::new(ended)),
                    ));
                }
            }
        }
    }

    /// Whether the whole set was listed once.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }
}

/// Delays of 0.25 s, doubling, to at most 5 s.
#[derive(Debug, Clone, Default)]
pub(crate) struct RetryDelays {
    attempt: u32,
}

impl RetryDelays {
    const MAX: Duration = Duration::from_secs(5);

    /// The delay after one more failure.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = Duration::from_millis(250).saturating_mul(1 << self.attempt.min(5)).min(RetryDelays::MAX);
        self.attempt = self.attempt.saturating_add(1);
        pause
    }
}

impl Iterator for RetryDelays {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}

impl Backoff for RetryDelays {
    fn reset(&mut self) {
        self.attempt = 0;
    }
}
