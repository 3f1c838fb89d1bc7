//! Operations of the queue.

use std::sync::Arc;
use std::time::Duration;

use api::work::{WorkKind, WorkState};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use uuid::Uuid;

use super::{TestEnvironment, document, end, ended, entry, env};
use crate::audit::NewAuditRecord;
use crate::transaction::{Transaction, Write};
use crate::work::{CompletionOutcome, NewWork, Release, Signals};
use crate::{LEASE, RequiredState, StoreError};

#[tokio::test]
async fn work_is_claimed_checkpointed_released_and_completed() {
    let env = env!();
    let lane = Uuid::new_v4();
    let work = env.enqueue(lane, WorkKind::Manifest).await;
    let error = env.rejected(Transaction::new().enqueue(NewWork::new(work, lane, WorkKind::Manifest))).await;
    assert!(
        matches!(&error, StoreError::Exists { kind, id } if kind == "work" && *id == work.to_string()),
        "{error:?}"
    );
    assert!(env.claim(WorkKind::Operation).await.is_empty());
    assert_eq!(env.store.until_due(WorkKind::Manifest).await.unwrap(), Some(Duration::ZERO));
    let claimed = env.claim(WorkKind::Manifest).await.remove(0);
    assert_eq!((claimed.lease.work, claimed.lease.fence, claimed.attempt), (work, 1, 1));
    assert!(env.claim(WorkKind::Manifest).await.is_empty());
    assert_eq!(env.store.until_due(WorkKind::Manifest).await.unwrap(), None);

    // An operation pre-empts the manifest and goes before it.
    let operation = env.enqueue(lane, WorkKind::Operation).await;
    let committed = env
        .commit(Transaction::new().checkpoint(claimed.lease, "one", json!({"n": 1})).guard(claimed.lease))
        .await;
    assert_eq!(committed.signals(work), Signals { preempt: true, cancel: false });
    let renewed = env.store.renew(claimed.lease.owner, vec![lane, Uuid::new_v4()], LEASE).await.unwrap();
    assert_eq!(renewed.len(), 1);
    assert!(renewed[0].signals.preempt);
    env.commit(Transaction::new().release(Release::new(claimed.lease, Duration::ZERO, false))).await;
    assert!(
        matches!(env.rejected(Transaction::new().guard(claimed.lease)).await, StoreError::LostLease { work: lost } if lost == work)
    );
    assert!(env.claim(WorkKind::Manifest).await.is_empty());
    let first = env.claim(WorkKind::Operation).await.remove(0);
    assert_eq!((first.lease.work, first.lease.fence), (operation, 2));
    assert_eq!(env.store.pending(lane, 10).await.unwrap()[0].id, work);

    // Completes one and enqueues the next, in one transaction with a document.
    let next = Uuid::new_v4();
    let ending =
        Transaction::new().complete(ended(&first)).enqueue(NewWork::new(next, lane, WorkKind::Operation));
    env.commit(ending.with(Write::Create(document("/s/x"))).audit(entry())).await;
    assert_eq!(env.state(operation).await, WorkState::Completed);
    let second = env.claim(WorkKind::Operation).await.remove(0);
    let outcomes = env.store.complete(&[end(&first), end(&second), end(&second)]).await.unwrap();
    assert_eq!(outcomes, [CompletionOutcome::Lost, CompletionOutcome::Done, CompletionOutcome::Lost]);
    let error = env.rejected(Transaction::new().complete(ended(&second))).await;
    assert!(matches!(error, StoreError::LostLease { work: lost } if lost == next));

    let resumed = env.claim(WorkKind::Manifest).await.remove(0);
    assert_eq!(
        (resumed.attempt, resumed.step.as_deref(), resumed.checkpoint.clone()),
        (1, Some("one"), Some(json!({"n": 1})))
    );
    env.store.complete(&[end(&resumed)]).await.unwrap();
    let view = env.store.works(vec![work, next, Uuid::new_v4()]).await.unwrap();
    assert_eq!(view.len(), 2);
    assert!(view.iter().all(|it| it.finished == Some(it.due_at) && it.result.is_some()));
    let error = env.rejected(Transaction::new().enqueue(NewWork::new(work, lane, WorkKind::Manifest))).await;
    assert!(matches!(error, StoreError::Exists { .. }), "{error:?}");
    env.sound().await;
}

