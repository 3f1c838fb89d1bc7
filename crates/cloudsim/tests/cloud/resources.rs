//! Put, get, list, delete; sizes, usages, providers, features.

use cloud::{
    Availability, CloudError, Infrastructure as _, LoadBalancerFrontend, Properties, ResourceId,
    ResourceState, SecurityRule,
};
use cloudsim::settings::Setting;

use crate::environment::{
    Environment, LOCATION, SUBSCRIPTION, group, is_done, machine, network_id, request, subnet,
};

fn in_net(kind: &str, name: &str) -> ResourceId {
    group("net").sibling("Microsoft.Network", kind, name)
}

#[tokio::test]
async fn what_a_cluster_needs_is_made_seen_listed_and_removed() {
    let environment = Environment::new().await;
    let [master, worker] = environment.network().await;
    let made = environment.get(&network_id()).await.unwrap();
    assert!(is_done(&made), "{made:?}");

    let public = in_net("publicIPAddresses", "api");
    let address = environment.put(public.clone(), Properties::PublicIp { address: None }).await;
    let Properties::PublicIp { address: Some(address) } = address.properties else {
        panic!("no address: {address:?}")
    };

    let one = group("net").sibling("Microsoft.Compute", "virtualMachines", "one");
    let two = group("net").sibling("Microsoft.Compute", "virtualMachines", "two");
    environment.put(one.clone(), machine(&worker)).await;
    environment.put(two.clone(), machine(&worker)).await;
    let addresses: Vec<String> = [&one, &two]
        .map(|id| environment.get(id))
        .into_iter()
        .collect::<futures_util::future::JoinAll<_>>()
        .await
        .into_iter()
        .map(|it| match it.unwrap().properties {
            Properties::Machine { address: Some(address), .. } => address,
            other => panic!("no address: {other:?}"),
        })
        .collect();
    assert_eq!(addresses, ["10.0.2.4", "10.0.2.5"]);

    let balancer = in_net("loadBalancers", "lb");
    let frontend =
        |name: &str, public_ip: Option<&ResourceId>, subnet: Option<&ResourceId>| LoadBalancerFrontend {
            name: name.to_owned(),
            public_ip: public_ip.cloned(),
            subnet: subnet.cloned(),
            address: None,
            ports: vec![6443],
        };
    let properties = Properties::LoadBalancer {
        frontends: vec![frontend("public", Some(&public), None)],
        backends: Vec::new(),
        outbound: vec![public.clone()],
    };
    environment.put(balancer.clone(), properties.clone()).await;
    let found = environment.get(&balancer).await.unwrap();
    assert_eq!((found.properties, &found.state), (properties, &ResourceState::Succeeded));
    assert!(address.parse::<std::net::Ipv4Addr>().is_ok(), "{address}");

    let internal = in_net("loadBalancers", "lb-internal");
    let properties = Properties::LoadBalancer {
        frontends: vec![frontend("internal", None, Some(&master))],
        backends: Vec::new(),
        outbound: Vec::new(),
    };
    environment.put(internal.clone(), properties).await;
    match environment.get(&internal).await.unwrap().properties {
        Properties::LoadBalancer { frontends, .. } => {
            assert_eq!(frontends[0].address.as_deref(), Some("10.0.0.4"));
        }
        other => panic!("no load balancer: {other:?}"),
    }
    environment.cloud.azure().delete(&two).await.unwrap();

    let zone = in_net("dnsZones", "example.test");
    environment.put(zone.clone(), Properties::DnsZone {}).await;
    let record = zone.child("A", "api.one");
    environment
        .put(record.clone(), Properties::DnsRecord { ttl: 300, addresses: vec!["10.0.0.4".to_owned()] })
        .await;
    let storage = group("net").sibling("Microsoft.Storage", "storageAccounts", "cluster1");
    let containers = vec!["ignition".to_owned()];
    environment
        .put(
            storage.clone(),
            Properties::StorageAccount { containers, allowed_subnets: vec![worker.clone()] },
        )
        .await;
    let table = in_net("routeTables", "routes");
    environment
        .put(
            table,
            Properties::RouteTable { routes: [("0.0.0.0/0".to_owned(), "10.0.0.4".to_owned())].into() },
        )
        .await;

    let kinds: Vec<cloud::ResourceKind> = environment
        .cloud
        .azure()
        .list(&group("net"))
        .await
        .unwrap()
        .into_iter()
        .map(|it| it.properties.kind())
        .collect();
    assert_eq!(kinds.len(), 13, "{kinds:?}");
    assert_eq!(environment.cloud.azure().list(&group("nowhere")).await.unwrap(), []);

    environment.cloud.azure().delete(&group("net")).await.unwrap();
    assert_eq!(environment.cloud.azure().list(&group("net")).await.unwrap(), []);
    assert_eq!(environment.get(&record).await, None);
    // What is gone has been removed.
    environment.cloud.azure().delete(&storage).await.unwrap();
}

