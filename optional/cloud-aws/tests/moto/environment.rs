//! A region of moto with the network of a cluster, and the provider for its Machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::clock::ManualClock;
use api::secret::Secret;
use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_ec2::types::{Filter, Instance as Ec2Instance, ResourceType, Tag, TagSpecification};
use cloud::{Instance, InstanceError, InstanceProvider as _, InstanceRequest};
use cloud_aws::{AwsInstances, AwsSettings, Endpoints};
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::moto::MotoServer;

use crate::proxy::Proxy;

pub(crate) const REGION: &str = "eu-west-1";
/// What must appear nowhere but in requests.
pub(crate) const SECRET_KEY: &str = "hunter2-secret-access-key";
pub(crate) const USER_DATA: &str = "{\"ignition\":{\"secret\":\"hunter2-user-data\"}}";

/// The server, or none, with a message, if this machine has none.
pub(crate) fn moto() -> Option<&'static MotoServer> {
    or_skip(testkit::moto::shared())
}

/// A server that no other test keeps busy.
pub(crate) fn own_moto() -> Option<MotoServer> {
    or_skip(testkit::moto::start())
}

fn or_skip<T>(server: Option<T>) -> Option<T> {
    if server.is_none() {
        testkit::prerequisites::skip(testkit::prerequisites::MOTO, testkit::moto::MISSING);
    }
    server
}

/// The network of a cluster, clients that see moto directly, and a proxy for the provider.
pub(crate) struct Environment {
    pub(crate) cluster: String,
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) classic: aws_sdk_elasticloadbalancing::Client,
    pub(crate) network: aws_sdk_elasticloadbalancingv2::Client,
    pub(crate) vpc: String,
    pub(crate) subnet: String,
    pub(crate) group: String,
    pub(crate) region: &'static str,
    image: String,
    pub(crate) proxy: Proxy,
    pub(crate) clock: Arc<ManualClock>,
    upstream: String,
}

fn tagged(kind: ResourceType, name: &str) -> TagSpecification {
    TagSpecification::builder()
        .resource_type(kind)
        .tags(Tag::builder().key("Name").value(name).build())
        .build()
}

impl Environment {
    /// A cluster of its own; its name is unique among those of the server.
    pub(crate) async fn new(server: &MotoServer, cluster: &str) -> Environment {
        Environment::in_region(server, cluster, REGION).await
    }