#[tokio::test]
async fn pending_work_is_withdrawn_and_expedited_and_running_work_gets_a_cancel_request() {
    let env = env!();
    let lane = Uuid::new_v4();
    let later = NewWork {
        run_after: Some(Timestamp::MAX - SignedDuration::from_hours(1)),
        ..NewWork::new(Uuid::new_v4(), lane, WorkKind::Manifest)
    };
    env.commit(Transaction::new().enqueue(later.clone())).await;
    assert!(env.claim(WorkKind::Manifest).await.is_empty());
    assert!(env.store.until_due(WorkKind::Manifest).await.unwrap().unwrap() > LEASE);
    env.commit(Transaction::new().expedite(later.id)).await;
    let claimed = env.claim(WorkKind::Manifest).await.remove(0);
    assert_eq!(claimed.run_after, Timestamp::UNIX_EPOCH);
    for rejected in [Transaction::new().expedite(later.id), Transaction::new().withdraw(later.id, json!({}))]
    {
        let error = env.rejected(rejected).await;
        assert!(
            matches!(&error, StoreError::WrongState { state, required: RequiredState::Pending, .. } if *state == WorkState::InProgress),
            "{error:?}"
        );
    }
    env.commit(Transaction::new().request_cancel(later.id)).await;
    assert!(env.commit(Transaction::new().guard(claimed.lease)).await.signals(later.id).cancel);
    let pending = env.enqueue(lane, WorkKind::Manifest).await;
    let error = env.rejected(Transaction::new().request_cancel(pending)).await;
    assert!(
        matches!(&error, StoreError::WrongState { state, required: RequiredState::InProgress, .. } if *state == WorkState::Pending),
        "{error:?}"
    );
    env.commit(Transaction::new().withdraw(pending, json!({"message": "no"}))).await;
    assert_eq!(env.state(pending).await, WorkState::Cancelled);
    let more = [env.enqueue(lane, WorkKind::Manifest).await, env.enqueue(lane, WorkKind::Operation).await];
    env.commit(Transaction::new().withdraw_lane(lane, json!({"message": "no"}))).await;
    for work in more {
        assert_eq!(env.state(work).await, WorkState::Cancelled);
    }
    let unknown = Uuid::new_v4();
    assert!(
        matches!(env.rejected(Transaction::new().withdraw(unknown, json!({}))).await, StoreError::NoSuchWork { work } if work == unknown)
    );
    env.store.complete(&[end(&claimed)]).await.unwrap();
    assert_eq!(env.store.lane(lane).await.unwrap().unwrap().head_kind, None);
    env.sound().await;
}

