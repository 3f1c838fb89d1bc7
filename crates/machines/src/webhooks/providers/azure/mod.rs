//! Microsoft Azure.

mod disks;
mod resource_id;
mod security;
mod spec;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use super::{MachineIdentity, USER_DATA_SECRET, check_credentials, is_empty_or};
use crate::webhooks::facts::PlatformFacts;
use crate::webhooks::field::FieldError;
use crate::webhooks::provider_spec::{ExpectedType, object, set_if_empty};
use crate::webhooks::verdict::Verdict;

pub(crate) use spec::AzureSpec;
use spec::{BootDiagnostics, Image, SecretReference};

const TYPE: ExpectedType =
    ExpectedType { kind: "AzureMachineProviderSpec", earlier_group: "azureproviderconfig.openshift.io" };

const CREDENTIALS_SECRET: &str = "azure-cloud-credentials";
const CREDENTIALS_NAMESPACE: &str = "openshift-machine-api";

/// The image of the marketplace that machines boot from by default.
const PUBLISHER: &str = "azureopenshift";
const OFFER: &str = "aro4";
const SKU_AMD64: &str = "aro_417";
const SKU_ARM64: &str = "aro_417-arm";
const VERSION: &str = "latest";

pub(crate) fn set_defaults(spec: &AzureSpec, fields: &mut Map<String, Value>, facts: &PlatformFacts) {
    set_if_empty(fields, "vmSize", facts.by_architecture("Standard_D4s_V3", "Standard_D4ps_V5"));
    // One without the other is an error that the user has to mend.
    if spec.vnet.is_empty() && spec.subnet.is_empty() {
        fields.insert("vnet".to_owned(), facts.resource_name("vnet").into());
        fields.insert("subnet".to_owned(), facts.resource_name("worker-subnet").into());
    }
    if spec.image == Image::default() {
        fields.insert("image".to_owned(), default_image(spec, facts));
    }
    if let Some(secret) = object(fields, "userDataSecret") {
        set_if_empty(secret, "name", USER_DATA_SECRET);
    }
    if let Some(secret) = object(fields, "credentialsSecret") {
        set_if_empty(secret, "name", CREDENTIALS_SECRET);
        set_if_empty(secret, "namespace", CREDENTIALS_NAMESPACE);
    }
}

/// The image of the marketplace; with a security profile the one of the second generation that the installer uploaded.
fn default_image(spec: &AzureSpec, facts: &PlatformFacts) -> Value {
    if spec.security_profile.is_none() {
        let sku = facts.by_architecture(SKU_AMD64, SKU_ARM64);
        return json!({ "publisher": PUBLISHER, "offer": OFFER, "sku": sku, "version": VERSION });
    }
    let group = facts.resource_name("rg");
    let gallery = facts.cluster_id.as_deref().unwrap_or_default().replace('-', "_");
    let image = facts.resource_name("gen2");
    json!({ "resourceID": format!(
        "/resourceGroups/{group}/providers/Microsoft.Compute/galleries/gallery_{gallery}/images/{image}/versions/latest"
    ) })
}