    /// A cluster in a region. What there is in others does not make moto slower.
    pub(crate) async fn in_region(server: &MotoServer, cluster: &str, region: &'static str) -> Environment {
        let transport = cloud_aws::Transport::new(None).unwrap();
        let config = aws_config::SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region))
            .credentials_provider(aws_credential_types::provider::SharedCredentialsProvider::new(
                Credentials::new("test", "test", None, None, "test"),
            ))
            .http_client(transport)
            .endpoint_url(server.url())
            .build();
        let ec2 = aws_sdk_ec2::Client::new(&config);
        let vpc = ec2.create_vpc().cidr_block("10.0.0.0/16").send().await.unwrap();
        let vpc = vpc.vpc.unwrap().vpc_id.unwrap();
        let mut subnets = Vec::new();
        for (zone, range) in [("b", "10.0.16.0/20"), ("a", "10.0.0.0/20")] {
            let subnet = ec2
                .create_subnet()
                .vpc_id(&vpc)
                .cidr_block(range)
                .availability_zone(format!("{region}{zone}"))
                .tag_specifications(tagged(ResourceType::Subnet, &format!("{cluster}-private")))
                .send()
                .await
                .unwrap();
            subnets.push(subnet.subnet.unwrap().subnet_id.unwrap());
        }
        let group = ec2
            .create_security_group()
            .vpc_id(&vpc)
            .group_name(format!("{cluster}-worker-sg"))
            .description("workers")
            .tag_specifications(tagged(ResourceType::SecurityGroup, &format!("{cluster}-worker-sg")))
            .send()
            .await
            .unwrap();
        let image = ec2.register_image().name(format!("{cluster}-image")).root_device_name("/dev/xvda");
        let image = image.architecture("x86_64".into()).send().await.unwrap();
        Environment {
            region,
            image: image.image_id.unwrap(),
            cluster: cluster.to_owned(),
            classic: aws_sdk_elasticloadbalancing::Client::new(&config),
            network: aws_sdk_elasticloadbalancingv2::Client::new(&config),
            ec2,
            vpc,
            subnet: subnets.pop().unwrap(),
            group: group.group_id.unwrap(),
            proxy: Proxy::before(server.url()).await,
            clock: ManualClock::at("2026-03-01T12:00:00Z".parse().unwrap()),
            upstream: server.url().to_owned(),
        }
    }

    /// A further proxy before the same server, with counters of its own.
    pub(crate) async fn another_proxy(&self) -> Proxy {
        Proxy::before(&self.upstream).await
    }

    /// A process that has just started.
    pub(crate) fn provider(&self) -> AwsInstances {
        AwsInstances::new(settings(&self.proxy), self.clock.clone()).unwrap()
    }

    pub(crate) fn spec(&self) -> Value {
        let by_name = |name: String| json!({"filters": [{"name": "tag:Name", "values": [name]}]});
        json!({
            "kind": "AWSMachineProviderConfig", "ami": {"id": self.image}, "instanceType": "m5.large",
            "placement": {"region": self.region, "availabilityZone": format!("{}a", self.region)},
            "subnet": by_name(format!("{}-private", self.cluster)),
            "securityGroups": [by_name(format!("{}-worker-sg", self.cluster))],
            "userDataSecret": {"name": "worker-user-data"},
            "credentialsSecret": {"name": "aws-cloud-credentials"},
            "tags": [{"name": "team", "value": "ships"}],
            "blockDevices": [{"ebs": {"volumeSize": 120, "volumeType": "gp3"}}],
            "metadataServiceOptions": {"authentication": "Required"},
        })
    }

    /// A Machine of the cluster.
    pub(crate) fn machine(&self, name: &str) -> InstanceRequest {
        let bytes = |text: &str| Secret::new(text.as_bytes().to_vec());
        let credentials = [("aws_access_key_id", "AKIATEST"), ("aws_secret_access_key", SECRET_KEY)];
        InstanceRequest {
            namespace: "openshift-machine-api".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            cluster_id: self.cluster.clone(),
            labels: BTreeMap::new(),
            provider_spec: self.spec(),
            provider_id: None,
            provider_status: None,
            created: Timestamp::UNIX_EPOCH,
            deleted: None,
            user_data: Some(bytes(USER_DATA)),
            credentials: Some(credentials.map(|(key, value)| (key.to_owned(), bytes(value))).into()),
            tags: BTreeMap::new(),
        }
    }

    /// The instances with a Machine's name that are not terminated, as moto has them.
    pub(crate) async fn present(&self, name: &str) -> Vec<Ec2Instance> {
        let all =
            self.ec2.describe_instances().filters(Filter::builder().name("tag:Name").values(name).build());
        let found = all.send().await.unwrap();
        let all = found
            .reservations
            .unwrap_or_default()
            .into_iter()
            .flat_map(|it| it.instances.unwrap_or_default());
        all.filter(|it| it.state().unwrap().name().unwrap().as_str() != "terminated").collect()
    }

    /// The states of all volumes with a tag of a Machine's name.
    pub(crate) async fn volumes(&self, name: &str) -> usize {
        let all =
            self.ec2.describe_volumes().filters(Filter::builder().name("tag:Name").values(name).build());
        all.send().await.unwrap().volumes().len()
    }
}

/// The settings of a provider that sees AWS through a proxy.
pub(crate) fn settings(proxy: &Proxy) -> AwsSettings {
    let endpoints = Endpoints { ec2: Some(proxy.url.clone()), load_balancing: Some(proxy.url.clone()) };
    AwsSettings { endpoints, ..AwsSettings::default() }
}

/// The Machine after the controller has recorded what a creation reported.
pub(crate) fn recorded(request: &InstanceRequest, instance: &Instance) -> InstanceRequest {
    InstanceRequest {
        provider_id: Some(instance.provider_id.clone()),
        provider_status: Some(instance.provider_status.clone()),
        ..request.clone()
    }
}

/// Creates an instance as the machine controller does: it looks, and creates what is not there. Waits are not waited for.
pub(crate) async fn created(provider: &AwsInstances, request: &InstanceRequest) -> Instance {
    for _ in 0..30 {
        let found = match provider.find(request).await {
            Ok(Some(found)) => provider.update(request, &found).await,
            Ok(None) => provider.create(request).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => return found,
            Err(InstanceError::InvalidConfiguration(why)) => panic!("{why}"),
            Err(_) => {}
        }
    }
    panic!("{} was not created", request.name);
}

/// Deletes an instance as the machine controller does, until it is not found any more.
pub(crate) async fn deleted(provider: &AwsInstances, request: &InstanceRequest) {
    for _ in 0..30 {
        if provider.delete(request).await.is_ok() && provider.find(request).await == Ok(None) {
            return;
        }
    }
    panic!("{} was not deleted", request.name);
}
