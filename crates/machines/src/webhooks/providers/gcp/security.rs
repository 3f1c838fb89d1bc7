//! Shielded instances and confidential computing of Google Cloud.

use super::super::is_empty_or;
use super::spec::{GcpSpec, ShieldedInstanceConfig};
use crate::webhooks::field::FieldError;
use crate::webhooks::verdict::Verdict;

const SEV: &str = "AMDEncryptedVirtualization";
const SEV_SNP: &str = "AMDEncryptedVirtualizationNestedPaging";
const TDX: &str = "IntelTrustedDomainExtensions";

pub(super) fn validate_shielded(config: &ShieldedInstanceConfig, verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.shieldedInstanceConfig";
    let module = config.virtualized_trusted_platform_module.as_str();
    let options = [
        ("secureBoot", config.secure_boot.as_str()),
        ("integrityMonitoring", config.integrity_monitoring.as_str()),
        ("virtualizedTrustedPlatformModule", module),
    ];
    for (field, value) in options {
        verdict.require(is_empty_or(value, &["Enabled", "Disabled"]), || {
            let detail = format!("{field} must be either Enabled or Disabled.");
            FieldError::invalid(format!("{PATH}.{field}"), value, detail)
        });
    }
    verdict.require(module != "Disabled" || config.integrity_monitoring == "Disabled", || {
        FieldError::invalid(
            format!("{PATH}.virtualizedTrustedPlatformModule"),
            module,
            "integrityMonitoring requires virtualizedTrustedPlatformModule Enabled.",
        )
    });
}

pub(super) fn validate_confidential(spec: &GcpSpec, verdict: &mut Verdict) {
    let technology = spec.confidential_compute.as_str();
    let families: &[&str] = match technology {
        "" | "Disabled" => return,
        "Enabled" | SEV => &["n2d", "c2d", "c3d"],
        SEV_SNP => &["n2d"],
        TDX => &["c3"],
        other => {
            let detail =
                format!("ConfidentialCompute must be Enabled, Disabled, {SEV}, {SEV_SNP}, or {TDX}.");
            return verdict.error(FieldError::invalid("providerSpec.confidentialCompute", other, detail));
        }
    };
    let maintenance = spec.on_host_maintenance.as_str();
    verdict.require(maintenance == "Terminate", || {
        FieldError::invalid(
            "providerSpec.onHostMaintenance",
            maintenance,
            format!(
                "ConfidentialCompute require OnHostMaintenance to be set to Terminate, the current value is: {maintenance}"
            ),
        )
    });
    let machine_type = spec.machine_type.as_str();
    let family = machine_type.split('-').next().unwrap_or_default();
    verdict.require(families.contains(&family), || {
        FieldError::invalid(
            "providerSpec.machineType",
            machine_type,
            format!(
                "ConfidentialCompute require machine type in the following series: {}",
                families.join(",")
            ),
        )
    });
}
