//! Confidential virtual machines and trusted launch. The first violated rule is reported: the others depend on it.

use super::spec::{AzureSpec, SecurityProfile, VmSecurity};
use crate::webhooks::field::FieldError;

const PATH: &str = "providerSpec.securityProfile";
const ENCRYPTION_TYPE: &str = "providerSpec.osDisk.managedDisk.securityProfile.securityEncryptionType";
const GUEST_STATE: &str = "DiskWithVMGuestState";

pub(super) fn validate(spec: &AzureSpec) -> Result<(), FieldError> {
    let encryption = spec.os_disk.managed_disk.security_profile.security_encryption_type.as_str();
    let Some(profile) = &spec.security_profile else {
        if encryption.is_empty() {
            return Ok(());
        }
        let detail = "securityProfile should be set when osDisk.managedDisk.securityProfile.securityEncryptionType is defined.";
        return Err(FieldError::required(PATH, detail));
    };
    match profile.settings.security_type.as_str() {
        "ConfidentialVM" => validate_confidential(profile, encryption),
        "TrustedLaunch" => {
            profile.settings.trusted_launch.as_ref().map(|_| ()).ok_or_else(|| {
                let detail = "trustedLaunch should be set when securityType is set to TrustedLaunch.";
                FieldError::required(format!("{PATH}.settings.trustedLaunch"), detail)
            })?;
            validate_plain(profile, encryption)
        }
        _ => validate_plain(profile, encryption),
    }
}

fn validate_confidential(profile: &SecurityProfile, encryption: &str) -> Result<(), FieldError> {
    if encryption.is_empty() {
        let detail = "securityEncryptionType should be set when securityType is set to ConfidentialVM.";
        return Err(FieldError::required(ENCRYPTION_TYPE, detail));
    }
    let path = format!("{PATH}.settings.confidentialVM");
    let Some(VmSecurity { uefi_settings }) = &profile.settings.confidential_vm else {
        let detail = "confidentialVM should be set when securityType is set to ConfidentialVM.";
        return Err(FieldError::required(path, detail));
    };
    let module = uefi_settings.virtualized_trusted_platform_module.as_str();
    if module != "Enabled" {
        return Err(FieldError::invalid(
            format!("{path}.uefiSettings.virtualizedTrustedPlatformModule"),
            module,
            "virtualizedTrustedPlatformModule should be enabled when securityType is set to ConfidentialVM.",
        ));
    }
    if encryption != GUEST_STATE {
        return Ok(());
    }
    if profile.encryption_at_host == Some(true) {
        let detail = format!(
            "encryptionAtHost cannot be set to true when securityEncryptionType is set to {GUEST_STATE}."
        );
        return Err(FieldError::invalid(format!("{PATH}.encryptionAtHost"), true, detail));
    }
    if uefi_settings.secure_boot != "Enabled" {
        return Err(FieldError::invalid(
            format!("{path}.uefiSettings.secureBoot"),
            uefi_settings.secure_boot.as_str(),
            format!("secureBoot should be enabled when securityEncryptionType is set to {GUEST_STATE}."),
        ));
    }
    Ok(())
}

/// The rules of all types but the confidential one.
fn validate_plain(profile: &SecurityProfile, encryption: &str) -> Result<(), FieldError> {
    let security_type = profile.settings.security_type.as_str();
    let invalid = |detail: &str| {
        Err(FieldError::invalid(format!("{PATH}.settings.securityType"), security_type, detail))
    };
    if !encryption.is_empty() {
        return invalid(
            "securityType should be set to ConfidentialVM when securityEncryptionType is defined.",
        );
    }
    let has_uefi_settings = profile.settings.trusted_launch.as_ref().is_some_and(|launch| {
        let settings = &launch.uefi_settings;
        settings.secure_boot == "Enabled" || settings.virtualized_trusted_platform_module == "Enabled"
    });
    if has_uefi_settings && security_type != "TrustedLaunch" {
        return invalid("securityType should be set to TrustedLaunch when uefiSettings are enabled.");
    }
    Ok(())
}
