//! The rules of vSphere.

use serde_json::{Value, json};

use crate::webhooks::facts::{Platform, PlatformFacts};
use crate::webhooks::tests::rules::{check_defaults, check_errors, check_warnings, errors_of, facts};

const VSPHERE: Platform = Platform::VSphere;

fn valid() -> Value {
    json!({
        "apiVersion": "vsphereprovider.openshift.io/v1beta1", "kind": "VSphereMachineProviderSpec",
        "template": "t", "workspace": {"server": "s", "datacenter": "dc"},
        "network": {"devices": [{"networkName": "n"}]}, "numCPUs": 4, "memoryMiB": 16384, "diskGiB": 120,
        "userDataSecret": {"name": "u"}, "credentialsSecret": {"name": "c"}
    })
}

#[test]
fn vsphere_defaults_are_absent_secrets() {
    check_defaults(
        VSPHERE,
        json!({"template": "t"}),
        json!({
            "template": "t", "userDataSecret": {"name": "worker-user-data"},
            "credentialsSecret": {"name": "vsphere-cloud-credentials"}
        }),
    );
    let given = json!({"userDataSecret": {}, "credentialsSecret": {"name": ""}});
    check_defaults(VSPHERE, given.clone(), given);
}

#[test]
fn vsphere_needs_template_workspace_and_secrets() {
    check_errors(VSPHERE, valid(), json!({}), &[]);
    check_errors(
        VSPHERE,
        valid(),
        json!({"template": "", "workspace": null, "userDataSecret": null, "credentialsSecret": {"name": null}}),
        &[
            "providerSpec.template: Required value: template must be provided",
            "providerSpec.workspace: Required value: workspace must be provided",
            "providerSpec.userDataSecret: Required value: userDataSecret must be provided",
            "providerSpec.credentialsSecret.name: Required value: name must be provided",
        ],
    );
}

#[test]
fn vsphere_folders_are_in_the_datacenter() {
    check_errors(VSPHERE, valid(), json!({"workspace": {"folder": "/dc/vm/workers"}}), &[]);
    check_errors(
        VSPHERE,
        valid(),
        json!({"workspace": {"server": "", "folder": "/other/vm/workers"}}),
        &[
            "providerSpec.workspace.server: Required value: server must be provided",
            "providerSpec.workspace.folder: Invalid value: \"/other/vm/workers\": folder must be absolute path: expected prefix \"/dc/vm/\"",
        ],
    );
    check_warnings(
        VSPHERE,
        valid(),
        json!({"workspace": {"datacenter": ""}}),
        &[
            "providerSpec.workspace.datacenter: datacenter is unset: if more than one datacenter is present, VMs cannot be created",
        ],
    );
}

#[test]
fn vsphere_groups_need_their_feature_gate() {
    let change = |name: String| json!({"workspace": {"vmGroup": name}});
    check_errors(
        VSPHERE,
        valid(),
        change("g".to_owned()),
        &[
            "providerSpec.workspace.vmGroup: Forbidden: this field is protected by the VSphereHostVMGroupZonal feature gate which is disabled",
        ],
    );
    let gates = ["VSphereHostVMGroupZonal".to_owned()].into();
    let enabled = PlatformFacts { feature_gates: gates, ..facts(VSPHERE) };
    assert_eq!(errors_of(&enabled, valid(), &change("g".repeat(80))), [""; 0]);
    let name = "g".repeat(81);
    assert_eq!(
        errors_of(&enabled, valid(), &change(name.clone())),
        [format!(
            "providerSpec.workspace.vmGroup: Invalid value: {name:?}: vmGroup must have at most 80 characters"
        )]
    );
}

#[test]
fn vsphere_has_1_to_10_network_devices_with_networks() {
    let device = json!({"networkName": "n"});
    let check = |devices: Value, expected: &[&str]| {
        check_errors(VSPHERE, valid(), json!({"network": {"devices": devices}}), expected);
    };
    check(json!(vec![device.clone(); 10]), &[]);
    check(
        json!(vec![device; 11]),
        &["providerSpec.network.devices: Too many: 11: must have at most 10 items"],
    );
    check(
        json!([]),
        &["providerSpec.network.devices: Required value: at least 1 network device must be provided"],
    );
    check(
        json!([{"networkName": "n"}, {"gateway": "g"}]),
        &["providerSpec.network.devices[1].networkName: Required value: networkName must be provided"],
    );
}

