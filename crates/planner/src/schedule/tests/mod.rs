mod check;
mod converge;
mod decide;
mod preview;
mod slots;
mod spread;

use api::doc::{Cluster, MissedPolicy, ProvisioningState, Schedule, ScheduleState, SpreadBy};
use jiff::Timestamp;
use serde_json::{Map, json};
use uuid::Uuid;

use super::{Member, Rule};

const TASK: Uuid = Uuid::from_u128(0x1234);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A schedule that fires daily at two, for clusters in westeurope.
fn schedule() -> Schedule {
    Schedule {
        id: "nightly".to_owned(),
        state: ScheduleState::Enabled,
        task_id: TASK,
        calendars: vec!["*-*-* 02:00".to_owned()],
        time_zone: "UTC".to_owned(),
        look_forward_count: 1,
        schedule_across: "0s".to_owned(),
        spread_by: SpreadBy::Cluster,
        start_within: None,
        missed_policy: MissedPolicy::Skip,
        priority: 0,
        selectors: vec![json!({ "key": "location", "operator": "eq", "value": "westeurope" })],
        parameters: Map::new(),
    }
}

fn rule(schedule: &Schedule) -> Rule {
    Rule::read(schedule, at("2026-01-01T00:00:00Z")).unwrap()
}

pub(crate) fn cluster(name: &str) -> Cluster {
    Cluster {
        subscription_id: "00000000-0000-0000-0000-000000000000".to_owned(),
        name: name.to_owned(),
        location: "westeurope".to_owned(),
        imported: true,
        ..Cluster::new(
            format!(
                "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg1/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
            ),
            ProvisioningState::Succeeded,
            at("2026-01-01T00:00:00Z"),
        )
    }
}

fn member(name: &str) -> Member {
    Member::new(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()), &cluster(name), None, None)
}
