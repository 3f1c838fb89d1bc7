//! What the resource manager knows of a type of resource: a row of data, and behaviour where data does not suffice.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use cloud::{ResourceFailure, ResourceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

/// The last change of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    Creating,
    Updating,
    Deleting,
}

/// A stored resource of the resource manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ArmResource {
    /// The id as it was spelled when the resource was created.
    pub(crate) id: ResourceId,
    /// The type, such as `Microsoft.Network/virtualNetworks/subnets`, as [`Kind::type_name`] spells it.
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    /// The body without `id`, `name`, `type`, `etag` and provisioning state: `location`, `tags`, `sku`, `zones`, `properties`, …, with
    /// the values that the cloud assigned.
    pub(crate) body: Map<String, Value>,
    /// Rises with every change; the etag is made of it.
    pub(crate) version: u64,
    pub(crate) change: Change,
    /// When the change completes.
    pub(crate) settles: Timestamp,
    /// The failure that the change ends in.
    #[serde(default)]
    pub(crate) fault: Option<ResourceFailure>,
    /// When get and list start to show it.
    #[serde(default)]
    pub(crate) seen_from: Option<Timestamp>,
}

impl ArmResource {
    /// A member of `properties`.
    pub(crate) fn property(&self, name: &str) -> Option<&Value> {
        self.body.get("properties")?.get(name)
    }

    /// The provisioning state at a time, as Azure spells it.
    pub(crate) fn provisioning_state(&self, now: Timestamp) -> &'static str {
        match (self.change, &self.fault) {
            (Change::Deleting, _) => "Deleting",
            (Change::Creating, _) if now < self.settles => "Creating",
            (Change::Updating, _) if now < self.settles => "Updating",
            (_, Some(_)) => "Failed",
            (_, None) => "Succeeded",
        }
    }

    pub(crate) fn is_visible(&self, now: Timestamp) -> bool {
        self.seen_from.is_none_or(|from| from <= now)
    }

    pub(crate) fn etag(&self, seed: u64) -> String {
        format!("W/\"{}\"", seed::uuid(seed, &["etag", &self.id.key(), &self.version.to_string()]))
    }

    pub(crate) fn location(&self) -> &str {
        self.body.get("location").and_then(Value::as_str).unwrap_or_default()
    }
}

/// How the response to a PUT looks. Clients reject any other status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutStyle {
    /// Complete at once: 201 when created, 200 when updated.
    Sync,
    /// Complete at once, always 200.
    SyncOk,
    /// 201 or 200 with the body and `Azure-AsyncOperation`.
    AsyncOperation,
    /// 202 with the body, `Azure-AsyncOperation` and `Location`.
    Accepted,
    /// 202 without a body and `Location`, which ends in 200 with the resource; 200 with the body when nothing has to be done.
    Location,
}

/// How the response to a DELETE looks. A missing resource is 204 in each style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteStyle {
    /// 200 at once.
    Sync,
    /// 202 with `Location` and `Azure-AsyncOperation`.
    Async,
    /// 202 with `Location` only.
    Location,
}

/// A type of resource.
pub(crate) struct Kind {
    /// Namespace and type in Azure's spelling.
    pub(crate) type_name: &'static str,
    pub(crate) put: PutStyle,
    pub(crate) delete: DeleteStyle,
    /// The usual duration of a change at the pace of a real cloud.
    pub(crate) span: Duration,
    /// Whether PUT requires a `location`. Children have none.
    pub(crate) has_location: bool,
    /// Whether responses have `etag` (and the header `ETag`), and `If-Match` is enforced. It is enforced for every kind that has one.
    pub(crate) has_etag: bool,
    pub(crate) behaviour: &'static dyn Behaviour,
}

/// The result of a POST on a resource.
pub(crate) enum ActionOutcome {
    /// 200 with this body, at once.
    Done(Value),
    /// 202 with `Location` (and `Azure-AsyncOperation`), ending after `span` in 200 with the body, or without one when it is null.
    /// `change`, when given, replaces the body of the resource at once.
    Accepted { span: Duration, result: Value, change: Option<Map<String, Value>> },
}

