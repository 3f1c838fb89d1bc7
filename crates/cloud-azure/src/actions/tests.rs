//! Tests of the lists of actions.

use std::collections::{BTreeMap, BTreeSet};

use cloud::{
    BlobAddress, Blobs as _, CertificateSpec, CloudError, Credential, Identities as _, Infrastructure as _,
    Machines as _, Properties, Registry as _, ResourceId, ResourceRequest, RoleAssignment, RoleDefinition,
    Vault as _,
};

use super::*;
use crate::client::AzureClient;
use crate::testing::{MemoryCloud, Sent, requests};

#[test]
fn the_role_has_every_kind_of_resource_and_nothing_twice() {
    let actions = required_actions();
    assert!(actions.contains(&"Microsoft.Network/virtualNetworks/subnets/write".to_owned()));
    assert!(actions.contains(&"Microsoft.Resources/subscriptions/resourceGroups/delete".to_owned()));
    assert!(actions.windows(2).all(|pair| pair[0] < pair[1]));
    // A role that may do everything has no use for a list.
    assert!(!actions.iter().any(|it| it.contains('*')));
}

#[test]
fn what_only_preparation_needs_is_no_part_of_the_role() {
    for action in preparation_actions() {
        assert!(!required_actions().iter().any(|it| matches(action, it)), "{action}");
    }
}

#[test]
fn the_definition_has_the_members_that_az_reads() {
    let role = role_definition("Shipshape", &["/subscriptions/s".to_owned()]);
    assert_eq!(role["AssignableScopes"], json!(["/subscriptions/s"]));
    assert_eq!(role["IsCustom"], json!(true));
    assert_eq!(role["Actions"].as_array().unwrap().len(), required_actions().len());
}

#[test]
fn the_action_of_a_call_follows_from_its_path() {
    let check = |method: Method, path: &str, expect: &str| {
        assert_eq!(action_of(method, path).as_deref(), Some(expect));
    };
    let group = "/subscriptions/s/resourceGroups/g";
    check(Method::Put, group, "Microsoft.Resources/subscriptions/resourceGroups/write");
    check(
        Method::Get,
        &format!("{group}/resources"),
        "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
    );
    check(Method::Get, "/subscriptions/s/providers", "Microsoft.Resources/subscriptions/providers/read");
    check(
        Method::Post,
        "/subscriptions/s/providers/Microsoft.Compute/register",
        "Microsoft.Compute/register/action",
    );
    let feature = "/subscriptions/s/providers/Microsoft.Features/providers/Microsoft.Compute/features/f";
    check(Method::Get, feature, "Microsoft.Features/providers/features/read");
    check(
        Method::Post,
        &format!("{feature}/register"),
        "Microsoft.Features/providers/features/register/action",
    );
    let subnet = format!("{group}/providers/Microsoft.Network/virtualNetworks/v/subnets/s");
    check(Method::Delete, &subnet, "Microsoft.Network/virtualNetworks/subnets/delete");
    let permissions = format!("{subnet}/providers/Microsoft.Authorization/permissions");
    check(Method::Get, &permissions, "Microsoft.Authorization/permissions/read");
    let machine = format!("{group}/providers/Microsoft.Compute/virtualMachines/m/start");
    check(Method::Post, &machine, "Microsoft.Compute/virtualMachines/start/action");
}

