//! Requests below `{scope}/providers/Microsoft.Authorization` and the other extensions of a scope.

use cloud::ResourceId;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::assignments::{self, StoredAssignment, StoredDenyAssignment, contains};
use super::error::ArmError;
use super::message::{ArmRequest, ArmResponse, method_not_allowed};
use super::roles::{self, PermissionSet, RoleDefinition};
use super::{access, health, locks, maintenance, store, tags};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// A request on an extension of a scope.
pub(crate) fn handle(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    namespace: &str,
    rest: &[String],
) -> Result<ArmResponse, Failure> {
    let kind = rest.first().map(|it| it.to_lowercase()).unwrap_or_default();
    let name = rest.get(1).map(String::as_str);
    let check = |type_name: &str| {
        let verb = match *request.method {
            Method::GET | Method::HEAD => "read",
            Method::DELETE => "delete",
            _ => "write",
        };
        access::check(cx, request.caller, &format!("{type_name}/{verb}"), scope)
    };
    match (namespace.to_lowercase().as_str(), kind.as_str()) {
        ("microsoft.authorization", "permissions") => permissions(cx, request, scope),
        ("microsoft.authorization", "roleassignments") => {
            check("Microsoft.Authorization/roleAssignments")?;
            role_assignments(cx, request, scope, name)
        }
        ("microsoft.authorization", "roledefinitions") => {
            check("Microsoft.Authorization/roleDefinitions")?;
            role_definitions(cx, request, scope, name)
        }
        ("microsoft.authorization", "denyassignments") => {
            check("Microsoft.Authorization/denyAssignments")?;
            deny_assignments(cx, request, scope, name)
        }
        ("microsoft.authorization", "locks") => {
            check("Microsoft.Authorization/locks")?;
            existing_scope(cx, scope)?;
            locks::handle(cx, request, scope, name)
        }
        ("microsoft.resources", "tags") if name.is_some_and(|it| it.eq_ignore_ascii_case("default")) => {
            check("Microsoft.Resources/tags")?;
            tags::handle(cx, request, scope)
        }
        ("microsoft.maintenance", "updates") => {
            check("Microsoft.Maintenance/updates")?;
            existing_scope(cx, scope)?;
            Ok(ArmResponse::list(maintenance::updates(cx, scope)?))
        }
        ("microsoft.resourcehealth", "availabilitystatuses") => {
            check("Microsoft.ResourceHealth/availabilityStatuses")?;
            existing_scope(cx, scope)?;
            health::statuses(cx, request, scope, name)
        }
        ("microsoft.resourcehealth", "events") => Ok(ArmResponse::list(Vec::new())),
        _ => {
            let message =
                format!("The resource type '{kind}' could not be found in the namespace '{namespace}'.");
            Err(ArmError::not_found("InvalidResourceType", message).into())
        }
    }
}

/// Requires that the scope exists, where it is a group or a resource.
fn existing_scope(cx: &CallContext<'_>, scope: &str) -> Result<(), Failure> {
    let Ok(id) = scope.parse::<ResourceId>() else { return Ok(()) };
    match store::find(cx.db, &id.key())? {
        Some(_) => Ok(()),
        None if id == store::group_of(&id) => Err(super::resources::group_not_found(&id)),
        None => {
            let type_name = super::kind::type_of(&id).unwrap_or_default();
            Err(super::resources::not_found(&id, &type_name))
        }
    }
}

/// What the caller's roles allow. Denials are left out, as Azure leaves them out.
fn permissions(cx: &CallContext<'_>, request: &ArmRequest<'_>, scope: &str) -> Result<ArmResponse, Failure> {
    existing_scope(cx, scope)?;
    let found = assignments::permissions_of(cx, &request.caller.object_id, scope)?;
    Ok(ArmResponse::list(found.iter().map(|it| json!(it)).collect()))
}

/// The object id in `principalId eq 'x'` or `assignedTo('x')`.
fn principal_in(filter: &str) -> Option<&str> {
    let lower = filter.to_lowercase();
    if !lower.contains("principalid") && !lower.contains("assignedto") {
        return None;
    }
    filter.split('\'').nth(1)
}

fn role_assignments(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    name: Option<&str>,
) -> Result<ArmResponse, Failure> {
    let Some(name) = name else {
        existing_scope(cx, scope)?;
        let filter = request.parameter("$filter").unwrap_or_default();
        let at_scope = filter.to_lowercase().contains("atscope()");
        let found = assignments::all(cx, principal_in(filter))?;
        let is_meant =
            |it: &&StoredAssignment| contains(&it.scope, scope) || (!at_scope && contains(scope, &it.scope));
        return Ok(ArmResponse::list(found.iter().filter(is_meant).map(StoredAssignment::shown).collect()));
    };
    let found = assignments::find(cx, scope, name)?;
    match *request.method {
        Method::GET => match found {
            Some(found) => Ok(ArmResponse::ok(found.shown())),
            None => {
                let message = format!("The role assignment '{name}' is not found.");
                Err(ArmError::not_found("RoleAssignmentNotFound", message).into())
            }
        },
        Method::DELETE => match found {
            Some(found) => {
                assignments::remove(cx, scope, name)?;
                Ok(ArmResponse::ok(found.shown()))
            }
            None => Ok(ArmResponse::empty(StatusCode::NO_CONTENT)),
        },
        Method::PUT => assign(cx, request, scope, name, found),
        _ => Err(method_not_allowed(request)),
    }
}

