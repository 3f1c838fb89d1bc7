//! Identities of a cluster in the cloud: object ids of principals, the platform's identities and their federated credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::doc::{Identity, OperatorRole, PlatformIdentity, RoleSet};
use api::rest::Semver;
use cloud::{Properties, Resource, ResourceRequest};
use steps::credentials::ensure_identity_certificate;
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::resources::ensure;
use steps::lifecycle::{ClusterSnapshot, resource_id, store_failed};

use super::{done, issuer};
use crate::Context;

/// Ensures the certificate of the cluster's own identity in the vault.
pub(crate) async fn ensure_cluster_certificate(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    if let Identity::Workload { resource_id: id, .. } = &snapshot.spec().identity
        && cx.life.cloud.infrastructure.get(&resource_id(id)?).await?.is_none()
    {
        let message = format!("The cluster needs exactly one identity; {id} was not found.");
        return Err(user_error("InvalidClusterMSICount", message, Some("identity")));
    }
    let cluster = cx.life.managed().await?;
    let certificate = ensure_identity_certificate(&cluster, step.hold, cx.life.clock.now()).await?;
    Ok(certificate.map_or_else(StepOutcome::default, |(_, until)| {
        StepOutcome::with_message(format!("valid until {until}"))
    }))
}

/// Resolves and records the ids of the platform's identities.
pub(crate) async fn persist_platform_ids(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let mut resolved: BTreeMap<String, PlatformIdentity> = BTreeMap::new();
    for (operator, identity) in platform(&snapshot) {
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

fn platform(snapshot: &ClusterSnapshot) -> BTreeMap<String, PlatformIdentity> {
    match &snapshot.spec().identity {
        Identity::Workload { platform, .. } => platform.clone(),
        Identity::ServicePrincipal { .. } => BTreeMap::new(),
    }
}

/// Resolves and records the tenant of the cluster's own identity.
pub(crate) async fn persist_cluster_ids(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let credential = cx.life.credential(snapshot.spec()).await?;
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
    let snapshot = cx.life.snapshot().await?;
    let credential = cx.life.credential(snapshot.spec()).await?;
    let principal = cx.life.cloud.identities.principal(&credential).await?;
    let object_id = principal.object_id;
    cx.life.record(step.hold, |record| record.service_principal_object_id = Some(object_id.clone())).await?;
    done()
}

/// The service accounts of each operator.
async fn service_accounts(
    cx: &Context,
    snapshot: &ClusterSnapshot,
) -> Result<BTreeMap<String, Vec<String>>, StepError> {
    let mut accounts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for role in operator_roles(cx, snapshot).await? {
        accounts.entry(role.operator_name).or_default().extend(role.service_accounts);
    }
    Ok(accounts)
}

/// The role assignments of the platform's identities: object id and role name of each.
pub(crate) async fn platform_roles(
    cx: &Context,
    snapshot: &ClusterSnapshot,
) -> Result<BTreeSet<(String, String)>, StepError> {
    let platform = platform(snapshot);
    let mut wanted = BTreeSet::new();
    if platform.is_empty() {
        return Ok(wanted);
    }
    for role in operator_roles(cx, snapshot).await? {
        let identity = platform.get(&role.operator_name).and_then(|it| it.object_id.clone());
        wanted.extend(identity.map(|principal| (principal, role.role_definition_name)));
    }
    Ok(wanted)
}

/// The operators' roles, from the role sets of the cluster's minor version and of the version that it may be upgraded to.
async fn operator_roles(cx: &Context, snapshot: &ClusterSnapshot) -> Result<Vec<OperatorRole>, StepError> {
    let running = snapshot.record().running_version.as_deref().unwrap_or(&snapshot.spec().version);
    let upgrade = match &snapshot.spec().identity {
        Identity::Workload { upgradeable_to, .. } => upgradeable_to.as_deref(),
        Identity::ServicePrincipal { .. } => None,
    };
    let mut roles = Vec::new();
    for (version, required) in [(Some(running), true), (upgrade, false)] {
        let Some(version) = version.and_then(|it| it.parse::<Semver>().ok()) else { continue };
        let path = format!("/platformworkloadidentityrolesets/{}", version.minor_name());
        let found = cx.life.records.store.collection::<RoleSet>().find(&path).await.map_err(store_failed)?;
        if found.is_none() && required {
            let message = format!("version {} has no role set", version.minor_name());
            return Err(StepError::transient("NoRoleSet", message));
        }
        roles.extend(found.into_iter().flat_map(|it| it.document.roles));
    }
    Ok(roles)
}

/// Federates the platform's identities with the cluster's service accounts.
pub(crate) async fn federate(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let accounts = service_accounts(&cx, &snapshot).await?;
    let own = issuer::credential_prefix(&issuer::issuer(&cx, &snapshot)?);
    for (operator, identity) in platform(&snapshot) {
        let id = resource_id(&identity.resource_id)?;
        let Some(found) = cx.life.cloud.infrastructure.get(&id).await? else {
            return Ok(PollStatus::Waiting(format!("identity {} was not found", id.name())));
        };
        let Properties::Identity { mut federated, client_id, principal_id, tenant_id } = found.properties
        else {
            return Err(StepError::terminal("Invalid", format!("{id} is not an identity")));
        };
        // One credential for each service account; those of another version or of an earlier release are removed.
        let before = federated.clone();
        federated.retain(|name, _| !name.starts_with(&own));
        let operator_accounts = accounts.get(&operator).into_iter().flatten();
        federated.extend(operator_accounts.map(|account| (format!("{own}{account}"), account.clone())));
        if federated == before {
            continue;
        }
        let properties = Properties::Identity { federated, client_id, principal_id, tenant_id };
        let put = ResourceRequest { id, location: found.location, tags: found.tags, properties };
        if let waiting @ PollStatus::Waiting(_) = ensure(&*cx.life.cloud.infrastructure, &[put]).await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}
