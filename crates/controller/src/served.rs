//! Starts and stops controllers as custom resource definitions come and go.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::core::{ClusterResourceScope, Resource};
use serde::Deserialize;
use std::borrow::Cow;
use tokio_util::sync::CancellationToken;

use crate::informer::{Informer, Selection, Subscription};
use crate::informers::Informers;

/// What is read of a CustomResourceDefinition: not its schema, which may be large.
#[derive(Debug, Clone, Deserialize)]
struct Definition {
    metadata: ObjectMeta,
    #[serde(default)]
    status: DefinitionStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct DefinitionStatus {
    #[serde(default)]
    conditions: Option<Vec<DefinitionCondition>>,
}

#[derive(Debug, Clone, Deserialize)]
struct DefinitionCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Definition {
    fn is_served(&self) -> bool {
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        let is_established = conditions.iter().any(|it| it.type_ == "Established" && it.status == "True");
        is_established && self.metadata.deletion_timestamp.is_none()
    }
}

impl Resource for Definition {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "CustomResourceDefinition".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "apiextensions.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "customresourcedefinitions".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A definition that is watched by name, so that a role with its `resourceName` suffices.
struct Watched {
    informer: Arc<Informer<Definition>>,
    changes: Subscription<Definition>,
}

impl Watched {
    fn is_served(&self) -> bool {
        self.informer.list().iter().any(|definition| definition.is_served())
    }

    async fn becomes(&self, served: bool) {
        self.informer.synced().await;
        while self.is_served() != served {
            self.changes.next().await;
        }
    }
}

impl Informers {
    /// Runs `work` whenever all of these CustomResourceDefinitions are established, and cancels it when one of them is deleted. `work`
    /// makes its informers itself, so that nothing is watched that is not served. Returns when `work` ends by itself, or after `shutdown`
    /// (`None`).
    pub async fn run_while_served<F, T>(
        &self,
        definitions: &[&str],
        shutdown: CancellationToken,
        mut work: impl FnMut(CancellationToken) -> F,
    ) -> Option<T>
    where
        F: Future<Output = T>,
    {
        let definitions = self.watch_definitions(definitions);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = all_served(&definitions) => {}
            }
            let cancel = shutdown.child_token();
            let mut running = std::pin::pin!(work(cancel.clone()));
            let gone = one_not_served(&definitions);
            tokio::select! {
                ended = &mut running => return (!cancel.is_cancelled()).then_some(ended),
                name = gone => tracing::info!(definition = name, "{name} is no longer served; its controllers stop"),
            }
            cancel.cancel();
            running.await;
        }
    }

    /// Runs `work` with those of the CustomResourceDefinitions that are established, and cancels it and runs it anew whenever others are.
    /// For work that can do without some of them. Returns as [`Informers::run_while_served`] does.
    pub async fn run_with_served<F, T>(
        &self,
        definitions: &[&'static str],
        shutdown: CancellationToken,
        mut work: impl FnMut(BTreeSet<&'static str>, CancellationToken) -> F,
    ) -> Option<T>
    where
        F: Future<Output = T>,
    {
        let definitions = self.watch_definitions(definitions);
        loop {
            let served = tokio::select! {
                () = shutdown.cancelled() => return None,
                served = served(&definitions) => served,
            };
            let cancel = shutdown.child_token();
            let mut running = std::pin::pin!(work(served.clone(), cancel.clone()));
            tokio::select! {
                ended = &mut running => return (!cancel.is_cancelled()).then_some(ended),
                name = one_changes(&definitions, &served) => {
                    tracing::info!(definition = name, "Whether {name} is served has changed; its controllers start again");
                }
            }
            cancel.cancel();
            running.await;
        }
    }

    fn watch_definitions<'a>(&self, names: &[&'a str]) -> Vec<(&'a str, Watched)> {
        let watch = |name: &&'a str| {
            let informer = self.select(Api::<Definition>::all(self.client().clone()), Selection::named(name));
            (*name, Watched { changes: informer.subscribe(), informer })
        };
        names.iter().map(watch).collect()
    }
}

/// Those that are served, once all were looked at.
async fn served(definitions: &[(&'static str, Watched)]) -> BTreeSet<&'static str> {
    join_all(definitions.iter().map(|(_, definition)| definition.informer.synced())).await;
    definitions.iter().filter(|(_, definition)| definition.is_served()).map(|(name, _)| *name).collect()
}

/// Waits until one is served that was not, or the other way round, and returns its name.
async fn one_changes(
    definitions: &[(&'static str, Watched)],
    served: &BTreeSet<&'static str>,
) -> &'static str {
    if definitions.is_empty() {
        return std::future::pending().await;
    }
    let changed = definitions.iter().map(|(name, definition)| {
        Box::pin(async move {
            definition.becomes(!served.contains(name)).await;
            *name
        })
    });
    futures_util::future::select_all(changed).await.0
}

/// Waits until all are served at the same time.
async fn all_served(definitions: &[(&str, Watched)]) {
    while {
        join_all(definitions.iter().map(|(_, definition)| definition.becomes(true))).await;
        !definitions.iter().all(|(_, definition)| definition.is_served())
    } {}
}

/// Waits until one is not served, and returns its name.
async fn one_not_served<'a>(definitions: &[(&'a str, Watched)]) -> &'a str {
    if definitions.is_empty() {
        return std::future::pending().await;
    }
    let gone = definitions.iter().map(|(name, definition)| {
        Box::pin(async move {
            definition.becomes(false).await;
            *name
        })
    });
    futures_util::future::select_all(gone).await.0
}
