//! Checks in the cloud before a cluster is accepted.

use std::time::{Duration, Instant};

use cloud::{Identities as _, Infrastructure, Properties, ResourceId, ResourceRequest, RoleAssignment};
use cloudsim::settings::{Denial, PrincipalWithSecret, Rights, Setting};
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{NEW, SUBSCRIPTION, at, body, rid, with};
use crate::fixture::TestServer;

/// Creates the network that the bodies of these tests name.
async fn create_network(cloud: &dyn Infrastructure) {
    let put = async |id: ResourceId, properties: Properties| {
        let request = ResourceRequest {
            id: id.clone(),
            location: "local".to_owned(),
            tags: Default::default(),
            properties,
        };
        cloud.put(request).await.unwrap();
        id
    };
    let group =
        put(ResourceId::group(SUBSCRIPTION, "Net"), Properties::ResourceGroup { managed_by: None }).await;
    let network = group.sibling("Microsoft.Network", "virtualNetworks", "Vnet");
    put(network.clone(), Properties::VirtualNetwork { address_space: vec!["10.0.0.0/16".to_owned()] }).await;
    for (name, prefix) in [("master", "10.0.0.0/24"), ("worker", "10.0.1.0/24")] {
        let properties = Properties::Subnet {
            address_prefix: prefix.to_owned(),
            security_group: None,
            route_table: None,
            nat_gateway: None,
            service_endpoints: Vec::new(),
            private_link_policies: true,
        };
        put(network.child("subnets", name), properties).await;
    }
}

