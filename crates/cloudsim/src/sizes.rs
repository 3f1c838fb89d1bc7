//! Sizes of machines, what a subscription may have of them, and its quotas. A subscription that nobody has arranged anything
//! for is generous: every provider is registered, nothing is restricted, and limits are far away.

use std::collections::BTreeMap;

use cloud::{Availability, ResourceId, Restriction, Size, Usage};
use rusqlite::params;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::arm::{ArmError, ArmResource};
use crate::call_context::CallContext;
use crate::database;
use crate::failure::Failure;

/// The kind of the records of subscriptions.
const SUBSCRIPTION: &str = "subscription";

/// Features that every subscription has registered unless it is arranged otherwise.
const FEATURES: [&str; 1] = ["Microsoft.Compute/EncryptionAtHost"];

/// Families: the letters before and after the number of cores, the version, the family's name, and the numbers of cores.
const FAMILIES: [(&str, &str, &str, &str, &[u32]); 13] = [
    ("D", "s", "v3", "standardDSv3Family", &[2, 4, 8, 16, 32, 48, 64]),
    ("D", "s", "v4", "standardDSv4Family", &[2, 4, 8, 16, 32, 48, 64]),
    ("D", "s", "v5", "standardDSv5Family", &[2, 4, 8, 16, 32, 48, 64, 96]),
    ("D", "as", "v4", "standardDASv4Family", &[4, 8, 16, 32, 48, 64, 96]),
    ("D", "as", "v5", "standardDASv5Family", &[4, 8, 16, 32, 48, 64, 96]),
    ("D", "ds", "v5", "standardDDSv5Family", &[4, 8, 16, 32, 48, 64, 96]),
    ("E", "s", "v3", "standardESv3Family", &[2, 4, 8, 16, 32, 48, 64]),
    ("E", "s", "v4", "standardESv4Family", &[2, 4, 8, 16, 20, 32, 48, 64]),
    ("E", "s", "v5", "standardESv5Family", &[2, 4, 8, 16, 20, 32, 48, 64, 96]),
    ("F", "s", "v2", "standardFSv2Family", &[4, 8, 16, 32, 72]),
    ("L", "s", "v3", "standardLSv3Family", &[8, 16, 32, 48, 64]),
    // Those that need a recent version of OpenShift.
    ("D", "s", "v6", "standardDSv6Family", &[4, 8, 16, 32, 48, 64, 96]),
    ("D", "ds", "v6", "standardDDSv6Family", &[4, 8, 16, 32, 48, 64, 96]),
];

/// Limits where nothing else is arranged. A hundred clusters fit into one subscription.
const CORES: u64 = 20_000;
const MACHINES: u64 = 25_000;
const DISKS: u64 = 50_000;
const ADDRESSES: u64 = 5_000;

/// What is arranged for a subscription.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Arranged {
    /// Limits, by location and name.
    quotas: BTreeMap<String, u64>,
    /// Why sizes may not be had, by location and name.
    restrictions: BTreeMap<String, String>,
    /// Providers, by namespace.
    providers: BTreeMap<String, bool>,
    /// Features, by name; none when it was never heard of.
    features: BTreeMap<String, Option<bool>>,
}

fn in_location(location: &str, name: &str) -> String {
    format!("{}/{}", location.to_lowercase(), name.to_lowercase())
}

fn arranged(cx: &CallContext<'_>, subscription: &str) -> Result<Arranged, Failure> {
    Ok(database::record(cx.db, SUBSCRIPTION, &subscription.to_lowercase())?.unwrap_or_default())
}

fn arrange(
    cx: &CallContext<'_>,
    subscription: &str,
    change: impl FnOnce(&mut Arranged),
) -> Result<(), Failure> {
    let mut arranged = arranged(cx, subscription)?;
    change(&mut arranged);
    database::write(cx.db, SUBSCRIPTION, &subscription.to_lowercase(), &arranged)
}

pub(crate) fn set_quota(
    cx: &CallContext<'_>,
    subscription: &str,
    location: &str,
    quota: &str,
    limit: u64,
) -> Result<(), Failure> {
    arrange(cx, subscription, |it| {
        it.quotas.insert(in_location(location, quota), limit);
    })
}

pub(crate) fn set_restriction(
    cx: &CallContext<'_>,
    subscription: &str,
    location: &str,
    size: &str,
    reason: Option<String>,
) -> Result<(), Failure> {
    let key = in_location(location, size);
    arrange(cx, subscription, |it| match reason {
        Some(reason) => drop(it.restrictions.insert(key, reason)),
        None => drop(it.restrictions.remove(&key)),
    })
}

pub(crate) fn set_provider(
    cx: &CallContext<'_>,
    subscription: &str,
    namespace: &str,
    registered: bool,
) -> Result<(), Failure> {
    arrange(cx, subscription, |it| {
        it.providers.insert(namespace.to_lowercase(), registered);
    })
}

