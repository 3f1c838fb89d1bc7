//! The kinds that one cluster currently serves: the built-in ones and those of its CustomResourceDefinitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kinds::{self, Kind};
use crate::objects::Objects;

/// The table of CustomResourceDefinitions.
pub const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The kinds of one cluster.
#[derive(Debug, Default, Clone)]
pub struct Registry {
    custom: BTreeMap<(String, String, String), Arc<Kind>>,
}

impl Registry {
    /// A registry with the established definitions among `objects`.
    pub fn from_objects(objects: &Objects) -> Registry {
        let mut custom = BTreeMap::new();
        for (_, definition) in objects.range(DEFINITIONS, "", "") {
            let definition = definition.value();
            let established = definition["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
            if !established {
                continue;
            }
            for kind in Kind::from_definition(&definition) {
                let key = (kind.group().to_owned(), kind.version().to_owned(), kind.plural().to_owned());
                custom.insert(key, kind);
            }
        }
        Registry { custom }
    }

    /// Finds the kind that is served under this path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let built_in = kinds::built_in()
            .iter()
            .find(|kind| kind.plural() == plural && kind.group() == group && kind.version() == version);
        built_in.or_else(|| self.custom.get(&(group.to_owned(), version.to_owned(), plural.to_owned())))
    }

    /// Finds a kind by its name.
    pub fn find_kind(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.all().find(|one| one.group() == group && one.kind() == kind)
    }

    /// Finds any version of the kind whose objects are in this table.
    pub fn find_table(&self, table: &str) -> Option<&Arc<Kind>> {
        self.all().find(|kind| **kind.table() == *table)
    }

    /// All kinds.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        kinds::built_in().iter().chain(self.custom.values())
    }

    /// All groups with their versions, in the order of discovery: the newest and most stable version first.
    pub fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for kind in self.all() {
            match groups.iter_mut().find(|(group, _)| *group == kind.group()) {
                Some((_, versions)) if versions.contains(&kind.version()) => {}
                Some((_, versions)) => versions.push(kind.version()),
                None => groups.push((kind.group(), vec![kind.version()])),
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by_key(|version| std::cmp::Reverse(precedence(version)));
        }
        groups
    }
}

/// The order of versions: v2 before v1 before v1beta2 before v1alpha1 before anything else.
pub(crate) fn precedence(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest[..end].parse().ok()?;
        let (stability, minor) = match &rest[end..] {
            "" => (3, 0),
            tail => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
                (Some(minor), _) => (2, minor.parse().ok()?),
                (_, Some(minor)) => (1, minor.parse().ok()?),
                _ => return None,
            },
        };
        Some((stability, major, minor))
    };
    parse().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_before_beta_and_alpha() {
        let mut versions = vec!["v1alpha1", "foo", "v1", "v2beta1", "v10", "v1beta2"];
        versions.sort_by_key(|version| std::cmp::Reverse(precedence(version)));
        assert_eq!(versions, ["v10", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }
}
