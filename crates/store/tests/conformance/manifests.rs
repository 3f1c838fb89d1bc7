//! Manifests as a scheduler uses them: created once by concurrent schedulers, withdrawn, revived; and the lists by
//! which it compares actual with desired state.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use api::admin::EntryEvent;
use api::doc::Manifest;
use api::work::{WorkKind, WorkState};
use serde_json::{Value, json};
use store::{
    AuditContext, EnsureOutcome, NewWork, Store, StoreError, VersionedDocument, WorkLease, WorkView,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::fixture::{Dice, context, manifest, seed};
use crate::queue_fixture::{
    WorkProperties as _, claim, complete_all, finish, future, manifest as work, next, operation, past, rest,
};

const MANIFEST: WorkKind = WorkKind::Manifest;

/// A slot of a schedule: not due for a long time.
fn slot(schedule: Uuid, cluster: Uuid) -> Manifest {
    Manifest { created_by_schedule: Some(schedule.to_string()), run_after: future(0), ..manifest(cluster) }
}

fn superseded() -> Value {
    json!({ "code": "Superseded", "message": "Cancelled by Scheduler as did not match current schedule settings" })
}

fn scheduler() -> AuditContext {
    AuditContext { reason: "planned".to_owned(), ..AuditContext::service("scheduler") }
}

async fn read(store: &Store, id: Uuid) -> VersionedDocument<Manifest> {
    store.manifests().get(id).await.unwrap().unwrap()
}

async fn view(store: &Store, id: Uuid) -> WorkView {
    store.work(id).await.unwrap().unwrap()
}

async fn ensure(store: &Store, manifests: &[Manifest]) -> Vec<EnsureOutcome> {
    let given: Vec<_> = manifests.iter().map(|it| (it.clone(), vec!["fleet".to_owned()])).collect();
    store.manifests().ensure(&given, &scheduler()).await.unwrap()
}

async fn events(store: &Store, id: Uuid) -> Vec<EntryEvent> {
    store.entries(id, None, 100).await.unwrap().into_iter().map(|it| it.1.event).collect()
}

on_both_engines! {
    async fn an_ensured_manifest_is_created_once_and_a_withdrawn_one_is_revived(env: &TestEnvironment) {
        let (store, schedule) = (&env.store, Uuid::new_v4());
        let slots: Vec<Manifest> = (0..4).map(|_| slot(schedule, Uuid::new_v4())).collect();
        assert_eq!(ensure(store, &slots).await, [EnsureOutcome::Created; 4]);
        assert_eq!(ensure(store, &slots).await, [EnsureOutcome::Existed; 4]);
        assert_eq!(ensure(store, &[slots[0].clone(), slots[0].clone()]).await, [EnsureOutcome::Existed; 2]);
        let made = view(store, slots[0].id).await;
        assert_eq!((made.origin, made.budgets), (Some(schedule.to_string()), vec!["fleet".to_owned()]));

        // The schedule withdraws two, a person cancels one, one runs.
        let running = store.manifests().get(slots[3].id).await.unwrap().unwrap();
        store.manifests().expedite(&running, &context()).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        store.manifests().cancel(&read(store, slots[2].id).await, &context()).await.unwrap();
        let all: Vec<Uuid> = slots.iter().map(|it| it.id).chain([Uuid::new_v4()]).collect();
        let mut withdrawn = store.manifests().withdraw(&all, superseded(), &scheduler()).await.unwrap();
        withdrawn.sort();
        let mut expected = vec![slots[0].id, slots[1].id];
        expected.sort();
        assert_eq!(withdrawn, expected);
        assert!(store.manifests().withdraw(&all, superseded(), &scheduler()).await.unwrap().is_empty());
        assert_eq!(view(store, slots[0].id).await.state, WorkState::Cancelled);
        assert_eq!(view(store, slots[0].id).await.origin, Some(schedule.to_string()));
        assert_eq!(view(store, slots[3].id).await.state, WorkState::InProgress);

        // Requested again, in another window: only what the schedule had withdrawn is revived.
        let wanted: Vec<Manifest> = slots
            .iter()
            .map(|it| Manifest { run_after: future(50), priority: 7, parameters: [("x".to_owned(), json!(1))].into_iter().collect(), ..it.clone() })
            .collect();
        let became = ensure(store, &wanted).await;
        assert_eq!(became, [EnsureOutcome::Revived, EnsureOutcome::Revived, EnsureOutcome::Existed, EnsureOutcome::Existed]);
        let back = view(store, slots[0].id).await;
        assert_eq!((back.state, back.attempt, back.started, back.result), (WorkState::Pending, 0, None, None));
        assert_eq!((back.run_after, back.priority, back.origin), (future(50), 7, Some(schedule.to_string())));
        assert_eq!(read(store, slots[0].id).await.document, wanted[0]);
        assert_eq!(read(store, slots[2].id).await.document, slots[2]);
        assert_eq!(view(store, slots[2].id).await.state, WorkState::Cancelled, "a person's cancel stays");
        // And it runs like any other.
        finish(store, lease).await;
        store.manifests().expedite(&read(store, slots[1].id).await, &context()).await.unwrap();
        assert_eq!(complete_all(store, MANIFEST).await, [slots[1].id]);
        assert_eq!(ensure(store, &wanted[1..2]).await, [EnsureOutcome::Existed], "what has run is done");
        let entries = store.entries(slots[1].id, None, 9).await.unwrap();
        let entries: Vec<_> = entries.iter().map(|it| (it.1.event.clone(), it.1.from, it.1.to)).collect();
        let (pending, cancelled) = (Some(WorkState::Pending), Some(WorkState::Cancelled));
        assert_eq!(entries, [
            (EntryEvent::Created, None, pending),
            (EntryEvent::Finished, pending, cancelled),
            (EntryEvent::Revived, cancelled, pending),
            (EntryEvent::Expedited, None, None),
        ]);
    }
}

on_both_engines! {
    async fn two_that_want_the_same_slots_at_once_make_each_once(env: &TestEnvironment) {
        let (schedule, seed) = (Uuid::new_v4(), seed());
        let clusters: Vec<Uuid> = (0..50).map(|_| Uuid::new_v4()).collect();
        let slots: Vec<Manifest> = (0..1000).map(|n| slot(schedule, clusters[n % clusters.len()])).collect();
        let others = if env.is_shared() { env.another().await } else { env.store.clone() };
        let mut writers = JoinSet::new();
        for (number, store) in [env.store.clone(), others].into_iter().enumerate() {
            let mut dice = Dice::seeded(seed + number as u64);
            // Both ensure all of them, each in its own order and blocks, some of them twice.
            let mut wanted: Vec<Manifest> = slots.clone();
            for place in (1..wanted.len()).rev() {
                wanted.swap(place, usize::try_from(dice.below(place as u64 + 1)).unwrap());
            }
            writers.spawn(async move {
                let mut made = Vec::new();
                let mut rest = wanted.as_slice();
                while !rest.is_empty() {
                    let size = usize::try_from(1 + dice.below(180)).unwrap().min(rest.len());
                    let block = [&rest[..size], &rest[..1]].concat();
                    let became = ensure(&store, &block).await;
                    assert_eq!(became.len(), block.len());
                    let created = block.iter().zip(became).filter(|it| it.1 != EnsureOutcome::Existed);
                    made.extend(created.map(|(it, became)| {
                        assert_eq!(became, EnsureOutcome::Created, "seed {seed}");
                        it.id
                    }));
                    rest = &rest[size..];
                }
                made
            });
        }
        let mut made: Vec<Uuid> = writers.join_all().await.concat();
        made.sort();
        let mut expected: Vec<Uuid> = slots.iter().map(|it| it.id).collect();
        expected.sort();
        assert_eq!(made, expected, "seed {seed}: each was made by exactly one");
        let pending = all_pending_of(&env.store, &schedule.to_string(), 300).await;
        assert_eq!(pending, expected, "seed {seed}");
        for slot in slots.iter().step_by(37) {
            assert_eq!(events(&env.store, slot.id).await, [EntryEvent::Created], "seed {seed}");
        }
    }
}

on_both_engines! {
    async fn two_that_bring_the_same_slots_back_at_once_bring_each_back_once(env: &TestEnvironment) {
        let schedule = Uuid::new_v4();
        let slots: Vec<Manifest> = (0..100).map(|_| slot(schedule, Uuid::new_v4())).collect();
        ensure(&env.store, &slots).await;
        let ids: Vec<Uuid> = slots.iter().map(|it| it.id).collect();
        assert_eq!(env.store.manifests().withdraw(&ids, superseded(), &scheduler()).await.unwrap().len(), 100);
        let other = if env.is_shared() { env.another().await } else { env.store.clone() };
        let reversed: Vec<Manifest> = slots.iter().rev().cloned().collect();
        let (one, two) = tokio::join!(ensure(&env.store, &slots), ensure(&other, &reversed));
        let revived = |became: &[EnsureOutcome]| became.iter().filter(|it| **it == EnsureOutcome::Revived).count();
        assert_eq!(revived(&one) + revived(&two), 100, "{one:?} {two:?}");
        for id in ids {
            assert_eq!(events(&env.store, id).await, [EntryEvent::Created, EntryEvent::Finished, EntryEvent::Revived]);
        }
    }
}

on_both_engines! {
    async fn work_that_starts_during_a_withdrawal_is_left(env: &TestEnvironment) {
        let (store, schedule) = (&env.store, Uuid::new_v4());
        let slots: Vec<Manifest> =
            (0..60).map(|_| Manifest { run_after: past(0), ..slot(schedule, Uuid::new_v4()) }).collect();
        ensure(store, &slots).await;
        let ids: Vec<Uuid> = slots.iter().map(|it| it.id).collect();
        let context = scheduler();
        let manifests = store.manifests();
        let claiming = async {
            let mut held = Vec::new();
            for _ in 0..20 {
                held.extend(store.claim(MANIFEST, 2, Uuid::new_v4()).await.unwrap());
            }
            held
        };
        let (withdrawn, held) = tokio::join!(manifests.withdraw(&ids, superseded(), &context), claiming);
        let withdrawn: BTreeSet<Uuid> = withdrawn.unwrap().into_iter().collect();
        let held: BTreeSet<Uuid> = held.iter().map(|it| it.lease.work).collect();
        assert!(withdrawn.is_disjoint(&held));
        assert_eq!(withdrawn.len() + held.len(), ids.len());
        for id in ids {
            let state = view(store, id).await.state;
            let expected = if held.contains(&id) { WorkState::InProgress } else { WorkState::Cancelled };
            assert_eq!(state, expected);
        }
    }
}

on_both_engines! {
    async fn a_manifest_is_deleted_with_its_work_unless_it_runs(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        store.set_budget("fleet", Some(1), None).await.unwrap();
        let orders: Vec<Manifest> = (0..3).map(|n| Manifest { run_after: past(n), ..manifest(lane) }).collect();
        ensure(store, &orders).await;
        let lease: WorkLease = next(store, MANIFEST).await.unwrap().lease;
        let rejection = store.manifests().delete(&read(store, orders[0].id).await, &context()).await;
        assert!(matches!(rejection, Err(StoreError::WrongState { work, .. }) if work == orders[0].id), "{rejection:?}");
        // Pending: its lane continues with the next.
        store.manifests().delete(&read(store, orders[1].id).await, &context()).await.unwrap();
        finish(store, lease).await;
        for gone in [&orders[0], &orders[1]] {
            if let Some(read) = store.manifests().get(gone.id).await.unwrap() {
                store.manifests().delete(&read, &context()).await.unwrap();
            }
            assert!(store.manifests().view(gone.id).await.unwrap().is_none());
            assert!(store.work(gone.id).await.unwrap().is_none());
            assert!(store.entries(gone.id, None, 9).await.unwrap().is_empty());
        }
        assert_eq!(complete_all(store, MANIFEST).await, [orders[2].id]);
        // It was deleted on purpose: it is not created again while its tombstone exists.
        assert_eq!(ensure(store, &orders).await, [EnsureOutcome::Existed; 3]);
        assert!(store.work(orders[0].id).await.unwrap().is_none());
    }
}

on_both_engines! {
    async fn an_action_on_a_manifest_adds_an_entry_with_actor_reason_and_request(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (one, two) = (Manifest { run_after: past(0), ..manifest(lane) }, Manifest { run_after: past(1), ..manifest(lane) });
        store.manifests().create(&[(one.clone(), vec![]), (two.clone(), vec![])], &context()).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        store.manifests().expedite(&read(store, two.id).await, &context()).await.unwrap();
        store.manifests().cancel(&read(store, one.id).await, &context()).await.unwrap();
        store.manifests().cancel(&read(store, two.id).await, &context()).await.unwrap();
        assert_eq!(events(store, one.id).await, [EntryEvent::Created, EntryEvent::CancelRequested]);
        assert_eq!(events(store, two.id).await, [EntryEvent::Created, EntryEvent::Expedited, EntryEvent::Finished]);
        for id in [one.id, two.id] {
            for (_, entry) in store.entries(id, None, 9).await.unwrap() {
                assert_eq!((entry.actor.as_str(), entry.message.as_deref()), ("tester", Some("a test")));
                assert_eq!(entry.correlation_id, context().correlation_id);
                assert_eq!(entry.attempt, i32::from(entry.event == EntryEvent::CancelRequested));
                assert!(entry.time > past(0));
            }
        }
        finish(store, lease).await;
    }
}

async fn all_pending_of(store: &Store, origin: &str, limit: usize) -> Vec<Uuid> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.pending_for_origin(origin, after, limit).await.unwrap();
        assert!(page.iter().all(|it| it.state == WorkState::Pending && it.origin.as_deref() == Some(origin)));
        let Some(last) = page.last() else { return all };
        after = Some(last.id);
        all.extend(page.into_iter().map(|it| it.id));
    }
}

