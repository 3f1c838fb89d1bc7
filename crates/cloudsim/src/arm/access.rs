//! Who may do what: role assignments allow, deny assignments forbid.

use cloud::ResourceId;
use http::{HeaderMap, StatusCode};

use super::assignments;
use super::error::ArmError;
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{entra, identities};

pub(crate) use crate::entra::Caller;

/// The audiences of tokens for the resource manager.
pub(crate) const AUDIENCES: [&str; 2] =
    ["https://management.azure.com", "https://management.core.windows.net"];

/// The caller by its bearer token.
pub(crate) fn authenticate(cx: &CallContext<'_>, headers: &HeaderMap) -> Result<Caller, Failure> {
    entra::authenticate(cx, headers, &AUDIENCES)
}

/// Requires that the caller may perform an action on a scope.
pub(crate) fn check(cx: &CallContext<'_>, caller: &Caller, action: &str, scope: &str) -> Result<(), Failure> {
    let denied = identities::denials_of(cx, &names(cx, caller), scope)?;
    let refused = |code: &str, why: &str| {
        let message = format!(
            "The client '{}' with object id '{}' {why} perform action '{action}' over scope '{}' or the scope is invalid. If access was recently granted, please refresh your credentials.",
            caller.client_id,
            caller.object_id,
            if scope.is_empty() { "/" } else { scope },
        );
        Failure::from(ArmError::new(StatusCode::FORBIDDEN, code, message))
    };
    if denied.iter().any(|it| identities::matches(&it.action, action))
        || assignments::is_denied(cx, &caller.object_id, action, scope)?
    {
        return Err(refused("DenyAssignmentAuthorizationFailed", "is denied by a deny assignment to"));
    }
    let permissions = assignments::permissions_of(cx, &caller.object_id, scope)?;
    match permissions.iter().any(|it| it.allows(action)) {
        true => Ok(()),
        false => Err(refused("AuthorizationFailed", "does not have authorization to")),
    }
}

/// Whether the caller may perform an action on data. Owner of the whole tenant, which the emulator gives its own principals, includes data;
/// Owner of less does not, as in Azure.
pub(crate) fn allows_data(
    cx: &CallContext<'_>,
    caller: &Caller,
    action: &str,
    scope: &str,
) -> Result<bool, Failure> {
    let denied = identities::denials_of(cx, &names(cx, caller), scope)?;
    if denied.iter().any(|it| identities::matches(&it.action, action)) {
        return Ok(false);
    }
    let owns_tenant = assignments::permissions_of(cx, &caller.object_id, "")?
        .iter()
        .any(|it| it.actions.iter().any(|it| it == "*") && it.not_actions.is_empty());
    if owns_tenant {
        return Ok(true);
    }
    let permissions = assignments::permissions_of(cx, &caller.object_id, scope)?;
    Ok(permissions.iter().any(|it| it.allows_data(action)))
}

/// The names under which denials know a caller.
fn names(cx: &CallContext<'_>, caller: &Caller) -> Vec<String> {
    let mut names = vec![caller.client_id.clone(), caller.object_id.clone()];
    names.extend(caller.identity.as_ref().map(ResourceId::key));
    if cx.endpoints.client_id.eq_ignore_ascii_case(&caller.client_id) {
        names.push("service".to_owned());
    }
    names
}
