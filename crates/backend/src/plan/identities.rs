//! As whom a cluster works in the cloud: object ids of principals, identities of the platform and the tokens that speak for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::doc::{Identity, OperatorRole, PlatformIdentity, RoleSet, secrets};
use api::rest::Semver;
use cloud::{Properties, Resource, ResourceRequest};
use steps::credentials::ensure_identity_certificate;
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::resources::ensure;
use steps::lifecycle::{ClusterSnapshot, resource_id, store_failed};

use super::{done, prepare};
use crate::Context;

/// The certificate of the cluster's own identity, in the vault.
pub(crate) async fn ensure_cluster_certificate(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    if let Identity::Workload { resource_id: id, .. } = &ours.spec().identity
        && cx.life.cloud.infrastructure.get(&resource_id(id)?).await?.is_none()
    {
        let message = format!("Exactly one identity of the cluster is needed, and {id} was not found.");
        return Err(user_error("InvalidClusterMSICount", message, Some("identity")));
    }
    let ours = cx.life.managed().await?;
    let kept = ensure_identity_certificate(&ours, step.hold, cx.life.clock.now()).await?;
    Ok(kept.map_or_else(StepOutcome::default, |(_, until)| {
        StepOutcome::with_message(format!("good until {until}"))
    }))
}

/// Resolves and records the ids of the platform's identities.
pub(crate) async fn persist_platform_ids(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    let mut resolved: BTreeMap<String, PlatformIdentity> = BTreeMap::new();
    for (operator, identity) in platform(&ours) {
        let id = resource_id(&identity.resource_id)?;
        let found = cx.life.cloud.infrastructure.get(&id).await?;
        let Some(Resource { properties: Properties::Identity { client_id, principal_id, .. }, .. }) = found
        else {
            let target =
                format!("properties.platformWorkloadIdentityProfile.platformWorkloadIdentities.{operator}");
            let message = format!("The identity {id} of operator {operator} was not found.");
            return Err(user_error("InvalidWorkloadIdentityPermissions", message, Some(&target)));
        };
        let resource_id = identity.resource_id.clone();
        resolved
            .insert(operator.clone(), PlatformIdentity { resource_id, client_id, object_id: principal_id });
    }
    let change = |provisioned: &mut api::doc::Provisioned| {
        if let Identity::Workload { platform, .. } = &mut provisioned.spec.identity {
            for (operator, identity) in &resolved {
                platform.insert(operator.clone(), identity.clone());
            }
        }
    };
    cx.life.records.update(step.hold, &[], change).await?;
    Ok(StepOutcome::with_message(format!("{} identities", resolved.len())))
}

fn platform(ours: &ClusterSnapshot) -> BTreeMap<String, PlatformIdentity> {
    match &ours.spec().identity {
        Identity::Workload { platform, .. } => platform.clone(),
        Identity::ServicePrincipal { .. } => BTreeMap::new(),
    }
}

/// Resolves and records the tenant of the cluster's own identity.
pub(crate) async fn persist_cluster_ids(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    let credential = cx.life.credential(ours.spec()).await?;
    let principal = cx.life.cloud.identities.principal(&credential).await?;
    let change = |provisioned: &mut api::doc::Provisioned| {
        if let Identity::Workload { tenant_id, .. } = &mut provisioned.spec.identity {
            *tenant_id = Some(principal.tenant_id.clone());
        }
    };
    cx.life.records.update(step.hold, &[], change).await?;
    done()
}

/// Resolves and records the object id of the service principal.
pub(crate) async fn persist_object_id(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    let credential = cx.life.credential(ours.spec()).await?;
    let principal = cx.life.cloud.identities.principal(&credential).await?;
    let object_id = principal.object_id;
    cx.life.record(step.hold, |record| record.service_principal_object_id = Some(object_id.clone())).await?;
    done()
}

/// Where the tokens of the cluster's service accounts are issued, and the key that signs them.
pub(crate) async fn create_issuer(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    prepare::ensure_key(&cx, &step, secrets::BOUND_SIGNING_KEY).await?;
    let issuer = issuer(&cx);
    cx.life.record(step.hold, |record| record.oidc_issuer = Some(issuer.clone())).await?;
    Ok(StepOutcome::with_message(issuer))
}

