//! The rules of Google Cloud.

use serde_json::{Value, json};

use crate::webhooks::facts::{Architecture, Platform, PlatformFacts};
use crate::webhooks::tests::rules::{check_defaults, check_defaults_of, check_errors, check_warnings, facts};

const GCP: Platform = Platform::Gcp;

fn valid() -> Value {
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "GCPMachineProviderSpec",
        "region": "us-central1", "zone": "us-central1-a", "machineType": "n2-standard-4",
        "networkInterfaces": [{"network": "n", "subnetwork": "s"}], "disks": [{"boot": true, "sizeGb": 128}],
        "serviceAccounts": [{"email": "e", "scopes": ["s"]}],
        "userDataSecret": {"name": "u"}, "credentialsSecret": {"name": "c"}
    })
}

#[test]
fn gcp_defaults_are_a_whole_machine() {
    let complete = |machine_type: &str, image: &str| {
        json!({
            "machineType": machine_type,
            "networkInterfaces": [{"network": "c1-network", "subnetwork": "c1-worker-subnet"}],
            "disks": [{"autoDelete": true, "boot": true, "sizeGb": 128, "type": "pd-standard", "image": image}],
            "tags": ["c1-worker"],
            "userDataSecret": {"name": "worker-user-data"}, "credentialsSecret": {"name": "gcp-cloud-credentials"}
        })
    };
    let image =
        |suffix: &str| format!("projects/rhcos-cloud/global/images/rhcos-414-92-202307070025-0-gcp-{suffix}");
    check_defaults(GCP, json!({}), complete("n1-standard-4", &image("x86-64")));
    let arm = PlatformFacts { architecture: Architecture::Arm64, ..facts(GCP) };
    check_defaults_of(&arm, json!({"disks": [], "tags": []}), complete("t2a-standard-4", &image("aarch64")));
}

#[test]
fn gcp_disks_get_a_type_and_boot_disks_an_image() {
    let mut given = valid();
    given["disks"] =
        json!([{"boot": true}, {"boot": false, "type": "pd-ssd"}, {"boot": true, "image": "i", "type": ""}]);
    given["tags"] = json!(["t"]);
    given["gpus"] = json!([{"type": "g", "count": 0}]);
    let mut expected = given.clone();
    let image = "projects/rhcos-cloud/global/images/rhcos-414-92-202307070025-0-gcp-x86-64";
    expected["disks"] = json!([
        {"boot": true, "type": "pd-standard", "image": image}, {"boot": false, "type": "pd-ssd"},
        {"boot": true, "image": "i", "type": "pd-standard"}
    ]);
    expected["gpus"] = json!([{"type": "g", "count": 1}]);
    check_defaults(GCP, given, expected);
}

#[test]
fn gcp_needs_region_type_network_disks_and_secrets() {
    check_errors(GCP, valid(), json!({}), &[]);
    check_errors(
        GCP,
        valid(),
        json!({
            "region": null, "machineType": "", "networkInterfaces": [], "disks": null, "userDataSecret": null,
            "credentialsSecret": {"name": ""}
        }),
        &[
            "providerSpec.region: Required value: region is required",
            "providerSpec.machineType: Required value: machineType should be set to one of the supported GCP machine types",
            "providerSpec.networkInterfaces: Required value: at least 1 network interface is required",
            "providerSpec.disks: Required value: at least 1 disk is required",
            "providerSpec.userDataSecret: Required value: userDataSecret must be provided",
            "providerSpec.credentialsSecret.name: Required value: name must be provided",
        ],
    );
    check_errors(
        GCP,
        valid(),
        json!({"networkInterfaces": [{"network": "n", "subnetwork": "s"}, {}]}),
        &[
            "providerSpec.networkInterfaces[1].network: Required value: network is required",
            "providerSpec.networkInterfaces[1].subnetwork: Required value: subnetwork is required",
        ],
    );
}

#[test]
fn gcp_zones_are_in_the_region() {
    check_errors(
        GCP,
        valid(),
        json!({"zone": "europe-west1-b"}),
        &[
            "providerSpec.zone: Invalid value: \"europe-west1-b\": zone not in configured region (us-central1)",
        ],
    );
}

