//! What AWS refuses, delays and hides, and what the provider makes of it.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::secret::Secret;
use base64::Engine as _;
use cloud::{InstanceError, InstanceProvider as _};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::environment::{Environment, SECRET_KEY, USER_DATA, created, deleted, moto, recorded};
use crate::proxy::Fault;

/// Creates an instance whose launch fails in one way, and returns the error; the next attempt succeeds.
async fn failed_launch(environment: &Environment, name: &str, fault: Fault) -> InstanceError {
    let request = environment.machine(name);
    environment.proxy.fail_next("RunInstances", fault);
    let error = environment.provider().create(&request).await.unwrap_err();
    created(&environment.provider(), &request).await;
    assert_eq!(environment.present(name).await.len(), 1, "{name}: {error}");
    error
}

#[tokio::test]
async fn failures_of_a_launch_have_a_class_and_are_repeated_to_one_instance() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "launch").await;
    let error = failed_launch(&environment, "launch-a", Fault::Error(503, "RequestLimitExceeded")).await;
    let throttled = "AWS throttles RunInstances (RequestLimitExceeded)";
    assert_eq!(error, InstanceError::RequeueAfter(Duration::from_secs(20), throttled.to_owned()));

    let error = failed_launch(&environment, "launch-b", Fault::Html(502)).await;
    let unreadable = "the response of AWS to RunInstances cannot be understood (HTTP status 502)";
    assert_eq!(error, InstanceError::Unavailable(unreadable.to_owned()));

    let fault = Fault::Error(400, "InsufficientInstanceCapacity");
    let error = failed_launch(&environment, "launch-c", fault).await;
    let capacity = "AWS rejected RunInstances with InsufficientInstanceCapacity: Injected";
    assert_eq!(error, InstanceError::Create(capacity.to_owned()));

    let error = failed_launch(&environment, "launch-d", Fault::Error(401, "AuthFailure")).await;
    assert!(matches!(&error, InstanceError::Unavailable(why) if why.contains("check credentialsSecret")));

    let error = failed_launch(&environment, "launch-e", Fault::Error(403, "UnauthorizedOperation")).await;
    let denied = "the credential has no permission for RunInstances (UnauthorizedOperation: Injected)";
    assert_eq!(error, InstanceError::Create(denied.to_owned()));

    let error = failed_launch(&environment, "launch-f", Fault::LostResponse).await;
    let lost = "AWS did not respond to RunInstances: no connection, or it broke";
    assert_eq!(error, InstanceError::Unavailable(lost.to_owned()));
}

#[tokio::test]
async fn a_launch_that_can_never_succeed_names_the_member() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "invalid").await;
    let check = async |change: fn(&mut Value), expect: &str| {
        let mut request = environment.machine("invalid-a");
        change(&mut request.provider_spec);
        let error = environment.provider().create(&request).await.unwrap_err();
        assert!(matches!(error, InstanceError::InvalidConfiguration(_)), "{error:?}");
        assert!(error.to_string().contains(expect), "{error}");
    };
    // Without an unnamed block device, for which the image is looked up.
    check(
        |it| {
            it["ami"] = json!({"id": "ami-0123456789abcdef0"});
            it["blockDevices"] = json!([]);
        },
        "InvalidAMIID.NotFound",
    )
    .await;
    check(|it| it["ami"] = json!({"id": "ami-0123456789abcdef0"}), "check providerSpec.value.ami.id").await;
    check(|it| it["subnet"] = json!({"id": "subnet-0123456789abcdef0"}), "check providerSpec.value.subnet")
        .await;
    check(|it| it["keyName"] = json!("nobody"), "check providerSpec.value.keyName").await;
    check(|it| it["instanceType"] = json!(""), "providerSpec.value.instanceType is empty").await;
    assert_eq!(environment.present("invalid-a").await.len(), 0);
}

#[tokio::test]
async fn what_filters_do_not_find_yet_is_waited_for() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "filters").await;
    let check = async |member: &str, expect: &str| {
        let mut request = environment.machine("filters-a");
        let missing = json!({"filters": [{"name": "tag:Name", "values": ["nothing"]}]});
        request.provider_spec[member] = if member == "subnet" { missing } else { json!([missing]) };
        let error = environment.provider().create(&request).await.unwrap_err();
        assert_eq!(error, InstanceError::Create(format!("providerSpec.value.{expect}")));
    };
    check("subnet", "subnet: nothing in eu-west-1a matches the filters tag:Name=nothing").await;
    check("securityGroups", "securityGroups[0]: nothing matches the filters tag:Name=nothing").await;
    assert_eq!(environment.proxy.launches().len(), 0);
}

#[tokio::test]
async fn an_instance_that_is_not_visible_yet_is_reported_when_it_is() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "late").await;
    environment.proxy.show_launches_late(3);
    let request = environment.machine("late-a");
    let error = environment.provider().create(&request).await.unwrap_err();
    assert!(
        matches!(&error, InstanceError::RequeueAfter(_, why) if why.ends_with("is not visible yet")),
        "{error}"
    );
    let instance = created(&environment.provider(), &request).await;
    assert_eq!(environment.provider().find(&recorded(&request, &instance)).await, Ok(Some(instance)));
    assert_eq!(environment.present("late-a").await.len(), 1);
    assert!(environment.proxy.launches().len() > 1, "the launch was not repeated");
}

