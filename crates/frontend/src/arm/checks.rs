//! What is asked of the cloud before a cluster is accepted: that its sizes can be had, its quotas suffice and the providers are
//! registered, and quickly whether its subnets are there and may be used. Whatever takes longer is the backend's first step.

use std::collections::BTreeMap;
use std::time::Duration;

use api::rest::{Draft, HiddenText, find_size};
use api::secret::Secret;
use cloud::{Availability, Cloud, CloudError, Credential, ResourceId, SharedCloud, Size, Usage};
use http::StatusCode;
use tokio::time::Instant;

use super::write::CLOUD_TIME_MAX;
use crate::wire::{Code, Refusal, sentence};

/// The control plane, and the machine that brings it up.
const MASTERS: u64 = 3;
const BOOTSTRAP: u64 = 1;
/// For the API server, the ingress and what leaves.
const PUBLIC_IPS: u64 = 3;

const PROVIDERS: [&str; 4] =
    ["Microsoft.Authorization", "Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage"];

const ENCRYPTION_FEATURE: &str = "Microsoft.Compute/EncryptionAtHost";

/// Rights that were just given are not seen at once: missing ones are looked for again for a moment before they are refused. The
/// backend has more patience, but a customer who is told now need not delete what could not be made.
const RIGHTS_TIME: Duration = Duration::from_secs(3);
const RIGHTS_LOOK: Duration = Duration::from_millis(500);

/// What is needed of the network and of each subnet.
const NETWORK_RIGHTS: [&str; 3] = [
    "Microsoft.Network/virtualNetworks/join/action",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/virtualNetworks/write",
];
const SUBNET_RIGHTS: [&str; 3] = [
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/subnets/read",
    "Microsoft.Network/virtualNetworks/subnets/write",
];

const PRINCIPAL: &str = "properties.servicePrincipalProfile";

/// One pool of machines.
struct Pool<'a> {
    size: &'a str,
    is_encrypted: bool,
    target: String,
    machines: u64,
}

/// Refuses the first thing that the cloud does not have for this cluster. A cloud that does not answer in time is not held
/// against the customer: what could not be asked now is asked by the backend.
pub(super) async fn run(cloud: &SharedCloud, draft: &Draft<'_>, subscription: &str) -> Result<(), Refusal> {
    let location = draft.location.unwrap_or_default().to_ascii_lowercase();
    let pools = pools(draft);
    match tokio::time::timeout(CLOUD_TIME_MAX, ask(cloud.as_ref(), &pools, draft, subscription, &location))
        .await
    {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::warn!(
                "The cloud did not answer in time; what could not be checked is left to the backend"
            );
            Ok(())
        }
    }
}

fn pools<'a>(draft: &Draft<'a>) -> Vec<Pool<'a>> {
    let is_on = |text: Option<&String>| text.is_some_and(|it| it == "Enabled");
    let mut pools = Vec::new();
    let Some(properties) = &draft.properties else { return pools };
    if let Some(master) = properties.master {
        pools.push(Pool {
            size: master.vm_size.as_deref().unwrap_or_default(),
            is_encrypted: is_on(master.encryption_at_host.as_ref()),
            target: "properties.masterProfile".to_owned(),
            machines: MASTERS + BOOTSTRAP,
        });
    }
    for (at, worker) in properties.workers.into_iter().flatten().enumerate() {
        pools.push(Pool {
            size: worker.vm_size.as_deref().unwrap_or_default(),
            is_encrypted: is_on(worker.encryption_at_host.as_ref()),
            target: format!("properties.workerProfiles[{at}]"),
            machines: u64::try_from(worker.count.unwrap_or_default()).unwrap_or_default(),
        });
    }
    pools
}