#[tokio::test]
async fn sizes_quotas_providers_subnets_and_permissions_are_checked_before_a_cluster_is_accepted() {
    let service = cloudsim::Service::open(cloudsim::Options::default()).await.unwrap();
    let client = service.client().unwrap();
    let shutdown = CancellationToken::new();
    let ending = shutdown.clone();
    #[expect(clippy::disallowed_methods, reason = "the handle is joined at the end of the test")]
    let serving = tokio::spawn(async move { service.serve(ending).await.unwrap() });
    let server = TestServer::with_cloud(&client.cloud()).await;
    server.register().await;

    let missing = server.put(&at("one", NEW), &body("one")).await;
    assert_eq!(
        missing.error(),
        (400, "InvalidLinkedVNet".to_owned(), "properties.masterProfile.subnetId".to_owned())
    );
    create_network(client.azure()).await;
    let unknown = with(body("one"), "/properties/workerProfiles/0/vmSize", json!("Standard_D8ls_v6"));
    let reply = server.put(&at("one", NEW), &unknown).await;
    assert_eq!(
        reply.error(),
        (400, "InvalidParameter".to_owned(), "properties.workerProfiles[0].VMSize".to_owned())
    );
    // An invalid credential and missing permissions on the network are reported at once.
    let stranger = server.put(&at("one", NEW), &body("one")).await;
    let profile = "properties.servicePrincipalProfile";
    assert_eq!(stranger.error(), (400, "InvalidServicePrincipalCredentials".to_owned(), profile.to_owned()));
    let network =
        ResourceId::group(SUBSCRIPTION, "Net").sibling("Microsoft.Network", "virtualNetworks", "Vnet");
    let as_principal = |principal: &PrincipalWithSecret| {
        let id = json!(principal.principal.client_id);
        let with_id = with(body("one"), "/properties/servicePrincipalProfile/clientId", id);
        with(with_id, "/properties/servicePrincipalProfile/clientSecret", json!(principal.secret.expose()))
    };
    let new = client.create_principal("new", Rights::ByRoles).await.unwrap();
    let reply = server.put(&at("one", NEW), &as_principal(&new)).await;
    let subnet = "properties.masterProfile.subnetId";
    assert_eq!(reply.error(), (400, "InvalidServicePrincipalPermissions".to_owned(), subnet.to_owned()));
    let role = RoleAssignment {
        name: "a".to_owned(),
        principal: new.principal.object_id.clone(),
        role: "Network Contributor".to_owned(),
        scope: network.clone(),
    };
    // The request waits for a permission that propagates meanwhile.
    client
        .inject(FaultRule::new(CloudFault::DelayedPropagation { millis: 1000 }).on("assignRole"))
        .await
        .unwrap();
    client.azure().assign_role(&role).await.unwrap();
    client.clear_faults().await.unwrap();
    let action = "Microsoft.Network/virtualNetworks/subnets/join/action".to_owned();
    let worker = network.child("subnets", "worker");
    let denial = Denial { who: "service".to_owned(), action, scope: worker.clone(), until: None };
    client.deny(denial).await.unwrap();
    let reply = server.put(&at("one", NEW), &as_principal(&new)).await;
    let target = "properties.workerProfiles['worker'].subnetId".to_owned();
    assert_eq!(reply.error(), (400, "InvalidResourceProviderPermissions".to_owned(), target));
    client.arrange(Setting::Allow { scope: worker }).await.unwrap();

    // A check whose query fails is left to the backend; the others are still made.
    let silent = FaultRule::new(CloudFault::Unavailable { when: FaultTiming::Before }).on("sizes");
    client.inject(silent).await.unwrap();
    let provider = |registered| Setting::Provider {
        subscription: SUBSCRIPTION.to_owned(),
        namespace: "Microsoft.Storage".to_owned(),
        registered,
    };
    client.arrange(provider(false)).await.unwrap();
    let reply = server.put(&at("one", NEW), &as_principal(&new)).await;
    assert_eq!(reply.error(), (400, "ResourceProviderNotRegistered".to_owned(), String::new()));
    client.arrange(provider(true)).await.unwrap();
    let elsewhere = json!(network.child("subnets", "elsewhere").to_string());
    let lost = with(as_principal(&new), "/properties/masterProfile/subnetId", elsewhere);
    let reply = server.put(&at("one", NEW), &lost).await;
    assert_eq!(reply.error(), (400, "InvalidLinkedSubnet".to_owned(), subnet.to_owned()));
    let quota = |limit| Setting::Quota {
        subscription: SUBSCRIPTION.to_owned(),
        location: "local".to_owned(),
        quota: "PublicIPAddresses".to_owned(),
        limit,
    };
    client.arrange(quota(6)).await.unwrap();
    let five = json!({"managedOutboundIps": {"count": 5}});
    let many = with(as_principal(&new), "/properties/networkProfile/loadBalancerProfile", five);
    let reply = server.put(&at("one", NEW), &many).await;
    assert_eq!(reply.error(), (400, "ResourceQuotaExceeded".to_owned(), String::new()));
    client.clear_faults().await.unwrap();

    // If the cloud does not respond, the request is accepted within ten seconds.
    client
        .inject(
            FaultRule::new(CloudFault::Delayed { millis: 60_000, when: FaultTiming::Before })
                .on("permissions"),
        )
        .await
        .unwrap();
    let begun = Instant::now();
    server.put(&at("one", NEW), &as_principal(&new)).await.expect(201);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    client.clear_faults().await.unwrap();

    // The subscription is deleted during the checks: nobody would remove a cluster that is created afterwards.
    client
        .inject(
            FaultRule::new(CloudFault::Delayed { millis: 3_000, when: FaultTiming::Before })
                .on("sizes")
                .times(1),
        )
        .await
        .unwrap();
    let (path, two) = (at("two", NEW), as_principal(&new));
    // The same error is returned for a request with If-None-Match.
    let headers = [("if-none-match", "*")];
    let mut late = Box::pin(server.send(Method::PUT, &path, &headers, Some(two.to_string().into())));
    assert!(tokio::time::timeout(Duration::from_secs(1), late.as_mut()).await.is_err());
    let subscription = format!("/subscriptions/{SUBSCRIPTION}?api-version=2.0");
    server.put(&subscription, &json!({"state": "Deleted"})).await.expect(200);
    assert_eq!(late.await.error(), (400, "InvalidSubscriptionState".to_owned(), String::new()));
    assert!(server.store.clusters().find(&rid("two")).await.unwrap().is_none());
    server.close().await;
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(20), serving).await.unwrap().unwrap();
}
