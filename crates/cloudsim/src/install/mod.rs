//! Installations: what was ordered, how far it is, and whoever looks after the clusters that come of it.
//!
//! Every order is a record in the database; [`attend`] carries it through its stages and then keeps the cluster company until it
//! is removed. A stage may be begun again at any moment, so a killed service simply goes on.

mod attend;
mod keeper;
mod machines;
mod objects;
mod operators;
mod update;

use std::time::Duration;

use cloud::install::{Installation, Order, Stage};
use cloud::sim::KnownInstallation;
use cloud::wire::Handover;
use cloud::{Fault, Kind, ResourceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::failure::{Failure, conflict, in_use, invalid, not_found};
use crate::resources::find;
use crate::room::Room;
use crate::{database, seed};

pub(crate) use attend::attend;

const INSTALLATION: &str = "installation";

/// An installation as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kept {
    pub(crate) order: Order,
    /// The stage that is under way.
    pub(crate) stage: Stage,
    /// Since when.
    pub(crate) since: Timestamp,
    #[serde(default)]
    pub(crate) fault: Option<Fault>,
    #[serde(default)]
    pub(crate) access: Option<Access>,
    /// It is being removed.
    #[serde(default)]
    pub(crate) removing: bool,
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

impl Kept {
    /// When the stage that is under way may end.
    pub(crate) fn due(&self, room_seed: u64, pace: f64) -> Timestamp {
        let words = ["stage", &self.order.cluster.to_string(), &format!("{:?}", self.stage)];
        let span = seed::span(room_seed, pace, usual_span(self.stage), &words);
        self.since.saturating_add(span).unwrap_or(Timestamp::MAX)
    }

    fn shown(&self, room: &Room<'_>) -> Installation {
        let (from, to) = (percent(self.stage), self.stage.next().map_or(100, percent));
        let whole = self.due(room.seed, room.pace).duration_since(self.since).as_secs_f64();
        let past = room.now.duration_since(self.since).as_secs_f64();
        let share = if whole > 0.0 { (past / whole).clamp(0.0, 1.0) } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 100")]
        let done = (f64::from(to - from) * share) as u8;
        Installation {
            cluster: self.order.cluster,
            stage: self.stage,
            message: match &self.fault {
                Some(fault) => fault.message.clone(),
                None => words(self.stage).to_owned(),
            },
            percent: from + done,
            fault: self.fault.clone(),
            api_url: self.access.as_ref().map(|it| it.url.clone()),
        }
    }
}

/// The stage after another.
pub(crate) trait Following: Sized {
    fn next(self) -> Option<Self>;
}

impl Following for Stage {
    fn next(self) -> Option<Stage> {
        match self {
            Stage::Ordered => Some(Stage::Bootstrap),
            Stage::Bootstrap => Some(Stage::ControlPlane),
            Stage::ControlPlane => Some(Stage::ApiServer),
            Stage::ApiServer => Some(Stage::Workers),
            Stage::Workers => Some(Stage::Operators),
            Stage::Operators => Some(Stage::Complete),
            Stage::Complete => None,
        }
    }
}

/// About how long a stage takes at the pace of a real cloud, besides the machines that are made in it.
fn usual_span(stage: Stage) -> Duration {
    Duration::from_secs(match stage {
        Stage::Ordered => 30,
        Stage::Bootstrap => 120,
        Stage::ControlPlane => 180,
        Stage::ApiServer => 420,
        Stage::Workers => 180,
        Stage::Operators => 720,
        Stage::Complete => 0,
    })
}

fn percent(stage: Stage) -> u8 {
    match stage {
        Stage::Ordered => 0,
        Stage::Bootstrap => 5,
        Stage::ControlPlane => 15,
        Stage::ApiServer => 30,
        Stage::Workers => 50,
        Stage::Operators => 65,
        Stage::Complete => 100,
    }
}

fn words(stage: Stage) -> &'static str {
    match stage {
        Stage::Ordered => "the installation is prepared",
        Stage::Bootstrap => "the bootstrap machine is made",
        Stage::ControlPlane => "the machines of the control plane are made",
        Stage::ApiServer => "the API server comes up",
        Stage::Workers => "the workers are made and join",
        Stage::Operators => "the cluster's operators come up",
        Stage::Complete => "the cluster is installed",
    }
}

/// What an installation ends in that was told to fail at a stage: what the real installer would run into there.
pub(crate) fn fault_at(stage: Stage, order: &Order) -> Fault {
    let size = &order.masters.size;
    let (code, message) = match stage {
        Stage::Ordered => (
            "InvalidTemplateDeployment",
            "The template deployment failed with error: 'The template deployment is not valid according to the \
             validation procedure.'"
                .to_owned(),
        ),
        Stage::Bootstrap => (
            "OSProvisioningTimedOut",
            format!("OS Provisioning for VM '{}-bootstrap' did not finish in the allotted time.", order.infra_id),
        ),
        Stage::ControlPlane => (
            "ZonalAllocationFailed",
            format!(
                "Allocation failed. We do not have sufficient capacity for the requested VM size {size} in this zone."
            ),
        ),
        Stage::ApiServer => (
            "KeyBasedAuthenticationNotPermitted",
            "Key based authentication is not permitted on this storage account.".to_owned(),
        ),
        Stage::Workers => (
            "QuotaExceeded",
            "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."
                .to_owned(),
        ),
        Stage::Operators => (
            "InstallTimedOut",
            "The cluster operators authentication and console did not become available in the allotted time."
                .to_owned(),
        ),
        Stage::Complete => (
            "RequestDisallowedByPolicy",
            "Resource was disallowed by policy 'simulated' while the installation was finished.".to_owned(),
        ),
    };
    Fault { code: code.to_owned(), message }
}