#[tokio::test]
async fn a_lost_holder_is_replaced_and_late_work_is_closed() {
    let env = env!();
    let (lane, late_lane) = (Uuid::new_v4(), Uuid::new_v4());
    let work = env.enqueue(lane, WorkKind::Manifest).await;
    let claimed = env.claim(WorkKind::Manifest).await.remove(0);
    env.commit(Transaction::new().checkpoint(claimed.lease, "one", json!(1))).await;
    let soon = env.store.works(vec![work]).await.unwrap()[0].created + SignedDuration::from_secs(30);
    let late =
        |lane| NewWork { run_before: Some(soon), ..NewWork::new(Uuid::new_v4(), lane, WorkKind::Manifest) };
    let (first, second, third) = (late(late_lane), late(late_lane), late(lane));
    let good = NewWork::new(Uuid::new_v4(), late_lane, WorkKind::Manifest);
    for work in [&first, &second, &third, &good] {
        env.commit(Transaction::new().enqueue((*work).clone())).await;
    }
    assert!(env.store.take_over(WorkKind::Manifest, 10, Uuid::new_v4(), LEASE).await.unwrap().is_empty());

    env.shift(Duration::from_secs(61));
    assert!(env.store.take_over(WorkKind::Operation, 10, Uuid::new_v4(), LEASE).await.unwrap().is_empty());
    let taken = env.store.take_over(WorkKind::Manifest, 10, Uuid::new_v4(), LEASE).await.unwrap().remove(0);
    assert!(taken.taken_over);
    assert_eq!((taken.attempt, taken.lease.fence, taken.step.as_deref()), (2, 2, Some("one")));
    assert!(matches!(
        env.rejected(Transaction::new().checkpoint(claimed.lease, "two", json!(2))).await,
        StoreError::LostLease { .. }
    ));
    assert_eq!(env.store.complete(&[end(&claimed)]).await.unwrap(), [CompletionOutcome::Lost]);

    // A claim times out work in front of it; the sweep finds the rest.
    assert_eq!(env.claim(WorkKind::Manifest).await[0].lease.work, good.id);
    assert_eq!(env.state(first.id).await, WorkState::TimedOut);
    assert_eq!(env.state(second.id).await, WorkState::TimedOut);
    assert_eq!(env.state(third.id).await, WorkState::Pending);
    let walk = env.store.expire(None, 100).await.unwrap();
    assert_eq!((walk.changed, walk.next), (1, None));
    assert_eq!(env.state(third.id).await, WorkState::TimedOut);
    env.sound().await;
}

#[tokio::test]
async fn budgets_park_and_resume_lanes() {
    let env = env!();
    let budgeted = |keys: &[&str]| NewWork {
        budgets: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..NewWork::new(Uuid::new_v4(), Uuid::new_v4(), WorkKind::Manifest)
    };
    let early = budgeted(&["fleet", "region/a"]);
    env.commit(Transaction::new().enqueue(early.clone())).await;
    let running = env.claim(WorkKind::Manifest).await.remove(0);
    // Running work counts immediately.
    env.store
        .set_budget("fleet".to_owned(), Some(2), Some(NewAuditRecord::new(entry(), None)))
        .await
        .unwrap();
    env.store.set_budget("region/a".to_owned(), Some(1), None).await.unwrap();
    for keys in [&["fleet", "region/a"][..], &["fleet", "region/b"], &["fleet"], &[]] {
        env.commit(Transaction::new().enqueue(budgeted(keys))).await;
    }
    let claimed = env.claim(WorkKind::Manifest).await;
    assert_eq!(claimed.len(), 2, "one more of the fleet, and one that no budget counts");
    let budgets = env.store.budgets().await.unwrap();
    assert_eq!(
        budgets.iter().map(|it| (it.limit, it.used, it.parked)).collect::<Vec<_>>(),
        [(2, 2, 1), (1, 1, 1)]
    );
    env.sound().await;
    env.store.complete(&[end(&running)]).await.unwrap();
    let claimed = env.claim(WorkKind::Manifest).await;
    assert_eq!(claimed.len(), 1);
    env.store.set_budget("fleet".to_owned(), None, None).await.unwrap();
    assert!(env.claim(WorkKind::Manifest).await.len() <= 1);
    env.sound().await;
    env.store.set_budget("region/a".to_owned(), Some(0), None).await.unwrap();
    env.commit(Transaction::new().release(Release::new(claimed[0].lease, Duration::ZERO, true))).await;
    env.sound().await;
    env.store.set_budget("region/a".to_owned(), Some(9), None).await.unwrap();
    assert!(!env.claim(WorkKind::Manifest).await.is_empty());
    env.sound().await;
}

