//! The provider's process ends at every call, before its effect and, where it has one, after it; another process goes on. There is one
//! instance, and its deletion leaves nothing behind.

use std::sync::Arc;

use cloud::{InstanceError, InstanceProvider as _, InstanceRequest};
use cloud_aws::AwsInstances;
use futures_util::future::join_all;
use jiff::Timestamp;

use crate::balancers::{all_members, all_targets, create as create_balancers, spec as balancers};
use crate::environment::{Environment, created, deleted, moto, recorded, settings};
use crate::proxy::Proxy;

/// The place at which a process ends: a call, by its number, and whether it has its effect.
type Place = (usize, bool);

/// A cluster with a load balancer of each kind, so that every call is made.
async fn environment(cluster: &str, region: &'static str) -> Option<Environment> {
    let environment = Environment::in_region(moto()?, cluster, region).await;
    create_balancers(&environment).await;
    Some(environment)
}

fn machine(environment: &Environment, place: Option<Place>) -> InstanceRequest {
    let place = place.map_or("whole".to_owned(), |(call, has_effect)| {
        format!("{call:02}{}", if has_effect { "a" } else { "b" })
    });
    let mut request = environment.machine(&format!("{}-{place}", environment.cluster));
    request.provider_spec["loadBalancers"] = balancers(environment);
    request
}

/// The time at which the deletion of a Machine is requested: now.
fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// The processes of one Machine, one after the other, behind a proxy of their own.
struct Processes<'a> {
    environment: &'a Environment,
    proxy: Proxy,
}

impl Processes<'_> {
    async fn of(environment: &Environment) -> Processes<'_> {
        Processes { environment, proxy: environment.another_proxy().await }
    }

    /// A process that has just started.
    fn next(&self) -> AwsInstances {
        AwsInstances::new(settings(&self.proxy), Arc::clone(&self.environment.clock) as _).unwrap()
    }

    /// Runs an operation in a process that ends at a place.
    async fn run<T>(
        &self,
        place: Option<Place>,
        operation: impl AsyncFnOnce(&AwsInstances) -> Result<T, InstanceError>,
    ) {
        self.proxy.take_calls();
        let provider = self.next();
        let Some((call, has_effect)) = place else {
            operation(&provider).await.map(drop).unwrap();
            return;
        };
        self.proxy.crash_at(call, has_effect);
        tokio::select! {
            () = self.proxy.crashed() => {}
            _ = operation(&provider) => panic!("the operation ended before its call {call}"),
        }
    }
}

/// Every place of an operation, from the calls that it has made, all of which are permitted.
fn places(processes: &Processes<'_>) -> Vec<Place> {
    let calls = processes.proxy.take_calls();
    for call in &calls {
        assert!(cloud_aws::ACTIONS.iter().any(|it| it.ends_with(&format!(":{call}"))), "{call}");
    }
    let is_read = |call: usize| calls[call].starts_with("Describe");
    let all = (0..calls.len()).flat_map(|it| [(it, false), (it, true)]);
    all.filter(|(call, has_effect)| !*has_effect || !is_read(*call)).collect()
}

/// How many places there are after an effect.
fn effects(places: &[Place]) -> usize {
    places.iter().filter(|(_, has_effect)| *has_effect).count()
}

#[tokio::test]
async fn a_creation_that_ends_anywhere_is_continued_to_one_instance() {
    let Some(environment) = environment("crash1", "eu-west-2").await else { return };
    let check = async |place: Option<Place>| {
        let (request, processes) = (machine(&environment, place), Processes::of(&environment).await);
        processes.run(place, async |it| it.create(&request).await).await;
        let places = places(&processes);
        created(&processes.next(), &request).await;
        assert_eq!(environment.present(&request.name).await.len(), 1, "{}", request.name);
        places
    };
    let places = check(None).await;
    // Launch, and one registration in each place.
    assert_eq!(effects(&places), 4);
    join_all(places.iter().map(async |it| check(Some(*it)).await)).await;
    assert_eq!(all_members(&environment).await, 3 * (places.len() + 1));
}

