//! What goes wrong on purpose.

use std::time::Duration;

use api::error::{Class, Classify as _};
use cloud::{CloudError, Infrastructure as _, Shape, State};
use cloudsim::{FaultRule, Moment, Trouble};

use crate::bed::{Bed, eventually, group};

fn empty() -> Shape {
    Shape::ResourceGroup { managed_by: None }
}

#[tokio::test]
async fn throttling_says_for_how_long() {
    let bed = Bed::new().await;
    bed.cloud
        .inject(FaultRule::new(Trouble::Throttled { after_seconds: 7 }).on("put").times(1))
        .await
        .unwrap();
    let refused = bed.try_put(group("one"), empty()).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(7)));
    bed.put(group("one"), empty()).await;
}

#[tokio::test]
async fn a_call_may_fail_before_its_effect_or_after_it() {
    let bed = Bed::new().await;
    for (number, when, is_made) in [(1, Moment::Before, false), (2, Moment::After, true)] {
        for (kind, trouble) in [
            ("failed", Trouble::Unavailable { when }),
            ("reset", Trouble::Reset { when }),
            ("hung", Trouble::Hangs { millis: 5_000, when }),
        ] {
            let id = group(&format!("{kind}-{number}"));
            bed.faults.inject(FaultRule::new(trouble).on("put").about(kind).times(1));
            let hasty = bed.cloud.with_limit(Duration::from_millis(300));
            let error = hasty.put(crate::bed::wish(id.clone(), empty())).await.unwrap_err();
            assert!(matches!(error, CloudError::Unavailable { .. }), "{kind}: {error:?}");
            assert_eq!(error.class(), Class::Transient);
            assert_eq!(bed.get(&id).await.is_some(), is_made, "{kind} {when:?}");
            bed.put(id, empty()).await;
        }
    }
}

#[tokio::test]
async fn a_put_may_come_to_a_bad_end_and_be_tried_again() {
    let bed = Bed::new().await;
    let fault = ("InvalidTemplateDeployment".to_owned(), "it is so".to_owned());
    bed.faults.inject(
        FaultRule::new(Trouble::FailsLater { code: fault.0, message: fault.1 }).about("one").times(1),
    );
    bed.put(group("one"), empty()).await;
    match bed.get(&group("one")).await.unwrap().state {
        State::Failed { fault } => assert_eq!(fault.code, "InvalidTemplateDeployment"),
        other => panic!("it has not failed: {other:?}"),
    }
    bed.put(group("one"), empty()).await;
    assert_eq!(bed.get(&group("one")).await.unwrap().state, State::Succeeded);
}

#[tokio::test]
async fn a_fresh_resource_may_be_unseen_for_a_while() {
    let bed = Bed::new().await;
    bed.faults.inject(FaultRule::new(Trouble::Unseen { millis: 150 }).times(1));
    bed.put(group("one"), empty()).await;
    assert_eq!(bed.get(&group("one")).await, None);
    eventually("it is seen", async || bed.get(&group("one")).await).await;
}

#[tokio::test]
async fn quotas_and_rights_may_be_missing_for_a_call() {
    let bed = Bed::new().await;
    bed.faults.inject(FaultRule::new(Trouble::Quota { quota: "cores".to_owned() }).times(1));
    assert!(matches!(bed.try_put(group("one"), empty()).await, Err(CloudError::Quota { .. })));
    bed.faults.inject(FaultRule::new(Trouble::Denied {}).on("delete").times(1));
    assert!(matches!(bed.cloud.delete(&group("one")).await, Err(CloudError::Denied { .. })));
    assert_eq!(bed.get(&group("one")).await, None);
}

#[tokio::test]
async fn faults_are_listed_and_cleared_and_chance_is_seeded() {
    let run = async |seed| {
        let bed = Bed::with(cloudsim::Options { seed, ..Default::default() }).await;
        let rule = |when| FaultRule::new(Trouble::Unavailable { when }).share(0.3);
        bed.cloud.inject(rule(Moment::Before)).await.unwrap();
        assert_eq!(bed.cloud.faults().await.unwrap(), [rule(Moment::Before)]);
        let mut failed = Vec::new();
        for _ in 0..40 {
            failed.push(bed.cloud.get(&group("one")).await.is_err());
        }
        bed.cloud.clear_faults().await.unwrap();
        assert_eq!(bed.cloud.faults().await.unwrap(), []);
        bed.get(&group("one")).await;
        failed
    };
    let first = run(3).await;
    assert!(first.contains(&true) && first.contains(&false));
    assert_eq!(run(3).await, first);
}

#[tokio::test]
async fn whoever_has_not_the_token_is_not_let_in() {
    let service = cloudsim::Service::open(cloudsim::Options::default()).await.unwrap();
    let stranger =
        cloudsim::SimClient::new(&service.url(), api::secret::Secret::new("x".to_owned())).unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let asked = async {
        let refused = stranger.get(&group("one")).await;
        assert!(matches!(refused, Err(CloudError::Credential { .. })), "{refused:?}");
        assert!(stranger.faults().await.is_err());
        stop.cancel();
    };
    let (served, ()) = tokio::join!(service.serve(stop.clone()), asked);
    served.unwrap();
    let exposed = cloudsim::Options { listen: "0.0.0.0:0".parse().unwrap(), ..Default::default() };
    assert!(matches!(cloudsim::Service::open(exposed).await, Err(cloudsim::OpenError::Exposed(_))));
}
