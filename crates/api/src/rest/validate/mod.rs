//! Validation rules, in the order of their evaluation; the first violation is reported. Each rule is in one
//! place, for all versions, and is a function of the draft and its context.

mod cluster_profile;
mod identity;
mod network;
mod pools;
mod resource;
mod servers;

use super::draft::{Draft, DraftProperties};
use super::field_error::shown;
use super::{FieldError, Semver};
use crate::doc::{Cluster, Identity};

pub use identity::match_roles;

/// Input of the rules besides the draft.
#[derive(Debug, Clone, Copy)]
pub struct ValidationContext<'a> {
    /// The cluster's path, as the URL spells it.
    pub path: &'a str,
    /// The configured locations.
    pub locations: &'a [String],
    /// The service's own DNS zone.
    pub zone: Option<&'a str>,
    /// Whether workers must be small.
    pub small_workers: bool,
    /// The stored cluster; none for a creation.
    pub stored: Option<&'a Cluster>,
}

impl<'a> ValidationContext<'a> {
    fn is_create(&self) -> bool {
        self.stored.is_none()
    }

    /// A segment of the path, by its index.
    fn segment(&self, at: usize) -> &'a str {
        self.path.split('/').nth(at).unwrap_or_default()
    }

    fn subscription(&self) -> &'a str {
        self.segment(2)
    }

    fn resource_group(&self) -> &'a str {
        self.segment(4)
    }

    fn is_workload(&self) -> bool {
        let identity = self.stored.and_then(|it| Some(&it.provisioned.as_deref()?.spec.identity));
        matches!(identity, Some(Identity::Workload { .. }))
    }
}

type Rule = fn(&Draft<'_>, &ValidationContext<'_>) -> Result<(), FieldError>;
type PropertyRule = fn(&Draft<'_>, &DraftProperties<'_>, &ValidationContext<'_>) -> Result<(), FieldError>;

/// Rules of the resource, evaluated first.
const RULES: [Rule; 5] = [resource::id, resource::name, resource::kind, resource::location, resource::tags];

/// Rules of the properties.
const PROPERTY_RULES: [PropertyRule; 17] = [
    resource::provisioning_state,
    cluster_profile::present,
    cluster_profile::pull_secret,
    cluster_profile::domain,
    cluster_profile::resource_group,
    cluster_profile::fips,
    servers::console,
    identity::which,
    identity::service_principal,
    identity::managed,
    network::profile,
    network::load_balancer,
    pools::master,
    servers::apiserver,
    pools::workers,
    pools::workers_status,
    servers::ingresses,
];

/// Reject the first value that violates a rule. The version is not validated here: it is compared with the enabled versions,
/// after everything else.
pub fn validate(draft: &Draft<'_>, context: &ValidationContext<'_>) -> Result<(), FieldError> {
    RULES.iter().try_for_each(|rule| rule(draft, context))?;
    let properties = draft.properties.as_ref().ok_or_else(|| FieldError::required("properties"))?;
    PROPERTY_RULES.iter().try_for_each(|rule| rule(draft, properties, context))
}

/// The version that a draft names.
pub fn version_of_draft(draft: &Draft<'_>) -> Option<Semver> {
    draft.properties.as_ref()?.version?.parse().ok()
}

/// The text, unless it is empty.
fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|it| !it.is_empty())
}

/// Check that a value is one of `words`.
fn one_of(value: Option<&str>, words: &[&str], target: &str) -> Result<(), FieldError> {
    match given(value) {
        None => Err(FieldError::required(target)),
        Some(value) if words.contains(&value) => Ok(()),
        Some(value) => Err(FieldError::parameter(
            target,
            format!("The provided value {} is invalid: it must be {}.", shown(value), words.join(" or ")),
        )),
    }
}

const SWITCH: [&str; 2] = ["Enabled", "Disabled"];
const VISIBILITY: [&str; 2] = ["Public", "Private"];
