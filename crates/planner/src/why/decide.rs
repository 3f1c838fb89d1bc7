//! Reasons why a manifest has not started or waits.

use api::admin::{Blocker, BlockerCode, Owner, Verdict, WhyForm};
use api::doc::Manifest;
use api::health::HealthSample;
use api::queue::{Budget, WorkView, holds_lane};
use api::work::{WorkKind, WorkState};
use jiff::Timestamp;
use steps::engine::{Journal, WaitingCode};
use uuid::Uuid;

/// Facts that determine whether a manifest can start.
#[derive(Debug, Clone)]
pub struct ManifestFacts {
    /// The manifest.
    pub manifest: Manifest,
    /// Work of the manifest.
    pub work: WorkView,
    /// Other work that runs on its cluster.
    pub running: Option<OtherWork>,
    /// Pending work of its cluster ahead of it, in order.
    pub ahead: Vec<OtherWork>,
    /// Whether more work is ahead of it than was read.
    pub more_ahead: bool,
    /// All budgets with a limit.
    pub budgets: Vec<Budget>,
    /// Budget key of its task, with the name of the task.
    pub task_budget: String,
    /// Last health sample of its cluster.
    pub health: Option<HealthSample>,
    /// Unmet requirement of the task.
    pub unmet: Option<String>,
    /// Number of running actuators.
    pub actuators: usize,
}

/// Other work on the same cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherWork {
    /// Work id.
    pub id: Uuid,
    /// Kind of work.
    pub kind: WorkKind,
    /// Due time.
    pub due_at: Timestamp,
    /// Start time.
    pub started: Option<Timestamp>,
    /// Whether it waits for a budget that blocks only this work, not its lane.
    pub is_aside: bool,
}

impl OtherWork {
    /// Extracts the facts of other work.
    pub fn new(work: &WorkView, budgets: &[Budget]) -> OtherWork {
        let is_aside = is_aside(work, budgets);
        OtherWork { id: work.id, kind: work.kind, due_at: work.due_at, started: work.started, is_aside }
    }
}

/// Whether only budgets of its own block the work. The queue then sets fresh work aside, and other work of the cluster continues.
fn is_aside(work: &WorkView, budgets: &[Budget]) -> bool {
    let fresh = work.state == WorkState::Pending && work.kind == WorkKind::Manifest;
    let fresh = fresh && !work.ending && !Journal::read(work.checkpoint.as_ref()).has_begun();
    let is_full = |it: &&Budget| it.used >= it.limit && work.budgets.contains(&it.key);
    let mut full = budgets.iter().filter(is_full).map(|it| holds_lane(&it.key)).peekable();
    fresh && full.peek().is_some() && !full.any(|holds_lane| holds_lane)
}

/// Explains a manifest with every blocker, not only the first.
pub fn decide(facts: &ManifestFacts, now: Timestamp) -> WhyForm {
    let verdict = match facts.work.state {
        WorkState::Pending => None,
        WorkState::InProgress => Some(Verdict::Running),
        WorkState::Completed
        | WorkState::Failed
        | WorkState::RetriesExceeded
        | WorkState::TimedOut
        | WorkState::Cancelled => Some(Verdict::Finished),
    };
    let journal = Journal::read(facts.work.checkpoint.as_ref());
    let blockers = match verdict {
        None => blockers(facts, now),
        Some(Verdict::Running) => running_blockers(facts, &journal, now),
        Some(_) => Vec::new(),
    };
    let earliest_start = match blockers.iter().map(|it| it.until).collect::<Option<Vec<_>>>() {
        Some(untils) if verdict.is_none() => untils.into_iter().max(),
        _ => None,
    };
    let verdict = verdict.unwrap_or(if blockers.is_empty() { Verdict::Ready } else { Verdict::Blocked });
    WhyForm {
        manifest: facts.manifest.id,
        state: facts.work.state,
        verdict,
        earliest_start,
        undoing: verdict != Verdict::Finished && journal.is_undoing(),
        step: journal.step.filter(|it| verdict != Verdict::Finished && !it.name.is_empty()),
        blockers,
    }
}

/// What running work waits for, as last reported, and an operation that will preempt it.
fn running_blockers(facts: &ManifestFacts, journal: &Journal, now: Timestamp) -> Vec<Blocker> {
    let reported = journal.step.iter().flat_map(|step| &step.waiting_for).map(|it| Blocker {
        code: BlockerCode::StepWaiting,
        message: format!("{} {}", it.what, it.message),
        owner: it.owner,
        since: Some(it.since),
        until: None,
    });
    let mut all: Vec<Blocker> = reported.collect();
    all.extend(operation(facts, now).map(|blocker| Blocker {
        message: format!("{}, at the next safe point", blocker.message),
        ..blocker
    }));
    all
}