#[tokio::test]
async fn a_claim_reads_few_rows_for_any_backlog() {
    let env = env!();
    for (lanes, per_lane) in [(100, 10), (200, 495)] {
        // Written directly, for speed: most lanes are due, all have a backlog.
        env.database
            .psql(&format!(
                "insert into work (id, lane, kind, class, run_after, due_at, priority, state, created, changed)
                 select gen_random_uuid(), md5('{per_lane}' || l)::uuid, 'manifest', 2, n, n, 0, 'Pending', 0, 0
                 from generate_series(1, {lanes}) l, generate_series(1, {per_lane}) n;
                 insert into lanes (lane, head_kind, head_class, head_at, head_priority)
                 select distinct on (lane) lane, kind, class, due_at, priority from work where state = 'Pending'
                 order by lane, class, due_at, priority, id on conflict do nothing"
            ))
            .unwrap();
        let before = counters(&env).await;
        let claimed = env.claim(WorkKind::Manifest).await;
        assert_eq!(claimed.len(), 50);
        let after = counters(&env).await;
        let read: i64 = after.iter().zip(&before).map(|(after, before)| after - before).sum();
        assert!(read <= 20 * 50, "a claim of 50 read {read} rows");
        assert_eq!(
            env.store.complete(&claimed.iter().map(end).collect::<Vec<_>>()).await.unwrap(),
            [CompletionOutcome::Done; 50]
        );
        let done = counters(&env).await;
        let read: i64 = done.iter().zip(&after).map(|(after, before)| after - before).sum();
        assert!(read <= 20 * 50, "ending 50 read {read} rows");
    }
    env.sound().await;
}

