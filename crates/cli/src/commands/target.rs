//! Subscription, resource group, location and name of a cluster.

use anyhow::bail;
use clap::Args;

/// Default subscription.
pub(super) const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

/// Default resource group.
pub(super) const GROUP: &str = "clusters";

/// Default location of a server.
pub(super) const LOCATION: &str = "local";

/// Flags of a cluster's subscription, resource group and location.
#[derive(Debug, Clone, Args)]
pub struct TargetFlags {
    /// The resource group
    #[arg(short = 'g', long, visible_alias = "group", value_name = "NAME", default_value = GROUP)]
    resource_group: String,
    /// The subscription
    #[arg(long, value_name = "ID", default_value = SUBSCRIPTION)]
    subscription: String,
    /// The location
    #[arg(long, value_name = "NAME", default_value = LOCATION)]
    location: String,
}

/// Subscription, resource group, location and name of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTarget {
    pub subscription: String,
    pub group: String,
    pub location: String,
    pub name: String,
}

impl TargetFlags {
    /// The target of a cluster with this name.
    pub(super) fn target(&self, name: &str) -> anyhow::Result<ClusterTarget> {
        let is_invalid = |text: &str| {
            text.is_empty() || text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
        };
        if is_invalid(name) {
            bail!("{name:?} is not a valid cluster name; use letters, digits and dashes, such as harbour-1");
        }
        for (flag, text) in [
            ("--resource-group", &self.resource_group),
            ("--subscription", &self.subscription),
            ("--location", &self.location),
        ] {
            if is_invalid(text) {
                bail!("{flag} {text:?} is not a valid name; use letters, digits and dashes");
            }
        }
        Ok(ClusterTarget {
            subscription: self.subscription.clone(),
            group: self.resource_group.clone(),
            location: self.location.clone(),
            name: name.to_owned(),
        })
    }
}

impl ClusterTarget {
    /// The cluster's resource id.
    pub fn id(&self) -> String {
        let ClusterTarget { subscription, group, name, .. } = self;
        format!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
        )
    }

    /// The id of the managed resource group. It belongs to this cluster alone, so it contains both names.
    pub fn managed_group(&self) -> String {
        let ClusterTarget { subscription, group, name, .. } = self;
        format!("/subscriptions/{subscription}/resourceGroups/{group}-{name}-managed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(group: &str) -> TargetFlags {
        TargetFlags {
            resource_group: group.to_owned(),
            subscription: SUBSCRIPTION.to_owned(),
            location: LOCATION.to_owned(),
        }
    }

    #[test]
    fn clusters_of_one_name_in_two_groups_share_nothing() {
        let (one, other) = (flags("a").target("web").unwrap(), flags("b").target("web").unwrap());
        assert!(
            one.id().ends_with("/resourceGroups/a/providers/Microsoft.RedHatOpenShift/openShiftClusters/web")
        );
        assert_ne!(one.id(), other.id());
        assert_ne!(one.managed_group(), other.managed_group());
    }

    #[test]
    fn an_invalid_name_is_rejected() {
        for name in ["", "a/b", "a b", "a\n"] {
            assert!(flags("g").target(name).is_err(), "{name:?}");
        }
        assert!(flags("g/h").target("web").unwrap_err().to_string().starts_with("--resource-group \"g/h\""));
    }
}
