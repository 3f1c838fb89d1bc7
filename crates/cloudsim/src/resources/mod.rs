//! Resources: put, get, list, delete. The state at any time follows from when a change was accepted and how long it takes, so
//! nothing waits, and a killed service continues where it was.

mod fill;
mod references;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud::{
    LoadBalancerBackend, Properties, Resource, ResourceFailure, ResourceId, ResourceKind, ResourceRequest,
    ResourceState,
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use crate::call_context::CallContext;
use crate::database::micros;
use crate::failure::{Failure, conflict, in_use, invalid, not_found};
use crate::protocol::CallError;
use crate::{identities, sizes};

pub(crate) use fill::kept;
pub(crate) use references::of as references_of;

/// A stored resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stored {
    pub(crate) id: ResourceId,
    pub(crate) location: String,
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, String>,
    #[serde(rename = "shape")]
    pub(crate) properties: Properties,
    pub(crate) change: Change,
    /// When the change completes.
    pub(crate) settles: Timestamp,
    /// The failure that the change ends in.
    #[serde(default)]
    pub(crate) fault: Option<ResourceFailure>,
    /// When get and list start to show it.
    #[serde(default)]
    pub(crate) seen_from: Option<Timestamp>,
}

/// The last change of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    Creating,
    Updating,
    Deleting,
}

impl Stored {
    pub(crate) fn state(&self, now: Timestamp) -> ResourceState {
        match (self.change, &self.fault) {
            (Change::Deleting, _) => ResourceState::Deleting,
            (Change::Creating, _) if now < self.settles => ResourceState::Creating,
            (Change::Updating, _) if now < self.settles => ResourceState::Updating,
            (_, Some(fault)) => ResourceState::Failed { failure: fault.clone() },
            (_, None) => ResourceState::Succeeded,
        }
    }

    fn is_seen(&self, now: Timestamp) -> bool {
        self.seen_from.is_none_or(|from| from <= now)
    }

    /// Whether it is a running machine.
    pub(crate) fn is_running(&self, now: Timestamp) -> bool {
        let usable = matches!(self.state(now), ResourceState::Succeeded | ResourceState::Updating);
        usable && matches!(self.properties, Properties::Machine { running: true, .. })
    }
}

/// Removes resources whose deletion has completed.
pub(crate) fn sweep(db: &Connection, now: Timestamp) -> Result<(), Failure> {
    let gone: i64 = db
        .prepare_cached("select exists (select 1 from resource where gone_at <= ?)")?
        .query_row([micros(now)], |row| row.get(0))?;
    if gone == 1 {
        db.prepare_cached(
            "delete from reference where user in (select key from resource where gone_at <= ?)",
        )?
        .execute([micros(now)])?;
        db.prepare_cached("delete from resource where gone_at <= ?")?.execute([micros(now)])?;
    }
    Ok(())
}

pub(crate) fn find(db: &Connection, key: &str) -> Result<Option<Stored>, Failure> {
    let doc: Option<String> = db
        .prepare_cached("select doc from resource where key = ?")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(doc.map(|doc| serde_json::from_str(&doc)).transpose()?)
}

fn keep(db: &Connection, stored: &Stored) -> Result<(), Failure> {
    let key = stored.id.key();
    let gone = (stored.change == Change::Deleting).then(|| micros(stored.settles));
    db.prepare_cached(
        "insert or replace into resource (key, grp, subscription, location, kind, gone_at, doc)
         values (?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        key,
        group_of(&stored.id).key(),
        stored.id.subscription().to_lowercase(),
        stored.location.to_lowercase(),
        sizes::column(stored.properties.kind()),
        gone,
        serde_json::to_string(stored)?
    ])?;
    db.prepare_cached("delete from reference where user = ?")?.execute([&key])?;
    for used in references_of(&stored.properties) {
        db.prepare_cached("insert or ignore into reference (user, used) values (?, ?)")?
            .execute([&key, &used.key()])?;
    }
    Ok(())
}

fn group_of(id: &ResourceId) -> ResourceId {
    ResourceId::group(id.subscription(), id.resource_group())
}

/// A resource as callers see it: a load balancer reports which of its machines are healthy.
fn shown(cx: &CallContext<'_>, stored: Stored) -> Result<Resource, Failure> {
    let state = stored.state(cx.now);
    let mut properties = stored.properties;
    if let Properties::LoadBalancer { backends, .. } = &mut properties {
        let mut present = Vec::with_capacity(backends.len());
        for LoadBalancerBackend { machine, .. } in backends.drain(..) {
            if let Some(found) = find(cx.db, &machine.key())? {
                present.push(LoadBalancerBackend { machine, healthy: found.is_running(cx.now) });
            }
        }
        *backends = present;
    }
    Ok(Resource { id: stored.id, location: stored.location, tags: stored.tags, properties, state })
}

pub(crate) fn get(cx: &CallContext<'_>, id: &ResourceId) -> Result<Option<Resource>, Failure> {
    match find(cx.db, &id.key())? {
        Some(stored) if stored.is_seen(cx.now) => shown(cx, stored).map(Some),
        _ => Ok(None),
    }
}