/// Makes every call that the client can make, more than once where a repetition takes another way.
async fn call_everything(cloud: &MemoryCloud, client: &AzureClient) {
    let group = ResourceId::group("s", "g");
    let all = requests();
    for request in &all {
        client.put(request.clone()).await.unwrap();
        client.get(&request.id).await.unwrap();
    }
    // An endpoint that waits for its approval.
    let (service, endpoint) =
        (id_of(&all, ResourceKind::PrivateLinkService), id_of(&all, ResourceKind::PrivateEndpoint));
    cloud.change(service.as_str(), |body| {
        body["properties"]["privateEndpointConnections"] = json!([{"name": "c", "properties":
            {"privateEndpoint": {"id": endpoint}, "privateLinkServiceConnectionState": {"status": "Pending"}}}]);
    });
    client.put(request_of(&all, ResourceKind::PrivateEndpoint)).await.unwrap();
    // An identity that loses its credential.
    let mut identity = request_of(&all, ResourceKind::Identity);
    identity.properties = Properties::Identity {
        client_id: None,
        principal_id: None,
        tenant_id: None,
        federated: BTreeMap::new(),
    };
    client.put(identity).await.unwrap();
    client.list(&group).await.unwrap();
    client.groups("s").await.unwrap();
    client.machines(&group).await.unwrap();
    let machine = id_of(&all, ResourceKind::Machine);
    client.stop_machine(&machine).await.unwrap();
    cloud.change(machine.as_str(), |body| {
        body["properties"]["instanceView"] = json!({"statuses": [{"code": "PowerState/deallocated"}]});
    });
    client.start_machine(&machine).await.unwrap();

    client.sizes("s", "westeurope").await.unwrap();
    client.usages("s", "westeurope").await.unwrap();
    client.providers("s").await.unwrap();
    client.feature("s", "Microsoft.Compute/EncryptionAtHost").await.unwrap();
    client.register_provider("s", "Microsoft.Compute").await.unwrap();
    client.register_feature("s", "Microsoft.Compute/EncryptionAtHost").await.unwrap();

    let identity = Credential::Identity(id_of(&all, ResourceKind::Identity));
    for credential in [Credential::Service, identity] {
        client.permissions(&credential, &group, &["a/read"]).await.unwrap();
    }
    let role = RoleDefinition {
        id: "b24988ac-6180-42a0-ab88-20f7382dd24c".to_owned(),
        name: "Contributor".to_owned(),
        assignable_scopes: vec![group.to_string()],
        ..RoleDefinition::default()
    };
    client.put_role_definition(&role).await.unwrap();
    let assignment = RoleAssignment {
        name: "a".to_owned(),
        principal: "p".to_owned(),
        role: "Contributor".to_owned(),
        scope: group.clone(),
    };
    client.assign_role(&assignment).await.unwrap();
    client.role_assignments(&group).await.unwrap();
    client.revoke_role(&group, "a").await.unwrap();
    client.delete_role_definition(&group, &role.id).await.unwrap();

    assert!(client.verify_host().await.unwrap_err().is_not_found());
    client.ensure_token("t").await.unwrap();
    client.tokens().await.unwrap();
    client.issue_password("t", None).await.unwrap();
    client.delete_token("t").await.unwrap();

    let account = id_of(&all, ResourceKind::StorageAccount);
    let blob =
        BlobAddress { account: account.clone(), container: "aro".to_owned(), name: "graph".to_owned() };
    client.ensure_container(&account, "aro").await.unwrap();
    client.put_blob(&blob, "text/plain", b"x".to_vec()).await.unwrap();
    client.blob(&blob).await.unwrap();
    client.delete_blob(&blob).await.unwrap();
    client.delete_container(&account, "aro").await.unwrap();

    let spec = CertificateSpec { name: "c".to_owned(), dns_names: vec!["a.example.org".to_owned()] };
    client.ensure_certificate(&spec).await.unwrap();
    client.renew_certificate("c", None).await.unwrap();
    // The value is no certificate; the call is what counts.
    let _ = client.certificate("c").await;
    client.put_secret("x", "v", None).await.unwrap();
    client.secret("x").await.unwrap();
    for _ in 0..2 {
        // Deleted names are purged or recovered.
        client.delete_certificate("c").await.unwrap();
        if let Err(error) = client.ensure_certificate(&spec).await {
            assert!(matches!(error, CloudError::Busy { .. }), "{error}");
            client.ensure_certificate(&spec).await.unwrap();
        }
        client.delete_secret("x").await.unwrap();
        client.put_secret("x", "v", None).await.unwrap();
    }
    for request in all.iter().rev() {
        client.delete(&request.id).await.unwrap();
    }
}

fn request_of(all: &[ResourceRequest], kind: ResourceKind) -> ResourceRequest {
    all.iter().find(|it| it.properties.kind() == kind).unwrap().clone()
}

fn id_of(all: &[ResourceRequest], kind: ResourceKind) -> ResourceId {
    request_of(all, kind).id
}

