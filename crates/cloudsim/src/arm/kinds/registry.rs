//! Container registries with scope maps and tokens. Passwords are shown once; a token keeps their hashes.

use cloud::ResourceId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::body::{
    Body, default, hide_private, invalid, items, keep, keep_private, object, properties, required, same, text,
};
use super::rows;
use crate::arm::{ActionOutcome, ArmError, ArmResource, Behaviour, store};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::secrets;

pub(crate) const REGISTRY: &str = "Microsoft.ContainerRegistry/registries";
pub(super) const SCOPE_MAP: &str = "Microsoft.ContainerRegistry/registries/scopeMaps";
pub(crate) const TOKEN: &str = "Microsoft.ContainerRegistry/registries/tokens";

/// The hashes of a token's passwords, by name.
const HASHES: &str = "$passwords";
const SYSTEM_DEFINED: &str = "SystemDefined";
/// How long a password without a requested expiry is valid.
const PASSWORD_HOURS: i64 = 24 * 180;
/// Scope maps that every registry has, with what they allow on each repository.
const SYSTEM_SCOPE_MAPS: [(&str, &[&str]); 5] = [
    ("_repositories_pull", &["content/read"]),
    ("_repositories_push", &["content/read", "content/write"]),
    ("_repositories_pull_metadata_read", &["content/read", "metadata/read"]),
    (
        "_repositories_push_metadata_write",
        &["content/read", "content/write", "metadata/read", "metadata/write"],
    ),
    (
        "_repositories_admin",
        &["content/delete", "content/read", "content/write", "metadata/read", "metadata/write"],
    ),
];

pub(super) struct Registries;

impl Behaviour for Registries {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let name = id.name();
        if !(5..=50).contains(&name.len()) || !name.bytes().all(|it| it.is_ascii_alphanumeric()) {
            let message =
                format!("The registry name '{name}' is invalid: it has 5 to 50 letters and digits.");
            return Err(invalid("InvalidRegistryName", message));
        }
        let taken = store::of_type_anywhere(cx.db, REGISTRY)?;
        if taken.iter().any(|it| it.id != *id && same(it.id.name(), name)) {
            let message = format!("The registry DNS name {name}.azurecr.io is already in use.");
            return Err(ArmError::conflict("AlreadyInUse", message).into());
        }
        keep(before, body, &["creationDate", "loginServer"]);
        let sku = object(body, "sku");
        let Some(tier) = sku.get("name").cloned() else { return Err(required("sku.name", id)) };
        sku.insert("tier".to_owned(), tier);
        let properties = properties(body);
        default(properties, "creationDate", json!(cx.now.to_string()));
        default(properties, "loginServer", json!(format!("{}.azurecr.io", name.to_lowercase())));
        default(properties, "adminUserEnabled", json!(false));
        default(properties, "publicNetworkAccess", json!("Enabled"));
        default(properties, "zoneRedundancy", json!("Disabled"));
        Ok(())
    }

    fn stored(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        for (name, actions) in SYSTEM_SCOPE_MAPS {
            let actions: Vec<String> = actions.iter().map(|it| format!("repositories/*/{it}")).collect();
            let id = resource.id.child("scopeMaps", name);
            if rows::present(cx, &id)?.is_some() {
                continue;
            }
            let mut body = Body::new();
            let inner = properties(&mut body);
            inner.insert("actions".to_owned(), json!(actions));
            inner.insert("creationDate".to_owned(), json!(cx.now.to_string()));
            inner.insert("type".to_owned(), json!(SYSTEM_DEFINED));
            // A registry that fails has them all the same.
            rows::write(cx, &id, SCOPE_MAP, body, &ArmResource { fault: None, ..resource.clone() })?;
        }
        Ok(())
    }

    fn act(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        action: &str,
        _query: &[(String, String)],
        body: &Value,
    ) -> Result<Option<ActionOutcome>, Failure> {
        if !same(action, "generateCredentials") {
            return Ok(None);
        }
        let result = generate_credentials(cx, resource, body)?;
        Ok(Some(ActionOutcome::Accepted { span: std::time::Duration::from_secs(2), result, change: None }))
    }
}

pub(super) struct Tokens;

impl Behaviour for Tokens {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let name = id.name();
        if !(5..=50).contains(&name.len()) || !name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
        {
            let message =
                format!("The token name '{name}' is invalid: it has 5 to 50 letters, digits and hyphens.");
            return Err(invalid("InvalidTokenName", message));
        }
        keep_private(before, body);
        keep(before, body, &["creationDate", "credentials"]);
        let inner = properties(body);
        default(inner, "creationDate", json!(cx.now.to_string()));
        default(inner, "credentials", json!({ "passwords": [] }));
        default(inner, "status", json!("enabled"));
        if !inner.contains_key("scopeMapId")
            && let Some(had) = before.and_then(|it| it.property("scopeMapId"))
        {
            inner.insert("scopeMapId".to_owned(), had.clone());
        }
        let Some(map) = inner.get("scopeMapId").and_then(Value::as_str) else {
            return Err(required("scopeMapId", id));
        };
        let map: ResourceId = map
            .parse()
            .map_err(|_| invalid("InvalidScopeMapId", format!("'{map}' is not the id of a scope map.")))?;
        let is_system = SYSTEM_SCOPE_MAPS.iter().any(|it| same(it.0, map.name()));
        if map.parent() != id.parent() || (!is_system && rows::present(cx, &map)?.is_none()) {
            let message = format!("The scope map {map} of the token {id} was not found.");
            return Err(ArmError::not_found("ScopeMapNotFound", message).into());
        }
        Ok(())
    }

    fn show(
        &self,
        _cx: &CallContext<'_>,
        _resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        hide_private(body);
        Ok(())
    }
}

