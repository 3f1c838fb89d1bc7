//! Rules of the cluster's identity: a service principal, or managed identities.

use std::collections::BTreeSet;

use super::super::field_error::shown;
use super::super::names::{is_identity_id, is_uuid};
use super::super::{FieldError, FieldErrorCode, HiddenText, Semver};
use super::{Draft, DraftProperties, ValidationContext, given};
use crate::doc::{Identity, RoleSet};

const PRINCIPAL: &str = "properties.servicePrincipalProfile";
const PLATFORM: &str = "properties.platformWorkloadIdentityProfile";

fn has_principal(properties: &DraftProperties<'_>) -> bool {
    properties.service_principal.is_some_and(|it| !it.is_empty())
}

/// Exactly one of the two, the same as at the creation.
pub(super) fn which(
    draft: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    if !draft.knows_identities && context.is_workload() {
        return if has_principal(properties) { Err(FieldError::unchangeable(PRINCIPAL)) } else { Ok(()) };
    }
    let has_platform = properties.platform.is_some();
    if context.is_workload() && has_principal(properties) {
        return Err(FieldError::unchangeable(PRINCIPAL));
    }
    if !context.is_create() && !context.is_workload() && has_platform && !has_principal(properties) {
        return Err(FieldError::unchangeable(PLATFORM));
    }
    if has_principal(properties) && has_platform {
        let message =
            "A cluster works either as a service principal or with managed identities, not with both.";
        return Err(FieldError::parameter(PRINCIPAL, message));
    }
    if has_platform != draft.identity.is_some() {
        let message =
            "The cluster's identity and the identities of the platform's operators belong together.";
        return Err(FieldError::parameter("identity", message));
    }
    if !has_platform && properties.service_principal.is_none() {
        let message = "Either a service principal or managed identities must be given.";
        return Err(FieldError::parameter(PRINCIPAL, message));
    }
    Ok(())
}

pub(super) fn service_principal(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    let Some(profile) = properties.service_principal.filter(|_| properties.platform.is_none()) else {
        return Ok(());
    };
    let client_id = given(profile.client_id.as_deref());
    let target = format!("{PRINCIPAL}.clientId");
    let client_id = client_id.ok_or_else(|| FieldError::required(target.as_str()))?;
    if !is_uuid(client_id) {
        let message = format!("The provided client id {} is invalid: it must be a UUID.", shown(client_id));
        return Err(FieldError::parameter(target, message));
    }
    let has_secret = profile.client_secret.as_ref().map(HiddenText::expose).is_some_and(|it| !it.is_empty());
    if context.is_create() && !has_secret {
        return Err(FieldError::required(format!("{PRINCIPAL}.clientSecret")));
    }
    Ok(())
}

pub(super) fn managed(
    draft: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    let (Some(identity), Some(profile)) = (draft.identity, properties.platform) else { return Ok(()) };
    if identity.kind.as_deref() != Some("UserAssigned") {
        let message = format!(
            "The provided identity type {} is invalid: it must be UserAssigned.",
            shown(identity.kind.as_deref().unwrap_or_default())
        );
        return Err(FieldError::parameter("identity", message));
    }
    let assigned: Vec<&String> =
        identity.user_assigned_identities.iter().flatten().map(|(id, _)| id).collect();
    if assigned.len() != 1 {
        return Err(FieldError::parameter("identity", "There should be exactly one user-assigned identity."));
    }
    if let Some(id) = assigned.into_iter().find(|id| !is_identity_id(id)) {
        return Err(bad_identity(id, "identity".to_owned()));
    }
    if let Some(version) = given(profile.upgradeable_to.as_deref())
        && version.parse::<Semver>().is_err()
    {
        let message = format!("The provided version {} is invalid: it must be as 4.18.0.", shown(version));
        return Err(FieldError::parameter(format!("{PLATFORM}.UpgradeableTo[{version}]"), message));
    }
    let target = format!("{PLATFORM}.platformWorkloadIdentities");
    let Some(platform) = profile.platform_workload_identities.as_ref().filter(|it| !it.is_empty()) else {
        return Err(FieldError::required(target));
    };
    let mut seen = BTreeSet::new();
    for (operator, identity) in platform {
        let id = identity.as_ref().and_then(|it| given(it.resource_id.as_deref())).unwrap_or_default();
        let target = || format!("{target}[\"{operator}\"].resourceId");
        if !is_identity_id(id) {
            return Err(bad_identity(id, target()));
        }
        if !seen.insert(id.to_ascii_lowercase()) {
            let message = format!("The identity {} is used by two operators.", shown(id));
            return Err(FieldError::parameter(target(), message));
        }
    }
    let stored = context.stored.and_then(|it| it.provisioned.as_deref());
    if let Some(Identity::Workload { platform: known, .. }) = stored.map(|it| &it.spec.identity)
        && known.keys().any(|operator| !platform.contains_key(operator))
    {
        return Err(FieldError::unchangeable(target));
    }
    Ok(())
}

fn bad_identity(id: &str, target: String) -> FieldError {
    let message = format!(
        "The provided identity {} is invalid: it must have the form /subscriptions/ID/resourceGroups/NAME/providers/\
         Microsoft.ManagedIdentity/userAssignedIdentities/NAME.",
        shown(id)
    );
    FieldError::parameter(target, message)
}

/// Check that the operators with identities are those of the role sets: of the cluster's own minor version, and of the further
/// version that the identities must satisfy.
pub fn match_roles(identity: &Identity, version: &str, sets: &[RoleSet]) -> Result<(), FieldError> {
    let Identity::Workload { platform, upgradeable_to, .. } = identity else { return Ok(()) };
    let mut wanted = BTreeSet::new();
    for text in [Some(version), upgradeable_to.as_deref()].into_iter().flatten() {
        let minor = text.parse::<Semver>().map(|version| version.minor_name()).unwrap_or_default();
        let set = sets.iter().find(|set| set.openshift_version == minor).ok_or_else(|| {
            let message = format!("There is no role set for version {}.", shown(text));
            FieldError::parameter("", message)
        })?;
        wanted.extend(set.roles.iter().map(|role| role.operator_name.as_str()));
    }
    let found: BTreeSet<&str> = platform.keys().map(String::as_str).collect();
    if found == wanted {
        return Ok(());
    }
    let list = |names: Vec<&&str>| names.into_iter().copied().collect::<Vec<_>>().join(", ");
    let message = format!(
        "The operators with identities are not those of the role set: missing [{}], unexpected [{}].",
        list(wanted.difference(&found).collect()),
        list(found.difference(&wanted).collect())
    );
    Err(FieldError::new(
        FieldErrorCode::PlatformWorkloadIdentityMismatch,
        format!("{PLATFORM}.platformWorkloadIdentities"),
        message,
    ))
}
