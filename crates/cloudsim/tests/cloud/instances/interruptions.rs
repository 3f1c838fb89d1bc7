//! Spot machines that the cloud takes back: the notice in their metadata, and the handler that reports it on their nodes.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use cloud::{InstanceProvider as _, InstanceRequest, Machines as _};
use cloudsim::settings::Setting;
use kube::Client;
use machines::termination::{self, TerminationSettings, TerminationState};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::InstanceEnvironment;
use super::booting::{CLIENT, approve, installed, is_ready, node, pending};

/// A spot machine of the cluster that has joined it.
async fn joined(environment: &InstanceEnvironment, client: &Client, name: &str) -> InstanceRequest {
    let mut request = environment.machine(name);
    request.provider_spec["spotVMOptions"] = json!({});
    assert!(environment.created(&request).await.interruptible);
    approve(client, &pending(client, CLIENT).await).await;
    is_ready(client, name, true).await;
    request
}

fn interrupt(environment: &InstanceEnvironment, name: &str, notice_seconds: u32) -> Setting {
    let machine = environment.install.group.sibling("Microsoft.Compute", "virtualMachines", name);
    Setting::Interrupt { machine, notice_seconds }
}

#[tokio::test]
async fn rule_11_an_eviction_is_reported_on_its_node_before_it_happens() {
    let (environment, client) = installed().await;
    let request = joined(&environment, &client, "one-worker-spot").await;
    let endpoints = &environment.emulator.endpoints;
    let settings = TerminationSettings {
        node: request.name.clone(),
        provider: None,
        address: format!("{}/machines/{}", endpoints.metadata, request.name).parse().unwrap(),
        poll_interval: Duration::from_millis(20),
    };
    let (observed, mut state) = watch::channel(None);
    let observe = move |state| {
        let _ = observed.send(Some(state));
    };
    let mut handler = JoinSet::new();
    let shutdown = CancellationToken::new();
    handler.spawn(termination::run(client.clone(), settings, Arc::new(SystemClock), observe, shutdown));
    let mut reached = async |expect| {
        let wait = state.wait_for(|seen| *seen == Some(expect));
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap().unwrap();
    };
    reached(TerminationState::Watching).await;
    environment.emulator.cloud.arrange(interrupt(&environment, &request.name, 3600)).await.unwrap();
    reached(TerminationState::Reported).await;
    let conditions = node(&client, &request.name).await.unwrap().status.unwrap().conditions.unwrap();
    let reported = conditions.iter().find(|it| it.type_ == "Terminating").unwrap();
    assert_eq!(
        (reported.status.as_str(), reported.reason.as_deref()),
        ("True", Some("TerminationRequested"))
    );
    assert_eq!(environment.provider.find(&request).await.unwrap().unwrap().state, "Running");
}

#[tokio::test]
async fn a_spot_machine_is_evicted_when_its_notice_has_passed() {
    let (environment, client) = installed().await;
    let request = joined(&environment, &client, "one-worker-spot").await;
    let cloud = &environment.emulator.cloud;
    cloud.arrange(interrupt(&environment, &request.name, 0)).await.unwrap();
    is_ready(&client, &request.name, false).await;
    assert_eq!(environment.provider.find(&request).await.unwrap().unwrap().state, "Deallocated");
    let error = cloud.arrange(interrupt(&environment, &request.name, 30)).await.unwrap_err().to_string();
    assert!(error.contains("it is deallocated; only running machines are interrupted"), "{error}");
    // One that was started again can be interrupted again.
    let id = environment.install.group.sibling("Microsoft.Compute", "virtualMachines", &request.name);
    cloud.azure().start_machine(&id).await.unwrap();
    is_ready(&client, &request.name, true).await;
    cloud.arrange(interrupt(&environment, &request.name, 0)).await.unwrap();
    is_ready(&client, &request.name, false).await;
}

#[tokio::test]
async fn only_spot_machines_that_exist_are_interrupted() {
    let environment = InstanceEnvironment::new().await;
    let request = environment.machine("one-worker-regular");
    environment.created(&request).await;
    let cloud = &environment.emulator.cloud;
    let error = cloud.arrange(interrupt(&environment, &request.name, 30)).await.unwrap_err().to_string();
    assert!(error.contains("its priority is Regular; only Spot machines are interrupted"), "{error}");
    let error = cloud.arrange(interrupt(&environment, "one-worker-none", 30)).await.unwrap_err().to_string();
    assert!(error.contains("one-worker-none"), "{error}");
}
