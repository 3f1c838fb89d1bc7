//! Plans of the simulation, derived from the ids of manifests.

use std::sync::Arc;
use std::time::Duration;

use maintenance::actuator::Assignment;
use steps::engine::{Body, Plan, PollStatus, Step, StepContext, StepError, StepErrorKind, StepOutcome};
use tokio::time::sleep;

use super::random::Random;
use super::world::World;

/// Result of an action after it took effect.
#[derive(Debug, Clone, Copy)]
enum ActionResult {
    Succeeds,
    Fails { kind: StepErrorKind, times: u32 },
}

const NAMES: [&str; 4] = ["one", "two", "three", "four"];

pub(super) fn plan(assignment: Assignment<'_>) -> Result<Plan<World>, StepError> {
    let random = Random::new(assignment.manifest.id.as_u64_pair().1);
    if random.happens(30) {
        return Err(StepError::terminal("UnknownTask", "task ID not registered"));
    }
    let count = 1 + random.below(4);
    let steps = NAMES.iter().take(usize::try_from(count).unwrap_or(1)).map(|name| step(name, &random));
    Ok(steps.fold(Plan::new(), Plan::step))
}

/// Names of the steps with an undo.
pub(super) fn undoable(plan: &Plan<World>) -> Vec<String> {
    plan.steps.iter().filter(|step| step.undo.is_some()).map(|step| step.name.to_string()).collect()
}

fn step(name: &'static str, random: &Random) -> Step<World> {
    let takes = match random.below(3) {
        0 => Duration::ZERO,
        1 => random.millis(2_000),
        _ => random.millis(45_000),
    };
    let mut step = match random.below(10) {
        0..4 => action(name, takes, ActionResult::Succeeds),
        4..7 => waiting(name, 1 + random.below(4)),
        7 => {
            let times = 1 + u32::try_from(random.below(2)).unwrap_or(0);
            action(name, takes, ActionResult::Fails { kind: StepErrorKind::Transient, times })
        }
        8 => action(name, takes, ActionResult::Fails { kind: StepErrorKind::Unreachable, times: 1 }),
        _ if random.happens(300) => {
            action(name, takes, ActionResult::Fails { kind: StepErrorKind::Terminal, times: u32::MAX })
        }
        _ => action(name, takes, ActionResult::Succeeds),
    };
    step.safe_point = random.happens(800);
    if random.happens(200) {
        step.timeout = Duration::from_secs(20);
    }
    if random.happens(700) && matches!(step.body, Body::Action(_)) {
        let takes = random.millis(3_000);
        let fails = if random.happens(300) { 1 + u32::try_from(random.below(3)).unwrap_or(0) } else { 0 };
        step = step.undo(move |world: Arc<World>, cx, _| async move {
            let _here = world.enter(&cx, true).await;
            sleep(takes).await;
            if world.undo_fails(&cx, fails) {
                return Err(StepError::new(StepErrorKind::Unreachable, "Simulated", "no answer"));
            }
            world.undone(&cx);
            Ok(Some(format!("{} was undone", cx.step)))
        });
    }
    step
}

fn action(name: &'static str, takes: Duration, result: ActionResult) -> Step<World> {
    Step::action(name, move |world: Arc<World>, cx: StepContext| async move {
        let _here = world.enter(&cx, false).await;
        if !takes.is_zero() {
            sleep(takes).await;
        }
        match result {
            ActionResult::Fails { kind, times } if world.fails(&cx, times) => {
                Err(StepError::new(kind, "Simulated", "scripted failure"))
            }
            ActionResult::Succeeds | ActionResult::Fails { .. } => {
                Ok(StepOutcome::with_message(format!("{} is done", cx.step)))
            }
        }
    })
}

fn waiting(name: &'static str, polls: u64) -> Step<World> {
    Step::wait(name, Duration::from_secs(120), move |world: Arc<World>, cx: StepContext| async move {
        let _here = world.at_work(cx.hold, true);
        sleep(Duration::from_millis(5)).await;
        let times = u32::try_from(polls).unwrap_or(1);
        Ok(if world.fails(&cx, times) {
            PollStatus::Waiting("waiting for more polls".to_owned())
        } else {
            PollStatus::Done(StepOutcome::default())
        })
    })
}
