//! The columns of `kubectl get` for each kind, with the order and the headings of the real server.

mod cells;
mod node;
mod pod;
mod service;
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use cells::{age, human_duration};
use cells::{count, length, name, since, text};

/// Computes a cell from an object.
pub type Cell = fn(&Value, Timestamp) -> Value;

/// One column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// The type.
    pub kind: &'static str,
    /// `name` for the column that names the object.
    pub format: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: i32,
    /// The cell of an object.
    pub cell: Cell,
}

const fn column(name: &'static str, kind: &'static str, cell: Cell) -> Column {
    Column { name, kind, format: "", priority: 0, cell }
}

const fn wide(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", format: "", priority: 1, cell }
}

const NAME: Column = Column { name: "Name", kind: "string", format: "name", priority: 0, cell: name };
const AGE: Column = column("Age", "string", age);
const CONTAINERS: Column = wide("Containers", workload::containers);
const IMAGES: Column = wide("Images", workload::images);
const SELECTOR: Column = wide("Selector", workload::selector);

/// Columns of kinds that have none of their own.
pub(super) const PLAIN: &[Column] =
    &[NAME, column("Created At", "date", |object, _| object["metadata"]["creationTimestamp"].clone())];
pub(super) const WEBHOOKS: &[Column] =
    &[NAME, column("Webhooks", "integer", |object, _| json!(length(&object["webhooks"]))), AGE];
pub(super) const NAME_AND_AGE: &[Column] = &[NAME, AGE];
pub(super) const CONFIG_MAP: &[Column] = &[
    NAME,
    column("Data", "string", |object, _| json!(length(&object["data"]) + length(&object["binaryData"]))),
    AGE,
];
pub(super) const SECRET: &[Column] = &[
    NAME,
    column("Type", "string", |object, _| text(&object["type"])),
    column("Data", "string", |object, _| json!(length(&object["data"]))),
    AGE,
];
pub(super) const NAMESPACE: &[Column] =
    &[NAME, column("Status", "string", |object, _| text(&object["status"]["phase"])), AGE];
