//! Delete, and wait until it is gone.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};

use crate::error::{Failure, LinkError};
use crate::link::Link;
use crate::progress::Progress;
use crate::target::{Target, held_by};
use crate::wait::{Verdict, Which, wait};

/// How to delete.
#[derive(Debug, Clone)]
pub struct DeleteOptions {
    /// What becomes of the objects that it owns.
    pub propagation: PropagationPolicy,
    /// A grace period instead of the object's own.
    pub grace: Option<Duration>,
    /// Delete it only if it is still this very object.
    pub uid: Option<String>,
    /// How long to wait until it is gone; `None` waits for nothing.
    pub wait: Option<Duration>,
}

impl Default for DeleteOptions {
    fn default() -> DeleteOptions {
        let wait = Some(Duration::from_secs(120));
        DeleteOptions { propagation: PropagationPolicy::Background, grace: None, uid: None, wait }
    }
}

/// What a delete found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone, by this call or by one that it found under way.
    Gone,
    /// It was not there, or another object had its name.
    Before,
    /// Its deletion has begun, and nobody asked to wait.
    Begun,
}

/// Makes sure that the object that is `target` now is no more. One that takes its name meanwhile is left alone.
pub async fn delete(
    link: &Link,
    target: &Target,
    options: &DeleteOptions,
    progress: &Progress,
) -> Result<Deleted, LinkError> {
    let api = target.api(link);
    let Some(seen) = link.get(target).await? else { return Ok(Deleted::Before) };
    let Some(uid) = seen.uid() else { return Ok(Deleted::Before) };
    if options.uid.as_ref().is_some_and(|wanted| *wanted != uid) {
        return Ok(Deleted::Before);
    }
    let params = DeleteParams {
        grace_period_seconds: options.grace.map(|grace| grace.as_secs().try_into().unwrap_or(u32::MAX)),
        propagation_policy: Some(options.propagation.clone()),
        preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(&target.name, &params).await.map_err(|error| link.failed("delete", target, error)) {
        Ok(_) => {}
        Err(error) if error.is_not_found() => return Ok(Deleted::Gone),
        // The precondition: another object has the name by now.
        Err(error) if matches!(error.failure, Failure::Conflict { .. }) => return Ok(Deleted::Gone),
        Err(error) => return Err(error),
    }
    let Some(limit) = options.wait else { return Ok(Deleted::Begun) };
    let which = Which::Named(target.name.clone());
    let told = format!("{target} to be gone");
    wait(link, api, &which, &told, limit, progress, |objects: &[&DynamicObject]| judge(objects, &uid))
        .await?;
    Ok(Deleted::Gone)
}

/// Deletes what matches `selector` of one kind, in one namespace or in all, and returns what it deleted. All deletions are
/// begun before the first is waited for.
pub async fn delete_matching(
    link: &Link,
    resource: &ApiResource,
    namespace: Option<&str>,
    selector: &str,
    options: &DeleteOptions,
    progress: &Progress,
) -> Result<Vec<Target>, LinkError> {
    let told = format!("{} with {selector}", resource.kind);
    if selector.trim().is_empty() {
        let why = "an empty selector would match everything; name what is meant".to_owned();
        return Err(link.error("delete", told, Failure::Refusal { why }));
    }
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(link.client(), namespace, resource),
        None => Api::all_with(link.client(), resource),
    };
    let found = api.list_metadata(&ListParams::default().labels(selector)).await;
    let found = found.map_err(|error| link.failed("list", &told, error))?;
    let targets: Vec<(Target, DeleteOptions)> = found
        .items
        .iter()
        .map(|it| {
            let target =
                Target { resource: resource.clone(), namespace: it.namespace(), name: it.name_any() };
            (target, DeleteOptions { uid: it.uid(), ..options.clone() })
        })
        .collect();
    for (target, options) in &targets {
        delete(link, target, &DeleteOptions { wait: None, ..options.clone() }, progress).await?;
    }
    if options.wait.is_some() {
        for (target, options) in &targets {
            delete(link, target, options, progress).await?;
        }
    }
    Ok(targets.into_iter().map(|(target, _)| target).collect())
}

fn judge(objects: &[&DynamicObject], uid: &str) -> Verdict<()> {
    let Some(still) = objects.iter().find(|object| object.uid().as_deref() == Some(uid)) else {
        return Verdict::Done(());
    };
    match held_by(&still.metadata) {
        [] => Verdict::Waiting("its deletion to end".to_owned()),
        held => Verdict::Waiting(format!("its finalizers to be removed: {}", held.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_holds_an_object_is_named() {
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "x", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "c/d"]},
        }))
        .unwrap();
        assert_eq!(judge(&[&object], "1"), Verdict::Waiting("its finalizers to be removed: a/b, c/d".into()));
        assert_eq!(judge(&[&object], "2"), Verdict::Done(()));
        assert_eq!(judge(&[], "1"), Verdict::Done(()));
    }
}
