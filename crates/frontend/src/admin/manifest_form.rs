//! The form of a manifest: the request joined with the state of its work.

use std::collections::HashMap;

use api::admin::{ManifestForm, Phase};
use api::doc::{Manifest, WorkResult};
use api::work::WorkState;
use jiff::Timestamp;
use steps::engine::{ATTEMPTS_MAX, Journal};
use store::{LaneView, Reader, StoreError, WorkView};
use uuid::Uuid;

/// The names of tasks, by their ids.
pub(super) type Names = HashMap<Uuid, String>;

/// The forms of manifests of any clusters, each with its cluster, with two queries for all of them.
pub(super) async fn for_manifests(
    reader: &Reader,
    manifests: Vec<(Manifest, Timestamp)>,
    names: &Names,
) -> Result<Vec<ManifestForm>, StoreError> {
    let works = reader.works(manifests.iter().map(|(manifest, _)| manifest.id).collect()).await?;
    let works: HashMap<Uuid, WorkView> = works.into_iter().map(|work| (work.id, work)).collect();
    let lanes = lanes(reader, works.values()).await?;
    let show = |(manifest, created): &(Manifest, Timestamp)| {
        let form = form(manifest, *created, works.get(&manifest.id), lanes.get(&manifest.cluster), names);
        ManifestForm { cluster_resource_id: Some(manifest.cluster_path.clone()), ..form }
    };
    Ok(manifests.iter().map(show).collect())
}

/// The lanes of running work, which have the cancel signal.
pub(super) async fn lanes<'a>(
    reader: &Reader,
    works: impl Iterator<Item = &'a WorkView>,
) -> Result<HashMap<Uuid, LaneView>, StoreError> {
    let running: Vec<Uuid> =
        works.filter(|work| work.state == WorkState::InProgress).map(|work| work.lane).collect();
    if running.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(reader.lanes(running).await?.into_iter().map(|lane| (lane.lane, lane)).collect())
}

/// The form of a manifest.
pub(super) fn form(
    manifest: &Manifest,
    created: Timestamp,
    work: Option<&WorkView>,
    lane: Option<&LaneView>,
    names: &Names,
) -> ManifestForm {
    let journal = Journal::read(work.and_then(|work| work.checkpoint.as_ref()));
    let state = work.map_or(WorkState::Cancelled, |work| work.state);
    let (reason, text) = words(state, work, &journal);
    let status_text = if !manifest.status_text.is_empty() && shows_requested_text(state, work, &text) {
        manifest.status_text.clone()
    } else {
        text
    };
    ManifestForm {
        id: manifest.id,
        cluster_resource_id: None,
        state,
        status_text,
        maintenance_task_id: manifest.task_id,
        created_by_schedule: manifest.created_by_schedule.clone().unwrap_or_default(),
        priority: work.map_or(manifest.priority, |work| work.priority),
        run_after: work.map_or(manifest.run_after, |work| work.run_after).as_second(),
        run_before: work.and_then(|work| work.run_before).unwrap_or(manifest.run_before).as_second(),
        parameters: manifest.parameters.clone(),
        phase: phase(state, work, lane, &journal),
        reason,
        attempt: work.map_or(0, |work| work.attempt),
        max_attempts: ATTEMPTS_MAX,
        created_at: created,
        created_by: manifest.created_by.clone(),
        started_at: work.and_then(|work| work.started),
        finished_at: work.and_then(|work| work.finished),
        task_name: names.get(&manifest.task_id).cloned().unwrap_or_default(),
        task_version: journal.task_version,
        // The end of the last step is written with the result: the checkpoint still has the step before.
        step: journal.step.filter(|step| state != WorkState::Completed && !step.name.is_empty()),
    }
}

/// The form that a manifest would have if it were stored now.
pub(super) fn imagined(manifest: &Manifest, now: Timestamp, names: &Names) -> ManifestForm {
    let shown = form(manifest, now, None, None, names);
    ManifestForm { state: WorkState::Pending, phase: Phase::Queued, reason: String::new(), ..shown }
}

