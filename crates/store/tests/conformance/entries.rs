//! History entries: written with their event and not otherwise, in order, and bounded.

use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::work::{Ending, WorkKind, WorkState};
use jiff::Timestamp;
use serde_json::json;
use store::{
    Completion, CompletionOutcome, ENTRIES_MAX, ENTRY_BYTES_MAX, NewWork, Release, Store, StoreError,
    Transaction, WorkLease,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::TestEnvironment;
use crate::fixture::{Note, context};
use crate::queue_fixture::{
    WorkProperties as _, claim, complete_all, done, future, manifest, next, operation, past,
};

const MANIFEST: WorkKind = WorkKind::Manifest;

/// An entry of a worker.
fn entry_of(event: EntryEvent) -> Entry {
    Entry::new(past(5), event, "worker", 1)
}

fn with_message(event: EntryEvent, message: impl Into<String>) -> Entry {
    Entry { message: Some(message.into()), ..entry_of(event) }
}

/// All entries of a piece of work.
async fn log(store: &Store, work: Uuid) -> Vec<Entry> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.entries(work, after, 100).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = Some(last.0);
        all.extend(page.into_iter().map(|it| it.1));
    }
}

async fn events(store: &Store, work: Uuid) -> Vec<EntryEvent> {
    log(store, work).await.into_iter().map(|it| it.event).collect()
}

/// Two handles of the same store: two processes where the engine allows it.
async fn two(env: &TestEnvironment) -> [Store; 2] {
    let other = if env.is_shared() { env.another().await } else { env.store.clone() };
    [env.store.clone(), other]
}

on_both_engines! {
    async fn entries_are_listed_oldest_first_in_pages(env: &TestEnvironment) {
        let (store, work) = (&env.store, manifest(Uuid::new_v4()));
        store.enqueue(vec![work.clone()]).await.unwrap();
        let whole = Entry {
            step: Some("drain \u{1F6A2}".into()),
            from: Some(WorkState::Pending),
            to: Some(WorkState::InProgress),
            message: Some("a \"log\"\nof lines".to_owned()),
            duration_ms: Some(17),
            correlation_id: Some(Uuid::from_u128(9)),
            ..entry_of(EntryEvent::StepFinished)
        };
        let transaction = Transaction::new().record(work.id, entry_of(EntryEvent::Claimed)).record(work.id, whole.clone());
        store.commit(transaction).await.unwrap();
        store.commit(Transaction::new().record(work.id, with_message(EntryEvent::StepFailed, "no"))).await.unwrap();
        let first = store.entries(work.id, None, 2).await.unwrap();
        assert_eq!(first, [(1, entry_of(EntryEvent::Claimed)), (2, whole)]);
        let rest = store.entries(work.id, Some(2), 2).await.unwrap();
        assert_eq!(rest, [(3, with_message(EntryEvent::StepFailed, "no"))]);
        assert!(store.entries(work.id, Some(3), 2).await.unwrap().is_empty());
        assert!(store.entries(Uuid::new_v4(), None, 2).await.unwrap().is_empty());
    }
}

