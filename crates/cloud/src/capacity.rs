//! Checks whether a subscription offers what a cluster needs: VM sizes, features, quotas, resource providers. Pure functions: the
//! frontend checks before it accepts a cluster, the backend again before it creates one, and both evaluate the responses here.

use std::collections::BTreeMap;

use api::rest::find_size;

use crate::{Availability, ProviderRegistration, Size, Usage};

/// Machines of the control plane, and the bootstrap machine.
const MASTERS: u64 = 3;
const BOOTSTRAP: u64 = 1;
/// Public addresses of the API server and the ingress, without those of outbound traffic.
const PUBLIC_IPS: u64 = 2;

/// The resource providers of a cluster, in the customer's subscription.
pub const CLUSTER_PROVIDERS: [&str; 4] =
    ["Microsoft.Authorization", "Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage"];

/// Those of the service's own resources besides: registry, vault, and the identities of clusters.
pub const SERVICE_PROVIDERS: [&str; 3] =
    ["Microsoft.ContainerRegistry", "Microsoft.KeyVault", "Microsoft.ManagedIdentity"];

/// The feature that encryption at host requires.
pub const ENCRYPTION_FEATURE: &str = "Microsoft.Compute/EncryptionAtHost";

/// The demand of one pool of machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The VM size.
    pub size: String,
    /// Whether encryption at host is requested.
    pub is_encrypted: bool,
    /// The request member that describes the pool.
    pub target: String,
    /// The number of machines.
    pub machines: u64,
}

impl Pool {
    /// The control plane of a cluster, with the bootstrap machine.
    pub fn masters(size: &str, is_encrypted: bool) -> Pool {
        let (size, target) = (size.to_owned(), "properties.masterProfile".to_owned());
        Pool { size, is_encrypted, target, machines: MASTERS + BOOTSTRAP }
    }

    /// The worker pool at an index of the cluster's list.
    pub fn workers(at: usize, size: &str, is_encrypted: bool, machines: u64) -> Pool {
        let target = format!("properties.workerProfiles[{at}]");
        Pool { size: size.to_owned(), is_encrypted, target, machines }
    }
}

/// The error code of a problem, as the API contract defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityCode {
    /// A size or a feature is unavailable.
    InvalidParameter,
    /// A quota does not suffice.
    ResourceQuotaExceeded,
    /// A resource provider is not registered.
    ResourceProviderNotRegistered,
}

impl CapacityCode {
    /// The code in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            CapacityCode::InvalidParameter => "InvalidParameter",
            CapacityCode::ResourceQuotaExceeded => "ResourceQuotaExceeded",
            CapacityCode::ResourceProviderNotRegistered => "ResourceProviderNotRegistered",
        }
    }
}

/// An unmet requirement of a cluster, with a message for the customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityProblem {
    /// The error code.
    pub code: CapacityCode,
    /// The reason, in a sentence.
    pub message: String,
    /// The request member that causes it.
    pub target: Option<String>,
}

/// The first size that the location does not offer as requested.
pub fn unavailable_size(sizes: &[Size], pools: &[Pool], location: &str) -> Option<CapacityProblem> {
    unavailable_sizes(sizes, pools, location).into_iter().next()
}

/// Each pool whose size the location does not offer as requested.
pub fn unavailable_sizes(sizes: &[Size], pools: &[Pool], location: &str) -> Vec<CapacityProblem> {
    let code = CapacityCode::InvalidParameter;
    let problem = |pool: &Pool| {
        let refused = |why: &str| {
            let message = format!("The selected SKU '{}' is {why} in location '{location}'.", pool.size);
            Some(CapacityProblem { code, message, target: Some(format!("{}.VMSize", pool.target)) })
        };
        let Some(size) = sizes.iter().find(|size| size.name.eq_ignore_ascii_case(&pool.size)) else {
            return refused("unavailable");
        };
        if let Availability::Restricted(restriction) = &size.availability {
            return refused(&format!("restricted ({})", restriction.reason));
        }
        if pool.is_encrypted && !size.encryption_at_host {
            let message = format!("The selected SKU '{}' does not support encryption at host.", pool.size);
            return Some(CapacityProblem {
                code,
                message,
                target: Some(format!("{}.encryptionAtHost", pool.target)),
            });
        }
        None
    };
    pools.iter().filter_map(problem).collect()
}

/// The problem of a subscription without [`ENCRYPTION_FEATURE`].
pub fn unregistered_feature() -> CapacityProblem {
    let message = format!(
        "The feature {ENCRYPTION_FEATURE} is not registered in the subscription; register it or disable encryption at host."
    );
    CapacityProblem { code: CapacityCode::InvalidParameter, message, target: None }
}

/// The first quota that does not suffice for the pools and the outbound addresses.
pub fn exceeded_quota(usages: &[Usage], pools: &[Pool], outbound_ips: u32) -> Option<CapacityProblem> {
    exceeded_quotas(usages, pools, outbound_ips).into_iter().next()
}