fn phase(state: WorkState, work: Option<&WorkView>, lane: Option<&LaneView>, journal: &Journal) -> Phase {
    match state {
        WorkState::Pending if work.is_some_and(is_due_for_undo) => Phase::Cancelling,
        WorkState::Pending if work.is_some_and(|work| work.started.is_some()) => Phase::Waiting,
        WorkState::Pending => Phase::Queued,
        WorkState::InProgress if journal.is_undoing() => Phase::Undoing,
        WorkState::InProgress if is_cancel_requested(work, lane) => Phase::Cancelling,
        WorkState::InProgress => Phase::Running,
        WorkState::Completed
        | WorkState::Failed
        | WorkState::RetriesExceeded
        | WorkState::TimedOut
        | WorkState::Cancelled => Phase::Finished,
    }
}

/// Whether started work that waits is due at once to undo its steps. Only a cancellation sets `due_at` to the epoch without
/// `run_after`.
fn is_due_for_undo(work: &WorkView) -> bool {
    let epoch = Timestamp::UNIX_EPOCH;
    work.started.is_some() && work.due_at == epoch && work.run_after != epoch
}

fn is_cancel_requested(work: Option<&WorkView>, lane: Option<&LaneView>) -> bool {
    lane.is_some_and(|lane| lane.signals.cancel && lane.running == work.map(|work| work.id))
}

/// Whether the status text is that of the request: until the work has one of its own or is finished. A cancellation before the
/// first start keeps it, as in MIMO.
fn shows_requested_text(state: WorkState, work: Option<&WorkView>, text: &str) -> bool {
    match state {
        WorkState::Pending | WorkState::InProgress => text.is_empty(),
        WorkState::Cancelled => text.is_empty() || work.is_some_and(|work| work.started.is_none()),
        WorkState::Completed | WorkState::Failed | WorkState::RetriesExceeded | WorkState::TimedOut => false,
    }
}

