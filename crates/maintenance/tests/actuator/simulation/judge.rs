//! Invariants that must hold at the end of a simulation.

use std::time::Duration;

use api::admin::EntryEvent;
use api::doc::ResultCode;
use api::work::WorkState;
use maintenance::actuator::Assignment;
use serde_json::json;
use steps::engine::Journal;
use store::{Completion, CompletionOutcome, StoreError, WorkView};

use super::driver::Fleet;
use super::script;

/// Longest time from a request to cancel running work to its end, including crashes and outages: a lease, a takeover, an
/// outage, the longest undo, and the longest backoff of work whose plan could not be built. A budget of 0 does not extend it.
const CANCEL_TIME: Duration = Duration::from_secs(1200);

/// Records the violated invariants.
pub(super) async fn judge(fleet: &mut Fleet) {
    let works = fleet.store.works(fleet.manifests.iter().map(|it| it.id).collect()).await.unwrap_or_default();
    for work in &works {
        check_work(fleet, work).await;
    }
    stale_fences(fleet).await;
    for budget in fleet.store.budgets().await.unwrap_or_default() {
        if budget.used != 0 {
            fleet.world.wrong(format!("budget {} is at {}", budget.key, budget.used));
        }
    }
    for finding in fleet.store.check().await.unwrap_or_default() {
        if !finding.faults.is_empty() {
            fleet.world.wrong(format!("{finding:?}"));
        }
    }
}

async fn check_work(fleet: &mut Fleet, work: &WorkView) {
    let world = fleet.world.clone();
    let log = fleet.store.entries(work.id, None, 1000).await.unwrap_or_default();
    let events: Vec<&EntryEvent> = log.iter().map(|(_, entry)| &entry.event).collect();
    let count = |event| events.iter().filter(|it| ***it == event).count() as u64;
    fleet.tally.taken_over += count(EntryEvent::TakenOver);
    fleet.tally.undone += count(EntryEvent::Undone);
    let preempted = |entry: &api::admin::Entry| {
        entry.event == EntryEvent::Yielded
            && entry.message.as_deref() == Some("a customer's operation goes first")
    };
    fleet.tally.preempted += log.iter().filter(|(_, entry)| preempted(entry)).count() as u64;
    let terminal = [
        WorkState::Completed,
        WorkState::Failed,
        WorkState::RetriesExceeded,
        WorkState::TimedOut,
        WorkState::Cancelled,
    ];
    match terminal.iter().position(|state| *state == work.state) {
        Some(place) => fleet.tally.ended[place] += 1,
        None => return world.wrong(format!("{} is {}", work.id, work.state)),
    }
    if events.last() != Some(&&EntryEvent::Finished) {
        world.wrong(format!("{} does not end with a Finished entry: {events:?}", work.id));
    }
    if let Some(started) = work.started {
        let late = work.run_before.is_some_and(|before| started >= before);
        if late || started < work.run_after {
            world.wrong(format!("{} started at {started}, outside its window", work.id));
        }
    }
    for (_, asked) in fleet.asked.iter().filter(|(id, _)| *id == work.id) {
        let took = work.finished.map(|finished| finished.duration_since(*asked).unsigned_abs());
        if took.is_none_or(|took| took > CANCEL_TIME) {
            world.wrong(format!("{} finished {took:?} after the request to cancel it", work.id));
        }
    }
    check_steps(fleet, work);
}

/// Checks that no step started twice under one fence, and that the started steps of failed or cancelled work were undone.
fn check_steps(fleet: &Fleet, work: &WorkView) {
    let world = &fleet.world;
    let manifest = fleet
        .manifests
        .iter()
        .find(|it| it.id == work.id)
        .expect("all work of the simulation has a manifest");
    let seen = world.seen();
    let begun: Vec<_> = seen.begun.iter().filter(|((id, _), _)| *id == work.id).collect();
    let mut wrong = Vec::new();
    for ((_, step), fences) in &begun {
        let twice: Vec<_> = fences.iter().filter(|(_, times)| **times > 1).collect();
        if !twice.is_empty() {
            wrong.push(format!("step {step} of {} started again under the same fence: {twice:?}", work.id));
        }
    }
    let code = work.result.as_ref().and_then(|it| it.code.as_ref()).map_or("", ResultCode::as_str);
    // Work that is cancelled while it is pending finishes without undo.
    let undone_by_engine = work.result.as_ref().is_some_and(|it| it.undone.is_some());
    let undone = match work.state {
        WorkState::Failed | WorkState::RetriesExceeded => code != "UnknownTask",
        WorkState::Cancelled => undone_by_engine && code == "Cancelled",
        _ => false,
    };
    if undone {
        let journal = Journal::default();
        let cluster = maintenance::fixture::cluster("any");
        let assignment = Assignment {
            manifest,
            cluster: manifest.cluster,
            document: &cluster,
            health: None,
            journal: &journal,
        };
        let undoable = script::plan(assignment).map(|plan| script::undoable(&plan)).unwrap_or_default();
        for ((_, step), _) in begun.iter().filter(|((_, step), _)| undoable.contains(step)) {
            if !seen.undone.contains_key(&(work.id, step.clone())) {
                wrong
                    .push(format!("step {step} of {} started and is not undone: {:?}", work.id, work.result));
            }
        }
    }
    drop(seen);
    wrong.into_iter().for_each(|it| world.wrong(it));
}

/// Checks that no expired lease can write.
async fn stale_fences(fleet: &Fleet) {
    let leases = fleet.world.seen().holds.clone();
    for lease in leases {
        match fleet.store.checkpoint(lease, "late", json!({})).await {
            Err(StoreError::LostLease { .. }) => {}
            other => fleet.world.wrong(format!("an expired lease wrote: {other:?}")),
        }
        let end = Completion::new(lease, api::work::Ending::Completed, json!({}));
        match fleet.store.complete(&[end]).await {
            Ok(outcomes) if outcomes == [CompletionOutcome::Lost] => {}
            other => fleet.world.wrong(format!("an expired lease completed its work: {other:?}")),
        }
    }
}