on_both_engines! {
    async fn entries_written_together_are_numbered_and_read_one_by_one(env: &TestEnvironment) {
        let (store, work) = (&env.store, manifest(Uuid::new_v4()));
        store.enqueue(vec![work.clone()]).await.unwrap();
        store.commit(Transaction::new().record(work.id, with_message(EntryEvent::Claimed, "0"))).await.unwrap();
        let held = claim(store, MANIFEST, 1).await;
        // Short ones, and one that would be too large for a row together with the others.
        let said = ["1", "2", &"3".repeat(50_000), "4", "5"];
        let entries = said.map(|it| with_message(EntryEvent::StepFinished, it)).to_vec();
        store.complete(&[Completion { entries, ..done(held[0].lease) }]).await.unwrap();
        let all = store.entries(work.id, None, 100).await.unwrap();
        assert_eq!(all.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        let messages: Vec<&str> = all.iter().filter_map(|it| it.1.message.as_deref()).collect();
        assert_eq!(messages, [&["0"][..], &said].concat());
        // A page may end in the middle of entries written together, and the next continues there.
        for limit in 1..=all.len() {
            let (mut paged, mut after) = (Vec::new(), None);
            while let page = store.entries(work.id, after, limit).await.unwrap()
                && let Some(last) = page.last()
            {
                assert!(page.len() <= limit);
                after = Some(last.0);
                paged.extend(page);
            }
            assert_eq!(paged, all, "{limit} at a time");
        }
    }
}

on_both_engines! {
    async fn the_entry_of_a_completion_is_written_with_it_at_the_stores_time(env: &TestEnvironment) {
        let store = &env.store;
        let works: Vec<NewWork> = (0..3).map(|_| manifest(Uuid::new_v4())).collect();
        store.enqueue(works.clone()).await.unwrap();
        let held = claim(store, MANIFEST, 3).await;
        let finish = Entry { to: Some(WorkState::Completed), ..entry_of(EntryEvent::Finished) };
        // One completion in a transaction, two in a batch of which one lease is lost.
        let end = Completion { entries: vec![entry_of(EntryEvent::StepFinished), finish.clone()], ..done(held[0].lease) };
        store.commit(Transaction::new().complete(end)).await.unwrap();
        let batch = [held[1].lease, WorkLease { fence: held[2].lease.fence - 1, ..held[2].lease }]
            .map(|lease| Completion { entries: vec![entry_of(EntryEvent::Claimed), finish.clone()], ..done(lease) });
        assert_eq!(store.complete(&batch).await.unwrap(), [CompletionOutcome::Done, CompletionOutcome::Lost]);
        assert_eq!(events(store, held[0].lease.work).await, [EntryEvent::StepFinished, EntryEvent::Finished]);
        assert_eq!(events(store, held[1].lease.work).await, [EntryEvent::Claimed, EntryEvent::Finished]);
        assert_eq!(events(store, held[2].lease.work).await, []);
        // The worker's clock shows 1970; the store knows the time of completion.
        let log = log(store, held[1].lease.work).await;
        let ended = store.work(held[1].lease.work).await.unwrap().unwrap().finished.unwrap();
        assert_eq!(log[0].time, past(5));
        assert!(log[1].time >= ended && log[1].time < ended + Duration::from_secs(60), "{} and {ended}", log[1].time);
    }
}

on_both_engines! {
    async fn an_event_that_did_not_happen_has_no_entry(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let work = manifest(lane);
        store.enqueue(vec![work.clone()]).await.unwrap();
        let lease = next(store, MANIFEST).await.unwrap().lease;
        let stale = WorkLease { fence: lease.fence - 1, ..lease };
        let entry = || entry_of(EntryEvent::StepFinished);
        let lost = [
            Transaction::new().checkpoint(stale, "s", json!(1)).record(work.id, entry()),
            Transaction::new().guard(stale).record(work.id, entry()),
            Transaction::new().complete(Completion { entries: vec![entry()], ..done(stale) }),
            Transaction::new().release(Release { entries: vec![entry()], ..Release::new(stale, Duration::ZERO, true) }),
        ];
        for transaction in lost {
            let outcome = store.commit(transaction).await;
            assert!(matches!(outcome, Err(StoreError::LostLease { .. })), "{outcome:?}");
        }
        // Nor an entry of any other transaction that was rolled back; nor of unknown work, and then nothing else
        // happens either.
        let taken = Transaction::new().checkpoint(lease, "s", json!(1)).record(work.id, entry()).enqueue(work.clone());
        assert!(matches!(store.commit(taken).await, Err(StoreError::Exists { .. })));
        let note = Uuid::now_v7();
        let unknown = Transaction::new().create(note, &Note::fresh(), &context()).unwrap().record(Uuid::new_v4(), entry());
        assert!(matches!(store.commit(unknown).await, Err(StoreError::NoSuchWork { .. })));
        assert!(store.get(note).await.unwrap().is_none());
        assert_eq!(events(store, work.id).await, []);
        assert_eq!(store.work(work.id).await.unwrap().unwrap().step, None);
        // Events that happened have theirs.
        store.commit(Transaction::new().checkpoint(lease, "s", json!(1)).record(work.id, entry())).await.unwrap();
        assert_eq!(events(store, work.id).await, [EntryEvent::StepFinished]);
    }
}

on_both_engines! {
    async fn work_is_released_with_a_checkpoint_for_the_next_holder(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let (one, two) = (manifest(lane).after(past(0)), manifest(lane).after(past(1)));
        store.enqueue(vec![one.clone(), two.clone()]).await.unwrap();
        let first = next(store, MANIFEST).await.unwrap();
        assert_eq!((first.lease.work, first.first, first.taken_over), (one.id, true, false));
        let parked = Release {
            checkpoint: Some(("wait".to_owned(), json!({ "waiting": "Unreachable" }))),
            entries: vec![entry_of(EntryEvent::Yielded)],
            ..Release::new(first.lease, Duration::from_secs(3600), false)
        };
        store.release(parked.clone()).await.unwrap();
        assert!(matches!(store.release(parked).await, Err(StoreError::LostLease { .. })), "given back twice");
        let seen = store.work(one.id).await.unwrap().unwrap();
        assert_eq!((seen.step.as_deref(), seen.checkpoint), (Some("wait"), Some(json!({ "waiting": "Unreachable" }))));
        assert_eq!(events(store, one.id).await, [EntryEvent::Yielded]);
        // No step was started: another unstarted one may go first.
        let second = next(store, MANIFEST).await.unwrap();
        assert_eq!(second.lease.work, two.id);
        // Started work keeps its place, and its checkpoint unless it leaves another.
        store.checkpoint(second.lease, "begun", json!({ "done": 1 })).await.unwrap();
        store.release(Release::new(second.lease, Duration::ZERO, true)).await.unwrap();
        let again = next(store, MANIFEST).await.unwrap();
        assert_eq!((again.lease.work, again.first, again.attempt), (two.id, false, 2));
        assert_eq!((again.step.as_deref(), again.checkpoint), (Some("begun"), Some(json!({ "done": 1 }))));
        assert!(again.claimed_at >= second.claimed_at);
        let back = Release { checkpoint: Some(("more".to_owned(), json!({ "done": 2 }))), ..Release::new(again.lease, Duration::ZERO, true) };
        store.release(back).await.unwrap();
        assert_eq!(next(store, MANIFEST).await.unwrap().checkpoint, Some(json!({ "done": 2 })));
    }
}

on_both_engines! {
    async fn a_takeover_returns_the_signals_of_the_lost_holder(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::new_v4());
        let work = manifest(lane);
        store.enqueue(vec![work.clone()]).await.unwrap();
        let lost = store.claim_for(MANIFEST, 1, Uuid::new_v4(), Duration::ZERO).await.unwrap().remove(0);
        assert!(!lost.signals.cancel && !lost.signals.preempt);
        store.commit(Transaction::new().request_cancel(work.id)).await.unwrap();
        store.enqueue(vec![operation(lane)]).await.unwrap();
        let taken = store.take_over(MANIFEST, 1, Uuid::new_v4()).await.unwrap().remove(0);
        assert!(taken.taken_over && !taken.first && taken.signals.cancel && taken.signals.preempt, "{taken:?}");
        assert!(taken.claimed_at >= lost.claimed_at);
    }
}