/// What a kind does beyond storing its body. Everything has a default.
///
/// The resource manager itself checks groups, parents, locations, locks, policies, etags, references, sizes and quotas, and adds `id`,
/// `name`, `type`, `etag` and `properties.provisioningState` to what is shown. A part of a body that is no kind of its own (a frontend of a
/// load balancer, a rule of a security group) is served from the array `properties.{collection}` of its resource: GET and list read the
/// shown body, PUT and DELETE replace the element and write the resource, POST calls [`Behaviour::act`] with the action
/// `{collection}/{name}/{action}`.
pub(crate) trait Behaviour: Sync {
    /// Validates a PUT and fills in what the cloud assigns. `before` is the present resource; assigned values are kept from it. `body` is
    /// what was sent (a full replacement).
    fn prepare(
        &self,
        _cx: &CallContext<'_>,
        _id: &ResourceId,
        _before: Option<&ArmResource>,
        _body: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Runs after a PUT is stored, for kinds whose body contains other resources (subnets of a network) or changes others.
    fn stored(&self, _cx: &CallContext<'_>, _resource: &ArmResource) -> Result<(), Failure> {
        Ok(())
    }

    /// Adds members that follow from other resources (`subnets`, `ipConfigurations`, instance views) to the body that is shown.
    /// `expand` is the value of `$expand`.
    fn show(
        &self,
        _cx: &CallContext<'_>,
        _resource: &ArmResource,
        _expand: Option<&str>,
        _body: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether a resource that refers to this one has to be deleted first. A load balancer does not wait for the interfaces in its pools.
    fn blocks_deletion(&self, _resource: &ArmResource, _user: &ResourceId) -> bool {
        true
    }

    /// The code and message of the error when `user` still refers to a resource that is to be deleted.
    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message = format!("{} is in use by {user} and cannot be deleted.", resource.id);
        ("ResourceInUse".to_owned(), message)
    }

    /// Checks before a deletion starts, besides references.
    fn may_delete(&self, _cx: &CallContext<'_>, _resource: &ArmResource) -> Result<(), Failure> {
        Ok(())
    }

    /// The resources that a body refers to. They must exist, and cannot be deleted before the resource. `prepare` must remove members that
    /// only [`Behaviour::show`] adds: a client that writes back what it read would make a reference of each.
    fn references(&self, id: &ResourceId, body: &Map<String, Value>) -> Vec<ResourceId> {
        super::references::in_properties(id, body)
    }

    /// The response to `GET {id}/{name}` where `name` is no type of children, such as `instanceView`.
    fn view(
        &self,
        _cx: &CallContext<'_>,
        _resource: &ArmResource,
        _name: &str,
        _query: &[(String, String)],
    ) -> Result<Option<Value>, Failure> {
        Ok(None)
    }

    /// Runs when a deletion has started, for kinds whose deletion changes other resources (the disk of a machine). `resource` is as it is
    /// stored then, with the time at which it is gone.
    fn deleted(&self, _cx: &CallContext<'_>, _resource: &ArmResource) -> Result<(), Failure> {
        Ok(())
    }

    /// Carries out `POST {id}/{action}`; `None` when the kind has no such action.
    fn act(
        &self,
        _cx: &CallContext<'_>,
        _resource: &ArmResource,
        _action: &str,
        _query: &[(String, String)],
        _body: &Value,
    ) -> Result<Option<ActionOutcome>, Failure> {
        Ok(None)
    }
}

/// The kind of a type, ignoring case.
pub(crate) fn find_kind(type_name: &str) -> Option<&'static Kind> {
    static KINDS: OnceLock<HashMap<String, &'static Kind>> = OnceLock::new();
    let kinds = KINDS.get_or_init(|| {
        let own = super::deployments::KINDS.iter();
        super::kinds::all().chain(own).map(|kind| (kind.type_name.to_lowercase(), kind)).collect()
    });
    kinds.get(&type_name.to_lowercase()).copied()
}

/// The type of a resource by its id, such as `Microsoft.Network/virtualNetworks/subnets`; `None` for a group.
pub(crate) fn type_of(id: &ResourceId) -> Option<String> {
    let segments: Vec<&str> = id.as_str().split('/').collect();
    let namespace = segments.get(6)?;
    let types: Vec<&str> = segments.iter().skip(7).step_by(2).copied().collect();
    Some(format!("{namespace}/{}", types.join("/")))
}
