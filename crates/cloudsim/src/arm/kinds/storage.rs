//! Storage accounts, their keys and their blob containers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::ResourceId;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use serde_json::{Value, json};
use sha2::Sha256;

use super::body::{
    Body, default, hide_private, invalid, keep, keep_private, object, properties, required, same, text,
};
use super::rows;
use crate::arm::{ActionOutcome, ArmError, ArmResource, Behaviour, store};
use crate::blob;
use crate::call_context::CallContext;
use crate::failure::Failure;

pub(crate) const ACCOUNT: &str = "Microsoft.Storage/storageAccounts";
pub(crate) const BLOB_SERVICE: &str = "Microsoft.Storage/storageAccounts/blobServices";
pub(crate) const CONTAINER: &str = "Microsoft.Storage/storageAccounts/blobServices/containers";

/// Both keys of an account, in base64.
const KEYS: &str = "$keys";
/// The version of signatures that the resource manager makes.
const SAS_VERSION: &str = "2023-11-03";

pub(super) struct Accounts;

impl Behaviour for Accounts {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep_private(before, body);
        keep(before, body, &["creationTime", "keyCreationTime"]);
        keep(None, body, &["primaryEndpoints", "privateEndpointConnections"]);
        check_name(id.name())?;
        if before.is_none() && find_account(cx, id.name())?.is_some() {
            let message = format!("The storage account named {} is already taken.", id.name());
            return Err(ArmError::conflict("StorageAccountAlreadyTaken", message).with_target("name").into());
        }
        for member in ["sku", "kind"] {
            if !body.contains_key(member) {
                return Err(required(member, id));
            }
        }
        if !body.contains_key(KEYS) {
            body.insert(KEYS.to_owned(), json!([new_key()?, new_key()?]));
        }
        let sku = object(body, "sku");
        let tier = match sku.get("name").and_then(Value::as_str) {
            Some(name) if name.starts_with("Premium") => "Premium",
            Some(_) => "Standard",
            None => return Err(required("sku.name", id)),
        };
        sku.insert("tier".to_owned(), json!(tier));
        fill(cx, before, body)
    }

    fn stored(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        let service = resource.id.child("blobServices", "default");
        match rows::present(cx, &service)? {
            Some(_) => Ok(()),
            None => rows::write(cx, &service, BLOB_SERVICE, blob_service_body(), resource),
        }
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        hide_private(body);
        let name = resource.id.name();
        let blob = format!("{}/{name}/", cx.endpoints.blob.trim_end_matches('/'));
        let location = resource.location().to_owned();
        let shown = properties(body);
        shown.insert("primaryEndpoints".to_owned(), json!({ "blob": blob }));
        shown.insert("primaryLocation".to_owned(), json!(location));
        shown.insert("statusOfPrimary".to_owned(), json!("available"));
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
        if same(action, "listKeys") {
            return Ok(Some(ActionOutcome::Done(shown_keys(resource))));
        }
        if same(action, "regenerateKey") {
            return regenerate(cx, resource, body).map(|it| Some(ActionOutcome::Done(it)));
        }
        if same(action, "listAccountSas") {
            if !allows_shared_keys(resource) {
                let message = "Key based authentication is not permitted on this storage account.";
                let code = "KeyBasedAuthenticationNotPermitted";
                return Err(ArmError::new(StatusCode::FORBIDDEN, code, message).into());
            }
            let Some([key, _]) = account_keys(resource) else { return Ok(None) };
            let token = account_sas(resource.id.name(), &key, body)?;
            return Ok(Some(ActionOutcome::Done(json!({ "accountSasToken": token }))));
        }
        Ok(None)
    }

    /// Subnets that may reach an account do not wait for it.
    fn references(&self, _id: &ResourceId, _body: &Body) -> Vec<ResourceId> {
        Vec::new()
    }
}

