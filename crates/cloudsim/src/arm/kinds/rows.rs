//! Rows that kinds read and write besides their own: children, users of a resource, resources that come and go with another.

use cloud::ResourceId;
use jiff::Timestamp;

use super::body::Body;
use crate::arm::{ArmError, ArmResource, Behaviour, Change, resources, store};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// A resource that is not being deleted.
pub(super) fn present(cx: &CallContext<'_>, id: &ResourceId) -> Result<Option<ArmResource>, Failure> {
    Ok(store::find(cx.db, &id.key())?.filter(|it| it.change != Change::Deleting))
}

/// The children of a type.
pub(super) fn children(
    cx: &CallContext<'_>,
    id: &ResourceId,
    type_name: &str,
) -> Result<Vec<ArmResource>, Failure> {
    store::children(cx.db, id, type_name)
}

/// The resources that refer to a resource or to a part of it.
pub(super) fn users(cx: &CallContext<'_>, id: &ResourceId) -> Result<Vec<ArmResource>, Failure> {
    store::users_of(cx.db, id)
}

/// Creates or updates a resource on behalf of another, whose change it completes with.
pub(super) fn write(
    cx: &CallContext<'_>,
    id: &ResourceId,
    type_name: &str,
    body: Body,
    with: &ArmResource,
) -> Result<(), Failure> {
    let before = present(cx, id)?;
    if before.as_ref().is_some_and(|it| it.body == body && it.fault.is_none()) {
        return Ok(());
    }
    let resource = ArmResource {
        id: before.as_ref().map_or_else(|| id.clone(), |it| it.id.clone()),
        type_name: type_name.to_owned(),
        body,
        version: before.as_ref().map_or(1, |it| it.version + 1),
        change: if before.is_some() { Change::Updating } else { Change::Creating },
        settles: with.settles,
        fault: with.fault.clone(),
        seen_from: before.map_or(with.seen_from, |it| it.seen_from),
    };
    store::keep(cx.db, &resource)
}

/// Writes a changed body of a resource without a change that takes time.
pub(super) fn replace(cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
    store::keep(cx.db, resource)
}

/// Gives the parent of a resource a new etag.
pub(super) fn touch_parent(cx: &CallContext<'_>, id: &ResourceId) -> Result<(), Failure> {
    let parent = id.parent().map(|it| present(cx, &it)).transpose()?.flatten();
    match parent {
        Some(parent) => store::keep(cx.db, &ArmResource { version: parent.version + 1, ..parent }),
        None => Ok(()),
    }
}

/// Removes a resource at once, unless another one refers to it.
pub(super) fn remove_unused(
    cx: &CallContext<'_>,
    resource: &ArmResource,
    behaviour: &dyn Behaviour,
) -> Result<(), Failure> {
    match users(cx, &resource.id)?.first() {
        Some(user) => {
            let (code, message) = behaviour.in_use(resource, &user.id);
            Err(ArmError::bad_request(&code, message).into())
        }
        None => store::remove(cx.db, &resource.id),
    }
}

/// Deletes a resource together with another one, at the same time.
pub(super) fn delete_at(cx: &CallContext<'_>, id: &ResourceId, gone: Timestamp) -> Result<(), Failure> {
    match present(cx, id)? {
        Some(found) => resources::start_deletion(cx, found, gone),
        None => Ok(()),
    }
}
