//! What the cloud is asked before a cluster is accepted.

use std::sync::Arc;
use std::time::Duration;

use cloud::{Put, ResourceId, Shape};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{NEW, SUBSCRIPTION, at, body, with};
use crate::fixture::House;

/// Makes the network that the bodies of these tests name.
async fn furnish(cloud: &dyn cloud::Cloud) {
    let put = async |id: ResourceId, shape: Shape| {
        let wish = Put {
            id: id.clone(),
            location: "local".to_owned(),
            tags: Default::default(),
            shape,
            token: None,
        };
        cloud.put(wish).await.unwrap();
        id
    };
    let group = put(ResourceId::group(SUBSCRIPTION, "Net"), Shape::ResourceGroup { managed_by: None }).await;
    let network = group.sibling("Microsoft.Network", "virtualNetworks", "Vnet");
    put(network.clone(), Shape::VirtualNetwork { address_space: vec!["10.0.0.0/16".to_owned()] }).await;
    for (name, prefix) in [("master", "10.0.0.0/24"), ("worker", "10.0.1.0/24")] {
        let shape = Shape::Subnet {
            address_prefix: prefix.to_owned(),
            security_group: None,
            route_table: None,
            service_endpoints: Vec::new(),
            private_link_policies: true,
        };
        put(network.child("subnets", name), shape).await;
    }
}

#[tokio::test]
async fn sizes_quotas_providers_and_subnets_are_looked_at_before_a_cluster_is_accepted() {
    let service = cloudsim::Service::open(cloudsim::Options::default()).await.unwrap();
    let client = Arc::new(service.client().unwrap());
    let shutdown = CancellationToken::new();
    let ending = shutdown.clone();
    #[expect(clippy::disallowed_methods, reason = "the handle is joined at the end of the test")]
    let serving = tokio::spawn(async move { service.serve(ending).await.unwrap() });
    let house = House::with_cloud(client.clone()).await;
    house.register().await;

    let missing = house.put(&at("one", NEW), &body("one")).await;
    assert_eq!(
        missing.refusal(),
        (400, "InvalidLinkedVNet".to_owned(), "properties.masterProfile.subnetId".to_owned())
    );
    furnish(client.as_ref()).await;
    let unknown = with(body("one"), "/properties/workerProfiles/0/vmSize", json!("Standard_D8ls_v6"));
    let reply = house.put(&at("one", NEW), &unknown).await;
    assert_eq!(
        reply.refusal(),
        (400, "InvalidParameter".to_owned(), "properties.workerProfiles[0].VMSize".to_owned())
    );
    house.put(&at("one", NEW), &body("one")).await.expect(201);
    house.close().await;
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(20), serving).await.unwrap().unwrap();
}
