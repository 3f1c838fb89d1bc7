//! Memberships in load balancers, classic and network, by instance and by address.

use aws_sdk_elasticloadbalancing::types::Listener;
use aws_sdk_elasticloadbalancingv2::types::{
    LoadBalancerTypeEnum, ProtocolEnum, TargetDescription, TargetTypeEnum,
};
use cloud::{Instance, InstanceError, InstanceProvider as _};
use serde_json::{Value, json};

use crate::environment::{Environment, deleted, moto, recorded};
use crate::proxy::Fault;

/// Creates a classic load balancer, and a network one with a group of instances and one of addresses.
pub(crate) async fn create(environment: &Environment) {
    let listener = Listener::builder().protocol("TCP").load_balancer_port(443).instance_port(443).build();
    let classic =
        environment.classic.create_load_balancer().load_balancer_name(format!("{}-ext", environment.cluster));
    let zones = classic.availability_zones(format!("{}a", environment.region));
    zones.listeners(listener.unwrap()).send().await.unwrap();
    let name = format!("{}-int", environment.cluster);
    let network = environment.network.create_load_balancer().name(&name).subnets(&environment.subnet);
    let network = network.r#type(LoadBalancerTypeEnum::Network).send().await.unwrap();
    let arn = network.load_balancers()[0].load_balancer_arn().unwrap();
    for (kind, port) in [(TargetTypeEnum::Instance, 6443), (TargetTypeEnum::Ip, 22623)] {
        let group = environment
            .network
            .create_target_group()
            .name(format!("{}-{}", environment.cluster, kind.as_str()))
            .protocol(ProtocolEnum::Tcp)
            .port(port)
            .vpc_id(&environment.vpc)
            .target_type(kind)
            .send()
            .await
            .unwrap();
        let group = group.target_groups()[0].target_group_arn().unwrap();
        let action = aws_sdk_elasticloadbalancingv2::types::Action::builder()
            .r#type(aws_sdk_elasticloadbalancingv2::types::ActionTypeEnum::Forward)
            .target_group_arn(group)
            .build();
        let listener = environment.network.create_listener().load_balancer_arn(arn).port(port);
        listener.protocol(ProtocolEnum::Tcp).default_actions(action).send().await.unwrap();
    }
}

/// The load balancers as a providerSpec names them.
pub(crate) fn spec(environment: &Environment) -> Value {
    let cluster = &environment.cluster;
    json!([
        {"name": format!("{cluster}-ext"), "type": "classic"},
        {"name": format!("{cluster}-int"), "type": "network"},
    ])
}

/// The ids of all members, in each place.
async fn places(environment: &Environment) -> Vec<Vec<String>> {
    let name = format!("{}-ext", environment.cluster);
    let classic =
        environment.classic.describe_load_balancers().load_balancer_names(name).send().await.unwrap();
    let classic = classic.load_balancer_descriptions()[0].instances();
    let mut all = vec![classic.iter().filter_map(|it| it.instance_id().map(str::to_owned)).collect()];
    for arn in groups(environment).await {
        let health = environment.network.describe_target_health().target_group_arn(arn).send().await.unwrap();
        let ids =
            health.target_health_descriptions().iter().filter_map(|it| it.target()?.id().map(str::to_owned));
        all.push(ids.collect());
    }
    all
}

async fn groups(environment: &Environment) -> Vec<String> {
    let cluster = &environment.cluster;
    let names = ["instance", "ip"].map(|it| format!("{cluster}-{it}"));
    let groups =
        environment.network.describe_target_groups().set_names(Some(names.into())).send().await.unwrap();
    groups.target_groups().iter().map(|it| it.target_group_arn().unwrap().to_owned()).collect()
}

/// In how many places an instance is a member.
pub(crate) async fn members(environment: &Environment, instance: &Instance) -> usize {
    let id = instance.provider_status["instanceId"].as_str().unwrap();
    let is_member = |it: &String| it == id || instance.addresses.iter().any(|own| own.address == *it);
    places(environment).await.iter().filter(|it| it.iter().any(is_member)).count()
}

