//! The rules of Azure.

use serde_json::{Value, json};

use crate::webhooks::facts::{Architecture, Platform, PlatformFacts};
use crate::webhooks::tests::rules::{
    check_defaults, check_defaults_of, check_errors, check_warnings, errors_of, facts,
};

const AZURE: Platform = Platform::Azure;

fn valid() -> Value {
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "AzureMachineProviderSpec",
        "vmSize": "Standard_D4s_v5", "vnet": "v", "subnet": "s", "image": {"resourceID": "/i"},
        "osDisk": {"diskSizeGB": 128}, "userDataSecret": {"name": "u"},
        "credentialsSecret": {"name": "c", "namespace": "n"}
    })
}

#[test]
fn azure_defaults_are_size_network_image_and_secrets() {
    let complete = |size: &str, image: Value| {
        json!({
            "vmSize": size, "vnet": "c1-vnet", "subnet": "c1-worker-subnet", "image": image,
            "userDataSecret": {"name": "worker-user-data"},
            "credentialsSecret": {"name": "azure-cloud-credentials", "namespace": "openshift-machine-api"}
        })
    };
    let image =
        |sku: &str| json!({"publisher": "azureopenshift", "offer": "aro4", "sku": sku, "version": "latest"});
    check_defaults(AZURE, json!({}), complete("Standard_D4s_V3", image("aro_417")));
    let arm = PlatformFacts { architecture: Architecture::Arm64, ..facts(AZURE) };
    let empty = json!({"userDataSecret": {"name": ""}, "credentialsSecret": {}, "image": {"resourceID": ""}});
    check_defaults_of(&arm, empty, complete("Standard_D4ps_V5", image("aro_417-arm")));
    check_defaults(AZURE, valid(), valid());
}

#[test]
fn azure_machines_with_a_security_profile_boot_from_the_gallery() {
    let facts = PlatformFacts { cluster_id: Some("my-cluster".to_owned()), ..facts(AZURE) };
    let mut given = valid();
    given["image"] = json!({});
    given["securityProfile"] = json!({"settings": {}});
    let mut expected = given.clone();
    expected["image"] = json!({
        "resourceID": "/resourceGroups/my-cluster-rg/providers/Microsoft.Compute/galleries/gallery_my_cluster/images/my-cluster-gen2/versions/latest"
    });
    check_defaults_of(&facts, given, expected);
}

#[test]
fn azure_network_is_not_completed_by_halves() {
    let mut given = valid();
    given.as_object_mut().unwrap().remove("subnet");
    check_defaults(AZURE, given.clone(), given);
    check_errors(
        AZURE,
        valid(),
        json!({"subnet": null}),
        &["providerSpec.subnet: Required value: must provide a subnet when a virtual network is specified"],
    );
    check_errors(
        AZURE,
        valid(),
        json!({"vnet": ""}),
        &["providerSpec.vnet: Required value: must provide a virtual network when supplying subnets"],
    );
    check_errors(AZURE, valid(), json!({"vnet": null, "subnet": null}), &[]);
}

#[test]
fn azure_needs_size_image_secrets_and_disk() {
    check_errors(AZURE, valid(), json!({}), &[]);
    check_errors(
        AZURE,
        valid(),
        json!({"vmSize": null, "image": null, "userDataSecret": null, "credentialsSecret": null, "osDisk": null}),
        &[
            "providerSpec.vmSize: Required value: vmSize should be set to one of the supported Azure VM sizes",
            "providerSpec.image: Required value: an image reference must be provided",
            "providerSpec.userDataSecret: Required value: userDataSecret must be provided",
            "providerSpec.credentialsSecret: Required value: credentialsSecret must be provided",
            "providerSpec.osDisk.diskSizeGB: Invalid value: 0: diskSizeGB must be greater than zero and less than 32768",
        ],
    );
    check_errors(
        AZURE,
        valid(),
        json!({"userDataSecret": {"name": ""}, "credentialsSecret": {"name": "", "namespace": ""}}),
        &[
            "providerSpec.userDataSecret.name: Required value: name must be provided",
            "providerSpec.credentialsSecret.namespace: Required value: namespace must be provided",
            "providerSpec.credentialsSecret.name: Required value: name must be provided",
        ],
    );
}

#[test]
fn azure_public_addresses_need_a_public_dns_zone() {
    check_errors(AZURE, valid(), json!({"publicIP": true}), &[]);
    let disconnected = PlatformFacts { is_dns_disconnected: true, ..facts(AZURE) };
    assert_eq!(
        errors_of(&disconnected, valid(), &json!({"publicIP": true})),
        [
            "providerSpec.publicIP: Forbidden: publicIP is not allowed in Azure disconnected installation with publish strategy as internal"
        ]
    );
    assert_eq!(errors_of(&disconnected, valid(), &json!({})), [""; 0]);
}