#[test]
fn gcp_maintenance_restart_and_provisioning_have_listed_values() {
    check_errors(GCP, valid(), json!({"onHostMaintenance": "Migrate", "restartPolicy": "Always"}), &[]);
    check_errors(GCP, valid(), json!({"onHostMaintenance": "Terminate", "restartPolicy": "Never"}), &[]);
    check_errors(GCP, valid(), json!({"provisioningModel": "Spot"}), &[]);
    check_errors(GCP, valid(), json!({"preemptible": true}), &[]);
    check_errors(
        GCP,
        valid(),
        json!({"onHostMaintenance": "Wait", "restartPolicy": "Later", "provisioningModel": "Standard"}),
        &[
            "providerSpec.onHostMaintenance: Invalid value: \"Wait\": onHostMaintenance must be either Migrate or Terminate.",
            "providerSpec.restartPolicy: Invalid value: \"Later\": restartPolicy must be either Never or Always.",
            "providerSpec.provisioningModel: Invalid value: \"Standard\": provisioningModel must be Spot or omitted.",
        ],
    );
    check_errors(
        GCP,
        valid(),
        json!({"provisioningModel": "Spot", "preemptible": true}),
        &[
            "providerSpec.provisioningModel: Forbidden: provisioningModel may not be set together with preemptible.",
        ],
    );
}

#[test]
fn gcp_gpus_are_one_kind_and_do_not_migrate() {
    let gpu = |kind: &str| json!({"type": kind, "count": 1});
    check_errors(GCP, valid(), json!({"gpus": [gpu("nvidia-tesla-t4")]}), &[]);
    let migrate = "providerSpec.onHostMaintenance: Forbidden: When GPUs are specified or using machineType with pre-attached GPUs(A2 machine \
                   family), onHostMaintenance must be set to Terminate.";
    check_errors(GCP, valid(), json!({"gpus": [gpu("g")], "onHostMaintenance": "Migrate"}), &[migrate]);
    check_errors(
        GCP,
        valid(),
        json!({"machineType": "a2-highgpu-1g", "onHostMaintenance": "Migrate"}),
        &[migrate],
    );
    check_errors(
        GCP,
        valid(),
        json!({"gpus": [gpu("g"), gpu("g")]}),
        &["providerSpec.gpus: Too many: 2: must have at most 1 item"],
    );
    check_errors(
        GCP,
        valid(),
        json!({"gpus": [{}]}),
        &["providerSpec.gpus.Type: Required value: Type is required"],
    );
    check_errors(
        GCP,
        valid(),
        json!({"gpus": [gpu("nvidia-tesla-a100")], "machineType": "a2-highgpu-1g"}),
        &[
            "providerSpec.gpus.Type: Invalid value: \"nvidia-tesla-a100\":  nvidia-tesla-a100 gpus, are only attached to the A2 machine types",
            "providerSpec.gpus: Invalid value: \"nvidia-tesla-a100\": A2 machine types have already attached gpus, additional gpus cannot be \
             specified",
        ],
    );
}

#[test]
fn gcp_shielded_options_are_enabled_or_disabled() {
    let check = |config: Value, expected: &[&str]| {
        check_errors(GCP, valid(), json!({"shieldedInstanceConfig": config}), expected);
    };
    check(json!({"secureBoot": "Enabled", "integrityMonitoring": "Disabled"}), &[]);
    check(json!({"virtualizedTrustedPlatformModule": "Disabled", "integrityMonitoring": "Disabled"}), &[]);
    check(
        json!({"secureBoot": "a", "integrityMonitoring": "b", "virtualizedTrustedPlatformModule": "c"}),
        &[
            "providerSpec.shieldedInstanceConfig.secureBoot: Invalid value: \"a\": secureBoot must be either Enabled or Disabled.",
            "providerSpec.shieldedInstanceConfig.integrityMonitoring: Invalid value: \"b\": integrityMonitoring must be either Enabled or \
             Disabled.",
            "providerSpec.shieldedInstanceConfig.virtualizedTrustedPlatformModule: Invalid value: \"c\": virtualizedTrustedPlatformModule \
             must be either Enabled or Disabled.",
        ],
    );
    check(
        json!({"virtualizedTrustedPlatformModule": "Disabled"}),
        &[
            "providerSpec.shieldedInstanceConfig.virtualizedTrustedPlatformModule: Invalid value: \"Disabled\": integrityMonitoring requires \
           virtualizedTrustedPlatformModule Enabled.",
        ],
    );
}

