//! The periods that count at an instant, and the slots that a cluster has in them.

use std::collections::VecDeque;
use std::time::Duration;

use api::doc::{MissedPolicy, SpreadBy};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::spread::{offset, position_in};
use super::{Member, Rule};

/// Of periods that are open at once, the latest so many are kept in view. More can be open only where manifests may begin
/// a thousand intervals late.
const OPEN_MAX: usize = 1000;

/// Older periods are not made up for. That they were made once is known only as long as their manifests are kept, which is
/// longer than this.
const LOOK_BACK_MAX: Duration = Duration::from_secs(30 * 86_400);

/// What counts of a rule's calendar at an instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Horizon {
    /// The instant.
    pub now: Timestamp,
    /// The open periods and the next ones, in order.
    pub periods: Vec<Period>,
    /// When it will be another: the next period's beginning.
    pub boundary: Option<Timestamp>,
}

/// One moment of a calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// When it begins.
    pub at: Timestamp,
    /// When its successor begins, where that matters.
    pub until: Option<Timestamp>,
    /// Whether its manifests are made when they are not there.
    pub creation: Creation,
}

/// Whether the manifests of a period are made when they are not there. Those that are there are kept anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// It has not begun.
    Always,
    /// It has begun: whoever had none then gets none. As MIMO: half a fleet is no period.
    Never,
    /// It is the latest that has begun, and missed ones are made up for: by those who were there when it began.
    IfMissed,
}

/// One manifest that a rule wants on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The manifest's id.
    pub id: Uuid,
    /// The beginning of its period.
    pub period: Timestamp,
    /// Not before.
    pub run_after: Timestamp,
    /// Not begun at or after.
    pub run_before: Timestamp,
    /// The priority.
    pub priority: i32,
    /// By which its parameters are told from others.
    pub parameters: u64,
    /// Whether it is made when it is not there; else it is only kept.
    pub create: bool,
}

impl Rule {
    /// The periods that count at `now`: the open ones, whose manifests may still have to begin, and the next
    /// `look_forward` ones.
    ///
    /// *All* open ones: a period is open while any of its manifests may begin, however many periods have begun since.
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

    /// The periods that have begun and whose manifests may still begin.
    fn open(&self, now: Timestamp) -> Vec<Timestamp> {
        let reach = self.across.saturating_add(self.start_within);
        let begun = self.calendars.after(earlier(now, reach)).take_while(|at| *at <= now);
        let mut open = VecDeque::new();
        for at in begun {
            if open.len() == OPEN_MAX {
                open.pop_front();
            }
            open.push_back(at);
        }
        open.into()
    }

    /// The latest period that has begun.
    fn latest(&self, now: Timestamp) -> Option<Timestamp> {
        let mut reach = Duration::from_secs(3600);
        loop {
            let begun = self.calendars.after(earlier(now, reach)).take_while(|at| *at <= now).last();
            if begun.is_some() || reach == LOOK_BACK_MAX {
                return begun;
            }
            reach = (reach * 4).min(LOOK_BACK_MAX);
        }
    }

    /// The slots that a cluster has in these periods; none when the rule is not for it or is disabled.
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
        let was_there = |at: Timestamp| at >= self.since && at >= member.created_at && at >= oldest;
        let slot = |period: &Period| {
            let run_after = later(period.at, offset);
            let closes = later(run_after, self.start_within);
            Slot {
                id: self.manifest_id(period.at, member.uuid),
                period: period.at,
                run_after,
                // What may be made up for may begin until its successor may.
                run_before: period.until.map_or(closes, |until| closes.max(later(until, offset))),
                priority: self.priority,
                parameters: self.parameters_hash,
                create: match period.creation {
                    Creation::Always => true,
                    Creation::Never => false,
                    Creation::IfMissed => was_there(period.at),
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