async fn ask(
    cloud: &dyn Cloud,
    pools: &[Pool<'_>],
    draft: &Draft<'_>,
    subscription: &str,
    location: &str,
) -> Result<(), Refusal> {
    let Some(sizes) = answered("the sizes", cloud.sizes(subscription, location).await) else { return Ok(()) };
    check_sizes(&sizes, pools, location)?;
    if pools.iter().any(|pool| pool.is_encrypted)
        && let Some(feature) = answered("a feature", cloud.feature(subscription, ENCRYPTION_FEATURE).await)
    {
        match feature {
            Some(true) => {}
            Some(false) => {
                let message = format!(
                    "The feature {ENCRYPTION_FEATURE} is not registered in the subscription; register it or disable \
                     encryption at host."
                );
                return Err(Refusal::new(StatusCode::BAD_REQUEST, Code::InvalidParameter, message));
            }
            None => return Err(Refusal::internal(format!("the feature {ENCRYPTION_FEATURE} has no state"))),
        }
    }
    if let Some(usages) = answered("the quotas", cloud.usages(subscription, location).await) {
        check_quotas(&usages, pools)?;
    }
    if let Some(providers) = answered("the providers", cloud.providers(subscription).await) {
        let is_registered =
            |name: &&str| providers.iter().any(|it| it.namespace.eq_ignore_ascii_case(name) && it.registered);
        if let Some(missing) = PROVIDERS.into_iter().find(|name| !is_registered(name)) {
            let message = format!("The resource provider '{missing}' is not registered.");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, Code::ResourceProviderNotRegistered, message));
        }
    }
    check_subnets(cloud, draft).await?;
    check_rights(cloud, draft).await
}

/// An answer; a failure of the cloud's own is noted, and what it was for is left to the backend.
fn answered<T>(what: &str, outcome: Result<T, CloudError>) -> Option<T> {
    outcome
        .inspect_err(|error| {
            let cause: &dyn std::error::Error = error;
            tracing::warn!(error = cause, "The cloud did not tell {what}; that is left to the backend");
        })
        .ok()
}

fn check_sizes(sizes: &[Size], pools: &[Pool<'_>], location: &str) -> Result<(), Refusal> {
    for pool in pools {
        let refused = |why: &str| {
            let message = format!("The selected SKU '{}' is {why} in location '{location}'.", pool.size);
            Err(Refusal::parameter(format!("{}.VMSize", pool.target), message))
        };
        let Some(size) = sizes.iter().find(|size| size.name.eq_ignore_ascii_case(pool.size)) else {
            return refused("unavailable");
        };
        if let Availability::Restricted(restriction) = &size.availability {
            return refused(&format!("restricted ({})", restriction.reason));
        }
        if pool.is_encrypted && !size.encryption_at_host {
            let message = format!("The selected SKU '{}' does not support encryption at host.", pool.size);
            return Err(Refusal::parameter(format!("{}.encryptionAtHost", pool.target), message));
        }
    }
    Ok(())
}

fn check_quotas(usages: &[Usage], pools: &[Pool<'_>]) -> Result<(), Refusal> {
    let machines: u64 = pools.iter().map(|pool| pool.machines).sum();
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::from([
        ("virtualMachines", machines),
        ("PremiumDiskCount", machines),
        ("PublicIPAddresses", PUBLIC_IPS),
    ]);
    for pool in pools {
        let Some(size) = find_size(pool.size) else { continue };
        for quota in [size.family, "cores"] {
            *wanted.entry(quota).or_default() += pool.machines * u64::from(size.cores);
        }
    }
    for (quota, wanted) in wanted {
        // A limit that the cloud does not tell of is none.
        let Some(usage) = usages.iter().find(|usage| usage.quota.eq_ignore_ascii_case(quota)) else {
            continue;
        };
        if wanted > usage.limit.saturating_sub(usage.used) {
            let message = format!(
                "Resource quota of {quota} exceeded. Maximum allowed: {}, Current in use: {}, Additional requested: {wanted}.",
                usage.limit, usage.used
            );
            return Err(Refusal::new(StatusCode::BAD_REQUEST, Code::ResourceQuotaExceeded, message));
        }
    }
    Ok(())
}

/// The subnets that a draft names, each with the field that does.
fn subnets(draft: &Draft<'_>) -> Vec<(ResourceId, String)> {
    let Some(properties) = &draft.properties else { return Vec::new() };
    let master = properties.master.and_then(|it| it.subnet_id.as_deref());
    let master = master.map(|id| (id, "properties.masterProfile.subnetId".to_owned()));
    let workers = properties.workers.into_iter().flatten().filter_map(|it| {
        let target =
            format!("properties.workerProfiles['{}'].subnetId", it.name.as_deref().unwrap_or_default());
        Some((it.subnet_id.as_deref()?, target))
    });
    let all = master.into_iter().chain(workers);
    all.filter_map(|(id, target)| Some((id.parse().ok()?, target))).collect()
}

/// A quick look whether the subnets are there at all.
async fn check_subnets(cloud: &dyn Cloud, draft: &Draft<'_>) -> Result<(), Refusal> {
    for (id, target) in subnets(draft) {
        if let Some(None) = answered("a subnet", cloud.get(&id).await) {
            let message = format!("The provided subnet '{id}' could not be found.");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, Code::InvalidLinkedVNet, message).at(target));
        }
    }
    Ok(())
}

