//! Rules of the cluster profile: pull secret, domain, managed resource group, cryptographic modules.

use serde_json::Value;

use super::super::field_error::shown;
use super::super::names::{group_id, is_domain};
use super::super::{FieldError, Semver};
use super::{Draft, DraftProperties, SWITCH, ValidationContext, given, one_of};

pub(super) fn present(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    _: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    if properties.has_cluster_profile {
        return Ok(());
    }
    Err(FieldError::required("properties.clusterProfile"))
}

pub(super) fn pull_secret(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    _: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    let Some(secret) =
        properties.pull_secret.map(super::super::HiddenText::expose).filter(|it| !it.is_empty())
    else {
        return Ok(());
    };
    let read: Option<Value> = serde_json::from_str(secret).ok();
    if read.is_some_and(|value| value.get("auths").is_some_and(Value::is_object)) {
        return Ok(());
    }
    let message = "The provided pull secret is invalid: it must be JSON of the form {\"auths\": {...}}.";
    Err(FieldError::parameter("properties.clusterProfile.pullSecret", message))
}

pub(super) fn domain(
    draft: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    const TARGET: &str = "properties.clusterProfile.domain";
    let domain = given(properties.domain).ok_or_else(|| FieldError::required(TARGET))?;
    let refused = |why: String| Err(FieldError::parameter(TARGET, why));
    if !is_domain(domain, !context.is_create()) {
        return refused(format!(
            "The provided domain {} is invalid: it must be labels of small letters, digits and hyphens, the first of two \
             characters or more beginning with a letter.",
            shown(domain)
        ));
    }
    let Some(zone) = context.zone else { return Ok(()) };
    if !domain.ends_with(&format!(".{zone}")) {
        return Ok(());
    }
    let own = format!(".{}.{zone}", draft.location.unwrap_or_default().to_ascii_lowercase());
    match domain.strip_suffix(&own) {
        Some(label) if !label.is_empty() && !label.contains('.') => Ok(()),
        _ => refused(format!(
            "The provided domain {} is invalid: in the zone {zone} it must be one label followed by {own}.",
            shown(domain)
        )),
    }
}

pub(super) fn resource_group(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    const TARGET: &str = "properties.clusterProfile.resourceGroupId";
    let id = given(properties.resource_group_id).ok_or_else(|| FieldError::required(TARGET))?;
    let refused = |why: &str| {
        Err(FieldError::parameter(
            TARGET,
            format!("The provided resource group {} is invalid: {why}.", shown(id)),
        ))
    };
    let Some(group) = group_id(id) else {
        return refused("it must have the form /subscriptions/ID/resourceGroups/NAME");
    };
    if !group.subscription.eq_ignore_ascii_case(context.subscription()) {
        return refused("it must be in the cluster's own subscription");
    }
    if group.group.eq_ignore_ascii_case(context.resource_group()) {
        return refused("it must be another than the one that the cluster is in");
    }
    Ok(())
}

pub(super) fn fips(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    _: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    one_of(properties.fips, &SWITCH, "properties.clusterProfile.fipsValidatedModules")
}

/// Whether a version is at least the minimum version of a size.
pub(super) fn is_at_least(version: Option<&str>, least: &Semver) -> bool {
    // An invalid version is rejected later, with its own error.
    version.and_then(|text| text.parse::<Semver>().ok()).is_none_or(|version| version >= *least)
}
