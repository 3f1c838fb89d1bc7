//! Deletes objects, and waits until they are gone.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};

use crate::error::{Failure, LinkError};
use crate::link::Link;
use crate::progress::ProgressSink;
use crate::target::{Target, held_by};
use crate::wait::{ObjectSelection, WaitStatus, wait};

/// Options of a delete.
#[derive(Debug, Clone)]
pub struct DeleteOptions {
    /// What happens to the objects that it owns.
    pub propagation: PropagationPolicy,
    /// Grace period instead of the object's own.
    pub grace: Option<Duration>,
    /// Delete it only if it has this uid.
    pub uid: Option<String>,
    /// Timeout for it to be gone; `None` does not wait.
    pub wait: Option<Duration>,
}

impl Default for DeleteOptions {
    fn default() -> DeleteOptions {
        let wait = Some(Duration::from_secs(120));
        DeleteOptions { propagation: PropagationPolicy::Background, grace: None, uid: None, wait }
    }
}

/// Result of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteResult {
    /// It is gone, deleted by this call or by an earlier one.
    Gone,
    /// It did not exist, or another object had its name.
    Absent,
    /// Its deletion has started, and the options do not wait.
    Started,
}

/// Ensures that the object that is `target` now is gone. A new object of that name is left alone.
pub async fn delete(
    link: &Link,
    target: &Target,
    options: &DeleteOptions,
    progress: &ProgressSink,
) -> Result<DeleteResult, LinkError> {
    let api = target.api(link);
    let Some(seen) = link.get(target).await? else { return Ok(DeleteResult::Absent) };
    let Some(uid) = seen.uid() else { return Ok(DeleteResult::Absent) };
    if options.uid.as_ref().is_some_and(|wanted| *wanted != uid) {
        return Ok(DeleteResult::Absent);
    }
    let params = DeleteParams {
        grace_period_seconds: options.grace.map(|grace| grace.as_secs().try_into().unwrap_or(u32::MAX)),
        propagation_policy: Some(options.propagation.clone()),
        preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(&target.name, &params).await.map_err(|error| link.failed("delete", target, error)) {
        Ok(_) => {}
        Err(error) if error.is_not_found() => return Ok(DeleteResult::Gone),
        // The precondition failed: another object has the name by now.
        Err(error) if matches!(error.failure, Failure::Conflict { .. }) => return Ok(DeleteResult::Gone),
        Err(error) => return Err(error),
    }
    let Some(limit) = options.wait else { return Ok(DeleteResult::Started) };
    let which = ObjectSelection::Named(target.name.clone());
    let label = format!("{target} to be gone");
    wait(link, api, &which, &label, limit, progress, |objects: &[&DynamicObject]| judge(objects, &uid))
        .await?;
    Ok(DeleteResult::Gone)
}

/// Deletes the objects of one kind that match `selector`, in one namespace or in all, and returns them. All deletions are started
/// before the first is waited for.
pub async fn delete_matching(
    link: &Link,
    resource: &ApiResource,
    namespace: Option<&str>,
    selector: &str,
    options: &DeleteOptions,
    progress: &ProgressSink,
) -> Result<Vec<Target>, LinkError> {
    let label = format!("{} with {selector}", resource.kind);
    if selector.trim().is_empty() {
        let why = "an empty selector would match everything; name the objects".to_owned();
        return Err(link.error("delete", label, Failure::Precondition { why }));
    }
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(link.client(), namespace, resource),
        None => Api::all_with(link.client(), resource),
    };
    let found = api.list_metadata(&ListParams::default().labels(selector)).await;
    let found = found.map_err(|error| link.failed("list", &label, error))?;
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

fn judge(objects: &[&DynamicObject], uid: &str) -> WaitStatus<()> {
    let Some(still) = objects.iter().find(|object| object.uid().as_deref() == Some(uid)) else {
        return WaitStatus::Done(());
    };
    match held_by(&still.metadata) {
        [] => WaitStatus::Waiting("its deletion to finish".to_owned()),
        held => WaitStatus::Waiting(format!("its finalizers to be removed: {}", held.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finalizers_of_an_object_are_named() {
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "x", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "c/d"]},
        }))
        .unwrap();
        assert_eq!(
            judge(&[&object], "1"),
            WaitStatus::Waiting("its finalizers to be removed: a/b, c/d".into())
        );
        assert_eq!(judge(&[&object], "2"), WaitStatus::Done(()));
        assert_eq!(judge(&[], "1"), WaitStatus::Done(()));
    }
}
