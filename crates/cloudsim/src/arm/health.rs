//! Resource health: the availability of resources, which follows from their provisioning state and, for machines, from their power.

use cloud::ResourceId;
use serde_json::{Value, json};

use super::kinds::machines;
use super::message::{ArmRequest, ArmResponse};
use super::{ArmResource, lists, resource_requests, store};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// The availability of a resource, or of every resource of a group or a subscription.
pub(crate) fn statuses(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    name: Option<&str>,
) -> Result<ArmResponse, Failure> {
    let id = scope.parse::<ResourceId>().ok();
    let found = id.as_ref().map(|it| store::visible(cx, it)).transpose()?.flatten();
    let is_group = id.as_ref().is_some_and(|it| *it == store::group_of(it));
    match (&id, found) {
        (Some(id), Some(resource)) if !is_group => {
            let status = status(cx, &resource, id.as_str());
            Ok(if name.is_some() { ArmResponse::ok(status) } else { ArmResponse::list(vec![status]) })
        }
        (Some(id), _) => page(cx, request, store::in_group(cx.db, &store::group_of(id))?),
        (None, _) => {
            let subscription = scope.rsplit('/').next().unwrap_or_default();
            page(cx, request, store::in_subscription(cx.db, subscription)?)
        }
    }
}

fn page(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    mut resources: Vec<ArmResource>,
) -> Result<ArmResponse, Failure> {
    resources.retain(resource_requests::is_listed);
    lists::page(cx, request, &resources, |it| {
        let status = status(cx, it, it.id.as_str());
        Ok(status.as_object().cloned().unwrap_or_default())
    })
}

fn status(cx: &CallContext<'_>, resource: &ArmResource, scope: &str) -> Value {
    let is_machine = resource.type_name.eq_ignore_ascii_case(machines::MACHINE);
    let (state, reason, summary) = match resource.provisioning_state(cx.now) {
        "Failed" => ("Unavailable", "Unplanned", "The provisioning of this resource failed."),
        "Succeeded" if is_machine && machines::is_impaired(resource) => {
            ("Degraded", "Unplanned", "The system of this machine does not respond.")
        }
        "Succeeded" if is_machine && !machines::is_running(resource, cx.now) => (
            "Unavailable",
            "Customer Initiated",
            "This machine was stopped by an authorized user or process.",
        ),
        _ => ("Available", "", "There aren't any known problems affecting this resource."),
    };
    json!({
        "id": format!("{scope}/providers/Microsoft.ResourceHealth/availabilityStatuses/current"),
        "name": "current",
        "type": "Microsoft.ResourceHealth/AvailabilityStatuses",
        "location": resource.location(),
        "properties": {
            "availabilityState": state,
            "title": state,
            "summary": summary,
            "reasonType": reason,
            "occuredTime": resource.settles.min(cx.now).to_string(),
            "reportedTime": cx.now.to_string(),
        },
    })
}
