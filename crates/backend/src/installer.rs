//! Who installs a cluster. One of a closed set, chosen by version; for now there is the simulated one.

use api::doc::Verb;
use api::rest::Semver;
use cloud::install::{Handover, Installation, Machines, Order, Stage};
use cloud::{CloudError, install};
use steps::engine::StepError;
use steps::lifecycle::{Ours, fault, resource_id};
use uuid::Uuid;

use crate::plan::names;

/// So many machines are the control plane.
pub(crate) const MASTERS: u32 = 3;
/// The size of a control plane machine's disk.
const MASTER_DISK_GB: u32 = 1024;
/// A tag by which the simulated installer is told to fail, for trying out what follows: the stage at which it does.
pub const FAIL_AT_TAG: &str = "shipshape-fail-installation-at";

/// Who installs a cluster.
#[derive(Debug, Clone)]
pub enum Installer {
    /// Brings up a simulated cluster in the simulated cloud.
    Simulated(install::Installer),
}

impl Installer {
    /// Who installs that version: for now the same for every one. What is no version of OpenShift 4 nobody installs.
    pub fn for_version(&self, version: &str) -> Result<&Installer, StepError> {
        match version.parse::<Semver>() {
            Ok(parsed) if parsed.minor_name().starts_with("4.") => Ok(self),
            _ => Err(StepError::terminal("NoInstaller", format!("nobody installs version {version}"))),
        }
    }

    /// What is ordered for a cluster; the same for every repetition.
    pub fn prepare(&self, ours: &Ours) -> Result<Order, StepError> {
        let spec = ours.spec();
        let master_subnet = resource_id(&spec.master.subnet_id)?;
        let workers: Result<Vec<Machines>, StepError> = spec
            .workers
            .iter()
            .map(|pool| {
                Ok(Machines {
                    pool: pool.name.clone(),
                    count: pool.count,
                    size: pool.vm_size.clone(),
                    disk_size_gb: pool.disk_size_gb,
                    subnet: resource_id(&pool.subnet_id)?,
                })
            })
            .collect();
        let Installer::Simulated(_) = self;
        Ok(Order {
            cluster: ours.read.uuid,
            name: ours.document().name.clone(),
            infra_id: ours.infra_id()?.to_owned(),
            location: ours.document().location.clone(),
            version: spec.version.clone(),
            domain: ours.domain.clone(),
            group: ours.group()?,
            zones: ours.made().zones.clone(),
            masters: Machines {
                pool: "master".to_owned(),
                count: MASTERS,
                size: spec.master.vm_size.clone(),
                disk_size_gb: MASTER_DISK_GB,
                subnet: master_subnet,
            },
            workers: workers?,
            load_balancer: names::internal_load_balancer(ours)?,
            fail_at: fail_at(ours),
        })
    }

    /// Orders the installation. The same order again changes nothing.
    pub async fn start(&self, order: &Order) -> Result<(), StepError> {
        match self {
            Installer::Simulated(installer) => {
                installer.order(order).await.map(drop).map_err(StepError::from)
            }
        }
    }

    /// How far the installation is; none when there is none.
    pub async fn poll(&self, cluster: Uuid) -> Result<Option<Installation>, CloudError> {
        match self {
            Installer::Simulated(installer) => installer.look(cluster).await,
        }
    }

    /// What a failed installation means, if it has failed.
    pub fn collect_failure(&self, installation: &Installation) -> Option<StepError> {
        let why = installation.fault.as_ref()?;
        let stage = serde_json::to_value(installation.stage).unwrap_or_default();
        let error = fault::of(why, format!("the installation failed at stage {stage}"));
        // An installer is not asked twice: what it left half made cannot be installed over.
        let customer = error.customer().cloned();
        let terminal = StepError::terminal(error.code().to_owned(), error.whole());
        Some(customer.into_iter().fold(terminal, StepError::for_customer))
    }

    /// The keys of the cluster.
    pub async fn handover(&self, cluster: Uuid) -> Result<Handover, CloudError> {
        match self {
            Installer::Simulated(installer) => installer.handover(cluster).await,
        }
    }

    /// Ends the installation, or forgets the cluster that came of it.
    pub async fn cleanup(&self, cluster: Uuid) -> Result<(), CloudError> {
        match self {
            Installer::Simulated(installer) => installer.remove(cluster).await,
        }
    }
}

/// The stage at which the customer's tag wants the simulated installer to fail.
fn fail_at(ours: &Ours) -> Option<Stage> {
    let wanted = ours.provisioned.tags.get(FAIL_AT_TAG)?;
    serde_json::from_value(serde_json::Value::from(wanted.as_str())).ok()
}

/// The word for a verb, in logs and metrics.
pub(crate) fn verb_word(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "Create",
        Verb::Update => "Update",
        Verb::AdminUpdate => "AdminUpdate",
        Verb::Delete => "Delete",
    }
}