pub(super) const NODE: &[Column] = &[
    NAME,
    column("Status", "string", node::status),
    column("Roles", "string", node::roles),
    AGE,
    column("Version", "string", |object, _| text(&object["status"]["nodeInfo"]["kubeletVersion"])),
    wide("Internal-IP", |object, _| node::address(object, "InternalIP")),
    wide("External-IP", |object, _| node::address(object, "ExternalIP")),
    wide("OS-Image", |object, _| node::known(&object["status"]["nodeInfo"]["osImage"])),
    wide("Kernel-Version", node::kernel),
    wide("Container-Runtime", |object, _| {
        node::known(&object["status"]["nodeInfo"]["containerRuntimeVersion"])
    }),
];
pub(super) const POD: &[Column] = &[
    NAME,
    column("Ready", "string", pod::ready),
    column("Status", "string", pod::status),
    column("Restarts", "string", pod::restarts),
    AGE,
    wide("IP", |object, _| cells::or_none(&object["status"]["podIPs"][0]["ip"])),
    wide("Node", |object, _| cells::or_none(&object["spec"]["nodeName"])),
    wide("Nominated Node", |object, _| cells::or_none(&object["status"]["nominatedNodeName"])),
    wide("Readiness Gates", pod::readiness_gates),
];
pub(super) const SERVICE: &[Column] = &[
    NAME,
    column("Type", "string", |object, _| text(&object["spec"]["type"])),
    column("Cluster-IP", "string", |object, _| cells::or_none(&object["spec"]["clusterIPs"][0])),
    column("External-IP", "string", service::external_ip),
    column("Port(s)", "string", service::ports),
    AGE,
    wide("Selector", |object, _| json!(cells::labels(&object["spec"]["selector"]))),
];
pub(super) const PERSISTENT_VOLUME_CLAIM: &[Column] = &[
    NAME,
    column("Status", "string", service::claim_phase),
    column("Volume", "string", |object, _| text(&object["spec"]["volumeName"])),
    column("Capacity", "string", service::claim_capacity),
    column("Access Modes", "string", service::claim_access_modes),
    column("StorageClass", "string", |object, _| text(&object["spec"]["storageClassName"])),
    column("VolumeAttributesClass", "string", |object, _| {
        json!(object["spec"]["volumeAttributesClassName"].as_str().unwrap_or("<unset>"))
    }),
    AGE,
    wide("VolumeMode", |object, _| json!(object["spec"]["volumeMode"].as_str().unwrap_or("<unset>"))),
];
pub(super) const EVENT: &[Column] = &[
    column("Last Seen", "string", workload::event_last_seen),
    column("Type", "string", |object, _| text(&object["type"])),
    column("Reason", "string", |object, _| text(&object["reason"])),
    column("Object", "string", workload::event_object),
    wide("Subobject", |object, _| text(&object["involvedObject"]["fieldPath"])),
    wide("Source", workload::event_source),
    column("Message", "string", |object, _| json!(object["message"].as_str().unwrap_or_default().trim())),
    wide("First Seen", workload::event_first_seen),
    wide("Count", workload::event_count),
    Column { name: "Name", kind: "string", format: "name", priority: 1, cell: name },
];
pub(super) const DEPLOYMENT: &[Column] = &[
    NAME,
    column("Ready", "string", workload::ready),
    column("Up-to-date", "string", |object, _| count(&object["status"]["updatedReplicas"])),
    column("Available", "string", |object, _| count(&object["status"]["availableReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const REPLICA_SET: &[Column] = &[
    NAME,
    column("Desired", "integer", |object, _| count(&object["spec"]["replicas"])),
    column("Current", "integer", |object, _| count(&object["status"]["replicas"])),
    column("Ready", "integer", |object, _| count(&object["status"]["readyReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const DAEMON_SET: &[Column] = &[
    NAME,
    column("Desired", "integer", |object, _| count(&object["status"]["desiredNumberScheduled"])),
    column("Current", "integer", |object, _| count(&object["status"]["currentNumberScheduled"])),
    column("Ready", "integer", |object, _| count(&object["status"]["numberReady"])),
    column("Up-to-date", "integer", |object, _| count(&object["status"]["updatedNumberScheduled"])),
    column("Available", "integer", |object, _| count(&object["status"]["numberAvailable"])),
    column("Node Selector", "string", |object, _| {
        json!(cells::labels(&object["spec"]["template"]["spec"]["nodeSelector"]))
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const STATEFUL_SET: &[Column] =
    &[NAME, column("Ready", "string", workload::ready), AGE, CONTAINERS, IMAGES];
pub(super) const CONTROLLER_REVISION: &[Column] = &[
    NAME,
    column("Controller", "string", workload::controller),
    column("Revision", "string", |object, _| count(&object["revision"])),
    AGE,
];
pub(super) const JOB: &[Column] = &[
    NAME,
    column("Status", "string", workload::job_status),
    column("Completions", "string", workload::job_completions),
    column("Duration", "string", workload::job_duration),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const CRON_JOB: &[Column] = &[
    NAME,
    column("Schedule", "string", |object, _| text(&object["spec"]["schedule"])),
    column("Timezone", "string", |object, _| cells::or_none(&object["spec"]["timeZone"])),
    column("Suspend", "boolean", |object, _| match &object["spec"]["suspend"] {
        Value::Bool(true) => json!("True"),
        Value::Bool(false) => json!("False"),
        _ => json!("<unset>"),
    }),
    column("Active", "integer", |object, _| json!(length(&object["status"]["active"]))),
    column("Last Schedule", "string", |object, now| match &object["status"]["lastScheduleTime"] {
        Value::Null => json!("<none>"),
        time => since(time, now),
    }),
    AGE,
    wide("Containers", |object, now| workload::containers(&object["spec"]["jobTemplate"], now)),
    wide("Images", |object, now| workload::images(&object["spec"]["jobTemplate"], now)),
    wide("Selector", |object, now| workload::selector(&object["spec"]["jobTemplate"], now)),
];
pub(super) const POD_DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    column("Min Available", "string", |object, _| cells::bound(&object["spec"]["minAvailable"])),
    column("Max Unavailable", "string", |object, _| cells::bound(&object["spec"]["maxUnavailable"])),
    column("Allowed Disruptions", "integer", |object, _| count(&object["status"]["disruptionsAllowed"])),
    AGE,
];
pub(super) const ROLE_BINDING: &[Column] = &[
    NAME,
    column("Role", "string", |object, _| {
        let part = |field: &str| object["roleRef"][field].as_str().unwrap_or_default();
        json!(format!("{}/{}", part("kind"), part("name")))
    }),
    AGE,
    wide("Users", |object, _| workload::subjects(object, "User")),
    wide("Groups", |object, _| workload::subjects(object, "Group")),
    wide("ServiceAccounts", |object, _| workload::subjects(object, "ServiceAccount")),
];
pub(super) const LEASE: &[Column] =
    &[NAME, column("Holder", "string", |object, _| text(&object["spec"]["holderIdentity"])), AGE];
pub(super) const CERTIFICATE_SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    column("SignerName", "string", |object, _| cells::or_none(&object["spec"]["signerName"])),
    column("Requestor", "string", |object, _| text(&object["spec"]["username"])),
    column("RequestedDuration", "string", |object, _| match object["spec"]["expirationSeconds"].as_i64() {
        Some(seconds) => json!(human_duration(seconds)),
        None => json!("<none>"),
    }),
    column("Condition", "string", node::request_condition),
];