/// Who issues the tokens of the cluster's service accounts.
pub(crate) fn issuer(cx: &Context) -> String {
    format!("https://oidc.{}/{}", cx.life.service.domain, cx.life.cluster())
}

/// How the names of the cluster's federated credentials begin, in whatever identity.
pub(crate) fn own_prefix(cx: &Context) -> String {
    format!("{}|", issuer(cx))
}

/// The service accounts of each operator.
async fn service_accounts(
    cx: &Context,
    ours: &ClusterSnapshot,
) -> Result<BTreeMap<String, Vec<String>>, StepError> {
    let mut accounts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for role in operator_roles(cx, ours).await? {
        accounts.entry(role.operator_name).or_default().extend(role.service_accounts);
    }
    Ok(accounts)
}

/// What each of the platform's identities is to be: its object id, and its role by name.
pub(crate) async fn platform_roles(
    cx: &Context,
    ours: &ClusterSnapshot,
) -> Result<BTreeSet<(String, String)>, StepError> {
    let platform = platform(ours);
    let mut wanted = BTreeSet::new();
    if platform.is_empty() {
        return Ok(wanted);
    }
    for role in operator_roles(cx, ours).await? {
        let identity = platform.get(&role.operator_name).and_then(|it| it.object_id.clone());
        wanted.extend(identity.map(|principal| (principal, role.role_definition_name)));
    }
    Ok(wanted)
}

/// What operators need, as the role sets of the cluster's minor version (and of the one that it may be upgraded to) tell.
async fn operator_roles(cx: &Context, ours: &ClusterSnapshot) -> Result<Vec<OperatorRole>, StepError> {
    let running = ours.record().running_version.as_deref().unwrap_or(&ours.spec().version);
    let to_come = match &ours.spec().identity {
        Identity::Workload { upgradeable_to, .. } => upgradeable_to.as_deref(),
        Identity::ServicePrincipal { .. } => None,
    };
    let mut roles = Vec::new();
    for (version, needed) in [(Some(running), true), (to_come, false)] {
        let Some(version) = version.and_then(|it| it.parse::<Semver>().ok()) else { continue };
        let path = format!("/platformworkloadidentityrolesets/{}", version.minor_name());
        let found = cx.life.records.store.collection::<RoleSet>().find(&path).await.map_err(store_failed)?;
        if found.is_none() && needed {
            let message = format!("there is no role set of version {}", version.minor_name());
            return Err(StepError::transient("NoRoleSet", message));
        }
        roles.extend(found.into_iter().flat_map(|it| it.document.roles));
    }
    Ok(roles)
}

/// Lets the tokens of the platform's service accounts speak for the platform's identities.
pub(crate) async fn federate(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    let (accounts, own) = (service_accounts(&cx, &ours).await?, own_prefix(&cx));
    for (operator, identity) in platform(&ours) {
        let id = resource_id(&identity.resource_id)?;
        let Some(found) = cx.life.cloud.infrastructure.get(&id).await? else {
            return Ok(PollStatus::Waiting(format!("identity {} is not seen", id.name())));
        };
        let Properties::Identity { mut federated, client_id, principal_id, tenant_id } = found.properties
        else {
            return Err(StepError::terminal("Invalid", format!("{id} is not an identity")));
        };
        // One for each service account; those of another version, or of an earlier build, go.
        let before = federated.clone();
        federated.retain(|name, _| !name.starts_with(&own));
        let of_operator = accounts.get(&operator).into_iter().flatten();
        federated.extend(of_operator.map(|account| (format!("{own}{account}"), account.clone())));
        if federated == before {
            continue;
        }
        let properties = Properties::Identity { federated, client_id, principal_id, tenant_id };
        let put = ResourceRequest { id, location: found.location, tags: found.tags, properties, token: None };
        if let waiting @ PollStatus::Waiting(_) = ensure(&*cx.life.cloud.infrastructure, &[put]).await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}
