//! Random lives of one schedule and one cluster: after each pass, what is pending is what is wanted.

use std::collections::{HashMap, HashSet};

use super::super::{ManifestStatus, Member, Rule, Window, decide};
use super::{at, cluster, rule, schedule};
use api::doc::{MissedPolicy, ScheduleState};
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;
use uuid::Uuid;

#[derive(Debug, Clone)]
enum Event {
    Timing(u8),
    Across(u16),
    Disable,
    Enable,
    Priority(i32),
    Location(bool),
    Cancel(prop::sample::Index),
    Begin(prop::sample::Index),
    Wait(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..4_u8).prop_map(Event::Timing),
        (0..7200_u16).prop_map(Event::Across),
        Just(Event::Disable),
        Just(Event::Enable),
        (-2..3).prop_map(Event::Priority),
        any::<bool>().prop_map(Event::Location),
        any::<prop::sample::Index>().prop_map(Event::Cancel),
        any::<prop::sample::Index>().prop_map(Event::Begin),
        (0..200_000_u32).prop_map(Event::Wait),
        (0..200_000_u32).prop_map(Event::Wait),
    ]
}

/// Manifests as the store would hold them.
#[derive(Default)]
struct StoredManifests {
    known: HashMap<Uuid, ManifestStatus>,
    made: Vec<Uuid>,
    cancelled: HashSet<Uuid>,
}

impl StoredManifests {
    fn pass(&mut self, rule: &Rule, member: &Member, now: Timestamp) {
        let known: Vec<(Uuid, ManifestStatus)> = self.known.iter().map(|(id, known)| (*id, *known)).collect();
        let wanted = rule.desired_slots(&rule.horizon(now), member);
        let changes = decide(&known, &wanted, now);
        for id in changes.withdraw {
            self.known.insert(id, ManifestStatus::Superseded);
        }
        for slot in changes.create {
            if !matches!(self.known.get(&slot.id), None | Some(ManifestStatus::Superseded)) {
                panic!("{slot:?} is there");
            }
            if !self.known.contains_key(&slot.id) {
                self.made.push(slot.id);
            }
            let window = Window {
                run_after: slot.run_after,
                run_before: slot.run_before,
                priority: slot.priority,
                parameters: slot.parameters,
            };
            self.known.insert(slot.id, ManifestStatus::Fresh(window));
        }
    }

    fn pending(&self) -> Vec<Uuid> {
        let fresh = self.known.iter().filter(|(_, known)| matches!(known, ManifestStatus::Fresh(_)));
        let mut pending: Vec<Uuid> = fresh.map(|(id, _)| *id).collect();
        pending.sort();
        pending
    }

    /// The store times out what was not begun in time.
    fn expire(&mut self, now: Timestamp) {
        for known in self.known.values_mut() {
            if matches!(known, ManifestStatus::Fresh(window) if window.run_before <= now) {
                *known = ManifestStatus::Closed;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn after_one_pass_the_pending_set_is_the_wanted_set_less_what_was_taken(
        events in prop::collection::vec(event(), 1..40),
        look_forward in 0..4_u32,
        run_once in any::<bool>(),
    ) {
        const CALENDARS: [&str; 4] = ["*-*-* 02:00", "Mon,Thu 04:30", "*-*-* 0/6:15", "*-*-1,15 00:00"];
        let mut schedule = schedule();
        schedule.look_forward_count = look_forward;
        schedule.missed_policy = if run_once { MissedPolicy::RunOnce } else { MissedPolicy::Skip };
        let mut cluster = cluster("cluster1");
        let mut now = at("2026-03-01T00:00:00Z");
        let mut stored = StoredManifests::default();
        for event in events {
            let pending = stored.pending();
            match event {
                Event::Timing(choice) => schedule.calendars = vec![CALENDARS[usize::from(choice)].to_owned()],
                Event::Across(seconds) => schedule.schedule_across = format!("{seconds}s"),
                Event::Disable => schedule.state = ScheduleState::Disabled,
                Event::Enable => schedule.state = ScheduleState::Enabled,
                Event::Priority(priority) => schedule.priority = priority,
                Event::Location(here) => cluster.location = if here { "westeurope" } else { "eastus" }.to_owned(),
                Event::Cancel(index) if !pending.is_empty() => {
                    let id = *index.get(&pending);
                    stored.known.insert(id, ManifestStatus::Closed);
                    stored.cancelled.insert(id);
                }
                Event::Begin(index) if !pending.is_empty() => {
                    stored.known.insert(*index.get(&pending), ManifestStatus::Closed);
                }
                Event::Cancel(_) | Event::Begin(_) => {}
                Event::Wait(seconds) => now += i64::from(seconds).seconds(),
            }
            stored.expire(now);
            let rule = rule(&schedule);
            let member = Member::new(Uuid::from_u128(5), &cluster, None, None);
            stored.pass(&rule, &member, now);
            // What is pending is wanted, as it is wanted, and everything that is to be made is there unless it is taken.
            let wanted = rule.desired_slots(&rule.horizon(now), &member);
            for id in stored.pending() {
                let slot = wanted.iter().find(|slot| slot.id == id);
                prop_assert!(slot.is_some(), "{id} is pending at {now} but not wanted");
                let Some(ManifestStatus::Fresh(window)) = stored.known.get(&id) else { panic!("pending") };
                prop_assert_eq!(window.run_after, slot.unwrap().run_after);
                prop_assert_eq!(window.priority, slot.unwrap().priority);
            }
            for slot in wanted.iter().filter(|slot| slot.create) {
                let found = stored.known.get(&slot.id);
                prop_assert!(matches!(found, Some(ManifestStatus::Fresh(_) | ManifestStatus::Closed)), "{slot:?} is {found:?}");
            }
            // A second pass finds nothing to do.
            let before = stored.pending();
            let made = stored.made.len();
            stored.pass(&rule, &member, now);
            prop_assert_eq!((before, made), (stored.pending(), stored.made.len()));
            for id in &stored.cancelled {
                prop_assert_eq!(stored.known.get(id), Some(&ManifestStatus::Closed));
            }
        }
        // Each slot was made once.
        let distinct: HashSet<&Uuid> = stored.made.iter().collect();
        prop_assert_eq!(distinct.len(), stored.made.len());
    }
}
