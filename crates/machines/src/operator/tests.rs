//! What the operator rolls out, as a function of the objects that configure a cluster.

use std::sync::Arc;

use api::crd::machine::{Machine, MachineSet};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::configuration::{Configuration, ConfigurationSources, RolloutConfiguration, configuration};
use super::desired::{daemon_set, deployment, health_check};
use super::reconcile::missing_machines;

const NAMESPACE: &str = "openshift-machine-api";

fn infrastructure(platform: &str) -> Value {
    json!({"status": {"platformStatus": {"type": platform, "azure": {"cloudName": "AzureUSGovernmentCloud"}}}})
}

fn images(text: &str) -> ConfigMap {
    serde_json::from_value(json!({"data": {"images.json": text}})).unwrap()
}

const IMAGES: &str = r#"{"machineAPIOperator": "o:1", "clusterAPIControllerAzure": "registry.example/a@sha256:0", "clusterAPIControllerOpenStack": "os:1"}"#;

/// The configuration of a cluster on a platform, after a change of what it is read from.
fn configured(
    platform: &str,
    change: impl FnOnce(&mut Value, &mut Option<ConfigMap>, &mut Value),
) -> Result<Configuration, Vec<String>> {
    let (mut infrastructure, mut images, mut proxy) =
        (infrastructure(platform), Some(images(IMAGES)), json!({}));
    change(&mut infrastructure, &mut images, &mut proxy);
    configuration(&ConfigurationSources {
        namespace: NAMESPACE,
        platform: None,
        version: "2",
        has_infrastructure_kind: true,
        infrastructure: Some(&infrastructure).filter(|it| !it.is_null()),
        proxy: Some(&proxy),
        feature_gate: None,
        images: images.as_ref(),
    })
}

fn rolled_out(platform: &str) -> RolloutConfiguration {
    match configured(platform, |_, _, _| {}).unwrap() {
        Configuration::RollOut(configuration) => configuration,
        Configuration::NoOp(why) => panic!("{why}"),
    }
}