pub(crate) fn set_feature(
    cx: &CallContext<'_>,
    subscription: &str,
    feature: &str,
    registered: Option<bool>,
) -> Result<(), Failure> {
    arrange(cx, subscription, |it| {
        it.features.retain(|name, _| !name.eq_ignore_ascii_case(feature));
        it.features.insert(feature.to_owned(), registered);
    })
}

/// Every size, for any subscription.
pub(crate) fn table() -> impl Iterator<Item = Size> {
    FAMILIES.iter().flat_map(|&(letter, additions, version, family, cores)| {
        cores.iter().map(move |&cores| Size {
            name: format!("Standard_{letter}{cores}{additions}_{version}"),
            family: family.to_owned(),
            cores,
            zones: ["1", "2", "3"].map(str::to_owned).to_vec(),
            // The smallest of the oldest lack it, so that there is something to refuse.
            encryption_at_host: !(version == "v3" && cores == 2),
            availability: Availability::Available,
        })
    })
}

pub(crate) fn sizes(cx: &CallContext<'_>, subscription: &str, location: &str) -> Result<Vec<Size>, Failure> {
    let arranged = arranged(cx, subscription)?;
    let of_here = |mut size: Size| {
        if let Some(reason) = arranged.restrictions.get(&in_location(location, &size.name)) {
            size.availability = Availability::Restricted(Restriction { reason: reason.clone() });
        }
        size
    };
    Ok(table().map(of_here).collect())
}

/// Whether a subscription has registered a provider.
pub(crate) fn is_registered(
    cx: &CallContext<'_>,
    subscription: &str,
    namespace: &str,
) -> Result<bool, Failure> {
    Ok(arranged(cx, subscription)?.providers.get(&namespace.to_lowercase()).copied().unwrap_or(true))
}

/// The features of a subscription, by name, with their state.
pub(crate) fn features(cx: &CallContext<'_>, subscription: &str) -> Result<BTreeMap<String, bool>, Failure> {
    let mut features: BTreeMap<String, bool> = FEATURES.iter().map(|it| ((*it).to_owned(), true)).collect();
    for (name, registered) in arranged(cx, subscription)?.features {
        features.retain(|it, _| !it.eq_ignore_ascii_case(&name));
        features.extend(registered.map(|it| (name, it)));
    }
    Ok(features)
}

pub(crate) fn feature(
    cx: &CallContext<'_>,
    subscription: &str,
    feature: &str,
) -> Result<Option<bool>, Failure> {
    let usual = FEATURES.iter().any(|it| it.eq_ignore_ascii_case(feature)).then_some(true);
    let arranged = arranged(cx, subscription)?.features;
    let found = arranged.iter().find(|(name, _)| name.eq_ignore_ascii_case(feature));
    Ok(found.map_or(usual, |(_, registered)| *registered))
}

pub(crate) fn usages(
    cx: &CallContext<'_>,
    subscription: &str,
    location: &str,
) -> Result<Vec<Usage>, Failure> {
    let arranged = arranged(cx, subscription)?;
    let mut used: BTreeMap<String, u64> = BTreeMap::new();
    let mut limits: BTreeMap<String, u64> = [
        ("cores", CORES),
        ("virtualMachines", MACHINES),
        ("PremiumDiskCount", DISKS),
        ("PublicIPAddresses", ADDRESSES),
    ]
    .map(|(name, limit)| (name.to_owned(), limit))
    .into();
    limits.extend(FAMILIES.iter().map(|it| (it.3.to_owned(), CORES)));
    let mut statement = cx.db.prepare_cached(
        "select doc from arm_resource where subscription = ? and location = ? and gone_at is null and type in
         ('microsoft.compute/virtualmachines', 'microsoft.compute/disks', 'microsoft.network/publicipaddresses')",
    )?;
    let docs = statement.query_map(params![subscription.to_lowercase(), location.to_lowercase()], |row| {
        row.get::<_, String>(0)
    })?;
    for doc in docs {
        let resource: ArmResource = serde_json::from_str(&doc?)?;
        for (quota, amount) in resource_demand(&resource.type_name, &resource.body) {
            *used.entry(quota).or_default() += amount;
        }
    }
    let usage = |(quota, limit): (String, u64)| Usage {
        used: used.get(&quota).copied().unwrap_or(0),
        limit: arranged.quotas.get(&in_location(location, &quota)).copied().unwrap_or(limit),
        quota,
    };
    Ok(limits.into_iter().map(usage).collect())
}