#[tokio::test]
async fn what_is_in_use_stays_until_it_is_not() {
    let environment = Environment::new().await;
    let [master, worker] = environment.network().await;
    let managed = group("managed");
    environment.put(managed.clone(), Properties::ResourceGroup { managed_by: Some("one".to_owned()) }).await;
    let guard = managed.sibling("Microsoft.Network", "networkSecurityGroups", "nsg");
    let rule = SecurityRule {
        name: "api".to_owned(),
        priority: 100,
        allow: true,
        source: "*".to_owned(),
        port: 6443,
    };
    environment.put(guard.clone(), Properties::SecurityGroup { rules: vec![rule] }).await;
    let guarded = |guard: Option<ResourceId>| match subnet("10.0.0.0/23") {
        Properties::Subnet {
            address_prefix,
            route_table,
            nat_gateway,
            service_endpoints,
            private_link_policies,
            ..
        } => Properties::Subnet {
            address_prefix,
            security_group: guard,
            route_table,
            nat_gateway,
            service_endpoints,
            private_link_policies,
        },
        other => other,
    };
    environment.put(master.clone(), guarded(Some(guard.clone()))).await;
    let in_use = |done: Result<(), CloudError>| match done {
        Err(CloudError::InUse { what, by }) => (what, by),
        other => panic!("it is not in use: {other:?}"),
    };
    assert_eq!(
        in_use(environment.cloud.azure().delete(&guard).await),
        (guard.to_string(), master.to_string())
    );
    environment.put(master.clone(), guarded(None)).await;

    let one = managed.sibling("Microsoft.Compute", "virtualMachines", "one");
    environment.put(one.clone(), machine(&worker)).await;
    let interface = managed.sibling("Microsoft.Network", "networkInterfaces", "one-nic");
    assert_eq!(
        in_use(environment.cloud.azure().delete(&worker).await),
        (worker.to_string(), interface.to_string())
    );
    assert_eq!(
        in_use(environment.cloud.azure().delete(&network_id()).await),
        (network_id().to_string(), interface.to_string())
    );
    environment.cloud.azure().delete(&managed).await.unwrap();
    assert_eq!(environment.get(&one).await, None);
    environment.cloud.azure().delete(&network_id()).await.unwrap();
    assert_eq!(environment.get(&master).await, None);
}

