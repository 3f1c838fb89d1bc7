//! The life of an instance: creation, refresh, deletion.

use aws_sdk_ec2::types::{HttpTokensState, InstanceAttributeName, Tag};
use cloud::{AddressKind, InstanceProvider as _};
use serde_json::json;

use crate::environment::{Environment, REGION, USER_DATA, deleted, moto, recorded};

#[tokio::test]
async fn an_instance_is_launched_as_the_spec_says_and_reported() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "life").await;
    let mut request = environment.machine("life-a");
    request.tags = [("department", "shipping"), ("team", "of the infrastructure")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let provider = environment.provider();
    assert_eq!(provider.find(&request).await, Ok(None));
    let instance = provider.create(&request).await.unwrap();

    let [found] = environment.present("life-a").await.try_into().unwrap();
    let id = found.instance_id().unwrap();
    assert_eq!(instance.provider_id, format!("aws:///{REGION}a/{id}"));
    assert_eq!(instance.provider_status, json!({"instanceId": id, "instanceState": "running"}));
    assert_eq!(
        (instance.region.as_deref(), instance.zone.as_deref()),
        (Some("eu-west-1"), Some("eu-west-1a"))
    );
    assert_eq!((instance.instance_type.as_deref(), instance.interruptible), (Some("m5.large"), false));
    let kinds: Vec<AddressKind> = instance.addresses.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [AddressKind::InternalIp, AddressKind::InternalDns, AddressKind::Hostname]);

    assert_eq!(found.subnet_id(), Some(environment.subnet.as_str()));
    let [interface] = found.network_interfaces() else { panic!("{found:?}") };
    assert_eq!(interface.groups()[0].group_id(), Some(environment.group.as_str()));
    assert_eq!(found.client_token(), Some("uid-of-life-a"));
    assert_eq!(found.metadata_options().unwrap().http_tokens(), Some(&HttpTokensState::Required));
    let mut tags: Vec<(&str, &str)> =
        found.tags().iter().map(|it| (it.key().unwrap(), it.value().unwrap())).collect();
    tags.sort_unstable();
    assert_eq!(
        tags,
        [
            ("Name", "life-a"),
            ("department", "shipping"),
            ("kubernetes.io/cluster/life", "owned"),
            ("team", "ships")
        ]
    );
    let attribute = environment.ec2.describe_instance_attribute().instance_id(id);
    let attribute = attribute.attribute(InstanceAttributeName::UserData).send().await.unwrap();
    use base64::Engine as _;
    let user_data = base64::engine::general_purpose::STANDARD.encode(USER_DATA);
    assert_eq!(attribute.user_data().unwrap().value(), Some(user_data.as_str()));
    assert_eq!(environment.volumes("life-a").await, 1);

    let request = recorded(&request, &instance);
    assert_eq!(provider.find(&request).await, Ok(Some(instance)));
    deleted(&provider, &request).await;
    assert_eq!((environment.present("life-a").await.len(), environment.volumes("life-a").await), (0, 0));
}

#[tokio::test]
async fn a_refresh_restores_tags_and_otherwise_writes_nothing() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "refresh").await;
    let mut request = environment.machine("refresh-a");
    let provider = environment.provider();
    let instance = provider.create(&request).await.unwrap();
    request = recorded(&request, &instance);
    let id = instance.provider_status["instanceId"].as_str().unwrap();
    environment.proxy.take_calls();
    provider.update(&request, &instance).await.unwrap();
    assert_eq!(environment.proxy.take_calls(), ["DescribeInstances"]);

    let team = Tag::builder().key("team").build();
    environment.ec2.delete_tags().resources(id).tags(team).send().await.unwrap();
    request.tags.insert("department".to_owned(), "shipping".to_owned());
    assert_eq!(provider.update(&request, &instance).await.unwrap(), instance);
    assert_eq!(environment.proxy.take_calls(), ["DescribeInstances", "CreateTags"]);
    let [found] = environment.present("refresh-a").await.try_into().unwrap();
    let has = |key: &str, value: &str| {
        found.tags().iter().any(|it| it.key() == Some(key) && it.value() == Some(value))
    };
    assert!(has("team", "ships") && has("department", "shipping") && has("Name", "refresh-a"));
}

#[tokio::test]
async fn a_stopped_instance_is_there_and_one_that_somebody_terminated_is_not() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "stopped").await;
    let request = environment.machine("stopped-a");
    let provider = environment.provider();
    let instance = provider.create(&request).await.unwrap();
    let request = recorded(&request, &instance);
    let id = instance.provider_status["instanceId"].as_str().unwrap();
    environment.ec2.stop_instances().instance_ids(id).send().await.unwrap();
    assert_eq!(provider.find(&request).await.unwrap().unwrap().state, "stopped");
    environment.ec2.terminate_instances().instance_ids(id).send().await.unwrap();
    assert_eq!(provider.find(&request).await, Ok(None));
    assert_eq!(provider.delete(&request).await, Ok(()));
}

#[tokio::test]
async fn a_new_machine_of_an_old_name_gets_an_instance_of_its_own() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "again").await;
    let mut request = environment.machine("again-a");
    let provider = environment.provider();
    let first = provider.create(&request).await.unwrap();
    deleted(&provider, &recorded(&request, &first)).await;
    request.uid = "uid-of-the-second".to_owned();
    assert_eq!(provider.find(&request).await, Ok(None));
    let second = provider.create(&request).await.unwrap();
    assert_ne!(first.provider_id, second.provider_id);
    assert_eq!(environment.present("again-a").await.len(), 1);
}

#[tokio::test]
async fn a_spot_instance_is_interruptible() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "spot").await;
    let mut request = environment.machine("spot-a");
    request.provider_spec["spotMarketOptions"] = json!({"maxPrice": "0.10"});
    let instance = environment.provider().create(&request).await.unwrap();
    assert!(instance.interruptible);
    let [form] = environment.proxy.launches().try_into().unwrap();
    assert_eq!(form["InstanceMarketOptions.SpotOptions.MaxPrice"], "0.10");
    assert_eq!(form["InstanceMarketOptions.SpotOptions.SpotInstanceType"], "one-time");
}

#[tokio::test]
async fn an_instance_that_another_tool_has_made_for_the_machine_is_taken_over() {
    let Some(server) = moto() else { return };
    let environment = Environment::new(server, "adopted").await;
    let other = environment.machine("adopted-a");
    let mut request = other.clone();
    environment.provider().create(&other).await.unwrap();
    request.uid = "uid-of-another".to_owned();
    let found = environment.provider().find(&request).await.unwrap().unwrap();
    assert_eq!(environment.provider().update(&request, &found).await.unwrap(), found);
    deleted(&environment.provider(), &request).await;
    assert_eq!(environment.present("adopted-a").await.len(), 0);
}
