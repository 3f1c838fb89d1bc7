//! Tests of the infrastructure role: etags, long operations by each contract, deletion, and what several calls make up.

mod composites;
mod operations;

use cloud::{Infrastructure as _, Machines as _, Properties};

use super::*;
use crate::testing::{Reply, ScriptedService, requests};

fn request(kind: ResourceKind) -> ResourceRequest {
    requests().into_iter().find(|it| it.properties.kind() == kind).unwrap()
}

fn id(kind: ResourceKind) -> ResourceId {
    request(kind).id
}

/// A resource as the cloud shows it: the body of a put with what the cloud adds.
fn shown(request: &ResourceRequest, change: impl FnOnce(&mut Value)) -> Value {
    let mut body = resources::target(request, None, &crate::settings::MachineSettings::default()).unwrap();
    body["id"] = json!(request.id);
    body["name"] = json!(request.id.name());
    body["etag"] = json!("W/\"1\"");
    body["properties"]["provisioningState"] = json!("Succeeded");
    change(&mut body);
    body
}

fn ok(body: Value) -> Reply {
    Reply::json(200, body)
}

fn missing() -> Reply {
    Reply::error(404, "ResourceNotFound")
}

#[tokio::test]
async fn a_subnet_is_changed_under_its_etag_and_keeps_what_others_put_there() {
    let subnet = request(ResourceKind::Subnet);
    let present = shown(&subnet, |body| {
        body["properties"]["networkSecurityGroup"] = Value::Null;
        body["properties"]["delegations"] = json!([{"name": "d", "properties": {"serviceName": "x"}}]);
        body["properties"]["serviceEndpoints"] = json!([{"service": "Microsoft.Sql", "locations": ["*"]}]);
        body["properties"]["odd"] = json!({"a": [1]});
    });
    let changed = shown(&subnet, |body| {
        *body = present.clone();
        body["etag"] = json!("W/\"2\"");
        body["properties"]["later"] = json!(true);
    });
    let service = ScriptedService::new([
        ok(present),
        Reply::error(412, "PreconditionFailed"),
        ok(changed),
        Reply::json(201, json!({"properties": {"provisioningState": "Updating"}})),
    ]);
    let written = service.client().put(subnet).await.unwrap();
    assert_eq!(written.state, ResourceState::Updating);
    let sent = service.sent();
    assert_eq!((sent[1].header("if-match"), sent[3].header("if-match")), ("W/\"1\"", "W/\"2\""));
    let properties = &sent[3].json()["properties"];
    assert!(properties["networkSecurityGroup"]["id"].as_str().unwrap().ends_with("/infra-nsg"));
    assert_eq!(properties["delegations"][0]["name"], "d");
    assert_eq!((&properties["odd"], &properties["later"]), (&json!({"a": [1]}), &json!(true)));
    let endpoints: Vec<&str> = properties["serviceEndpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["service"].as_str().unwrap())
        .collect();
    assert_eq!(endpoints, ["Microsoft.Sql", "Microsoft.Storage"]);
    assert_eq!(sent[3].json().get("etag"), None);
}

#[tokio::test]
async fn a_resource_that_always_changes_is_given_up() {
    let group = request(ResourceKind::SecurityGroup);
    let present = shown(&group, |body| body["properties"]["securityRules"] = json!([]));
    let service = ScriptedService::by(move |sent| match sent.method.as_str() {
        "GET" => ok(present.clone()),
        _ => Reply::error(412, "PreconditionFailed"),
    });
    let error = service.client().put(group).await.unwrap_err();
    assert!(matches!(error, CloudError::PreconditionFailed { .. }), "{error}");
    assert_eq!(service.sent().len(), 2 * CHANGE_ATTEMPTS_MAX);
}

#[tokio::test]
async fn what_is_as_requested_is_not_written() {
    for request in requests() {
        // Each of these is read with further calls.
        if matches!(
            request.properties.kind(),
            ResourceKind::Machine
                | ResourceKind::StorageAccount
                | ResourceKind::Identity
                | ResourceKind::PrivateEndpoint
        ) {
            continue;
        }
        let mut present = shown(&request, |body| body["systemData"] = json!({"createdBy": "x"}));
        if let Some(id) = present.pointer_mut("/properties/networkSecurityGroup/id") {
            *id = json!(id.as_str().unwrap().to_uppercase().replace("/SUBSCRIPTIONS/", "/subscriptions/"));
        }
        let service = ScriptedService::new([ok(present)]);
        service.client().put(request.clone()).await.unwrap();
        assert_eq!(service.lines(), [format!("GET {}", request.id)]);
    }
}

#[tokio::test]
async fn a_network_is_created_and_never_written_again() {
    let network = request(ResourceKind::VirtualNetwork);
    let service = ScriptedService::new([missing(), Reply::json(201, shown(&network, |_| ()))]);
    service.client().put(network.clone()).await.unwrap();
    assert_eq!(service.lines()[1], format!("PUT {}", network.id));
    let tagged = ResourceRequest { tags: [("a".to_owned(), "b".to_owned())].into(), ..network.clone() };
    let service = ScriptedService::new([ok(shown(&network, |_| ()))]);
    service.client().put(tagged).await.unwrap();
    let other = Properties::VirtualNetwork { address_space: vec!["192.168.0.0/16".to_owned()] };
    let service = ScriptedService::new([ok(shown(&network, |_| ()))]);
    let error = service.client().put(ResourceRequest { properties: other, ..network }).await.unwrap_err();
    assert!(matches!(error, CloudError::Conflict { .. }), "{error}");
}

#[tokio::test]
async fn a_record_is_a_claim_on_its_name() {
    let record = |owner: &str| ResourceRequest {
        tags: [("cluster".to_owned(), owner.to_owned())].into(),
        ..request(ResourceKind::DnsRecord)
    };
    // Another was faster.
    let service = ScriptedService::new([
        missing(),
        Reply::error(412, "PreconditionFailed"),
        ok(shown(&record("other"), |_| ())),
    ]);
    let error = service.client().put(record("own")).await.unwrap_err();
    assert!(error.to_string().ends_with("it exists already, and its cluster is other"), "{error}");
    assert_eq!(service.sent()[1].header("if-none-match"), "*");
    // The response to the own claim was lost.
    let service = ScriptedService::new([
        missing(),
        Reply::Broken,
        Reply::error(412, "PreconditionFailed"),
        ok(shown(&record("own"), |_| ())),
    ]);
    service.client().put(record("own")).await.unwrap();
    // The own record gets another address.
    let service = ScriptedService::new([
        ok(shown(&record("own"), |body| body["properties"]["ARecords"] = json!([]))),
        ok(shown(&record("own"), |_| ())),
    ]);
    service.client().put(record("own")).await.unwrap();
    assert_eq!(service.sent()[1].header("if-match"), "W/\"1\"");
}

#[tokio::test]
async fn a_group_keeps_its_manager_and_its_location() {
    let managed = |by: Option<&str>| ResourceRequest {
        properties: Properties::ResourceGroup { managed_by: by.map(str::to_owned) },
        ..request(ResourceKind::ResourceGroup)
    };
    for (present, wanted) in [(Some("/a"), Some("/b")), (Some("/a"), None), (None, Some("/b"))] {
        let service = ScriptedService::new([ok(shown(&managed(present), |_| ()))]);
        let error = service.client().put(managed(wanted)).await.unwrap_err();
        assert!(matches!(error, CloudError::Conflict { .. }), "{error}");
    }
    let service = ScriptedService::new([ok(shown(&managed(Some("/A")), |body| {
        body["location"] = json!("West Europe");
    }))]);
    service.client().put(managed(Some("/a"))).await.unwrap();
    let service =
        ScriptedService::new([ok(shown(&managed(None), |body| body["location"] = json!("eastus")))]);
    let error = service.client().put(managed(None)).await.unwrap_err();
    assert!(
        error.to_string().ends_with("it is in eastus, and a resource does not move to westeurope"),
        "{error}"
    );
}

#[tokio::test]
async fn one_network_is_written_one_at_a_time_and_others_meanwhile() {
    let put = |network: &str, subnet: &str| {
        let id = ResourceId::group("s", "g").sibling("Microsoft.Network", "virtualNetworks", network);
        ResourceRequest { id: id.child("subnets", subnet), ..request(ResourceKind::Subnet) }
    };
    let service = ScriptedService::by(|sent| match sent.method.as_str() {
        "GET" => missing(),
        _ => Reply::json(201, sent.json()),
    });
    let client = service.client();
    // The token is there before, so that only writes are compared.
    client.providers("s").await.unwrap_err();
    let puts = ["a/one", "A/two", "b/one"].map(|it| {
        let (network, subnet) = it.split_once('/').unwrap();
        client.put(put(network, subnet))
    });
    for written in futures_util::future::join_all(puts).await {
        written.unwrap();
    }
    let lines: Vec<String> = service.lines()[1..]
        .iter()
        .map(|it| {
            it.replace("/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/", "")
        })
        .collect();
    let of = |network: &str| -> Vec<String> {
        lines.iter().filter(|it| it.to_lowercase().contains(&format!(" {network}/"))).cloned().collect()
    };
    assert_eq!(of("a"), ["GET a/subnets/one", "PUT a/subnets/one", "GET A/subnets/two", "PUT A/subnets/two"]);
    assert_eq!(lines[..2], ["GET a/subnets/one", "GET b/subnets/one"]);
}

#[tokio::test]
async fn an_id_of_another_kind_is_refused() {
    let service = ScriptedService::new([]);
    let wrong = ResourceRequest { id: id(ResourceKind::PublicIp), ..request(ResourceKind::Subnet) };
    assert!(matches!(service.client().put(wrong).await, Err(CloudError::Invalid { .. })));
    let unknown = ResourceId::group("s", "g").sibling("Microsoft.Web", "sites", "x");
    assert!(matches!(service.client().get(&unknown).await, Err(CloudError::Invalid { .. })));
    assert!(matches!(service.client().delete(&unknown).await, Err(CloudError::Invalid { .. })));
}

#[tokio::test]
async fn a_list_leaves_out_what_is_gone_or_unknown() {
    let group = id(ResourceKind::ResourceGroup);
    let address = request(ResourceKind::PublicIp);
    let body = shown(&address, |_| ());
    let service = ScriptedService::by(move |sent| {
        if sent.path.ends_with("/resources") {
            let gone = sent.path.replace("/resources", "/providers/Microsoft.Network/publicIPAddresses/gone");
            let unknown = sent.path.replace("/resources", "/providers/Microsoft.Web/sites/x");
            return ok(json!({"value": [{"id": gone}, {"id": unknown}, {"id": address.id}]}));
        }
        if sent.path.ends_with("/gone") { missing() } else { ok(body.clone()) }
    });
    let found = service.client().list(&group).await.unwrap();
    assert_eq!(found.iter().map(|it| it.id.name()).collect::<Vec<_>>(), ["infra-pip-v4"]);
    let service = ScriptedService::new([Reply::error(404, "ResourceGroupNotFound")]);
    assert_eq!(service.client().list(&group).await.unwrap(), []);
    let service = ScriptedService::new([Reply::error(404, "ResourceGroupNotFound")]);
    assert_eq!(service.client().machines(&group).await.unwrap(), []);
}