pub(super) struct ScopeMaps;

impl Behaviour for ScopeMaps {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        check_user_defined(before)?;
        keep(before, body, &["creationDate"]);
        let properties = properties(body);
        default(properties, "creationDate", json!(cx.now.to_string()));
        properties.insert("type".to_owned(), json!("UserDefined"));
        match properties.get("actions").is_some_and(Value::is_array) {
            true => Ok(()),
            false => Err(required("actions", id)),
        }
    }

    fn may_delete(&self, _cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        check_user_defined(Some(resource))
    }
}

/// Scope maps of the system stay as they are.
fn check_user_defined(map: Option<&ArmResource>) -> Result<(), Failure> {
    let system = map.filter(|it| it.property("type").and_then(Value::as_str) == Some(SYSTEM_DEFINED));
    match system {
        Some(map) => {
            let message = format!("The scope map {} is defined by the system.", map.id.name());
            Err(invalid("SystemScopeMapCannotBeChanged", message))
        }
        None => Ok(()),
    }
}

/// Issues the named password of a token, or both.
fn generate_credentials(
    cx: &CallContext<'_>,
    registry: &ArmResource,
    request: &Value,
) -> Result<Value, Failure> {
    let id = text(request, "tokenId").and_then(|it| it.parse::<ResourceId>().ok());
    let id = id.ok_or_else(|| required("tokenId", &registry.id))?;
    let found = if id.parent().as_ref() == Some(&registry.id) { rows::present(cx, &id)? } else { None };
    let Some(mut token) = found else {
        return Err(ArmError::not_found("TokenNotFound", format!("The token {id} was not found.")).into());
    };
    let names: Vec<&str> = match text(request, "name") {
        None => vec!["password1", "password2"],
        Some(name) if ["password1", "password2"].contains(&name) => vec![name],
        Some(name) => {
            let message = format!("The name '{name}' of a password is none of password1 and password2.");
            return Err(invalid("InvalidPasswordName", message));
        }
    };
    let usual = cx.now.saturating_add(SignedDuration::from_hours(PASSWORD_HOURS)).unwrap_or(Timestamp::MAX);
    let expiry = match text(request, "expiry") {
        None => usual,
        Some(sent) => sent
            .parse::<Timestamp>()
            .map_err(|_| invalid("InvalidExpiry", format!("'{sent}' is not a time.")))?,
    };
    let mut issued = Vec::new();
    for name in names {
        let value = secrets::password()?;
        let entry = json!({ "name": name, "creationTime": cx.now.to_string(), "expiry": expiry.to_string() });
        let credentials = token.property("credentials").cloned().unwrap_or_default();
        let mut passwords: Vec<Value> =
            items(&credentials, "passwords").filter(|it| text(it, "name") != Some(name)).cloned().collect();
        passwords.push(entry.clone());
        passwords.sort_by_key(|it| text(it, "name").unwrap_or_default().to_owned());
        properties(&mut token.body).insert("credentials".to_owned(), json!({ "passwords": passwords }));
        object(&mut token.body, HASHES).insert(name.to_owned(), json!(hash(&value)));
        let mut shown = entry;
        shown["value"] = json!(value);
        issued.push(shown);
    }
    token.version += 1;
    rows::replace(cx, &token)?;
    Ok(json!({ "username": token.id.name(), "passwords": issued }))
}

fn hash(password: &str) -> String {
    Sha256::digest(password.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a token of a registry is enabled and has this password, unexpired.
pub(crate) fn accepts(
    cx: &CallContext<'_>,
    registry: &ResourceId,
    token: &str,
    password: &str,
) -> Result<bool, Failure> {
    let Some(found) = rows::present(cx, &registry.child("tokens", token))? else { return Ok(false) };
    let enabled = found.property("status").and_then(Value::as_str).is_some_and(|it| same(it, "enabled"));
    let hashes = found.body.get(HASHES).and_then(Value::as_object).cloned().unwrap_or_default();
    let hash = hash(password);
    let name = hashes.iter().find(|(_, value)| value.as_str() == Some(hash.as_str())).map(|(name, _)| name);
    let credentials = found.property("credentials").cloned().unwrap_or_default();
    let unexpired = items(&credentials, "passwords")
        .filter(|it| text(it, "name") == name.map(String::as_str))
        .filter_map(|it| text(it, "expiry")?.parse::<Timestamp>().ok())
        .any(|expiry| cx.now < expiry);
    Ok(enabled && name.is_some() && unexpired)
}
