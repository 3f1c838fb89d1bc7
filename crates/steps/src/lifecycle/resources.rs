//! Resources of a cloud, made as wanted and waited for, or removed and waited for.

use cloud::{CloudError, Infrastructure, Put, Resource, ResourceId, State};

use super::fault;
use crate::engine::{Look, Outcome, StepError};

/// Makes resources be as wanted, in this order, each when those before it are there. Looks once; what is waited for is in the
/// answer. One that came to a bad end is asked for again, and its fault is the error.
pub async fn ensure(cloud: &dyn Infrastructure, wanted: &[Put]) -> Result<Look, StepError> {
    for put in wanted {
        let found = cloud.get(&put.id).await?;
        let name = put.id.name();
        if let Some(Resource { state: State::Deleting, .. }) = &found {
            return Ok(Look::Waiting(format!("{name} is still being removed")));
        }
        let now = cloud.put(put.clone()).await?;
        if let Some(Resource { state: State::Failed { fault: why }, .. }) = found {
            return Err(fault::of(&why, format!("{name} came to a bad end")));
        }
        match now.state {
            State::Succeeded => {}
            State::Creating | State::Updating => return Ok(Look::Waiting(format!("{name} is being made"))),
            State::Deleting => return Ok(Look::Waiting(format!("{name} is still being removed"))),
            State::Failed { fault: why } => {
                return Err(fault::of(&why, format!("{name} came to a bad end")));
            }
        }
    }
    Ok(Look::Done(Outcome::default()))
}

/// A resource that must be there.
pub async fn expect(cloud: &dyn Infrastructure, id: &ResourceId) -> Result<Resource, StepError> {
    let found = cloud.get(id).await?;
    // What a put has made may not be seen at once.
    found.ok_or_else(|| StepError::transient("NotSeen", format!("{id} is not seen yet")))
}

/// Removes resources and looks whether they are gone. What is in use by another of its group is waited for, because that goes
/// too. What something elsewhere uses is an error that names it, once nothing else is on its way.
pub async fn remove(cloud: &dyn Infrastructure, ids: &[ResourceId]) -> Result<Look, StepError> {
    let (mut left, mut held, mut blocked) = (Vec::new(), Vec::new(), None);
    for id in ids {
        let found = cloud.get(id).await?;
        if !matches!(found, Some(Resource { state: State::Deleting, .. })) {
            // Also what is not seen: it may only not be shown yet, and what is gone has been removed.
            match cloud.delete(id).await {
                Ok(()) if found.is_none() => continue,
                Ok(()) => {}
                Err(CloudError::InUse { what, by }) => {
                    // It goes after what uses it, which may come later in the list.
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
        [one] => Some(format!("{one} is being removed")),
        [first, rest @ ..] => Some(format!("{first} and {} more are being removed", rest.len())),
    };
    match (going, held.into_iter().next(), blocked) {
        (None, _, Some(blocked)) => Err(blocked),
        (Some(going), Some(held), _) => Ok(Look::Waiting(format!("{going}; {held}"))),
        (Some(said), None, _) | (None, Some(said), None) => Ok(Look::Waiting(said)),
        (None, None, None) => Ok(Look::Done(Outcome::default())),
    }
}

/// Whether what uses a resource is in another group than it, so that it does not go with it.
fn is_elsewhere(id: &ResourceId, by: &str) -> bool {
    let Ok(by) = by.parse::<ResourceId>() else { return false };
    let group = |it: &ResourceId| ResourceId::group(it.subscription(), it.resource_group());
    group(&by) != group(id)
}
