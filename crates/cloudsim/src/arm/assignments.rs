//! Role assignments and deny assignments in the database, and the permissions that follow from them.

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::roles::{self, PermissionSet};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{database, identities, seed};

const DENY_ASSIGNMENT: &str = "deny-assignment";

/// The principal of deny assignments that stands for everybody.
const EVERYBODY: &str = "00000000-0000-0000-0000-000000000000";

/// A role assignment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredAssignment {
    pub(crate) name: String,
    /// The scope as it was spelled; empty for the tenant.
    pub(crate) scope: String,
    /// The id of the role definition as it was sent.
    pub(crate) role_definition_id: String,
    pub(crate) principal_id: String,
    pub(crate) principal_type: String,
    #[serde(default)]
    pub(crate) description: Option<String>,
    pub(crate) created: Timestamp,
    /// When it starts to allow something.
    pub(crate) effective: Timestamp,
}

impl StoredAssignment {
    /// The guid of the role.
    pub(crate) fn role(&self) -> &str {
        self.role_definition_id.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn shown(&self) -> Value {
        let scope = if self.scope.is_empty() { "/" } else { &self.scope };
        json!({
            "id": format!("{}/providers/Microsoft.Authorization/roleAssignments/{}", self.scope, self.name),
            "name": self.name,
            "type": "Microsoft.Authorization/roleAssignments",
            "properties": {
                "roleDefinitionId": self.role_definition_id,
                "principalId": self.principal_id,
                "principalType": self.principal_type,
                "scope": scope,
                "description": self.description,
                "createdOn": self.created.to_string(),
                "updatedOn": self.created.to_string(),
            },
        })
    }
}

fn key(scope: &str, name: &str) -> String {
    format!("{} {}", scope.to_lowercase(), name.to_lowercase())
}

/// Whether `scope` contains `inner`. The empty scope contains everything.
pub(crate) fn contains(scope: &str, inner: &str) -> bool {
    let (scope, inner) =
        (scope.trim_end_matches('/').to_lowercase(), inner.trim_end_matches('/').to_lowercase());
    inner == scope || inner.starts_with(&format!("{scope}/"))
}

pub(crate) fn keep(cx: &CallContext<'_>, assignment: &StoredAssignment) -> Result<(), Failure> {
    cx.db
        .prepare_cached(
            "insert or replace into role_assignment (key, principal, scope, doc) values (?, ?, ?, ?)",
        )?
        .execute(params![
            key(&assignment.scope, &assignment.name),
            assignment.principal_id.to_lowercase(),
            assignment.scope.to_lowercase(),
            serde_json::to_string(assignment)?
        ])?;
    Ok(())
}

pub(crate) fn find(
    cx: &CallContext<'_>,
    scope: &str,
    name: &str,
) -> Result<Option<StoredAssignment>, Failure> {
    let doc: Option<String> = cx
        .db
        .prepare_cached("select doc from role_assignment where key = ?")?
        .query_row([key(scope, name)], |row| row.get(0))
        .optional()?;
    Ok(doc.map(|doc| serde_json::from_str(&doc)).transpose()?)
}

pub(crate) fn remove(cx: &CallContext<'_>, scope: &str, name: &str) -> Result<(), Failure> {
    cx.db.prepare_cached("delete from role_assignment where key = ?")?.execute([key(scope, name)])?;
    Ok(())
}

/// Removes the assignments at a deleted resource and below it.
pub(crate) fn remove_within(cx: &CallContext<'_>, scope: &str) -> Result<(), Failure> {
    let scope = scope.to_lowercase();
    cx.db
        .prepare_cached(
            "delete from role_assignment where scope = ?1 or (scope > ?1 || '/' and scope < ?1 || '0')",
        )?
        .execute([&scope])?;
    Ok(())
}

/// Removes the assignments of a deleted principal.
pub(crate) fn remove_of_principal(cx: &CallContext<'_>, object_id: &str) -> Result<(), Failure> {
    cx.db
        .prepare_cached("delete from role_assignment where principal = ?")?
        .execute([object_id.to_lowercase()])?;
    Ok(())
}

/// All assignments, or those of one principal.
pub(crate) fn all(cx: &CallContext<'_>, principal: Option<&str>) -> Result<Vec<StoredAssignment>, Failure> {
    let mut statement = cx
        .db
        .prepare_cached("select doc from role_assignment where ?1 is null or principal = ?1 order by key")?;
    let docs = statement.query_map([principal.map(str::to_lowercase)], |row| row.get::<_, String>(0))?;
    docs.map(|doc| Ok(serde_json::from_str(&doc?)?)).collect()
}

fn of_principal(cx: &CallContext<'_>, object_id: &str) -> Result<Vec<StoredAssignment>, Failure> {
    let mut statement = cx.db.prepare_cached("select doc from role_assignment where principal = ?")?;
    let docs = statement.query_map([object_id.to_lowercase()], |row| row.get::<_, String>(0))?;
    docs.map(|doc| Ok(serde_json::from_str(&doc?)?)).collect()
}

/// Gives a principal the role Owner of everything.
pub(crate) fn assign_owner(cx: &CallContext<'_>, object_id: &str) -> Result<(), Failure> {
    let name = seed::uuid(cx.seed, &["owner", &object_id.to_lowercase()]).to_string();
    if find(cx, "", &name)?.is_some() {
        return Ok(());
    }
    keep(
        cx,
        &StoredAssignment {
            name,
            scope: String::new(),
            role_definition_id: format!(
                "/providers/Microsoft.Authorization/roleDefinitions/{}",
                roles::OWNER
            ),
            principal_id: object_id.to_owned(),
            principal_type: "ServicePrincipal".to_owned(),
            description: None,
            created: cx.now,
            effective: cx.now,
        },
    )
}

/// Takes the role Owner of everything from a principal.
pub(crate) fn remove_owner(cx: &CallContext<'_>, object_id: &str) -> Result<(), Failure> {
    let name = seed::uuid(cx.seed, &["owner", &object_id.to_lowercase()]).to_string();
    remove(cx, "", &name)
}

/// What a principal's roles allow at a scope.
pub(crate) fn permissions_of(
    cx: &CallContext<'_>,
    object_id: &str,
    scope: &str,
) -> Result<Vec<PermissionSet>, Failure> {
    let mut permissions = Vec::new();
    for assignment in of_principal(cx, object_id)? {
        if assignment.effective <= cx.now
            && contains(&assignment.scope, scope)
            && let Some(role) = roles::find(cx, assignment.role())?
        {
            permissions.extend(role.permissions);
        }
    }
    Ok(permissions)
}

/// A deny assignment that a caller created.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredDenyAssignment {
    pub(crate) name: String,
    pub(crate) scope: String,
    pub(crate) properties: Map<String, Value>,
}

