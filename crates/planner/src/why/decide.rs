//! From what was read to what is answered.

use api::admin::{Blocker, BlockerCode, Owner, Verdict, WhyForm};
use api::doc::Manifest;
use api::health::HealthSample;
use api::queue::{Budget, WorkView, holds_lane};
use api::work::{WorkKind, WorkState};
use jiff::Timestamp;
use steps::engine::{Journal, WaitingCode};
use uuid::Uuid;

/// All that decides whether a manifest can begin.
#[derive(Debug, Clone)]
pub struct ManifestFacts {
    /// What was asked.
    pub manifest: Manifest,
    /// How it fares.
    pub work: WorkView,
    /// What runs on its cluster, if that is something else.
    pub running: Option<OtherWork>,
    /// What is pending on its cluster and goes before it, in order.
    pub ahead: Vec<OtherWork>,
    /// Whether more goes before it than was looked at.
    pub more_ahead: bool,
    /// Every configured limit.
    pub budgets: Vec<Budget>,
    /// The budget of its task, as people write it.
    pub task_budget: String,
    /// How its cluster was when it was last looked at.
    pub health: Option<HealthSample>,
    /// What the task requires of the cluster and is not so, in a sentence.
    pub unmet: Option<String>,
    /// How many actuators there are.
    pub actuators: usize,
}

/// OtherWork work on the same cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherWork {
    /// Its id.
    pub id: Uuid,
    /// Whose work it is.
    pub kind: WorkKind,
    /// When it can run.
    pub due_at: Timestamp,
    /// Since when it runs.
    pub started: Option<Timestamp>,
    /// Whether it waits for a budget that holds up nothing else of its cluster.
    pub is_aside: bool,
}

impl OtherWork {
    /// What matters of other work.
    pub fn new(work: &WorkView, budgets: &[Budget]) -> OtherWork {
        let is_aside = is_aside(work, budgets);
        OtherWork { id: work.id, kind: work.kind, due_at: work.due_at, started: work.started, is_aside }
    }
}

/// Whether only budgets of its own hold work up. The queue sets fresh work aside then, and its cluster's other work goes on.
fn is_aside(work: &WorkView, budgets: &[Budget]) -> bool {
    let fresh = work.state == WorkState::Pending && work.kind == WorkKind::Manifest;
    let fresh = fresh && !work.ending && !Journal::read(work.checkpoint.as_ref()).has_begun();
    let is_full = |it: &&Budget| it.used >= it.limit && work.budgets.contains(&it.key);
    let mut full = budgets.iter().filter(is_full).map(|it| holds_lane(&it.key)).peekable();
    fresh && full.peek().is_some() && !full.any(|holds_lane| holds_lane)
}

/// Every blocker, not the first.
pub fn decide(seen: &ManifestFacts, now: Timestamp) -> WhyForm {
    let verdict = match seen.work.state {
        WorkState::Pending => None,
        WorkState::InProgress => Some(Verdict::Running),
        WorkState::Completed
        | WorkState::Failed
        | WorkState::RetriesExceeded
        | WorkState::TimedOut
        | WorkState::Cancelled => Some(Verdict::Finished),
    };
    let journal = Journal::read(seen.work.checkpoint.as_ref());
    let blockers = match verdict {
        None => blockers(seen, now),
        Some(Verdict::Running) => obstacles(seen, &journal, now),
        Some(_) => Vec::new(),
    };
    let earliest_start = match blockers.iter().map(|it| it.until).collect::<Option<Vec<_>>>() {
        Some(untils) if verdict.is_none() => untils.into_iter().max(),
        _ => None,
    };
    let verdict = verdict.unwrap_or(if blockers.is_empty() { Verdict::Ready } else { Verdict::Blocked });
    WhyForm {
        manifest: seen.manifest.id,
        state: seen.work.state,
        verdict,
        earliest_start,
        undoing: verdict != Verdict::Finished && journal.is_undoing(),
        step: journal.step.filter(|it| verdict != Verdict::Finished && !it.name.is_empty()),
        blockers,
    }
}

/// What running work waits for, as it last reported; and the operation that it will let go first.
fn obstacles(seen: &ManifestFacts, journal: &Journal, now: Timestamp) -> Vec<Blocker> {
    let reported = journal.step.iter().flat_map(|step| &step.waiting_for).map(|it| Blocker {
        code: BlockerCode::StepWaiting,
        message: format!("{} {}", it.what, it.message),
        owner: it.owner,
        since: Some(it.since),
        until: None,
    });
    let mut all: Vec<Blocker> = reported.collect();
    all.extend(operation(seen, now).map(|blocker| Blocker {
        message: format!("{}, at the next safe point", blocker.message),
        ..blocker
    }));
    all
}

fn blockers(seen: &ManifestFacts, now: Timestamp) -> Vec<Blocker> {
    let mut all = Vec::new();
    all.extend(time(seen, now));
    all.extend(busy(seen, now));
    all.extend(operation(seen, now));
    all.extend(budgets(seen));
    all.extend(unreachable(seen));
    // What a task requires is asked before its first step, and not again.
    let begun = Journal::read(seen.work.checkpoint.as_ref()).has_begun();
    all.extend(seen.unmet.as_ref().filter(|_| !begun).map(|unmet| Blocker {
        code: BlockerCode::Precondition,
        message: unmet.clone(),
        owner: Owner::Customer,
        since: None,
        until: None,
    }));
    if seen.actuators == 0 {
        all.push(Blocker {
            code: BlockerCode::NoActuator,
            message: "no actuator is running; start one with `shipshape actuator` or `shipshape up`"
                .to_owned(),
            owner: Owner::Operator,
            since: None,
            until: None,
        });
    }
    all
}

