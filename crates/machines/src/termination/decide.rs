//! What follows from a notice and the Node. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use api::crd::machine::whole_seconds;

use super::CloudProvider;

/// Type of the condition.
pub(crate) const TERMINATING: &str = "Terminating";

/// What the metadata say about the end of the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    None,
    Termination,
}

/// The condition that a Node with a notice gets; `None` if it has it. One that is True keeps the time since when it is, because health
/// checks count from it.
pub(crate) fn condition(node: &Node, now: Timestamp) -> Option<NodeCondition> {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_deref()).flatten();
    let is_set = conditions.into_iter().any(|it| it.type_ == TERMINATING && it.status == "True");
    let now = whole_seconds(now);
    (!is_set).then(|| NodeCondition {
        type_: TERMINATING.to_owned(),
        status: "True".to_owned(),
        reason: Some("TerminationRequested".to_owned()),
        message: Some("The cloud provider has marked this instance for termination".to_owned()),
        last_heartbeat_time: Some(Time(now.0)),
        last_transition_time: Some(now),
    })
}

/// The cloud of a Node by its providerID.
pub(crate) fn provider_of(provider_id: &str) -> Option<CloudProvider> {
    let (scheme, _) = provider_id.split_once("://")?;
    match scheme {
        "aws" => Some(CloudProvider::Aws),
        "azure" => Some(CloudProvider::Azure),
        "gce" => Some(CloudProvider::Gcp),
        _ => None,
    }
}
