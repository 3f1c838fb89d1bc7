//! Actions on machines and their instance views.

use std::time::Duration;

use serde_json::{Value, json};

use super::body::{same, text};
use super::machines::{POWER, power};
use crate::arm::{ActionOutcome, ArmError, ArmResource, Change, maintenance};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

/// An action that takes time: its name, the state on the way, the state after it, and its usual seconds.
const ACTIONS: [(&str, &str, &str, u64); 7] = [
    ("start", "starting", "running", 30),
    ("deallocate", "deallocating", "deallocated", 40),
    ("powerOff", "stopping", "stopped", 20),
    ("restart", "starting", "running", 30),
    ("redeploy", "starting", "running", 60),
    ("reapply", "", "", 10),
    ("performMaintenance", "starting", "running", 60),
];

pub(super) fn act(
    cx: &CallContext<'_>,
    resource: &ArmResource,
    action: &str,
    body: &Value,
) -> Result<Option<ActionOutcome>, Failure> {
    if same(action, "retrieveBootDiagnosticsData") {
        return Ok(Some(ActionOutcome::Done(boot_diagnostics(cx, resource))));
    }
    if same(action, "runCommand") {
        return run_command(cx, resource, body).map(Some);
    }
    let Some((name, on_the_way, after, seconds)) = ACTIONS.into_iter().find(|it| same(it.0, action)) else {
        return Ok(None);
    };
    let present = power(resource, cx.now);
    let needs_power =
        matches!(name, "restart" | "performMaintenance") || (name == "powerOff" && present != "stopped");
    if needs_power && matches!(present.as_str(), "deallocated" | "deallocating") {
        return Err(not_running(resource, name));
    }
    if name == "performMaintenance" && !maintenance::perform(cx, resource)? {
        let message = format!(
            "Operation '{name}' is not allowed on VM '{}' since no maintenance of it is planned.",
            resource.id.name()
        );
        return Err(ArmError::conflict("OperationNotAllowed", message).into());
    }
    let span = Duration::from_secs(seconds);
    let mut change = None;
    let is_there = present == after && matches!(name, "start" | "deallocate" | "powerOff");
    if !after.is_empty() && !is_there {
        // Reached at the earliest end of the operation, so that a client that waited for it sees the state.
        let at = cx.later(span.mul_f64((cx.pace * 0.5).clamp(0.0, 1_000.0)));
        let mut body = resource.body.clone();
        body.insert(POWER.to_owned(), json!({ "state": after, "from": on_the_way, "at": at.to_string() }));
        change = Some(body);
    }
    Ok(Some(ActionOutcome::Accepted { span, result: Value::Null, change }))
}

fn not_running(resource: &ArmResource, action: &str) -> Failure {
    let message = format!(
        "Operation '{action}' is not allowed on VM '{}' since the VM is deallocated. The operation requires the VM to be \
         running (or set to run).",
        resource.id.name()
    );
    ArmError::conflict("OperationNotAllowed", message).into()
}

fn run_command(cx: &CallContext<'_>, resource: &ArmResource, body: &Value) -> Result<ActionOutcome, Failure> {
    let Some(command) = text(body, "commandId") else {
        let message = "Required parameter 'commandId' is missing (null).";
        return Err(ArmError::bad_request("InvalidParameter", message).with_target("commandId").into());
    };
    if power(resource, cx.now) != "running" {
        return Err(not_running(resource, "runCommand"));
    }
    let lines = body.get("script").and_then(Value::as_array).map_or(0, Vec::len);
    let message = format!("{command} of {lines} lines on {}\n", resource.id.name());
    let status = |stream: &str, message: &str| {
        json!({
            "code": format!("ComponentStatus/{stream}/succeeded"), "level": "Info",
            "displayStatus": "Provisioning succeeded", "message": message
        })
    };
    let result = json!({ "value": [status("StdOut", &message), status("StdErr", "")] });
    Ok(ActionOutcome::Accepted { span: Duration::from_secs(5), result, change: None })
}

/// Addresses of the screenshot and of the serial log. Their query stands for a signature, so clients send no token.
fn boot_diagnostics(cx: &CallContext<'_>, resource: &ArmResource) -> Value {
    let name = resource.id.name();
    let account =
        format!("bootdiag{}", &seed::uuid(cx.seed, &["boot", &resource.id.key()]).simple().to_string()[..12]);
    let base = format!("{}/{account}/bootdiagnostics/{name}", cx.endpoints.blob.trim_end_matches('/'));
    json!({
        "consoleScreenshotBlobUri": format!("{base}.screenshot.bmp?sv=2023-11-03&sr=b&sp=r&sig=simulated"),
        "serialConsoleLogBlobUri": format!("{base}.serialconsole.log?sv=2023-11-03&sr=b&sp=r&sig=simulated"),
    })
}

pub(super) fn instance_view(cx: &CallContext<'_>, resource: &ArmResource) -> Result<Value, Failure> {
    let state = resource.provisioning_state(cx.now);
    let code = match (&resource.fault, state) {
        (Some(fault), "Failed") => format!("ProvisioningState/failed/{}", fault.code),
        _ => format!("ProvisioningState/{}", state.to_lowercase()),
    };
    let level = if state == "Failed" { "Error" } else { "Info" };
    let time = resource.settles.min(cx.now).to_string();
    let mut provisioning = json!({ "code": code, "level": level, "displayStatus": format!("Provisioning {}", state.to_lowercase()), "time": time });
    if let (Some(fault), "Failed") = (&resource.fault, state) {
        provisioning["message"] = json!(fault.message);
    }
    let mut statuses = vec![provisioning];
    // A machine whose creation failed never ran.
    let has_run = state != "Creating" && (state != "Failed" || resource.change != Change::Creating);
    if has_run {
        let power = power(resource, cx.now);
        statuses.push(json!({
            "code": format!("PowerState/{power}"), "level": "Info", "displayStatus": format!("VM {power}")
        }));
    }
    let profile = resource.property("storageProfile").cloned().unwrap_or_default();
    let disk = profile.get("osDisk").and_then(|it| text(it, "name")).unwrap_or_default();
    let attached = json!([{ "code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded" }]);
    let mut view = json!({
        "computerName": resource.property("osProfile").and_then(|it| it.get("computerName")),
        "disks": [{ "name": disk, "statuses": attached }],
        "bootDiagnostics": {},
        "hyperVGeneration": "V2",
        "statuses": statuses,
    });
    if let Some(status) = maintenance::redeploy_status(cx, resource)? {
        view["maintenanceRedeployStatus"] = status;
    }
    Ok(view)
}
