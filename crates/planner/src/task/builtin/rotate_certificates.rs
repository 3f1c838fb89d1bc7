//! `rotate-certificates`: copies the newest certificates of a cluster's API server and ingress from the vault into it.

use api::duration::TimeSpan;
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, no_parameters};
use crate::task::Definition;

/// Names of the steps, in order.
pub const STEPS: [&str; 3] = ["rotate-managed-certificates", "configure-api-server", "configure-ingress"];

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("9b741734-6505-447f-8510-85eb0ae561a2"),
        version: 1,
        name: "rotate-certificates",
        title: "Rotate the TLS certificates of API server and ingress",
        description: "Copies the certificates of the API server and of the default ingress from the vault into the cluster, and \
            configures the APIServer and the default IngressController to use them. Does nothing where the domain is the \
            customer's own. Only for clusters that Shipshape created.",
        disruptive: false,
        time_limit: TimeSpan::minutes(60),
        expected_duration: TimeSpan::seconds(30),
        parameters: no_parameters(),
    };
    from_code(task, CodedTask::RotateCertificates)
}
