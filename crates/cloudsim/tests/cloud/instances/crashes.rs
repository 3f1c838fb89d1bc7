//! The provider's process ends at every call, before and after its effect, and another one goes on: there is one instance, and its
//! deletion leaves nothing behind.

use cloud::{InstanceProvider as _, InstanceRequest};
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use futures_util::future::join_all;

use super::{InstanceEnvironment, all_parts};

/// More calls than any operation makes about its own machine.
const CALLS_MAX: u32 = 13;
/// Attempts that the client makes of each call.
const ATTEMPTS: u32 = 3;

/// Ends the process at a call: after a number of calls about the machine, no other has an effect or a response. With `After`, the last
/// one has its effect, and its response is lost.
fn crash(environment: &InstanceEnvironment, machine: &str, calls: u32, when: FaultTiming) {
    let faults = &environment.emulator.faults;
    let rule = |when| FaultRule::new(CloudFault::Reset { when }).about(machine);
    match when {
        FaultTiming::Before => {
            faults.inject(rule(FaultTiming::Before).after(calls).times(ATTEMPTS)).unwrap();
        }
        FaultTiming::After => {
            // A call that the first rule meets is none of those that the second one spares.
            faults.inject(rule(FaultTiming::After).after(calls).times(1)).unwrap();
            faults.inject(rule(FaultTiming::Before).after(calls).times(ATTEMPTS - 1)).unwrap();
        }
    }
}

/// Whether the crash of a machine has happened, after which its rules are used up: an operation with fewer calls leaves them, and so does
/// a client that gives up early on a busy computer.
async fn has_crashed(
    environment: &InstanceEnvironment,
    request: &InstanceRequest,
    when: FaultTiming,
) -> bool {
    let rules = || {
        let mut rules = environment.emulator.faults.present();
        rules.retain(|it| it.about.as_deref() == Some(request.name.as_str()));
        rules
    };
    let is_unused = |it: &FaultRule| {
        it.fault == CloudFault::Reset { when }
            && it.times == Some(if when == FaultTiming::Before { ATTEMPTS } else { 1 })
    };
    let has_crashed = !rules().iter().any(is_unused);
    while !rules().is_empty() {
        let _ = environment.provider.find(request).await;
    }
    has_crashed
}

fn scenarios() -> impl Iterator<Item = (u32, FaultTiming)> {
    (0..CALLS_MAX).flat_map(|calls| [(calls, FaultTiming::Before), (calls, FaultTiming::After)])
}

fn name(what: &str, calls: u32, when: FaultTiming) -> String {
    let suffix = if when == FaultTiming::Before { "b" } else { "a" };
    format!("one-{what}-{calls:02}{suffix}x")
}

#[tokio::test]
async fn a_creation_that_ends_anywhere_is_continued_to_one_instance() {
    let environment = InstanceEnvironment::new().await;
    let made = join_all(scenarios().map(async |(calls, when)| {
        let request = environment.machine(&name("create", calls, when));
        crash(&environment, &request.name, calls, when);
        let _ = environment.provider.create(&request).await;
        let has_crashed = has_crashed(&environment, &request, when).await;
        let instance = environment.created(&request).await;
        assert_eq!(environment.provider.create(&request).await.unwrap(), instance);
        (request, has_crashed)
    }))
    .await;
    // The first calls crash, and the last ones are never made: the whole operation was covered.
    assert!(made[0].1 && !made[made.len() - 1].1);
    let mut expected: Vec<String> =
        made.iter().flat_map(|(request, _)| all_parts(&request.cluster_id, &request.name)).collect();
    expected.sort();
    assert_eq!(environment.parts("one-create").await, expected);
    join_all(made.iter().map(async |(request, _)| environment.deleted(request).await)).await;
    assert_eq!(environment.parts("one-create").await, [""; 0]);
}

#[tokio::test]
async fn a_creation_that_ends_anywhere_and_is_given_up_leaves_nothing_behind() {
    let environment = InstanceEnvironment::new().await;
    join_all(scenarios().map(async |(calls, when)| {
        let request = environment.machine(&name("abandon", calls, when));
        crash(&environment, &request.name, calls, when);
        let _ = environment.provider.create(&request).await;
        has_crashed(&environment, &request, when).await;
        environment.deleted(&request).await;
    }))
    .await;
    assert_eq!(environment.parts("one-abandon").await, [""; 0]);
}

#[tokio::test]
async fn a_deletion_that_ends_anywhere_is_continued_to_nothing() {
    let environment = InstanceEnvironment::new().await;
    let crashes = join_all(scenarios().map(async |(calls, when)| {
        let request = environment.machine(&name("delete", calls, when));
        environment.created(&request).await;
        crash(&environment, &request.name, calls, when);
        let _ = environment.provider.delete(&request).await;
        let has_crashed = has_crashed(&environment, &request, when).await;
        environment.deleted(&request).await;
        has_crashed
    }))
    .await;
    assert!(crashes[0] && !crashes[crashes.len() - 1], "{crashes:?}");
    assert_eq!(environment.parts("one-delete").await, [""; 0]);
}
