//! Tests of the provider on a cloud in memory, and of its bodies.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::secret::Secret;
use cloud::{InstanceError, InstanceProvider as _, InstanceRequest};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AzureInstances, InstanceSettings};
use crate::testing::{MemoryCloud, Reply, ScriptedService, settings};

const GROUP: &str = "/subscriptions/s/resourceGroups/managed";

pub(crate) fn provider(service: &ScriptedService) -> AzureInstances {
    AzureInstances::with_http(InstanceSettings::from(&settings()), Arc::new(service.clone()))
}

#[test]
fn waits_follow_the_pace_of_the_cloud() {
    let waits = |pace| super::Waits::at_pace(pace);
    assert_eq!((waits(1.0).part, waits(1.0).machine), (super::PART_WAIT, super::MACHINE_WAIT));
    assert_eq!(waits(0.1).machine, std::time::Duration::from_millis(1500));
    for pace in [0.0, -1.0] {
        assert_eq!((waits(pace).part, waits(pace).machine), (super::WAIT_MIN, super::WAIT_MIN));
    }
    for pace in [5.0, f64::NAN] {
        assert_eq!(waits(pace), waits(1.0), "{pace}");
    }
}

/// A providerSpec with every member that leads to a call or a member of a body.
pub(crate) fn full_spec() -> Value {
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "AzureMachineProviderSpec",
        "metadata": { "creationTimestamp": null },
        "credentialsSecret": { "name": "azure-cloud-credentials", "namespace": "openshift-machine-api" },
        "userDataSecret": { "name": "worker-user-data", "namespace": "elsewhere" },
        "location": "westeurope", "zone": "2", "vmSize": "Standard_D4s_v5",
        "image": { "publisher": "p", "offer": "o", "sku": "k", "version": "1.0", "resourceID": "", "type": "MarketplaceWithPlan" },
        "osDisk": {
            "osType": "Linux", "diskSizeGB": 128, "cachingType": "ReadOnly",
            "diskSettings": { "ephemeralStorageLocation": "Local" },
            "managedDisk": {
                "storageAccountType": "Premium_LRS", "diskEncryptionSet": { "id": format!("{GROUP}/providers/Microsoft.Compute/diskEncryptionSets/d") },
                "securityProfile": {
                    "securityEncryptionType": "VMGuestStateOnly",
                    "diskEncryptionSet": { "id": format!("{GROUP}/providers/Microsoft.Compute/diskEncryptionSets/d") }
                }
            }
        },
        "dataDisks": [
            { "nameSuffix": "a", "diskSizeGB": 4, "lun": 0, "deletionPolicy": "Delete", "cachingType": "None",
              "managedDisk": { "storageAccountType": "UltraSSD_LRS" } },
            { "nameSuffix": "b", "diskSizeGB": 8, "lun": 1, "deletionPolicy": "Detach" }
        ],
        "sshPublicKey": "c3NoLXJzYSBB", "publicIP": true, "tags": { "team": "a" },
        "securityGroup": "nsg", "applicationSecurityGroups": ["asg"],
        "vnet": "v", "subnet": "workers", "networkResourceGroup": "net", "resourceGroup": "managed",
        "publicLoadBalancer": "one", "internalLoadBalancer": "one-internal", "natRule": 0,
        "managedIdentity": "identity", "acceleratedNetworking": true,
        "spotVMOptions": { "maxPrice": "500m" },
        "securityProfile": { "encryptionAtHost": true, "settings": {
            "securityType": "ConfidentialVM",
            "confidentialVM": { "uefiSettings": { "secureBoot": "Disabled", "virtualizedTrustedPlatformModule": "Enabled" } }
        } },
        "diagnostics": { "boot": { "storageAccountType": "CustomerManaged", "customerManaged": { "storageAccountURI": "https://a.blob" } } },
        "capacityReservationGroupID": "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/c"
    })
}

pub(crate) fn request(spec: Value) -> InstanceRequest {
    let secret = |text: &str| Secret::new(format!("{text}\n").into_bytes());
    let credentials = [
        ("azure_client_id", "app"),
        ("azure_client_secret", "hunter2-hunter2"),
        ("azure_tenant_id", "contoso.com"),
        ("azure_subscription_id", "s"),
        ("azure_region", "westeurope"),
    ];
    InstanceRequest {
        namespace: "openshift-machine-api".to_owned(),
        name: "one-worker-abcde".to_owned(),
        uid: "u".to_owned(),
        cluster_id: "one".to_owned(),
        labels: [("machine.openshift.io/cluster-api-machineset".to_owned(), "one-worker".to_owned())].into(),
        provider_spec: spec,
        provider_id: None,
        provider_status: None,
        created: Timestamp::UNIX_EPOCH,
        deleted: None,
        user_data: Some(Secret::new(b"{\"ignition\":{}}".to_vec())),
        credentials: Some(credentials.map(|(name, text)| (name.to_owned(), secret(text))).into()),
        tags: BTreeMap::new(),
    }
}