/// The code and message of its wait or its result.
fn words(state: WorkState, work: Option<&WorkView>, journal: &Journal) -> (String, String) {
    let Some(work) = work else { return ("Removed".to_owned(), String::new()) };
    match state {
        WorkState::InProgress => Default::default(),
        WorkState::Pending => journal.waiting.as_ref().map_or_else(Default::default, |waiting| {
            (waiting.code.as_str().to_owned(), waiting.message.clone())
        }),
        WorkState::Completed
        | WorkState::Failed
        | WorkState::RetriesExceeded
        | WorkState::TimedOut
        | WorkState::Cancelled => {
            let WorkResult { code, message, .. } = work.result.clone().unwrap_or_default();
            (code.unwrap_or_default().to_string(), message.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use api::work::WorkKind;
    use serde_json::json;
    use store::Signals;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn manifest() -> Manifest {
        Manifest {
            id: Uuid::from_u128(1),
            cluster: Uuid::from_u128(2),
            cluster_path: "/c".to_owned(),
            task_id: Uuid::from_u128(3),
            created_by_schedule: None,
            priority: 4,
            run_after: at(100),
            run_before: at(200),
            parameters: serde_json::Map::new(),
            created_by: "somebody".to_owned(),
            status_text: String::new(),
        }
    }

    fn work(state: WorkState) -> WorkView {
        WorkView {
            id: Uuid::from_u128(1),
            lane: Uuid::from_u128(2),
            kind: WorkKind::Manifest,
            state,
            attempt: 2,
            run_after: at(0),
            due_at: at(0),
            run_before: Some(at(200)),
            priority: 4,
            step: None,
            checkpoint: None,
            fence: 1,
            created: at(50),
            started: None,
            finished: None,
            result: None,
            origin: None,
            budgets: Vec::new(),
            ending: false,
            cancellation: None,
        }
    }

    fn lane(cancel: bool) -> LaneView {
        LaneView {
            lane: Uuid::from_u128(2),
            head_kind: None,
            head_at: None,
            parked_on: None,
            owner: None,
            lease_until: None,
            fence: 1,
            running: Some(Uuid::from_u128(1)),
            signals: Signals { preempt: false, cancel },
        }
    }

    #[test]
    fn phase_reason_and_text_follow_from_work_lane_and_journal() {
        let check = |work: WorkView, cancel: bool, phase: Phase, reason: &str, text: &str| {
            let shown = form(&manifest(), at(50), Some(&work), Some(&lane(cancel)), &Names::new());
            let expect = (phase, reason, text);
            assert_eq!((shown.phase, shown.reason.as_str(), shown.status_text.as_str()), expect, "{work:?}");
        };
        check(work(WorkState::Pending), false, Phase::Queued, "", "");
        let waiting = json!({"waiting": {"code": "Unreachable", "message": "no response", "since": "2026-01-01T00:00:00Z"}});
        let parked =
            WorkView { started: Some(at(60)), checkpoint: Some(waiting), ..work(WorkState::Pending) };
        check(parked, false, Phase::Waiting, "Unreachable", "no response");
        let called =
            WorkView { run_after: at(100), due_at: at(0), started: Some(at(60)), ..work(WorkState::Pending) };
        check(called, false, Phase::Cancelling, "", "");
        check(work(WorkState::InProgress), false, Phase::Running, "", "");
        check(work(WorkState::InProgress), true, Phase::Cancelling, "", "");
        let undo = json!({"undo": {"ending": "Cancelled"}});
        check(
            WorkView { checkpoint: Some(undo), ..work(WorkState::InProgress) },
            true,
            Phase::Undoing,
            "",
            "",
        );
        let result = json!({"code": "Boom", "message": "it broke"});
        check(
            WorkView { result: Some(result.into()), ..work(WorkState::Failed) },
            false,
            Phase::Finished,
            "Boom",
            "it broke",
        );
        check(
            WorkView { result: Some(json!("text").into()), ..work(WorkState::Cancelled) },
            false,
            Phase::Finished,
            "",
            "text",
        );
    }

    #[test]
    fn a_given_status_text_is_shown_until_the_work_has_its_own() {
        let given = Manifest { status_text: "until Friday".to_owned(), ..manifest() };
        let check = |work: Option<WorkView>, expect: &str| {
            let shown = form(&given, at(50), work.as_ref(), None, &Names::new());
            assert_eq!(shown.status_text, expect, "{work:?}");
        };
        let (ours, theirs) = ("no response", "until Friday");
        check(None, theirs);
        check(Some(work(WorkState::Pending)), theirs);
        check(Some(work(WorkState::InProgress)), theirs);
        let waiting =
            json!({"waiting": {"code": "Unreachable", "message": ours, "since": "2026-01-01T00:00:00Z"}});
        check(Some(WorkView { checkpoint: Some(waiting), ..work(WorkState::Pending) }), ours);
        let result = Some(json!({"code": "Cancelled", "message": ours}).into());
        check(Some(WorkView { result: result.clone(), ..work(WorkState::Cancelled) }), theirs);
        let begun = WorkView { started: Some(at(60)), result, ..work(WorkState::Cancelled) };
        check(Some(begun.clone()), ours);
        check(Some(WorkView { state: WorkState::Failed, ..begun }), ours);
        check(Some(work(WorkState::Completed)), "");
    }

    #[test]
    fn the_signal_of_another_work_in_the_lane_is_not_ours() {
        let other = LaneView { running: Some(Uuid::from_u128(9)), ..lane(true) };
        let shown =
            form(&manifest(), at(50), Some(&work(WorkState::InProgress)), Some(&other), &Names::new());
        assert_eq!(shown.phase, Phase::Running);
    }

    #[test]
    fn an_expedited_manifest_shows_the_time_that_counts() {
        let shown = form(&manifest(), at(50), Some(&work(WorkState::Pending)), None, &Names::new());
        assert_eq!((shown.run_after, shown.run_before, shown.priority, shown.attempt), (0, 200, 4, 2));
    }
}
