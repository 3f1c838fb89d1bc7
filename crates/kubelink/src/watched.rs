//! The objects of one kind that a verb cares about, kept up to date by one list and one watch.

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
use crate::link::{Link, name_of};
use crate::progress::Progress;

/// A watch ends by itself after this time and is taken up where it was; a dead connection is noticed by then.
const WATCH_SECONDS: u32 = 120;

/// An API server that has just started may refuse for a moment what it allowed before. So often in a row it is believed.
const DOUBTS_MAX: u32 = 4;

/// A set of objects as the API server last told it.
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
        let stream = watch(api, config.timeout(WATCH_SECONDS)).backoff(Pace::default()).boxed();
        let (objects, listing) = (BTreeMap::new(), BTreeMap::new());
        Watched { link: link.clone(), verb, target, stream, objects, listing, listed: false, doubts: 0 }
    }

    /// The objects, by `namespace/name`. Empty until the first [`Watched::changed`] has returned.
    pub(crate) fn objects(&self) -> &BTreeMap<String, K> {
        &self.objects
    }

    /// Waits for the set to be known or to change. What may heal is told to `progress` and tried again at a slower and
    /// slower pace; what cannot is returned. Nothing is lost when the future is dropped.
    pub(crate) async fn changed(&mut self, progress: &Progress) -> Result<(), LinkError> {
        loop {
            match self.stream.next().await {
                Some(Ok(Event::Init)) => self.listing.clear(),
                Some(Ok(Event::InitApply(object))) => {
                    self.listing.insert(name_of(&object), object);
                }
                Some(Ok(Event::InitDone)) => {
                    self.objects = std::mem::take(&mut self.listing);
                    (self.listed, self.doubts) = (true, 0);
                    return Ok(());
                }
                Some(Ok(Event::Apply(object))) => {
                    self.objects.insert(name_of(&object), object);
                    return Ok(());
                }
                Some(Ok(Event::Delete(object))) => {
                    self.objects.remove(&name_of(&object));
                    return Ok(());
                }
                Some(Err(error)) => {
                    let failure = Failure::of_watch(error);
                    let error = self.link.error(self.verb, &self.target, failure);
                    let denied = matches!(error.failure, Failure::Unauthorized | Failure::Forbidden { .. });
                    let doubtful = denied && self.listed && self.doubts < DOUBTS_MAX;
                    if error.failure.class() == Class::Terminal && !doubtful {
                        return Err(error);
                    }
                    self.doubts += u32::from(denied);
                    progress.say(
                        &self.target,
                        format!("watch interrupted, trying again: {}", crate::error::chain(&error)),
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

    /// Whether the whole set has been seen once.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }
}

/// 0.25 s, then twice as long each time, at most 5 s.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    attempt: u32,
}

impl Pace {
    const MAX: Duration = Duration::from_secs(5);

    /// The pause after one more failure.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = Duration::from_millis(250).saturating_mul(1 << self.attempt.min(5)).min(Pace::MAX);
        self.attempt = self.attempt.saturating_add(1);
        pause
    }
}

impl Iterator for Pace {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}

impl Backoff for Pace {
    fn reset(&mut self) {
        self.attempt = 0;
    }
}
