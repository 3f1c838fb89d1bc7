//! Planned maintenance of machines as the resource manager shows it: pending updates and the instance view. It follows from the events
//! that the instance metadata service announces to the machine.

use cloud::ResourceId;
use serde_json::{Value, json};

use super::kinds::machines::MACHINE;
use super::{ArmResource, type_of};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::metadata;
use crate::settings::ScheduledEvent;

/// The impact of an event; `None` for events that are no maintenance.
fn impact(event: &ScheduledEvent) -> Option<&'static str> {
    match event.event_type.as_str() {
        "Freeze" => Some("Freeze"),
        "Reboot" => Some("Restart"),
        "Redeploy" => Some("Redeploy"),
        _ => None,
    }
}

fn is_started(event: &ScheduledEvent) -> bool {
    event.status.as_deref() == Some("Started")
}

/// The pending updates of a resource: those of a machine, none of any other.
pub(crate) fn updates(cx: &CallContext<'_>, scope: &str) -> Result<Vec<Value>, Failure> {
    let id = scope.parse::<ResourceId>().ok();
    let Some(id) = id.filter(|it| type_of(it).is_some_and(|it| it.eq_ignore_ascii_case(MACHINE))) else {
        return Ok(Vec::new());
    };
    let events = metadata::events_of(cx, id.name())?;
    Ok(events.iter().filter_map(|event| Some(update(&id, event, impact(event)?))).collect())
}

fn update(machine: &ResourceId, event: &ScheduledEvent, impact: &str) -> Value {
    json!({
        "maintenanceScope": "Host",
        "impactType": impact,
        "status": if is_started(event) { "InProgress" } else { "Pending" },
        "impactDurationInSec": event.duration_seconds.max(0),
        "notBefore": event.not_before.map(|it| it.to_string()),
        "properties": { "resourceId": machine },
    })
}

/// The event for which the owner of a machine may start the maintenance.
fn startable(cx: &CallContext<'_>, machine: &ArmResource) -> Result<Option<ScheduledEvent>, Failure> {
    let events = metadata::events_of(cx, machine.id.name())?;
    Ok(events.into_iter().find(|it| matches!(impact(it), Some("Restart" | "Redeploy")) && !is_started(it)))
}

/// The member `maintenanceRedeployStatus` of an instance view, while a maintenance is planned.
pub(crate) fn redeploy_status(cx: &CallContext<'_>, machine: &ArmResource) -> Result<Option<Value>, Failure> {
    let Some(event) = startable(cx, machine)? else { return Ok(None) };
    let begins = event.not_before.unwrap_or(cx.now);
    let ends = begins.saturating_add(jiff::SignedDuration::from_secs(event.duration_seconds.max(0)));
    Ok(Some(json!({
        "isCustomerInitiatedMaintenanceAllowed": true,
        "preMaintenanceWindowStartTime": cx.now.min(begins).to_string(),
        "preMaintenanceWindowEndTime": begins.to_string(),
        "maintenanceWindowStartTime": begins.to_string(),
        "maintenanceWindowEndTime": ends.unwrap_or(begins).to_string(),
        "lastOperationResultCode": "None",
    })))
}

/// Starts the planned maintenance of a machine on behalf of its owner, and returns whether one was planned.
pub(crate) fn perform(cx: &CallContext<'_>, machine: &ArmResource) -> Result<bool, Failure> {
    let Some(event) = startable(cx, machine)? else { return Ok(false) };
    metadata::announce(cx, &ScheduledEvent { status: None, ..event })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_type: &str, status: &str) -> ScheduledEvent {
        ScheduledEvent {
            machine: "vm".to_owned(),
            id: "1".to_owned(),
            event_type: event_type.to_owned(),
            status: Some(status.to_owned()),
            not_before: None,
            description: String::new(),
            duration_seconds: -1,
        }
    }

    #[test]
    fn maintenance_is_what_freezes_restarts_or_moves_a_machine() {
        for (event_type, expected) in [
            ("Freeze", Some("Freeze")),
            ("Reboot", Some("Restart")),
            ("Redeploy", Some("Redeploy")),
            ("Preempt", None),
            ("Terminate", None),
        ] {
            assert_eq!(impact(&event(event_type, "Scheduled")), expected, "{event_type}");
        }
    }

    #[test]
    fn an_update_is_pending_until_its_event_starts() {
        let machine = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm";
        let machine: ResourceId = machine.parse().unwrap();
        let shown = |status: &str| update(&machine, &event("Redeploy", status), "Redeploy");
        assert_eq!(shown("Scheduled")["status"], "Pending");
        assert_eq!(shown("Started")["status"], "InProgress");
        assert_eq!(shown("Started")["impactDurationInSec"], 0);
    }
}