/// How many members there are in all places.
pub(crate) async fn all_members(environment: &Environment) -> usize {
    places(environment).await.iter().map(Vec::len).sum()
}

/// How many targets there are in all groups. moto's classic load balancers keep what is terminated, which Amazon's do not.
pub(crate) async fn all_targets(environment: &Environment) -> usize {
    places(environment).await.iter().skip(1).map(Vec::len).sum()
}

#[tokio::test]
async fn an_instance_joins_its_load_balancers_and_leaves_them_before_it_ends() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "joins").await;
    create(&environment).await;
    let mut request = environment.machine("joins-a");
    request.provider_spec["loadBalancers"] = spec(&environment);
    let provider = environment.provider();
    let instance = provider.create(&request).await.unwrap();
    assert_eq!(members(&environment, &instance).await, 3);
    let request = recorded(&request, &instance);

    // A refresh restores a membership that somebody has ended, and otherwise writes nothing.
    environment.proxy.take_calls();
    provider.update(&request, &instance).await.unwrap();
    assert!(environment.proxy.take_calls().iter().all(|it| it.starts_with("Describe")));
    let group = groups(&environment).await.swap_remove(0);
    let target =
        TargetDescription::builder().id(instance.provider_status["instanceId"].as_str().unwrap()).build();
    environment.network.deregister_targets().target_group_arn(group).targets(target).send().await.unwrap();
    assert_eq!(members(&environment, &instance).await, 2);
    provider.update(&request, &instance).await.unwrap();
    assert_eq!(members(&environment, &instance).await, 3);

    environment.proxy.take_calls();
    deleted(&provider, &request).await;
    assert_eq!(all_targets(&environment).await, 0);
    let calls = environment.proxy.take_calls();
    let at = |action: &str| calls.iter().rposition(|it| it == action).unwrap();
    assert!(at("DeregisterTargets") < at("TerminateInstances"), "{calls:?}");
}

#[tokio::test]
async fn nothing_is_launched_for_a_load_balancer_that_does_not_exist() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "nolb").await;
    for kind in ["classic", "network"] {
        let mut request = environment.machine("nolb-a");
        request.provider_spec["loadBalancers"] = json!([{"name": "missing", "type": kind}]);
        let error = environment.provider().create(&request).await.unwrap_err();
        let expect = format!(
            "providerSpec.value.loadBalancers[0].name is 'missing'; there is no {kind} load balancer of this name"
        );
        assert_eq!(error, InstanceError::Create(expect));
        assert_eq!(environment.present("nolb-a").await.len(), 0);
        // The deletion of a Machine does not need it.
        assert_eq!(environment.provider().delete(&request).await, Ok(()));
    }
}

#[tokio::test]
async fn a_registration_that_aws_throttles_is_repeated() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "slow").await;
    create(&environment).await;
    let mut request = environment.machine("slow-a");
    request.provider_spec["loadBalancers"] = spec(&environment);
    let provider = environment.provider();
    environment.proxy.fail_next("RegisterTargets", Fault::Error(400, "Throttling"));
    let error = provider.create(&request).await.unwrap_err();
    assert!(matches!(error, InstanceError::RequeueAfter(..)), "{error:?}");
    let found = provider.find(&request).await.unwrap().unwrap();
    let instance = provider.update(&request, &found).await.unwrap();
    assert_eq!(members(&environment, &instance).await, 3);
    // A load balancer that is gone does not keep the instance.
    environment.proxy.fail_next("DescribeLoadBalancers", Fault::Error(400, "LoadBalancerNotFound"));
    let request = recorded(&request, &instance);
    assert_eq!(provider.delete(&request).await, Ok(()));
    assert_eq!(environment.present("slow-a").await.len(), 0);
}
