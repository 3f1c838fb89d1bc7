//! Checks against the cloud before a cluster is accepted: VM sizes, quotas, registered providers, and briefly whether the subnets exist
//! and may be used. Longer checks are the backend's first step.

use std::time::Duration;

use api::rest::{Draft, HiddenText};
use api::secret::Secret;
use cloud::capacity::{
    CapacityCode, CapacityProblem, ENCRYPTION_FEATURE, Pool, exceeded_quota, unavailable_size,
    unregistered_feature, unregistered_provider,
};
use cloud::{CloudError, Credential, Identities, Infrastructure, ResourceId};
use http::StatusCode;
use tokio::time::Instant;

use super::write::CLOUD_TIME_MAX;
use crate::server::CloudRoles;
use crate::wire::{ApiError, Code, as_sentence};

/// New role assignments take time to become visible, so missing permissions are checked again for a moment. The backend waits longer,
/// but a customer who gets the error now need not delete a failed cluster.
const RIGHTS_TIME: Duration = Duration::from_secs(3);
const RIGHTS_LOOK: Duration = Duration::from_millis(500);

/// Required permissions on the network and on each subnet.
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

/// Returns the first problem as an error. If the cloud does not respond in time, the request is accepted and the backend repeats the
/// checks.
pub(super) async fn run(cloud: &CloudRoles, draft: &Draft<'_>, subscription: &str) -> Result<(), ApiError> {
    let location = draft.location.unwrap_or_default().to_ascii_lowercase();
    let pools = pools(draft);
    match tokio::time::timeout(CLOUD_TIME_MAX, check_cloud(cloud, &pools, draft, subscription, &location))
        .await
    {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::warn!(
                "The cloud did not respond in time; the backend repeats the checks that are missing"
            );
            Ok(())
        }
    }
}

fn pools(draft: &Draft<'_>) -> Vec<Pool> {
    let is_on = |text: Option<&String>| text.is_some_and(|it| it == "Enabled");
    let mut pools = Vec::new();
    let Some(properties) = &draft.properties else { return pools };
    if let Some(master) = properties.master {
        let size = master.vm_size.as_deref().unwrap_or_default();
        pools.push(Pool::masters(size, is_on(master.encryption_at_host.as_ref())));
    }
    for (at, worker) in properties.workers.into_iter().flatten().enumerate() {
        let size = worker.vm_size.as_deref().unwrap_or_default();
        let machines = u64::try_from(worker.count.unwrap_or_default()).unwrap_or_default();
        pools.push(Pool::workers(at, size, is_on(worker.encryption_at_host.as_ref()), machines));
    }
    pools
}

/// Number of outbound addresses of a draft.
fn outbound_ips(draft: &Draft<'_>) -> u32 {
    let network = draft.properties.as_ref().and_then(|it| it.network);
    let profile = network.and_then(|it| it.load_balancer_profile.as_ref());
    let count = profile.and_then(|it| it.managed_outbound_ips.as_ref()?.count);
    count.and_then(|it| u32::try_from(it).ok()).unwrap_or(1)
}

fn refuse(lack: Option<CapacityProblem>) -> Result<(), ApiError> {
    let Some(CapacityProblem { code, message, target }) = lack else { return Ok(()) };
    let code = match code {
        CapacityCode::InvalidParameter => Code::InvalidParameter,
        CapacityCode::ResourceQuotaExceeded => Code::ResourceQuotaExceeded,
        CapacityCode::ResourceProviderNotRegistered => Code::ResourceProviderNotRegistered,
    };
    let error = ApiError::new(StatusCode::BAD_REQUEST, code, message);
    Err(match target {
        Some(target) => error.with_target(target),
        None => error,
    })
}