fn blockers(facts: &ManifestFacts, now: Timestamp) -> Vec<Blocker> {
    let mut all = Vec::new();
    all.extend(due_time(facts, now));
    all.extend(busy(facts, now));
    all.extend(operation(facts, now));
    all.extend(budgets(facts));
    all.extend(unreachable(facts));
    // Requirements are checked only before the first step.
    let started = Journal::read(facts.work.checkpoint.as_ref()).has_begun();
    all.extend(facts.unmet.as_ref().filter(|_| !started).map(|unmet| Blocker {
        code: BlockerCode::Precondition,
        message: unmet.clone(),
        owner: Owner::Customer,
        since: None,
        until: None,
    }));
    if facts.actuators == 0 {
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

/// The manifest is not due, or backs off after a failed attempt.
fn due_time(facts: &ManifestFacts, now: Timestamp) -> Option<Blocker> {
    if facts.work.due_at <= now {
        return None;
    }
    let journal = Journal::read(facts.work.checkpoint.as_ref());
    match journal.waiting() {
        // The cause of the wait is a blocker of its own while it lasts.
        Some(waiting) if waiting.code == WaitingCode::Unreachable && unreachable(facts).is_some() => None,
        Some(waiting) if waiting.code == WaitingCode::Precondition && facts.unmet.is_some() => None,
        Some(waiting) if waiting.code != WaitingCode::BackingOff => Some(Blocker {
            code: BlockerCode::BackingOff,
            message: format!("it continues at {}: {}", second(facts.work.due_at), waiting.message),
            owner: Owner::System,
            since: Some(waiting.since),
            until: Some(facts.work.due_at),
        }),
        Some(waiting) => Some(Blocker {
            code: BlockerCode::BackingOff,
            message: format!(
                "attempt {} failed ({}); the next starts at {}",
                facts.work.attempt,
                waiting.message,
                second(facts.work.due_at)
            ),
            owner: Owner::System,
            since: Some(waiting.since),
            until: Some(facts.work.due_at),
        }),
        None => Some(Blocker {
            code: BlockerCode::NotDue,
            message: format!("it is due at {}", second(facts.work.due_at)),
            owner: match facts.manifest.created_by_schedule {
                Some(_) => Owner::Schedule,
                None => Owner::Operator,
            },
            since: None,
            until: Some(facts.work.due_at),
        }),
    }
}

/// Other work runs on the cluster, or is due and goes first.
fn busy(facts: &ManifestFacts, now: Timestamp) -> Option<Blocker> {
    let (text, since) = match facts.running {
        Some(running) => (format!("{} {} runs on the cluster", running.kind, running.id), running.started),
        None => {
            let first = ahead(facts).find(|it| it.due_at <= now)?;
            (format!("{} {} is ahead of it on the cluster", first.kind, first.id), None)
        }
    };
    let others = ahead(facts).count();
    let others = others - usize::from(facts.running.is_none() && others > 0);
    let message = match others {
        0 => text,
        _ if facts.more_ahead => format!("{text}, and at least {others} more manifests are ahead of it"),
        1 => format!("{text}, and 1 more manifest is ahead of it"),
        _ => format!("{text}, and {others} more manifests are ahead of it"),
    };
    Some(Blocker { code: BlockerCode::ClusterBusy, message, owner: Owner::System, since, until: None })
}

/// Manifests that go first, without those that wait for a budget of their own.
fn ahead(facts: &ManifestFacts) -> impl Iterator<Item = &OtherWork> {
    facts.ahead.iter().filter(|it| it.kind == WorkKind::Manifest && !it.is_aside)
}

fn operation(facts: &ManifestFacts, now: Timestamp) -> Option<Blocker> {
    let first = facts.ahead.iter().find(|it| it.kind == WorkKind::Operation && it.due_at <= now)?;
    Some(Blocker {
        code: BlockerCode::OperationPending,
        message: format!("the customer's operation {} goes first", first.id),
        owner: Owner::Customer,
        since: None,
        until: None,
    })
}

/// One blocker for each full budget.
fn budgets(facts: &ManifestFacts) -> Vec<Blocker> {
    // Work that is being undone or cancelled ignores full budgets, as in the queue.
    let counted = |it: &&Budget| !facts.work.ending && facts.work.budgets.contains(&it.key);
    let full = facts.budgets.iter().filter(counted).filter(|it| it.used >= it.limit);
    let name = |it: &Budget| match it.key.starts_with("task/") {
        true => facts.task_budget.clone(),
        false => it.key.clone(),
    };
    full.map(|budget| Blocker {
        code: BlockerCode::BudgetFull,
        message: match budget.limit {
            0 => format!("budget {} is 0: no new run starts", name(budget)),
            limit => format!("budget {} is full: {} of {limit} run", name(budget), budget.used),
        },
        owner: if budget.limit == 0 { Owner::Operator } else { Owner::System },
        since: None,
        until: None,
    })
    .collect()
}

fn unreachable(facts: &ManifestFacts) -> Option<Blocker> {
    let health = facts.health.as_ref().filter(|it| !it.reachable)?;
    let cause = health.details.message.as_deref().unwrap_or_default();
    let message = match cause {
        "" => format!("the cluster's API server has been unreachable since {}", second(health.since)),
        cause => {
            format!("the cluster's API server has been unreachable since {}: {cause}", second(health.since))
        }
    };
    let (owner, since) = (Owner::Customer, Some(health.since));
    Some(Blocker { code: BlockerCode::Unreachable, message, owner, since, until: None })
}

/// Formats a time without fractions of a second.
fn second(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
