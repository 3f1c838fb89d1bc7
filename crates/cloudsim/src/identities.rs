//! Principals with secrets, and what is set besides roles: denials and locks.
//!
//! A principal may do everything, or what its roles allow, as it was created. The resource manager evaluates roles and denials.

use cloud::ResourceId;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::arm::assignments;
use crate::call_context::CallContext;
use crate::failure::{Failure, not_found};
use crate::settings::{Denial, PrincipalInfo, PrincipalSecretBody, Rights};
use crate::{database, secrets, seed};

const PRINCIPAL: &str = "principal";
const SERVICE_PRINCIPAL: &str = "service-principal";
const DENIAL: &str = "denial";
const LOCK: &str = "lock";

/// The client id of this service.
const SERVICE: &str = "service";

/// The tenant that everybody belongs to.
pub(crate) fn tenant(seed: u64) -> String {
    seed::uuid(seed, &["tenant"]).to_string()
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredPrincipal {
    pub(crate) known: PrincipalInfo,
    pub(crate) secret: String,
    /// The claims of its tokens.
    pub(crate) claims: Vec<String>,
    #[serde(default)]
    pub(crate) directory_roles: Vec<String>,
}

/// The principal that Shipshape runs as. It is created at the first start, and its secret stays the same.
pub(crate) fn service_principal(db: &Connection) -> Result<PrincipalSecretBody, Failure> {
    let found: Option<StoredPrincipal> = database::record(db, SERVICE_PRINCIPAL, SERVICE)?;
    let stored = match found {
        Some(found) => found,
        None => {
            let created = StoredPrincipal {
                known: PrincipalInfo {
                    name: "shipshape".to_owned(),
                    client_id: uuid::Uuid::new_v4().to_string(),
                    object_id: uuid::Uuid::new_v4().to_string(),
                    rights: Rights::Everywhere,
                },
                secret: secrets::password()?,
                claims: vec!["oid".to_owned()],
                directory_roles: Vec::new(),
            };
            database::write(db, SERVICE_PRINCIPAL, SERVICE, &created)?;
            created
        }
    };
    Ok(PrincipalSecretBody { principal: stored.known, secret: stored.secret })
}

/// A principal with a secret, by its client id; the service's own is one of them.
pub(crate) fn find_principal(
    cx: &CallContext<'_>,
    client_id: &str,
) -> Result<Option<StoredPrincipal>, Failure> {
    let own: Option<StoredPrincipal> = database::record(cx.db, SERVICE_PRINCIPAL, SERVICE)?;
    match own.filter(|it| it.known.client_id.eq_ignore_ascii_case(client_id)) {
        Some(own) => Ok(Some(own)),
        None => database::record(cx.db, PRINCIPAL, &client_id.to_lowercase()),
    }
}

pub(crate) fn create_principal(
    cx: &CallContext<'_>,
    name: &str,
    rights: Rights,
) -> Result<PrincipalSecretBody, Failure> {
    let known = PrincipalInfo {
        name: name.to_owned(),
        client_id: uuid::Uuid::new_v4().to_string(),
        object_id: uuid::Uuid::new_v4().to_string(),
        rights,
    };
    let secret = secrets::password()?;
    let stored = StoredPrincipal {
        known: known.clone(),
        secret: secret.clone(),
        claims: vec!["oid".to_owned()],
        directory_roles: Vec::new(),
    };
    database::write(cx.db, PRINCIPAL, &known.client_id, &stored)?;
    if rights == Rights::Everywhere {
        assignments::assign_owner(cx, &known.object_id)?;
    }
    Ok(PrincipalSecretBody { principal: known, secret })
}

pub(crate) fn change_secret(cx: &CallContext<'_>, client_id: &str) -> Result<PrincipalSecretBody, Failure> {
    let mut stored = known(cx, client_id)?;
    stored.secret = secrets::password()?;
    database::write(cx.db, PRINCIPAL, &stored.known.client_id, &stored)?;
    Ok(PrincipalSecretBody { principal: stored.known, secret: stored.secret })
}

pub(crate) fn set_claims(
    cx: &CallContext<'_>,
    client_id: &str,
    claims: Vec<String>,
    directory_roles: Vec<String>,
) -> Result<(), Failure> {
    let mut stored = known(cx, client_id)?;
    (stored.claims, stored.directory_roles) = (claims, directory_roles);
    database::write(cx.db, PRINCIPAL, &stored.known.client_id, &stored)
}

pub(crate) fn delete_principal(cx: &CallContext<'_>, client_id: &str) -> Result<(), Failure> {
    if let Some(found) = find_principal(cx, client_id)? {
        assignments::remove_of_principal(cx, &found.known.object_id)?;
    }
    database::delete(cx.db, PRINCIPAL, &client_id.to_lowercase()).map(drop)
}

pub(crate) fn principals(cx: &CallContext<'_>) -> Result<Vec<PrincipalInfo>, Failure> {
    let stored: Vec<StoredPrincipal> = database::records(cx.db, PRINCIPAL)?;
    let mut known: Vec<PrincipalInfo> = stored.into_iter().map(|it| it.known).collect();
    known.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(known)
}

fn known(cx: &CallContext<'_>, client_id: &str) -> Result<StoredPrincipal, Failure> {
    database::record(cx.db, PRINCIPAL, &client_id.to_lowercase())?
        .ok_or_else(|| not_found(format!("principal {client_id}")))
}

/// Whether a principal with a secret has this object id.
pub(crate) fn has_object_id(cx: &CallContext<'_>, object_id: &str) -> Result<bool, Failure> {
    let own = service_principal(cx.db)?.principal;
    let is_it = |it: &PrincipalInfo| it.object_id.eq_ignore_ascii_case(object_id);
    Ok(is_it(&own) || principals(cx)?.iter().any(is_it))
}

/// Gives the role Owner of everything to each principal that may do everything. Databases of earlier releases have no such assignments.
pub(crate) fn ensure_owners(cx: &CallContext<'_>) -> Result<(), Failure> {
    assignments::assign_owner(cx, &service_principal(cx.db)?.principal.object_id)?;
    for principal in principals(cx)?.iter().filter(|it| it.rights == Rights::Everywhere) {
        assignments::assign_owner(cx, &principal.object_id)?;
    }
    Ok(())
}

/// Whether an action fits a pattern in which `*` stands for any run of characters. Case does not matter.
pub(crate) fn matches(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_lowercase(), action.to_lowercase());
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == action };
    let Some(mut rest) = action.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = tail.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The denials that apply to somebody at a scope.
