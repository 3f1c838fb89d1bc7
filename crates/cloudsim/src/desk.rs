//! Where calls are carried out, one after the other, each in a transaction of its own.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use api::clock::SharedClock;
use api::install::InstallStage;
use cloud::ResourceId;
use kubesim::SimulatedClusters;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::failure::Failure;
use crate::faults::Faults;
use crate::faults::Trouble;
use crate::protocol::{Call, Refusal};
use crate::room::{Bent, Room};
use crate::settings::Setting;
use crate::{install, people, registry, resources, sizes, vault};

/// All that the service is, apart from its door.
pub(crate) struct Desk {
    /// Each call takes a fraction of a millisecond, so callers simply take turns.
    db: Mutex<Connection>,
    pub(crate) clock: SharedClock,
    pub(crate) seed: u64,
    pub(crate) pace: f64,
    pub(crate) faults: Faults,
    pub(crate) directory: Option<PathBuf>,
    /// The simulated clusters.
    pub(crate) sim: SimulatedClusters,
    /// Clusters that somebody must begin to look after.
    pub(crate) attend: mpsc::UnboundedSender<Uuid>,
    /// Rung when the machines of a group change, by the group's key.
    bells: Mutex<HashMap<String, Arc<Notify>>>,
    /// Ends the looking-after of a cluster.
    pub(crate) ends: Mutex<HashMap<Uuid, CancellationToken>>,
    /// Held for as long as this process uses the directory; the last to go.
    _lock: Option<File>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// What a desk is made of.
pub(crate) struct Parts {
    pub(crate) db: Connection,
    pub(crate) clock: SharedClock,
    pub(crate) seed: u64,
    pub(crate) pace: f64,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) attend: mpsc::UnboundedSender<Uuid>,
    pub(crate) lock: Option<File>,
}

impl Desk {
    pub(crate) fn new(parts: Parts) -> Desk {
        let Parts { db, clock, seed, pace, directory, attend, lock } = parts;
        Desk {
            db: Mutex::new(db),
            clock,
            seed,
            pace,
            faults: Faults::new(seed),
            directory,
            sim: SimulatedClusters::new(),
            attend,
            bells: Mutex::default(),
            ends: Mutex::default(),
            _lock: lock,
        }
    }