pub(crate) fn list(cx: &CallContext<'_>, group: &ResourceId) -> Result<Vec<Resource>, Failure> {
    let group = group_of(group).key();
    let held = of_group(cx.db, &group)?;
    held.into_iter().filter(|it| it.is_seen(cx.now)).map(|it| shown(cx, it)).collect()
}

/// The groups of a subscription.
pub(crate) fn groups(cx: &CallContext<'_>, subscription: &str) -> Result<Vec<Resource>, Failure> {
    let mut statement = cx
        .db
        .prepare_cached("select doc from resource where subscription = ? and kind = 'group' order by key")?;
    let docs: Vec<String> =
        statement.query_map([subscription.to_lowercase()], |row| row.get(0))?.collect::<Result<_, _>>()?;
    docs.into_iter().map(|doc| shown(cx, serde_json::from_str(&doc)?)).collect()
}

/// The resources of a group, without the group.
fn of_group(db: &Connection, group: &str) -> Result<Vec<Stored>, Failure> {
    let mut statement =
        db.prepare_cached("select doc from resource where grp = ? and key <> ? order by key")?;
    let docs = statement.query_map([group, group], |row| row.get::<_, String>(0))?;
    docs.map(|doc| Ok(serde_json::from_str(&doc?)?)).collect()
}

/// The first user of these resources that is not among them.
fn users_outside(db: &Connection, used: &BTreeSet<String>) -> Result<Option<(String, String)>, Failure> {
    for key in used {
        let mut statement = db.prepare_cached("select user from reference where used = ?")?;
        let users = statement.query_map([key], |row| row.get::<_, String>(0))?;
        for user in users {
            let user = user?;
            if !used.contains(&user) {
                return Ok(Some((key.clone(), user)));
            }
        }
    }
    Ok(None)
}

/// Creates or updates a resource.
pub(crate) fn put(cx: &CallContext<'_>, put: &ResourceRequest) -> Result<Resource, Failure> {
    let kind = put.properties.kind();
    validate::check_id(&put.id, kind)?;
    let key = put.id.key();
    let found = find(cx.db, &key)?;
    check_token(cx, put, found.is_some())?;
    if kind != ResourceKind::ResourceGroup {
        let group = group_of(&put.id);
        usable(cx, &group)?.ok_or_else(|| not_found(&group))?;
    }
    if let Some(parent) = put.id.parent() {
        usable(cx, &parent)?.ok_or_else(|| not_found(&parent))?;
    }
    if let Some(found) = &found {
        if found.change == Change::Deleting {
            return Err(in_use(&put.id, "its own deletion"));
        }
        if !found.location.eq_ignore_ascii_case(&put.location) {
            let why = format!("it is in {} and cannot be in {} too", found.location, put.location);
            return Err(conflict(&put.id, why));
        }
    }
    let mut properties = kept(found.as_ref().map(|it| &it.properties), put.properties.clone());
    if let Some(found) = &found
        && found.properties == properties
        && found.tags == put.tags
        && !matches!(found.state(cx.now), ResourceState::Failed { .. })
    {
        remember_token(cx, put)?;
        return shown(cx, found.clone());
    }
    identities::check_service(cx, &put.id, kind, "write")?;
    identities::check_lock(cx, &put.id, "write")?;
    let before = found.as_ref().map(|it| &it.properties);
    validate::check(cx, &put.id, &put.location, before, &properties)?;
    sizes::check(cx, put.id.subscription(), &put.location, before, &properties)?;
    fill::fill(cx, &put.id, &mut properties)?;
    let creating = found
        .as_ref()
        .is_none_or(|it| it.change == Change::Creating && it.state(cx.now) != ResourceState::Succeeded);
    let stored = Stored {
        id: found.as_ref().map_or_else(|| put.id.clone(), |it| it.id.clone()),
        location: put.location.clone(),
        tags: put.tags.clone(),
        properties,
        change: if creating { Change::Creating } else { Change::Updating },
        settles: cx.done_at(usual_span(kind), &["put", &key]),
        fault: cx.effects.fails_later.clone(),
        seen_from: match (&found, cx.effects.unseen) {
            (Some(found), _) => found.seen_from,
            (None, Duration::ZERO) => None,
            (None, unseen) => Some(cx.later(unseen)),
        },
    };
    keep(cx.db, &stored)?;
    remember_token(cx, put)?;
    shown(cx, stored)
}

/// A resource that is not being deleted; an error while it is.
fn usable(cx: &CallContext<'_>, id: &ResourceId) -> Result<Option<Stored>, Failure> {
    match find(cx.db, &id.key())? {
        Some(found) if found.change == Change::Deleting => Err(in_use(id, "its own deletion")),
        found => Ok(found),
    }
}

