//! Carries out calls one after the other, each in a transaction of its own.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

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

use crate::call_context::{CallContext, FaultEffects};
use crate::endpoints::Endpoints;
use crate::entra::VerifiedTokens;
use crate::failure::Failure;
use crate::faults::CloudFault;
use crate::faults::Faults;
use crate::protocol::InstallCall;
use crate::providers::ResourceProviders;
use crate::service::{Payload, Runtimes};
use crate::settings::Setting;
use crate::{arm, entra, identities, install, listeners, metadata, sizes};

/// The state of the service, apart from its HTTP interface.
pub(crate) struct Simulator {
    /// Each call takes a fraction of a millisecond, so one lock suffices.
    db: Mutex<Connection>,
    pub(crate) clock: SharedClock,
    pub(crate) seed: u64,
    pub(crate) pace: f64,
    pub(crate) faults: Faults,
    /// Providers to which the resource manager forwards requests.
    pub(crate) providers: ResourceProviders,
    pub(crate) directory: Option<PathBuf>,
    /// The simulated clusters.
    pub(crate) clusters: SimulatedClusters,
    /// Installations whose runner must be started.
    pub(crate) runs: mpsc::UnboundedSender<Uuid>,
    /// Notified when the machines of a group change, by the group's key.
    notifiers: Mutex<HashMap<String, Arc<Notify>>>,
    /// Stops the runner of a cluster.
    pub(crate) stops: Mutex<HashMap<Uuid, CancellationToken>>,
    /// The lock of the directory; released last.
    _lock: Option<File>,
    /// The addresses of the listeners. Vaults are added as they are created.
    endpoints: RwLock<Arc<Endpoints>>,
    tokens: VerifiedTokens,
    /// Bound listeners of vaults that must be served, with the names of the vaults.
    vaults: mpsc::UnboundedSender<(String, std::net::TcpListener)>,
    /// What runs containers of the simulated clusters.
    pub(crate) runtimes: Option<Runtimes>,
    /// What the installer creates in new clusters.
    pub(crate) payload: Option<Payload>,
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulator").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// The parts of a simulator.
pub(crate) struct Parts {
    pub(crate) db: Connection,
    pub(crate) clock: SharedClock,
    pub(crate) seed: u64,
    pub(crate) pace: f64,
    pub(crate) faults: Faults,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) runs: mpsc::UnboundedSender<Uuid>,
    pub(crate) lock: Option<File>,
    pub(crate) endpoints: Endpoints,
    pub(crate) vaults: mpsc::UnboundedSender<(String, std::net::TcpListener)>,
    pub(crate) runtimes: Option<Runtimes>,
    pub(crate) payload: Option<Payload>,
}

impl Simulator {
    pub(crate) fn new(parts: Parts) -> Simulator {
        let Parts {
            db,
            clock,
            seed,
            pace,
            faults,
            directory,
            runs,
            lock,
            endpoints,
            vaults,
            runtimes,
            payload,
        } = parts;
        Simulator {
            db: Mutex::new(db),
            clock,
            seed,
            pace,
            faults,
            providers: ResourceProviders::default(),
            directory,
            clusters: SimulatedClusters::new(),
            runs,
            notifiers: Mutex::default(),
            stops: Mutex::default(),
            _lock: lock,
            endpoints: RwLock::new(Arc::new(endpoints)),
            tokens: VerifiedTokens::default(),
            vaults,
            runtimes,
            payload,
        }
    }

