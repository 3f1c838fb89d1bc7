//! After any change, one pass later, what is pending is what is wanted.

use std::collections::BTreeSet;

use api::doc::{MissedPolicy, ProvisioningState, ScheduleState, Subscription, SubscriptionState};
use api::work::{WorkKind, WorkState};
use jiff::{SignedDuration, ToSpan};
use serde_json::json;
use store::PendingManifests;
use uuid::Uuid;

use super::fixture::{TestScheduler, by, calendar_at, cluster, daily, on_both_engines, reconcile};

on_both_engines! {
    async fn manifests_are_created_for_the_selected_clusters_and_written_once(test: &TestScheduler) {
        let (one, two) = (test.import(&cluster("one")).await, test.import(&cluster("two")).await);
        let mut other = cluster("other");
        other.labels.clear();
        test.import(&other).await;
        test.put(&daily("nightly", test.now())).await;
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (2, 0));
        assert_eq!(test.clusters_of("nightly").await, BTreeSet::from([one, two]));
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        // One that begins anew finds all in order.
        assert_eq!(reconcile(&mut test.scheduler().await).await, (0, 0));
        let status = test.store.schedule_status("nightly").await.unwrap().unwrap();
        assert_eq!((status.matched, status.created, status.cancelled, status.errors.len()), (2, 2, 0, 0));
        assert_eq!(status.next_periods.len(), 5);
        let work = &test.pending("nightly").await[0];
        assert_eq!(work.run_after, status.next_periods[0]);
        assert_eq!(work.budgets[..2], ["fleet".to_owned(), "region/here".to_owned()]);
        assert_eq!(test.schedule("nightly").await.etag.to_string(), "\"1\"");
    }
}

on_both_engines! {
    async fn a_new_a_relabelled_and_a_removed_cluster_take_effect_at_once(test: &TestScheduler) {
        test.put(&daily("nightly", test.now())).await;
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        let one = test.import(&cluster("one")).await;
        let two = test.import(&cluster("two")).await;
        assert_eq!(reconcile(&mut scheduler).await, (2, 0));
        test.change_cluster(one, |it| it.labels.clear()).await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 1));
        assert_eq!(test.clusters_of("nightly").await, BTreeSet::from([two]));
        // What its schedule withdrew comes back, as the same manifest.
        test.change_cluster(one, |it| drop(it.labels.insert("ring".to_owned(), "1".to_owned()))).await;
        assert_eq!(reconcile(&mut scheduler).await, (1, 0));
        assert_eq!(test.clusters_of("nightly").await, BTreeSet::from([one, two]));
        test.store.clusters().forget(&test.cluster(two).await, &by()).await.unwrap();
        assert_eq!(reconcile(&mut scheduler).await, (0, 0)); // the store has withdrawn it with the cluster
        assert_eq!(test.clusters_of("nightly").await, BTreeSet::from([one]));
        // A cluster that is being removed is none to be maintained.
        test.change_cluster(one, |it| it.provisioning_state = ProvisioningState::Deleting).await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 1));
        // One of the same name is another cluster, with its own manifest.
        let again = test.import(&cluster("two")).await;
        assert_ne!(again, two);
        assert_eq!(reconcile(&mut scheduler).await, (1, 0));
    }
}

on_both_engines! {
    async fn changed_times_priorities_and_parameters_replace_pending_manifests(test: &TestScheduler) {
        test.import(&cluster("one")).await;
        let mut schedule = daily("nightly", test.now());
        test.put(&schedule).await;
        let mut scheduler = test.scheduler().await;
        reconcile(&mut scheduler).await;
        let first = test.pending("nightly").await[0].clone();
        schedule.calendars = vec![calendar_at(test.now() + 5.hours())];
        test.put(&schedule).await;
        assert_eq!(reconcile(&mut scheduler).await, (1, 1));
        let second = test.pending("nightly").await;
        assert_eq!(second.len(), 1);
        assert_ne!(second[0].id, first.id);
        let ended = test.store.work(first.id).await.unwrap().unwrap();
        assert_eq!(ended.state, WorkState::Cancelled);
        assert_eq!(
            ended.result.unwrap().to_json(),
            json!({ "code": "Superseded", "message": "Cancelled by Scheduler as did not match current schedule settings" })
        );
        // The same period, otherwise: the same manifest, brought back as it is wanted.
        for change in 0..4 {
            match change {
                0 => schedule.priority = 7,
                1 => schedule.start_within = Some("3h".to_owned()),
                2 => drop(schedule.parameters.insert("name".to_owned(), json!("web"))),
                _ => schedule.schedule_across = "1h".to_owned(),
            }
            test.put(&schedule).await;
            assert_eq!(reconcile(&mut scheduler).await, (1, 1), "change {change}");
            let pending = test.pending("nightly").await;
            assert_eq!((pending.len(), pending[0].id, pending[0].priority), (1, second[0].id, 7));
            // Also to one that has just begun, and reads the parameters from the manifest.
            assert_eq!(reconcile(&mut test.scheduler().await).await, (0, 0), "change {change}");
        }
        let manifest = test.store.manifests().get(second[0].id).await.unwrap().unwrap().document;
        assert_eq!(manifest.parameters["name"], "web");
        assert_eq!(manifest.run_before.duration_since(manifest.run_after), SignedDuration::from_hours(3));
    }
}