/// Rows that scans of the queue's tables and indexes have read so far, except single primary key probes.
async fn counters(env: &TestEnvironment) -> Vec<i64> {
    // Sessions report statistics after a moment of idleness; ending the sessions reports them at once.
    env.store.shared.pool.retain(|_, _| false);
    let sql = "select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables where relname in ('work', 'lanes')
               union all select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where relname in ('work', 'lanes')";
    let others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and query not like '%listen%' and query not like 'notify%'";
    for _ in 0..200 {
        if env.database.psql(others).unwrap() == "0" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    env.database.psql(sql).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_claim_goes_through_the_partial_indexes() {
    let env = env!();
    for rows in [1_000, 100_000] {
        env.database
            .psql(&format!(
                "truncate work, lanes;
                 insert into work (id, lane, kind, class, run_after, due_at, priority, state, created, changed)
                 select gen_random_uuid(), md5((n % 500)::text)::uuid, 'manifest', 2, n, n, 0, 'Pending', 0, 0 from generate_series(1, {rows}) n;
                 insert into lanes (lane, head_kind, head_class, head_at, head_priority)
                 select distinct on (lane) lane, kind, class, due_at, priority from work order by lane, class, due_at, priority, id"
            ))
            .unwrap();
        let client = env.store.shared.pool.get().await.unwrap();
        let due = "explain select lane from lanes where head_kind = 'manifest' and head_at <= statement_micros_v1()
                   and owner is null and parked_on is null order by head_at, head_priority, lane limit 50 for update skip locked";
        let first = "explain select f.id from unnest(array(select lane from lanes limit 50)) as x (lane) left join lateral (
                       select w.id from work w where w.lane = x.lane and w.state = 'Pending'
                       order by w.class, w.due_at, w.priority, w.id limit 1) f on true";
        for (sql, index) in [(due, "lanes_due"), (first, "work_pending")] {
            let plan: Vec<String> =
                client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(plan.contains(index) && !plan.contains("Sort"), "at {rows} rows:\n{plan}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_done_twice_or_run_beside_another_under_contention() {
    type UuidSet = Arc<std::sync::Mutex<std::collections::HashSet<Uuid>>>;

    let env = env!();
    for (key, limit) in [("fleet", 12), ("region/a", 5), ("region/b", 4)] {
        env.store.set_budget(key.to_owned(), Some(limit), None).await.unwrap();
    }
    let lanes: Arc<Vec<Uuid>> = Arc::new((0..20).map(|_| Uuid::new_v4()).collect());
    let (busy, enqueued, done) = (UuidSet::default(), UuidSet::default(), UuidSet::default());
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..8_usize {
        let (store, lanes, busy, enqueued, done) =
            (env.store.clone(), lanes.clone(), busy.clone(), enqueued.clone(), done.clone());
        tasks.spawn(async move {
            let owner = Uuid::new_v4();
            for round in 0..40_usize {
                // Several lanes in different orders: locks must not cross.
                let mut transaction = Transaction::new();
                for n in 0..5 {
                    let kind = if (round + n) % 3 == 0 { WorkKind::Operation } else { WorkKind::Manifest };
                    let lane = lanes[(worker * 7 + round * 13 + n * 11) % lanes.len()];
                    let region = if n % 2 == 0 { "region/a" } else { "region/b" };
                    let budgets = if kind == WorkKind::Manifest {
                        vec!["fleet".to_owned(), region.to_owned()]
                    } else {
                        vec![]
                    };
                    let work = NewWork { budgets, ..NewWork::new(Uuid::new_v4(), lane, kind) };
                    enqueued.lock().unwrap().insert(work.id);
                    transaction = transaction.enqueue(work);
                }
                store.commit(transaction).await.unwrap();
                let kind = if round % 2 == 0 { WorkKind::Manifest } else { WorkKind::Operation };
                let claimed = store.claim(kind, 10, owner, LEASE).await.unwrap();
                for it in &claimed {
                    assert!(
                        busy.lock().unwrap().insert(it.lease.lane),
                        "two at once in lane {}",
                        it.lease.lane
                    );
                }
                if round % 10 == 3 && worker == 0 {
                    store
                        .set_budget("region/b".to_owned(), if round % 20 == 3 { None } else { Some(3) }, None)
                        .await
                        .unwrap();
                }
                store.renew(owner, claimed.iter().map(|it| it.lease.lane).collect(), LEASE).await.unwrap();
                let mut batch = Vec::new();
                for (n, it) in claimed.into_iter().enumerate() {
                    let lane = it.lease.lane;
                    match n % 4 {
                        0 => {
                            busy.lock().unwrap().remove(&lane);
                            let back = Release::new(it.lease, Duration::ZERO, false);
                            let next = NewWork::new(
                                Uuid::new_v4(),
                                lanes[(n + round) % lanes.len()],
                                WorkKind::Manifest,
                            );
                            enqueued.lock().unwrap().insert(next.id);
                            store
                                .commit(
                                    Transaction::new()
                                        .checkpoint(it.lease, "s", json!(n))
                                        .release(back)
                                        .enqueue(next),
                                )
                                .await
                                .unwrap();
                        }
                        _ => batch.push(it),
                    }
                }
                for it in &batch {
                    busy.lock().unwrap().remove(&it.lease.lane);
                    assert!(done.lock().unwrap().insert(it.lease.work), "done twice");
                }
                let outcomes = store.complete(&batch.iter().map(end).collect::<Vec<_>>()).await.unwrap();
                assert!(outcomes.iter().all(|it| *it == CompletionOutcome::Done));
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    env.sound().await;
    // Runs the rest: nothing stays parked.
    let mut idle = 0;
    while idle < 20 {
        let before = done.lock().unwrap().len();
        for kind in WorkKind::ALL {
            let claimed = env.claim(kind).await;
            done.lock().unwrap().extend(claimed.iter().map(|it| it.lease.work));
            env.store.complete(&claimed.iter().map(end).collect::<Vec<_>>()).await.unwrap();
        }
        idle = if done.lock().unwrap().len() == before { idle + 1 } else { 0 };
    }
    assert_eq!(*enqueued.lock().unwrap(), *done.lock().unwrap());
    assert!(env.store.budgets().await.unwrap().iter().all(|it| it.used == 0 && it.parked == 0));
    env.sound().await;
}