/// The quotas that a resource of the resource manager counts against.
fn resource_demand(type_name: &str, body: &Map<String, Value>) -> Vec<(String, u64)> {
    let one = |quota: &str| vec![(quota.to_owned(), 1)];
    match type_name.to_lowercase().as_str() {
        "microsoft.compute/virtualmachines" => {
            let size = machine_size(body).unwrap_or_default();
            let mut demand = one("virtualMachines");
            if let Some(size) = table().find(|it| it.name.eq_ignore_ascii_case(size)) {
                demand.push(("cores".to_owned(), size.cores.into()));
                demand.push((size.family, size.cores.into()));
            }
            demand
        }
        "microsoft.compute/disks" => one("PremiumDiskCount"),
        "microsoft.network/publicipaddresses" => one("PublicIPAddresses"),
        _ => Vec::new(),
    }
}

fn machine_size(body: &Map<String, Value>) -> Option<&str> {
    body.get("properties")?.get("hardwareProfile")?.get("vmSize")?.as_str()
}

/// Whether a subscription may have a resource besides what it has; `before` is the one that it replaces.
pub(crate) fn check_resource(
    cx: &CallContext<'_>,
    id: &ResourceId,
    type_name: &str,
    before: Option<&ArmResource>,
    body: &Map<String, Value>,
) -> Result<(), Failure> {
    let wanted = resource_demand(type_name, body);
    let freed = before.map(|it| resource_demand(type_name, &it.body)).unwrap_or_default();
    if wanted.is_empty() || (before.is_some() && wanted == freed) {
        return Ok(());
    }
    let location = body.get("location").and_then(Value::as_str).unwrap_or_default();
    if let Some(size) = machine_size(body) {
        check_machine_size(cx, id, location, size, body)?;
    }
    let usages = usages(cx, id.subscription(), location)?;
    for (quota, amount) in wanted {
        let freed = freed.iter().find(|it| it.0 == quota).map_or(0, |it| it.1);
        let more = amount.saturating_sub(freed);
        if let Some(Usage { used, limit, .. }) = usages.iter().find(|it| it.quota == quota)
            && used + more > *limit
        {
            return Err(quota_exceeded(&quota, location, *limit, *used, more).into());
        }
    }
    Ok(())
}

fn check_machine_size(
    cx: &CallContext<'_>,
    id: &ResourceId,
    location: &str,
    size: &str,
    body: &Map<String, Value>,
) -> Result<(), Failure> {
    let sizes = sizes(cx, id.subscription(), location)?;
    let Some(found) = sizes.iter().find(|it| it.name.eq_ignore_ascii_case(size)) else {
        let message = format!("The value {size} provided for the VM size is not valid.");
        return Err(ArmError::bad_request("InvalidParameter", message).with_target("vmSize").into());
    };
    let zones: Vec<&str> =
        body.get("zones").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let is_elsewhere = zones.iter().any(|zone| !found.zones.iter().any(|it| it == zone));
    if let Availability::Restricted(restriction) = &found.availability {
        let message = format!(
            "The requested VM size {size} is not available in location '{location}' ({}). Please try another size or deploy to a different location or different zone.",
            restriction.reason
        );
        return Err(ArmError::conflict("SkuNotAvailable", message).with_target("vmSize").into());
    }
    if is_elsewhere {
        let message = format!(
            "The requested VM size {size} is not available in zone '{}' of location '{location}'.",
            zones.join(",")
        );
        return Err(ArmError::conflict("SkuNotAvailable", message).with_target("zones").into());
    }
    Ok(())
}

/// The error of a quota, as its provider words it.
pub(crate) fn quota_exceeded(quota: &str, location: &str, limit: u64, used: u64, more: u64) -> ArmError {
    if quota.eq_ignore_ascii_case("PublicIPAddresses") {
        let message = format!(
            "Cannot create more than {limit} public IP addresses for this subscription in this region."
        );
        return ArmError::bad_request("PublicIPCountLimitReached", message);
    }
    let title = match quota {
        "cores" => "Total Regional Cores".to_owned(),
        "virtualMachines" => "Virtual Machines".to_owned(),
        family => format!("{family} Cores"),
    };
    let message = format!(
        "Operation could not be completed as it results in exceeding approved {title} quota. Additional details - Deployment Model: Resource Manager, Location: {location}, Current Limit: {limit}, Current Usage: {used}, Additional Required: {more}, (Minimum) New Limit Required: {}.",
        used + more
    );
    ArmError::conflict("OperationNotAllowed", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_that_clusters_may_ask_for_are_there() {
        let names: Vec<String> = table().map(|it| it.name).collect();
        for name in [
            "Standard_D8s_v3",
            "Standard_D32s_v5",
            "Standard_D16as_v4",
            "Standard_D8ds_v5",
            "Standard_E20s_v4",
            "Standard_E64s_v5",
            "Standard_D4s_v3",
            "Standard_D96as_v5",
            "Standard_E2s_v3",
            "Standard_F72s_v2",
            "Standard_L48s_v3",
            "Standard_D2s_v3",
            "Standard_D2s_v5",
        ] {
            assert!(names.iter().any(|it| it == name), "{name}");
        }
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }
}