#[test]
fn azure_images_are_an_id_or_a_whole_reference() {
    let image = |image: Value| json!({"image": image});
    let whole =
        json!({"resourceID": null, "offer": "o", "publisher": "p", "sku": "s", "version": "v", "type": "t"});
    check_errors(AZURE, valid(), image(whole), &[]);
    check_errors(
        AZURE,
        valid(),
        image(json!({"offer": "o"})),
        &[
            "providerSpec.image.resourceID: Required value: resourceID is already specified, other fields such as [Offer, Publisher, SKU, \
           Version] should not be set",
        ],
    );
    check_errors(
        AZURE,
        valid(),
        image(json!({"resourceID": null, "type": "t"})),
        &[
            "providerSpec.image.Offer: Required value: Offer must be provided",
            "providerSpec.image.Publisher: Required value: Publisher must be provided",
            "providerSpec.image.SKU: Required value: SKU must be provided",
            "providerSpec.image.Version: Required value: Version must be provided",
        ],
    );
}

#[test]
fn azure_os_disks_are_smaller_than_32_tib() {
    check_errors(AZURE, valid(), json!({"osDisk": {"diskSizeGB": 32767}}), &[]);
    for size in [-1, 0, 32768] {
        let text = format!(
            "providerSpec.osDisk.diskSizeGB: Invalid value: {size}: diskSizeGB must be greater than zero and less than 32768"
        );
        check_errors(AZURE, valid(), json!({"osDisk": {"diskSizeGB": size}}), &[&text]);
    }
}

#[test]
fn azure_ephemeral_disks_are_local_and_read_only() {
    let disk = |caching: &str, location: &str| json!({"osDisk": {"cachingType": caching, "diskSettings": {"ephemeralStorageLocation": location}}});
    for caching in ["", "None", "ReadOnly", "ReadWrite"] {
        check_errors(AZURE, valid(), disk(caching, ""), &[]);
    }
    check_errors(AZURE, valid(), disk("ReadOnly", "Local"), &[]);
    check_errors(
        AZURE,
        valid(),
        disk("", "Local"),
        &[
            "providerSpec.osDisk.cachingType: Invalid value: \"\": Instances using an ephemeral OS disk support only Readonly caching",
        ],
    );
    check_errors(
        AZURE,
        valid(),
        disk("Fast", "Remote"),
        &[
            "providerSpec.osDisk.diskSettings.ephemeralStorageLocation: Invalid value: \"Remote\": \
             osDisk.diskSettings.ephemeralStorageLocation can either be omitted or set to Local",
            "providerSpec.osDisk.cachingType: Invalid value: \"Fast\": osDisk.cachingType can be only None, ReadOnly, ReadWrite or omitted",
        ],
    );
}

#[test]
fn azure_ultra_disks_and_reservation_groups_are_checked() {
    for capability in ["", "Enabled", "Disabled"] {
        check_errors(AZURE, valid(), json!({"ultraSSDCapability": capability}), &[]);
    }
    let group =
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/c";
    check_errors(AZURE, valid(), json!({"capacityReservationGroupID": group}), &[]);
    check_errors(
        AZURE,
        valid(),
        json!({"ultraSSDCapability": "Maybe", "capacityReservationGroupID": "group"}),
        &[
            "providerSpec.capacityReservationGroupID: Invalid value: \"group\": invalid resource ID: resource id 'group' must start with '/'",
            "providerSpec.ultraSSDCapability: Invalid value: \"Maybe\": ultraSSDCapability can be only Enabled, Disabled or omitted",
        ],
    );
}

fn confidential(encryption: &str, at_host: bool, uefi: Value) -> Value {
    json!({
        "osDisk": {"managedDisk": {"securityProfile": {"securityEncryptionType": encryption}}},
        "securityProfile": {
            "encryptionAtHost": at_host,
            "settings": {"securityType": "ConfidentialVM", "confidentialVM": {"uefiSettings": uefi}}
        }
    })
}

#[test]
fn azure_confidential_machines_need_encryption_and_a_trusted_platform_module() {
    let module = json!({"virtualizedTrustedPlatformModule": "Enabled"});
    check_errors(AZURE, valid(), confidential("VMGuestStateOnly", true, module.clone()), &[]);
    check_errors(
        AZURE,
        valid(),
        confidential("", false, module),
        &[
            "providerSpec.osDisk.managedDisk.securityProfile.securityEncryptionType: Required value: securityEncryptionType should be set when \
           securityType is set to ConfidentialVM.",
        ],
    );
    check_errors(
        AZURE,
        valid(),
        confidential("VMGuestStateOnly", false, json!({"virtualizedTrustedPlatformModule": "Disabled"})),
        &[
            "providerSpec.securityProfile.settings.confidentialVM.uefiSettings.virtualizedTrustedPlatformModule: Invalid value: \"Disabled\": \
           virtualizedTrustedPlatformModule should be enabled when securityType is set to ConfidentialVM.",
        ],
    );
    let mut change = confidential("VMGuestStateOnly", false, json!({}));
    change["securityProfile"]["settings"]["confidentialVM"] = Value::Null;
    check_errors(
        AZURE,
        valid(),
        change,
        &[
            "providerSpec.securityProfile.settings.confidentialVM: Required value: confidentialVM should be set when securityType is set to \
           ConfidentialVM.",
        ],
    );
}

