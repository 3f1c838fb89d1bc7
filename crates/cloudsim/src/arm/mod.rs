//! Azure's resource manager: resources as JSON documents, with long operations, paging, etags and Azure's errors.

pub(crate) mod access;
pub(crate) mod assignments;
mod authorization;
mod deployments;
mod dispatch;
mod error;
mod forward;
pub(crate) mod groups;
mod health;
mod kind;
pub(crate) mod kinds;
mod listener;
mod lists;
mod locks;
mod maintenance;
mod message;
mod openshift_roles;
mod operations;
mod own;
mod parts;
mod path;
mod policies;
mod references;
mod resource_requests;
pub(crate) mod resources;
pub(crate) mod roles;
pub(crate) mod store;
mod subscriptions;
mod tags;

use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::identities;

pub(crate) use error::ArmError;
#[cfg(test)]
pub(crate) use kind::find_kind;
pub(crate) use kind::{ActionOutcome, ArmResource, Behaviour, Change, DeleteStyle, Kind, PutStyle, type_of};
pub(crate) use listener::routes;
pub(crate) use lists::set_page_size;
pub(crate) use own::{own_issuer_account, own_issuer_url, own_registry, prepare, vault_names};
pub(crate) use policies::set as set_policy;
pub(crate) use store::sweep;

/// Whether an object id belongs to a principal or to a managed identity.
fn is_principal(cx: &CallContext<'_>, object_id: &str) -> Result<bool, Failure> {
    if identities::has_object_id(cx, object_id)? {
        return Ok(true);
    }
    let identities = store::of_type_anywhere(cx.db, "Microsoft.ManagedIdentity/userAssignedIdentities")?;
    let is_it = |it: &ArmResource| {
        it.property("principalId")
            .and_then(|it| it.as_str())
            .is_some_and(|it| it.eq_ignore_ascii_case(object_id))
    };
    Ok(identities.iter().any(is_it))
}