#[tokio::test]
async fn a_creation_that_ends_anywhere_and_is_given_up_leaves_nothing_behind() {
    let Some(environment) = environment("crash2", "eu-west-3").await else { return };
    let check = async |place: Option<Place>| {
        let (mut request, processes) = (machine(&environment, place), Processes::of(&environment).await);
        processes.run(place, async |it| it.create(&request).await).await;
        let places = places(&processes);
        request.deleted = Some(now());
        deleted_or_waiting(&processes.next(), &request).await;
        assert_eq!(environment.present(&request.name).await.len(), 0, "{}", request.name);
        places
    };
    let places = check(None).await;
    join_all(places.iter().map(async |it| check(Some(*it)).await)).await;
    assert_eq!(all_targets(&environment).await, 0);
}

#[tokio::test]
async fn a_launch_that_is_not_visible_when_the_process_ends_is_deleted_all_the_same() {
    let Some(environment) = environment("crash3", "eu-central-1").await else { return };
    let (mut request, processes) = (machine(&environment, None), Processes::of(&environment).await);
    processes.proxy.show_launches_late(3);
    processes.proxy.fail_next("RunInstances", crate::proxy::Fault::Crash { after_effect: true });
    let provider = processes.next();
    tokio::select! {
        () = processes.proxy.crashed() => {}
        _ = provider.create(&request) => panic!("the process did not end"),
    }
    request.deleted = Some(now());
    deleted_or_waiting(&processes.next(), &request).await;
    assert_eq!(environment.present(&request.name).await.len(), 0);
}

#[tokio::test]
async fn a_refresh_that_ends_anywhere_is_repeated() {
    let Some(environment) = environment("crash4", "eu-north-1").await else { return };
    let check = async |place: Option<Place>| {
        let (mut request, processes) = (machine(&environment, place), Processes::of(&environment).await);
        let balancers = request.provider_spec["loadBalancers"].take();
        let instance = created(&processes.next(), &request).await;
        request = recorded(&request, &instance);
        request.provider_spec["loadBalancers"] = balancers;
        request.tags.insert("department".to_owned(), "shipping".to_owned());
        processes.run(place, async |it| it.update(&request, &instance).await).await;
        let places = places(&processes);
        processes.next().update(&request, &instance).await.unwrap();
        let [found] = environment.present(&request.name).await.try_into().unwrap();
        assert!(found.tags().iter().any(|it| it.key() == Some("department")), "{}", request.name);
        places
    };
    let places = check(None).await;
    // The tags, and one registration in each place.
    assert_eq!(effects(&places), 4);
    join_all(places.iter().map(async |it| check(Some(*it)).await)).await;
    assert_eq!(all_members(&environment).await, 3 * (places.len() + 1));
}

#[tokio::test]
async fn a_deletion_that_ends_anywhere_is_continued_to_nothing() {
    let Some(environment) = environment("crash5", "us-east-2").await else { return };
    let check = async |place: Option<Place>| {
        let (request, processes) = (machine(&environment, place), Processes::of(&environment).await);
        let instance = created(&processes.next(), &request).await;
        let request = recorded(&request, &instance);
        processes.run(place, async |it| it.delete(&request).await).await;
        let places = places(&processes);
        deleted(&processes.next(), &request).await;
        assert_eq!(environment.present(&request.name).await.len(), 0, "{}", request.name);
        places
    };
    let places = check(None).await;
    // One end of a membership in each group, and the termination.
    assert_eq!(effects(&places), 3);
    join_all(places.iter().map(async |it| check(Some(*it)).await)).await;
    assert_eq!(all_targets(&environment).await, 0);
}

/// Deletes what is visible. A deletion waits while something may become visible: until then it is repeated, and no time passes here.
async fn deleted_or_waiting(provider: &AwsInstances, request: &InstanceRequest) {
    for _ in 0..6 {
        if let Ok(()) = provider.delete(request).await {
            return;
        }
    }
}
