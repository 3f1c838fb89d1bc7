//! Requests to the installer, and the meaning of its failures for an operation.

use api::doc::Verb;
use api::install::{InstallFailure, InstallRequest, Installation, MachinePool};
use api::rest::Semver;
use cloud::ResourceFailure;
use steps::engine::StepError;
use steps::lifecycle::{ClusterSnapshot, fault, resource_id};

use crate::plan::names;

/// Machines of the control plane.
pub(crate) const MASTERS: u32 = 3;
/// The size of a control plane machine's disk.
const MASTER_DISK_GB: u32 = 1024;

/// The installation request for a cluster; the same for every repetition. Only versions of OpenShift 4 can be installed.
pub(crate) fn request(snapshot: &ClusterSnapshot) -> Result<InstallRequest, StepError> {
    let spec = snapshot.spec();
    let version = &spec.version;
    if !version.parse::<Semver>().is_ok_and(|it| it.minor_name().starts_with("4.")) {
        return Err(StepError::terminal("NoInstaller", format!("no installer supports version {version}")));
    }
    let master_subnet = resource_id(&spec.master.subnet_id)?;
    let workers: Result<Vec<MachinePool>, StepError> = spec
        .workers
        .iter()
        .map(|pool| {
            Ok(MachinePool {
                name: pool.name.clone(),
                count: pool.count,
                size: pool.vm_size.clone(),
                disk_size_gb: pool.disk_size_gb,
                subnet: resource_id(&pool.subnet_id)?,
            })
        })
        .collect();
    Ok(InstallRequest {
        cluster: snapshot.read.uuid,
        name: snapshot.document().name.clone(),
        infra_id: snapshot.infra_id()?.to_owned(),
        location: snapshot.document().location.clone(),
        version: version.clone(),
        domain: snapshot.domain.clone(),
        group: snapshot.group()?,
        zones: snapshot.record().zones.clone(),
        masters: MachinePool {
            name: "master".to_owned(),
            count: MASTERS,
            size: spec.master.vm_size.clone(),
            disk_size_gb: MASTER_DISK_GB,
            subnet: master_subnet,
        },
        workers: workers?,
        load_balancer: names::internal_load_balancer(snapshot)?,
    })
}

/// The error of a failed installation, if it has failed. It is terminal: an installation that stopped half-way cannot be resumed.
pub(crate) fn failure(installation: &Installation) -> Option<StepError> {
    let InstallFailure { code, message } = installation.failure.clone()?;
    let stage = installation.stage.as_str();
    let error = fault::from_fault(
        &ResourceFailure { code, message },
        format!("the installation failed at stage \"{stage}\""),
    );
    let customer = error.customer_error().cloned();
    let terminal = StepError::terminal(error.code().to_owned(), error.full_message());
    Some(customer.into_iter().fold(terminal, StepError::with_customer_error))
}

/// The name of a verb in logs and metrics.
pub(crate) fn verb_name(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "Create",
        Verb::Update => "Update",
        Verb::AdminUpdate => "AdminUpdate",
        Verb::Delete => "Delete",
    }
}