on_both_engines! {
    async fn lists_of_pending_and_of_live_work_page_through_everything_exactly_once(env: &TestEnvironment) {
        let store = &env.store;
        let lanes: Vec<Uuid> = (0..40).map(|_| Uuid::new_v4()).collect();
        let mut expected: HashMap<Option<&str>, Vec<Uuid>> = HashMap::new();
        let mut asked = Vec::new();
        for (n, lane) in lanes.iter().cycle().take(200).enumerate() {
            let origin = [Some("weekly"), Some("nightly"), None][n % 3];
            let asking = NewWork { origin: origin.map(str::to_owned), ..work(*lane).after(past(0)) };
            expected.entry(origin).or_default().push(asking.id);
            asked.push(asking);
        }
        asked.push(operation(Uuid::new_v4()));
        store.enqueue(asked.clone()).await.unwrap();
        // Some run, some have finished, some are delayed after an attempt.
        let held = claim(store, MANIFEST, 30).await;
        for (n, it) in held.iter().enumerate() {
            match n % 3 {
                0 => finish(store, it.lease).await,
                1 => rest(store, it.lease, Duration::from_secs(3600)).await,
                _ => {}
            }
        }
        let away = |n: usize| held.iter().enumerate().filter(move |it| it.0 % 3 == n).map(|it| it.1.lease.work).collect::<BTreeSet<_>>();
        let (ended, running) = (away(0), away(2));
        for origin in ["weekly", "nightly"] {
            let mut wanted = expected[&Some(origin)].clone();
            wanted.retain(|it| !ended.contains(it) && !running.contains(it));
            wanted.sort();
            assert_eq!(all_pending_of(store, origin, 7).await, wanted, "{origin}");
        }
        assert!(store.pending_for_origin("never", None, 9).await.unwrap().is_empty());
        let (mut live, mut after) = (Vec::new(), None);
        loop {
            let page = store.live(MANIFEST, after, 7).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            live.extend(page);
        }
        let mut wanted: Vec<Uuid> = asked.iter().filter(|it| it.kind == MANIFEST && !ended.contains(&it.id)).map(|it| it.id).collect();
        wanted.sort();
        assert_eq!(live.iter().map(|it| it.id).collect::<Vec<_>>(), wanted);
        for it in &live {
            let state = if running.contains(&it.id) { WorkState::InProgress } else { WorkState::Pending };
            assert_eq!((it.state, it.kind), (state, MANIFEST));
        }
        let mut seen: Vec<Uuid> = store.lanes(lanes.iter().copied().chain([Uuid::new_v4()]).collect()).await.unwrap().iter().map(|it| it.lane).collect();
        seen.sort();
        let mut all = lanes.clone();
        all.sort();
        assert_eq!(seen, all);
    }
}

