use std::fs;
use std::path::{Path, PathBuf};

use kube_core::Resource;
use serde_json::{Value, json};

use super::definitions;
use super::machine::{
    AuthoritativeApi, DeletePolicy, Machine, MachineHealthCheck, MachinePhase, MachineSet, MachineStatus,
};

/// Set to write the files instead of comparing them.
const UPDATE: &str = "UPDATE_CRDS";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

/// Each file's name and text.
fn files() -> Vec<(String, String)> {
    let file = |definition| {
        let value = serde_json::to_value(&definition).unwrap();
        let names = (&value["spec"]["group"], &value["spec"]["names"]["plural"]);
        let name = format!("{}_{}.yaml", names.0.as_str().unwrap(), names.1.as_str().unwrap());
        let yaml = serde_saphyr::to_string(&value).unwrap();
        (
            name,
            format!("# Generated from crates/api/src/crd by {UPDATE}=1 cargo test -p api --lib crd\n{yaml}"),
        )
    };
    definitions().into_iter().map(file).collect()
}

#[test]
fn the_files_in_deploy_crds_are_those_of_the_types() {
    let files = files();
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting")]
    let update = std::env::var_os(UPDATE).is_some();
    if update {
        fs::create_dir_all(directory()).unwrap();
        for (name, text) in &files {
            fs::write(directory().join(name), text).unwrap();
        }
    }
    for (name, text) in &files {
        let found = fs::read_to_string(directory().join(name)).unwrap_or_default();
        assert!(
            found == *text,
            "deploy/crds/{name} is stale: {UPDATE}=1 cargo test -p api --lib crd writes it"
        );
    }
    let mut found: Vec<String> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut expected: Vec<String> = files.into_iter().map(|(name, _)| name).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "deploy/crds has a file without a type");
}

/// Every schema below a schema, with its path.
fn walk<'a>(path: &str, schema: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    found.push((path.to_owned(), schema));
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), below, found);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            walk(&format!("{path}[]"), &schema[key], found);
        }
    }
}

#[test]
fn schemas_are_structural_and_every_field_is_documented() {
    for definition in definitions() {
        let value = serde_json::to_value(&definition).unwrap();
        let kind = value["spec"]["names"]["kind"].as_str().unwrap();
        let mut found = Vec::new();
        walk(kind, &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut found);
        for (path, schema) in found {
            let typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == json!(true);
            assert!(typed, "{path} has no type: {schema}");
            assert!(schema["nullable"].is_null() && schema["title"].is_null(), "{path}: {schema}");
            let is_field = !path.ends_with("[]") && !path.ends_with(".metadata");
            assert!(!is_field || schema["description"].is_string(), "{path} has no description");
        }
    }
}

#[test]
fn only_the_documented_fields_have_defaults() {
    let mut defaults = Vec::new();
    for definition in definitions() {
        let value = serde_json::to_value(&definition).unwrap();
        let mut found = Vec::new();
        walk(
            value["spec"]["names"]["kind"].as_str().unwrap(),
            &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            &mut found,
        );
        let with_default = found.iter().filter(|(_, schema)| !schema["default"].is_null());
        defaults.extend(with_default.map(|(path, schema)| format!("{path}={}", schema["default"])));
    }
    let expected = [
        r#"Machine.spec.authoritativeAPI="MachineAPI""#,
        r#"MachineSet.spec.authoritativeAPI="MachineAPI""#,
        "MachineSet.spec.replicas=1",
        r#"MachineSet.spec.template.spec.authoritativeAPI="MachineAPI""#,
        r#"MachineHealthCheck.spec.maxUnhealthy="100%""#,
        r#"MachineHealthCheck.spec.nodeStartupTimeout="10m""#,
    ];
    assert_eq!(defaults, expected);
}

#[test]
fn an_object_keeps_what_the_api_server_sent() {
    let given = json!({
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": "worker-0", "namespace": "openshift-machine-api"},
        "spec": {
            "authoritativeAPI": "MachineAPI",
            "lifecycleHooks": {"preDrain": [{"name": "Backup", "owner": "storage"}]},
            "providerID": "azure:///subscriptions/s",
            "providerSpec": {"value": {"kind": "AzureMachineProviderSpec", "vmSize": "Standard_D4s_v3"}},
            "taints": [{"key": "gpu", "effect": "NoSchedule"}],
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.4"}],
            "conditions": [{
                "type": "Drained", "status": "False", "severity": "Warning", "reason": "DrainError",
                "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z",
            }],
            "nodeRef": {"kind": "Node", "name": "worker-0", "uid": "u"},
            "phase": "Running",
            "providerStatus": {"vmState": "Running"},
        },
    });
    let machine: Machine = serde_json::from_value(given.clone()).unwrap();
    assert_eq!(serde_json::to_value(&machine).unwrap(), given);
}

#[test]
fn an_object_without_a_spec_or_with_unknown_values_is_read() {
    let machine: Machine = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    assert_eq!(machine.spec, super::machine::MachineSpec::default());
    let status: MachineStatus =
        serde_json::from_value(json!({"phase": "Hibernating", "authoritativeAPI": "Other"})).unwrap();
    assert_eq!(status.phase, Some(MachinePhase::Unrecognized("Hibernating".to_owned())));
    assert_eq!(status.authoritative_api, Some(AuthoritativeApi::Unrecognized("Other".to_owned())));
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        json!({"phase": "Hibernating", "authoritativeAPI": "Other"})
    );
    assert_eq!(DeletePolicy::from("Newest".to_owned()), DeletePolicy::Newest);
}

#[test]
fn a_resource_knows_its_url() {
    let check = |url: String, expect: &str| assert_eq!(url, expect);
    let base = "/apis/machine.openshift.io/v1beta1/namespaces/n";
    check(Machine::url_path(&(), Some("n")), &format!("{base}/machines"));
    check(MachineSet::url_path(&(), Some("n")), &format!("{base}/machinesets"));
    check(MachineHealthCheck::url_path(&(), Some("n")), &format!("{base}/machinehealthchecks"));
}
