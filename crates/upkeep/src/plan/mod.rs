//! What will run where and when over the coming time, by the rules that will run it.
//!
//! [`plan`] reads the fleet, its schedules and the live work; [`answer`] makes a world of it, plays it through
//! ([`simulate()`]) and tells the part that was asked for. What a schedule will want is said by the function by which the
//! scheduler makes it, and the order in which work runs is that of the queue.

mod observe;
pub mod simulate;
mod world;

#[cfg(test)]
mod tests;

use std::time::Duration;

use api::admin::{DurationFrom, PlanEntry, PlanForm, PlanOutcome};
use jiff::{SignedDuration, Timestamp};
use store::{Reader, StoreError};
use uuid::Uuid;

pub use observe::Observed;

use crate::task::Catalogue;
use simulate::{Held, Placed, simulate};
use world::{Board, Source};

/// What is asked of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// How far ahead.
    pub horizon: Duration,
    /// Only this cluster, by its resource id in any spelling.
    pub cluster: Option<String>,
    /// Only this schedule.
    pub schedule: Option<String>,
    /// Only this task.
    pub task: Option<Uuid>,
    /// So many entries are passed over.
    pub skip: usize,
    /// So many entries are told.
    pub limit: usize,
}

/// The plan, and where its next page begins.
pub async fn plan(
    reader: &Reader,
    catalogue: &Catalogue,
    question: &Question,
    now: Timestamp,
) -> Result<(PlanForm, Option<usize>), StoreError> {
    let to = end(now, question.horizon);
    let mut seen = Observed::gather(reader).await?;
    // A slot that is not among the live work was never made, or is at its end: a run that was cancelled or is over is not
    // planned once more.
    let doubtful = Board::new(&seen, catalogue, now, to).doubtful;
    seen.settle(reader, doubtful).await?;
    Ok(answer(&seen, catalogue, question, now))
}

/// The plan that follows from what was seen.
pub fn answer(
    seen: &Observed,
    catalogue: &Catalogue,
    question: &Question,
    now: Timestamp,
) -> (PlanForm, Option<usize>) {
    let to = end(now, question.horizon);
    let board = Board::new(seen, catalogue, now, to);
    let placed = simulate(board.world.clone(), now.as_microsecond(), to.as_microsecond());
    let wanted = question.cluster.as_ref().map(|it| it.to_lowercase());
    let asked_for = |it: &&Placed| {
        let source = &board.sources[it.piece.tag as usize];
        let cluster = &board.clusters[it.lane as usize];
        !source.is_operation
            && wanted.as_ref().is_none_or(|wanted| *wanted == cluster.to_lowercase())
            && question.schedule.as_ref().is_none_or(|it| source.schedule.as_ref() == Some(it))
            && question.task.is_none_or(|it| source.task == it)
    };
    let told: Vec<&Placed> = placed.iter().filter(asked_for).collect();
    let misses = told.iter().filter(|it| !it.runs).count() as u64;
    let last = question.skip.saturating_add(question.limit);
    let entries = told.iter().skip(question.skip).take(question.limit).map(|it| entry(&board, it)).collect();
    let next = (told.len() > last).then_some(last);
    (PlanForm { from: now, to, generated_at: now, misses, entries, next_link: String::new() }, next)
}

fn entry(board: &Board, placed: &Placed) -> PlanEntry {
    let piece = &placed.piece;
    let source: &Source = &board.sources[piece.tag as usize];
    PlanEntry {
        cluster: board.clusters[placed.lane as usize].clone(),
        schedule: source.schedule.clone(),
        task: source.task,
        manifest: source.is_there.then_some(piece.id),
        run_after: piece.due.div_euclid(1_000_000),
        start: time(placed.start),
        end: time(placed.end),
        duration_from: if source.from_history { DurationFrom::History } else { DurationFrom::Limit },
        outcome: if placed.runs { PlanOutcome::Runs } else { PlanOutcome::Misses },
        reason: reason(board, placed),
    }
}

/// Why it begins late, or not at all.
fn reason(board: &Board, placed: &Placed) -> Option<String> {
    let held = match placed.held {
        Held::Nothing => None,
        Held::Lane => Some("other work of the cluster goes first".to_owned()),
        Held::Budget(key) => {
            let (key, limit) = &board.budgets[usize::from(key)];
            Some(format!("budget {key} lets {limit} run at once"))
        }
        Held::Slots => Some("all slots of the actuators are taken".to_owned()),
    };
    match placed.runs {
        true => held,
        false => held.or(Some("its window closes before it can begin".to_owned())),
    }
}

fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

fn end(now: Timestamp, horizon: Duration) -> Timestamp {
    let span = SignedDuration::try_from(horizon).unwrap_or(SignedDuration::MAX);
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}
