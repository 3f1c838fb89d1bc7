//! What users of a real API server see.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{NAMESPACE, RunningWebhooks, World, until, world};

fn machine(name: &str, provider_spec: Value) -> Value {
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"providerSpec": {"value": provider_spec}}
    })
}

fn machine_set(selector: &str, label: &str, provider_spec: Value) -> Value {
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
        "metadata": {"name": "workers", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"set": selector}},
            "template": {
                "metadata": {"labels": {"set": label}}, "spec": {"providerSpec": {"value": provider_spec}}
            }
        }
    })
}

/// Waits until the validation of both kinds is in force.
async fn registered(world: &World) {
    let invalid = machine_set("a", "b", json!({}));
    until("the webhooks are registered", async || world.dry_run("MachineSet", &invalid).await.is_some())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_a_real_api_server_see_defaults_refusals_and_warnings() {
    let Some(world) = world().await else { return };
    every_provider_spec_is_admitted_without_openshift(&world).await;

    world
        .describe_platform(json!({
            "infrastructureName": "c1", "platformStatus": {"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}}
        }))
        .await;
    let webhooks = RunningWebhooks::start([world.webhooks(|_| {}).await]);
    let no_disk = machine("probe", json!({}));
    until("the rules of Azure are in force", async || world.dry_run("Machine", &no_disk).await.is_some())
        .await;
    defaults_are_stored_and_warnings_are_shown(&world);
    violations_are_refused_with_the_text_of_each_rule(&world);
    the_registration_is_repaired(&world).await;

    webhooks.stop().await;
    // failurePolicy Ignore.
    assert_eq!(world.dry_run("Machine", &no_disk).await, None);
}

async fn every_provider_spec_is_admitted_without_openshift(world: &World) {
    let webhooks = RunningWebhooks::start([world.webhooks(|_| {}).await]);
    registered(world).await;
    assert_eq!(world.dry_run("Machine", &machine("m", json!({"any": "thing"}))).await, None);
    assert_eq!(
        world.dry_run("MachineSet", &machine_set("a", "b", json!({}))).await.unwrap(),
        "admission webhook \"validation.machineset.machine.openshift.io\" denied the request: spec.template.metadata.labels: Invalid value: \
         {\"set\":\"b\"}: `selector` does not match template `labels`"
    );
    webhooks.stop().await;
}

fn defaults_are_stored_and_warnings_are_shown(world: &World) {
    let given = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "AzureMachineProviderSpec",
        "osDisk": {"diskSizeGB": 128, "colour": "red"}, "location": "westeurope"
    });
    let (output, errors) = world.kubectl(&["apply", "-f", "-"], &machine("m1", given));
    assert_eq!(output, "machine.machine.openshift.io/m1 created\n", "{errors}");
    // The field is removed by the defaults, so that only the credentials remain to be warned about.
    assert_eq!(
        errors,
        "Warning: providerSpec.credentialsSecret: Invalid value: \"azure-cloud-credentials\": not found. Expected CredentialsSecret to exist\n"
    );
    let (stored, _) = world.kubectl(&["get", "machine", "m1", "-n", NAMESPACE, "-o", "json"], &Value::Null);
    let stored: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored["metadata"]["labels"], json!({"machine.openshift.io/cluster-api-cluster": "c1"}));
    let spec = &stored["spec"]["providerSpec"]["value"];
    assert_eq!((&spec["vnet"], &spec["subnet"]), (&json!("c1-vnet"), &json!("c1-worker-subnet")));
    assert_eq!(spec["osDisk"], json!({"diskSizeGB": 128}));

    // A later change keeps unknown fields, with a warning.
    let patch = json!({"spec": {"providerSpec": {"value": {"colour": "red"}}}}).to_string();
    let arguments = ["patch", "machine", "m1", "-n", NAMESPACE, "--type=merge", "-p", &patch];
    let (_, errors) = world.kubectl(&arguments, &Value::Null);
    assert!(
        errors.contains(
            "Warning: providerSpec.value: Unsupported value: \"colour\": Unknown field (colour) will be ignored"
        ),
        "{errors}"
    );
}

fn violations_are_refused_with_the_text_of_each_rule(world: &World) {
    let refused = |object: &Value, text: &str| {
        let (_, errors) = world.kubectl(&["create", "-f", "-"], object);
        assert!(errors.contains(text), "{errors}");
    };
    refused(
        &machine("m2", json!({"osDisk": {"diskSizeGB": 0}, "vnet": "v"})),
        "admission webhook \"validation.machine.machine.openshift.io\" denied the request: [providerSpec.subnet: Required value: must provide \
         a subnet when a virtual network is specified, providerSpec.osDisk.diskSizeGB: Invalid value: 0: diskSizeGB must be greater than \
         zero and less than 32768]\n",
    );
    refused(
        &machine("m2", json!({"vmSize": 5})),
        "admission webhook \"default.machine.machine.openshift.io\" denied the request: providerSpec.value: Invalid value: vmSize: invalid \
         type: integer `5`, expected a string\n",
    );
    let spec = json!({"osDisk": {"diskSizeGB": 128}});
    let (output, errors) = world.kubectl(&["apply", "-f", "-"], &machine_set("a", "a", spec.clone()));
    assert_eq!(output, "machineset.machine.openshift.io/workers created\n", "{errors}");
    let (_, errors) = world.kubectl(&["apply", "-f", "-"], &machine_set("b", "b", spec));
    assert!(
        errors.contains(
            "admission webhook \"validation.machineset.machine.openshift.io\" denied the request: spec.selector: Forbidden: selector is \
             immutable"
        ),
        "{errors}"
    );
    // A scale is no change of the object that webhooks check.
    let (output, errors) =
        world.kubectl(&["scale", "machineset", "workers", "-n", NAMESPACE, "--replicas=3"], &Value::Null);
    assert_eq!(output, "machineset.machine.openshift.io/workers scaled\n", "{errors}");
}

async fn the_registration_is_repaired(world: &World) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let before = configurations.get("machine-api").await.unwrap();
    configurations.delete("machine-api", &DeleteParams::default()).await.unwrap();
    until("the registration is restored", async || {
        let found = configurations.get_opt("machine-api").await.unwrap();
        found.is_some_and(|it| it.webhooks == before.webhooks)
    })
    .await;
    let version = configurations.get("machine-api").await.unwrap().metadata.resource_version;
    let no_disk = machine("probe", json!({}));
    until("the rules are in force again", async || world.dry_run("Machine", &no_disk).await.is_some()).await;
    // A complete registration is not written again.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert_eq!(configurations.get("machine-api").await.unwrap().metadata.resource_version, version);
}
