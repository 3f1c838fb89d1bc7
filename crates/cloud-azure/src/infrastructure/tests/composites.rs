//! Tests of resources that several calls make up.

use super::operations::OPERATION;
use super::*;

#[tokio::test]
async fn a_machine_is_made_after_its_interface() {
    let machine = request(ResourceKind::Machine);
    let interface = machine.id.sibling("Microsoft.Network", "networkInterfaces", "master-0-nic");
    let made = |state: &str| {
        json!({"id": interface, "properties": {"provisioningState": state, "ipConfigurations":
        [{"name": "pipConfig", "properties": {"subnet": {"id": id(ResourceKind::Subnet)}, "privateIPAddress": "10.0.0.7"}}]}})
    };
    let service = ScriptedService::new([
        missing(),
        missing(),
        Reply::json(201, made("Updating")),
        missing(),
        Reply::json(201, shown(&machine, |body| body["properties"]["provisioningState"] = json!("Creating"))),
        ok(made("Succeeded")),
    ]);
    let written = service.client().put(machine.clone()).await.unwrap();
    assert_eq!(written.state, ResourceState::Creating);
    assert!(
        matches!(written.properties, Properties::Machine { address: Some(address), .. } if address == "10.0.0.7")
    );
    let puts: Vec<String> = service.lines().into_iter().filter(|it| it.starts_with("PUT")).collect();
    assert_eq!(puts, [format!("PUT {interface}"), format!("PUT {}", machine.id)]);
    // An interface that has failed is put again, and the machine waits for it.
    let service = ScriptedService::new([missing(), ok(made("Failed")), Reply::json(200, made("Failed"))]);
    let written = service.client().put(machine.clone()).await.unwrap();
    assert!(matches!(written.state, ResourceState::Failed { .. }));
    assert_eq!(service.lines()[2], format!("PUT {interface}"));
    let service = ScriptedService::new([missing(), Reply::error(400, "InvalidResourceReference")]);
    assert!(service.client().put(machine).await.is_err());
}

