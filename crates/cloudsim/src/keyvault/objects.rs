//! Secrets and certificates in the database: an object for each name, and its versions, oldest first.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension as _, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::issuance::CertificateOperation;
use crate::call_context::CallContext;
use crate::failure::Failure;

/// The usual time until a deleted object is shown as such.
const DELETING: Duration = Duration::from_secs(4);

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Secret,
    Certificate,
}

impl ObjectKind {
    /// The first segment of its path.
    pub(super) fn path(self) -> &'static str {
        match self {
            ObjectKind::Secret => "secrets",
            ObjectKind::Certificate => "certificates",
        }
    }

    /// The first segment of the path of a deleted one.
    pub(super) fn deleted_path(self) -> &'static str {
        match self {
            ObjectKind::Secret => "deletedsecrets",
            ObjectKind::Certificate => "deletedcertificates",
        }
    }
}

/// A vault, as requests see it.
#[derive(Debug, Clone)]
pub(super) struct VaultScope {
    /// The name in lower case.
    pub(super) name: String,
    pub(super) url: String,
    pub(super) retention_days: i64,
}

/// A secret or a certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VaultObject {
    /// The name as it was first spelled.
    pub(super) name: String,
    #[serde(default)]
    pub(super) deletion: Option<Deletion>,
    /// The policy of a certificate; null for a secret.
    #[serde(default)]
    pub(super) policy: Value,
    /// The last operation of a certificate.
    #[serde(default)]
    pub(super) operation: Option<CertificateOperation>,
}

impl VaultObject {
    /// An object without versions.
    pub(super) fn new(name: &str) -> VaultObject {
        VaultObject { name: name.to_owned(), deletion: None, policy: Value::Null, operation: None }
    }
}

/// The deletion of an object, which stays recoverable until it is purged.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Deletion {
    pub(super) at: Timestamp,
    /// From when on the deleted object is shown.
    pub(super) completed: Timestamp,
    pub(super) purged: Timestamp,
}

/// What versions of both kinds have.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attributes {
    pub(super) enabled: bool,
    pub(super) not_before: Option<i64>,
    pub(super) expires: Option<i64>,
    pub(super) created: i64,
    pub(super) updated: i64,
    #[serde(default)]
    pub(super) tags: BTreeMap<String, String>,
}

impl Attributes {
    /// Attributes of a new version from the members `attributes` and `tags` of a request.
    pub(super) fn new(cx: &CallContext<'_>, body: &Value) -> Attributes {
        let now = cx.now.as_second();
        let mut attributes = Attributes {
            enabled: true,
            not_before: None,
            expires: None,
            created: now,
            updated: now,
            tags: BTreeMap::new(),
        };
        attributes.update(cx, body);
        attributes
    }

    /// Changes what a request mentions.
    pub(super) fn update(&mut self, cx: &CallContext<'_>, body: &Value) {
        let sent = &body["attributes"];
        if let Some(enabled) = sent["enabled"].as_bool() {
            self.enabled = enabled;
        }
        if let Some(time) = sent["nbf"].as_i64() {
            self.not_before = Some(time);
        }
        if let Some(time) = sent["exp"].as_i64() {
            self.expires = Some(time);
        }
        if let Some(tags) = body["tags"].as_object() {
            let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            self.tags = tags.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        }
        self.updated = cx.now.as_second();
    }

    pub(super) fn shown(&self, vault: &VaultScope) -> Value {
        let mut shown = json!({
            "enabled": self.enabled,
            "created": self.created,
            "updated": self.updated,
            "recoveryLevel": "Recoverable+Purgeable",
            "recoverableDays": vault.retention_days,
        });
        if let Some(time) = self.not_before {
            shown["nbf"] = json!(time);
        }
        if let Some(time) = self.expires {
            shown["exp"] = json!(time);
        }
        shown
    }
}

/// A version of a secret.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretVersion {
    pub(super) version: String,
    pub(super) value: String,
    pub(super) content_type: Option<String>,
    pub(super) attributes: Attributes,
}

/// A version of a certificate. It is issued when it is requested, and shown from `ready` on.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateVersion {
    pub(super) version: String,
    pub(super) ready: Timestamp,
    /// The chain in PEM, the certificate itself first.
    pub(super) chain_pem: String,
    pub(super) key_pem: String,
    /// Whether the secret holds the key.
    pub(super) exportable: bool,
    /// The form of the secret.
    pub(super) content_type: String,
    pub(super) attributes: Attributes,
}

/// A version with its place in the order of versions.
pub(super) struct Numbered<T> {
    pub(super) number: i64,
    pub(super) version: T,
}

fn key(name: &str) -> String {
    name.to_lowercase()
}