/// Checks the idempotency token: it stands for one request, and does not recreate a resource that was deleted since.
fn check_token(cx: &CallContext<'_>, put: &ResourceRequest, is_there: bool) -> Result<(), Failure> {
    let Some(token) = put.token else { return Ok(()) };
    let before: Option<(String, String)> = cx
        .db
        .prepare_cached("select key, doc from wish where token = ?")?
        .query_row([token.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((key, doc)) = before else { return Ok(()) };
    if key != put.id.key() || doc != request(put)? {
        return Err(conflict(&put.id, format!("the token {token} was used for another request")));
    }
    if !is_there {
        return Err(conflict(
            &put.id,
            format!("it was made with the token {token} and has been removed since"),
        ));
    }
    Ok(())
}

fn remember_token(cx: &CallContext<'_>, put: &ResourceRequest) -> Result<(), Failure> {
    if let Some(token) = put.token {
        cx.db.prepare_cached("insert or ignore into wish (token, key, doc) values (?, ?, ?)")?.execute([
            token.to_string(),
            put.id.key(),
            request(put)?,
        ])?;
    }
    Ok(())
}

fn request(put: &ResourceRequest) -> Result<String, Failure> {
    Ok(serde_json::to_string(&(&put.location.to_lowercase(), &put.tags, &put.properties))?)
}

/// Starts the deletion of a resource with its children.
pub(crate) fn delete(cx: &CallContext<'_>, id: &ResourceId) -> Result<(), Failure> {
    let key = id.key();
    let Some(found) = find(cx.db, &key)? else { return Ok(()) };
    if found.change == Change::Deleting {
        return Ok(());
    }
    let kind = found.properties.kind();
    identities::check_service(cx, id, kind, "delete")?;
    identities::check_lock(cx, id, "delete")?;
    let group = group_of(id).key();
    let inside: Vec<Stored> = of_group(cx.db, &group)?
        .into_iter()
        .filter(|it| kind == ResourceKind::ResourceGroup || it.id.key().starts_with(&format!("{key}/")))
        .collect();
    let going: BTreeSet<String> = inside.iter().map(|it| it.id.key()).chain([key.clone()]).collect();
    if let Some((used, by)) = users_outside(cx.db, &going)? {
        let spelled = |key: &str| -> Result<String, Failure> {
            Ok(find(cx.db, key)?.map_or_else(|| key.to_owned(), |it| it.id.to_string()))
        };
        return Err(CallError::InUse { what: spelled(&used)?, by: spelled(&by)? }.into());
    }
    for held in &inside {
        identities::check_lock(cx, &held.id, "delete")?;
    }
    // Everything is deleted together, when the slowest deletion completes.
    let slowest = inside.iter().map(|it| usual_span(it.properties.kind())).max().unwrap_or_default();
    let settles = cx.done_at(slowest.max(usual_span(kind)), &["delete", &key]);
    for stored in inside.into_iter().chain([found]) {
        keep(cx.db, &Stored { change: Change::Deleting, settles, fault: None, ..stored })?;
    }
    identities::revoke_within(cx, &key)
}

/// The usual duration of a change at the pace of a real cloud.
fn usual_span(kind: ResourceKind) -> Duration {
    Duration::from_secs(match kind {
        ResourceKind::ResourceGroup
        | ResourceKind::DnsZone
        | ResourceKind::DnsRecord
        | ResourceKind::PrivateDnsRecord
        | ResourceKind::Lock
        | ResourceKind::Identity => 2,
        ResourceKind::VirtualNetwork
        | ResourceKind::Subnet
        | ResourceKind::SecurityGroup
        | ResourceKind::RouteTable
        | ResourceKind::NetworkInterface
        | ResourceKind::NatGateway => 5,
        ResourceKind::PublicIp | ResourceKind::Disk | ResourceKind::DiskEncryptionSet => 8,
        ResourceKind::LoadBalancer
        | ResourceKind::PrivateLinkService
        | ResourceKind::PrivateDnsZone
        | ResourceKind::PrivateDnsLink => 10,
        ResourceKind::StorageAccount | ResourceKind::PrivateEndpoint => 25,
        ResourceKind::Machine => 60,
    })
}

/// The machines of a group by key, and whether each runs.
pub(crate) fn machines_of(
    cx: &CallContext<'_>,
    group: &ResourceId,
) -> Result<BTreeMap<String, bool>, Failure> {
    let held = of_group(cx.db, &group_of(group).key())?;
    Ok(held
        .into_iter()
        .filter_map(|it| match (&it.properties, it.change) {
            (Properties::Machine { running, .. }, Change::Creating | Change::Updating) => {
                Some((it.id.key(), *running))
            }
            _ => None,
        })
        .collect())
}

/// Adds machines to the backend pool of a load balancer.
pub(crate) fn join(
    cx: &CallContext<'_>,
    balancer: &ResourceId,
    machines: &[ResourceId],
) -> Result<(), Failure> {
    let mut stored = usable(cx, balancer)?.ok_or_else(|| not_found(balancer))?;
    let Properties::LoadBalancer { backends, .. } = &mut stored.properties else {
        return Err(invalid("InvalidResourceType", format!("{balancer} is no load balancer")));
    };
    for machine in machines {
        if !backends.iter().any(|it| it.machine == *machine) {
            backends.push(LoadBalancerBackend { machine: machine.clone(), healthy: false });
        }
    }
    keep(cx.db, &stored)
}