#[test]
fn the_deployment_has_image_namespace_and_flags_of_the_cluster() {
    let configuration = RolloutConfiguration {
        migration: true,
        proxy: vec![("HTTPS_PROXY", "http://proxy:3128".to_owned())],
        ..rolled_out("Azure")
    };
    let deployment = serde_json::to_value(deployment(&configuration, "elsewhere")).unwrap();
    assert_eq!(deployment["metadata"]["namespace"], "elsewhere");
    assert_eq!(deployment["metadata"]["annotations"], json!({"machine.openshift.io/owned": ""}));
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example/a@sha256:0");
    let args: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let expected = [
        "machines",
        "controllers",
        "--namespace=elsewhere",
        "--health=0.0.0.0:9440",
        "--metrics=0.0.0.0:8441",
        "--metrics-certificate=/etc/tls/private",
        "--platform=Azure",
        "--azure-cloud=AzureUSGovernmentCloud",
        "--migration",
    ];
    assert_eq!(args, expected);
    assert_eq!(container["env"], json!([{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]));
}

#[test]
fn the_termination_handler_is_where_the_cloud_announces_the_end_of_an_instance() {
    let azure = rolled_out("Azure");
    let set = serde_json::to_value(daemon_set(&azure, NAMESPACE).unwrap()).unwrap();
    let spec = &set["spec"]["template"]["spec"];
    assert_eq!(spec["containers"][0]["image"], "registry.example/a@sha256:0");
    assert_eq!(spec["nodeSelector"], json!({"machine.openshift.io/interruptible-instance": ""}));
    assert_eq!(spec["hostNetwork"], true);
    let check = health_check(&azure, NAMESPACE).unwrap().spec;
    assert_eq!(check.unhealthy_conditions[0].type_, "Terminating");
    assert_eq!(check.node_startup_timeout.as_deref(), Some("0"));
    let openstack = rolled_out("OpenStack");
    assert!(daemon_set(&openstack, NAMESPACE).is_none() && health_check(&openstack, NAMESPACE).is_none());
}

#[test]
fn platforms_without_controllers_and_clusters_without_one_are_left_alone() {
    for platform in ["None", "External", "oVirt"] {
        let found = configured(platform, |_, _, _| {});
        let expected = format!("platform {platform:?} has no machine controllers");
        assert_eq!(found, Ok(Configuration::NoOp(expected)));
    }
    let bare = ConfigurationSources { namespace: NAMESPACE, ..ConfigurationSources::default() };
    assert_eq!(
        configuration(&bare),
        Ok(Configuration::NoOp(
            "this cluster has no Infrastructure of config.openshift.io, and --platform is not given"
                .to_owned()
        ))
    );
    let images = images(IMAGES);
    let named = ConfigurationSources { platform: Some("Azure"), images: Some(&images), ..bare };
    assert!(matches!(configuration(&named), Ok(Configuration::RollOut(_))));
}

#[test]
fn what_cannot_be_used_is_named_with_its_object_and_field() {
    let check = |change: &dyn Fn(&mut Value, &mut Option<ConfigMap>, &mut Value), expect: &[&str]| {
        let problems = configured("Azure", |one, two, three| change(one, two, three)).unwrap_err();
        assert_eq!(problems, expect);
    };
    check(&|it, _, _| *it = Value::Null, &["Infrastructure cluster is not found"]);
    check(&|it, _, _| *it = json!({}), &["Infrastructure cluster: status.platformStatus.type is empty"]);
    check(
        &|_, it, _| *it = None,
        &["ConfigMap openshift-machine-api/machine-api-operator-images is not found"],
    );
    let field = "ConfigMap openshift-machine-api/machine-api-operator-images: data[\"images.json\"]";
    check(&|_, it, _| *it = Some(ConfigMap::default()), &[&format!("{field} is missing")]);
    check(
        &|_, it, _| *it = Some(images("{")),
        &[&format!(
            "{field} is not a JSON object with names of images: EOF while parsing an object at line 1 column 1"
        )],
    );
    check(
        &|_, it, _| *it = Some(images("{}")),
        &[&format!(
            "{field}: \"clusterAPIControllerAzure\" is missing, the image of the controllers on platform Azure"
        )],
    );
    check(
        &|_, it, _| *it = Some(images(r#"{"clusterAPIControllerAzure": "two words"}"#)),
        &[&format!(
            "{field}: \"clusterAPIControllerAzure\" is \"two words\", which is not the name of an image; letters, digits and . - _ / : @ are accepted"
        )],
    );
    check(
        &|_, _, it| *it = json!({"status": {"httpsProxy": "user:secret@proxy"}}),
        &["Proxy cluster: status.httpsProxy \"proxy\" is not a URL such as http://proxy.example:3128"],
    );
    // Both at once.
    let both = configured("Azure", |_, images, proxy| {
        *images = None;
        *proxy = json!({"status": {"httpProxy": "x"}});
    });
    assert_eq!(both.unwrap_err().len(), 2);
}

#[test]
fn the_proxy_of_the_cluster_is_that_of_the_controllers() {
    let status = json!({"status": {"httpProxy": "http://p:1", "httpsProxy": "https://u:s@p:2", "noProxy": ".svc,10.0.0.0/16"}});
    let Configuration::RollOut(found) = configured("Azure", |_, _, it| *it = status).unwrap() else {
        panic!()
    };
    let pairs: Vec<(&str, &str)> = found.proxy.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let expected =
        [("HTTP_PROXY", "http://p:1"), ("HTTPS_PROXY", "https://u:s@p:2"), ("NO_PROXY", ".svc,10.0.0.0/16")];
    assert_eq!(pairs, expected);
}

#[test]
fn a_feature_gate_counts_in_the_version_of_this_release() {
    let gate = |version: &str, name: &str| json!({"version": version, "enabled": [{"name": name}]});
    let migration = |gates: Value| {
        let (images, infrastructure) = (images(IMAGES), infrastructure("Azure"));
        let gates = json!({"status": {"featureGates": gates}});
        let sources = ConfigurationSources {
            namespace: NAMESPACE,
            version: "2",
            has_infrastructure_kind: true,
            infrastructure: Some(&infrastructure),
            feature_gate: Some(&gates),
            images: Some(&images),
            ..ConfigurationSources::default()
        };
        match configuration(&sources).unwrap() {
            Configuration::RollOut(it) => it.migration,
            Configuration::NoOp(why) => panic!("{why}"),
        }
    };
    assert!(migration(json!([gate("1", "A"), gate("2", "MachineAPIMigration")])));
    assert!(!migration(json!([gate("1", "MachineAPIMigration"), gate("2", "A")])));
    assert!(migration(json!([gate("1", "MachineAPIMigration")])));
}

#[test]
fn a_cluster_is_installed_when_its_sets_have_their_machines_and_two_run() {
    let set: MachineSet = serde_json::from_value(json!({
        "metadata": {"name": "w"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"set": "w"}}}
    }))
    .unwrap();
    let machine = |name: &str, phase: &str| -> Arc<Machine> {
        let machine = json!({"metadata": {"name": name, "labels": {"set": "w"}}, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(machine).unwrap())
    };
    let check = |machines: &[Arc<Machine>], expect: &[&str]| {
        assert_eq!(missing_machines(&[Arc::new(set.clone())], machines), expect);
    };
    check(&[machine("w-1", "Running")], &["replicas not satisfied for MachineSet w: expected 3, got 1"]);
    let booting = [machine("w-1", "Running"), machine("w-2", "Provisioned"), machine("w-3", "Provisioning")];
    check(
        &booting,
        &[
            "minimum worker replica count (2) not yet met: current running replicas 1, waiting for [\"w-2\", \"w-3\"]",
        ],
    );
    check(&[machine("w-1", "Running"), machine("w-2", "Running"), machine("w-3", "Provisioning")], &[]);
    assert!(missing_machines(&[], &[]).is_empty());
}