/// An object by name, deleted or not.
pub(super) fn find(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    name: &str,
) -> Result<Option<VaultObject>, Failure> {
    let doc: Option<String> = cx
        .db
        .prepare_cached("select doc from vault_object where vault = ? and kind = ? and name = ?")?
        .query_row(params![vault.name, kind.path(), key(name)], |row| row.get(0))
        .optional()?;
    let Some(doc) = doc else { return Ok(None) };
    let object: VaultObject = serde_json::from_str(&doc)?;
    if object.deletion.as_ref().is_some_and(|it| it.purged <= cx.now) {
        purge(cx, vault, kind, name)?;
        return Ok(None);
    }
    Ok(Some(object))
}

/// An object that is not deleted.
pub(super) fn present(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    name: &str,
) -> Result<Option<VaultObject>, Failure> {
    Ok(find(cx, vault, kind, name)?.filter(|it| it.deletion.is_none()))
}

/// All objects of a kind by name, deleted or not.
pub(super) fn all(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    deleted: bool,
) -> Result<Vec<VaultObject>, Failure> {
    let mut statement = cx.db.prepare_cached(
        "select doc from vault_object where vault = ? and kind = ? and deleted = ? order by name",
    )?;
    let docs =
        statement.query_map(params![vault.name, kind.path(), deleted], |row| row.get::<_, String>(0))?;
    let mut objects = Vec::new();
    for doc in docs {
        let object: VaultObject = serde_json::from_str(&doc?)?;
        if object.deletion.as_ref().is_none_or(|it| cx.now < it.purged) {
            objects.push(object);
        }
    }
    Ok(objects)
}

pub(super) fn keep(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    object: &VaultObject,
) -> Result<(), Failure> {
    cx.db
        .prepare_cached(
            "insert or replace into vault_object (vault, kind, name, deleted, doc) values (?, ?, ?, ?, ?)",
        )?
        .execute(params![
            vault.name,
            kind.path(),
            key(&object.name),
            object.deletion.is_some(),
            serde_json::to_string(object)?
        ])?;
    Ok(())
}

/// Removes an object with its versions.
pub(super) fn purge(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    name: &str,
) -> Result<(), Failure> {
    for table in ["vault_object", "vault_version"] {
        cx.db
            .prepare_cached(&format!("delete from {table} where vault = ? and kind = ? and name = ?"))?
            .execute(params![vault.name, kind.path(), key(name)])?;
    }
    Ok(())
}

/// Removes everything in a vault that was purged.
pub(super) fn purge_vault(cx: &CallContext<'_>, vault: &str) -> Result<(), Failure> {
    for table in ["vault_object", "vault_version"] {
        cx.db
            .prepare_cached(&format!("delete from {table} where vault = ?"))?
            .execute([vault.to_lowercase()])?;
    }
    Ok(())
}

/// The versions of an object, oldest first.
pub(super) fn versions<T: DeserializeOwned>(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    name: &str,
) -> Result<Vec<Numbered<T>>, Failure> {
    let mut statement = cx.db.prepare_cached(
        "select number, doc from vault_version where vault = ? and kind = ? and name = ? order by number",
    )?;
    let rows = statement.query_map(params![vault.name, kind.path(), key(name)], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
    })?;
    rows.map(|row| {
        let (number, doc) = row?;
        Ok(Numbered { number, version: serde_json::from_str(&doc)? })
    })
    .collect()
}

/// Writes a version; a new one has a number above all others.
pub(super) fn keep_version<T: Serialize>(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    name: &str,
    number: i64,
    (version, content): (&str, &T),
) -> Result<(), Failure> {
    cx.db
        .prepare_cached(
            "insert or replace into vault_version (vault, kind, name, number, version, doc) values (?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            vault.name,
            kind.path(),
            key(name),
            number,
            version,
            serde_json::to_string(content)?
        ])?;
    Ok(())
}

/// Removes one version.
pub(super) fn remove_version(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    kind: ObjectKind,
    name: &str,
    version: &str,
) -> Result<(), Failure> {
    cx.db
        .prepare_cached(
            "delete from vault_version where vault = ? and kind = ? and name = ? and version = ?",
        )?
        .execute(params![vault.name, kind.path(), key(name), version])?;
    Ok(())
}

/// A number that no version in the database had before.
pub(super) fn next_number(cx: &CallContext<'_>) -> Result<i64, Failure> {
    const COUNTER: (&str, &str) = ("meta", "vault-versions");
    let number: i64 = crate::database::record(cx.db, COUNTER.0, COUNTER.1)?.unwrap_or(0) + 1;
    crate::database::write(cx.db, COUNTER.0, COUNTER.1, &number)?;
    Ok(number)
}

/// The deletion of an object now, recoverable for as long as the vault retains it.
pub(super) fn deletion(cx: &CallContext<'_>, vault: &VaultScope, words: &[&str]) -> Deletion {
    let retention = SignedDuration::from_hours(24 * vault.retention_days);
    let purged = cx.now.saturating_add(retention).unwrap_or(Timestamp::MAX);
    let completed = cx.done_at(DELETING, words).max(cx.later(cx.effects.unseen));
    Deletion { at: cx.now, completed, purged }
}