fn assign(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    name: &str,
    found: Option<StoredAssignment>,
) -> Result<ArmResponse, Failure> {
    let refused = |code: &str, message: String| Err(ArmError::bad_request(code, message).into());
    if name.parse::<Uuid>().is_err() {
        let message =
            format!("The role assignment ID '{name}' is not valid. The role assignment ID must be a GUID.");
        return refused("InvalidRoleAssignmentId", message);
    }
    existing_scope(cx, scope)?;
    let body = request.json()?;
    let text = |member: &str| {
        body.pointer(&format!("/properties/{member}")).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (role_definition_id, principal_id) = (text("roleDefinitionId"), text("principalId"));
    if principal_id.parse::<Uuid>().is_err() {
        return refused(
            "InvalidPrincipalId",
            format!("A valid principal ID must be provided for role assignment; '{principal_id}' is none."),
        );
    }
    let role = role_definition_id.rsplit('/').next().unwrap_or_default();
    if roles::find(cx, role)?.is_none() {
        let message = format!("The specified role definition with ID '{role}' does not exist.");
        return Err(ArmError::not_found("RoleDefinitionDoesNotExist", message).into());
    }
    let is_same = |it: &StoredAssignment| {
        it.role().eq_ignore_ascii_case(role) && it.principal_id.eq_ignore_ascii_case(&principal_id)
    };
    if let Some(found) = found {
        if is_same(&found) {
            return Ok(ArmResponse::ok(found.shown()));
        }
        let message = "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.";
        return refused("RoleAssignmentUpdateNotPermitted", message.to_owned());
    }
    let others = assignments::all(cx, Some(&principal_id))?;
    if others.iter().any(|it| it.scope.eq_ignore_ascii_case(scope) && is_same(it)) {
        return Err(ArmError::conflict("RoleAssignmentExists", "The role assignment already exists.").into());
    }
    let principal_type = text("principalType");
    if principal_type.is_empty() && !super::is_principal(cx, &principal_id)? {
        let message = format!(
            "Principal {} does not exist in the directory {}. Check that you have the correct principal ID. If you are creating this principal and then immediately assigning a role, this error might be related to a replication delay. In this case, set the role assignment principalType property to a value, such as ServicePrincipal, User, or Group.",
            principal_id.replace('-', ""),
            cx.endpoints.tenant_id
        );
        return refused("PrincipalNotFound", message);
    }
    let assignment = StoredAssignment {
        name: name.to_owned(),
        scope: scope.to_owned(),
        role_definition_id,
        principal_id,
        principal_type: if principal_type.is_empty() {
            "ServicePrincipal".to_owned()
        } else {
            principal_type
        },
        description: body.pointer("/properties/description").and_then(Value::as_str).map(str::to_owned),
        created: cx.now,
        effective: cx.later(cx.effects.late),
    };
    assignments::keep(cx, &assignment)?;
    Ok(ArmResponse::new(StatusCode::CREATED, assignment.shown()))
}

fn role_definitions(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    name: Option<&str>,
) -> Result<ArmResponse, Failure> {
    let Some(name) = name else {
        let filter = request.parameter("$filter").unwrap_or_default();
        let wanted = filter.to_lowercase().contains("rolename").then(|| filter.split('\'').nth(1)).flatten();
        let is_custom = filter.to_lowercase().contains("'customrole'");
        let found = roles::all(cx)?;
        let is_meant = |it: &&RoleDefinition| {
            wanted.is_none_or(|wanted| it.role_name.eq_ignore_ascii_case(wanted))
                && (!is_custom || it.role_type == "CustomRole")
                && it.assignable_scopes.iter().any(|at| contains(at, scope) || contains(scope, at))
        };
        return Ok(ArmResponse::list(found.iter().filter(is_meant).map(|it| it.shown(scope)).collect()));
    };
    let found = roles::find(cx, name)?;
    match *request.method {
        Method::GET => match found {
            Some(found) => Ok(ArmResponse::ok(found.shown(scope))),
            None => {
                let message = format!("The specified role definition with ID '{name}' does not exist.");
                Err(ArmError::not_found("RoleDefinitionDoesNotExist", message).into())
            }
        },
        Method::PUT => define(cx, request, scope, name, found.as_ref()),
        Method::DELETE => match found {
            Some(found) if found.role_type == "CustomRole" => {
                if assignments::all(cx, None)?.iter().any(|it| it.role().eq_ignore_ascii_case(name)) {
                    let message = "There are existing role assignments referencing role (code: RoleDefinitionHasAssignments).";
                    return Err(ArmError::bad_request("RoleDefinitionHasAssignments", message).into());
                }
                roles::remove(cx, name)?;
                Ok(ArmResponse::ok(found.shown(scope)))
            }
            _ => Ok(ArmResponse::empty(StatusCode::NO_CONTENT)),
        },
        _ => Err(method_not_allowed(request)),
    }
}

fn define(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    name: &str,
    found: Option<&RoleDefinition>,
) -> Result<ArmResponse, Failure> {
    let refused = |code: &str, message: &str| Err(ArmError::bad_request(code, message).into());
    if found.is_some_and(|it| it.role_type == "BuiltInRole") || name.parse::<Uuid>().is_err() {
        return refused(
            "InvalidRoleDefinitionId",
            "The role definition ID must be a GUID that no built-in role has.",
        );
    }
    let body = request.json()?;
    let properties = body.get("properties").cloned().unwrap_or_default();
    let permissions: Vec<PermissionSet> =
        serde_json::from_value(properties.get("permissions").cloned().unwrap_or(json!([])))
            .map_err(|error| ArmError::bad_request("InvalidRequestContent", error.to_string()))?;
    let role_name = properties.get("roleName").and_then(Value::as_str).unwrap_or_default();
    if role_name.is_empty() {
        return refused("RoleDefinitionNameEmpty", "The role definition name is required.");
    }
    let same_name = |it: &RoleDefinition| {
        it.role_name.eq_ignore_ascii_case(role_name) && !it.name.eq_ignore_ascii_case(name)
    };
    if roles::all(cx)?.iter().any(same_name) {
        let message =
            format!("A role definition cannot be updated with a name that already exists: '{role_name}'.");
        return Err(ArmError::conflict("RoleDefinitionWithSameNameExists", message).into());
    }
    let given = properties.get("assignableScopes").and_then(Value::as_array);
    let mut assignable_scopes: Vec<String> =
        given.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    if assignable_scopes.is_empty() {
        assignable_scopes.push(if scope.is_empty() { "/".to_owned() } else { scope.to_owned() });
    }
    let definition = RoleDefinition {
        name: name.to_owned(),
        scope: scope.to_owned(),
        role_name: role_name.to_owned(),
        role_type: "CustomRole".to_owned(),
        description: properties.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
        permissions,
        assignable_scopes,
    };
    roles::keep(cx, &definition)?;
    Ok(ArmResponse::new(StatusCode::CREATED, definition.shown(scope)))
}

fn deny_assignments(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    name: Option<&str>,
) -> Result<ArmResponse, Failure> {
    let Some(name) = name else {
        existing_scope(cx, scope)?;
        let filter = request.parameter("$filter").unwrap_or_default();
        let at_scope = filter.to_lowercase().contains("atscope()");
        let principal = principal_in(filter).map(str::to_lowercase);
        let is_meant = |it: &StoredDenyAssignment| {
            let near = contains(&it.scope, scope) || (!at_scope && contains(scope, &it.scope));
            let shown = it.shown().to_string().to_lowercase();
            near && principal.as_ref().is_none_or(|id| shown.contains(id))
        };
        let found = assignments::denials(cx)?;
        return Ok(ArmResponse::list(
            found.iter().filter(|it| is_meant(it)).map(StoredDenyAssignment::shown).collect(),
        ));
    };
    match *request.method {
        Method::GET => {
            let found = assignments::denials(cx)?;
            let is_it = |it: &&StoredDenyAssignment| {
                it.name.eq_ignore_ascii_case(name) && it.scope.eq_ignore_ascii_case(scope)
            };
            found.iter().find(is_it).map(|it| ArmResponse::ok(it.shown())).ok_or_else(|| {
                let message = format!("The deny assignment '{name}' is not found.");
                ArmError::not_found("DenyAssignmentNotFound", message).into()
            })
        }
        Method::PUT => {
            existing_scope(cx, scope)?;
            let Some(Value::Object(properties)) = request.object()?.remove("properties") else {
                let message = "The request content was invalid: 'properties' is required.";
                return Err(ArmError::bad_request("InvalidRequestContent", message).into());
            };
            let is_new = assignments::find_denial(cx, scope, name)?.is_none();
            let denial = StoredDenyAssignment { name: name.to_owned(), scope: scope.to_owned(), properties };
            assignments::keep_denial(cx, &denial)?;
            let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
            Ok(ArmResponse::new(status, denial.shown()))
        }
        Method::DELETE => Ok(ArmResponse::empty(match assignments::remove_denial(cx, scope, name)? {
            true => StatusCode::OK,
            false => StatusCode::NO_CONTENT,
        })),
        _ => Err(method_not_allowed(request)),
    }
}