#[test]
fn azure_guest_state_encryption_excludes_the_host_and_needs_secure_boot() {
    let uefi = json!({"virtualizedTrustedPlatformModule": "Enabled", "secureBoot": "Enabled"});
    check_errors(AZURE, valid(), confidential("DiskWithVMGuestState", false, uefi.clone()), &[]);
    check_errors(
        AZURE,
        valid(),
        confidential("DiskWithVMGuestState", true, uefi),
        &[
            "providerSpec.securityProfile.encryptionAtHost: Invalid value: true: encryptionAtHost cannot be set to true when \
           securityEncryptionType is set to DiskWithVMGuestState.",
        ],
    );
    check_errors(
        AZURE,
        valid(),
        confidential("DiskWithVMGuestState", false, json!({"virtualizedTrustedPlatformModule": "Enabled"})),
        &[
            "providerSpec.securityProfile.settings.confidentialVM.uefiSettings.secureBoot: Invalid value: \"\": secureBoot should be enabled \
           when securityEncryptionType is set to DiskWithVMGuestState.",
        ],
    );
}

#[test]
fn azure_trusted_launch_and_encryption_need_their_security_type() {
    let launch = |kind: &str, launch: Value| json!({"securityProfile": {"settings": {"securityType": kind, "trustedLaunch": launch}}});
    let enabled = json!({"uefiSettings": {"secureBoot": "Enabled"}});
    check_errors(AZURE, valid(), launch("TrustedLaunch", enabled.clone()), &[]);
    check_errors(AZURE, valid(), launch("", json!({"uefiSettings": {"secureBoot": "Disabled"}})), &[]);
    check_errors(
        AZURE,
        valid(),
        launch("TrustedLaunch", Value::Null),
        &[
            "providerSpec.securityProfile.settings.trustedLaunch: Required value: trustedLaunch should be set when securityType is set to \
           TrustedLaunch.",
        ],
    );
    check_errors(
        AZURE,
        valid(),
        launch("", enabled),
        &[
            "providerSpec.securityProfile.settings.securityType: Invalid value: \"\": securityType should be set to TrustedLaunch when \
           uefiSettings are enabled.",
        ],
    );
    let encrypted = json!({"osDisk": {"managedDisk": {"securityProfile": {"securityEncryptionType": "VMGuestStateOnly"}}}});
    check_errors(
        AZURE,
        valid(),
        encrypted.clone(),
        &["providerSpec.securityProfile: Required value: securityProfile should be set when \
           osDisk.managedDisk.securityProfile.securityEncryptionType is defined."],
    );
    let mut spec = valid();
    json_patch::merge(&mut spec, &encrypted);
    check_errors(
        AZURE,
        spec,
        launch("Standard", Value::Null),
        &[
            "providerSpec.securityProfile.settings.securityType: Invalid value: \"Standard\": securityType should be set to ConfidentialVM \
           when securityEncryptionType is defined.",
        ],
    );
}

fn disk(suffix: &str, lun: i32) -> Value {
    json!({"nameSuffix": suffix, "diskSizeGB": 4, "lun": lun, "deletionPolicy": "Delete"})
}

#[test]
fn azure_data_disks_have_valid_and_unique_names() {
    let check = |suffix: &str, detail: &str| {
        let text = format!("providerSpec.dataDisks[0].nameSuffix: Invalid value: {suffix:?}: {detail}");
        check_errors(AZURE, valid(), json!({"dataDisks": [disk(suffix, 0)]}), &[&text]);
    };
    for suffix in ["a", "a_b.c-D9", "0"] {
        check_errors(AZURE, valid(), json!({"dataDisks": [disk(suffix, 0)]}), &[]);
    }
    let form = "nameSuffix must be provided, must start and finish with an alphanumeric character and can only contain letters, numbers, \
                underscores, periods or hyphens";
    for suffix in ["", "-a", "a_", "a b", "ä"] {
        check(suffix, form);
    }
    // The Machine is m1: 3 characters of the name.
    check_errors(AZURE, valid(), json!({"dataDisks": [disk(&"d".repeat(77), 0)]}), &[]);
    check(&"d".repeat(78), "too long, the overall disk name must not exceed 80 chars");
    check_errors(
        AZURE,
        valid(),
        json!({"dataDisks": [disk("a", 0), disk("a", 1)]}),
        &[
            "providerSpec.dataDisks[1].nameSuffix: Invalid value: \"a\": each Data Disk must have a unique nameSuffix",
        ],
    );
}