#[test]
fn gcp_confidential_machines_terminate_and_have_a_supported_type() {
    let machine = |technology: &str, machine_type: &str| json!({"confidentialCompute": technology, "machineType": machine_type, "onHostMaintenance": "Terminate"});
    let sev = "AMDEncryptedVirtualization";
    let snp = "AMDEncryptedVirtualizationNestedPaging";
    let tdx = "IntelTrustedDomainExtensions";
    for (technology, machine_type) in [
        ("Enabled", "n2d-standard-4"),
        ("Enabled", "c2d-standard-4"),
        (sev, "c3d-standard-4"),
        (snp, "n2d-standard-4"),
        (tdx, "c3-standard-4"),
        ("Disabled", "e2-standard-4"),
    ] {
        check_errors(GCP, valid(), machine(technology, machine_type), &[]);
    }
    for (technology, machine_type, families) in [
        ("Enabled", "n2-standard-4", "n2d,c2d,c3d"),
        (sev, "c3-standard-4", "n2d,c2d,c3d"),
        (snp, "c2d-standard-4", "n2d"),
        (tdx, "c3d-standard-4", "c3"),
    ] {
        let text = format!(
            "providerSpec.machineType: Invalid value: {machine_type:?}: ConfidentialCompute require machine type in the following series: \
             {families}"
        );
        check_errors(GCP, valid(), machine(technology, machine_type), &[&text]);
    }
    check_errors(
        GCP,
        valid(),
        json!({"confidentialCompute": "Enabled", "machineType": "n2d-standard-4", "onHostMaintenance": "Migrate"}),
        &[
            "providerSpec.onHostMaintenance: Invalid value: \"Migrate\": ConfidentialCompute require OnHostMaintenance to be set to Terminate, \
           the current value is: Migrate",
        ],
    );
    check_errors(
        GCP,
        valid(),
        json!({"confidentialCompute": "Yes"}),
        &[
            "providerSpec.confidentialCompute: Invalid value: \"Yes\": ConfidentialCompute must be Enabled, Disabled, \
           AMDEncryptedVirtualization, AMDEncryptedVirtualizationNestedPaging, or IntelTrustedDomainExtensions.",
        ],
    );
}

#[test]
fn gcp_disks_have_a_size_and_a_type() {
    let check =
        |disk: Value, expected: &[&str]| check_errors(GCP, valid(), json!({"disks": [disk]}), expected);
    for size in [0, 16, 65536] {
        check(json!({"sizeGb": size}), &[]);
    }
    for size in [-1, 15] {
        let text =
            format!("providerSpec.disks[0].sizeGb: Invalid value: {size}: must be at least 16GB in size");
        check(json!({"sizeGb": size}), &[&text]);
    }
    check(
        json!({"sizeGb": 65537}),
        &[
            "providerSpec.disks[0].sizeGb: Invalid value: 65537: exceeding maximum GCP disk size limit, must be below 65536",
        ],
    );
    for kind in ["", "pd-standard", "pd-ssd", "pd-balanced", "hyperdisk-balanced"] {
        check(json!({"type": kind}), &[]);
    }
    check(
        json!({"type": "floppy"}),
        &[
            "providerSpec.disks[0].type: Unsupported value: \"floppy\": supported values: \"hyperdisk-balanced\", \"pd-balanced\", \"pd-ssd\", \
           \"pd-standard\"",
        ],
    );
}

#[test]
fn gcp_has_one_service_account_or_a_warning() {
    check_warnings(
        GCP,
        valid(),
        json!({"serviceAccounts": []}),
        &[
            "providerSpec.serviceAccounts: no service account provided: nodes may be unable to join the cluster",
        ],
    );
    check_errors(
        GCP,
        valid(),
        json!({"serviceAccounts": [{}]}),
        &[
            "providerSpec.serviceAccounts[0].email: Required value: email is required",
            "providerSpec.serviceAccounts[0].scopes: Required value: at least 1 scope is required",
        ],
    );
    check_errors(
        GCP,
        valid(),
        json!({"serviceAccounts": [{}, {}]}),
        &[
            "providerSpec.serviceAccounts: Invalid value: \"2 service accounts supplied\": exactly 1 service account must be supplied",
        ],
    );
}
