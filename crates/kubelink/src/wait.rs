//! Waits for a condition over objects on a cluster, by a watch.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::error::{Failure, LinkError};
use crate::link::Link;
use crate::progress::ProgressSink;
use crate::watched::Watched;

/// The objects of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectSelection {
    /// The one of this name, which need not exist.
    Named(String),
    /// Those that match a label selector.
    Labelled(String),
}

impl ObjectSelection {
    fn config(&self) -> watcher::Config {
        match self {
            ObjectSelection::Named(name) => {
                watcher::Config::default().fields(&format!("metadata.name={name}"))
            }
            ObjectSelection::Labelled(selector) => watcher::Config::default().labels(selector),
        }
    }
}

/// Result of evaluating the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitStatus<T> {
    /// It holds; the wait returns this.
    Done(T),
    /// It does not hold yet; what is missing, as it continues "waits for".
    Waiting(String),
    /// It cannot hold any more; why.
    Impossible(String),
}

/// Waits until `judge` returns a result for the objects, calling it whenever they change. It receives all of them, in order of
/// their names; it must be quick and must not block. `target` names them in errors.
pub async fn wait<K, T>(
    link: &Link,
    api: Api<K>,
    which: &ObjectSelection,
    target: &str,
    limit: Duration,
    progress: &ProgressSink,
    mut judge: impl FnMut(&[&K]) -> WaitStatus<T>,
) -> Result<T, LinkError>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    T: Send + 'static,
{
    wait_for(link, api, which, target, limit, progress, |objects: &[&K]| ready(judge(objects)).boxed()).await
}

/// Waits like [`wait`], with an asynchronous `judge`.
pub async fn wait_for<K, T>(
    link: &Link,
    api: Api<K>,
    which: &ObjectSelection,
    target: &str,
    limit: Duration,
    progress: &ProgressSink,
    mut judge: impl for<'a> FnMut(&'a [&'a K]) -> BoxFuture<'a, WaitStatus<T>>,
) -> Result<T, LinkError>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let deadline = Instant::now() + limit;
    let mut watched = Watched::new(link, "wait for", target.to_owned(), api, which.config());
    let mut waiting_for = "the first response of the API server".to_owned();
    loop {
        let judged = async {
            watched.changed(progress).await?;
            let objects: Vec<&K> = watched.objects().values().collect();
            Ok(judge(&objects).await)
        };
        let verdict = tokio::select! {
            judged = judged => judged?,
            () = sleep_until(deadline) => {
                return Err(link.error("wait for", target, Failure::TimeLimit { after: limit, waiting_for }));
            }
        };
        match verdict {
            WaitStatus::Done(value) => return Ok(value),
            WaitStatus::Impossible(why) => {
                return Err(link.error("wait for", target, Failure::Precondition { why }));
            }
            WaitStatus::Waiting(what) => {
                progress.wait(target, &what);
                waiting_for = what;
            }
        }
    }
}