    /// The addresses of the emulated services.
    pub(crate) fn endpoints(&self) -> Arc<Endpoints> {
        self.endpoints.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Binds the listener of a vault unless it has one, and writes the addresses to `endpoints.json`.
    pub(crate) fn ensure_vault(&self, name: &str) -> Result<(), Failure> {
        let name = name.to_lowercase();
        if self.endpoints().vaults.contains_key(&name) {
            return Ok(());
        }
        let listener = {
            let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
            listeners::bind(&db, &format!("vault {name}"))?
        };
        let url = listeners::url(&listener, "https")?;
        let mut endpoints = self.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        if endpoints.vaults.contains_key(&name) {
            return Ok(());
        }
        Arc::make_mut(&mut endpoints).vaults.insert(name.clone(), url);
        let path = endpoints.file();
        let text = serde_json::to_string_pretty(endpoints.as_ref())?;
        serve::write_private_unsynced(&path, &text)
            .map_err(|error| Failure::Broken(format!("{}: {error}", path.display())))?;
        // The receiver stops before the simulator does; the next start binds the vaults in the database.
        let _ = self.vaults.send((name, listener));
        Ok(())
    }

    /// Runs `work` in one transaction, which is rolled back when it fails.
    pub(crate) fn within<T>(
        &self,
        effects: FaultEffects,
        work: impl FnOnce(&CallContext<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = Transaction::new(&mut db, TransactionBehavior::Deferred)?;
        let endpoints = self.endpoints();
        let cx = CallContext {
            db: &transaction,
            now: self.clock.now(),
            seed: self.seed,
            pace: self.pace,
            effects,
            endpoints: &endpoints,
            tokens: &self.tokens,
        };
        arm::sweep(&transaction, cx.now)?;
        let done = work(&cx)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Carries out a call of the installer.
    pub(crate) fn perform(&self, call: &InstallCall) -> Result<Value, Failure> {
        let effects =
            FaultEffects { install_fails_at: self.install_fails_at(call), ..FaultEffects::default() };
        let done = self.within(effects, |cx| match call {
            InstallCall::Install { request } => {
                to_json(install::install(cx, request, self.payload.is_some()))
            }
            InstallCall::Installation { cluster } => to_json(install::installation(cx, *cluster)),
            InstallCall::ClusterCredentials { cluster } => to_json(install::credentials(cx, *cluster)),
            InstallCall::RemoveInstallation { cluster } => to_json(install::remove(cx, *cluster)),
        })?;
        match call {
            InstallCall::Install { request } => self.start_runner(request.cluster),
            InstallCall::RemoveInstallation { cluster } => {
                let stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(end) = stops.get(cluster) {
                    end.cancel();
                }
            }
            InstallCall::Installation { .. } | InstallCall::ClusterCredentials { .. } => {}
        }
        Ok(done)
    }

    /// The stage at which a requested installation fails, by a rule of its own: other faults of the same call do not hide it.
    fn install_fails_at(&self, call: &InstallCall) -> Option<InstallStage> {
        let of_installations = |it: &CloudFault| matches!(it, CloudFault::InstallFails { .. });
        match self.faults.meet(call.verb(), &call.subject(), of_installations)? {
            CloudFault::InstallFails { stage } => Some(stage),
            _ => None,
        }
    }

    /// The effects of faults on a machine that the installer creates. It runs inside the cloud, so only faults of the cloud's own
    /// limits apply to it.
    pub(crate) fn effects_on_machine(&self, id: &ResourceId) -> Result<FaultEffects, Failure> {
        let inside =
            |it: &CloudFault| matches!(it, CloudFault::ProvisioningFails { .. } | CloudFault::Quota { .. });
        match self.faults.meet("put", id.as_str(), inside) {
            Some(CloudFault::ProvisioningFails { code, message }) => Ok(FaultEffects {
                fails_later: Some(cloud::ResourceFailure { code, message }),
                ..FaultEffects::default()
            }),
            Some(CloudFault::Quota { quota }) => Err(sizes::quota_exceeded(&quota, "", 0, 0, 1).into()),
            _ => Ok(FaultEffects::default()),
        }
    }

    fn start_runner(&self, cluster: Uuid) {
        // The receiver stops before the simulator does; the next start finds this installation in the database.
        let _ = self.runs.send(cluster);
    }

    /// The notifier of changes to the machines of a group.
    pub(crate) fn notifier(&self, group: &ResourceId) -> Arc<Notify> {
        let key = ResourceId::group(group.subscription(), group.resource_group()).key();
        let mut notifiers = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        notifiers.entry(key).or_default().clone()
    }

    pub(crate) fn remove_notifier(&self, group: &ResourceId) {
        let key = ResourceId::group(group.subscription(), group.resource_group()).key();
        self.notifiers.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    pub(crate) fn notify_group(&self, id: &ResourceId) {
        let key = ResourceId::group(id.subscription(), id.resource_group()).key();
        if let Some(notifier) = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            notifier.notify_one();
        }
    }

    /// Changes or queries settings.
    pub(crate) fn arrange(&self, setting: &Setting) -> Result<Value, Failure> {
        let done = self.within(FaultEffects::default(), |cx| arrange(cx, setting))?;
        if matches!(setting, Setting::ScheduledEvent(_) | Setting::Interrupt { .. } | Setting::Impair { .. })
        {
            self.notify_all();
        }
        Ok(done)
    }

    /// Notifies those who follow the machines of any group.
    pub(crate) fn notify_all(&self) {
        let notifiers = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        notifiers.values().for_each(|it| it.notify_one());
    }
}

fn to_json<T: Serialize>(done: Result<T, Failure>) -> Result<Value, Failure> {
    Ok(serde_json::to_value(done?)?)
}

fn arrange(cx: &CallContext<'_>, setting: &Setting) -> Result<Value, Failure> {
    match setting {
        Setting::CreatePrincipal { name, rights } => to_json(identities::create_principal(cx, name, *rights)),
        Setting::ChangeSecret { client_id } => to_json(identities::change_secret(cx, client_id)),
        Setting::Claims { client_id, claims, directory_roles } => {
            to_json(identities::set_claims(cx, client_id, claims.clone(), directory_roles.clone()))
        }
        Setting::DeletePrincipal { client_id } => to_json(identities::delete_principal(cx, client_id)),
        Setting::PrincipalCertificate { client_id, certificate } => {
            to_json(entra::register_certificate(cx, client_id, certificate))
        }
        Setting::SecretExpiry { client_id, expires } => {
            to_json(entra::set_secret_expiry(cx, client_id, *expires))
        }
        Setting::FederatedCredential { client_id, issuer, subject, audiences } => {
            to_json(entra::register_federation(cx, client_id, issuer, subject, audiences))
        }
        Setting::IssuerKeys { issuer, keys } => {
            to_json(entra::register_issuer_keys(cx, issuer, keys.as_ref()))
        }
        Setting::TokenLifetime { seconds } => to_json(entra::set_token_lifetime(cx, *seconds)),
        Setting::ScheduledEvent(event) => to_json(metadata::announce(cx, event)),
        Setting::Interrupt { machine, notice_seconds } => {
            to_json(metadata::interrupt(cx, machine, Duration::from_secs((*notice_seconds).into())))
        }
        Setting::Impair { machine, impaired } => {
            to_json(arm::kinds::machines::set_impaired(cx, machine, *impaired))
        }
        Setting::Principals {} => to_json(identities::principals(cx)),
        Setting::Installations {} => to_json(install::list(cx)),
        Setting::Quota { subscription, location, quota, limit } => {
            to_json(sizes::set_quota(cx, subscription, location, quota, *limit))
        }
        Setting::Restrict { subscription, location, size, reason } => {
            to_json(sizes::set_restriction(cx, subscription, location, size, reason.clone()))
        }
        Setting::Provider { subscription, namespace, registered } => {
            to_json(sizes::set_provider(cx, subscription, namespace, *registered))
        }
        Setting::Feature { subscription, feature, registered } => {
            to_json(sizes::set_feature(cx, subscription, feature, *registered))
        }
        Setting::Lock { id, locked } => to_json(identities::set_lock(cx, id, *locked)),
        Setting::Deny(denial) => to_json(identities::deny(cx, denial)),
        Setting::Policy(policy) => to_json(arm::set_policy(cx, policy)),
        Setting::PageSize { items } => to_json(arm::set_page_size(cx, *items)),
        Setting::Allow { scope } => to_json(identities::allow(cx, scope)),
    }
}
