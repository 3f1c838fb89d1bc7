//! Whether a subscription can have what a cluster needs: sizes, a feature, quotas, providers. Pure: the API asks a cloud before it
//! takes a cluster in, the backend again before it makes one, and both judge the answers here.

use std::collections::BTreeMap;

use api::rest::find_size;

use crate::{Availability, Provider, Size, Usage};

/// The control plane, and the machine that brings it up.
const MASTERS: u64 = 3;
const BOOTSTRAP: u64 = 1;
/// For the API server and the ingress; those of outgoing traffic come to these.
const PUBLIC_IPS: u64 = 2;

const PROVIDERS: [&str; 4] =
    ["Microsoft.Authorization", "Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage"];

/// The feature that a subscription must have registered for encryption at host.
pub const ENCRYPTION_FEATURE: &str = "Microsoft.Compute/EncryptionAtHost";

/// One pool of machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The size of each.
    pub size: String,
    /// Whether their disks are to be encrypted where they run.
    pub is_encrypted: bool,
    /// The member of a request that describes it.
    pub target: String,
    /// How many.
    pub machines: u64,
}

impl Pool {
    /// The control plane of a cluster, with the machine that brings it up.
    pub fn masters(size: &str, is_encrypted: bool) -> Pool {
        let (size, target) = (size.to_owned(), "properties.masterProfile".to_owned());
        Pool { size, is_encrypted, target, machines: MASTERS + BOOTSTRAP }
    }

    /// The workers at that place of a cluster's list.
    pub fn workers(at: usize, size: &str, is_encrypted: bool, machines: u64) -> Pool {
        let target = format!("properties.workerProfiles[{at}]");
        Pool { size: size.to_owned(), is_encrypted, target, machines }
    }
}

/// What is lacking, by the code of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LackCode {
    /// A size or a feature.
    InvalidParameter,
    /// Room within a quota.
    ResourceQuotaExceeded,
    /// A provider.
    ResourceProviderNotRegistered,
}

impl LackCode {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            LackCode::InvalidParameter => "InvalidParameter",
            LackCode::ResourceQuotaExceeded => "ResourceQuotaExceeded",
            LackCode::ResourceProviderNotRegistered => "ResourceProviderNotRegistered",
        }
    }
}

/// Something that a subscription cannot have, for the customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// Its code.
    pub code: LackCode,
    /// In a sentence.
    pub message: String,
    /// The member of the request at fault, if it is one.
    pub target: Option<String>,
}

/// The first size that cannot be had there, or not as wanted.
pub fn lacking_size(sizes: &[Size], pools: &[Pool], location: &str) -> Option<Lack> {
    let code = LackCode::InvalidParameter;
    pools.iter().find_map(|pool| {
        let refused = |why: &str| {
            let message = format!("The selected SKU '{}' is {why} in location '{location}'.", pool.size);
            Some(Lack { code, message, target: Some(format!("{}.VMSize", pool.target)) })
        };
        let Some(size) = sizes.iter().find(|size| size.name.eq_ignore_ascii_case(&pool.size)) else {
            return refused("unavailable");
        };
        if let Availability::Restricted(restriction) = &size.availability {
            return refused(&format!("restricted ({})", restriction.reason));
        }
        if pool.is_encrypted && !size.encryption_at_host {
            let message = format!("The selected SKU '{}' does not support encryption at host.", pool.size);
            return Some(Lack { code, message, target: Some(format!("{}.encryptionAtHost", pool.target)) });
        }
        None
    })
}

/// What is said when [`ENCRYPTION_FEATURE`] is not registered.
pub fn lacking_feature() -> Lack {
    let message = format!(
        "The feature {ENCRYPTION_FEATURE} is not registered in the subscription; register it or disable encryption at host."
    );
    Lack { code: LackCode::InvalidParameter, message, target: None }
}

/// The first quota that does not suffice for these machines and so many addresses of outgoing traffic.
pub fn lacking_quota(usages: &[Usage], pools: &[Pool], outbound_ips: u32) -> Option<Lack> {
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
    wanted.into_iter().find_map(|(quota, wanted)| {
        // A limit that the cloud does not tell of is none.
        let usage = usages.iter().find(|usage| usage.quota.eq_ignore_ascii_case(quota))?;
        let message = format!(
            "Resource quota of {quota} exceeded. Maximum allowed: {}, Current in use: {}, Additional requested: {wanted}.",
            usage.limit, usage.used
        );
        let is_full = wanted > usage.limit.saturating_sub(usage.used);
        is_full.then_some(Lack { code: LackCode::ResourceQuotaExceeded, message, target: None })
    })
}

/// The first provider that is needed and not registered.
pub fn lacking_provider(providers: &[Provider]) -> Option<Lack> {
    let is_registered =
        |name: &&str| providers.iter().any(|it| it.namespace.eq_ignore_ascii_case(name) && it.registered);
    let missing = PROVIDERS.into_iter().find(|name| !is_registered(name))?;
    let message = format!("The resource provider '{missing}' is not registered.");
    Some(Lack { code: LackCode::ResourceProviderNotRegistered, message, target: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Restriction;

    #[test]
    fn addresses_of_outgoing_traffic_count_against_the_quota_as_many_as_are_asked_for() {
        let full = |limit| [Usage { quota: "PublicIPAddresses".to_owned(), used: 1, limit }];
        let is_lacking = |limit, outbound| lacking_quota(&full(limit), &[], outbound).is_some();
        assert!(!is_lacking(4, 1));
        assert!(is_lacking(3, 1));
        assert!(!is_lacking(8, 5));
        assert!(is_lacking(7, 5));
        assert!(!is_lacking(4, 0), "the API server has one in any case");
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
            lacking_size(&sizes, &pools, "here").and_then(|it| it.target)
        };
        assert_eq!(target("GOOD", true), None);
        assert_eq!(target("absent", false).as_deref(), Some("properties.workerProfiles[0].VMSize"));
        assert_eq!(target("closed", false).as_deref(), Some("properties.workerProfiles[0].VMSize"));
        assert_eq!(target("plain", true).as_deref(), Some("properties.workerProfiles[0].encryptionAtHost"));
        assert_eq!(target("plain", false), None);
    }
}