#[test]
fn small_vsphere_machines_and_linked_clones_with_a_size_are_warnings() {
    check_warnings(VSPHERE, valid(), json!({"numCPUs": 2, "memoryMiB": 2048}), &[]);
    check_warnings(
        VSPHERE,
        valid(),
        json!({"numCPUs": 1, "memoryMiB": 2047, "diskGiB": 119, "cloneMode": "linkedClone"}),
        &[
            "providerSpec.numCPUs: 1 is missing or less than the minimum value (2): nodes may not boot correctly",
            "providerSpec.memoryMiB: 2047 is missing or less than the recommended minimum value (2048): nodes may not boot correctly",
            "providerSpec.diskGiB: 119 is missing or less than the recommended minimum (120): nodes may fail to start if disk size is too low",
            "linkedClone clone mode is set. DiskGiB parameter will be ignored, disk size from template will be used.",
        ],
    );
    check_warnings(
        VSPHERE,
        valid(),
        json!({"diskGiB": null, "cloneMode": "linkedClone"}),
        &[
            "providerSpec.diskGiB: 0 is missing or less than the recommended minimum (120): nodes may fail to start if disk size is too low",
        ],
    );
}

#[test]
fn vsphere_has_at_most_10_tags_in_the_form_of_urns() {
    let tag = "urn:vmomi:InventoryServiceTag:5736bf56-49f5-4667-b38c-b97e09dc9578:GLOBAL";
    check_errors(VSPHERE, valid(), json!({"tagIDs": vec![tag; 10]}), &[]);
    let tags = vec![tag; 11];
    let text = format!(
        "providerSpec.tagIDs: Invalid value: {}: a maximum of 10 tags are allowed",
        serde_json::to_string(&tags).unwrap()
    );
    check_errors(VSPHERE, valid(), json!({"tagIDs": tags}), &[&text]);
    for tag in [
        "",
        "tag",
        "urn:vmomi:InventoryServiceTag:5736bf56:GLOBAL",
        "urn:vmomi:Other:5736bf56-49f5-4667-b38c-b97e09dc9578:GLOBAL",
    ] {
        check_errors(
            VSPHERE,
            valid(),
            json!({"tagIDs": [tag]}),
            &[
                "providerSpec.tagIDs: Required value: tag ID must be in the format of urn:vmomi:InventoryServiceTag:<UUID>:GLOBAL",
            ],
        );
    }
}

#[test]
fn vsphere_data_disks_have_names_sizes_and_modes() {
    let disk = |name: &str| json!({"name": name, "sizeGiB": 1});
    check_errors(VSPHERE, valid(), json!({"dataDisks": vec![disk("a"); 29]}), &[]);
    check_errors(
        VSPHERE,
        valid(),
        json!({"dataDisks": vec![disk("a"); 30]}),
        &["providerSpec.dataDisks: Too many: 30: must have at most 29 items"],
    );
    for name in ["a", "disk_1-b", &"d".repeat(80)] {
        check_errors(VSPHERE, valid(), json!({"dataDisks": [disk(name)]}), &[]);
    }
    check_errors(
        VSPHERE,
        valid(),
        json!({"dataDisks": [disk("")]}),
        &["providerSpec.dataDisks[0].name: Required value: data disk name must be set"],
    );
    for name in ["-a", "a_", "a.b", &"d".repeat(81)] {
        let text = format!(
            "providerSpec.dataDisks[0].name: Invalid value: {name:?}: must have at most 80 characters: letters, digits, hyphens and \
             underscores, and begin and end with a letter or digit"
        );
        check_errors(VSPHERE, valid(), json!({"dataDisks": [disk(name)]}), &[&text]);
    }
    for mode in ["", "Thin", "Thick", "EagerlyZeroed"] {
        let disk = json!({"name": "a", "sizeGiB": 16384, "provisioningMode": mode});
        check_errors(VSPHERE, valid(), json!({"dataDisks": [disk]}), &[]);
    }
    check_errors(
        VSPHERE,
        valid(),
        json!({"dataDisks": [{"name": "a", "provisioningMode": "Lazy"}, {"name": "b", "sizeGiB": 16385}]}),
        &[
            "providerSpec.dataDisks[0].sizeGiB: Invalid value: 0: must be from 1 to 16384",
            "providerSpec.dataDisks[0].provisioningMode: Unsupported value: \"Lazy\": supported values: \"EagerlyZeroed\", \"Thick\", \"Thin\"",
            "providerSpec.dataDisks[1].sizeGiB: Invalid value: 16385: must be from 1 to 16384",
        ],
    );
}
