//! Installations: orders, their progress, and the tasks that maintain the installed clusters.
//!
//! Every order is a record in the database; [`attend`] carries it through its stages and then keeps the cluster company until it
//! is removed. A stage may be begun again at any moment, so a killed service simply goes on.

mod arm_machines;
mod boot;
mod machines;
mod objects;
mod operators;
mod payload;
mod runner;
mod update;
mod upkeep;

use std::time::Duration;

use api::install::{InstallFailure, InstallRequest, InstallStage, Installation};
use cloud::ResourceId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::arm::{Change, store};
use crate::call_context::CallContext;
use crate::failure::{Failure, conflict, in_use, invalid, not_found};
use crate::protocol::ClusterCredentials;
use crate::settings::InstallationInfo;
use crate::{database, seed};

pub(crate) use runner::run;

const INSTALLATION: &str = "installation";

/// An installation as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredInstallation {
    #[serde(rename = "order")]
    pub(crate) request: InstallRequest,
    /// The stage that is under way.
    pub(crate) stage: InstallStage,
    /// Since when.
    pub(crate) since: Timestamp,
    #[serde(default, rename = "fault")]
    pub(crate) failure: Option<InstallFailure>,
    /// The stage at which an injected fault makes it fail.
    #[serde(default)]
    pub(crate) fails_at: Option<InstallStage>,
    #[serde(default)]
    pub(crate) access: Option<Access>,
    /// It is being removed.
    #[serde(default)]
    pub(crate) removing: bool,
    /// Controllers in the cluster own its machines, by the payload.
    #[serde(default)]
    pub(crate) has_payload: bool,
}

/// How its cluster is reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Access {
    pub(crate) url: String,
    pub(crate) kubeconfig: String,
    /// What its customer comes in with; one of before that was the same.
    #[serde(default)]
    pub(crate) customer_kubeconfig: Option<String>,
    pub(crate) kubeadmin_password: String,
}

impl StoredInstallation {
    /// When the stage that is under way may end.
    pub(crate) fn due(&self, sim_seed: u64, pace: f64) -> Timestamp {
        let words = ["stage", &self.request.cluster.to_string(), &format!("{:?}", self.stage)];
        let span = seed::span(sim_seed, pace, usual_span(self.stage), &words);
        self.since.saturating_add(span).unwrap_or(Timestamp::MAX)
    }

    fn shown(&self, cx: &CallContext<'_>) -> Installation {
        let (from, to) = (percent(self.stage), self.stage.next().map_or(100, percent));
        let whole = self.due(cx.seed, cx.pace).duration_since(self.since).as_secs_f64();
        let past = cx.now.duration_since(self.since).as_secs_f64();
        let share = if whole > 0.0 { (past / whole).clamp(0.0, 1.0) } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 100")]
        let done = (f64::from(to - from) * share) as u8;
        Installation {
            cluster: self.request.cluster,
            stage: self.stage,
            message: match &self.failure {
                Some(failure) => failure.message.clone(),
                None => words(self.stage).to_owned(),
            },
            percent: from + done,
            failure: self.failure.clone(),
            api_url: self.access.as_ref().map(|it| it.url.clone()),
        }
    }
}

/// About how long a stage takes at the pace of a real cloud, besides the machines that are made in it.
fn usual_span(stage: InstallStage) -> Duration {
    Duration::from_secs(match stage {
        InstallStage::Accepted => 30,
        InstallStage::Bootstrap => 120,
        InstallStage::ControlPlane => 180,
        InstallStage::ApiServer => 420,
        InstallStage::Workers => 180,
        InstallStage::Operators => 720,
        InstallStage::Complete => 0,
    })
}

fn percent(stage: InstallStage) -> u8 {
    match stage {
        InstallStage::Accepted => 0,
        InstallStage::Bootstrap => 5,
        InstallStage::ControlPlane => 15,
        InstallStage::ApiServer => 30,
        InstallStage::Workers => 50,
        InstallStage::Operators => 65,
        InstallStage::Complete => 100,
    }
}

