//! Waiting for something to become true of objects on a cluster, by a watch.

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
use crate::progress::Progress;
use crate::watched::Watched;

/// Which objects a wait looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one of this name, which need not exist yet, or any more.
    Named(String),
    /// Those that match a label selector.
    Labelled(String),
}

impl Which {
    fn config(&self) -> watcher::Config {
        match self {
            Which::Named(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
            Which::Labelled(selector) => watcher::Config::default().labels(selector),
        }
    }
}

/// What a look at the objects says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<T> {
    /// It is so; the wait ends with this.
    Done(T),
    /// Not yet; what is missing, as it continues "waits for".
    Waiting(String),
    /// It cannot become so any more; why.
    Hopeless(String),
}

/// Waits until `judge` is content with the objects, asking it whenever they change. It sees all of them, in order of
/// their names; it must be quick and must not block. `target` names them in errors.
pub async fn wait<K, T>(
    link: &Link,
    api: Api<K>,
    which: &Which,
    target: &str,
    limit: Duration,
    progress: &Progress,
    mut judge: impl FnMut(&[&K]) -> Verdict<T>,
) -> Result<T, LinkError>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    T: Send + 'static,
{
    wait_for(link, api, which, target, limit, progress, |objects: &[&K]| ready(judge(objects)).boxed()).await
}

/// Waits like [`wait`], with a `judge` that takes its time.
pub async fn wait_for<K, T>(
    link: &Link,
    api: Api<K>,
    which: &Which,
    target: &str,
    limit: Duration,
    progress: &Progress,
    mut judge: impl for<'a> FnMut(&'a [&'a K]) -> BoxFuture<'a, Verdict<T>>,
) -> Result<T, LinkError>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let deadline = Instant::now() + limit;
    let mut watched = Watched::new(link, "wait for", target.to_owned(), api, which.config());
    let mut waiting_for = "the first answer of the API server".to_owned();
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
            Verdict::Done(value) => return Ok(value),
            Verdict::Hopeless(why) => return Err(link.error("wait for", target, Failure::Refusal { why })),
            Verdict::Waiting(what) => {
                progress.wait(target, &what);
                waiting_for = what;
            }
        }
    }
}