on_both_engines! {
    async fn manifests_of_a_disabled_schedule_are_withdrawn_and_restored(test: &TestScheduler) {
        test.import(&cluster("one")).await;
        let two = test.import(&cluster("two")).await;
        let mut schedule = daily("nightly", test.now());
        schedule.look_forward_count = 2;
        test.put(&schedule).await;
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (4, 0));
        // A person cancels one slot.
        let slot = test.pending("nightly").await.into_iter().find(|work| work.lane == two).unwrap();
        let read = test.store.manifests().get(slot.id).await.unwrap().unwrap();
        test.store.manifests().cancel(&read, &by()).await.unwrap();
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        schedule.state = ScheduleState::Disabled;
        test.put(&schedule).await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 3));
        assert!(test.pending("nightly").await.is_empty());
        assert_eq!(reconcile(&mut test.scheduler().await).await, (0, 0));
        schedule.state = ScheduleState::Enabled;
        test.put(&schedule).await;
        // By one that was there all the time, or by one that comes fresh: what the person cancelled stays cancelled.
        assert_eq!(reconcile(&mut test.scheduler().await).await, (3, 0));
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        assert_eq!(test.state(slot.id).await, WorkState::Cancelled);
        assert_eq!(test.pending("nightly").await.len(), 3);
    }
}

on_both_engines! {
    async fn manifests_of_a_deleted_schedule_are_withdrawn_unless_kept(test: &TestScheduler) {
        test.import(&cluster("one")).await;
        for id in ["first", "second", "third"] {
            test.put(&daily(id, test.now())).await;
        }
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (3, 0));
        test.store.delete_schedule(&test.schedule("first").await, PendingManifests::Cancel, &by()).await.unwrap();
        assert!(test.pending("first").await.is_empty());
        test.store.delete_schedule(&test.schedule("second").await, PendingManifests::Keep, &by()).await.unwrap();
        // By somebody who removes only the document.
        test.store.schedules().delete(&test.schedule("third").await, &by()).await.unwrap();
        assert_eq!(reconcile(&mut scheduler).await, (0, 1));
        assert_eq!((test.pending("second").await.len(), test.pending("third").await.len()), (1, 0));
        // Nor does one that begins anew touch what is kept, or what happens to it later.
        let mut fresh = test.scheduler().await;
        assert_eq!(reconcile(&mut fresh).await, (0, 0));
        let kept = test.pending("second").await[0].clone();
        let read = test.store.manifests().get(kept.id).await.unwrap().unwrap();
        test.store.manifests().expedite(&read, &by()).await.unwrap();
        assert_eq!((reconcile(&mut fresh).await, reconcile(&mut scheduler).await), ((0, 0), (0, 0)));
        assert_eq!(test.state(kept.id).await, WorkState::Pending);
        assert_eq!(test.store.schedule_status("first").await.unwrap(), None);
    }
}

on_both_engines! {
    async fn manifests_of_the_next_period_are_created_when_one_starts(test: &TestScheduler) {
        test.import(&cluster("one")).await;
        test.put(&daily("nightly", test.now())).await;
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (1, 0));
        let boundary = scheduler.fleet.next_period().unwrap();
        test.clock.advance(boundary.duration_since(test.now()) - SignedDuration::from_secs(1));
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        test.clock.advance(SignedDuration::from_secs(1));
        assert_eq!(reconcile(&mut scheduler).await, (1, 0));
        let pending = test.pending("nightly").await;
        assert_eq!(pending.len(), 2); // the open period is kept
        assert_eq!(pending[1].run_after.duration_since(pending[0].run_after), SignedDuration::from_hours(24));
        // A cluster that comes when the period has begun has its first manifest in the next.
        test.import(&cluster("late")).await;
        assert_eq!(reconcile(&mut scheduler).await, (1, 0));
        // One that was withdrawn within an open period comes back into it.
        let mut schedule = test.schedule("nightly").await.document;
        schedule.state = ScheduleState::Disabled;
        test.put(&schedule).await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 3));
        schedule.state = ScheduleState::Enabled;
        test.put(&schedule).await;
        assert_eq!(reconcile(&mut test.scheduler().await).await, (3, 0));
    }
}