pub(crate) fn denials_of(
    cx: &CallContext<'_>,
    names: &[String],
    scope: &str,
) -> Result<Vec<Denial>, Failure> {
    let mut denials = all_denials(cx)?;
    let scope = scope.to_lowercase();
    denials.retain(|it| {
        let denied = it.scope.key();
        names.iter().any(|name| name.eq_ignore_ascii_case(&it.who))
            && (scope == denied || scope.starts_with(&format!("{denied}/")))
    });
    Ok(denials)
}

/// The denials that have not ended.
pub(crate) fn all_denials(cx: &CallContext<'_>) -> Result<Vec<Denial>, Failure> {
    let mut denials: Vec<Denial> = database::records(cx.db, DENIAL)?;
    denials.retain(|it| it.until.is_none_or(|until| cx.now < until));
    Ok(denials)
}

/// The object id of somebody whom a denial names.
pub(crate) fn object_id_of(cx: &CallContext<'_>, who: &str) -> Result<String, Failure> {
    if who.eq_ignore_ascii_case(SERVICE) {
        return service_principal(cx.db).map(|it| it.principal.object_id);
    }
    if let Some(found) = find_principal(cx, who)? {
        return Ok(found.known.object_id);
    }
    let identity = crate::arm::store::find(cx.db, &who.to_lowercase())?;
    let principal_id = identity.as_ref().and_then(|it| it.property("principalId")?.as_str());
    Ok(principal_id.unwrap_or(who).to_owned())
}

/// What is locked.
pub(crate) fn locks(cx: &CallContext<'_>) -> Result<Vec<ResourceId>, Failure> {
    database::records(cx.db, LOCK)
}

pub(crate) fn deny(cx: &CallContext<'_>, denial: &Denial) -> Result<(), Failure> {
    let key =
        format!("{} {} {}", denial.scope.key(), denial.who.to_lowercase(), denial.action.to_lowercase());
    database::write(cx.db, DENIAL, &key, denial)
}

pub(crate) fn allow(cx: &CallContext<'_>, scope: &ResourceId) -> Result<(), Failure> {
    let denials: Vec<Denial> = database::records(cx.db, DENIAL)?;
    for denial in denials.iter().filter(|it| it.scope == *scope) {
        let key =
            format!("{} {} {}", denial.scope.key(), denial.who.to_lowercase(), denial.action.to_lowercase());
        database::delete(cx.db, DENIAL, &key)?;
    }
    Ok(())
}

pub(crate) fn set_lock(cx: &CallContext<'_>, id: &ResourceId, locked: bool) -> Result<(), Failure> {
    match locked {
        true => database::write(cx.db, LOCK, &id.key(), id),
        false => database::delete(cx.db, LOCK, &id.key()).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_an_action_stands_for_any_run_of_characters() {
        for (pattern, action, fits) in [
            ("*", "Microsoft.Network/virtualNetworks/read", true),
            ("*/read", "Microsoft.Network/virtualNetworks/READ", true),
            ("*/read", "Microsoft.Network/virtualNetworks/write", false),
            ("Microsoft.Network/*", "microsoft.network/x/join/action", true),
            ("Microsoft.Authorization/*/write", "Microsoft.Authorization/roleAssignments/write", true),
            ("Microsoft.Authorization/*/write", "Microsoft.Authorization/roleAssignments/read", false),
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
        ] {
            assert_eq!(matches(pattern, action), fits, "{pattern} {action}");
        }
    }
}
