//! Random edits of schedules and clusters; after one pass, what is pending is what is wanted, less what was withdrawn by
//! a person or begun.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::doc::{ScheduleState, SpreadBy};
use jiff::{SignedDuration, Timestamp, ToSpan};
use planner::schedule::{Member, Rule};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

use super::super::Scheduler;
use super::fixture::{TestScheduler, block_on, by, calendar_at, cluster, daily, reconcile};

#[derive(Debug, Clone)]
enum Edit {
    Calendar(usize, u8),
    LookForward(usize, u8),
    Across(usize, u8),
    Toggle(usize),
    Delete(usize),
    Selector(usize, u8),
    Ring(usize, u8),
    Import(usize),
    Forget(usize),
    Cancel(prop::sample::Index),
    Wait(u16),
    Restart,
}

fn edit() -> impl Strategy<Value = Edit> {
    let (schedule, cluster) = (0..3_usize, 0..4_usize);
    prop_oneof![
        (schedule.clone(), 0..20_u8).prop_map(|(at, it)| Edit::Calendar(at, it)),
        (schedule.clone(), 0..4_u8).prop_map(|(at, it)| Edit::LookForward(at, it)),
        (schedule.clone(), 0..5_u8).prop_map(|(at, it)| Edit::Across(at, it)),
        schedule.clone().prop_map(Edit::Toggle),
        schedule.clone().prop_map(Edit::Delete),
        (schedule, 1..4_u8).prop_map(|(at, it)| Edit::Selector(at, it)),
        (cluster.clone(), 1..4_u8).prop_map(|(at, it)| Edit::Ring(at, it)),
        cluster.clone().prop_map(Edit::Import),
        cluster.prop_map(Edit::Forget),
        any::<prop::sample::Index>().prop_map(Edit::Cancel),
        (0..3000_u16).prop_map(Edit::Wait),
        Just(Edit::Restart),
    ]
}

/// What should be there, kept beside the store.
#[derive(Default)]
struct Model {
    schedules: BTreeMap<usize, api::doc::Schedule>,
    clusters: BTreeMap<usize, Uuid>,
    /// Slots that a person cancelled.
    cancelled: BTreeSet<Uuid>,
    /// Every manifest that was ever seen, with its schedule, time and cluster.
    seen: HashMap<(String, Timestamp, Uuid), Uuid>,
}

impl Model {
    async fn apply(&mut self, test: &TestScheduler, scheduler: &mut Scheduler, edit: Edit) {
        match edit {
            Edit::Calendar(at, hours) => {
                self.edit(test, at, |it, now| {
                    it.calendars = vec![calendar_at(now + i64::from(hours).hours() + 5.minutes())];
                })
                .await;
            }
            Edit::LookForward(at, count) => {
                self.edit(test, at, |it, _| it.look_forward_count = count.into()).await;
            }
            Edit::Across(at, hours) => {
                self.edit(test, at, |it, _| {
                    (it.schedule_across, it.spread_by) = (format!("{hours}h"), SpreadBy::Schedule);
                })
                .await;
            }
            Edit::Toggle(at) => {
                self.edit(test, at, |it, _| {
                    it.state = match it.state {
                        ScheduleState::Enabled => ScheduleState::Disabled,
                        ScheduleState::Disabled => ScheduleState::Enabled,
                    };
                })
                .await;
            }
            Edit::Selector(at, ring) => {
                self.edit(test, at, |it, _| it.selectors[0]["value"] = ring.to_string().into()).await;
            }
            Edit::Delete(at) => {
                if let Some(schedule) = self.schedules.remove(&at) {
                    test.store.schedules().delete(&test.schedule(&schedule.id).await, &by()).await.unwrap();
                }
            }
            Edit::Import(at) => {
                let uuid = test.import(&cluster(&format!("cluster-{at}"))).await;
                self.clusters.insert(at, uuid);
            }
            Edit::Ring(at, ring) => {
                if let Some(uuid) = self.clusters.get(&at) {
                    test.change_cluster(*uuid, |it| {
                        drop(it.labels.insert("ring".to_owned(), ring.to_string()));
                    })
                    .await;
                }
            }
            Edit::Forget(at) => {
                if let Some(uuid) = self.clusters.remove(&at) {
                    test.store.clusters().forget(&test.cluster(uuid).await, &by()).await.unwrap();
                }
            }
            Edit::Cancel(index) => {
                let mut pending = Vec::new();
                for number in 0..3 {
                    pending.extend(test.pending(&name(number)).await);
                }
                if !pending.is_empty() {
                    let id = index.get(&pending).id;
                    let read = test.store.manifests().get(id).await.unwrap().unwrap();
                    test.store.manifests().cancel(&read, &by()).await.unwrap();
                    self.cancelled.insert(id);
                }
            }
            Edit::Wait(minutes) => test.clock.advance(SignedDuration::from_mins(minutes.into())),
            Edit::Restart => *scheduler = test.scheduler().await,
        }
    }