#[tokio::test]
async fn link_ids_are_used_again_after_a_delete() {
    let environment = Environment::new().await;
    let [master, worker] = environment.network().await;
    let balancer = in_net("loadBalancers", "lb");
    let frontend = LoadBalancerFrontend {
        name: "internal".to_owned(),
        public_ip: None,
        subnet: Some(master.clone()),
        address: None,
        ports: vec![6443],
    };
    let properties =
        Properties::LoadBalancer { frontends: vec![frontend], backends: Vec::new(), outbound: Vec::new() };
    environment.put(balancer.clone(), properties).await;
    environment
        .put(
            master.clone(),
            match subnet("10.0.0.0/23") {
                Properties::Subnet { address_prefix, .. } => Properties::Subnet {
                    address_prefix,
                    security_group: None,
                    route_table: None,
                    nat_gateway: None,
                    service_endpoints: Vec::new(),
                    private_link_policies: false,
                },
                other => other,
            },
        )
        .await;
    let service = in_net("privateLinkServices", "link");
    let properties = Properties::PrivateLinkService {
        frontends: vec![balancer.child("frontendIPConfigurations", "internal").to_string()],
        subnet: master,
        subscriptions: vec![SUBSCRIPTION.to_owned()],
        alias: None,
        connections: Vec::new(),
    };
    environment.put(service.clone(), properties).await;
    let link = async |name: &str| {
        let properties = Properties::PrivateEndpoint {
            subnet: worker.clone(),
            target: service.clone(),
            address: None,
            link_id: None,
        };
        let id = in_net("privateEndpoints", name);
        environment.put(id.clone(), properties).await;
        match environment.get(&id).await.unwrap().properties {
            Properties::PrivateEndpoint { link_id: Some(link), address: Some(_), .. } => link,
            other => panic!("not filled in: {other:?}"),
        }
    };
    let (one, two) = (link("one").await, link("two").await);
    assert_ne!(one, two);
    // What an endpoint leads to stays.
    assert!(matches!(environment.cloud.azure().delete(&balancer).await, Err(CloudError::InUse { .. })));
    environment.cloud.azure().delete(&in_net("privateEndpoints", "one")).await.unwrap();
    assert_eq!(link("three").await, one);
    assert_eq!(link("two").await, two, "a repeated put keeps what was filled in");
}

#[tokio::test]
async fn quotas_count_what_there_is_and_refuse_what_is_too_much() {
    let environment = Environment::new().await;
    let [_, worker] = environment.network().await;
    let used = async |quota: &str| {
        let usages = environment.cloud.azure().usages(SUBSCRIPTION, LOCATION).await.unwrap();
        usages.into_iter().find(|it| it.quota == quota).unwrap().used
    };
    let vm = |name: &str| group("net").sibling("Microsoft.Compute", "virtualMachines", name);
    environment.put(vm("one"), machine(&worker)).await;
    assert_eq!(
        (used("cores").await, used("standardDSv5Family").await, used("virtualMachines").await),
        (4, 4, 1)
    );
    let quota = |limit| Setting::Quota {
        subscription: SUBSCRIPTION.to_owned(),
        location: LOCATION.to_owned(),
        quota: "cores".to_owned(),
        limit,
    };
    environment.cloud.arrange(quota(6)).await.unwrap();
    match environment.try_put(vm("two"), machine(&worker)).await {
        Err(CloudError::Quota { quota, limit, used, wanted }) => {
            assert_eq!((quota.as_str(), limit, used, wanted), ("cores", 6, 4, 4));
        }
        other => panic!("expected a quota: {other:?}"),
    }
    // What is there may be said again.
    environment.put(vm("one"), machine(&worker)).await;
    environment.cloud.arrange(quota(8)).await.unwrap();
    environment.put(vm("two"), machine(&worker)).await;
    environment.cloud.azure().delete(&vm("one")).await.unwrap();
    assert_eq!(used("cores").await, 4);
}