#[tokio::test]
async fn user_data_that_changes_before_the_instance_is_visible_makes_no_second_instance() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "changed").await;
    environment.proxy.show_launches_late(3);
    let mut request = environment.machine("changed-a");
    environment.provider().create(&request).await.unwrap_err();
    request.user_data = Some(Secret::new(b"other".to_vec()));
    let error = environment.provider().create(&request).await.unwrap_err();
    assert!(
        matches!(&error, InstanceError::Create(why) if why.contains("IdempotentParameterMismatch")),
        "{error}"
    );
    created(&environment.provider(), &request).await;
    assert_eq!(environment.present("changed-a").await.len(), 1);
}

#[tokio::test]
async fn a_recorded_instance_that_is_not_shown_is_missing_only_after_a_while() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "gone").await;
    let mut request = environment.machine("gone-a");
    request.provider_id = Some("aws:///eu-west-1a/i-0123456789abcdef0".to_owned());
    let condition =
        json!({"type": "MachineCreated", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"});
    request.provider_status = Some(json!({"instanceId": "i-0123456789abcdef0", "conditions": [condition]}));
    let error = environment.provider().find(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::RequeueAfter(..)), "{error:?}");
    environment.clock.advance(SignedDuration::from_secs(61));
    assert_eq!(environment.provider().find(&request).await, Ok(None));
    // AWS was asked, and did not answer: nothing is known.
    environment.proxy.fail_next("DescribeInstances", Fault::Html(500));
    let error = environment.provider().find(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::Unavailable(_)), "{error:?}");
    let error = environment.provider().create(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::Create(_)), "{error:?}");
}

#[tokio::test]
async fn a_launch_whose_instance_ended_is_not_repeated() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "ended").await;
    let request = environment.machine("ended-a");
    environment.proxy.fail_next("RunInstances", Fault::LostResponse);
    environment.provider().create(&request).await.unwrap_err();
    let [found] = environment.present("ended-a").await.try_into().unwrap();
    let id = found.instance_id().unwrap();
    environment.ec2.terminate_instances().instance_ids(id).send().await.unwrap();
    let error = environment.provider().create(&request).await.unwrap_err();
    let expect = format!(
        "the instance {id} was terminated after its launch: Client.UserInitiatedShutdown: User initiated shutdown"
    );
    assert_eq!(error, InstanceError::InvalidConfiguration(expect));
    assert_eq!(environment.proxy.launches().len(), 1);
}

#[tokio::test]
async fn the_deletion_of_a_machine_whose_launch_may_have_been_accepted_waits_until_it_would_be_visible() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "abandoned").await;
    environment.proxy.show_launches_late(2);
    let mut request = environment.machine("abandoned-a");
    environment.proxy.fail_next("RunInstances", Fault::LostResponse);
    environment.provider().create(&request).await.unwrap_err();
    request.deleted = Some("2026-03-01T12:00:00Z".parse().unwrap());
    let error = environment.provider().delete(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::RequeueAfter(..)), "{error:?}");
    assert_eq!(environment.present("abandoned-a").await.len(), 1);
    deleted(&environment.provider(), &request).await;
    assert_eq!(environment.present("abandoned-a").await.len(), 0);

    // A Machine that never had an instance is gone when none can appear any more.
    let mut request = environment.machine("abandoned-b");
    request.deleted = Some("2026-03-01T12:00:00Z".parse().unwrap());
    assert!(environment.provider().delete(&request).await.is_err());
    environment.clock.advance(SignedDuration::from_secs(61));
    assert_eq!(environment.provider().delete(&request).await, Ok(()));
}

#[tokio::test]
async fn an_instance_of_another_cluster_is_not_touched() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "foreign").await;
    let mut request = environment.machine("foreign-a");
    let instance = environment.provider().create(&request).await.unwrap();
    request.cluster_id = "another".to_owned();
    // Without a record it is another Machine's.
    assert_eq!(environment.provider().find(&request).await, Ok(None));
    assert_eq!(environment.provider().delete(&request).await, Ok(()));
    // With a record it is a contradiction.
    let request = recorded(&request, &instance);
    let expect = "belongs to another cluster than 'another', by its tags";
    let error = environment.provider().find(&request).await.unwrap_err();
    assert!(matches!(&error, InstanceError::Unavailable(why) if why.contains(expect)), "{error:?}");
    let error = environment.provider().delete(&request).await.unwrap_err();
    assert!(matches!(&error, InstanceError::Delete(why) if why.contains(expect)), "{error:?}");
    assert_eq!(environment.present("foreign-a").await.len(), 1);
}

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn neither_credential_nor_user_data_are_logged_or_reported() {
    let Some(server) = moto() else { return };
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
    let environment = Environment::new(server, "secrets").await;
    let provider = environment.provider();
    let mut request = environment.machine("secrets-a");
    let mut texts = Vec::new();
    for fault in [Fault::Html(500), Fault::Error(400, "AuthFailure"), Fault::LostResponse] {
        environment.proxy.fail_next("RunInstances", fault);
        let error = provider.create(&request).await.unwrap_err();
        texts.push(format!("{error:?} {error}"));
    }
    provider.create(&request).await.unwrap();
    let profile = format!("[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = {SECRET_KEY}\n");
    request.credentials = Some([("credentials".to_owned(), Secret::new(profile.into_bytes()))].into());
    assert!(provider.find(&request).await.unwrap().is_some());
    texts.push(format!("{provider:?} {request:?}"));
    texts.push(String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned());
    let encoded = base64::engine::general_purpose::STANDARD.encode(USER_DATA);
    assert!(texts.last().unwrap().contains("DescribeInstances"), "nothing was logged");
    for text in texts {
        for secret in [SECRET_KEY, USER_DATA, encoded.as_str(), &encoded[4..20]] {
            let at = text.find(secret);
            assert!(
                at.is_none(),
                "{}",
                &text[at.unwrap_or_default().saturating_sub(600)..at.unwrap_or_default()]
            );
        }
    }
}