/// The name of its cluster among the simulated ones.
pub(crate) fn sim_name(order: &Order) -> String {
    order.infra_id.clone()
}

pub(crate) fn kept(room: &Room<'_>, cluster: Uuid) -> Result<Option<Kept>, Failure> {
    database::record(room.db, INSTALLATION, &cluster.to_string())
}

pub(crate) fn keep(room: &Room<'_>, kept: &Kept) -> Result<(), Failure> {
    database::keep(room.db, INSTALLATION, &kept.order.cluster.to_string(), kept)
}

pub(crate) fn forget(room: &Room<'_>, cluster: Uuid) -> Result<(), Failure> {
    database::forget(room.db, INSTALLATION, &cluster.to_string()).map(drop)
}

/// Every installation, whatever became of it.
pub(crate) fn all(room: &Room<'_>) -> Result<Vec<Uuid>, Failure> {
    let kept: Vec<Kept> = database::records(room.db, INSTALLATION)?;
    Ok(kept.into_iter().map(|it| it.order.cluster).collect())
}

pub(crate) fn list(room: &Room<'_>) -> Result<Vec<KnownInstallation>, Failure> {
    let kept: Vec<Kept> = database::records(room.db, INSTALLATION)?;
    let known = |it: Kept| KnownInstallation {
        cluster: it.order.cluster,
        sim: sim_name(&it.order),
        name: it.order.name,
    };
    Ok(kept.into_iter().filter(|it| !it.removing).map(known).collect())
}

pub(crate) fn order(room: &Room<'_>, order: &Order) -> Result<Installation, Failure> {
    if let Some(found) = kept(room, order.cluster)? {
        let what = format!("the installation of {}", order.cluster);
        if found.removing {
            return Err(conflict(what, "it is being removed"));
        }
        if found.order != *order {
            return Err(conflict(what, "it was ordered otherwise; remove it first"));
        }
        return Ok(found.shown(room));
    }
    check(room, order)?;
    let kept = Kept {
        order: order.clone(),
        stage: Stage::Ordered,
        since: room.now,
        fault: None,
        access: None,
        removing: false,
    };
    keep(room, &kept)?;
    Ok(kept.shown(room))
}

/// Whether what the order needs is there.
fn check(room: &Room<'_>, order: &Order) -> Result<(), Failure> {
    let named = |name: &str| {
        let first = name.bytes().next().is_some_and(|it| it.is_ascii_lowercase());
        first
            && name.len() <= 27
            && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
    };
    if !named(&order.infra_id) {
        let why = format!(
            "'{}' is no prefix of names; expected at most 27 lower-case letters, digits and dashes, a letter first",
            order.infra_id
        );
        return Err(invalid("InvalidInfraId", why));
    }
    if order.masters.count == 0 {
        return Err(invalid("InvalidOrder", "a cluster needs machines in its control plane"));
    }
    let mut wanted: Vec<(&ResourceId, Kind)> =
        vec![(&order.group, Kind::ResourceGroup), (&order.load_balancer, Kind::LoadBalancer)];
    wanted.extend([&order.masters].into_iter().chain(&order.workers).map(|it| (&it.subnet, Kind::Subnet)));
    for (id, kind) in wanted {
        match find(room.db, &id.key())? {
            None => return Err(not_found(id)),
            Some(found) if found.shape.kind() != kind => {
                return Err(invalid("InvalidOrder", format!("{id} is not what it should be")));
            }
            Some(found) if found.change == crate::resources::Change::Deleting => {
                return Err(in_use(id, "its own deletion"));
            }
            Some(_) => {}
        }
    }
    let others: Vec<Kept> = database::records(room.db, INSTALLATION)?;
    match others.iter().find(|it| it.order.infra_id == order.infra_id) {
        Some(other) => Err(conflict(
            format!("the prefix {}", order.infra_id),
            format!("it belongs to the cluster {}", other.order.cluster),
        )),
        None => Ok(()),
    }
}

pub(crate) fn look(room: &Room<'_>, cluster: Uuid) -> Result<Option<Installation>, Failure> {
    Ok(kept(room, cluster)?.filter(|it| !it.removing).map(|it| it.shown(room)))
}

pub(crate) fn handover(room: &Room<'_>, cluster: Uuid) -> Result<Handover, Failure> {
    let kept = kept(room, cluster)?.filter(|it| !it.removing);
    let access = kept.and_then(|it| it.access);
    let access = access.ok_or_else(|| not_found(format!("the API server of {cluster}")))?;
    Ok(Handover {
        customer_kubeconfig: access.customer_kubeconfig.unwrap_or_else(|| access.kubeconfig.clone()),
        kubeconfig: access.kubeconfig,
        kubeadmin_password: access.kubeadmin_password,
    })
}

/// Marks it; whoever looks after it ends the cluster and forgets it.
pub(crate) fn remove(room: &Room<'_>, cluster: Uuid) -> Result<(), Failure> {
    match kept(room, cluster)? {
        Some(found) if !found.removing => keep(room, &Kept { removing: true, ..found }),
        _ => Ok(()),
    }
}