#[tokio::test]
async fn a_subscription_is_generous_until_it_is_arranged_otherwise() {
    let environment = Environment::new().await;
    let subscription = || SUBSCRIPTION.to_owned();
    let size = async || {
        let sizes = environment.cloud.azure().sizes(SUBSCRIPTION, LOCATION).await.unwrap();
        sizes.into_iter().find(|it| it.name == "Standard_D8s_v5").unwrap()
    };
    assert_eq!((size().await.cores, size().await.availability), (8, Availability::Available));
    let restrict = |reason: Option<&str>| Setting::Restrict {
        subscription: subscription(),
        location: LOCATION.to_owned(),
        size: "standard_d8s_v5".to_owned(),
        reason: reason.map(str::to_owned),
    };
    environment.cloud.arrange(restrict(Some("NotAvailableForSubscription"))).await.unwrap();
    assert!(
        matches!(size().await.availability, Availability::Restricted(it) if it.reason == "NotAvailableForSubscription")
    );
    environment.cloud.arrange(restrict(None)).await.unwrap();
    assert_eq!(size().await.availability, Availability::Available);

    assert!(environment.cloud.azure().providers(SUBSCRIPTION).await.unwrap().iter().all(|it| it.registered));
    let namespace = "Microsoft.Compute".to_owned();
    let setting = Setting::Provider { subscription: subscription(), namespace, registered: false };
    environment.cloud.arrange(setting).await.unwrap();
    let providers = environment.cloud.azure().providers(SUBSCRIPTION).await.unwrap();
    let missing: Vec<&str> =
        providers.iter().filter(|it| !it.registered).map(|it| it.namespace.as_str()).collect();
    assert_eq!(missing, ["Microsoft.Compute"]);

    let feature = "Microsoft.Compute/EncryptionAtHost";
    assert_eq!(environment.cloud.azure().feature(SUBSCRIPTION, feature).await.unwrap(), Some(true));
    assert_eq!(
        environment.cloud.azure().feature(SUBSCRIPTION, "Microsoft.Compute/Nothing").await.unwrap(),
        None
    );
    for registered in [Some(false), None] {
        let feature = feature.to_owned();
        let setting = Setting::Feature { subscription: subscription(), feature: feature.clone(), registered };
        environment.cloud.arrange(setting).await.unwrap();
        assert_eq!(environment.cloud.azure().feature(SUBSCRIPTION, &feature).await.unwrap(), registered);
    }
}

#[tokio::test]
async fn what_is_locked_is_neither_changed_nor_removed() {
    let environment = Environment::new().await;
    environment.network().await;
    environment.cloud.arrange(Setting::Lock { id: group("net"), locked: true }).await.unwrap();
    assert!(matches!(environment.cloud.azure().delete(&group("net")).await, Err(CloudError::Locked { .. })));
    let table = in_net("routeTables", "routes");
    let refused = environment.try_put(table, Properties::RouteTable { routes: [].into() }).await;
    assert!(matches!(refused, Err(CloudError::Locked { .. })), "{refused:?}");
    environment.cloud.arrange(Setting::Lock { id: group("net"), locked: false }).await.unwrap();
    environment.cloud.azure().delete(&group("net")).await.unwrap();
}

#[tokio::test]
async fn states_follow_the_clock() {
    use api::clock::ManualClock;
    use jiff::{SignedDuration, Timestamp};

    let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
    let environment =
        Environment::with(cloudsim::Options { clock: clock.clone(), pace: 1.0, ..Default::default() }).await;
    environment.put(group("one"), Properties::ResourceGroup { managed_by: None }).await;
    let table = group("one").sibling("Microsoft.Network", "routeTables", "routes");
    let properties = || Properties::RouteTable { routes: [].into() };
    assert_eq!(environment.put(table.clone(), properties()).await.state, ResourceState::Creating);
    clock.advance(SignedDuration::from_secs(10));
    assert_eq!(environment.get(&table).await.unwrap().state, ResourceState::Succeeded);
    let mut tagged = request(table.clone(), properties());
    tagged.tags.insert("a".to_owned(), "b".to_owned());
    assert_eq!(environment.cloud.azure().put(tagged).await.unwrap().state, ResourceState::Updating);
    clock.advance(SignedDuration::from_secs(10));
    environment.cloud.azure().delete(&table).await.unwrap();
    assert_eq!(environment.get(&table).await.unwrap().state, ResourceState::Deleting);
    // A resource that is being deleted cannot be created again before it is gone.
    assert_eq!(environment.put(table.clone(), properties()).await.state, ResourceState::Deleting);
    clock.advance(SignedDuration::from_secs(10));
    assert_eq!(environment.get(&table).await, None);
}
