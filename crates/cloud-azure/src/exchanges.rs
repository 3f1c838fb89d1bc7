//! Tests on exchanges of Microsoft's SDKs with the emulator, recorded by `tests/exchanges/record.py`: what is sent is spelled as the models
//! of the SDKs spell it, and what they accept is understood.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use cloud::{Infrastructure as _, Properties, ResourceId, ResourceKind, ResourceRequest, ResourceState};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::resources;
use crate::settings::MachineSettings;
use crate::testing::{Reply, ScriptedService, requests};

#[derive(Debug, Clone, Deserialize)]
struct Exchange {
    request: RecordedRequest,
    response: RecordedResponse,
}

#[derive(Debug, Clone, Deserialize)]
struct RecordedRequest {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
struct RecordedResponse {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Option<Value>,
}

macro_rules! recorded {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../tests/exchanges/", $name, ".json")))),*]
    };
}

const FILES: [(&str, &str); 16] = recorded![
    "disk",
    "dns",
    "identity",
    "load-balancer",
    "machine",
    "nat-gateway",
    "network-interface",
    "private-dns",
    "private-link",
    "public-address",
    "resource-group",
    "route-table",
    "security-group",
    "storage-account",
    "subnet",
    "virtual-network",
];

/// The exchanges about a machine of machine controllers.
const INSTANCE: &str = include_str!("../tests/exchanges/instance.json");

fn exchanges(name: &str) -> Vec<Exchange> {
    let (_, text) = FILES.iter().find(|(it, _)| *it == name).unwrap();
    serde_json::from_str(text).unwrap()
}

impl RecordedResponse {
    fn reply(&self) -> Reply {
        let reply = Reply::json(self.status, self.body.clone().unwrap_or_default());
        ["azure-asyncoperation", "location", "etag", "retry-after", "retry-after-ms"].into_iter().fold(
            reply,
            |reply, name| match self.headers.get(name) {
                Some(value) => reply.with(name, value),
                None => reply,
            },
        )
    }
}

/// A service that gives the recorded responses to each method and path in their order, the last one again and again.
fn played(exchanges: Vec<Exchange>) -> ScriptedService {
    let mut replies: BTreeMap<String, VecDeque<Reply>> = BTreeMap::new();
    for Exchange { request, response } in exchanges {
        let line = format!("{} {}", request.method, request.path);
        replies.entry(line).or_default().push_back(response.reply());
    }
    let replies = Mutex::new(replies);
    ScriptedService::by(move |sent| {
        let mut replies = replies.lock().unwrap();
        let left = replies.get_mut(&sent.line()).unwrap_or_else(|| panic!("not recorded: {}", sent.line()));
        if left.len() > 1 { left.pop_front() } else { left.front().cloned() }.unwrap()
    })
}

/// The members of a body with the types of their values. Items of a list are one.
fn members(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(name, value)| members(&format!("{at}.{name}"), value, found));
        }
        Value::Array(items) => items.iter().for_each(|it| members(&format!("{at}[]"), it, found)),
        Value::Null => {}
        Value::Bool(_) => drop(found.insert(format!("{at}: bool"))),
        Value::Number(_) => drop(found.insert(format!("{at}: number"))),
        Value::String(_) => drop(found.insert(format!("{at}: text"))),
    }
}

#[test]
fn every_member_that_is_sent_is_one_of_microsofts_models() {
    let mut known: BTreeMap<ResourceKind, BTreeSet<String>> = BTreeMap::new();
    let mut credentials = BTreeSet::new();
    for (name, _) in FILES {
        for Exchange { request, .. } in exchanges(name) {
            let (Some(body), "PUT") = (&request.body, request.method.as_str()) else { continue };
            if request.headers.contains_key("if-match") {
                // It repeats what the cloud had added.
                continue;
            }
            let id: ResourceId = request.path.parse().unwrap();
            match ResourceKind::of_id(&id) {
                Some(kind) => members("", body, known.entry(kind).or_default()),
                None => members("", body, &mut credentials),
            }
        }
    }
    for request in requests() {
        let kind = request.properties.kind();
        // Locks have one member that counts, and encryption sets are made by customers.
        if matches!(kind, ResourceKind::Lock | ResourceKind::DiskEncryptionSet) {
            continue;
        }
        let machines =
            MachineSettings { ssh_public_key: Some("ssh-rsa".to_owned()), ..MachineSettings::default() };
        let tags = match kind {
            ResourceKind::DnsRecord => [("cluster".to_owned(), "own".to_owned())].into(),
            _ => BTreeMap::new(),
        };
        let body = resources::target(&ResourceRequest { tags, ..request }, None, &machines).unwrap();
        let mut sent = BTreeSet::new();
        members("", &body, &mut sent);
        let known = known.get(&kind).unwrap_or_else(|| panic!("no recording of {kind:?}"));
        let unknown: Vec<&String> = sent.difference(known).collect();
        assert_eq!(unknown, [] as [&String; 0], "{kind:?}");
        // The SDK was given the same resource, so that nothing is missing either.
        let missing: Vec<&String> = known.difference(&sent).collect();
        let optional = [".managedBy", ".properties.routes[]", ".properties.zoneType"];
        let is_optional = |it: &&&String| optional.iter().any(|name| it.starts_with(name));
        assert_eq!(missing.iter().filter(|it| !is_optional(it)).count(), 0, "{kind:?}: {missing:?}");
    }
    let mut sent = BTreeSet::new();
    members("", &resources::credential_body("https://issuer|s", "s"), &mut sent);
    assert_eq!(sent, credentials);
}