fn words(stage: InstallStage) -> &'static str {
    match stage {
        InstallStage::Accepted => "the installation is prepared",
        InstallStage::Bootstrap => "the bootstrap machine is made",
        InstallStage::ControlPlane => "the machines of the control plane are made",
        InstallStage::ApiServer => "the API server comes up",
        InstallStage::Workers => "the workers are made and join",
        InstallStage::Operators => "the cluster's operators come up",
        InstallStage::Complete => "the cluster is installed",
    }
}

/// The error of an installation that is configured to fail at a stage: one that the real installer may have there.
pub(crate) fn failure_at(stage: InstallStage, request: &InstallRequest) -> InstallFailure {
    let size = &request.masters.size;
    let (code, message) = match stage {
        InstallStage::Accepted => (
            "InvalidTemplateDeployment",
            "The template deployment failed with error: 'The template deployment is not valid according to the \
             validation procedure.'"
                .to_owned(),
        ),
        InstallStage::Bootstrap => (
            "OSProvisioningTimedOut",
            format!("OS Provisioning for VM '{}-bootstrap' did not finish in the allotted time.", request.infra_id),
        ),
        InstallStage::ControlPlane => (
            "ZonalAllocationFailed",
            format!(
                "Allocation failed. We do not have sufficient capacity for the requested VM size {size} in this zone."
            ),
        ),
        InstallStage::ApiServer => (
            "KeyBasedAuthenticationNotPermitted",
            "Key based authentication is not permitted on this storage account.".to_owned(),
        ),
        InstallStage::Workers => (
            "QuotaExceeded",
            "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."
                .to_owned(),
        ),
        InstallStage::Operators => (
            "InstallTimedOut",
            "The cluster operators authentication and console did not become available in the allotted time."
                .to_owned(),
        ),
        InstallStage::Complete => (
            "RequestDisallowedByPolicy",
            "Resource was disallowed by policy 'simulated' while the installation was finished.".to_owned(),
        ),
    };
    InstallFailure { code: code.to_owned(), message }
}

/// The name of its cluster among the simulated ones.
pub(crate) fn sim_name(request: &InstallRequest) -> String {
    request.infra_id.clone()
}

pub(crate) fn kept(cx: &CallContext<'_>, cluster: Uuid) -> Result<Option<StoredInstallation>, Failure> {
    database::record(cx.db, INSTALLATION, &cluster.to_string())
}

pub(crate) fn keep(cx: &CallContext<'_>, kept: &StoredInstallation) -> Result<(), Failure> {
    database::write(cx.db, INSTALLATION, &kept.request.cluster.to_string(), kept)
}

pub(crate) fn forget(cx: &CallContext<'_>, cluster: Uuid) -> Result<(), Failure> {
    database::delete(cx.db, INSTALLATION, &cluster.to_string()).map(drop)
}

/// Every installation, whatever became of it.
pub(crate) fn all(cx: &CallContext<'_>) -> Result<Vec<Uuid>, Failure> {
    let kept: Vec<StoredInstallation> = database::records(cx.db, INSTALLATION)?;
    Ok(kept.into_iter().map(|it| it.request.cluster).collect())
}

pub(crate) fn list(cx: &CallContext<'_>) -> Result<Vec<InstallationInfo>, Failure> {
    let kept: Vec<StoredInstallation> = database::records(cx.db, INSTALLATION)?;
    let known = |it: StoredInstallation| InstallationInfo {
        cluster: it.request.cluster,
        sim: sim_name(&it.request),
        name: it.request.name,
    };
    Ok(kept.into_iter().filter(|it| !it.removing).map(known).collect())
}