/// The rights on other resources that a body needs: those of the types that it refers to.
fn linked_actions(path: &str, body: &Value, found: &mut BTreeSet<String>) {
    let is_of_storage = path.contains("/Microsoft.Storage/");
    match body {
        Value::Object(members) => {
            let id = members.get("id").and_then(Value::as_str).filter(|it| it.starts_with("/subscriptions/"));
            let id = id.filter(|it| !it.to_lowercase().starts_with(&path.to_lowercase()));
            if let Some(action) = id.and_then(|it| action_of(Method::Post, &format!("{it}/join"))) {
                let action =
                    if is_of_storage { action.replace("/join/", "/joinViaServiceEndpoint/") } else { action };
                found.insert(action);
            }
            members.values().for_each(|it| linked_actions(path, it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| linked_actions(path, it, found)),
        _ => {}
    }
}

/// The action of a call on the content of a vault or of a storage account, as the documentation of each call names it.
fn data_action(sent: &Sent) -> String {
    let segments: Vec<&str> = sent.path.split('/').filter(|it| !it.is_empty()).collect();
    if sent.origin.ends_with("blob.core.windows.net") {
        let verb = match sent.method.as_str() {
            "PUT" => "write",
            "DELETE" => "delete",
            _ => "read",
        };
        // Containers are no content: actions on them are those of the resource manager.
        let blobs = if sent.query.contains("restype=container") { "" } else { "/blobs" };
        return format!("Microsoft.Storage/storageAccounts/blobServices/containers{blobs}/{verb}");
    }
    let verb = match (sent.method.as_str(), segments[0], segments.last().copied()) {
        ("POST", _, Some("recover")) => "recover/action",
        ("POST", ..) => "create/action",
        ("PUT", ..) => "setSecret/action",
        ("DELETE", "deletedcertificates", _) => "purge/action",
        ("DELETE", ..) => "delete",
        (_, "secrets", _) => "getSecret/action",
        _ => "read",
    };
    format!("Microsoft.KeyVault/vaults/{}/{verb}", segments[0].trim_start_matches("deleted"))
}

#[tokio::test]
async fn every_call_has_its_action_and_every_action_its_call() {
    let cloud = MemoryCloud::default();
    let service = cloud.service();
    call_everything(&cloud, &service.client()).await;
    let (mut calls, mut linked, mut data) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for sent in service.sent() {
        if sent.origin != "https://management.azure.com" {
            let action = data_action(&sent);
            let of_data = if action.contains("/containers/") && !action.contains("/blobs/") {
                &mut calls
            } else {
                &mut data
            };
            of_data.insert(action);
            continue;
        }
        let method: Method = serde_json::from_value(json!(sent.method)).unwrap();
        calls.insert(action_of(method, &sent.path).unwrap());
        if sent.method == "PUT" && !sent.path.contains("/privateEndpointConnections/") {
            linked_actions(&sent.path, &sent.json(), &mut linked);
        }
    }
    let preparation = |it: &String| PREPARATION.iter().any(|pattern| matches(pattern, it));
    let listed: BTreeSet<String> = CALLS.iter().cloned().collect();
    let made: BTreeSet<String> = calls.iter().filter(|it| !preparation(it)).cloned().collect();
    assert_eq!(made.difference(&listed).collect::<Vec<_>>(), [""; 0], "called and not listed");
    assert_eq!(listed.difference(&made).collect::<Vec<_>>(), [""; 0], "listed and not called");
    for pattern in PREPARATION {
        assert!(calls.iter().any(|it| matches(pattern, it)), "{pattern} is listed and not called");
    }
    assert_eq!(linked.iter().map(String::as_str).collect::<Vec<_>>(), LINKED);
    assert_eq!(data.iter().map(String::as_str).collect::<Vec<_>>(), DATA);
}

#[tokio::test]
async fn every_call_about_instances_has_its_action_and_every_action_its_call() {
    use cloud::InstanceProvider as _;

    use crate::instances::tests::{full_spec, furnished, provider, request};

    let cloud = furnished();
    cloud.change("/subscriptions/s/providers/Microsoft.Compute/skus/a", |it| {
        *it = json!({ "resourceType": "virtualMachines", "name": "Standard_D4s_v5" });
    });
    let service = cloud.service();
    let provider = provider(&service);
    // Where there are no zones, the machine is in an availability set.
    let mut without_zone = full_spec();
    without_zone["zone"] = Value::Null;
    without_zone["spotVMOptions"] = Value::Null;
    for spec in [full_spec(), without_zone] {
        let request = request(spec);
        let _ = provider.create(&request).await;
        let disk = "/subscriptions/s/resourceGroups/managed/providers/Microsoft.Compute/disks/one-worker-abcde_OSDisk";
        cloud.change(disk, |_| {});
        let found = provider.find(&request).await.unwrap().unwrap();
        provider.update(&request, &found).await.unwrap();
        provider.delete(&request).await.unwrap();
    }
    let (mut calls, mut linked) = (BTreeSet::new(), BTreeSet::new());
    for sent in service.sent() {
        let method: Method = serde_json::from_value(json!(sent.method)).unwrap();
        calls.insert(action_of(method, &sent.path).unwrap());
        if sent.method == "PUT" {
            linked_actions(&sent.path, &sent.json(), &mut linked);
        }
    }
    assert_eq!(calls.iter().map(String::as_str).collect::<Vec<_>>(), INSTANCE_CALLS);
    // Azure's names of the rights on what is joined differ from `join` for some types, and identities are members by name.
    let types = |it: &str| it.rsplitn(3, '/').last().unwrap_or_default().to_owned();
    let named: BTreeSet<String> = INSTANCE_LINKED
        .iter()
        .chain(INSTANCE_CALLS)
        .map(|it| {
            let verb = it.rsplit('/').next().unwrap_or_default();
            if verb == "action" { types(it) } else { it.rsplit_once('/').unwrap().0.to_owned() }
        })
        .collect();
    for action in &linked {
        assert!(named.contains(&types(action)), "{action} is needed and not listed");
    }
}
