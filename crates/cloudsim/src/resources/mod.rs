//! Resources: put, get, list, delete. The state at any time follows from when a change was accepted and how long it takes, so
//! nothing waits for anything and a service that was killed goes on where it was.

mod fill;
mod place;
mod references;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud::{Backend, Fault, Kind, Put, Resource, ResourceId, Shape, State};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use crate::database::micros;
use crate::failure::{Failure, conflict, in_use, invalid, not_found};
use crate::protocol::Refusal;
use crate::room::Room;
use crate::{people, sizes};

pub(crate) use fill::kept;
pub(crate) use references::of as references_of;

/// A resource as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stored {
    pub(crate) id: ResourceId,
    pub(crate) location: String,
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) shape: Shape,
    pub(crate) change: Change,
    /// When the change is done.
    pub(crate) settles: Timestamp,
    /// What the change ends in, if not well.
    #[serde(default)]
    pub(crate) fault: Option<Fault>,
    /// From when it is seen.
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
    pub(crate) fn state(&self, now: Timestamp) -> State {
        match (self.change, &self.fault) {
            (Change::Deleting, _) => State::Deleting,
            (Change::Creating, _) if now < self.settles => State::Creating,
            (Change::Updating, _) if now < self.settles => State::Updating,
            (_, Some(fault)) => State::Failed { fault: fault.clone() },
            (_, None) => State::Succeeded,
        }
    }

    fn is_seen(&self, now: Timestamp) -> bool {
        self.seen_from.is_none_or(|from| from <= now)
    }

    /// Whether it is a machine that answers.
    pub(crate) fn is_running(&self, now: Timestamp) -> bool {
        let usable = matches!(self.state(now), State::Succeeded | State::Updating);
        usable && matches!(self.shape, Shape::Machine { running: true, .. })
    }
}

/// Removes what is gone by now.
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
        sizes::column(stored.shape.kind()),
        gone,
        serde_json::to_string(stored)?
    ])?;
    db.prepare_cached("delete from reference where user = ?")?.execute([&key])?;
    for used in references_of(&stored.shape) {
        db.prepare_cached("insert or ignore into reference (user, used) values (?, ?)")?
            .execute([&key, &used.key()])?;
    }
    Ok(())
}

fn group_of(id: &ResourceId) -> ResourceId {
    ResourceId::group(id.subscription(), id.resource_group())
}

/// A resource as callers see it: a load balancer knows which of its machines answer now.
fn shown(room: &Room<'_>, stored: Stored) -> Result<Resource, Failure> {
    let state = stored.state(room.now);
    let mut shape = stored.shape;
    if let Shape::LoadBalancer { backends, .. } = &mut shape {
        let mut present = Vec::with_capacity(backends.len());
        for Backend { machine, .. } in backends.drain(..) {
            if let Some(found) = find(room.db, &machine.key())? {
                present.push(Backend { machine, healthy: found.is_running(room.now) });
            }
        }
        *backends = present;
    }
    Ok(Resource { id: stored.id, location: stored.location, tags: stored.tags, shape, state })
}

pub(crate) fn get(room: &Room<'_>, id: &ResourceId) -> Result<Option<Resource>, Failure> {
    match find(room.db, &id.key())? {
        Some(stored) if stored.is_seen(room.now) => shown(room, stored).map(Some),
        _ => Ok(None),
    }
}

pub(crate) fn list(room: &Room<'_>, group: &ResourceId) -> Result<Vec<Resource>, Failure> {
    let group = group_of(group).key();
    let held = of_group(room.db, &group)?;
    held.into_iter().filter(|it| it.is_seen(room.now)).map(|it| shown(room, it)).collect()
}

/// The groups of a subscription.
pub(crate) fn groups(room: &Room<'_>, subscription: &str) -> Result<Vec<Resource>, Failure> {
    let mut statement = room
        .db
        .prepare_cached("select doc from resource where subscription = ? and kind = 'group' order by key")?;
    let docs: Vec<String> =
        statement.query_map([subscription.to_lowercase()], |row| row.get(0))?.collect::<Result<_, _>>()?;
    docs.into_iter().map(|doc| shown(room, serde_json::from_str(&doc)?)).collect()
}