#[tokio::test]
async fn power_follows_the_request_and_is_asked_for_once() {
    let machine = request(ResourceKind::Machine);
    let with_power = |power: &str| {
        shown(&machine, |body| {
            body["properties"]["instanceView"] = json!({"statuses": [{"code": "ProvisioningState/succeeded"},
                {"code": format!("PowerState/{power}")}]});
        })
    };
    let check = async |power: &str, running: bool, expect: Option<&str>, state: ResourceState| {
        let body = with_power(power);
        let service = ScriptedService::by(move |sent| {
            match (sent.method.as_str(), sent.path.contains("/networkInterfaces/")) {
                ("GET", false) => ok(body.clone()),
                ("GET", true) => missing(),
                _ => Reply::json(202, Value::Null),
            }
        });
        let Properties::Machine { size, subnet, zone, disk_size_gb, .. } = machine.properties.clone() else {
            panic!()
        };
        let properties = Properties::Machine { size, subnet, zone, disk_size_gb, address: None, running };
        let client = service.client();
        let written = client.put(ResourceRequest { properties, ..machine.clone() }).await.unwrap();
        let posts: Vec<String> = service.lines().into_iter().filter(|it| !it.starts_with("GET")).collect();
        assert_eq!(
            posts,
            expect.map(|it| format!("POST {}/{it}", machine.id)).into_iter().collect::<Vec<_>>()
        );
        assert_eq!(written.state, state, "{power} {running}");
        let asked = service.sent().len();
        if running {
            client.start_machine(&machine.id).await
        } else {
            client.stop_machine(&machine.id).await
        }
        .unwrap();
        let again = service.sent()[asked..].iter().filter(|it| it.method == "POST").count();
        assert_eq!(again, usize::from(expect.is_some() || (power == "deallocating" && running)));
    };
    check("running", true, None, ResourceState::Succeeded).await;
    check("deallocated", true, Some("start"), ResourceState::Updating).await;
    check("running", false, Some("deallocate"), ResourceState::Updating).await;
    check("deallocated", false, None, ResourceState::Succeeded).await;
    check("starting", true, None, ResourceState::Updating).await;
    // A change of power that runs is waited for.
    check("deallocating", true, None, ResourceState::Updating).await;
    // A call that may have been carried out is not repeated; the state tells.
    let body = with_power("deallocated");
    let service = ScriptedService::new([ok(body), Reply::Broken]);
    let error = service.client().start_machine(&machine.id).await.unwrap_err();
    assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn an_account_has_its_containers_once_it_is_ready() {
    let account = request(ResourceKind::StorageAccount);
    let containers = |names: &[&str]| {
        ok(json!({"value": names.iter().map(|it| json!({ "name": it })).collect::<Vec<_>>()}))
    };
    let service = ScriptedService::new([
        missing(),
        Reply::json(202, Value::Null).with("location", OPERATION),
        ok(shown(&account, |body| body["properties"]["provisioningState"] = json!("ResolvingDNS"))),
        ok(shown(&account, |_| ())),
        containers(&["other"]),
        Reply::json(201, json!({})),
        ok(shown(&account, |_| ())),
        containers(&["other", "aro"]),
    ]);
    let client = service.client();
    assert_eq!(client.put(account.clone()).await.unwrap().state, ResourceState::Creating);
    assert_eq!(client.put(account.clone()).await.unwrap().state, ResourceState::Creating);
    for _ in 0..2 {
        let ready = client.put(account.clone()).await.unwrap();
        assert_eq!(ready.state, ResourceState::Succeeded);
        assert!(
            matches!(ready.properties, Properties::StorageAccount { containers, .. } if containers == ["other", "aro"])
        );
    }
    let puts: Vec<String> = service.lines().into_iter().filter(|it| it.starts_with("PUT")).collect();
    assert_eq!(
        puts,
        [format!("PUT {}", account.id), format!("PUT {}/blobServices/default/containers/aro", account.id)]
    );
}

#[tokio::test]
async fn credentials_of_the_customer_stay_in_an_identity() {
    let identity = request(ResourceKind::Identity);
    let credential = |name: &str, issuer: &str, subject: &str, audience: &str| json!({"name": name, "properties": {"issuer": issuer, "subject": subject, "audiences": [audience]}});
    let listed = json!({"value": [
        credential("github", "https://token.actions.example", "repo:x", "api://AzureADTokenExchange"),
        credential("old", "https://issuer", "system:serviceaccount:a:gone", "openshift"),
    ]});
    let service = ScriptedService::new([
        ok(shown(&identity, |_| ())),
        ok(listed),
        missing(),
        Reply::json(201, json!({})),
    ]);
    let written = service.client().put(identity.clone()).await.unwrap();
    let lines = service.lines();
    assert_eq!(lines[2], format!("DELETE {}/federatedIdentityCredentials/old", identity.id));
    assert!(lines[3].starts_with(&format!("PUT {}/federatedIdentityCredentials/fic-", identity.id)));
    let sent = service.sent()[3].json();
    assert_eq!(
        sent["properties"],
        json!({"issuer": "https://issuer", "subject": "system:serviceaccount:a:b", "audiences": ["openshift"]})
    );
    let Properties::Identity { federated, .. } = written.properties else { panic!() };
    assert_eq!(
        federated.keys().collect::<Vec<_>>(),
        ["https://issuer|system:serviceaccount:a:b", "https://token.actions.example|repo:x"]
    );
}

#[tokio::test]
async fn a_pending_connection_is_approved_and_no_other() {
    let (endpoint, link) =
        (request(ResourceKind::PrivateEndpoint), request(ResourceKind::PrivateLinkService));
    let with_connection = |status: &str| {
        shown(&link, |body| {
            body["properties"]["privateEndpointConnections"] = json!([
                {"name": "theirs", "properties": {"privateEndpoint": {"id": "/x"}, "privateLinkServiceConnectionState": {"status": "Pending"}}},
                {"name": "ours", "etag": "e", "properties": {"privateEndpoint": {"id": endpoint.id.as_str().to_uppercase()},
                    "linkIdentifier": "536870912", "privateLinkServiceConnectionState": {"status": status}}}]);
        })
    };
    for (status, calls) in [("Pending", 4), ("Approved", 3), ("Rejected", 3)] {
        let body = with_connection(status);
        let own = shown(&endpoint, |_| ());
        let service = ScriptedService::by(move |sent| {
            match (sent.method.as_str(), sent.path.contains("/privateEndpoints/")) {
                ("GET", true) => ok(own.clone()),
                ("GET", false) => ok(body.clone()),
                _ => ok(json!({})),
            }
        });
        let written = service.client().put(endpoint.clone()).await.unwrap();
        assert!(
            matches!(written.properties, Properties::PrivateEndpoint { link_id: Some(id), .. } if id == "536870912")
        );
        assert_eq!(service.sent().len(), calls, "{status}");
        if status == "Pending" {
            let approval = &service.sent()[2];
            assert_eq!(approval.line(), format!("PUT {}/privateEndpointConnections/ours", link.id));
            assert_eq!(
                approval.json()["properties"]["privateLinkServiceConnectionState"]["status"],
                "Approved"
            );
        }
    }
}
