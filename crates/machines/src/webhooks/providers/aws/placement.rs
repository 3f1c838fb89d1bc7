//! Where an instance of AWS is placed: tenancy, dedicated hosts and placement groups.

use std::sync::LazyLock;

use regex::Regex;

use super::super::{MachineIdentity, is_empty_or};
use super::spec::{AwsSpec, DedicatedHost, HostPlacement};
use crate::webhooks::field::FieldError;
use crate::webhooks::verdict::Verdict;

const HOST: &str = "providerSpec.placement.host";
const DEDICATED_HOST: &str = "providerSpec.placement.host.dedicatedHost";

/// The most tags of a host that AWS allocates.
const HOST_TAGS_MAX: usize = 50;

static HOST_ID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^h-([0-9a-f]{8}|[0-9a-f]{17})$").expect("a valid expression"));

pub(super) fn validate(spec: &AwsSpec, machine: MachineIdentity<'_>, verdict: &mut Verdict) {
    let tenancy = spec.placement.tenancy.as_str();
    verdict.require(is_empty_or(tenancy, &["default", "dedicated", "host"]), || {
        FieldError::invalid(
            "providerSpec.tenancy",
            tenancy,
            "Invalid providerSpec.tenancy, the only allowed options are: default, dedicated, host",
        )
    });
    if let Some(host) = &spec.placement.host {
        if tenancy != "host" {
            verdict.error(FieldError::forbidden(HOST, "host may only be set when tenancy is host"));
        } else if machine.is_control_plane {
            let detail = "host may not be set for machines of the control plane";
            verdict.error(FieldError::forbidden(HOST, detail));
        } else {
            validate_host(host, verdict);
        }
    }
    validate_group(spec, verdict);
}

fn validate_host(host: &HostPlacement, verdict: &mut Verdict) {
    let path = format!("{HOST}.affinity");
    let affinity = match host.affinity.as_deref() {
        None | Some("") => {
            let detail = "affinity must be provided and be either AnyAvailable or DedicatedHost";
            return verdict.error(FieldError::required(path, detail));
        }
        Some(affinity @ ("AnyAvailable" | "DedicatedHost")) => affinity,
        Some(other) => {
            let detail = "affinity must be either AnyAvailable or DedicatedHost";
            return verdict.error(FieldError::invalid(path, other, detail));
        }
    };
    match &host.dedicated_host {
        None => verdict.require(affinity != "DedicatedHost", || {
            let detail = "dedicatedHost must be provided when affinity is DedicatedHost";
            FieldError::required(DEDICATED_HOST, detail)
        }),
        Some(dedicated) => validate_dedicated_host(dedicated, affinity, verdict),
    }
}

fn validate_dedicated_host(host: &DedicatedHost, affinity: &str, verdict: &mut Verdict) {
    let id_path = format!("{DEDICATED_HOST}.id");
    let allocation_path = format!("{DEDICATED_HOST}.dynamicHostAllocation");
    match host.allocation_strategy.as_deref().unwrap_or("UserProvided") {
        "UserProvided" => {
            if host.id.is_empty() {
                let detail = "id must be provided when allocationStrategy is UserProvided";
                verdict.error(FieldError::required(id_path, detail));
            } else if !HOST_ID.is_match(&host.id) {
                let detail = "must be h- followed by 8 or 17 lowercase hexadecimal digits";
                verdict.error(FieldError::invalid(id_path, host.id.as_str(), detail));
            }
            verdict.require(host.dynamic_host_allocation.is_none(), || {
                let detail = "dynamicHostAllocation may only be set when allocationStrategy is Dynamic";
                FieldError::forbidden(allocation_path, detail)
            });
        }
        "Dynamic" => {
            verdict.require(affinity == "DedicatedHost", || {
                let detail = "affinity must be DedicatedHost when allocationStrategy is Dynamic";
                FieldError::invalid(format!("{HOST}.affinity"), affinity, detail)
            });
            verdict.require(host.id.is_empty(), || {
                FieldError::forbidden(id_path, "id may not be set when allocationStrategy is Dynamic")
            });
            let Some(allocation) = &host.dynamic_host_allocation else { return };
            let count = allocation.tags.as_ref().map_or(0, Vec::len);
            let tags_path = format!("{allocation_path}.tags");
            if count == 0 {
                let detail = "at least one tag must be provided when dynamicHostAllocation is set";
                verdict.error(FieldError::required(tags_path, detail));
            } else if count > HOST_TAGS_MAX {
                verdict.error(FieldError::too_many(tags_path, count, HOST_TAGS_MAX));
            }
        }
        other => verdict.error(FieldError::invalid(
            format!("{DEDICATED_HOST}.allocationStrategy"),
            other,
            "allocationStrategy must be either UserProvided or Dynamic",
        )),
    }
}

fn validate_group(spec: &AwsSpec, verdict: &mut Verdict) {
    let Some(partition) = spec.placement_group_partition else { return };
    let path = "providerSpec.placementGroupPartition";
    verdict.require((1..=7).contains(&partition), || {
        FieldError::invalid(path, partition, "must be from 1 to 7")
    });
    verdict.require(!spec.placement_group_name.is_empty(), || {
        let detail = "placementGroupName must be provided when placementGroupPartition is set";
        FieldError::required("providerSpec.placementGroupName", detail)
    });
}
