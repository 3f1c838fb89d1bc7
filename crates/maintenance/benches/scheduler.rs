//! The scheduler's goals: 10,000 clusters and 20 weekly schedules decided in under 5 s, a pass without changes in under
//! 200 ms, and a pass after ten changed clusters at most twice as long as in a fleet of 100 clusters.
//!
//! Measured are the decisions, on the fleet in memory: how long the store takes to write them is the store's benchmark. A
//! missed goal is printed, and the run still ends well: speed depends on the machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::doc::{Cluster, MissedPolicy, Schedule, ScheduleState, SpreadBy};
use jiff::{SignedDuration, Timestamp};
use maintenance::fixture;
use maintenance::scheduler::{Fleet, ManifestChanges};
use planner::schedule::{ManifestStatus, Window};
use serde_json::{Map, json};
use uuid::Uuid;

const CLUSTERS: usize = 10_000;
const SMALL: usize = 100;
const SCHEDULES: usize = 20;
/// Clusters that change before a pass.
const CHANGED: usize = 10;
/// Each short pass is measured so often; the median counts.
const ROUNDS: usize = 41;

fn main() {
    let mut table = Table::default();
    table.begin();
    let begin: Timestamp = "2026-03-01T12:00:00Z".parse().expect("it is one");

    let (mut large, made, first) = decided(CLUSTERS, begin);
    assert_eq!(made, CLUSTERS * SCHEDULES, "every cluster has its slot in every schedule");
    table.within(
        format!("{CLUSTERS} clusters x {SCHEDULES} weekly schedules, decided"),
        first,
        Duration::from_secs(5),
    );

    let mut now = begin;
    let unchanged = median(|| {
        now += SignedDuration::from_secs(1);
        let (plan, taken) = pass(&mut large, now);
        assert!(plan.create.is_empty() && plan.withdraw.is_empty(), "nothing has changed");
        taken
    });
    table.within(
        format!("a pass without changes, {CLUSTERS} clusters"),
        unchanged,
        Duration::from_millis(200),
    );

    let (mut small, _, _) = decided(SMALL, begin);
    let (mut round, mut at) = (0, begin);
    // One beside the other, so that a busy machine slows both.
    let mut times: (Vec<Duration>, Vec<Duration>) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        round += 1;
        at += SignedDuration::from_secs(1);
        times.0.push(after_changes(&mut large, round, at));
        times.1.push(after_changes(&mut small, round, at));
    }
    let (in_large, in_small) = (middle(times.0), middle(times.1));
    table.compared(
        format!("a pass after {CHANGED} changed clusters, {CLUSTERS} beside {SMALL}"),
        in_large,
        in_small,
        2.0,
    );

    // A boundary: the next period of every schedule.
    let boundary = large.next_period().expect("a weekly schedule has a next period");
    let (plan, taken) = pass(&mut large, boundary);
    settle(&mut large, &plan);
    table.within(
        format!("a boundary of one schedule, {} manifests", plan.create.len()),
        taken,
        Duration::from_secs(5),
    );
    table.end();
}

/// A fleet of so many clusters with all its schedules decided for the first time: how many slots, and how long it took.
fn decided(clusters: usize, now: Timestamp) -> (Fleet, usize, Duration) {
    let mut fleet = Fleet::default();
    for number in 0..clusters {
        fleet.put_cluster(uuid_of(number), cluster(number, 0));
    }
    for number in 0..SCHEDULES {
        fleet.put_schedule(Uuid::from_u128(0xabc_0000 + number as u128), &schedule(number), now);
    }
    let (plan, taken) = pass(&mut fleet, now);
    settle(&mut fleet, &plan);
    (fleet, plan.create.len(), taken)
}

/// What a pass does before it writes.
fn pass(fleet: &mut Fleet, now: Timestamp) -> (ManifestChanges, Duration) {
    let begin = Instant::now();
    fleet.advance(now);
    let unknown = if fleet.is_clean() { Vec::new() } else { fleet.unknown_manifests() };
    let plan = if fleet.is_clean() { ManifestChanges::default() } else { fleet.changes() };
    let taken = begin.elapsed();
    for (schedule, cluster, manifest) in unknown {
        fleet.set_status(&schedule, cluster, manifest, ManifestStatus::Closed);
    }
    (plan, taken)
}

/// The writes have been made.
fn settle(fleet: &mut Fleet, plan: &ManifestChanges) {
    for (schedule, cluster, manifest) in &plan.withdraw {
        fleet.set_status(schedule, *cluster, *manifest, ManifestStatus::Superseded);
    }
    for (schedule, cluster, slot) in &plan.create {
        let window = Window {
            run_after: slot.run_after,
            run_before: slot.run_before,
            priority: slot.priority,
            parameters: slot.parameters,
        };
        fleet.set_status(schedule, *cluster, slot.id, ManifestStatus::Fresh(window));
    }
    fleet.clear_changes();
}

