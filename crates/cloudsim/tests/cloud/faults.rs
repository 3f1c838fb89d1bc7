//! What goes wrong on purpose.

use api::clock::ManualClock;
use api::error::{Class, Classify as _};
use cloud::{CloudError, Infrastructure as _, Properties};
use cloudsim::{CloudFault, FaultRule, FaultTiming, Options};
use jiff::{SignedDuration, Timestamp};

use crate::environment::{Environment, group};

fn empty() -> Properties {
    Properties::ResourceGroup { managed_by: None }
}

#[tokio::test]
async fn a_call_may_fail_before_its_effect_or_after_it() {
    let environment = Environment::new().await;
    for (number, when, is_made) in [(1, FaultTiming::Before, false), (2, FaultTiming::After, true)] {
        for (kind, trouble) in
            [("failed", CloudFault::Unavailable { when }), ("reset", CloudFault::Reset { when })]
        {
            let id = group(&format!("{kind}-{number}"));
            // The client repeats an idempotent call twice by itself.
            environment.faults.inject(FaultRule::new(trouble).on("put").about(kind).times(3)).unwrap();
            let error = environment.try_put(id.clone(), empty()).await.unwrap_err();
            assert!(matches!(error, CloudError::Unavailable { .. }), "{kind}: {error:?}");
            assert_eq!(error.class(), Class::Transient);
            assert_eq!(environment.get(&id).await.is_some(), is_made, "{kind} {when:?}");
            environment.put(id, empty()).await;
        }
    }
}

#[tokio::test]
async fn a_fault_may_spare_the_first_calls() {
    let environment = Environment::new().await;
    environment.faults.inject(FaultRule::new(CloudFault::Denied {}).on("get").after(2).times(1)).unwrap();
    let denied = async || {
        let found = environment.cloud.azure().get(&group("one")).await;
        matches!(found, Err(CloudError::Denied { .. }))
    };
    assert_eq!([denied().await, denied().await, denied().await, denied().await], [false, false, true, false]);
    assert_eq!(environment.faults.present(), []);
}

#[tokio::test]
async fn a_fresh_resource_may_be_unseen_for_a_while() {
    let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
    let environment = Environment::with(Options { clock: clock.clone(), ..Options::default() }).await;
    environment
        .faults
        .inject(FaultRule::new(CloudFault::DelayedVisibility { millis: 150 }).times(1))
        .unwrap();
    environment.put(group("one"), empty()).await;
    assert_eq!(environment.get(&group("one")).await, None);
    clock.advance(SignedDuration::from_millis(150));
    assert!(environment.get(&group("one")).await.is_some());
}

#[tokio::test]
async fn quotas_and_rights_may_be_missing_for_a_call() {
    let environment = Environment::new().await;
    environment
        .faults
        .inject(FaultRule::new(CloudFault::Quota { quota: "cores".to_owned() }).times(1))
        .unwrap();
    assert!(matches!(environment.try_put(group("one"), empty()).await, Err(CloudError::Quota { .. })));
    environment.faults.inject(FaultRule::new(CloudFault::Denied {}).on("delete").times(1)).unwrap();
    assert!(matches!(environment.cloud.azure().delete(&group("one")).await, Err(CloudError::Denied { .. })));
    assert_eq!(environment.get(&group("one")).await, None);
}

#[tokio::test]
async fn faults_are_listed_and_cleared_and_chance_is_seeded() {
    let run = async |seed| {
        let environment = Environment::with(Options { seed, ..Options::default() }).await;
        let rule = |when| FaultRule::new(CloudFault::Unavailable { when }).share(0.3);
        environment.cloud.inject(rule(FaultTiming::Before)).await.unwrap();
        assert_eq!(environment.cloud.faults().await.unwrap(), [rule(FaultTiming::Before)]);
        let mut failed = Vec::new();
        for _ in 0..40 {
            failed.push(environment.cloud.azure().get(&group("one")).await.is_err());
        }
        environment.cloud.clear_faults().await.unwrap();
        assert_eq!(environment.cloud.faults().await.unwrap(), []);
        environment.get(&group("one")).await;
        failed
    };
    let first = run(3).await;
    assert!(first.contains(&true) && first.contains(&false));
    assert_eq!(run(3).await, first);
}

#[tokio::test]
async fn a_client_without_the_token_is_rejected() {
    let service = cloudsim::Service::open(Options::default()).await.unwrap();
    let (files, mut endpoints) = (tempfile::tempdir().unwrap(), service.endpoints());
    for file in [&mut endpoints.token_file, &mut endpoints.client_secret_file] {
        *file = files.path().join(file.file_name().unwrap());
        std::fs::write(file, "wrong").unwrap();
    }
    let stranger = cloudsim::SimClient::new(endpoints).unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let asked = async {
        let refused = stranger.azure().get(&group("one")).await;
        assert!(matches!(refused, Err(CloudError::Credential { .. })), "{refused:?}");
        assert!(stranger.faults().await.is_err());
        stop.cancel();
    };
    let (served, ()) = tokio::join!(service.serve(stop.clone()), asked);
    served.unwrap();
    let exposed = cloudsim::Options { listen: "0.0.0.0:0".parse().unwrap(), ..Default::default() };
    assert!(matches!(cloudsim::Service::open(exposed).await, Err(cloudsim::OpenError::Exposed(_))));
}
