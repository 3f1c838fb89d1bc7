//! Ensures or deletes resources of a cloud, and polls until that is done.

use cloud::{CloudError, Infrastructure, Resource, ResourceId, ResourceRequest, ResourceState};

use super::fault;
use crate::engine::{PollStatus, StepError, StepOutcome};

/// Ensures resources in this order, each after those before it are ready. Polls once. A failed resource is requested again, and
/// its fault is the error.
pub async fn ensure(cloud: &dyn Infrastructure, wanted: &[ResourceRequest]) -> Result<PollStatus, StepError> {
    for put in wanted {
        let found = cloud.get(&put.id).await?;
        let name = put.id.name();
        if let Some(Resource { state: ResourceState::Deleting, .. }) = &found {
            return Ok(PollStatus::Waiting(format!("{name} is still being deleted")));
        }
        let now = cloud.put(put.clone()).await?;
        if let Some(Resource { state: ResourceState::Failed { failure: why }, .. }) = found {
            return Err(fault::from_fault(&why, format!("{name} failed")));
        }
        match now.state {
            ResourceState::Succeeded => {}
            ResourceState::Creating | ResourceState::Updating => {
                return Ok(PollStatus::Waiting(format!("{name} is being created")));
            }
            ResourceState::Deleting => {
                return Ok(PollStatus::Waiting(format!("{name} is still being deleted")));
            }
            ResourceState::Failed { failure: why } => {
                return Err(fault::from_fault(&why, format!("{name} failed")));
            }
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// Ensures resources stage by stage. Those of one stage do not depend on each other and are requested at the same time. Polls once.
pub async fn ensure_stages(
    cloud: &dyn Infrastructure,
    stages: &[Vec<ResourceRequest>],
) -> Result<PollStatus, StepError> {
    for stage in stages {
        let requests = stage.iter().map(|put| ensure(cloud, std::slice::from_ref(put)));
        let mut waiting = Vec::new();
        for status in futures_util::future::join_all(requests).await {
            if let PollStatus::Waiting(reason) = status? {
                waiting.push(reason);
            }
        }
        match waiting.as_slice() {
            [] => {}
            [one] => return Ok(PollStatus::Waiting(one.clone())),
            [first, rest @ ..] => {
                return Ok(PollStatus::Waiting(format!("{first}; {} more are in progress", rest.len())));
            }
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// A resource that must exist.
pub async fn expect(cloud: &dyn Infrastructure, id: &ResourceId) -> Result<Resource, StepError> {
    let found = cloud.get(id).await?;
    // A created resource may not be visible at once.
    found.ok_or_else(|| StepError::transient("NotSeen", format!("{id} is not visible yet")))
}

/// Deletes resources and polls until they are gone. A resource in use by another one of its group is waited for, since that one
/// is deleted too. If something elsewhere uses it, the error names that, once no other deletion is in progress.
pub async fn remove(cloud: &dyn Infrastructure, ids: &[ResourceId]) -> Result<PollStatus, StepError> {
    let (mut left, mut held, mut blocked) = (Vec::new(), Vec::new(), None);
    for id in ids {
        let found = cloud.get(id).await?;
        if !matches!(found, Some(Resource { state: ResourceState::Deleting, .. })) {
            // Also if it is not found: it may not be visible yet, and a deleted one stays deleted.
            match cloud.delete(id).await {
                Ok(()) if found.is_none() => continue,
                Ok(()) => {}
                Err(CloudError::InUse { what, by }) => {
                    // It is deleted after the resource that uses it, which may come later in the list.
                    if is_elsewhere(id, &by) {
                        blocked.get_or_insert_with(|| fault::in_use(&what, &by));
                    }
                    held.push(format!("{} is in use by {by}", id.name()));
                    continue;
                }
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            }
        }
        left.push(id.name());
    }
    let going = match left.as_slice() {
        [] => None,
        [one] => Some(format!("{one} is being deleted")),
        [first, rest @ ..] => Some(format!("{first} and {} more are being deleted", rest.len())),
    };
    match (going, held.into_iter().next(), blocked) {
        (None, _, Some(blocked)) => Err(blocked),
        (Some(going), Some(held), _) => Ok(PollStatus::Waiting(format!("{going}; {held}"))),
        (Some(said), None, _) | (None, Some(said), None) => Ok(PollStatus::Waiting(said)),
        (None, None, None) => Ok(PollStatus::Done(StepOutcome::default())),
    }
}

/// Whether the user of a resource is in another group, so that it is not deleted with it.
fn is_elsewhere(id: &ResourceId, by: &str) -> bool {
    let Ok(by) = by.parse::<ResourceId>() else { return false };
    let group = |it: &ResourceId| ResourceId::group(it.subscription(), it.resource_group());
    group(&by) != group(id)
}