impl StoredDenyAssignment {
    pub(crate) fn shown(&self) -> Value {
        let mut properties = self.properties.clone();
        properties.insert("scope".to_owned(), json!(self.scope));
        json!({
            "id": format!("{}/providers/Microsoft.Authorization/denyAssignments/{}", self.scope, self.name),
            "name": self.name,
            "type": "Microsoft.Authorization/denyAssignments",
            "properties": properties,
        })
    }

    fn has_principal(&self, member: &str, object_id: &str) -> bool {
        let principals = self.properties.get(member).and_then(Value::as_array);
        principals
            .into_iter()
            .flatten()
            .filter_map(|it| it.get("id")?.as_str())
            .any(|id| id.eq_ignore_ascii_case(object_id) || (member == "principals" && id == EVERYBODY))
    }

    fn denies(&self, action: &str) -> bool {
        let entries = self.properties.get("permissions").and_then(Value::as_array);
        let any = |entry: &Value, member: &str| {
            let patterns = entry.get(member).and_then(Value::as_array);
            patterns.into_iter().flatten().filter_map(Value::as_str).any(|it| identities::matches(it, action))
        };
        entries.into_iter().flatten().any(|it| any(it, "actions") && !any(it, "notActions"))
    }
}

pub(crate) fn keep_denial(cx: &CallContext<'_>, denial: &StoredDenyAssignment) -> Result<(), Failure> {
    database::write(cx.db, DENY_ASSIGNMENT, &key(&denial.scope, &denial.name), denial)
}

pub(crate) fn find_denial(
    cx: &CallContext<'_>,
    scope: &str,
    name: &str,
) -> Result<Option<StoredDenyAssignment>, Failure> {
    database::record(cx.db, DENY_ASSIGNMENT, &key(scope, name))
}

pub(crate) fn remove_denial(cx: &CallContext<'_>, scope: &str, name: &str) -> Result<bool, Failure> {
    database::delete(cx.db, DENY_ASSIGNMENT, &key(scope, name))
}

/// The deny assignments, with the denials that were set in the simulator.
pub(crate) fn denials(cx: &CallContext<'_>) -> Result<Vec<StoredDenyAssignment>, Failure> {
    let mut found: Vec<StoredDenyAssignment> = database::records(cx.db, DENY_ASSIGNMENT)?;
    for denial in identities::all_denials(cx)? {
        let words = [denial.scope.key(), denial.who.to_lowercase(), denial.action.to_lowercase()];
        let name = seed::uuid(cx.seed, &["denial", &words[0], &words[1], &words[2]]).to_string();
        let principal = identities::object_id_of(cx, &denial.who)?;
        let properties = json!({
            "denyAssignmentName": name,
            "permissions": [{ "actions": [denial.action], "notActions": [], "dataActions": [], "notDataActions": [] }],
            "principals": [{ "id": principal, "type": "ServicePrincipal" }],
            "excludePrincipals": [],
            "isSystemProtected": true,
        });
        let Value::Object(properties) = properties else { continue };
        found.push(StoredDenyAssignment { name, scope: denial.scope.to_string(), properties });
    }
    Ok(found)
}

/// Whether a deny assignment that a caller created forbids an action.
pub(crate) fn is_denied(
    cx: &CallContext<'_>,
    object_id: &str,
    action: &str,
    scope: &str,
) -> Result<bool, Failure> {
    let created: Vec<StoredDenyAssignment> = database::records(cx.db, DENY_ASSIGNMENT)?;
    Ok(created.iter().any(|it| {
        contains(&it.scope, scope)
            && it.has_principal("principals", object_id)
            && !it.has_principal("excludePrincipals", object_id)
            && it.denies(action)
    }))
}