#[test]
fn azure_data_disks_have_sizes_and_unique_luns() {
    check_errors(AZURE, valid(), json!({"dataDisks": [disk("a", 0), disk("b", 63)]}), &[]);
    check_errors(
        AZURE,
        valid(),
        json!({"dataDisks": [
            {"nameSuffix": "a", "diskSizeGB": 3, "lun": -1, "deletionPolicy": "Detach"}, disk("b", 64), disk("c", 64)
        ]}),
        &[
            "providerSpec.dataDisks[0].diskSizeGB: Invalid value: 3: diskSizeGB must be provided and at least 4GB in size",
            "providerSpec.dataDisks[0].lun: Invalid value: -1: must be greater than or equal to 0 and less than 64",
            "providerSpec.dataDisks[1].lun: Invalid value: 64: must be greater than or equal to 0 and less than 64",
            "providerSpec.dataDisks[2].lun: Invalid value: 64: must be greater than or equal to 0 and less than 64",
            "providerSpec.dataDisks[2].lun: Invalid value: 64: each Data Disk must have a unique lun",
        ],
    );
}

#[test]
fn azure_data_disks_need_a_deletion_policy_and_ultra_disks_no_cache() {
    let change = |field: &str, value: Value| {
        let mut disk = disk("a", 0);
        disk[field] = value;
        json!({"dataDisks": [disk]})
    };
    check_errors(
        AZURE,
        valid(),
        change("deletionPolicy", Value::Null),
        &[
            "providerSpec.dataDisks[0].deletionPolicy: Required value: deletionPolicy must be provided and must be either Delete or Detach",
        ],
    );
    check_errors(
        AZURE,
        valid(),
        change("deletionPolicy", json!("Keep")),
        &[
            "providerSpec.dataDisks[0].deletionPolicy: Invalid value: \"Keep\": must be either Delete or Detach",
        ],
    );
    let ultra = |caching: &str| {
        let mut disk = disk("a", 0);
        disk["managedDisk"] = json!({"storageAccountType": "UltraSSD_LRS"});
        disk["cachingType"] = json!(caching);
        json!({"dataDisks": [disk]})
    };
    check_errors(AZURE, valid(), ultra("None"), &[]);
    check_errors(AZURE, valid(), ultra(""), &[]);
    check_errors(
        AZURE,
        valid(),
        ultra("ReadOnly"),
        &[
            "providerSpec.dataDisks[0].cachingType: Invalid value: \"ReadOnly\": must be \"None\" or omitted when storageAccountType is \
           \"UltraSSD_LRS\"",
        ],
    );
}

#[test]
fn azure_boot_diagnostics_need_the_storage_of_their_type() {
    let check = |kind: &str, storage: Value, expected: &[&str]| {
        let boot = json!({"storageAccountType": kind, "customerManaged": storage});
        check_errors(AZURE, valid(), json!({"diagnostics": {"boot": boot}}), expected);
    };
    let storage = json!({"storageAccountURI": "https://x"});
    check("AzureManaged", Value::Null, &[]);
    check("CustomerManaged", storage.clone(), &[]);
    check(
        "CustomerManaged",
        Value::Null,
        &[
            "providerSpec.diagnostics.boot.customerManaged: Required value: customerManaged configuration must be provided",
        ],
    );
    check(
        "CustomerManaged",
        json!({}),
        &[
            "providerSpec.diagnostics.boot.customerManaged.storageAccountURI: Required value: storageAccountURI must be provided",
        ],
    );
    check(
        "AzureManaged",
        storage,
        &[
            "providerSpec.diagnostics.boot.customerManaged: Invalid value: {\"storageAccountURI\":\"https://x\"}: customerManaged may not be \
           set when type is AzureManaged",
        ],
    );
    check(
        "Other",
        Value::Null,
        &[
            "providerSpec.diagnostics.boot.storageAccountType: Invalid value: \"Other\": storageAccountType must be one of: AzureManaged, \
           CustomerManaged",
        ],
    );
}

#[test]
fn azure_spot_machines_in_a_government_cloud_are_a_warning() {
    check_warnings(AZURE, valid(), json!({"spotVMOptions": {"maxPrice": "-1"}}), &[]);
    let government = PlatformFacts { is_azure_government: true, ..facts(AZURE) };
    let mut spec = valid();
    spec["spotVMOptions"] = json!({});
    let machine = crate::webhooks::tests::rules::machine(spec);
    let verdict =
        crate::webhooks::validate(crate::webhooks::WebhookKind::Machine, None, &machine, &government);
    assert_eq!(verdict.warnings, ["spot VMs may not be supported when using GovCloud region"]);
}
