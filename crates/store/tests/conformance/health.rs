//! The health record: transitions on change only, confirmation without a write of the sample; the pool of workers.

use std::time::Duration;

use api::health::{HealthFacet, HealthSample};
use jiff::Timestamp;
use serde_json::json;
use store::{BUCKETS, HealthEvent, Retention, Store};
use uuid::Uuid;

use crate::fixture::{Note, context, written};
use crate::raw::RawDatabase;
use crate::retention::keep_house;

const LEASE: Duration = Duration::from_secs(60);

fn sample(cluster: Uuid, reachable: bool, version: &str) -> HealthSample {
    let details = json!({"version": version, "observed": {"causes": []}}).into();
    HealthSample { cluster, at: Timestamp::MIN, reachable, since: Timestamp::MIN, details }
}

async fn events(store: &Store, cluster: Uuid, facet: HealthFacet) -> Vec<HealthEvent> {
    let mut events = store.health_events(vec![cluster], Timestamp::UNIX_EPOCH, 100).await.unwrap();
    events.retain(|it| it.facet == facet.as_str());
    events.reverse();
    events
}

fn moves(events: &[HealthEvent]) -> Vec<(Option<&str>, &str)> {
    events.iter().map(|it| (it.previous.as_deref(), it.value.as_str())).collect()
}

on_both_engines! {
    async fn a_transition_is_recorded_when_a_facet_changes_and_only_then(env: &TestEnvironment) {
        let (store, cluster) = (&env.store, Uuid::new_v4());
        let writer = store.health_writer();
        for (reachable, version) in [(true, "v1"), (true, "v1"), (false, "v1"), (false, "v1"), (true, "v2")] {
            writer.put(vec![sample(cluster, reachable, version)]).await.unwrap();
        }
        let status = events(store, cluster, HealthFacet::Status).await;
        assert_eq!(moves(&status), [(None, "healthy"), (Some("healthy"), "unreachable"), (Some("unreachable"), "healthy")]);
        assert!(status.is_sorted_by(|a, b| a.at < b.at));
        let version = events(store, cluster, HealthFacet::Version).await;
        assert_eq!(moves(&version), [(None, "v1"), (Some("v1"), "v2")]);
        let later = store.health_events(vec![cluster], version[1].at, 100).await.unwrap();
        assert!(later.iter().all(|it| it.at >= version[1].at) && later.contains(&version[1]));
        assert!(store.health_events(vec![Uuid::new_v4()], Timestamp::UNIX_EPOCH, 10).await.unwrap().is_empty());
    }
}

on_both_engines! {
    async fn two_writers_of_the_same_observation_record_it_once(env: &TestEnvironment) {
        let (store, clusters) = (&env.store, [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()]);
        for round in 0..20 {
            let put = async || {
                let samples = clusters.iter().map(|it| sample(*it, round % 2 == 0, "v1")).collect();
                store.health_writer().put(samples).await.unwrap();
            };
            tokio::join!(put(), put(), put());
        }
        for cluster in clusters {
            assert_eq!(events(store, cluster, HealthFacet::Status).await.len(), 20);
        }
    }
}

on_both_engines! {
    async fn a_confirmed_sample_is_newer_and_otherwise_the_same(env: &TestEnvironment) {
        let (store, cluster, me) = (&env.store, Uuid::new_v4(), Uuid::new_v4());
        let raw = RawDatabase::connect(env).await;
        let writer = store.health_writer();
        let mine = HealthSample {
            details: json!({"version": "v1", "observed": {"observer": me}}).into(),
            ..sample(cluster, true, "v1")
        };
        writer.put(vec![mine]).await.unwrap();
        raw.execute("update health set at = at - 60000000").await;
        let before = store.health(vec![cluster]).await.unwrap().remove(0);
        assert_eq!(writer.confirm(me, vec![(cluster, true), (Uuid::new_v4(), true)]).await.unwrap(), [cluster]);
        let after = store.health(vec![cluster]).await.unwrap().remove(0);
        assert!(after.at > before.at);
        assert_eq!(HealthSample { at: before.at, ..after }, before);
        // What somebody else wrote meanwhile is not confirmed.
        assert!(writer.confirm(me, vec![(cluster, false)]).await.unwrap().is_empty());
        writer.put(vec![sample(cluster, true, "v1")]).await.unwrap();
        assert!(writer.confirm(me, vec![(cluster, true)]).await.unwrap().is_empty());
    }
}

on_both_engines! {
    async fn old_events_leave_but_the_present_value_of_a_facet_stays(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let (living, gone) = (written(store, &Note::fresh()).await, written(store, &Note::fresh()).await);
        for reachable in [true, false] {
            let samples = [living.uuid, gone.uuid].map(|it| sample(it, reachable, "v1")).to_vec();
            store.health_writer().put(samples).await.unwrap();
        }
        raw.execute("update health_events set at = at - 86400000000 * 401").await;
        store.collection().delete(&gone, &context()).await.unwrap();
        keep_house(store, &raw, Retention::default()).await;
        keep_house(store, &raw, Retention::default()).await;
        assert_eq!(moves(&events(store, living.uuid, HealthFacet::Status).await), [(Some("healthy"), "unreachable")]);
        assert!(store.health_events(vec![gone.uuid], Timestamp::UNIX_EPOCH, 10).await.unwrap().is_empty());
    }
}

on_both_engines! {
    async fn one_worker_leads_and_assigns_until_its_lease_expires(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let registry = store.worker_registry("monitor");
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let view = registry.refresh(one, LEASE, LEASE).await.unwrap();
        assert_eq!((view.is_leader, view.workers, view.buckets), (true, vec![one], None));
        let view = registry.refresh(two, LEASE, LEASE).await.unwrap();
        assert_eq!((view.is_leader, view.workers), (false, vec![one, two]));

        let owned: Vec<Option<Uuid>> = (0..BUCKETS).map(|it| (it > 0).then_some(one)).collect();
        assert!(registry.assign(one, &owned).await.unwrap());
        assert!(!registry.assign(two, &vec![Some(two); BUCKETS]).await.unwrap());
        assert_eq!(registry.refresh(two, LEASE, LEASE).await.unwrap().buckets.unwrap(), owned);

        // The leader stops renewing.
        raw.execute("update leases set lease_until = lease_until - 61000000 where name like 'monitor/%'").await;
        let view = registry.refresh(two, LEASE, LEASE).await.unwrap();
        assert_eq!((view.is_leader, view.workers), (true, vec![two]));
        assert!(!registry.assign(one, &owned).await.unwrap());
        assert!(registry.assign(two, &vec![Some(two); BUCKETS]).await.unwrap());

        // A worker that leaves is gone at once, and so is its leadership.
        registry.leave(two).await.unwrap();
        let view = registry.refresh(one, LEASE, LEASE).await.unwrap();
        assert_eq!((view.is_leader, view.workers), (true, vec![one]));
        // Other pools are other pools.
        let view = store.worker_registry("other").refresh(two, LEASE, LEASE).await.unwrap();
        assert_eq!((view.is_leader, view.workers, view.buckets), (true, vec![two], None));
    }
}
