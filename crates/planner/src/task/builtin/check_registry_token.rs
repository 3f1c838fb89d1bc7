//! `check-registry-token`: checks that a cluster can go on pulling images; changes nothing.

use api::duration::TimeSpan;
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, no_parameters};
use crate::task::Definition;

/// Names of the steps, in order.
pub const STEPS: [&str; 1] = ["token-is-valid"];

pub(super) fn task() -> Definition {
    let task = BuiltinTask {
        id: uuid!("082978ce-3700-4972-835f-53d48658d291"),
        version: 1,
        name: "check-registry-token",
        title: "Check the registry token",
        description: "Checks the token with which the cluster pulls images. Fails when its date of issue is unknown, when it \
            has expired (after 180 days), and when it should be rotated (after 140 days); changes nothing. Only for clusters \
            that Shipshape created.",
        disruptive: false,
        time_limit: TimeSpan::minutes(10),
        expected_duration: TimeSpan::seconds(5),
        parameters: no_parameters(),
    };
    from_code(task, CodedTask::CheckRegistryToken)
}