async fn check_cloud(
    cloud: &CloudRoles,
    pools: &[Pool],
    draft: &Draft<'_>,
    subscription: &str,
    location: &str,
) -> Result<(), ApiError> {
    let infrastructure = cloud.infrastructure.as_ref();
    // A check whose query fails is left to the backend; the others are still made.
    if let Some(sizes) = query_result("the sizes", infrastructure.sizes(subscription, location).await) {
        refuse(unavailable_size(&sizes, pools, location))?;
    }
    if pools.iter().any(|pool| pool.is_encrypted)
        && let Some(feature) =
            query_result("a feature", infrastructure.feature(subscription, ENCRYPTION_FEATURE).await)
    {
        match feature {
            Some(true) => {}
            Some(false) => return refuse(Some(unregistered_feature())),
            None => return Err(ApiError::internal(format!("the feature {ENCRYPTION_FEATURE} has no state"))),
        }
    }
    if let Some(usages) = query_result("the quotas", infrastructure.usages(subscription, location).await) {
        refuse(exceeded_quota(&usages, pools, outbound_ips(draft)))?;
    }
    if let Some(providers) = query_result("the providers", infrastructure.providers(subscription).await) {
        refuse(unregistered_provider(&providers))?;
    }
    check_subnets(infrastructure, draft).await?;
    check_rights(cloud.identities.as_ref(), draft).await
}

/// The result of a query. An error of the cloud is logged, and its check is left to the backend.
fn query_result<T>(what: &str, outcome: Result<T, CloudError>) -> Option<T> {
    outcome
        .inspect_err(|error| {
            let cause: &dyn std::error::Error = error;
            tracing::warn!(error = cause, "Cannot read {what} from the cloud; the backend repeats the check");
        })
        .ok()
}

/// The subnets of a draft, each with its field.
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

/// Checks that the subnets exist.
async fn check_subnets(cloud: &dyn Infrastructure, draft: &Draft<'_>) -> Result<(), ApiError> {
    for (id, target) in subnets(draft) {
        let Some(None) = query_result("a subnet", cloud.get(&id).await) else { continue };
        let refused =
            |code, message| Err(ApiError::new(StatusCode::BAD_REQUEST, code, message).with_target(target));
        let network = id.parent();
        return match network {
            Some(network) if matches!(query_result("a network", cloud.get(&network).await), Some(None)) => {
                let message = format!("The provided virtual network '{network}' could not be found.");
                refused(Code::InvalidLinkedVNet, message)
            }
            _ => {
                let message = format!("The provided subnet '{id}' could not be found.");
                refused(Code::InvalidLinkedSubnet, message)
            }
        };
    }
    Ok(())
}

/// The cluster's credential, and the error code for its missing permissions. None where the draft is incomplete, which was rejected
/// before.
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

/// Checks the credential of the cluster's principal, and that the principal and this service may use the network.
async fn check_rights(cloud: &dyn Identities, draft: &Draft<'_>) -> Result<(), ApiError> {
    let refused = |code, message: String| ApiError::new(StatusCode::BAD_REQUEST, code, message);
    let Some((credential, code)) = worker(draft) else { return Ok(()) };
    if let Err(error @ CloudError::Credential { .. }) = cloud.principal(&credential).await {
        let (code, target) = match &credential {
            Credential::Identity(_) => (Code::InvalidWorkloadIdentityPermissions, "identity"),
            Credential::Service | Credential::Client { .. } => {
                (Code::InvalidServicePrincipalCredentials, PRINCIPAL)
            }
        };
        return Err(refused(code, as_sentence(&error)).with_target(target));
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
                return Err(refused(code, message).with_target(target.clone()));
            }
        }
    }
    Ok(())
}

/// The actions that a credential may not perform, checked repeatedly until `until`.
async fn missing(
    cloud: &dyn Identities,
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
                query_result("the rights", other);
                return Vec::new();
            }
        };
        if missing.is_empty() || Instant::now() + RIGHTS_LOOK > until {
            return missing;
        }
        tokio::time::sleep(RIGHTS_LOOK).await;
    }
}
