//! What the cloud refuses, delays, hides and fails, and what the provider makes of it.

use std::time::Duration;

use cloud::{AddressKind, InstanceError, InstanceProvider as _, Machines as _};
use cloudsim::settings::Setting;
use cloudsim::{CloudFault, FaultRule};
use serde_json::json;

use super::InstanceEnvironment;
use crate::environment::{LOCATION, SUBSCRIPTION};

const MACHINES: &str = "virtualMachines/";

#[tokio::test]
async fn an_instance_is_reported_with_addresses_state_and_place() {
    let environment = InstanceEnvironment::new().await;
    let request = environment.machine("one-worker-a");
    let instance = environment.provider.create(&request).await.unwrap();
    let group = environment.install.group.resource_group();
    assert_eq!(
        instance.provider_id,
        format!(
            "azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/one-worker-a"
        )
    );
    assert_eq!((instance.state.as_str(), instance.zone.as_deref()), ("Running", Some("1")));
    assert_eq!(instance.region.as_deref(), Some(LOCATION));
    assert_eq!(instance.instance_type.as_deref(), Some("Standard_D4s_v5"));
    let kinds: Vec<AddressKind> = instance.addresses.iter().map(|it| it.kind).collect();
    assert_eq!(
        kinds,
        [AddressKind::Hostname, AddressKind::InternalDns, AddressKind::InternalIp, AddressKind::ExternalIp]
    );
    assert_eq!(environment.provider.find(&request).await.unwrap(), Some(instance.clone()));
    assert_eq!(environment.provider.update(&request, &instance).await.unwrap(), instance);

    // A stopped machine is there, and so is one that its user has not created.
    let id = environment.install.group.sibling("Microsoft.Compute", "virtualMachines", "one-worker-a");
    environment.emulator.cloud.azure().stop_machine(&id).await.unwrap();
    assert_eq!(environment.provider.find(&request).await.unwrap().unwrap().state, "Deallocated");
    assert_eq!(environment.provider.find(&environment.machine("one-worker-b")).await, Ok(None));
    environment.deleted_with_all_parts(&request).await;
}

#[tokio::test]
async fn tags_that_somebody_removed_come_back() {
    let environment = InstanceEnvironment::new().await;
    let mut request = environment.machine("one-worker-a");
    let instance = environment.created(&request).await;
    request.tags.insert("department".to_owned(), "shipping".to_owned());
    environment.provider.update(&request, &instance).await.unwrap();
    let id = environment.install.group.sibling("Microsoft.Compute", "virtualMachines", "one-worker-a");
    let found = environment.emulator.get(&id).await.unwrap();
    assert_eq!(found.tags.get("department").map(String::as_str), Some("shipping"));
    assert_eq!(found.tags.get("kubernetes.io_cluster.one-x7k2p").map(String::as_str), Some("owned"));
    assert_eq!(environment.provider.find(&request).await.unwrap(), Some(instance));
}

#[tokio::test]
async fn a_creation_that_fails_for_lack_of_capacity_is_repeated() {
    let environment = InstanceEnvironment::new().await;
    let request = environment.machine("one-worker-a");
    let fault = CloudFault::ProvisioningFails {
        code: "ZonalAllocationFailed".to_owned(),
        message: "We do not have sufficient capacity.".to_owned(),
    };
    let rule = FaultRule::new(fault).on("put").about(MACHINES).times(1);
    environment.emulator.faults.inject(rule).unwrap();
    let accepted = environment.provider.create(&request).await.unwrap_err();
    assert!(matches!(accepted, InstanceError::RequeueAfter(..)), "{accepted}");
    assert_eq!(environment.provider.find(&request).await, Ok(None));
    let failed = environment.provider.create(&request).await.unwrap_err();
    let InstanceError::Create(why) = &failed else { panic!("{failed}") };
    assert!(why.contains("ZonalAllocationFailed"), "{why}");
    environment.created(&request).await;
    environment.deleted_with_all_parts(&request).await;
}

#[tokio::test]
async fn a_failed_creation_that_nobody_wants_any_more_is_removed() {
    let environment = InstanceEnvironment::new().await;
    let request = environment.machine("one-worker-a");
    let fault =
        CloudFault::ProvisioningFails { code: "AllocationFailed".to_owned(), message: "no".to_owned() };
    environment
        .emulator
        .faults
        .inject(FaultRule::new(fault).on("put").about("one-worker-a").times(1))
        .unwrap();
    let _ = environment.provider.create(&request).await;
    environment.deleted_with_all_parts(&request).await;
}