#[test]
fn recordings_hold_no_credentials() {
    for (name, text) in FILES.into_iter().chain([("instance", INSTANCE)]) {
        let lower = text.to_lowercase();
        for word in [
            "authorization",
            "bearer",
            "client_secret",
            "access_token",
            "password\":",
            "eyj",
            "private key",
            "127.0.0.1",
        ] {
            assert!(!lower.contains(word), "{name} holds {word}");
        }
        for Exchange { request, response } in serde_json::from_str::<Vec<Exchange>>(text).unwrap() {
            for header in request.headers.keys().chain(response.headers.keys()) {
                let kept = [
                    "azure-asyncoperation",
                    "location",
                    "etag",
                    "retry-after",
                    "retry-after-ms",
                    "if-match",
                    "if-none-match",
                ];
                assert!(kept.contains(&header.as_str()), "{name} holds the header {header}");
            }
        }
    }
}

#[tokio::test]
async fn a_subnet_is_read_and_changed_under_its_etag() {
    let all = exchanges("subnet");
    let at = all.iter().position(|it| it.request.headers.contains_key("if-match")).unwrap();
    let etag = all[at].request.headers["if-match"].clone();
    let id: ResourceId = all[at].request.path.parse().unwrap();
    // From the read that the SDK made before its conditional write.
    let service = played(all[at - 1..].to_vec());
    let client = service.client();
    let found = client.get(&id).await.unwrap().unwrap();
    let Properties::Subnet {
        mut service_endpoints,
        address_prefix,
        security_group,
        route_table,
        nat_gateway,
        ..
    } = found.properties
    else {
        panic!("no subnet")
    };
    assert_eq!(
        (service_endpoints.as_slice(), address_prefix.as_str()),
        (["Microsoft.Storage".to_owned()].as_slice(), "10.0.0.0/24")
    );
    assert!(security_group.is_some() && route_table.is_some() && nat_gateway.is_some());
    service_endpoints.push("Microsoft.ContainerRegistry".to_owned());
    let properties = Properties::Subnet {
        address_prefix,
        security_group,
        route_table,
        nat_gateway,
        service_endpoints,
        private_link_policies: false,
    };
    let request = ResourceRequest { id, location: String::new(), tags: BTreeMap::new(), properties };
    let service = played(all[at - 1..].to_vec());
    let written = service.client().put(request.clone()).await.unwrap();
    assert_eq!(written.properties, request.properties);
    let put = service.sent().into_iter().find(|it| it.method == "PUT").unwrap();
    assert_eq!(put.header("if-match"), etag);
    // The same change as the SDK's, apart from what only the cloud writes.
    let strip = |body: &Value| {
        let mut found = BTreeSet::new();
        members("", &body["properties"], &mut found);
        found.retain(|it| !it.contains("provisioningState"));
        found
    };
    assert!(strip(&put.json()).is_superset(&strip(all[at].request.body.as_ref().unwrap())));
    // The second write with the same etag was refused.
    let refused = all.iter().rev().find(|it| it.response.status == 412).unwrap();
    let error = crate::error::ServiceError::parse(412, json!(refused.response.body).to_string().as_bytes());
    assert!(error.has_code(&["PreconditionFailed"]) && error.has_code(&["PreconditionFailedEtagMismatch"]));
}