on_both_engines! {
    async fn the_store_writes_entries_of_ends_without_a_holder(env: &TestEnvironment) {
        let store = &env.store;
        let [touched, swept, withdrawn] = [(); 3].map(|()| Uuid::new_v4());
        let late = manifest(touched).after(past(0)).before(past(9));
        let asleep = manifest(swept).after(future(0)).before(past(9));
        let forgotten = manifest(withdrawn).after(future(0));
        store.enqueue(vec![late.clone(), asleep.clone(), forgotten.clone()]).await.unwrap();
        assert!(complete_all(store, MANIFEST).await.is_empty());
        assert_eq!(store.expire(None, 100).await.unwrap().changed, 1);
        store.commit(Transaction::new().withdraw_lane(withdrawn, json!({ "message": "gone" }))).await.unwrap();
        for (work, state, message) in [
            (late.id, WorkState::TimedOut, "timed out at "),
            (asleep.id, WorkState::TimedOut, "timed out at "),
            (forgotten.id, WorkState::Cancelled, "gone"),
        ] {
            let log = log(store, work).await;
            let view = store.work(work).await.unwrap().unwrap();
            assert_eq!(log.len(), 1, "{log:?}");
            assert_eq!((&log[0].event, log[0].from, log[0].to), (&EntryEvent::Finished, Some(WorkState::Pending), Some(state)));
            assert!(log[0].message.as_ref().unwrap().starts_with(message), "{log:?}");
            assert_eq!(Some(log[0].time), view.finished);
            if state == WorkState::TimedOut {
                let result = view.result.unwrap().to_json();
                let at = result["message"].as_str().unwrap().strip_prefix("timed out at ").unwrap().to_owned();
                assert_eq!(at.parse::<Timestamp>().unwrap().as_second(), view.finished.unwrap().as_second());
                assert_eq!(result["code"], "TimedOut");
            }
        }
    }
}

