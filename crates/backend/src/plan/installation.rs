//! Steps around the installer: request the installation once, wait for it until its deadline, store its credentials, remove the
//! bootstrap machine. The deadline is independent of the worker that waits.

use std::sync::Arc;

use api::doc::secrets;
use api::install::InstallStage;
use api::secret::Secret;
use cloud::{Properties, Resource, ResourceId, ResourceKind, ResourceRequest, ResourceState};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::{DEPLOYMENT_FAILED, user_error};
use steps::lifecycle::resources::{ensure, remove};

use super::{done, step_names};
use crate::{Context, installer};

/// What the request of the installation leaves for the step that waits for it.
#[derive(Serialize, Deserialize)]
struct InstallationOrder {
    deadline: Timestamp,
}

/// Requests the installation and records its deadline, so that another worker does not restart the time limit.
pub(crate) async fn start(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    cx.installer.install(&installer::request(&snapshot)?).await?;
    let limit = SignedDuration::try_from(cx.timing.install_timeout).unwrap_or(SignedDuration::MAX);
    let deadline = cx.life.clock.now().saturating_add(limit).unwrap_or(Timestamp::MAX);
    let outcome = StepOutcome::with_message("the installation is requested");
    Ok(outcome.with_memory(&InstallationOrder { deadline }))
}

/// Waits until the installation is complete.
pub(crate) async fn complete(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let Some(installation) = cx.installer.installation(cx.life.cluster()).await? else {
        return Err(user_error(DEPLOYMENT_FAILED, "Deployment failed.", None));
    };
    if let Some(error) = installer::failure(&installation) {
        return Err(error);
    }
    if installation.stage == InstallStage::Complete {
        let url = installation.api_url.clone();
        cx.life.record(step.hold, |record| record.api_url = url.clone().or(record.api_url.take())).await?;
        return Ok(PollStatus::Done(StepOutcome::with_message("the installation is complete")));
    }
    let order = step.memory_of::<InstallationOrder>(&step_names::RUN_INSTALLER);
    if order.is_some_and(|it| it.deadline <= cx.life.clock.now()) {
        let message = "The cluster was not installed in time. Please retry, and if the issue persists, raise a support ticket.";
        return Err(user_error(DEPLOYMENT_FAILED, message, None));
    }
    Ok(PollStatus::Waiting(format!("{} ({} %)", installation.message, installation.percent)))
}

/// Stores the kubeconfigs and the password of the cluster as secrets of its document.
pub(crate) async fn kubeconfigs(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let credentials = cx.installer.credentials(cx.life.cluster()).await?;
    let bytes = |text: &Secret<String>| Secret::new(text.expose().as_bytes().to_vec());
    let kubeconfig = bytes(&credentials.kubeconfig);
    let customer_kubeconfig = bytes(&credentials.customer_kubeconfig);
    let password = bytes(&credentials.kubeadmin_password);
    let sealed = [
        (secrets::KUBECONFIG, &kubeconfig),
        (secrets::CUSTOMER_KUBECONFIG, &customer_kubeconfig),
        (secrets::KUBEADMIN_PASSWORD, &password),
    ];
    cx.life.records.update(step.hold, &sealed, |_| ()).await?;
    done()
}

/// Removes the bootstrap machine and its disk.
pub(crate) async fn remove_bootstrap(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let bootstrap = format!("{}-bootstrap", snapshot.infra_id()?);
    let is_bootstrap = |it: &Resource| {
        matches!(it.properties.kind(), ResourceKind::Machine | ResourceKind::Disk)
            && it.id.name().starts_with(&bootstrap)
    };
    let all = cx.life.cloud.infrastructure.list(&snapshot.group()?).await?;
    // Machines first: a disk is in use until its machine is deleted. The machine also by its name: the list may not contain it yet.
    let machine = snapshot.group()?.sibling("Microsoft.Compute", "virtualMachines", &bootstrap);
    let mut found: Vec<&Resource> = all.iter().filter(|it| is_bootstrap(it) && it.id != machine).collect();
    found.sort_by_key(|it| it.properties.kind() == ResourceKind::Disk);
    let found = found.into_iter().map(|it| it.id.clone());
    let ids: Vec<ResourceId> = std::iter::once(machine).chain(found).collect();
    remove(&*cx.life.cloud.infrastructure, &ids).await
}

/// Starts the stopped machines.
pub(crate) async fn start_machines(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let all = cx.life.cloud.infrastructure.list(&snapshot.group()?).await?;
    let mut wanted = Vec::new();
    for mut machine in all {
        let Properties::Machine { running, .. } = &mut machine.properties else { continue };
        if *running && machine.state == ResourceState::Succeeded {
            continue;
        }
        *running = true;
        let Resource { id, location, tags, properties, .. } = machine;
        wanted.push(ResourceRequest { id, location, tags, properties });
    }
    ensure(&*cx.life.cloud.infrastructure, &wanted).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stored_order_is_read() {
        let stored = json!({"deadline": "2026-03-01T00:00:00Z"});
        let order = InstallationOrder::deserialize(&stored).unwrap();
        assert_eq!(order.deadline, "2026-03-01T00:00:00Z".parse().unwrap());
        assert_eq!(json!(order), stored);
    }
}