/// As whom the cluster will work, and the code for what it may not do. None where the draft does not tell: what is missing of
/// it was refused before.
fn worker(draft: &Draft<'_>) -> Option<(Credential, Code)> {
    let properties = draft.properties.as_ref()?;
    if properties.platform.is_some() {
        let id = draft.identity?.user_assigned_identities.as_ref()?.keys().next()?;
        return Some((Credential::Identity(id.parse().ok()?), Code::InvalidWorkloadIdentityPermissions));
    }
    let principal = properties.service_principal?;
    let secret = Secret::new(principal.client_secret.as_ref().map(HiddenText::expose)?.to_owned());
    let client_id = principal.client_id.clone()?;
    Some((Credential::Client { client_id, secret }, Code::InvalidServicePrincipalPermissions))
}

/// A quick look whether the cluster's principal is who it says, and whether it and this service may use the network.
async fn check_rights(cloud: &dyn Cloud, draft: &Draft<'_>) -> Result<(), Refusal> {
    let refused = |code, message: String| Refusal::new(StatusCode::BAD_REQUEST, code, message);
    let Some((credential, code)) = worker(draft) else { return Ok(()) };
    if let Err(error @ CloudError::Credential { .. }) = cloud.principal(&credential).await {
        let (code, target) = match &credential {
            Credential::Identity(_) => (Code::InvalidWorkloadIdentityPermissions, "identity"),
            Credential::Service | Credential::Client { .. } => {
                (Code::InvalidServicePrincipalCredentials, PRINCIPAL)
            }
        };
        return Err(refused(code, sentence(&error)).at(target));
    }
    let subnets = subnets(draft);
    let master = subnets.first();
    let network = master.and_then(|(id, target)| Some((id.parent()?, target.clone(), &NETWORK_RIGHTS)));
    let each = subnets.iter().map(|(id, target)| (id.clone(), target.clone(), &SUBNET_RIGHTS));
    let wanted: Vec<(ResourceId, String, &[&str; 3])> = network.into_iter().chain(each).collect();
    let until = Instant::now() + RIGHTS_TIME;
    for (credential, code) in
        [(credential, code), (Credential::Service, Code::InvalidResourceProviderPermissions)]
    {
        for (id, target, actions) in &wanted {
            let missing = missing(cloud, &credential, id, *actions, until).await;
            if !missing.is_empty() {
                let message = format!("Missing on '{id}': {}.", missing.join(", "));
                return Err(refused(code, message).at(target.clone()));
            }
        }
    }
    Ok(())
}

/// Which of these actions somebody may not do, looked at again until then.
async fn missing(
    cloud: &dyn Cloud,
    credential: &Credential,
    id: &ResourceId,
    actions: &[&str],
    until: Instant,
) -> Vec<String> {
    loop {
        let missing: Vec<String> = match cloud.permissions(credential, id, actions).await {
            Ok(answers) => answers.into_iter().filter(|it| !it.allowed).map(|it| it.action).collect(),
            Err(CloudError::Denied { action, .. }) => vec![action],
            other => {
                answered("the rights", other);
                return Vec::new();
            }
        };
        if missing.is_empty() || Instant::now() + RIGHTS_LOOK > until {
            return missing;
        }
        tokio::time::sleep(RIGHTS_LOOK).await;
    }
}