on_both_engines! {
    async fn the_queue_is_counted_by_what_is_due_waits_and_runs(env: &TestEnvironment) {
        let store = &env.store;
        assert_eq!(store.queue(MANIFEST).await.unwrap(), store::QueueView::default());
        store.set_budget("b", Some(0), None).await.unwrap();
        let [busy, due, parked, later] = [(); 4].map(|()| Uuid::new_v4());
        store.enqueue(vec![work(busy).after(past(0))]).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        let asked = vec![
            work(busy).after(past(1)),
            work(due).after(past(3)),
            work(due).after(past(4)),
            work(parked).after(past(2)).counted(&["b"]),
            work(later).after(future(0)),
            operation(later).after(future(0)),
        ];
        store.enqueue(asked.clone()).await.unwrap();
        // The parked one is tried, and from then on waits for its budget.
        let held = claim(store, MANIFEST, 9).await;
        assert_eq!(held.len(), 1);
        rest(store, held[0].lease, Duration::ZERO).await;
        let queue = store.queue(MANIFEST).await.unwrap();
        assert_eq!((queue.due, queue.pending, queue.running), (2, 5, 1), "{queue:?}");
        assert_eq!(queue.oldest_due, Some(past(2)));
        let queue = store.queue(WorkKind::Operation).await.unwrap();
        assert_eq!((queue.due, queue.pending, queue.running, queue.oldest_due), (0, 1, 0, None));
        // Expedited work is due, but not since 1970.
        store.commit(store::Transaction::new().expedite(asked[2].id)).await.unwrap();
        finish(store, lease).await;
        let queue = store.queue(MANIFEST).await.unwrap();
        assert_eq!((queue.due, queue.running), (3, 0));
        assert_eq!(queue.oldest_due, Some(past(1)));
    }
}

on_both_engines! {
    async fn the_leases_of_a_prefix_are_those_that_are_held_now(env: &TestEnvironment) {
        let (store, me) = (&env.store, Uuid::new_v4());
        let minute = Duration::from_secs(60);
        for name in ["actuator/a", "actuator/b", "actuator/c", "scheduler", "actuators"] {
            store.take_lease(name, me, minute).await.unwrap().unwrap();
        }
        store.release_lease("actuator/b", me).await.unwrap();
        store.take_lease("actuator/c", me, Duration::ZERO).await.unwrap().unwrap();
        let held = crate::fixture::eventually("the short one has run out", async || {
            let held = store.leases("actuator/").await.unwrap();
            (held.len() == 1).then_some(held)
        })
        .await;
        assert_eq!(held[0].0, "actuator/a");
        assert!(held[0].1 > past(0));
        assert_eq!(store.leases("scheduler").await.unwrap().len(), 1);
        assert_eq!(store.leases("").await.unwrap().len(), 3);
        assert!(store.leases("nobody\0").await.unwrap().is_empty());
    }
}