on_both_engines! {
    async fn a_missed_period_is_made_up_for_once_by_policy(test: &TestScheduler) {
        let one = test.import(&cluster("one")).await;
        for (id, missed_policy) in [("skips", MissedPolicy::Skip), ("catches-up", MissedPolicy::RunOnce)] {
            let schedule = api::doc::Schedule { missed_policy, ..daily(id, test.now()) };
            test.put(&schedule).await;
        }
        // Nobody schedules for three days and five hours: three or four periods have passed.
        test.clock.advance(SignedDuration::from_hours(77));
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (3, 0));
        let due = |works: Vec<store::WorkView>| works.into_iter().filter(|work| work.run_after <= test.now()).count();
        assert_eq!((due(test.pending("skips").await), due(test.pending("catches-up").await)), (0, 1));
        // It is run and is not made again.
        let late = test.pending("catches-up").await[0].clone();
        assert_eq!(late.lane, one);
        let read = test.store.manifests().get(late.id).await.unwrap().unwrap();
        test.store.manifests().cancel(&read, &by()).await.unwrap();
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        assert_eq!(reconcile(&mut test.scheduler().await).await, (0, 0));
    }
}

on_both_engines! {
    async fn started_and_expedited_manifests_stay(test: &TestScheduler) {
        let one = test.import(&cluster("one")).await;
        test.import(&cluster("two")).await;
        let mut schedule = daily("nightly", test.now());
        test.put(&schedule).await;
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (2, 0));
        for work in test.pending("nightly").await {
            let read = test.store.manifests().get(work.id).await.unwrap().unwrap();
            test.store.manifests().expedite(&read, &by()).await.unwrap();
        }
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        assert_eq!(reconcile(&mut test.scheduler().await).await, (0, 0));
        // Both are claimed; one is given back to be tried again.
        let claimed = test.store.claim(WorkKind::Manifest, 10, Uuid::new_v4()).await.unwrap();
        assert_eq!(claimed.len(), 2);
        let back = claimed.iter().find(|it| it.lease.lane == one).unwrap();
        let step = test.store.checkpoint(back.lease, "cordon", json!({})).await;
        step.unwrap();
        let rest = std::time::Duration::from_secs(600);
        test.store.release(store::Release::new(back.lease, rest, true)).await.unwrap();
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        schedule.state = ScheduleState::Disabled;
        test.put(&schedule).await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        assert_eq!(reconcile(&mut test.scheduler().await).await, (0, 0));
        assert_eq!(test.state(back.lease.work).await, WorkState::Pending);
    }
}

on_both_engines! {
    async fn a_changed_subscription_state_takes_effect(test: &TestScheduler) {
        let one = test.import(&cluster("one")).await;
        let mut schedule = daily("nightly", test.now());
        schedule.selectors = vec![json!({ "key": "subscriptionState", "operator": "in", "values": ["Registered", "Warned"] })];
        test.put(&schedule).await;
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        let subscription = |state| Subscription {
            subscription_id: cluster("one").subscription_id,
            state,
            tenant_id: None,
            registered_features: Vec::new(),
            body: serde_json::Value::Null,
        };
        for (state, expect) in [
            (SubscriptionState::Registered, (1, 0)),
            (SubscriptionState::Warned, (0, 0)),
            (SubscriptionState::Suspended, (0, 1)),
            (SubscriptionState::Warned, (1, 0)),
        ] {
            test.store.subscriptions().put(&subscription(state), None, &by()).await.unwrap();
            assert_eq!(reconcile(&mut scheduler).await, expect, "{state:?}");
        }
        assert_eq!(test.clusters_of("nightly").await, BTreeSet::from([one]));
    }
}

on_both_engines! {
    async fn a_schedule_selects_by_observed_version(test: &TestScheduler) {
        let one = test.import(&cluster("one")).await;
        let mut schedule = daily("nightly", test.now());
        schedule.selectors = vec![json!({ "key": "version", "operator": "lt", "value": "1.38" })];
        test.put(&schedule).await;
        let mut scheduler = test.scheduler().await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        for (version, expect) in [("v1.37.1", (1, 0)), ("v1.38.0", (0, 1))] {
            let sample = store::HealthSample {
                cluster: one,
                at: test.now(),
                reachable: true,
                since: test.now(),
                details: json!({ "version": version }).into(),
            };
            test.store.health_writer().put(vec![sample]).await.unwrap();
            test.clock.advance(SignedDuration::from_secs(61));
            assert_eq!(reconcile(&mut scheduler).await, expect, "{version}");
        }
    }
}

on_both_engines! {
    async fn an_invalid_schedule_has_an_error_and_keeps_its_manifests(test: &TestScheduler) {
        test.import(&cluster("one")).await;
        let mut schedule = daily("nightly", test.now());
        test.put(&schedule).await;
        let mut scheduler = test.scheduler().await;
        reconcile(&mut scheduler).await;
        schedule.calendars = vec!["every morning".to_owned()];
        test.put(&schedule).await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        assert_eq!(test.pending("nightly").await.len(), 1);
        let status = test.store.schedule_status("nightly").await.unwrap().unwrap();
        assert!(status.errors[0].starts_with("schedule: \"every morning\" is no calendar"), "{:?}", status.errors);
        assert_eq!(reconcile(&mut test.scheduler().await).await, (0, 0));
        schedule.calendars = vec![calendar_at(test.now() + 2.hours())];
        test.put(&schedule).await;
        assert_eq!(reconcile(&mut scheduler).await, (0, 0));
        assert!(test.store.schedule_status("nightly").await.unwrap().unwrap().errors.is_empty());
    }
}