/// What a group holds, without itself.
fn of_group(db: &Connection, group: &str) -> Result<Vec<Stored>, Failure> {
    let mut statement =
        db.prepare_cached("select doc from resource where grp = ? and key <> ? order by key")?;
    let docs = statement.query_map([group, group], |row| row.get::<_, String>(0))?;
    docs.map(|doc| Ok(serde_json::from_str(&doc?)?)).collect()
}

/// Those who use any of these, and are none of them.
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

/// Makes a resource be as wanted.
pub(crate) fn put(room: &Room<'_>, put: &Put) -> Result<Resource, Failure> {
    let kind = put.shape.kind();
    place::check_id(&put.id, kind)?;
    let key = put.id.key();
    let found = find(room.db, &key)?;
    check_token(room, put, found.is_some())?;
    if kind != Kind::ResourceGroup {
        let group = group_of(&put.id);
        usable(room, &group)?.ok_or_else(|| not_found(&group))?;
    }
    if let Some(parent) = put.id.parent() {
        usable(room, &parent)?.ok_or_else(|| not_found(&parent))?;
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
    let mut shape = kept(found.as_ref().map(|it| &it.shape), put.shape.clone());
    if let Some(found) = &found
        && found.shape == shape
        && found.tags == put.tags
        && !matches!(found.state(room.now), State::Failed { .. })
    {
        remember_token(room, put)?;
        return shown(room, found.clone());
    }
    people::check_service(room, &put.id, kind, "write")?;
    people::check_lock(room, &put.id, "write")?;
    let before = found.as_ref().map(|it| &it.shape);
    place::check(room, &put.id, &put.location, before, &shape)?;
    sizes::check(room, put.id.subscription(), &put.location, before, &shape)?;
    fill::fill(room, &put.id, &mut shape)?;
    let creating = found
        .as_ref()
        .is_none_or(|it| it.change == Change::Creating && it.state(room.now) != State::Succeeded);
    let stored = Stored {
        id: found.as_ref().map_or_else(|| put.id.clone(), |it| it.id.clone()),
        location: put.location.clone(),
        tags: put.tags.clone(),
        shape,
        change: if creating { Change::Creating } else { Change::Updating },
        settles: room.done_at(usual_span(kind), &["put", &key]),
        fault: room.bent.fails_later.clone(),
        seen_from: match (&found, room.bent.unseen) {
            (Some(found), _) => found.seen_from,
            (None, Duration::ZERO) => None,
            (None, unseen) => Some(room.later(unseen)),
        },
    };
    keep(room.db, &stored)?;
    remember_token(room, put)?;
    shown(room, stored)
}

/// A resource that is not on its way out; refused while it is.
fn usable(room: &Room<'_>, id: &ResourceId) -> Result<Option<Stored>, Failure> {
    match find(room.db, &id.key())? {
        Some(found) if found.change == Change::Deleting => Err(in_use(id, "its own deletion")),
        found => Ok(found),
    }
}

/// A token stands for one wish. What it made is not made again once it is gone: whoever repeats it has missed the deletion.
fn check_token(room: &Room<'_>, put: &Put, is_there: bool) -> Result<(), Failure> {
    let Some(token) = put.token else { return Ok(()) };
    let before: Option<(String, String)> = room
        .db
        .prepare_cached("select key, doc from wish where token = ?")?
        .query_row([token.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((key, doc)) = before else { return Ok(()) };
    if key != put.id.key() || doc != wish(put)? {
        return Err(conflict(&put.id, format!("the token {token} stands for another wish")));
    }
    if !is_there {
        return Err(conflict(
            &put.id,
            format!("it was made with the token {token} and has been removed since"),
        ));
    }
    Ok(())
}

fn remember_token(room: &Room<'_>, put: &Put) -> Result<(), Failure> {
    if let Some(token) = put.token {
        room.db
            .prepare_cached("insert or ignore into wish (token, key, doc) values (?, ?, ?)")?
            .execute([token.to_string(), put.id.key(), wish(put)?])?;
    }
    Ok(())
}

fn wish(put: &Put) -> Result<String, Failure> {
    Ok(serde_json::to_string(&(&put.location.to_lowercase(), &put.tags, &put.shape))?)
}

/// Begins to remove a resource with all that is in it.
pub(crate) fn delete(room: &Room<'_>, id: &ResourceId) -> Result<(), Failure> {
    let key = id.key();
    let Some(found) = find(room.db, &key)? else { return Ok(()) };
    if found.change == Change::Deleting {
        return Ok(());
    }
    let kind = found.shape.kind();
    people::check_service(room, id, kind, "delete")?;
    people::check_lock(room, id, "delete")?;
    let group = group_of(id).key();
    let inside: Vec<Stored> = of_group(room.db, &group)?
        .into_iter()
        .filter(|it| kind == Kind::ResourceGroup || it.id.key().starts_with(&format!("{key}/")))
        .collect();
    let going: BTreeSet<String> = inside.iter().map(|it| it.id.key()).chain([key.clone()]).collect();
    if let Some((used, by)) = users_outside(room.db, &going)? {
        let spelled = |key: &str| -> Result<String, Failure> {
            Ok(find(room.db, key)?.map_or_else(|| key.to_owned(), |it| it.id.to_string()))
        };
        return Err(Refusal::InUse { what: spelled(&used)?, by: spelled(&by)? }.into());
    }
    for held in &inside {
        people::check_lock(room, &held.id, "delete")?;
    }
    // All goes together, when the slowest has gone.
    let slowest = inside.iter().map(|it| usual_span(it.shape.kind())).max().unwrap_or_default();
    let settles = room.done_at(slowest.max(usual_span(kind)), &["delete", &key]);
    for stored in inside.into_iter().chain([found]) {
        keep(room.db, &Stored { change: Change::Deleting, settles, fault: None, ..stored })?;
    }
    people::revoke_within(room, &key)
}

/// About how long a change takes at the pace of a real cloud.
fn usual_span(kind: Kind) -> Duration {
    Duration::from_secs(match kind {
        Kind::ResourceGroup | Kind::DnsZone | Kind::DnsRecord | Kind::Identity => 2,
        Kind::VirtualNetwork | Kind::Subnet | Kind::SecurityGroup | Kind::RouteTable | Kind::NatGateway => 5,
        Kind::PublicIp | Kind::Disk | Kind::DiskEncryptionSet => 8,
        Kind::LoadBalancer => 10,
        Kind::StorageAccount | Kind::PrivateEndpoint => 25,
        Kind::Machine => 60,
    })
}

/// The machines of a group by key: whether each runs.
pub(crate) fn machines_of(room: &Room<'_>, group: &ResourceId) -> Result<BTreeMap<String, bool>, Failure> {
    let held = of_group(room.db, &group_of(group).key())?;
    Ok(held
        .into_iter()
        .filter_map(|it| match (&it.shape, it.change) {
            (Shape::Machine { running, .. }, Change::Creating | Change::Updating) => {
                Some((it.id.key(), *running))
            }
            _ => None,
        })
        .collect())
}

/// Puts machines behind a load balancer, besides those that are there.
pub(crate) fn join(room: &Room<'_>, balancer: &ResourceId, machines: &[ResourceId]) -> Result<(), Failure> {
    let mut stored = usable(room, balancer)?.ok_or_else(|| not_found(balancer))?;
    let Shape::LoadBalancer { backends, .. } = &mut stored.shape else {
        return Err(invalid("InvalidResourceType", format!("{balancer} is no load balancer")));
    };
    for machine in machines {
        if !backends.iter().any(|it| it.machine == *machine) {
            backends.push(Backend { machine: machine.clone(), healthy: false });
        }
    }
    keep(room.db, &stored)
}