/// A cloud with what a full providerSpec refers to.
pub(crate) fn furnished() -> MemoryCloud {
    let cloud = MemoryCloud::default();
    let network = |group: &str, path: &str| {
        format!("/subscriptions/s/resourceGroups/{group}/providers/Microsoft.Network/{path}")
    };
    cloud.change(&network("net", "virtualNetworks/v/subnets/workers"), |it| {
        *it = json!({ "properties": { "addressPrefixes": ["10.0.0.0/24", "fd00::/64"] } });
    });
    for name in ["one", "one-internal"] {
        let id = network("managed", &format!("loadBalancers/{name}"));
        let part = |kind: &str, name: &str| json!([{ "name": name, "id": format!("{id}/{kind}/{name}") }]);
        cloud.change(&id, |it| {
            *it = json!({ "name": name, "properties": {
                "backendAddressPools": part("backendAddressPools", "one"), "inboundNatRules": part("inboundNatRules", "ssh")
            } });
        });
    }
    for path in ["networkSecurityGroups/nsg", "applicationSecurityGroups/asg"] {
        cloud.change(&network("managed", path), |it| *it = json!({}));
    }
    cloud
}

async fn invalid(change: impl FnOnce(&mut Value)) -> String {
    let mut spec = full_spec();
    change(&mut spec);
    let service = furnished().service();
    match provider(&service).create(&request(spec)).await {
        Err(InstanceError::InvalidConfiguration(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_full_machine_is_created_found_and_deleted() {
    let cloud = furnished();
    let service = cloud.service();
    let provider = provider(&service);
    let request = request(full_spec());
    let accepted = provider.create(&request).await;
    assert!(matches!(accepted, Err(InstanceError::RequeueAfter(..))), "{accepted:?}");
    let found = provider.find(&request).await.unwrap().unwrap();
    assert!(found.interruptible);
    assert_eq!(provider.create(&request).await.unwrap(), found);
    let machine = service.sent().into_iter().rfind(|it| it.method == "PUT").unwrap();
    assert_eq!(machine.header("if-none-match"), "*");
    let body = machine.json();
    assert_eq!(body["tags"], json!({ "kubernetes.io_cluster.one": "owned", "team": "a" }));
    assert_eq!(body["properties"]["osProfile"]["customData"], "eyJpZ25pdGlvbiI6e319");
    assert_eq!(body["properties"]["billingProfile"]["maxPrice"], 0.5);
    provider.delete(&request).await.unwrap();
    assert_eq!(provider.find(&request).await.unwrap(), None);
    provider.delete(&request).await.unwrap();
}

#[tokio::test]
async fn the_secrets_are_those_that_the_spec_names() {
    let service = MemoryCloud::default().service();
    let refs = provider(&service).secrets(&full_spec()).unwrap();
    let credentials = refs.credentials.unwrap();
    assert_eq!(credentials.name, "azure-cloud-credentials");
    assert_eq!(credentials.namespace.as_deref(), Some("openshift-machine-api"));
    // User data comes from the Machine's own namespace, whatever the spec says.
    assert_eq!(refs.user_data.map(|it| (it.namespace, it.name)), Some((None, "worker-user-data".to_owned())));
}

#[tokio::test]
async fn wrong_members_are_named_with_their_value_and_what_is_accepted() {
    let check = |found: String, expect: &str| assert_eq!(found, format!("providerSpec.value.{expect}"));
    check(
        invalid(|it| it["osDisk"]["diskSizeGB"] = json!("many")).await,
        "osDisk.diskSizeGB: invalid type: string \"many\", expected i64",
    );
    check(
        invalid(|it| it["osDisk"]["diskSizeGB"] = json!(32768)).await,
        "osDisk.diskSizeGB is 32768; expected from 1 to 32767",
    );
    check(invalid(|it| it["dataDisks"][1]["lun"] = json!(0)).await, "dataDisks[1].lun 0 occurs twice");
    check(
        invalid(|it| it["dataDisks"][0]["deletionPolicy"] = json!("Keep")).await,
        "dataDisks[0].deletionPolicy is 'Keep'; accepted are Delete, Detach",
    );
    check(
        invalid(|it| it["vnet"] = json!("../../x")).await,
        "vnet is '../../x'; expected a name of letters, digits, '-', '_', '.', '(' and ')'",
    );
    check(
        invalid(|it| it["image"]["resourceID"] = json!("/resourceGroups/x")).await,
        "image needs either resourceID alone, or all of publisher, offer, sku and version",
    );
    check(
        invalid(|it| it["spotVMOptions"]["maxPrice"] = json!("free")).await,
        "spotVMOptions.maxPrice is 'free'; expected a price above 0 in dollars, or -1 for the usual price",
    );
    check(
        invalid(|it| it["subnet"] = json!("masters")).await,
        "subnet is 'masters'; /subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/masters does not exist",
    );
    check(invalid(|it| it["natRule"] = json!(3)).await, "natRule is 3; the load balancer one has 1 rules");
    check(
        invalid(|it| it["kind"] = json!("AWSMachineProviderConfig")).await,
        "kind is 'AWSMachineProviderConfig'; expected AzureMachineProviderSpec",
    );
    check(
        invalid(|it| it["diagnostics"]["boot"]["storageAccountType"] = json!("AzureManaged")).await,
        "diagnostics.boot.customerManaged is set; storageAccountType AzureManaged forbids it",
    );
    check(
        invalid(|it| it["securityProfile"]["settings"]["securityType"] = json!("TrustedLaunch")).await,
        "osDisk.managedDisk.securityProfile.securityEncryptionType is 'VMGuestStateOnly'; it needs securityType ConfidentialVM",
    );
}

#[tokio::test]
async fn what_carries_the_tag_of_another_cluster_is_left_alone() {
    let cloud = furnished();
    let service = cloud.service();
    let provider = provider(&service);
    let request = request(full_spec());
    let machine = format!("{GROUP}/providers/Microsoft.Compute/virtualMachines/one-worker-abcde");
    cloud.change(&machine, |it| {
        *it = json!({ "id": machine, "tags": { "kubernetes.io_cluster.two": "owned" }, "properties": { "provisioningState": "Succeeded" } });
    });
    assert_eq!(provider.find(&request).await.unwrap(), None);
    let refused = provider.create(&request).await.unwrap_err();
    assert!(matches!(refused, InstanceError::InvalidConfiguration(_)), "{refused}");
    provider.delete(&request).await.unwrap();
    assert!(!service.lines().contains(&format!("DELETE {machine}")));
}

#[tokio::test]
async fn missing_tags_are_added_and_others_stay() {
    let cloud = furnished();
    let service = cloud.service();
    let provider = provider(&service);
    let request = request(full_spec());
    let _ = provider.create(&request).await;
    let machine = format!("{GROUP}/providers/Microsoft.Compute/virtualMachines/one-worker-abcde");
    let found = provider.find(&request).await.unwrap().unwrap();
    provider.update(&request, &found).await.unwrap();
    assert!(!service.sent().iter().any(|it| it.method == "PATCH"));
    cloud.change(&machine, |it| it["tags"] = json!({ "by-hand": "x" }));
    provider.update(&request, &found).await.unwrap();
    let patch = service.sent().into_iter().find(|it| it.method == "PATCH").unwrap();
    assert_eq!(
        patch.json(),
        json!({ "tags": { "by-hand": "x", "kubernetes.io_cluster.one": "owned", "team": "a" } })
    );
}

#[tokio::test]
async fn an_unusable_secret_gives_no_machine_up() {
    let service = furnished().service();
    let mut broken = request(full_spec());
    broken.credentials.as_mut().unwrap().remove("azure_tenant_id");
    let error = provider(&service).create(&broken).await.unwrap_err();
    assert_eq!(
        error,
        InstanceError::Create(
            "the Secret of credentialsSecret has no text under the key azure_tenant_id".to_owned()
        )
    );
    let error = provider(&service).find(&broken).await.unwrap_err();
    assert!(matches!(error, InstanceError::Unavailable(_)), "{error}");
}

const MACHINE: &str =
    "/subscriptions/s/resourceGroups/managed/providers/Microsoft.Compute/virtualMachines/one-worker-abcde";

/// A cloud with the virtual machine of a request, which has recorded it.
async fn provisioned() -> (ScriptedService, AzureInstances, InstanceRequest) {
    let service = furnished().service();
    let provider = provider(&service);
    let mut request = request(full_spec());
    let _ = provider.create(&request).await;
    let instance = provider.find(&request).await.unwrap().unwrap();
    request.provider_id = Some(instance.provider_id);
    request.provider_status = Some(instance.provider_status);
    assert!(provider.find(&request).await.unwrap().is_some());
    (service, provider, request)
}

#[tokio::test]
async fn a_recorded_machine_is_neither_given_up_nor_left_behind_when_what_leads_to_it_was_edited() {
    type Edit = fn(&mut InstanceRequest);
    let edits: [(Edit, &str); 4] = [
        (|it| it.provider_spec["resourceGroup"] = json!("other"), "restore them"),
        (
            |it| {
                it.provider_id = None;
                let id = Secret::new(b"another".to_vec());
                it.credentials.as_mut().unwrap().insert("azure_subscription_id".to_owned(), id);
            },
            "status.providerStatus.vmId is the virtual machine /subscriptions/s/",
        ),
        (
            |it| {
                it.provider_status = None;
                it.provider_spec["resourceGroup"] = json!("other");
            },
            "spec.providerID is the virtual machine /subscriptions/s/",
        ),
        (|it| it.cluster_id = "two".to_owned(), "restore the label machine.openshift.io/cluster-api-cluster"),
    ];
    for (edit, expect) in edits {
        let (service, provider, mut request) = provisioned().await;
        edit(&mut request);
        let error = provider.find(&request).await.unwrap_err();
        assert!(matches!(&error, InstanceError::Unavailable(why) if why.contains(expect)), "{error}");
        let error = provider.delete(&request).await.unwrap_err();
        assert!(matches!(&error, InstanceError::Delete(why) if why.contains(expect)), "{error}");
        assert!(!service.sent().iter().any(|it| it.method == "DELETE"), "{expect}");
    }
}

#[tokio::test]
async fn a_recorded_machine_in_other_letters_is_the_same() {
    let (service, provider, mut request) = provisioned().await;
    request.provider_spec["resourceGroup"] = json!("Managed");
    assert!(provider.find(&request).await.unwrap().is_some());
    provider.delete(&request).await.unwrap();
    assert!(service.sent().iter().any(|it| it.method == "DELETE" && it.path.eq_ignore_ascii_case(MACHINE)));
    assert_eq!(provider.find(&request).await.unwrap(), None);
}

#[tokio::test]
async fn a_missing_resource_group_says_nothing_about_a_recorded_machine() {
    let service = ScriptedService::by(|_| Reply::error(404, "ResourceGroupNotFound"));
    let provider = provider(&service);
    let mut request = request(full_spec());
    assert_eq!(provider.find(&request).await.unwrap(), None);
    request.provider_id = Some(format!("azure://{MACHINE}"));
    let error = provider.find(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::Unavailable(_)), "{error}");
    let error = provider.delete(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::Delete(_)), "{error}");
}

/// A cloud in which deletions of virtual machines take until they are removed.
fn with_slow_deletion(cloud: &MemoryCloud) -> ScriptedService {
    let cloud = cloud.clone();
    ScriptedService::by(move |sent| match sent.method.as_str() {
        "DELETE" if sent.path == MACHINE => {
            cloud.change(MACHINE, |it| it["properties"]["provisioningState"] = json!("Deleting"));
            Reply::json(202, Value::Null)
        }
        _ => cloud.respond(sent),
    })
}

#[tokio::test]
async fn a_failed_creation_is_reported_while_its_deletion_runs_and_its_disk_is_deleted_afterwards() {
    let cloud = furnished();
    let service = with_slow_deletion(&cloud);
    let provider = provider(&service);
    let request = request(full_spec());
    let _ = provider.create(&request).await;
    cloud.change(MACHINE, |it| it["properties"]["provisioningState"] = json!("Failed"));
    let failed = provider.create(&request).await.unwrap_err();
    let expect =
        "the creation of the virtual machine one-worker-abcde failed and is repeated: Azure gives no reason";
    assert_eq!(failed, InstanceError::Create(expect.to_owned()));
    let waits = provider.create(&request).await.unwrap_err();
    assert!(matches!(waits, InstanceError::RequeueAfter(..)), "{waits}");

    cloud.remove(MACHINE);
    let disk = format!("{GROUP}/providers/Microsoft.Compute/disks/one-worker-abcde_OSDisk");
    cloud.change(&disk, |it| *it = json!({ "id": disk }));
    let accepted = provider.create(&request).await.unwrap_err();
    assert!(matches!(accepted, InstanceError::RequeueAfter(..)), "{accepted}");
    let sent = service.sent();
    let at = |method: &str, path: &str| sent.iter().rposition(|it| it.method == method && it.path == path);
    assert!(at("DELETE", &disk).unwrap() < at("PUT", MACHINE).unwrap());
}

#[tokio::test]
async fn a_disk_that_is_attached_is_not_that_of_a_failed_creation() {
    let cloud = furnished();
    let service = cloud.service();
    let disk = format!("{GROUP}/providers/Microsoft.Compute/disks/one-worker-abcde_OSDisk");
    cloud.change(&disk, |it| *it = json!({ "id": disk, "managedBy": MACHINE }));
    let _ = provider(&service).create(&request(full_spec())).await;
    assert!(!service.sent().iter().any(|it| it.method == "DELETE"));
}
