//! The ids of a cloud's resources, in the form of Azure's resource manager: compared without regard to case, shown as spelled.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of a resource: `/subscriptions/S/resourceGroups/G[/providers/N/TYPE/NAME[/TYPE/NAME…]]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceId(String);

/// A text that is no resource id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no resource id; expected /subscriptions/ID/resourceGroups/NAME/providers/NAMESPACE/TYPE/NAME"
)]
pub struct ResourceIdError(String);

impl ResourceId {
    /// The id of a resource group.
    pub fn group(subscription: &str, group: &str) -> ResourceId {
        ResourceId(format!("/subscriptions/{subscription}/resourceGroups/{group}"))
    }

    /// The id of a resource in the group of this one.
    #[must_use]
    pub fn sibling(&self, namespace: &str, kind: &str, name: &str) -> ResourceId {
        let group = ResourceId::group(self.subscription(), self.resource_group());
        ResourceId(format!("{group}/providers/{namespace}/{kind}/{name}"))
    }

    /// The id of a part of this resource, such as a subnet of a network.
    #[must_use]
    pub fn child(&self, kind: &str, name: &str) -> ResourceId {
        ResourceId(format!("{}/{kind}/{name}", self.0))
    }

    /// The id of the resource that this one is part of.
    pub fn parent(&self) -> Option<ResourceId> {
        let segments: Vec<&str> = self.0.split('/').collect();
        // '', subscriptions, S, resourceGroups, G, providers, N, TYPE, NAME, TYPE, NAME
        (segments.len() > 9).then(|| ResourceId(segments[..segments.len() - 2].join("/")))
    }

    fn segment(&self, at: usize) -> &str {
        self.0.split('/').nth(at).unwrap_or_default()
    }

    /// The subscription.
    pub fn subscription(&self) -> &str {
        self.segment(2)
    }

    /// The resource group.
    pub fn resource_group(&self) -> &str {
        self.segment(4)
    }

    /// The last segment.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The id as it was spelled.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id by which two spellings are one.
    pub fn key(&self) -> String {
        self.0.to_lowercase()
    }
}

impl FromStr for ResourceId {
    type Err = ResourceIdError;

    fn from_str(text: &str) -> Result<ResourceId, ResourceIdError> {
        let segments: Vec<&str> = text.split('/').collect();
        let is = |at: usize, word: &str| segments.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word));
        let is_group = segments.len() == 5;
        let is_resource = segments.len() >= 9 && segments.len() % 2 == 1 && is(5, "providers");
        let sound = segments[0].is_empty()
            && is(1, "subscriptions")
            && is(3, "resourcegroups")
            && segments[1..].iter().all(|segment| !segment.is_empty())
            && (is_group || is_resource);
        if sound { Ok(ResourceId(text.to_owned())) } else { Err(ResourceIdError(text.to_owned())) }
    }
}

impl TryFrom<String> for ResourceId {
    type Error = ResourceIdError;

    fn try_from(text: String) -> Result<ResourceId, ResourceIdError> {
        text.parse()
    }
}

impl From<ResourceId> for String {
    fn from(id: ResourceId) -> String {
        id.0
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &ResourceId) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for ResourceId {}

impl Hash for ResourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl PartialOrd for ResourceId {
    fn partial_cmp(&self, other: &ResourceId) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceId {
    fn cmp(&self, other: &ResourceId) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_apart_and_compared_without_case() {
        let subnet: ResourceId =
            "/subscriptions/S/resourceGroups/G/providers/Microsoft.Network/virtualNetworks/v/subnets/Master"
                .parse()
                .unwrap();
        assert_eq!((subnet.subscription(), subnet.resource_group(), subnet.name()), ("S", "G", "Master"));
        let network = subnet.parent().unwrap();
        assert_eq!(network.name(), "v");
        assert_eq!(network.parent(), None);
        assert_eq!(network.child("SUBNETS", "master"), subnet);
        assert_eq!(ResourceId::group("S", "G").sibling("Microsoft.Network", "virtualNetworks", "v"), network);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in [
            "",
            "/",
            "subscriptions/s/resourceGroups/g",
            "/subscriptions//resourceGroups/g",
            "/subscriptions/s",
            "/subscriptions/s/resourceGroups/g/providers/n/t",
            "/subscriptions/s/resourceGroups/g/providers/n/t/x/y",
        ] {
            assert!(text.parse::<ResourceId>().is_err(), "{text}");
        }
    }
}
