use std::collections::HashSet;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::engine::{CompletedStep, PollStatus, Step, StepOutcome, UndoState};

const WORK: Uuid = Uuid::from_u128(0x1234);

fn plan(names: &[&str]) -> Plan<()> {
    names.iter().fold(Plan::new(), |plan, name| {
        plan.step(
            Step::action(*name, |_, _| async { Ok(StepOutcome::default()) })
                .undo(|_, _, _| async { Ok(None) }),
        )
    })
}

fn done(names: &[&str]) -> Journal {
    let done = |name: &&str| CompletedStep { name: (*name).into(), ..CompletedStep::default() };
    Journal { done: names.iter().map(done).collect(), ..Journal::default() }
}

fn undoing(journal: Journal, step: Option<&str>, settled: &[&str]) -> Journal {
    let undo = UndoState {
        step: step.map(StepName::from),
        settled: settled.iter().map(|it| StepName::from(*it)).collect(),
        ..UndoState::new(Ending::Cancelled, "", "")
    };
    Journal { undo: Some(undo), ..journal }
}

fn waiting(code: WaitingCode, times: u32) -> WaitState {
    WaitState {
        code,
        message: String::new(),
        since: Timestamp::UNIX_EPOCH,
        times,
        logged: 0,
        customer_failures: 0,
    }
}

#[test]
fn a_plan_continues_after_completed_steps_and_a_changed_plan_is_matched_by_name() {
    let check = |steps: &[&str], over: &[&str], expect| {
        assert_eq!(next_step(&plan(steps), &done(over)), expect, "{steps:?} after {over:?}");
    };
    check(&["a", "b", "c"], &[], Some(0));
    check(&["a", "b", "c"], &["a"], Some(1));
    check(&["a", "b", "c"], &["a", "b", "c"], None);
    check(&["a", "c"], &["a", "b"], Some(1));
    check(&["new", "a", "b"], &["a"], Some(0));
    check(&["new", "a", "b"], &["a", "new"], Some(2));
    check(&[], &["a"], None);
}

#[test]
fn work_is_released_only_at_safe_points() {
    let mut plan = plan(&["a", "b"]);
    plan.steps[0].safe_point = false;
    plan = plan
        .step(Step::wait("c", Duration::ZERO, |_, _| async { Ok(PollStatus::Done(StepOutcome::default())) }));
    assert!(is_safe_before(&plan, 0, false));
    assert!(!is_safe_before(&plan, 1, false), "the step before is no safe point");
    assert!(
        is_safe_before(&plan, 2, false) && is_safe_before(&plan, 2, true),
        "a wait may be left at any time"
    );
    assert!(!is_safe_before(&plan, 0, true), "an action may be half done");
}

#[test]
fn only_transient_errors_are_retried_and_the_delay_doubles() {
    let retry = Retry { attempts: 4, backoff: Duration::from_secs(2) };
    let pauses: Vec<_> =
        (1..=4).map(|tried| next_try_delay(StepErrorKind::Transient, tried, retry, None)).collect();
    let seconds = |it| Some(Duration::from_secs(it));
    assert_eq!(pauses, [seconds(2), seconds(4), seconds(8), None]);
    for kind in [StepErrorKind::Terminal, StepErrorKind::Unreachable, StepErrorKind::Precondition] {
        assert_eq!(next_try_delay(kind, 1, retry, None), None);
    }
    let wished = next_try_delay(StepErrorKind::Transient, 1, retry, Some(Duration::from_secs(9)));
    assert_eq!(wished, seconds(9));
}

#[test]
fn an_error_of_each_kind_has_its_decision() {
    let check = |kind, attempt, before: Option<WaitState>| {
        decide_attempt(&StepError::new(kind, "X", "x"), attempt, 5, before.as_ref(), WORK)
    };
    assert_eq!(check(StepErrorKind::Terminal, 1, None), AttemptDecision::End(Ending::Failed));
    assert_eq!(check(StepErrorKind::Transient, 5, None), AttemptDecision::End(Ending::RetriesExceeded));
    assert!(matches!(
        check(StepErrorKind::Transient, 4, None),
        AttemptDecision::Rest { code: WaitingCode::BackingOff, spent: true, .. }
    ));
    let parked = |kind, before| match check(kind, 5, before) {
        AttemptDecision::Rest { rest, spent: false, .. } => rest.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(parked(StepErrorKind::Precondition, None), 60);
    let unreachable =
        |times| parked(StepErrorKind::Unreachable, Some(waiting(WaitingCode::Unreachable, times)));
    assert_eq!([1, 2, 3, 4, 40].map(unreachable), [60, 120, 240, 300, 300]);
    assert_eq!(parked(StepErrorKind::Unreachable, Some(waiting(WaitingCode::BackingOff, 7))), 30);
}

#[test]
fn the_interrupted_step_is_undone_first_then_the_last_completed_one() {
    let check = |journal, expect: &[usize]| {
        assert_eq!(undo_order(&plan(&["a", "b", "c"]), &journal), expect, "{journal:?}");
    };
    check(done(&["a", "b"]), &[]);
    check(undoing(done(&["a", "b"]), Some("c"), &[]), &[2, 1, 0]);
    check(undoing(done(&["a", "b"]), None, &[]), &[1, 0]);
    check(undoing(done(&["a", "b"]), Some("c"), &["c", "b"]), &[0]);
    check(undoing(done(&["gone", "a"]), Some("b"), &[]), &[1, 0]);
}

proptest! {
    #[test]
    fn a_backoff_grows_stays_within_its_bounds_and_differs_between_works(attempt in 1..200_i32, a: u128, b: u128) {
        let (one, two) = (Uuid::from_u128(a), Uuid::from_u128(b));
        let rest = retry_backoff(attempt, one);
        prop_assert!(rest >= BACK_OFF.mul_f64(0.79) && rest <= BACK_OFF_MAX, "{:?}", rest);
        prop_assert!(retry_backoff(attempt + 1, one) >= rest);
        if attempt < 5 && a as u16 != b as u16 {
            prop_assert_ne!(rest, retry_backoff(attempt, two));
        }
    }

    #[test]
    fn a_resumed_plan_completes_every_step_once_whatever_was_done_before(
        steps in proptest::collection::hash_set("[a-f]", 0..6),
        over in proptest::collection::hash_set("[a-h]", 0..8),
    ) {
        let names: Vec<&str> = steps.iter().map(String::as_str).collect();
        let plan = plan(&names);
        let mut journal = done(&over.iter().map(String::as_str).collect::<Vec<_>>());
        let mut ran = HashSet::new();
        while let Some(index) = next_step(&plan, &journal) {
            let name = plan.steps[index].name.clone();
            prop_assert!(!over.contains(name.as_str()) && ran.insert(name.clone()));
            journal.done.push(CompletedStep { name, ..CompletedStep::default() });
        }
        prop_assert_eq!(ran.len(), steps.difference(&over).count());
    }

    #[test]
    fn everything_started_is_undone_once_in_reverse_order(
        count in 0..6_usize,
        open: bool,
        settled in proptest::collection::vec(0..6_usize, 0..4),
    ) {
        let all = ["a", "b", "c", "d", "e", "f"];
        let settled: Vec<&str> = settled.iter().map(|index| all[*index]).collect();
        let journal = undoing(done(&all[..count]), open.then(|| all[count]), &settled);
        let order = undo_order(&plan(&all), &journal);
        prop_assert!(order.is_sorted_by(|one, two| one > two));
        let begun = count + usize::from(open);
        let expect = (0..begun).filter(|index| !settled.contains(&all[*index])).count();
        prop_assert_eq!(order.len(), expect);
    }
}