    /// Changes a schedule, which is made if it is not there.
    async fn edit(
        &mut self,
        test: &TestScheduler,
        at: usize,
        change: impl FnOnce(&mut api::doc::Schedule, Timestamp),
    ) {
        let schedule = self.schedules.entry(at).or_insert_with(|| daily(&name(at), test.now()));
        change(schedule, test.now());
        test.put(schedule).await;
    }

    /// What is pending is wanted, and what is wanted and to be made is pending or was cancelled by a person.
    async fn check(&mut self, test: &TestScheduler) {
        let now = test.now();
        for number in 0..3 {
            // The store's clock stands still beside the scheduler's: what is too late is not timed out here.
            let pending: Vec<_> = test
                .pending(&name(number))
                .await
                .into_iter()
                .filter(|it| it.run_before.unwrap() > now)
                .collect();
            let found: BTreeSet<Uuid> = pending.iter().map(|work| work.id).collect();
            let (mut must, mut may) = (BTreeSet::new(), BTreeSet::new());
            if let Some(schedule) = self.schedules.get(&number) {
                let rule = Rule::read(schedule, now).unwrap();
                let horizon = rule.horizon(now);
                for uuid in self.clusters.values() {
                    let cluster = test.cluster(*uuid).await.document;
                    for slot in rule.desired_slots(&horizon, &Member::new(*uuid, &cluster, None, None)) {
                        may.insert(slot.id);
                        if slot.create {
                            must.insert(slot.id);
                        }
                    }
                }
            }
            let missing: Vec<&Uuid> =
                must.difference(&found).filter(|id| !self.cancelled.contains(id)).collect();
            assert!(missing.is_empty(), "{}: wanted but not there: {missing:?}", name(number));
            let surplus: Vec<&Uuid> = found.difference(&may).collect();
            assert!(surplus.is_empty(), "{}: there but not wanted: {surplus:?}", name(number));
            assert!(found.is_disjoint(&self.cancelled), "what a person cancelled is back");
            for work in pending {
                let place = (name(number), work.run_after, work.lane);
                let before = self.seen.insert(place, work.id);
                assert!(before.is_none_or(|before| before == work.id), "a second manifest for one slot");
            }
        }
    }
}

fn name(number: usize) -> String {
    format!("schedule-{number}")
}

fn hold_after_every_edit(cases: u32, test: impl AsyncFn() -> Option<TestScheduler>) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let edits = prop::collection::vec(edit(), 1..25);
    let outcome = runner.run(&edits, |edits| {
        block_on(async {
            let Some(test) = test().await else { return };
            let mut model = Model::default();
            let mut scheduler = test.scheduler().await;
            for edit in edits {
                model.apply(&test, &mut scheduler, edit).await;
                reconcile(&mut scheduler).await;
                model.check(&test).await;
                // A second pass finds nothing to do.
                assert_eq!(reconcile(&mut scheduler).await, (0, 0));
            }
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn after_random_edits_the_pending_set_is_the_wanted_set_on_sqlite() {
    hold_after_every_edit(24, async || Some(TestScheduler::sqlite().await));
}

#[test]
fn after_random_edits_the_pending_set_is_the_wanted_set_on_postgresql() {
    hold_after_every_edit(6, async || TestScheduler::postgres().await);
}