    /// Does something in one transaction: all of it, or nothing when it fails.
    pub(crate) fn within<T>(
        &self,
        bent: Bent,
        work: impl FnOnce(&Room<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = Transaction::new(&mut db, TransactionBehavior::Deferred)?;
        let room = Room { db: &transaction, now: self.clock.now(), seed: self.seed, pace: self.pace, bent };
        resources::sweep(&transaction, room.now)?;
        let done = work(&room)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Carries out a call.
    pub(crate) fn perform(&self, call: &Call, bent: Bent) -> Result<Value, Failure> {
        let done = self.within(bent, |room| answer(room, call))?;
        match call {
            Call::Put { put } => self.ring(&put.id),
            Call::Delete { id } => self.ring(id),
            Call::Install { request } => self.begin_to_attend(request.cluster),
            Call::RemoveInstallation { cluster } => {
                let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(end) = ends.get(cluster) {
                    end.cancel();
                }
            }
            _ => {}
        }
        Ok(done)
    }

    /// The stage at which a requested installation fails, by a rule of its own: other faults of the same call do not hide it.
    pub(crate) fn install_fails_at(&self, call: &Call) -> Option<InstallStage> {
        let of_installations = |it: &Trouble| matches!(it, Trouble::InstallFails { .. });
        match self.faults.meet(call.verb(), &call.subject(), of_installations)? {
            Trouble::InstallFails { stage } => Some(stage),
            _ => None,
        }
    }

    /// Carries out a call of the installer, who is inside the cloud: connections do not trouble it, but the cloud's own limits do.
    pub(crate) fn perform_inside(&self, call: &Call) -> Result<Value, Failure> {
        let inside = |it: &Trouble| matches!(it, Trouble::FailsLater { .. } | Trouble::Quota { .. });
        let met = self.faults.meet(call.verb(), &call.subject(), inside);
        let bent = match met {
            Some(trouble) => bent_by(&trouble, call)?,
            None => Bent::default(),
        };
        self.perform(call, bent)
    }

    fn begin_to_attend(&self, cluster: Uuid) {
        // Whoever looks after clusters ends before the desk does; at the next start it finds this one by itself.
        let _ = self.attend.send(cluster);
    }

    /// What is rung when the machines of a group change.
    pub(crate) fn bell(&self, group: &ResourceId) -> Arc<Notify> {
        let key = ResourceId::group(group.subscription(), group.resource_group()).key();
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.entry(key).or_default().clone()
    }

    pub(crate) fn forget_bell(&self, group: &ResourceId) {
        let key = ResourceId::group(group.subscription(), group.resource_group()).key();
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    fn ring(&self, id: &ResourceId) {
        let key = ResourceId::group(id.subscription(), id.resource_group()).key();
        if let Some(bell) = self.bells.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            bell.notify_one();
        }
    }

    /// Arranges something.
    pub(crate) fn arrange(&self, setting: &Setting) -> Result<Value, Failure> {
        self.within(Bent::default(), |room| arrange(room, setting))
    }
}

/// How a trouble bends a call, or refuses it.
pub(crate) fn bent_by(trouble: &Trouble, call: &Call) -> Result<Bent, Failure> {
    let millis = std::time::Duration::from_millis;
    Ok(match trouble {
        Trouble::FailsLater { code, message } => Bent {
            fails_later: Some(cloud::Fault { code: code.clone(), message: message.clone() }),
            ..Bent::default()
        },
        Trouble::Unseen { millis: for_millis } => Bent { unseen: millis(*for_millis), ..Bent::default() },
        Trouble::SpreadsLate { millis: for_millis } => Bent { late: millis(*for_millis), ..Bent::default() },
        Trouble::Quota { quota } => {
            return Err(Refusal::Quota { quota: quota.clone(), limit: 0, used: 0, wanted: 1 }.into());
        }
        Trouble::Denied {} => {
            let (action, what) = (call.verb().to_owned(), call.subject());
            return Err(Refusal::Denied { who: "this service".to_owned(), action, what }.into());
        }
        Trouble::Throttled { .. }
        | Trouble::Unavailable { .. }
        | Trouble::Reset { .. }
        | Trouble::Hangs { .. }
        | Trouble::InstallFails { .. } => Bent::default(),
    })
}

fn told<T: Serialize>(done: Result<T, Failure>) -> Result<Value, Failure> {
    Ok(serde_json::to_value(done?)?)
}

fn answer(room: &Room<'_>, call: &Call) -> Result<Value, Failure> {
    match call {
        Call::Put { put } => told(resources::put(room, put)),
        Call::Get { id } => told(resources::get(room, id)),
        Call::List { group } => told(resources::list(room, group)),
        Call::Delete { id } => told(resources::delete(room, id)),
        Call::Sizes { subscription, location } => told(sizes::sizes(room, subscription, location)),
        Call::Usages { subscription, location } => told(sizes::usages(room, subscription, location)),
        Call::Providers { subscription } => told(sizes::providers(room, subscription)),
        Call::Feature { subscription, feature } => told(sizes::feature(room, subscription, feature)),
        Call::Principal { credential } => told(people::principal(room, credential)),
        Call::Permissions { credential, id, actions } => {
            told(people::permissions(room, credential, id, actions))
        }
        Call::AssignRole { assignment } => told(people::assign_role(room, assignment)),
        Call::RoleAssignments { scope } => told(people::role_assignments(room, scope)),
        Call::RevokeRole { scope, name } => told(people::revoke_role(room, scope, name)),
        Call::EnsureCertificate { wish } => told(vault::ensure_certificate(room, wish)),
        Call::RenewCertificate { name, newer_than } => {
            told(vault::renew_certificate(room, name, newer_than.as_deref()))
        }
        Call::Certificate { name } => told(vault::certificate(room, name)),
        Call::DeleteCertificate { name } => told(vault::delete_certificate(room, name)),
        Call::PutSecret { name, value, expires } => told(vault::put_secret(room, name, value, *expires)),
        Call::Secret { name } => told(vault::secret(room, name)),
        Call::DeleteSecret { name } => told(vault::delete_secret(room, name)),
        Call::IdentityCertificate { identity } => told(vault::identity_certificate(room, identity)),
        Call::EnsureToken { name } => told(registry::ensure_token(room, name)),
        Call::Token { name } => told(registry::token(room, name)),
        Call::IssuePassword { name } => told(registry::issue_password(room, name)),
        Call::DeleteToken { name } => told(registry::delete_token(room, name)),
        Call::Install { request } => told(install::install(room, request)),
        Call::Installation { cluster } => told(install::installation(room, *cluster)),
        Call::ClusterCredentials { cluster } => told(install::credentials(room, *cluster)),
        Call::RemoveInstallation { cluster } => told(install::remove(room, *cluster)),
    }
}

fn arrange(room: &Room<'_>, setting: &Setting) -> Result<Value, Failure> {
    match setting {
        Setting::CreatePrincipal { name, rights } => told(people::create_principal(room, name, *rights)),
        Setting::ChangeSecret { client_id } => told(people::change_secret(room, client_id)),
        Setting::Claims { client_id, claims, directory_roles } => {
            told(people::set_claims(room, client_id, claims.clone(), directory_roles.clone()))
        }
        Setting::DeletePrincipal { client_id } => told(people::delete_principal(room, client_id)),
        Setting::Principals {} => told(people::principals(room)),
        Setting::Groups { subscription } => told(resources::groups(room, subscription)),
        Setting::Installations {} => told(install::list(room)),
        Setting::Certificates {} => told(vault::certificates(room)),
        Setting::Tokens {} => told(registry::tokens(room)),
        Setting::Quota { subscription, location, quota, limit } => {
            told(sizes::set_quota(room, subscription, location, quota, *limit))
        }
        Setting::Restrict { subscription, location, size, reason } => {
            told(sizes::set_restriction(room, subscription, location, size, reason.clone()))
        }
        Setting::Provider { subscription, namespace, registered } => {
            told(sizes::set_provider(room, subscription, namespace, *registered))
        }
        Setting::Feature { subscription, feature, registered } => {
            told(sizes::set_feature(room, subscription, feature, *registered))
        }
        Setting::Lock { id, locked } => told(people::set_lock(room, id, *locked)),
        Setting::Deny(denial) => told(people::deny(room, denial)),
        Setting::Allow { scope } => told(people::allow(room, scope)),
    }
}