/// Each quota that does not suffice for the pools and the outbound addresses, by its name.
pub fn exceeded_quotas(usages: &[Usage], pools: &[Pool], outbound_ips: u32) -> Vec<CapacityProblem> {
    let machines: u64 = pools.iter().map(|pool| pool.machines).sum();
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::from([
        ("virtualMachines", machines),
        ("PremiumDiskCount", machines),
        ("PublicIPAddresses", PUBLIC_IPS + u64::from(outbound_ips.max(1))),
    ]);
    for pool in pools {
        let Some(size) = find_size(&pool.size) else { continue };
        for quota in [size.family, "cores"] {
            *wanted.entry(quota).or_default() += pool.machines * u64::from(size.cores);
        }
    }
    let problem = |(quota, wanted): (&str, u64)| {
        // A quota that the cloud does not report has no limit.
        let usage = usages.iter().find(|usage| usage.quota.eq_ignore_ascii_case(quota))?;
        let message = format!(
            "Resource quota of {quota} exceeded. Maximum allowed: {}, Current in use: {}, Additional requested: {wanted}.",
            usage.limit, usage.used
        );
        let is_full = wanted > usage.limit.saturating_sub(usage.used);
        is_full.then_some(CapacityProblem {
            code: CapacityCode::ResourceQuotaExceeded,
            message,
            target: None,
        })
    };
    wanted.into_iter().filter_map(problem).collect()
}

/// Those of the resource providers that are not registered.
pub fn unregistered<'a>(
    providers: &[ProviderRegistration],
    required: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let is_registered =
        |name: &&str| providers.iter().any(|it| it.namespace.eq_ignore_ascii_case(name) && it.registered);
    required.into_iter().filter(|name| !is_registered(name)).collect()
}

/// The first provider of a cluster that is not registered.
pub fn unregistered_provider(providers: &[ProviderRegistration]) -> Option<CapacityProblem> {
    let missing = unregistered(providers, CLUSTER_PROVIDERS).into_iter().next()?;
    let message = format!("The resource provider '{missing}' is not registered.");
    Some(CapacityProblem { code: CapacityCode::ResourceProviderNotRegistered, message, target: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Restriction;

    #[test]
    fn addresses_of_outgoing_traffic_count_against_the_quota_as_many_as_are_asked_for() {
        let full = |limit| [Usage { quota: "PublicIPAddresses".to_owned(), used: 1, limit }];
        let is_lacking = |limit, outbound| exceeded_quota(&full(limit), &[], outbound).is_some();
        assert!(!is_lacking(4, 1));
        assert!(is_lacking(3, 1));
        assert!(!is_lacking(8, 5));
        assert!(is_lacking(7, 5));
        assert!(!is_lacking(4, 0), "the API server has one in any case");
    }

    #[test]
    fn every_quota_and_provider_that_is_missing_is_named() {
        let usage = |quota: &str, limit| Usage { quota: quota.to_owned(), used: 0, limit };
        let usages = [usage("PublicIPAddresses", 1), usage("CORES", 1), usage("virtualMachines", 100)];
        let pools = [Pool::masters("Standard_D8s_v5", false)];
        let messages: Vec<String> =
            exceeded_quotas(&usages, &pools, 1).into_iter().map(|it| it.message).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("PublicIPAddresses") && messages[1].contains("cores"), "{messages:?}");

        let registration = |namespace: &str, registered| ProviderRegistration {
            namespace: namespace.to_owned(),
            registered,
        };
        let providers = [registration("microsoft.compute", true), registration("Microsoft.Network", false)];
        let missing =
            unregistered(&providers, ["Microsoft.Compute", "Microsoft.Network", "Microsoft.KeyVault"]);
        assert_eq!(missing, ["Microsoft.Network", "Microsoft.KeyVault"]);
    }

    #[test]
    fn a_size_must_be_there_unrestricted_and_able() {
        let size = |name: &str, encryption_at_host, reason: Option<&str>| Size {
            name: name.to_owned(),
            family: "f".to_owned(),
            cores: 4,
            zones: Vec::new(),
            encryption_at_host,
            availability: reason.map_or(Availability::Available, |it| {
                Availability::Restricted(Restriction { reason: it.to_owned() })
            }),
        };
        let sizes = [size("good", true, None), size("plain", false, None), size("closed", true, Some("No"))];
        let target = |name: &str, encrypted| {
            let pools = [Pool::masters("good", false), Pool::workers(0, name, encrypted, 3)];
            unavailable_size(&sizes, &pools, "here").and_then(|it| it.target)
        };
        assert_eq!(target("GOOD", true), None);
        assert_eq!(target("absent", false).as_deref(), Some("properties.workerProfiles[0].VMSize"));
        assert_eq!(target("closed", false).as_deref(), Some("properties.workerProfiles[0].VMSize"));
        assert_eq!(target("plain", true).as_deref(), Some("properties.workerProfiles[0].encryptionAtHost"));
        assert_eq!(target("plain", false), None);
    }
}