pub(crate) fn install(
    cx: &CallContext<'_>,
    request: &InstallRequest,
    has_payload: bool,
) -> Result<Installation, Failure> {
    if let Some(found) = kept(cx, request.cluster)? {
        let what = format!("the installation of {}", request.cluster);
        if found.removing {
            return Err(conflict(what, "it is being removed"));
        }
        if found.request != *request {
            return Err(conflict(what, "it was ordered otherwise; remove it first"));
        }
        return Ok(found.shown(cx));
    }
    check(cx, request)?;
    let kept = StoredInstallation {
        request: request.clone(),
        stage: InstallStage::Accepted,
        since: cx.now,
        failure: None,
        fails_at: cx.effects.install_fails_at,
        access: None,
        removing: false,
        has_payload,
    };
    keep(cx, &kept)?;
    Ok(kept.shown(cx))
}

/// Whether what the order needs is there.
fn check(cx: &CallContext<'_>, request: &InstallRequest) -> Result<(), Failure> {
    let named = |name: &str| {
        let first = name.bytes().next().is_some_and(|it| it.is_ascii_lowercase());
        first
            && name.len() <= 27
            && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
    };
    if !named(&request.infra_id) {
        let why = format!(
            "'{}' is no prefix of names; expected at most 27 lower-case letters, digits and dashes, a letter first",
            request.infra_id
        );
        return Err(invalid("InvalidInfraId", why));
    }
    if request.masters.count == 0 {
        return Err(invalid("InvalidOrder", "a cluster needs machines in its control plane"));
    }
    let mut wanted: Vec<(&ResourceId, &str)> = vec![
        (&request.group, store::GROUP_TYPE),
        (&request.load_balancer, "Microsoft.Network/loadBalancers"),
    ];
    let pools = [&request.masters].into_iter().chain(&request.workers);
    wanted.extend(pools.map(|it| (&it.subnet, "Microsoft.Network/virtualNetworks/subnets")));
    for (id, type_name) in wanted {
        match store::find(cx.db, &id.key())? {
            None => return Err(not_found(id)),
            Some(found) if !found.type_name.eq_ignore_ascii_case(type_name) => {
                let why = format!("{id} is of type {}; expected {type_name}", found.type_name);
                return Err(invalid("InvalidOrder", why));
            }
            Some(found) if found.change == Change::Deleting => {
                return Err(in_use(id, "its own deletion"));
            }
            Some(_) => {}
        }
    }
    let others: Vec<StoredInstallation> = database::records(cx.db, INSTALLATION)?;
    match others.iter().find(|it| it.request.infra_id == request.infra_id) {
        Some(other) => Err(conflict(
            format!("the prefix {}", request.infra_id),
            format!("it belongs to the cluster {}", other.request.cluster),
        )),
        None => Ok(()),
    }
}

pub(crate) fn installation(cx: &CallContext<'_>, cluster: Uuid) -> Result<Option<Installation>, Failure> {
    Ok(kept(cx, cluster)?.filter(|it| !it.removing).map(|it| it.shown(cx)))
}

pub(crate) fn credentials(cx: &CallContext<'_>, cluster: Uuid) -> Result<ClusterCredentials, Failure> {
    let kept = kept(cx, cluster)?.filter(|it| !it.removing);
    let access = kept.and_then(|it| it.access);
    let access = access.ok_or_else(|| not_found(format!("the API server of {cluster}")))?;
    Ok(ClusterCredentials {
        customer_kubeconfig: access.customer_kubeconfig.unwrap_or_else(|| access.kubeconfig.clone()),
        kubeconfig: access.kubeconfig,
        kubeadmin_password: access.kubeadmin_password,
    })
}

/// Marks it as removed; its maintenance task stops the cluster and deletes the record.
pub(crate) fn remove(cx: &CallContext<'_>, cluster: Uuid) -> Result<(), Failure> {
    match kept(cx, cluster)? {
        Some(found) if !found.removing => keep(cx, &StoredInstallation { removing: true, ..found }),
        _ => Ok(()),
    }
}
