//! Approves the certificate requests of Nodes that have a Machine (the duty of OpenShift's machine-approver).

use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::Machine;
use controller::{Action, Controller, Index, Informer, ObjectKey};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(crate) mod decide;
#[cfg(test)]
mod tests;

use crate::context::{Context, node};
use crate::error::{ReconcileError, unless_conflict};
pub use decide::UnexplainedRequests;
use decide::{Cluster, Decision};

const NAME: &str = "certificate-approver";
const MANAGER: &str = "shipshape-certificate-approver";

/// Value of the requests that are not decided.
const PENDING: &str = "pending";
/// Time until requests are looked at again while too many are pending.
const FLOODED_REQUEUE: Duration = Duration::from_secs(60);

/// The controller of certificate requests.
pub(crate) struct CertificateController {
    cx: Context,
    requests: Arc<Informer<CertificateSigningRequest>>,
    machines: Arc<Informer<Machine>>,
    nodes: Arc<Informer<Node>>,
    pending: Arc<Index<CertificateSigningRequest>>,
    unexplained: UnexplainedRequests,
}

impl CertificateController {
    pub(crate) fn new(cx: Context, unexplained: UnexplainedRequests) -> CertificateController {
        let caches = &cx.caches;
        let (requests, machines, nodes) = (caches.certificate_requests(), caches.machines(), caches.nodes());
        let pending = requests.index(|request| match decide::is_pending(request) {
            true => vec![PENDING.to_owned()],
            false => Vec::new(),
        });
        CertificateController { cx, requests, machines, nodes, pending: Arc::new(pending), unexplained }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        self.nodes.synced().await;
        let pending = self.pending.clone();
        let controller = Controller::new(NAME, self.requests.clone())
            .only(|change| change.new.as_ref().is_some_and(|request| decide::is_pending(request)))
            // A Machine gets its addresses and its Node after its kubelet has asked.
            .watches(self.machines.clone(), move |_| pending.keys(PENDING));
        let this = Arc::new(self);
        let reconcile = move |key: ObjectKey| {
            let this = this.clone();
            async move { unless_conflict(this.reconcile(&key).await) }
        };
        controller.run(reconcile, shutdown).await;
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(request) = self.requests.get(key) else { return Ok(Action::Done) };
        let now = self.cx.clock.now();
        let machines = self.machines.list();
        let cluster =
            Cluster { machines: &machines, has_node: &|name: &str| node(&self.nodes, name).is_some() };
        let (approve, message) = match decide::decide(&request, &cluster, now) {
            Decision::Ignore => return Ok(Action::Done),
            Decision::Wait(why) => {
                tracing::info!("Certificate request {key} waits: {why}");
                return Ok(Action::Done);
            }
            Decision::Reject(why) if self.unexplained == UnexplainedRequests::Deny => (false, why),
            Decision::Reject(why) => {
                tracing::warn!("Certificate request {key} is not approved: {why}");
                return Ok(Action::Done);
            }
            Decision::Approve(why) => (true, why),
        };
        let pending = self.pending.get(PENDING);
        let pending = pending.iter().filter(|it| decide::is_recently_pending(it, now)).count();
        if let Some(why) = decide::too_many_pending(pending, machines.len(), self.nodes.len()) {
            tracing::warn!("Certificate request {key} is not decided: {why}");
            return Ok(Action::After(FLOODED_REQUEUE));
        }
        self.write(&request, approve, &message).await?;
        tracing::info!(
            "Certificate request {key} {}: {message}",
            if approve { "approved" } else { "denied" }
        );
        Ok(Action::Done)
    }

    async fn write(
        &self,
        request: &CertificateSigningRequest,
        approve: bool,
        message: &str,
    ) -> Result<(), ReconcileError> {
        let now = Time(self.cx.clock.now());
        let (type_, reason) =
            if approve { ("Approved", "NodeCSRApprove") } else { ("Denied", "NodeCSRDeny") };
        let status = request.status.as_ref();
        let mut conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.push(CertificateSigningRequestCondition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(now.clone()),
            last_transition_time: Some(now),
        });
        // The version that was read: another may have decided meanwhile.
        let patch = json!({
            "metadata": {"resourceVersion": request.resource_version()},
            "status": {"conditions": conditions},
        });
        let name = request.name_any();
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let written = self.requests.api().patch_approval(&name, &params, &Patch::Merge(patch)).await;
        match written {
            Ok(written) => drop(self.requests.remember(written)),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                let target = format!("certificate request {name}");
                return Err(ReconcileError::request("decide on", target, error));
            }
        }
        Ok(())
    }
}