/// Its time has not come, or it rests after a failed attempt.
fn time(seen: &ManifestFacts, now: Timestamp) -> Option<Blocker> {
    if seen.work.due_at <= now {
        return None;
    }
    let journal = Journal::read(seen.work.checkpoint.as_ref());
    match journal.waiting() {
        // It is parked; what it is parked for is a blocker of its own, for as long as that is so.
        Some(waiting) if waiting.code == WaitingCode::Unreachable && unreachable(seen).is_some() => None,
        Some(waiting) if waiting.code == WaitingCode::Precondition && seen.unmet.is_some() => None,
        Some(waiting) if waiting.code != WaitingCode::BackingOff => Some(Blocker {
            code: BlockerCode::BackingOff,
            message: format!("it is taken up again at {}: {}", second(seen.work.due_at), waiting.message),
            owner: Owner::System,
            since: Some(waiting.since),
            until: Some(seen.work.due_at),
        }),
        Some(waiting) => Some(Blocker {
            code: BlockerCode::BackingOff,
            message: format!(
                "attempt {} failed ({}); the next begins at {}",
                seen.work.attempt,
                waiting.message,
                second(seen.work.due_at)
            ),
            owner: Owner::System,
            since: Some(waiting.since),
            until: Some(seen.work.due_at),
        }),
        None => Some(Blocker {
            code: BlockerCode::NotDue,
            message: format!("it may begin at {} at the earliest", second(seen.work.due_at)),
            owner: match seen.manifest.created_by_schedule {
                Some(_) => Owner::Schedule,
                None => Owner::Operator,
            },
            since: None,
            until: Some(seen.work.due_at),
        }),
    }
}

/// OtherWork work runs on the cluster, or is due and goes first.
fn busy(seen: &ManifestFacts, now: Timestamp) -> Option<Blocker> {
    let (word, since) = match seen.running {
        Some(running) => (format!("{} {} runs on the cluster", running.kind, running.id), running.started),
        None => {
            let first = ahead(seen).find(|it| it.due_at <= now)?;
            (format!("{} {} goes before it on the cluster", first.kind, first.id), None)
        }
    };
    let others = ahead(seen).count();
    let others = others - usize::from(seen.running.is_none() && others > 0);
    let message = match others {
        0 => word,
        _ if seen.more_ahead => format!("{word}, and at least {others} more manifests go before it"),
        1 => format!("{word}, and 1 more manifest goes before it"),
        _ => format!("{word}, and {others} more manifests go before it"),
    };
    Some(Blocker { code: BlockerCode::ClusterBusy, message, owner: Owner::System, since, until: None })
}

/// The manifests that go first: not those that wait for a budget of their own.
fn ahead(seen: &ManifestFacts) -> impl Iterator<Item = &OtherWork> {
    seen.ahead.iter().filter(|it| it.kind == WorkKind::Manifest && !it.is_aside)
}

fn operation(seen: &ManifestFacts, now: Timestamp) -> Option<Blocker> {
    let first = seen.ahead.iter().find(|it| it.kind == WorkKind::Operation && it.due_at <= now)?;
    Some(Blocker {
        code: BlockerCode::OperationPending,
        message: format!("the customer's operation {} goes first", first.id),
        owner: Owner::Customer,
        since: None,
        until: None,
    })
}

/// One for each limit that leaves no room.
fn budgets(seen: &ManifestFacts) -> Vec<Blocker> {
    // What is on its way to its end passes a full budget, as in the queue.
    let counted = |it: &&Budget| !seen.work.ending && seen.work.budgets.contains(&it.key);
    let full = seen.budgets.iter().filter(counted).filter(|it| it.used >= it.limit);
    let name = |it: &Budget| match it.key.starts_with("task/") {
        true => seen.task_budget.clone(),
        false => it.key.clone(),
    };
    full.map(|budget| Blocker {
        code: BlockerCode::BudgetFull,
        message: match budget.limit {
            0 => format!("budget {} is 0: new starts are stopped", name(budget)),
            limit => format!("budget {} is full: {} of {limit} run", name(budget), budget.used),
        },
        owner: if budget.limit == 0 { Owner::Operator } else { Owner::System },
        since: None,
        until: None,
    })
    .collect()
}

fn unreachable(seen: &ManifestFacts) -> Option<Blocker> {
    let health = seen.health.as_ref().filter(|it| !it.reachable)?;
    let why = health.details.message.as_deref().unwrap_or_default();
    let message = match why {
        "" => format!("the cluster's API server has not answered since {}", second(health.since)),
        why => format!("the cluster's API server has not answered since {}: {why}", second(health.since)),
    };
    let (owner, since) = (Owner::Customer, Some(health.since));
    Some(Blocker { code: BlockerCode::Unreachable, message, owner, since, until: None })
}

/// A time for people, without fractions of a second.
fn second(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
