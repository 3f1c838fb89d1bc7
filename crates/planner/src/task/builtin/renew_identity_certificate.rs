//! `renew-identity-certificate`: renews the certificate of a cluster's managed identity before it expires.

use api::duration::TimeSpan;
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, no_parameters};
use crate::task::Definition;

/// Names of the steps, in order.
pub const STEPS: [&str; 1] = ["ensure-identity-certificate"];

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("7c3f8e2d-9a4b-4f1e-8c5d-2b6a9e7f3d1c"),
        version: 1,
        name: "renew-identity-certificate",
        title: "Renew the certificate of the cluster's identity",
        description: "Ensures that the vault holds a certificate of the cluster's managed identity: creates a missing one, and \
            replaces one that belongs to another identity or is 46 or more days old. Does nothing on clusters that use a \
            service principal. Only for clusters that Shipshape created.",
        disruptive: false,
        time_limit: TimeSpan::minutes(10),
        expected_duration: TimeSpan::seconds(30),
        parameters: no_parameters(),
    };
    from_code(task, CodedTask::RenewIdentityCertificate)
}
