//! The resources of the resource manager in the database, and the references between them.

use std::collections::BTreeSet;

use cloud::ResourceId;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use super::kind::{ArmResource, Change, find_kind};
use crate::call_context::CallContext;
use crate::database::micros;
use crate::failure::Failure;

/// The type of resource groups.
pub(crate) const GROUP_TYPE: &str = "Microsoft.Resources/resourceGroups";

/// The group of a resource.
pub(crate) fn group_of(id: &ResourceId) -> ResourceId {
    ResourceId::group(id.subscription(), id.resource_group())
}

/// Removes resources whose deletion has completed, and expired operations.
pub(crate) fn sweep(db: &Connection, now: Timestamp) -> Result<(), Failure> {
    let now = micros(now);
    let gone: bool = db
        .prepare_cached("select exists (select 1 from arm_resource where gone_at <= ?)")?
        .query_row([now], |row| row.get(0))?;
    if gone {
        db.prepare_cached(
            "delete from arm_reference where user in (select key from arm_resource where gone_at <= ?)",
        )?
        .execute([now])?;
        db.prepare_cached("delete from arm_resource where gone_at <= ?")?.execute([now])?;
    }
    Ok(())
}

/// A resource by its key, visible or not.
pub(crate) fn find(db: &Connection, key: &str) -> Result<Option<ArmResource>, Failure> {
    let doc: Option<String> = db
        .prepare_cached("select doc from arm_resource where key = ?")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(doc.map(|doc| serde_json::from_str(&doc)).transpose()?)
}

/// A resource that callers see.
pub(crate) fn visible(cx: &CallContext<'_>, id: &ResourceId) -> Result<Option<ArmResource>, Failure> {
    Ok(find(cx.db, &id.key())?.filter(|it| it.is_visible(cx.now)))
}

/// Writes a resource with its references.
pub(crate) fn keep(db: &Connection, resource: &ArmResource) -> Result<(), Failure> {
    let key = resource.id.key();
    let gone = (resource.change == Change::Deleting).then(|| micros(resource.settles));
    db.prepare_cached(
        "insert or replace into arm_resource (key, grp, subscription, location, type, gone_at, doc)
         values (?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        key,
        group_of(&resource.id).key(),
        resource.id.subscription().to_lowercase(),
        resource.location(),
        resource.type_name.to_lowercase(),
        gone,
        serde_json::to_string(resource)?
    ])?;
    db.prepare_cached("delete from arm_reference where user = ?")?.execute([&key])?;
    if let Some(kind) = find_kind(&resource.type_name) {
        for used in kind.behaviour.references(&resource.id, &resource.body) {
            db.prepare_cached("insert or ignore into arm_reference (user, used) values (?, ?)")?
                .execute([&key, &used.key()])?;
        }
    }
    Ok(())
}

/// Removes a resource at once.
pub(crate) fn remove(db: &Connection, id: &ResourceId) -> Result<(), Failure> {
    let key = id.key();
    db.prepare_cached("delete from arm_reference where user = ?")?.execute([&key])?;
    db.prepare_cached("delete from arm_resource where key = ?")?.execute([&key])?;
    Ok(())
}

fn query(db: &Connection, sql: &str, values: impl Params) -> Result<Vec<ArmResource>, Failure> {
    let mut statement = db.prepare_cached(sql)?;
    let docs = statement.query_map(values, |row| row.get::<_, String>(0))?;
    docs.map(|doc| Ok(serde_json::from_str(&doc?)?)).collect()
}

/// The resources of a group and their children, by key, without the group.
pub(crate) fn in_group(db: &Connection, group: &ResourceId) -> Result<Vec<ArmResource>, Failure> {
    let key = group_of(group).key();
    query(db, "select doc from arm_resource where grp = ? and key <> ? order by key", [&key, &key])
}

/// What is below a resource, by key.
pub(crate) fn below(db: &Connection, id: &ResourceId) -> Result<Vec<ArmResource>, Failure> {
    // '0' follows '/'.
    let (from, to) = (format!("{}/", id.key()), format!("{}0", id.key()));
    query(db, "select doc from arm_resource where key > ? and key < ? order by key", [&from, &to])
}

/// The children of a type below a resource, by key.
pub(crate) fn children(
    db: &Connection,
    id: &ResourceId,
    type_name: &str,
) -> Result<Vec<ArmResource>, Failure> {
    Ok(below(db, id)?.into_iter().filter(|it| it.type_name.eq_ignore_ascii_case(type_name)).collect())
}

/// The resources of a type in a group, by key.
pub(crate) fn of_type_in_group(
    db: &Connection,
    group: &ResourceId,
    type_name: &str,
) -> Result<Vec<ArmResource>, Failure> {
    let sql = "select doc from arm_resource where grp = ? and type = ? order by key";
    query(db, sql, [group_of(group).key(), type_name.to_lowercase()])
}

/// The resources of a type, by key.
pub(crate) fn of_type_everywhere(db: &Connection, type_name: &str) -> Result<Vec<ArmResource>, Failure> {
    query(db, "select doc from arm_resource where type = ? order by key", [type_name.to_lowercase()])
}

/// The resources of a type in a subscription, by key.
pub(crate) fn of_type(
    db: &Connection,
    subscription: &str,
    type_name: &str,
) -> Result<Vec<ArmResource>, Failure> {
    let sql = "select doc from arm_resource where subscription = ? and type = ? order by key";
    query(db, sql, [subscription.to_lowercase(), type_name.to_lowercase()])
}

/// The resources of a type in all subscriptions, by key.
pub(crate) fn of_type_anywhere(db: &Connection, type_name: &str) -> Result<Vec<ArmResource>, Failure> {
    query(db, "select doc from arm_resource where type = ? order by key", [type_name.to_lowercase()])
}

/// The resource of a type whose name is unique in the whole cloud.
pub(crate) fn named(db: &Connection, type_name: &str, name: &str) -> Result<Option<ArmResource>, Failure> {
    let sql = "select doc from arm_resource where type = ? and substr(key, -?) = ?";
    let end = format!("/{}", name.to_lowercase());
    Ok(query(db, sql, params![type_name.to_lowercase(), end.len(), end])?.pop())
}

/// The resources of a subscription, by key, without groups.
pub(crate) fn in_subscription(db: &Connection, subscription: &str) -> Result<Vec<ArmResource>, Failure> {
    let sql = "select doc from arm_resource where subscription = ? and key <> grp order by key";
    query(db, sql, [subscription.to_lowercase()])
}

/// The resources that refer to this one, by key.
pub(crate) fn users_of(db: &Connection, id: &ResourceId) -> Result<Vec<ArmResource>, Failure> {
    let sql = "select doc from arm_resource where key in (select user from arm_reference where used = ?) order by key";
    query(db, sql, [id.key()])
}

/// The first reference to one of these resources from one that is not among them: the used one and its user.
pub(crate) fn user_outside(
    db: &Connection,
    going: &[ArmResource],
) -> Result<Option<(ArmResource, ResourceId)>, Failure> {
    let keys: BTreeSet<String> = going.iter().map(|it| it.id.key()).collect();
    for resource in going {
        let kind = find_kind(&resource.type_name);
        for user in users_of(db, &resource.id)? {
            let blocks = kind.is_none_or(|it| it.behaviour.blocks_deletion(resource, &user.id));
            if blocks && !keys.contains(&user.id.key()) {
                return Ok(Some((resource.clone(), user.id)));
            }
        }
    }
    Ok(None)
}