/// The pass after ten clusters have got another label, which half of the schedules look at.
fn after_changes(fleet: &mut Fleet, round: usize, now: Timestamp) -> Duration {
    for number in 0..CHANGED {
        fleet.put_cluster(uuid_of(number), cluster(number, round));
    }
    let (plan, taken) = pass(fleet, now);
    settle(fleet, &plan);
    taken
}

fn median(mut measure: impl FnMut() -> Duration) -> Duration {
    middle((0..ROUNDS).map(|_| measure()).collect())
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn uuid_of(cluster: usize) -> Uuid {
    Uuid::from_u128(0xc1_0000_0000 + cluster as u128)
}

fn cluster(number: usize, round: usize) -> Cluster {
    let (name, subscription) =
        (format!("cluster-{number}"), format!("00000000-0000-0000-0000-{:012}", number % 50));
    Cluster {
        id: format!(
            "/subscriptions/{subscription}/resourcegroups/group-{}/providers/microsoft.redhatopenshift/openshiftclusters/cluster-{number}",
            number % 500
        ),
        subscription_id: subscription,
        name: name.clone(),
        location: ["westeurope", "eastus", "japaneast"][number % 3].to_owned(),
        labels: BTreeMap::from([
            ("ring".to_owned(), (number % 4).to_string()),
            ("round".to_owned(), round.to_string()),
        ]),
        ..fixture::cluster(&name)
    }
}

/// A weekly schedule, spread over half a day. Half of them look at a label that changes in every round, so that what they
/// had wanted is withdrawn in one round and comes back in the next.
fn schedule(number: usize) -> Schedule {
    let day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][number % 7];
    let looks_at_round = json!({ "key": "label.round", "operator": "notin", "values": (1..100).step_by(2).map(|it: u32| it.to_string()).collect::<Vec<_>>() });
    let selects = json!({ "key": "provisioningState", "operator": "eq", "value": "Succeeded" });
    let located = json!({ "any": [{ "key": "location", "operator": "prefix", "value": "west" }, { "key": "name", "operator": "exists" }] });
    Schedule {
        id: format!("weekly-{number}"),
        state: ScheduleState::Enabled,
        task_id: Uuid::from_u128(7),
        calendars: vec![format!("{day} *-*-* {:02}:00", number % 24)],
        time_zone: "Europe/Berlin".to_owned(),
        look_forward_count: 1,
        schedule_across: "12h".to_owned(),
        spread_by: if number.is_multiple_of(3) { SpreadBy::Schedule } else { SpreadBy::Cluster },
        start_within: None,
        missed_policy: MissedPolicy::Skip,
        priority: 0,
        selectors: if number.is_multiple_of(2) {
            vec![selects, located, looks_at_round]
        } else {
            vec![selects, located]
        },
        parameters: Map::new(),
    }
}

/// The table that is printed, a line as soon as it is known.
#[derive(Default)]
struct Table {
    goals: usize,
    reached: usize,
}

impl Table {
    fn begin(&self) {
        line("what", "measured", "beside", "ratio", "goal", "");
        println!("{}", "-".repeat(126));
    }

    fn within(&mut self, what: String, taken: Duration, limit: Duration) {
        let goal = format!("under {:.1} s", limit.as_secs_f64());
        let verdict = self.verdict(taken < limit);
        line(&what, &millis(taken), "", "", &goal, verdict);
    }

    fn compared(&mut self, what: String, measured: Duration, beside: Duration, most: f64) {
        let ratio = measured.as_secs_f64() / beside.as_secs_f64();
        let verdict = self.verdict(ratio <= most);
        let (ratio, goal) = (format!("{ratio:.2}"), format!("at most {most:.1} x"));
        line(&what, &millis(measured), &millis(beside), &ratio, &goal, verdict);
    }

    fn verdict(&mut self, reached: bool) -> &'static str {
        self.goals += 1;
        self.reached += usize::from(reached);
        if reached { "pass" } else { "MISS" }
    }

    fn end(self) {
        println!("{} of {} goals reached", self.reached, self.goals);
    }
}

fn line(what: &str, measured: &str, beside: &str, ratio: &str, goal: &str, verdict: &str) {
    println!("{what:<66} {measured:>12} {beside:>12} {ratio:>7}  {goal:<16} {verdict}");
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1000.0)
}