#[tokio::test]
async fn a_machine_is_followed_through_its_operations() {
    let all = exchanges("machine");
    let path = all[0].request.path.clone();
    let id: ResourceId = path.parse().unwrap();
    let of_machine = |it: &&Exchange| it.request.method == "GET" && it.request.path == path;
    let reads: Vec<Value> = all.iter().filter(of_machine).filter_map(|it| it.response.body.clone()).collect();
    // Every state that the SDK has seen is understood.
    let states: Vec<(ResourceState, bool)> =
        reads.iter().map(|it| (resources::state(it), resources::running(it))).collect();
    assert!(states.contains(&(ResourceState::Succeeded, true)), "{states:?}");
    assert_eq!(states.last(), Some(&(ResourceState::Succeeded, false)));
    let polls: Vec<&Exchange> = all.iter().filter(|it| it.request.path.contains("/operations/")).collect();
    let statuses: Vec<&str> =
        polls.iter().filter_map(|it| it.response.body.as_ref()?["status"].as_str()).collect();
    assert!(statuses.contains(&"InProgress") && statuses.contains(&"Succeeded"), "{statuses:?}");
    // A deletion that was accepted, and its operation.
    let deletion = all.iter().find(|it| it.request.method == "DELETE").unwrap().clone();
    assert_eq!(deletion.response.status, 202);
    let operation = deletion.response.headers["azure-asyncoperation"].clone();
    let operation_path = operation.split_once("azure.com").unwrap().1.split('?').next().unwrap().to_owned();
    let polls = all.iter().filter(|it| it.request.path == operation_path).cloned();
    let service = played([deletion].into_iter().chain(polls).collect());
    let client = service.client();
    client.delete(&id).await.unwrap();
    client.delete(&id).await.unwrap();
    assert_eq!(service.lines(), [format!("DELETE {path}"), format!("GET {operation_path}")]);
}

#[tokio::test]
async fn an_account_that_was_accepted_without_a_body_follows() {
    let all = exchanges("storage-account");
    let id: ResourceId = all[0].request.path.parse().unwrap();
    let absent = Exchange {
        request: RecordedRequest { method: "GET".to_owned(), body: None, ..all[0].request.clone() },
        response: RecordedResponse { status: 404, headers: BTreeMap::new(), body: None },
    };
    let service = played([absent].into_iter().chain(all).collect());
    let request =
        requests().into_iter().find(|it| it.properties.kind() == ResourceKind::StorageAccount).unwrap();
    let client = service.client();
    let put = client.put(ResourceRequest { id: id.clone(), ..request }).await.unwrap();
    assert_eq!(put.state, ResourceState::Creating);
    // The poll of its result is 202 until its end, and the account is not there before.
    assert_eq!(client.get(&id).await.unwrap().unwrap().state, ResourceState::Creating);
}

/// The members of the bodies that are put for each type, with identities under one name.
fn members_by_type(puts: impl Iterator<Item = (String, Value)>) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, mut body) in puts {
        if let Some(Value::Object(identities)) = body.pointer_mut("/identity/userAssignedIdentities") {
            *identities = identities.values().map(|it| ("ID".to_owned(), it.clone())).collect();
        }
        body.as_object_mut().unwrap().remove("tags");
        let Some(kind) = path.split('/').nth(7) else { continue };
        members("", &body, found.entry(kind.to_owned()).or_default());
    }
    found
}

#[tokio::test]
async fn every_member_of_an_instance_is_one_of_microsofts_models() {
    use cloud::InstanceProvider as _;

    use crate::instances::tests::{full_spec, furnished, provider, request};

    let recorded: Vec<Exchange> = serde_json::from_str(INSTANCE).unwrap();
    let puts = recorded.into_iter().filter(|it| it.request.method == "PUT");
    let known = members_by_type(puts.filter_map(|it| Some((it.request.path, it.request.body?))));

    let cloud = furnished();
    cloud.change("/subscriptions/s/providers/Microsoft.Compute/skus/a", |it| {
        *it = json!({ "resourceType": "virtualMachines", "name": "Standard_D4s_v5" });
    });
    let service = cloud.service();
    let mut in_a_set = full_spec();
    in_a_set["zone"] = Value::Null;
    in_a_set["spotVMOptions"] = Value::Null;
    for spec in [full_spec(), in_a_set] {
        let request = request(spec);
        let _ = provider(&service).create(&request).await;
        provider(&service).delete(&request).await.unwrap();
    }
    let puts = service.sent().into_iter().filter(|it| it.method == "PUT");
    let sent = members_by_type(puts.map(|it| (it.path.clone(), it.json())));
    assert_eq!(
        sent.keys().map(String::as_str).collect::<Vec<_>>(),
        ["availabilitySets", "networkInterfaces", "publicIPAddresses", "virtualMachines"]
    );
    for (kind, sent) in &sent {
        let known = &known[kind];
        assert_eq!(sent.difference(known).collect::<Vec<_>>(), [""; 0], "{kind}: unknown");
        assert_eq!(known.difference(sent).collect::<Vec<_>>(), [""; 0], "{kind}: missing");
    }
}