#[tokio::test]
async fn what_the_cloud_refuses_for_good_is_invalid_and_what_may_change_is_repeated() {
    let environment = InstanceEnvironment::new().await;
    let request = environment.machine("one-worker-a");
    let setting = |reason: Option<&str>| Setting::Restrict {
        subscription: SUBSCRIPTION.to_owned(),
        location: LOCATION.to_owned(),
        size: "Standard_D4s_v5".to_owned(),
        reason: reason.map(str::to_owned),
    };
    environment.emulator.cloud.arrange(setting(Some("NotAvailableForSubscription"))).await.unwrap();
    let error = environment.provider.create(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::InvalidConfiguration(_)), "{error}");
    environment.emulator.cloud.arrange(setting(None)).await.unwrap();

    let faults = &environment.emulator.faults;
    let quota = CloudFault::Quota { quota: "cores".to_owned() };
    faults.inject(FaultRule::new(quota).about(MACHINES).times(1)).unwrap();
    let error = environment.provider.create(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::Create(_)), "{error}");

    let policy = CloudFault::Policy { name: "no-machines".to_owned() };
    faults.inject(FaultRule::new(policy).about(MACHINES).times(1)).unwrap();
    let error = environment.provider.create(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::InvalidConfiguration(_)), "{error}");

    faults.inject(FaultRule::new(CloudFault::Denied {}).on("put").about(MACHINES).times(1)).unwrap();
    let error = environment.provider.create(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::Create(_)), "{error}");

    let mut unknown = environment.machine("one-worker-b");
    unknown.provider_spec["vmSize"] = json!("Standard_Huge");
    let error = environment.provider.create(&unknown).await.unwrap_err();
    assert!(matches!(error, InstanceError::InvalidConfiguration(_)), "{error}");
    environment.deleted_with_all_parts(&unknown).await;

    environment.created(&request).await;
    environment.deleted_with_all_parts(&request).await;
}

#[tokio::test]
async fn a_throttled_call_waits_as_long_as_the_cloud_asks() {
    let environment = InstanceEnvironment::new().await;
    let request = environment.machine("one-worker-a");
    let fault = CloudFault::Throttled { after_seconds: 7 };
    environment.emulator.faults.inject(FaultRule::new(fault).on("put").about("-nic").times(1)).unwrap();
    let error = environment.provider.create(&request).await.unwrap_err();
    assert_eq!(error.requeue_after(), Some(Duration::from_secs(7)), "{error}");
    // While the subscription is throttled, nothing is said about an instance.
    let error = environment.provider.find(&request).await.unwrap_err();
    assert!(error.requeue_after().is_some(), "{error}");
}

#[tokio::test]
async fn a_machine_that_is_not_visible_yet_is_neither_created_twice_nor_left_behind() {
    let environment = InstanceEnvironment::new().await;
    let hide = |machine: &str| {
        let fault = CloudFault::DelayedVisibility { millis: 400 };
        let rule = FaultRule::new(fault).on("put").about(&format!("{MACHINES}{machine}"));
        environment.emulator.faults.inject(rule.times(1)).unwrap();
    };
    hide("one-worker-a");
    let request = environment.machine("one-worker-a");
    let accepted = environment.provider.create(&request).await.unwrap_err();
    assert!(matches!(accepted, InstanceError::RequeueAfter(..)), "{accepted}");
    assert_eq!(environment.provider.find(&request).await, Ok(None));
    let again = environment.provider.create(&request).await.unwrap_err();
    assert!(matches!(again, InstanceError::RequeueAfter(..)), "{again}");
    environment.created(&request).await;
    environment.deleted_with_all_parts(&request).await;

    hide("one-worker-b");
    let abandoned = environment.machine("one-worker-b");
    let _ = environment.provider.create(&abandoned).await;
    environment.deleted_with_all_parts(&abandoned).await;
}

#[tokio::test]
async fn a_deletion_that_fails_later_is_repeated() {
    let environment = InstanceEnvironment::new().await;
    let request = environment.machine("one-worker-a");
    for part in ["virtualMachines/one-worker-a", "-nic", "publicIPAddresses/"] {
        environment.created(&request).await;
        let fault =
            CloudFault::ProvisioningFails { code: "InternalError".to_owned(), message: "no".to_owned() };
        environment.emulator.faults.inject(FaultRule::new(fault).on("delete").about(part).times(1)).unwrap();
        environment.deleted_with_all_parts(&request).await;
    }
}

#[tokio::test]
async fn a_detached_disk_outlives_its_machine_and_is_attached_to_the_next_of_its_name() {
    let environment = InstanceEnvironment::new().await;
    let mut request = environment.machine("one-worker-a");
    request.provider_spec["dataDisks"][0]["deletionPolicy"] = json!("Detach");
    environment.created(&request).await;
    for _ in 0..20 {
        if environment.provider.delete(&request).await.is_ok() {
            break;
        }
    }
    assert_eq!(environment.parts("one-worker-a").await, ["one-worker-a_cache"]);
    environment.created(&request).await;
    assert_eq!(environment.parts("one-worker-a").await.len(), 5);
}

#[tokio::test]
async fn machines_without_zones_share_the_availability_set_of_their_machine_set() {
    let environment = InstanceEnvironment::new().await;
    let set = environment.install.group.sibling("Microsoft.Compute", "availabilitySets", "mine");
    let mut request = environment.machine("one-worker-a");
    request.provider_spec["zone"] = json!(null);
    request.provider_spec["availabilitySet"] = json!("mine");
    let error = environment.provider.create(&request).await.unwrap_err();
    assert_eq!(
        error,
        InstanceError::InvalidConfiguration(format!(
            "providerSpec.value.availabilitySet is 'mine'; {set} does not exist"
        ))
    );
    // The size is offered in zones, so no set is made for the MachineSet.
    request.provider_spec["availabilitySet"] = json!("");
    let label = "machine.openshift.io/cluster-api-machineset".to_owned();
    request.labels.insert(label, "one-x7k2p-worker".to_owned());
    environment.created(&request).await;
    assert!(environment.parts("one-x7k2p-worker-as").await.is_empty());
    environment.deleted_with_all_parts(&request).await;
}