fn fill(cx: &CallContext<'_>, before: Option<&ArmResource>, body: &mut Body) -> Result<(), Failure> {
    let now = cx.now.to_string();
    let inner = properties(body);
    default(inner, "creationTime", json!(now));
    default(inner, "keyCreationTime", json!({ "key1": now, "key2": now }));
    for (name, value) in [
        ("supportsHttpsTrafficOnly", json!(true)),
        ("minimumTlsVersion", json!("TLS1_2")),
        ("allowBlobPublicAccess", json!(false)),
        ("accessTier", json!("Hot")),
    ] {
        default(inner, name, value);
    }
    let rules = object(inner, "networkAcls");
    for (name, value) in [
        ("bypass", json!("AzureServices")),
        ("defaultAction", json!("Allow")),
        ("virtualNetworkRules", json!([])),
        ("ipRules", json!([])),
    ] {
        default(rules, name, value);
    }
    for rule in rules.get_mut("virtualNetworkRules").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(rule) = rule {
            default(rule, "action", json!("Allow"));
            rule.insert("state".to_owned(), json!("Succeeded"));
        }
    }
    let encryption = object(inner, "encryption");
    default(encryption, "keySource", json!("Microsoft.Storage"));
    default(
        encryption,
        "services",
        json!({ "blob": { "enabled": true, "keyType": "Account" }, "file": { "enabled": true, "keyType": "Account" } }),
    );
    let infrastructure = |value: Option<&Value>| {
        value
            .and_then(|it| it.get("requireInfrastructureEncryption"))
            .and_then(Value::as_bool)
            .unwrap_or(false)
    };
    let sent = infrastructure(inner.get("encryption"));
    if before.is_some_and(|it| infrastructure(it.property("encryption")) != sent) {
        let message =
            "The property 'requireInfrastructureEncryption' cannot be changed after the account was created.";
        return Err(ArmError::conflict("AccountPropertyCannotBeUpdated", message).into());
    }
    Ok(())
}

/// Requires a name that an account may have.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    let sound = (3..=24).contains(&name.len())
        && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    match sound {
        true => Ok(()),
        false => {
            let message = format!(
                "{name} is not a valid storage account name. Storage account name must be between 3 and 24 characters in length \
                 and use numbers and lower-case letters only."
            );
            Err(invalid("AccountNameInvalid", message))
        }
    }
}

/// An account by its name, which is unique in the whole cloud.
pub(crate) fn find_account(cx: &CallContext<'_>, name: &str) -> Result<Option<ArmResource>, Failure> {
    store::named(cx.db, ACCOUNT, name)
}

/// Whether keys and signatures made with them are accepted.
pub(crate) fn allows_shared_keys(account: &ArmResource) -> bool {
    account.property("allowSharedKeyAccess").and_then(Value::as_bool).unwrap_or(true)
}

/// Both keys of an account.
pub(crate) fn account_keys(account: &ArmResource) -> Option<[String; 2]> {
    serde_json::from_value(account.body.get(KEYS)?.clone()).ok()
}

/// A random key in base64.
pub(crate) fn new_key() -> Result<String, Failure> {
    let mut bytes = [0_u8; 64];
    getrandom::fill(&mut bytes).map_err(|error| Failure::Broken(format!("no randomness: {error}")))?;
    Ok(STANDARD.encode(bytes))
}

fn shown_keys(account: &ArmResource) -> Value {
    let times = account.property("keyCreationTime").cloned().unwrap_or_default();
    let keys = account_keys(account).unwrap_or_default();
    let shown = |(name, value): (&str, &String)| json!({ "keyName": name, "value": value, "permissions": "FULL", "creationTime": times.get(name) });
    let shown: Vec<Value> = ["key1", "key2"].into_iter().zip(&keys).map(shown).collect();
    json!({ "keys": shown })
}

fn regenerate(cx: &CallContext<'_>, account: &ArmResource, body: &Value) -> Result<Value, Failure> {
    let mut keys = account_keys(account).unwrap_or_default();
    let (at, name) = match text(body, "keyName") {
        Some("key1") => (0, "key1"),
        Some("key2") => (1, "key2"),
        _ => return Err(invalid("InvalidKeyName", "The name of the key is none of key1 and key2.")),
    };
    keys[at] = new_key()?;
    let mut changed = account.clone();
    changed.body.insert(KEYS.to_owned(), json!(keys));
    object(properties(&mut changed.body), "keyCreationTime")
        .insert(name.to_owned(), json!(cx.now.to_string()));
    changed.version += 1;
    rows::replace(cx, &changed)?;
    Ok(shown_keys(&changed))
}

/// The signature of a text with a key in base64, in base64.
pub(crate) fn sign(key: &str, text: &str) -> Result<String, Failure> {
    let unusable = |_| Failure::Broken("a key of a storage account is not base64".to_owned());
    let key = STANDARD.decode(key).map_err(unusable)?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key)
        .map_err(|_| Failure::Broken("a key of a storage account has no valid length".to_owned()))?;
    mac.update(text.as_bytes());
    Ok(STANDARD.encode(mac.finalize().into_bytes()))
}

