//! The inventory of an apply-set, stored on the cluster itself.
//!
//! The parent is a ConfigMap labelled as kubectl's ApplySet specification requires (KEP-3659), and every member has the set's
//! `part-of` label, so that people and other tools recognise the set. Unlike kubectl, an object is pruned only if the parent
//! names it *and* it has the label: a copy of a member under another name is never pruned. The names are written before the
//! objects, so that an interrupted apply leaves no unnamed object.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::core::{ApiResource, ObjectMeta};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link};
use crate::target::Target;

/// Label of the parent: the set's id.
pub const SET_ID: &str = "applyset.kubernetes.io/id";
/// Label of each member: the id of its set.
pub const PART_OF: &str = "applyset.kubernetes.io/part-of";
const TOOLING: &str = "applyset.kubernetes.io/tooling";
const GROUP_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
const MEMBERS: &str = "members.json";

/// Name and namespace of a set's parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySetName {
    /// The parent's namespace, which must exist.
    pub namespace: String,
    /// The parent's name.
    pub name: String,
}

impl ApplySetName {
    /// The id as the specification computes it: unique for each parent.
    pub fn id(&self) -> String {
        let digest = Sha256::digest(format!("{}.{}.ConfigMap.", self.name, self.namespace).as_bytes());
        format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(digest))
    }
}

/// One member, by what identifies it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Member {
    group: String,
    version: String,
    kind: String,
    plural: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
}

impl Member {
    pub(crate) fn of(target: &Target) -> Member {
        let ApiResource { group, version, kind, plural, .. } = target.resource.clone();
        Member {
            group,
            version,
            kind,
            plural,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        }
    }

    pub(crate) fn target(&self) -> Target {
        let gvk = kube::core::GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &self.plural);
        Target { resource, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// The parent as it was last read or written.
#[derive(Debug)]
pub(crate) struct Inventory {
    set: ApplySetName,
    parent: Option<ConfigMap>,
    pub(crate) members: BTreeSet<Member>,
}

impl Inventory {
    pub(crate) async fn read(link: &Link, set: &ApplySetName) -> Result<Inventory, LinkError> {
        let label = describe(set);
        let api: Api<ConfigMap> = Api::namespaced(link.client(), &set.namespace);
        let parent = api.get_opt(&set.name).await.map_err(|error| link.failed("read", &label, error))?;
        let reject = |why: &str| link.error("use", &label, Failure::Precondition { why: why.to_owned() });
        let members = match &parent {
            None => BTreeSet::new(),
            Some(parent) => {
                if parent.labels().get(SET_ID) != Some(&set.id()) {
                    return Err(reject(
                        "a ConfigMap of that name exists and is not an apply-set; choose another name",
                    ));
                }
                if parent.annotations().get(TOOLING).is_none_or(|tooling| !tooling.starts_with("shipshape/"))
                {
                    return Err(reject("it belongs to another tool"));
                }
                let text =
                    parent.data.as_ref().and_then(|data| data.get(MEMBERS)).map_or("[]", String::as_str);
                serde_json::from_str(text).map_err(|_| reject("its list of members cannot be parsed"))?
            }
        };
        Ok(Inventory { set: set.clone(), parent, members })
    }

    /// Writes `members` to the parent, unless it has them already. Of two concurrent applies, the second write fails.
    pub(crate) async fn write(&mut self, link: &Link, members: BTreeSet<Member>) -> Result<(), LinkError> {
        if self.parent.is_some() && self.members == members {
            return Ok(());
        }
        let label = describe(&self.set);
        let api: Api<ConfigMap> = Api::namespaced(link.client(), &self.set.namespace);
        let wanted = self.parent_of(&members);
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let written = match self.parent {
            None => api.create(&params, &wanted).await,
            Some(_) => api.replace(&self.set.name, &params, &wanted).await,
        };
        self.parent = Some(written.map_err(|error| link.failed("write", &label, error))?);
        self.members = members;
        Ok(())
    }

    fn parent_of(&self, members: &BTreeSet<Member>) -> ConfigMap {
        let kinds: BTreeSet<String> =
            members.iter().map(|member| group_kind(&member.group, &member.kind)).collect();
        let namespaces: BTreeSet<&str> =
            members.iter().filter_map(|member| member.namespace.as_deref()).collect();
        let others: Vec<&str> =
            namespaces.into_iter().filter(|namespace| *namespace != self.set.namespace).collect();
        let annotations = BTreeMap::from([
            (TOOLING.to_owned(), "shipshape/v1".to_owned()),
            (GROUP_KINDS.to_owned(), kinds.into_iter().collect::<Vec<_>>().join(",")),
            (NAMESPACES.to_owned(), others.join(",")),
        ]);
        let metadata = ObjectMeta {
            name: Some(self.set.name.clone()),
            namespace: Some(self.set.namespace.clone()),
            labels: Some(BTreeMap::from([(SET_ID.to_owned(), self.set.id())])),
            annotations: Some(annotations),
            resource_version: self.parent.as_ref().and_then(ResourceExt::resource_version),
            ..ObjectMeta::default()
        };
        let text = serde_json::to_string(members).unwrap_or_else(|_| "[]".to_owned());
        ConfigMap {
            metadata,
            data: Some(BTreeMap::from([(MEMBERS.to_owned(), text)])),
            ..ConfigMap::default()
        }
    }
}

fn group_kind(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

fn describe(set: &ApplySetName) -> String {
    format!("apply-set {}/{}", set.namespace, set.name)
}

/// The members that are no longer wanted. The same group, kind, namespace and name in another version is the same object.
pub(crate) fn unwanted<'a>(members: &'a BTreeSet<Member>, wanted: &[Target]) -> Vec<&'a Member> {
    let wanted: BTreeSet<_> = wanted.iter().map(Target::key).collect();
    members.iter().filter(|member| !wanted.contains(&member.target().key())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_id_is_that_of_the_specification() {
        // kubectl: base64url(sha256("<name>.<namespace>.<kind>.<group>")) between "applyset-" and "-v1".
        let set = ApplySetName { namespace: "default".into(), name: "demo".into() };
        assert_eq!(set.id().len(), "applyset--v1".len() + 43);
        assert_ne!(set.id(), ApplySetName { namespace: "other".into(), name: "demo".into() }.id());
    }

    proptest! {
        #[test]
        fn only_members_outside_the_wanted_set_are_unwanted(all in proptest::collection::btree_set(0u8..40, 0..20), kept in proptest::collection::btree_set(0u8..40, 0..20)) {
            let target = |index: &u8| Target::typed::<ConfigMap>(Some("x"), &format!("c{index}"));
            let members: BTreeSet<Member> = all.iter().map(|index| Member::of(&target(index))).collect();
            let wanted: Vec<Target> = kept.iter().map(target).collect();
            let gone: BTreeSet<String> = unwanted(&members, &wanted).iter().map(|member| member.name.clone()).collect();
            let expect: BTreeSet<String> = all.difference(&kept).map(|index| format!("c{index}")).collect();
            prop_assert_eq!(gone, expect);
        }
    }
}
