//! Server-side apply, of typed objects and of YAML documents, with pruning.
//!
//! Everything is parsed, resolved and, as far as the cluster allows, tried as a dry run before the first write. Then namespaces,
//! definitions, and what needs them are applied, in this order; then objects that left the set are pruned. Success means that all
//! of it is done; an interrupted apply is completed by repeating it.

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
pub use inventory::{ApplySetName, PART_OF, SET_ID};

use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link, display_name};
use crate::progress::ProgressSink;
use crate::target::Target;

/// What to do when another manager owns fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Fail, naming the manager and the fields.
    No,
    /// Take them over.
    Yes,
}

/// Options of an apply.
#[derive(Debug, Clone)]
pub struct ApplyOptions {
    /// Namespace of namespaced objects that name none.
    pub namespace: String,
    /// What to do with fields of other managers.
    pub force: Force,
    /// The set of the documents; objects that left it are pruned. `None` prunes nothing.
    pub set: Option<ApplySetName>,
    /// Timeout for new definitions to be established.
    pub definitions_within: Duration,
}

impl Default for ApplyOptions {
    fn default() -> ApplyOptions {
        let (namespace, definitions_within) = ("default".to_owned(), Duration::from_secs(60));
        ApplyOptions { namespace, force: Force::No, set: None, definitions_within }
    }
}

/// Effect of an apply on one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It did not exist.
    Created,
    /// It was changed.
    Configured,
    /// It was as wanted already.
    Unchanged,
    /// It left the set and was deleted.
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

/// Effects of an apply, in the order of its writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// Each object with its effect.
    pub objects: Vec<(Target, Effect)>,
}

/// Why an apply is not complete.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The documents cannot be applied to this cluster; nothing was written.
    #[error("nothing was applied: {0}")]
    Documents(#[from] DocumentError),
    /// The dry run failed; nothing was written.
    #[error("nothing was applied, {} would be rejected: {}", count(failures.len()), describe(failures))]
    Refused {
        /// Each failure.
        failures: Vec<LinkError>,
    },
    /// A request failed. Repeat the apply to continue; `done` lists the writes before the failure.
    #[error("{} done, then: {failure}", count(done.objects.len()))]
    Stopped {
        /// The completed writes.
        done: ApplyReport,
        /// The failure.
        #[source]
        failure: LinkError,
    },
}

fn count(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}

fn describe(failures: &[LinkError]) -> String {
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

/// Applies one typed object.
pub async fn apply_one<K>(
    link: &Link,
    api: &Api<K>,
    object: &K,
    force: Force,
) -> Result<(K, Effect), LinkError>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
{
    let label = format!("{} {}", K::kind(&()), display_name(object));
    let name = object.name_any();
    let failed = |error| unquoted(link.failed("apply", &label, error), &K::group(&()), &K::kind(&()));
    let mut params = PatchParams::apply(FIELD_MANAGER);
    params.force = force == Force::Yes;
    let before = api.get_metadata_opt(&name).await.map_err(failed)?;
    let after = api.patch(&name, &params, &Patch::Apply(object)).await.map_err(failed)?;
    let before = before.map(|before| (before.uid(), before.resource_version()));
    let effect = effect(before, (after.uid(), after.resource_version()));
    Ok((after, effect))
}

/// Removes the API server's message about an invalid Secret, which may quote it.
fn unquoted(mut failed: LinkError, group: &str, kind: &str) -> LinkError {
    let is_secret = group.is_empty() && kind == "Secret";
    if let (Failure::Invalid { message, .. }, true) = (&mut failed.failure, is_secret) {
        "the message is hidden because it may quote the Secret".clone_into(message);
    }
    failed
}

/// The effect of a write, by uid and resourceVersion before and after.
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

/// Applies `documents`.
pub async fn apply(
    link: &Link,
    documents: &Documents,
    options: &ApplyOptions,
    progress: &ProgressSink,
) -> Result<ApplyReport, ApplyError> {
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

    /// A link to an API server that quotes every request.
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
            Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("the response is valid"))
        });
        Link::from_client("harbour", Client::new(answer, "default"), Arc::new(SystemClock))
    }

    #[tokio::test]
    async fn only_messages_about_secrets_are_hidden() {
        let link = quoting();
        let metadata = || ObjectMeta { name: Some("one".to_owned()), ..ObjectMeta::default() };
        let secret = Secret { metadata: metadata(), ..Secret::default() };
        let api = Api::namespaced(link.client(), "default");
        let error = apply_one(&link, &api, &secret, Force::Yes).await.unwrap_err().to_string();
        assert!(!error.contains("aHVudGVyMg") && error.contains("message is hidden"), "{error}");
        let map = ConfigMap { metadata: metadata(), ..ConfigMap::default() };
        let api = Api::namespaced(link.client(), "default");
        let error = apply_one(&link, &api, &map, Force::Yes).await.unwrap_err().to_string();
        assert!(error.contains("aHVudGVyMg"), "{error}");
    }
}