/// The text that an account SAS of version 2020-12-06 and later signs. Absent values are empty.
pub(crate) fn account_sas_text(account: &str, value: impl Fn(&str) -> String) -> String {
    let values = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses"].map(value);
    format!("{account}\n{}\n", values.join("\n"))
}

/// The query of an account SAS for the body of a request to `listAccountSas`.
fn account_sas(account: &str, key: &str, request: &Value) -> Result<String, Failure> {
    let members = [
        ("ss", "signedServices"),
        ("srt", "signedResourceTypes"),
        ("sp", "signedPermission"),
        ("st", "signedStart"),
        ("se", "signedExpiry"),
        ("sip", "signedIp"),
        ("spr", "signedProtocol"),
    ];
    for (_, member) in [members[0], members[1], members[2], members[4]] {
        if text(request, member).is_none_or(str::is_empty) {
            let message = format!("Values for request parameters are invalid: {member}.");
            return Err(invalid("InvalidValuesForRequestParameters", message));
        }
    }
    let value = |name: &str| -> String {
        if name == "sv" {
            return SAS_VERSION.to_owned();
        }
        let member = members.iter().find(|it| it.0 == name).map_or("", |it| it.1);
        // Times have no fraction in a query.
        let sent = text(request, member).unwrap_or_default();
        match (name, sent.split_once('.')) {
            ("st" | "se", Some((seconds, _))) => format!("{seconds}Z"),
            _ => sent.to_owned(),
        }
    };
    let signature = sign(key, &account_sas_text(account, value))?;
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let mut query = format!("sv={SAS_VERSION}");
    for (name, _) in members {
        let value = value(name);
        if !value.is_empty() {
            query.push_str(&format!("&{name}={}", encode(&value)));
        }
    }
    Ok(format!("{query}&sig={}", encode(&signature)))
}

fn blob_service_body() -> Body {
    let mut body = Body::new();
    let disabled = json!({ "enabled": false });
    let inner = properties(&mut body);
    inner.insert("cors".to_owned(), json!({ "corsRules": [] }));
    inner.insert("deleteRetentionPolicy".to_owned(), disabled);
    body
}

pub(super) struct BlobServices;

impl Behaviour for BlobServices {
    fn may_delete(&self, _cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        let message = format!("The service {} cannot be deleted.", resource.id);
        Err(ArmError::new(StatusCode::METHOD_NOT_ALLOWED, "UnsupportedHttpVerb", message).into())
    }
}

pub(super) struct Containers;

impl Behaviour for Containers {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let name = id.name();
        let sound = (3..=63).contains(&name.len())
            && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-')
            && !name.contains("--");
        if !sound && !name.starts_with('$') {
            let message = format!("The specified resource name contains invalid characters: {name}.");
            return Err(invalid("InvalidResourceName", message));
        }
        keep(before, body, &["lastModifiedTime"]);
        let inner = properties(body);
        default(inner, "publicAccess", json!("None"));
        default(inner, "lastModifiedTime", json!(cx.now.to_string()));
        default(inner, "leaseStatus", json!("Unlocked"));
        default(inner, "leaseState", json!("Available"));
        default(inner, "hasImmutabilityPolicy", json!(false));
        default(inner, "hasLegalHold", json!(false));
        Ok(())
    }

    fn deleted(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        blob::clear(cx, &resource.id.key())
    }
}

/// The id of a container.
pub(crate) fn container_id(account: &ResourceId, name: &str) -> ResourceId {
    account.child("blobServices", "default").child("containers", name)
}

/// A container, which may be on its way out.
pub(crate) fn find_container(
    cx: &CallContext<'_>,
    account: &ResourceId,
    name: &str,
) -> Result<Option<ArmResource>, Failure> {
    store::find(cx.db, &container_id(account, name).key())
}

/// Creates a container on behalf of the data plane.
pub(crate) fn create_container(
    cx: &CallContext<'_>,
    account: &ArmResource,
    name: &str,
    mut body: Body,
) -> Result<ArmResource, Failure> {
    let id = container_id(&account.id, name);
    Containers.prepare(cx, &id, None, &mut body)?;
    rows::write(cx, &id, CONTAINER, body, &ArmResource { settles: cx.now, fault: None, ..account.clone() })?;
    store::find(cx.db, &id.key())?.ok_or_else(|| Failure::Broken(format!("the container {id} is missing")))
}

/// The containers of an account.
pub(crate) fn containers(cx: &CallContext<'_>, account: &ResourceId) -> Result<Vec<ArmResource>, Failure> {
    store::children(cx.db, account, CONTAINER)
}
