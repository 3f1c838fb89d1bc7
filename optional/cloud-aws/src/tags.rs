//! The tags of an instance and its volumes, and what tags say about the owner of an instance. They are those of OpenShift's provider, so
//! that instances which that has made are found too.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{Instance, Tag};

use crate::spec::NamedTag;

/// The first part of the tag that names the owning cluster.
const CLUSTER_TAG: &str = "kubernetes.io/cluster/";
/// The tag with the Machine's name.
pub(crate) const NAME_TAG: &str = "Name";
/// The value of the owner's tag.
pub(crate) const OWNED: &str = "owned";

/// The key of the tag by which a cluster owns a resource.
pub(crate) fn cluster_tag(cluster: &str) -> String {
    format!("{CLUSTER_TAG}{cluster}")
}

/// The tags of a Machine's resources. The owner and the name cannot be overridden; among the others the first of a key counts, those of
/// the Machine before those of the infrastructure.
pub(crate) fn tags(
    cluster: &str,
    machine: &str,
    of_machine: &[NamedTag],
    of_infrastructure: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let own = [(cluster_tag(cluster), OWNED.to_owned()), (NAME_TAG.to_owned(), machine.to_owned())];
    let given = of_machine.iter().map(|it| (it.name.clone(), it.value.clone()));
    let infrastructure = of_infrastructure.iter().map(|(key, value)| (key.clone(), value.clone()));
    let mut tags = BTreeMap::new();
    for (key, value) in own.into_iter().chain(given).chain(infrastructure) {
        tags.entry(key).or_insert(value);
    }
    tags
}

/// The tags in the form of the SDK.
pub(crate) fn to_sdk(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

/// The tags that an instance lacks or has with another value.
pub(crate) fn missing(instance: &Instance, wanted: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let has = |key: &str, value: &str| {
        instance.tags().iter().any(|it| it.key() == Some(key) && it.value() == Some(value))
    };
    wanted
        .iter()
        .filter(|(key, value)| !has(key, value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Whether an instance belongs to another cluster. One without an owner's tag is taken as ours: the Machine has recorded it.
pub(crate) fn is_foreign(instance: &Instance, cluster: &str) -> bool {
    let owners = instance.tags().iter().filter(|it| it.value() == Some(OWNED));
    let owners: Vec<&str> = owners.filter_map(|it| it.key()?.strip_prefix(CLUSTER_TAG)).collect();
    !owners.is_empty() && !owners.contains(&cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(tags: &[(&str, &str)]) -> BTreeMap<String, String> {
        tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn instance(tags: &[(&str, &str)]) -> Instance {
        Instance::builder().set_tags(Some(to_sdk(&map(tags)))).build()
    }

    #[test]
    fn the_first_tag_of_a_key_counts_and_nobody_overrides_owner_and_name() {
        let tag = |name: &str, value: &str| NamedTag { name: name.to_owned(), value: value.to_owned() };
        let of_machine = [
            tag("team", "a"),
            tag("team", "b"),
            tag("Name", "other"),
            tag("kubernetes.io/cluster/one", "shared"),
        ];
        let tags = tags("one", "m", &of_machine, &map(&[("team", "c"), ("env", "test")]));
        assert_eq!(
            tags,
            map(&[("kubernetes.io/cluster/one", "owned"), ("Name", "m"), ("team", "a"), ("env", "test")])
        );
    }

    #[test]
    fn only_tags_that_are_missing_or_differ_are_written() {
        let instance = instance(&[("team", "a"), ("by-hand", "x")]);
        assert_eq!(missing(&instance, &map(&[("team", "a")])), map(&[]));
        assert_eq!(missing(&instance, &map(&[("team", "b"), ("n", "1")])), map(&[("team", "b"), ("n", "1")]));
    }

    #[test]
    fn the_tag_of_another_cluster_marks_an_instance_as_foreign() {
        assert!(!is_foreign(&instance(&[]), "one"));
        assert!(!is_foreign(&instance(&[("kubernetes.io/cluster/one", "owned")]), "one"));
        assert!(is_foreign(&instance(&[("kubernetes.io/cluster/two", "owned")]), "one"));
        assert!(!is_foreign(&instance(&[("kubernetes.io/cluster/two", "shared")]), "one"));
    }
}
