//! The disks of a virtual machine of Azure.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::super::is_empty_or;
use super::spec::{DataDisk, OsDisk};
use crate::webhooks::field::FieldError;
use crate::webhooks::verdict::Verdict;

/// The first size of an operating system disk that is too large, in GB.
const OS_DISK_TOO_LARGE: i32 = 32_768;

/// The longest name of a disk.
const NAME_MAX: usize = 80;

static NAME_SUFFIX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-zA-Z0-9](?:[a-zA-Z0-9_.-]*[a-zA-Z0-9])?$").expect("a valid expression")
});

pub(super) fn validate_os_disk(disk: &OsDisk, verdict: &mut Verdict) {
    let (caching, location) =
        (disk.caching_type.as_str(), disk.disk_settings.ephemeral_storage_location.as_str());
    verdict.require(disk.disk_size_gb > 0 && disk.disk_size_gb < OS_DISK_TOO_LARGE, || {
        FieldError::invalid(
            "providerSpec.osDisk.diskSizeGB",
            disk.disk_size_gb,
            format!("diskSizeGB must be greater than zero and less than {OS_DISK_TOO_LARGE}"),
        )
    });
    verdict.require(is_empty_or(location, &["Local"]), || {
        FieldError::invalid(
            "providerSpec.osDisk.diskSettings.ephemeralStorageLocation",
            location,
            "osDisk.diskSettings.ephemeralStorageLocation can either be omitted or set to Local",
        )
    });
    let invalid_caching =
        |detail: &str| FieldError::invalid("providerSpec.osDisk.cachingType", caching, detail);
    verdict.require(is_empty_or(caching, &["None", "ReadOnly", "ReadWrite"]), || {
        invalid_caching("osDisk.cachingType can be only None, ReadOnly, ReadWrite or omitted")
    });
    verdict.require(location != "Local" || caching == "ReadOnly", || {
        invalid_caching("Instances using an ephemeral OS disk support only Readonly caching")
    });
}

pub(super) fn validate_data_disks(machine: &str, disks: &[DataDisk], verdict: &mut Verdict) {
    let (mut suffixes, mut luns) = (BTreeSet::new(), BTreeSet::new());
    for (index, disk) in disks.iter().enumerate() {
        let path = |field: &str| format!("providerSpec.dataDisks[{index}].{field}");
        let suffix = disk.name_suffix.as_str();
        let invalid_suffix = |detail: &str| FieldError::invalid(path("nameSuffix"), suffix, detail);
        // The name is MACHINE_SUFFIX.
        verdict.require(machine.len() + 1 + suffix.len() <= NAME_MAX, || {
            invalid_suffix("too long, the overall disk name must not exceed 80 chars")
        });
        verdict.require(NAME_SUFFIX.is_match(suffix), || {
            invalid_suffix(
                "nameSuffix must be provided, must start and finish with an alphanumeric character and can only contain letters, \
                 numbers, underscores, periods or hyphens",
            )
        });
        verdict.require(suffixes.insert(suffix), || {
            invalid_suffix("each Data Disk must have a unique nameSuffix")
        });
        verdict.require(disk.disk_size_gb >= 4, || {
            let detail = "diskSizeGB must be provided and at least 4GB in size";
            FieldError::invalid(path("diskSizeGB"), disk.disk_size_gb, detail)
        });
        verdict.require((0..=63).contains(&disk.lun), || {
            let detail = "must be greater than or equal to 0 and less than 64";
            FieldError::invalid(path("lun"), disk.lun, detail)
        });
        verdict.require(luns.insert(disk.lun), || {
            FieldError::invalid(path("lun"), disk.lun, "each Data Disk must have a unique lun")
        });
        match disk.deletion_policy.as_str() {
            "Delete" | "Detach" => {}
            "" => {
                let detail = "deletionPolicy must be provided and must be either Delete or Detach";
                verdict.error(FieldError::required(path("deletionPolicy"), detail));
            }
            other => {
                let detail = "must be either Delete or Detach";
                verdict.error(FieldError::invalid(path("deletionPolicy"), other, detail));
            }
        }
        let (storage, caching) =
            (disk.managed_disk.storage_account_type.as_str(), disk.caching_type.as_str());
        verdict.require(storage != "UltraSSD_LRS" || is_empty_or(caching, &["None"]), || {
            let detail = "must be \"None\" or omitted when storageAccountType is \"UltraSSD_LRS\"";
            FieldError::invalid(path("cachingType"), caching, detail)
        });
    }
}