on_both_engines! {
    async fn a_log_that_is_full_leaves_out_steps_and_counts_them(env: &TestEnvironment) {
        let (store, work, other) = (&env.store, manifest(Uuid::new_v4()), manifest(Uuid::new_v4()));
        store.enqueue(vec![work.clone(), other.clone()]).await.unwrap();
        let steps = |count: i64| (0..count).fold(Transaction::new(), |it, _| it.record(work.id, entry_of(EntryEvent::StepStarted)));
        for _ in 0..5 {
            store.commit(steps(ENTRIES_MAX / 5 - 1)).await.unwrap();
        }
        store.commit(steps(5)).await.unwrap();
        assert_eq!(store.entries_dropped(work.id).await.unwrap(), 0);
        for _ in 0..2 {
            store.commit(steps(3).record(other.id, entry_of(EntryEvent::StepFinished))).await.unwrap();
        }
        assert_eq!(store.entries_dropped(work.id).await.unwrap(), 6);
        let kept = [EntryEvent::Claimed, EntryEvent::Yielded, EntryEvent::TakenOver, EntryEvent::CancelRequested, EntryEvent::Finished];
        for event in kept.clone() {
            store.commit(steps(1).record(work.id, entry_of(event))).await.unwrap();
        }
        let log = events(store, work.id).await;
        assert_eq!(log.len(), usize::try_from(ENTRIES_MAX).unwrap() + kept.len());
        assert_eq!(log[log.len() - kept.len()..], kept);
        assert_eq!(store.entries_dropped(work.id).await.unwrap(), 11);
        assert_eq!((events(store, other.id).await.len(), store.entries_dropped(other.id).await.unwrap()), (2, 0));
    }
}

on_both_engines! {
    async fn an_entry_that_is_too_long_is_cut_with_a_notice(env: &TestEnvironment) {
        let (store, work) = (&env.store, manifest(Uuid::new_v4()));
        store.enqueue(vec![work.clone()]).await.unwrap();
        let long = "a\0\u{1}ö".repeat(ENTRY_BYTES_MAX);
        store.commit(Transaction::new().record(work.id, with_message(EntryEvent::StepFinished, &long))).await.unwrap();
        let message = log(store, work.id).await.remove(0).message.unwrap();
        assert!(message.len() < ENTRY_BYTES_MAX && message.starts_with("a\u{FFFD}\u{1}ö"), "{}", message.len());
        assert!(message.ends_with(&format!("… (cut: it had {} bytes)", long.len())));
    }
}

on_both_engines! {
    async fn concurrent_entries_of_the_same_work_are_all_stored(env: &TestEnvironment) {
        let work = manifest(Uuid::new_v4());
        env.store.enqueue(vec![work.clone()]).await.unwrap();
        let lease = next(&env.store, MANIFEST).await.unwrap().lease;
        let mut writers = JoinSet::new();
        for (writer, store) in two(env).await.into_iter().enumerate() {
            for number in 0..40 {
                let (store, work) = (store.clone(), work.id);
                writers.spawn(async move {
                    let entry = with_message(EntryEvent::StepStarted, format!("{writer}-{number}"));
                    // Holders and others, alternating.
                    let transaction = match number % 3 {
                        0 => Transaction::new().checkpoint(lease, "s", json!(number)),
                        1 => Transaction::new().request_cancel(work),
                        _ => Transaction::new(),
                    };
                    store.commit(transaction.record(work, entry)).await.unwrap();
                });
            }
        }
        // A concurrent reader, each page from the end of the last one, misses nothing.
        let (mut read, mut after) = (Vec::new(), None);
        while read.len() < 80 {
            let page = env.store.entries(work.id, after, 7).await.unwrap();
            after = page.last().map_or(after, |it| Some(it.0));
            read.extend(page.into_iter().map(|it| it.1.message.unwrap()));
            assert!(!writers.is_empty() || after.is_some());
            tokio::task::yield_now().await;
        }
        writers.join_all().await;
        assert_eq!(after, Some(80), "numbers have no gaps");
        read.sort();
        read.dedup();
        assert_eq!(read.len(), 80);
        let end = Completion::new(lease, Ending::Completed, json!({}));
        env.store.complete(&[Completion { entries: vec![entry_of(EntryEvent::Finished)], ..end }]).await.unwrap();
        assert_eq!(events(&env.store, work.id).await.last(), Some(&EntryEvent::Finished));
    }
}