pub(crate) fn validate(
    spec: &AzureSpec,
    machine: MachineIdentity<'_>,
    facts: &PlatformFacts,
    verdict: &mut Verdict,
) {
    if let Some(warning) = TYPE.warning(&spec.api_version, &spec.kind) {
        verdict.warn(warning);
    }
    verdict.require(!spec.vm_size.is_empty(), || {
        FieldError::required(
            "providerSpec.vmSize",
            "vmSize should be set to one of the supported Azure VM sizes",
        )
    });
    verdict.require(!(spec.public_ip && facts.is_dns_disconnected), || {
        let detail =
            "publicIP is not allowed in Azure disconnected installation with publish strategy as internal";
        FieldError::forbidden("providerSpec.publicIP", detail)
    });
    verdict.require(spec.vnet.is_empty() || !spec.subnet.is_empty(), || {
        let detail = "must provide a subnet when a virtual network is specified";
        FieldError::required("providerSpec.subnet", detail)
    });
    verdict.require(spec.subnet.is_empty() || !spec.vnet.is_empty(), || {
        FieldError::required("providerSpec.vnet", "must provide a virtual network when supplying subnets")
    });
    validate_image(&spec.image, verdict);
    validate_secrets(spec, verdict);
    disks::validate_os_disk(&spec.os_disk, verdict);
    if let Err(error) = resource_id::validate(&spec.capacity_reservation_group_id) {
        let value = spec.capacity_reservation_group_id.as_str();
        verdict.error(FieldError::invalid("providerSpec.capacityReservationGroupID", value, error));
    }
    verdict.require(is_empty_or(&spec.ultra_ssd_capability, &["Enabled", "Disabled"]), || {
        FieldError::invalid(
            "providerSpec.ultraSSDCapability",
            spec.ultra_ssd_capability.as_str(),
            "ultraSSDCapability can be only Enabled, Disabled or omitted",
        )
    });
    if let Err(error) = security::validate(spec) {
        verdict.error(error);
    }
    disks::validate_data_disks(machine.name, &spec.data_disks, verdict);
    if let Some(boot) = &spec.diagnostics.boot {
        validate_boot_diagnostics(boot, verdict);
    }
    verdict.warn_if(facts.is_azure_government && spec.spot_vm_options.is_some(), || {
        "spot VMs may not be supported when using GovCloud region".to_owned()
    });
}

fn validate_image(image: &Image, verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.image";
    if *image == Image::default() {
        return verdict.error(FieldError::required(PATH, "an image reference must be provided"));
    }
    let parts = [
        ("Offer", &image.offer),
        ("Publisher", &image.publisher),
        ("SKU", &image.sku),
        ("Version", &image.version),
    ];
    if image.resource_id.is_empty() {
        for (name, _) in parts.iter().filter(|(_, value)| value.is_empty()) {
            let detail = format!("{name} must be provided");
            verdict.error(FieldError::required(format!("{PATH}.{name}"), detail));
        }
        return;
    }
    let is_alone = parts.iter().all(|(_, value)| value.is_empty()) && image.r#type.is_empty();
    verdict.require(is_alone, || {
        let detail =
            "resourceID is already specified, other fields such as [Offer, Publisher, SKU, Version] should not be set";
        FieldError::required(format!("{PATH}.resourceID"), detail)
    });
}

fn validate_secrets(spec: &AzureSpec, verdict: &mut Verdict) {
    let required = |path: &str, field: &str| {
        FieldError::required(format!("providerSpec.{path}"), format!("{field} must be provided"))
    };
    match &spec.user_data_secret {
        None => verdict.error(required("userDataSecret", "userDataSecret")),
        Some(secret) => {
            verdict.require(!secret.name.is_empty(), || required("userDataSecret.name", "name"));
        }
    }
    match &spec.credentials_secret {
        None => verdict.error(required("credentialsSecret", "credentialsSecret")),
        Some(SecretReference { name, namespace }) => {
            verdict.require(!namespace.is_empty(), || required("credentialsSecret.namespace", "namespace"));
            verdict.require(!name.is_empty(), || required("credentialsSecret.name", "name"));
            if !namespace.is_empty() {
                check_credentials(Some(name), namespace, verdict);
            }
        }
    }
}

fn validate_boot_diagnostics(boot: &BootDiagnostics, verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.diagnostics.boot";
    let customer_managed = format!("{PATH}.customerManaged");
    match (boot.storage_account_type.as_str(), &boot.customer_managed) {
        ("CustomerManaged", None) => {
            let detail = "customerManaged configuration must be provided";
            verdict.error(FieldError::required(customer_managed, detail));
        }
        ("CustomerManaged", Some(storage)) => {
            verdict.require(!storage.storage_account_uri.is_empty(), || {
                let path = format!("{customer_managed}.storageAccountURI");
                FieldError::required(path, "storageAccountURI must be provided")
            });
        }
        ("AzureManaged", Some(storage)) => {
            let value = json!({ "storageAccountURI": storage.storage_account_uri });
            let detail = "customerManaged may not be set when type is AzureManaged";
            verdict.error(FieldError::invalid(customer_managed, value, detail));
        }
        ("AzureManaged", None) => {}
        (other, _) => verdict.error(FieldError::invalid(
            format!("{PATH}.storageAccountType"),
            other,
            "storageAccountType must be one of: AzureManaged, CustomerManaged",
        )),
    }
}
