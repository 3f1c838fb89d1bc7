//! How long a plan of 30 days takes, and how much memory: `cargo bench -p planner --bench plan`.
//!
//! 10,000 clusters, 20 weekly schedules that match all of them, a budget for the fleet; beside it a fleet of a hundredth, so
//! that the cost for each planned run can be compared.

use std::time::{Duration, Instant};

use api::admin::PlanGrouping;
use api::doc::{Cluster, MissedPolicy, ProvisioningState, Schedule, ScheduleState, SpreadBy, TaskStats};
use api::queue::Budget;
use jiff::Timestamp;
use planner::plan::{PlanInput, PlanRequest, compute};
use planner::schedule::{Member, Rule};
use planner::task::Catalogue;
use serde_json::{Map, json};
use uuid::Uuid;

const HORIZON: Duration = Duration::from_secs(30 * 24 * 3600);
const TIME_MAX: Duration = Duration::from_secs(10);
const MEMORY_MIB_MAX: u64 = 1024;

fn main() -> anyhow::Result<()> {
    let now: Timestamp = "2026-03-02T00:00:00Z".parse()?;
    let (few, _) = measured(&fleet(100, 20, now)?, now);
    let seen = fleet(10_000, 20, now)?;
    let (many, runs) = measured(&seen, now);
    let memory = peak_mib()?;
    let verdict = |good: bool| if good { "pass" } else { "MISS" };
    println!("{:<60} {:>12} {:>14}", "what", "measured", "goal");
    println!("{}", "-".repeat(96));
    println!(
        "{:<60} {:>10.2} s {:>14} {}",
        format!("30-day plan, 10,000 clusters x 20 schedules ({runs} runs)"),
        many.as_secs_f64(),
        "under 10 s",
        verdict(many < TIME_MAX)
    );
    println!(
        "{:<60} {:>8} MiB {:>14} {}",
        "memory at its peak",
        memory,
        "under 1024 MiB",
        verdict(memory < MEMORY_MIB_MAX)
    );
    println!(
        "{:<60} {:>11.2}x",
        "cost of a planned run / in a fleet of 100",
        many.as_secs_f64() / few.as_secs_f64() / 100.0
    );
    Ok(())
}

fn measured(seen: &PlanInput, now: Timestamp) -> (Duration, u64) {
    let question = PlanRequest {
        horizon: HORIZON,
        cluster: None,
        schedule: None,
        task: None,
        outcome: None,
        grouping: PlanGrouping::Schedule,
        skip: 0,
        limit: usize::MAX,
    };
    let begun = Instant::now();
    let (plan, _) =
        compute(seen, &Catalogue::builtin(), &question, now, &|| false).expect("nobody gives it up");
    (begun.elapsed(), plan.runs)
}

fn fleet(clusters: usize, schedules: usize, now: Timestamp) -> anyhow::Result<PlanInput> {
    let mut seen = PlanInput { actuators: 100, ..PlanInput::default() };
    for number in 0..clusters {
        let uuid =
            Uuid::from_u128((number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let id = format!(
            "/subscriptions/00000000-0000-0000-0000-{:012}/resourcegroups/g/providers/microsoft.redhatopenshift/openshiftclusters/c{number}",
            number % 50
        );
        let cluster = Cluster {
            subscription_id: format!("00000000-0000-0000-0000-{:012}", number % 50),
            name: format!("c{number}"),
            location: format!("region-{}", number % 5),
            labels: [("ring".to_owned(), (number % 4).to_string())].into(),
            ..Cluster::new(id.clone(), ProvisioningState::Succeeded, "2026-01-01T00:00:00Z".parse()?)
        };
        seen.clusters.push((Member::new(uuid, &cluster, None, None), id));
    }
    let task = Catalogue::builtin().list()[0].id();
    let mut stats = TaskStats::of(task);
    stats.add([Duration::from_secs(120); 100]);
    seen.stats.insert(task, stats);
    for number in 0..schedules {
        let day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][number % 7];
        let schedule = Schedule {
            id: format!("weekly-{number}"),
            state: ScheduleState::Enabled,
            task_id: task,
            calendars: vec![format!("{day} *-*-* {:02}:00", number % 24)],
            time_zone: "UTC".to_owned(),
            look_forward_count: 1,
            schedule_across: "24h".to_owned(),
            spread_by: SpreadBy::Schedule,
            start_within: None,
            missed_policy: MissedPolicy::Skip,
            priority: 0,
            selectors: vec![json!({"key": "provisioningState", "operator": "eq", "value": "Succeeded"})],
            parameters: Map::new(),
        };
        seen.rules.push(Rule::read(&schedule, now)?);
    }
    seen.budgets.push(Budget { key: "fleet".to_owned(), limit: 500, used: 0, parked: 0 });
    Ok(seen)
}

/// The most memory that this process ever had.
fn peak_mib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).unwrap_or("0").parse::<u64>()? / 1024)
}
