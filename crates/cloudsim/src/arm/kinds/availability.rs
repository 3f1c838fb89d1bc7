//! Sets that machines and interfaces join: availability sets and application security groups. Both know their members by reference.

use cloud::ResourceId;
use serde_json::json;

use super::body::{Body, default, keep, object, properties};
use super::security::show_users;
use crate::arm::{ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::seed;

pub(super) struct AvailabilitySets;

impl Behaviour for AvailabilitySets {
    fn prepare(
        &self,
        _cx: &CallContext<'_>,
        _id: &ResourceId,
        _before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(None, body, &["virtualMachines", "statuses"]);
        default(object(body, "sku"), "name", json!("Classic"));
        default(properties(body), "platformFaultDomainCount", json!(2));
        default(properties(body), "platformUpdateDomainCount", json!(5));
        Ok(())
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        show_users(cx, resource, body, &[("virtualMachines", "virtualMachines")])
    }

    fn in_use(&self, resource: &ArmResource, _user: &ResourceId) -> (String, String) {
        let message = format!(
            "Availability Set '{}' cannot be deleted. Before deleting an Availability Set please ensure that it does not contain \
             any VM.",
            resource.id.name()
        );
        ("OperationNotAllowed".to_owned(), message)
    }
}

pub(super) struct ApplicationSecurityGroups;

impl Behaviour for ApplicationSecurityGroups {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(before, body, &["resourceGuid"]);
        let guid = seed::uuid(cx.seed, &["guid", &id.key()]).to_string();
        default(properties(body), "resourceGuid", json!(guid));
        Ok(())
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message = format!(
            "Application security group {} cannot be deleted because it is in use by {user}.",
            resource.id
        );
        ("ApplicationSecurityGroupInUse".to_owned(), message)
    }
}
