//! Current and next periods of a schedule, and the slots of a cluster in them.

use std::collections::VecDeque;
use std::time::Duration;

use api::doc::{MissedPolicy, SpreadBy};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::spread::{offset, position_in};
use super::{Member, Rule};

/// Most open periods that are considered, the latest ones. More are open only if the start window is longer than a thousand
/// intervals.
const OPEN_MAX: usize = 1000;

/// Oldest missed period that is made up for. Manifests are retained longer than this, so it is known which periods had some.
const LOOK_BACK_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Periods of a rule that matter at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Horizon {
    /// The time.
    pub now: Timestamp,
    /// Open periods and the next ones, in order.
    pub periods: Vec<Period>,
    /// Start of the next period, when the horizon changes.
    pub boundary: Option<Timestamp>,
}

/// Period of a calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// Start.
    pub at: Timestamp,
    /// Start of the following period, if missed periods are made up for.
    pub until: Option<Timestamp>,
    /// Whether missing manifests are created.
    pub creation: Creation,
}

/// Whether missing manifests of a period are created. Existing ones stay in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// The period has not started.
    Always,
    /// The period has started: clusters without a manifest get none, as in MIMO, so that no period covers half a fleet.
    Never,
    /// The latest started period, with the policy to make up for missed ones: for clusters that existed at its start.
    IfMissed,
}

/// Desired manifest of a rule on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Manifest id.
    pub id: Uuid,
    /// Start of its period.
    pub period: Timestamp,
    /// Earliest start.
    pub run_after: Timestamp,
    /// End of the start window.
    pub run_before: Timestamp,
    /// Priority.
    pub priority: i32,
    /// Hash of the parameters.
    pub parameters: u64,
    /// Whether it is created if missing; otherwise only an existing one stays.
    pub create: bool,
}

impl Rule {
    /// Periods that matter at `now`: the open ones, whose manifests may still start, and the next `look_forward` ones.
    ///
    /// A period is open while any of its manifests may start, even if later periods have started.
    pub fn horizon(&self, now: Timestamp) -> Horizon {
        let mut open = self.open(now);
        let ahead: Vec<Timestamp> = self.calendars.after(now).take(self.look_forward).collect();
        let boundary = ahead.first().copied();
        let makes_up = self.missed == MissedPolicy::RunOnce;
        if makes_up && open.is_empty() {
            open.extend(self.latest(now));
        }
        let latest = open.last().copied();
        let mut periods = Vec::with_capacity(open.len() + ahead.len());
        for at in open.iter().chain(&ahead).copied() {
            let until = if makes_up { self.calendars.next_after(at) } else { None };
            let creation = match at {
                at if at > now => Creation::Always,
                at if makes_up && Some(at) == latest => Creation::IfMissed,
                _ => Creation::Never,
            };
            periods.push(Period { at, until, creation });
        }
        Horizon { now, periods, boundary }
    }

    /// Started periods whose manifests may still start.
    fn open(&self, now: Timestamp) -> Vec<Timestamp> {
        let reach = self.across.saturating_add(self.start_within);
        let started = self.calendars.after(earlier(now, reach)).take_while(|at| *at <= now);
        let mut open = VecDeque::new();
        for at in started {
            if open.len() == OPEN_MAX {
                open.pop_front();
            }
            open.push_back(at);
        }
        open.into()
    }

    /// The latest started period.
    fn latest(&self, now: Timestamp) -> Option<Timestamp> {
        let mut reach = Duration::from_secs(3600);
        loop {
            let started = self.calendars.after(earlier(now, reach)).take_while(|at| *at <= now).last();
            if started.is_some() || reach == LOOK_BACK_MAX {
                return started;
            }
            reach = (reach * 4).min(LOOK_BACK_MAX);
        }
    }

    /// Slots of a cluster in these periods; none if the rule does not select it or is disabled.
    pub fn desired_slots(&self, horizon: &Horizon, member: &Member) -> Vec<Slot> {
        if !self.enabled || !self.selects(member) {
            return Vec::new();
        }
        let position = match self.spread_by {
            SpreadBy::Cluster => member.position,
            SpreadBy::Schedule => position_in(&self.id, member.uuid),
        };
        let offset = offset(position, self.across);
        let oldest = earlier(horizon.now, LOOK_BACK_MAX);
        let existed = |at: Timestamp| at >= self.since && at >= member.created_at && at >= oldest;
        let slot = |period: &Period| {
            let run_after = later(period.at, offset);
            let closes = later(run_after, self.start_within);
            Slot {
                id: self.manifest_id(period.at, member.uuid),
                period: period.at,
                run_after,
                // A manifest that may be made up for can start until its successor can.
                run_before: period.until.map_or(closes, |until| closes.max(later(until, offset))),
                priority: self.priority,
                parameters: self.parameters_hash,
                create: match period.creation {
                    Creation::Always => true,
                    Creation::Never => false,
                    Creation::IfMissed => existed(period.at),
                },
            }
        };
        horizon.periods.iter().map(slot).filter(|slot| slot.run_before > horizon.now).collect()
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| at.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| at.checked_sub(by).ok()).unwrap_or(Timestamp::MIN)
}
