//! Server-side apply, of typed objects and of YAML documents, with pruning.
//!
//! Everything is read, resolved and, as far as the cluster can say yet, tried as a dry run before the first write. Then
//! namespaces, definitions, and what needs them, in this order; then what the set no longer holds is pruned. Success is said
//! only when all of it is true; cut off anywhere and repeated, it finishes the job.

mod documents;
mod inventory;
mod order;
mod run;

use std::fmt::{self, Debug};
use std::time::Duration;

use api::error::{Class, Classify};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use documents::{DOCUMENTS_MAX, Document, DocumentError, Documents};
pub use inventory::{PART_OF, SET_ID, SetName};

use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link, name_of};
use crate::progress::Progress;
use crate::target::Target;

/// What to do when fields belong to another manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Refuse, naming manager and fields.
    No,
    /// Take them over.
    Yes,
}

/// How to apply documents.
#[derive(Debug, Clone)]
pub struct ApplyOptions {
    /// Where namespaced objects go that name no namespace.
    pub namespace: String,
    /// Fields of others.
    pub force: Force,
    /// The set that the documents are; what it held before and they do not hold is pruned. `None` prunes nothing.
    pub set: Option<SetName>,
    /// How long new definitions may take until they are established.
    pub definitions_within: Duration,
}

impl Default for ApplyOptions {
    fn default() -> ApplyOptions {
        let (namespace, definitions_within) = ("default".to_owned(), Duration::from_secs(60));
        ApplyOptions { namespace, force: Force::No, set: None, definitions_within }
    }
}

/// What an apply did to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It was not there.
    Created,
    /// It was changed.
    Configured,
    /// It was so already.
    Unchanged,
    /// It belonged to the set and is deleted.
    Pruned,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Effect::Created => "created",
            Effect::Configured => "configured",
            Effect::Unchanged => "unchanged",
            Effect::Pruned => "pruned",
        })
    }
}

/// What an apply did, object by object, in the order in which it did it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Each object with its effect.
    pub objects: Vec<(Target, Effect)>,
}

/// Why an apply is not complete.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The documents cannot be applied to this cluster; nothing was written.
    #[error("nothing was applied: {0}")]
    Documents(#[from] DocumentError),
    /// The dry run found what would fail; nothing was written.
    #[error("nothing was applied, {} would be refused: {}", count(failures.len()), told(failures))]
    Refused {
        /// Each refusal.
        failures: Vec<LinkError>,
    },
    /// A request failed on the way. Repeat to go on; `done` is what was done before it.
    #[error("{} done, then: {failure}", count(done.objects.len()))]
    Stopped {
        /// What was done.
        done: Applied,
        /// What failed.
        #[source]
        failure: LinkError,
    },
}

fn count(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}

fn told(failures: &[LinkError]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Classify for ApplyError {
    fn class(&self) -> Class {
        match self {
            ApplyError::Documents(error) => error.class(),
            ApplyError::Refused { .. } => Class::Terminal,
            ApplyError::Stopped { failure, .. } => failure.class(),
        }
    }
}

/// Applies one object that we have a type for.
pub async fn apply_one<K>(
    link: &Link,
    api: &Api<K>,
    object: &K,
    force: Force,
) -> Result<(K, Effect), LinkError>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
{
    let told = format!("{} {}", K::kind(&()), name_of(object));
    let name = object.name_any();
    let failed = |error| unquoted(link.failed("apply", &told, error), &K::group(&()), &K::kind(&()));
    let mut params = PatchParams::apply(FIELD_MANAGER);
    params.force = force == Force::Yes;
    let before = api.get_metadata_opt(&name).await.map_err(failed)?;
    let after = api.patch(&name, &params, &Patch::Apply(object)).await.map_err(failed)?;
    let before = before.map(|before| (before.uid(), before.resource_version()));
    let effect = effect(before, (after.uid(), after.resource_version()));
    Ok((after, effect))
}

/// An API server's words about an invalid object may quote it, and a Secret must not be quoted.
fn unquoted(mut failed: LinkError, group: &str, kind: &str) -> LinkError {
    let is_secret = group.is_empty() && kind == "Secret";
    if let (Failure::Invalid { message, .. }, true) = (&mut failed.failure, is_secret) {
        "its words are not shown, because they may quote the Secret".clone_into(message);
    }
    failed
}

/// What a write did, by uid and resourceVersion before and after.
fn effect(
    before: Option<(Option<String>, Option<String>)>,
    after: (Option<String>, Option<String>),
) -> Effect {
    match before {
        Some(before) if before == after => Effect::Unchanged,
        Some(before) if before.0 == after.0 => Effect::Configured,
        Some(_) | None => Effect::Created,
    }
}

/// Makes `documents` true on the cluster.
pub async fn apply(
    link: &Link,
    documents: &Documents,
    options: &ApplyOptions,
    progress: &Progress,
) -> Result<Applied, ApplyError> {
    run::apply(link, documents, options, progress).await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use api::clock::SystemClock;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::Client;
    use kube::client::Body;
    use kube::core::ObjectMeta;

    use super::*;

    /// A link to an API server that quotes whatever it is sent.
    fn quoting() -> Link {
        let answer = tower::service_fn(async |request: Request<Body>| {
            let (code, reason, words) = match *request.method() == http::Method::PATCH {
                true => (422, "Invalid", "Invalid value: \"aHVudGVyMg==\""),
                false => (404, "NotFound", "not found"),
            };
            let status = serde_json::json!({
                "kind": "Status", "status": "Failure", "reason": reason, "message": words, "code": code,
            });
            let body = Body::from(status.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("it is an answer"))
        });
        Link::over("harbour", Client::new(answer, "default"), Arc::new(SystemClock))
    }

    #[tokio::test]
    async fn an_invalid_secret_is_not_quoted_and_anything_else_is() {
        let link = quoting();
        let metadata = || ObjectMeta { name: Some("one".to_owned()), ..ObjectMeta::default() };
        let secret = Secret { metadata: metadata(), ..Secret::default() };
        let api = Api::namespaced(link.client(), "default");
        let error = apply_one(&link, &api, &secret, Force::Yes).await.unwrap_err().to_string();
        assert!(!error.contains("aHVudGVyMg") && error.contains("words are not shown"), "{error}");
        let map = ConfigMap { metadata: metadata(), ..ConfigMap::default() };
        let api = Api::namespaced(link.client(), "default");
        let error = apply_one(&link, &api, &map, Force::Yes).await.unwrap_err().to_string();
        assert!(error.contains("aHVudGVyMg"), "{error}");
    }
}
