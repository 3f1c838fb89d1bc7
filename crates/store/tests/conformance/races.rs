//! Concurrent writes to one lane. The number of repaired heads stays zero.

use api::work::{WorkKind, WorkState};
use futures_util::future::join_all;
use store::{CompletionOutcome, NewWork, Store, Transaction};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on, short_or_long};
use crate::queue_fixture::{
    WorkProperties as _, claim, complete_all, done, finish, manifest, next, operation, repaired,
};

const MANIFEST: WorkKind = WorkKind::Manifest;

/// Two handles of the same store: two processes where the engine allows it.
async fn two(env: &TestEnvironment) -> [Store; 2] {
    let other = if env.is_shared() { env.another().await } else { env.store.clone() };
    [env.store.clone(), other]
}

on_both_engines! {
    async fn work_enqueued_while_its_lane_is_released_is_never_forgotten(env: &TestEnvironment) {
        let [one, two] = two(env).await;
        let lanes: Vec<Uuid> = (0..4).map(|_| Uuid::new_v4()).collect();
        let mut asked: Vec<NewWork> = lanes.iter().map(|lane| manifest(*lane)).collect();
        one.enqueue(asked.clone()).await.unwrap();
        for round in 0..short_or_long(250, 2500) {
            let held = one.claim(MANIFEST, 50, Uuid::new_v4()).await.unwrap();
            assert_eq!(held.len(), lanes.len(), "round {round}: a lane has work and does not show it");
            let successors: Vec<NewWork> = lanes.iter().map(|lane| manifest(*lane)).collect();
            asked.extend(successors.clone());
            // On each lane the completion of one piece meets the enqueue of the next, on all lanes at once.
            let completing = join_all(held.iter().map(async |it| one.complete(&[done(it.lease)]).await));
            let enqueuing = join_all(successors.into_iter().map(|work| two.enqueue(vec![work])));
            let (completed, enqueued) = tokio::join!(completing, enqueuing);
            assert!(completed.into_iter().all(|outcomes| outcomes.unwrap() == [CompletionOutcome::Done]), "round {round}");
            enqueued.into_iter().for_each(|outcome| outcome.unwrap());
        }
        assert_eq!(repaired(&one).await, 0);
        assert_eq!(complete_all(&one, MANIFEST).await.len(), lanes.len());
        for block in asked.chunks(500) {
            let seen = one.works(block.iter().map(|work| work.id).collect()).await.unwrap();
            assert_eq!(seen.len(), block.len());
            assert!(seen.iter().all(|work| work.state == WorkState::Completed));
        }
    }
}

on_both_engines! {
    async fn an_operation_enqueued_while_a_manifest_is_claimed_is_seen_by_its_holder_or_goes_first(env: &TestEnvironment) {
        let [one, two] = two(env).await;
        for round in 0..short_or_long(100, 2000) {
            let lane = Uuid::new_v4();
            let (waiting, asked) = (manifest(lane), operation(lane));
            one.enqueue(vec![waiting.clone()]).await.unwrap();
            let (claim, enqueue) = (one.claim(MANIFEST, 1, Uuid::new_v4()), two.enqueue(vec![asked.clone()]));
            let (claimed, enqueued) = tokio::join!(claim, enqueue);
            enqueued.unwrap();
            if let [claimed] = claimed.unwrap().as_slice() {
                let signals = one.checkpoint(claimed.lease, "safe", serde_json::json!(null)).await.unwrap();
                assert!(signals.preempt, "round {round}");
                finish(&one, claimed.lease).await;
                assert_eq!(complete_all(&one, WorkKind::Operation).await, [asked.id]);
            } else {
                assert_eq!(complete_all(&one, WorkKind::Operation).await, [asked.id], "round {round}");
                assert_eq!(complete_all(&one, MANIFEST).await, [waiting.id], "round {round}");
            }
        }
        assert_eq!(repaired(&one).await, 0);
    }
}

on_both_engines! {
    async fn a_piece_of_work_is_withdrawn_or_claimed_but_never_both(env: &TestEnvironment) {
        let [one, two] = two(env).await;
        let mut claimed_ones = 0;
        for round in 0..short_or_long(100, 2000) {
            let work = manifest(Uuid::new_v4());
            one.enqueue(vec![work.clone()]).await.unwrap();
            let (claimed, withdrawn) = tokio::join!(
                one.claim(MANIFEST, 1, Uuid::new_v4()),
                two.commit(Transaction::new().withdraw(work.id, serde_json::json!({})))
            );
            let claimed = claimed.unwrap();
            assert_eq!(claimed.len() == 1, withdrawn.is_err(), "round {round}");
            claimed_ones += claimed.len();
            for claimed in claimed {
                finish(&two, claimed.lease).await;
            }
            assert!(next(&one, MANIFEST).await.is_none(), "round {round}");
        }
        assert_eq!(repaired(&one).await, 0);
        println!("{claimed_ones} were claimed first");
    }
}

on_both_engines! {
    async fn many_holders_end_many_pieces_at_once_without_a_deadlock(env: &TestEnvironment) {
        let stores = two(env).await;
        let lanes: Vec<Uuid> = (0..40).map(|_| Uuid::new_v4()).collect();
        env.store.set_budget("fleet", Some(30), None).await.unwrap();
        let mut tasks = JoinSet::new();
        for n in 0..6_usize {
            let (store, mut lanes) = (stores[n % 2].clone(), lanes.clone());
            // Each names the lanes in another order; the store locks them in its own.
            lanes.rotate_left(n * 7);
            if n % 2 == 1 {
                lanes.reverse();
            }
            tasks.spawn(async move {
                for _ in 0..short_or_long(10, 200) {
                    let work = lanes.iter().map(|lane| manifest(*lane).counted(&["fleet"]));
                    store.enqueue(work.collect()).await.unwrap();
                    let mut claimed = claim(&store, MANIFEST, 20).await;
                    claimed.reverse();
                    let ends: Vec<_> = claimed.iter().map(|it| done(it.lease)).collect();
                    assert!(store.complete(&ends).await.unwrap().iter().all(|outcome| *outcome == CompletionOutcome::Done));
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert_eq!(repaired(&env.store).await, 0);
        let seen = env.store.budgets().await.unwrap();
        assert_eq!(seen[0].used, 0);
    }
}

#[test]
fn heads_and_lanes_that_are_wrong_are_repaired_and_counted_on_sqlite() {
    block_on(async {
        let env = TestEnvironment::sqlite().await;
        let work: Vec<NewWork> = (0..9).map(|_| manifest(Uuid::new_v4())).collect();
        env.store.enqueue(work.clone()).await.unwrap();
        // Nothing in the store does this; an administrator with a tool can.
        let vandal = rusqlite::Connection::open(env.path()).unwrap();
        vandal.execute("delete from lanes where lane in (?1, ?2)", [work[0].lane, work[5].lane]).unwrap();
        vandal.execute("update lanes set head_kind = null where lane = ?1", [work[3].lane]).unwrap();
        drop(vandal);
        assert_eq!(complete_all(&env.store, MANIFEST).await.len(), 6);
        // In blocks smaller than the number of faults, so that each block continues where the last one ended.
        let (mut changed, mut after) = (0, None);
        loop {
            let walk = env.store.repair(after, 2).await.unwrap();
            changed += walk.changed;
            match walk.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(changed, 3);
        assert_eq!(complete_all(&env.store, MANIFEST).await.len(), 3);
        env.assert_sound().await;
    });
}
