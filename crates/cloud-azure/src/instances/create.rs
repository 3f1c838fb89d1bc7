//! Creation, step by step. A call goes on where an earlier one has ended, and ends where it would have to wait.

use std::time::Duration;

use api::secret::Secret;
use cloud::{CloudError, Instance, InstanceError, ResourceId, ResourceKind};
use serde_json::Value;

use super::body::{self, InterfaceParts, NewMachine};
use super::errors::{Verb, failed, instance_error};
use super::state::{self, Stage};
use super::{APPLICATION_GROUPS, AVAILABILITY_SETS, Target};
use crate::arm::Condition;
use crate::json::{is_same_location, items, text, texts};
use crate::resources::version;

fn wrong(error: CloudError) -> InstanceError {
    instance_error(error, Verb::Create)
}

fn invalid(why: String) -> InstanceError {
    InstanceError::InvalidConfiguration(why)
}

fn wait(after: Duration, why: String) -> InstanceError {
    InstanceError::RequeueAfter(after, why)
}

impl Target {
    pub(super) async fn create(
        &self,
        user_data: Option<&Secret<Vec<u8>>>,
    ) -> Result<Instance, InstanceError> {
        let name = self.names.machine().name().to_owned();
        let Some(present) = self.machine().await.map_err(wrong)? else {
            self.delete_disks_of_failed_creation().await?;
            return self.create_machine(user_data).await;
        };
        if self.is_foreign(&present) {
            let group = &self.spec.resource_group;
            return Err(invalid(format!(
                "the virtual machine {name} in resource group {group} belongs to another cluster, by its tags"
            )));
        }
        match state::stage(&present) {
            Stage::Present => self.instance(&present).await.map_err(wrong),
            Stage::Creating => {
                Err(wait(self.waits.machine, format!("the virtual machine {name} is being created")))
            }
            Stage::Deleting => Err(wait(
                self.waits.machine,
                format!("the virtual machine {name} of before is being deleted"),
            )),
            Stage::CreationFailed => {
                let why = state::failure(&present);
                let why = format!("the creation of the virtual machine {name} failed and is repeated: {why}");
                Err(failed(
                    Verb::Create,
                    match self.delete_machine_and_disks().await {
                        // Also while the deletion runs: the failure is reported, and delays the next attempt.
                        Ok(()) | Err(InstanceError::RequeueAfter(..)) => why,
                        Err(error) => format!("{why}; its deletion failed: {error}"),
                    },
                ))
            }
        }
    }

    async fn create_machine(&self, user_data: Option<&Secret<Vec<u8>>>) -> Result<Instance, InstanceError> {
        let public_address = self.ensure_public_address().await?;
        let availability_set = self.ensure_availability_set().await?;
        self.ensure_interface(public_address).await?;
        let present_disks = self.present_disks().await?;
        let new = NewMachine {
            spec: &self.spec,
            names: &self.names,
            tags: &self.tags,
            user_data: user_data.map(|it| it.expose().as_slice()),
            availability_set: availability_set.as_ref(),
            present_disks: &present_disks,
        };
        let body = body::machine(&new)?;
        let id = self.names.machine();
        // Of two calls that find none, one creates it.
        let version = version(ResourceKind::Machine);
        let written = self.put(&id, version, &body, Condition::Absent).await.map_err(wrong)?;
        let is_ready = text(&written, "/properties/provisioningState").eq_ignore_ascii_case("Succeeded");
        let present = if is_ready { self.machine().await.map_err(wrong)? } else { None };
        match present {
            Some(machine) if state::stage(&machine) == Stage::Present => {
                self.instance(&machine).await.map_err(wrong)
            }
            _ => Err(wait(self.waits.machine, format!("the virtual machine {} is being created", id.name()))),
        }
    }

    /// Creates a part of the machine unless it is present, and succeeds when it is ready.
    async fn ensure_part(
        &self,
        id: &ResourceId,
        version: &str,
        what: &str,
        present: Option<Value>,
        body: &Value,
    ) -> Result<(), InstanceError> {
        if present.as_ref().is_some_and(|it| self.is_foreign(it)) {
            return Err(invalid(format!("the {what} {} belongs to another cluster, by its tags", id.name())));
        }
        // A failed part is written again.
        let is_failed = |it: &Value| text(it, "/properties/provisioningState").eq_ignore_ascii_case("Failed");
        let part = match present.filter(|it| !is_failed(it)) {
            Some(part) => part,
            None => self.put(id, version, body, Condition::None).await.map_err(wrong)?,
        };
        match text(&part, "/properties/provisioningState").to_lowercase().as_str() {
            // Availability sets have no state.
            "succeeded" | "" => Ok(()),
            state => Err(wait(self.waits.part, format!("the {what} {} is {state}", id.name()))),
        }
    }

    async fn ensure_public_address(&self) -> Result<Option<ResourceId>, InstanceError> {
        let Some(id) = self.names.public_address().filter(|_| self.spec.public_ip) else { return Ok(None) };
        let body = body::public_address(&self.spec, &self.tags);
        let version = version(ResourceKind::PublicIp);
        let present = self.read(&id, version).await.map_err(wrong)?;
        self.ensure_part(&id, version, "public address", present, &body).await?;
        Ok(Some(id))
    }

    /// The availability set of the machine: the named one, or one for its MachineSet where the size is offered without zones. Spot
    /// machines cannot be in one.
    async fn ensure_availability_set(&self) -> Result<Option<ResourceId>, InstanceError> {
        let spec = &self.spec;
        if !spec.availability_set.is_empty() {
            let id = self.names.availability_set(&spec.availability_set);
            return match self.read(&id, AVAILABILITY_SETS).await.map_err(wrong)? {
                Some(_) => Ok(Some(id)),
                None => Err(self.missing("availabilitySet", &id)),
            };
        }
        let Some(id) = self.names.own_availability_set() else { return Ok(None) };
        if !spec.zone.is_empty() || spec.spot.is_some() || self.has_zones().await? {
            return Ok(None);
        }
        let body = body::availability_set(spec, &self.tags);
        let present = self.read(&id, AVAILABILITY_SETS).await.map_err(wrong)?;
        self.ensure_part(&id, AVAILABILITY_SETS, "availability set", present, &body).await?;
        Ok(Some(id))
    }

    /// Whether the size is offered in zones of the location.
    async fn has_zones(&self) -> Result<bool, InstanceError> {
        let path = format!(
            "/subscriptions/{}/providers/Microsoft.Compute/skus",
            self.names.machine().subscription()
        );
        let filter = format!("location eq '{}'", self.spec.location.replace('\'', "''"));
        let sizes = self.arm.list(&path, "2021-07-01", &[("$filter", &filter)], None).await.map_err(wrong)?;
        let size = sizes.iter().find(|it| {
            text(it, "/resourceType").eq_ignore_ascii_case("virtualMachines")
                && text(it, "/name").eq_ignore_ascii_case(&self.spec.vm_size)
        });
        let Some(size) = size else {
            return Err(invalid(format!(
                "providerSpec.value.vmSize is '{}'; {} has no such size",
                self.spec.vm_size, self.spec.location
            )));
        };
        let mut places = items(size, "/locationInfo").iter();
        let place = places.find(|it| is_same_location(text(it, "/location"), &self.spec.location));
        Ok(place.is_some_and(|it| !texts(it, "/zones").is_empty()))
    }

    async fn ensure_interface(&self, public_address: Option<ResourceId>) -> Result<(), InstanceError> {
        let (id, version) = (self.names.interface(), version(ResourceKind::NetworkInterface));
        // What it refers to is looked up once: when it is made.
        let present = self.read(&id, version).await.map_err(wrong)?;
        let is_sound =
            |it: &Value| text(it, "/properties/provisioningState").eq_ignore_ascii_case("Succeeded");
        if present.as_ref().is_some_and(|it| is_sound(it) && !self.is_foreign(it)) {
            return Ok(());
        }
        let parts = self.interface_parts(public_address).await?;
        let body = body::interface(&self.spec, &self.tags, &parts);
        self.ensure_part(&id, version, "interface", present, &body).await
    }

    async fn interface_parts(
        &self,
        public_address: Option<ResourceId>,
    ) -> Result<InterfaceParts, InstanceError> {
        let spec = &self.spec;
        let mut parts = InterfaceParts { public_address, ..InterfaceParts::default() };
        let subnet = self.names.subnet(&spec.vnet, &spec.subnet);
        let found = self.named("subnet", &subnet, version(ResourceKind::Subnet)).await?;
        let prefixes = texts(&found, "/properties/addressPrefixes");
        parts.has_ipv6 = prefixes.iter().any(|it| it.contains(':'))
            || text(&found, "/properties/addressPrefix").contains(':');
        parts.subnet = Some(subnet);
        for (member, name) in [
            ("publicLoadBalancer", &spec.public_load_balancer),
            ("internalLoadBalancer", &spec.internal_load_balancer),
        ] {
            if name.is_empty() {
                continue;
            }
            let id = self.names.load_balancer(name);
            let balancer = self.named(member, &id, version(ResourceKind::LoadBalancer)).await?;
            parts.pools.push(self.pool(member, &balancer)?);
            if let Some(index) = spec.nat_rule.filter(|_| member == "publicLoadBalancer") {
                let rules = items(&balancer, "/properties/inboundNatRules");
                let rule = usize::try_from(index).ok().and_then(|it| rules.get(it));
                let rule = rule.ok_or_else(|| {
                    let count = rules.len();
                    invalid(format!(
                        "providerSpec.value.natRule is {index}; the load balancer {name} has {count} rules"
                    ))
                })?;
                parts.nat_rule = Some(text(rule, "/id").to_owned());
            }
        }
        if !spec.security_group.is_empty() {
            let id = self.names.security_group(&spec.security_group);
            self.named("securityGroup", &id, version(ResourceKind::SecurityGroup)).await?;
            parts.security_group = Some(id);
        }
        for name in &spec.application_security_groups {
            let id = self.names.application_security_group(name);
            self.named("applicationSecurityGroups", &id, APPLICATION_GROUPS).await?;
            parts.application_groups.push(id);
        }
        Ok(parts)
    }

    /// The pool that machines of the cluster join: the one with the cluster's name, else the first.
    fn pool(&self, member: &str, balancer: &Value) -> Result<String, InstanceError> {
        let pools = items(balancer, "/properties/backendAddressPools");
        let own = pools.iter().find(|it| text(it, "/name").eq_ignore_ascii_case(&self.cluster));
        let pool = own.or_else(|| pools.first()).map(|it| text(it, "/id").to_owned());
        pool.ok_or_else(|| {
            let name = text(balancer, "/name");
            invalid(format!(
                "providerSpec.value.{member} is '{name}'; that load balancer has no back-end pool"
            ))
        })
    }

    /// A resource that the providerSpec names.
    async fn named(&self, member: &str, id: &ResourceId, version: &str) -> Result<Value, InstanceError> {
        let found = self.read(id, version).await.map_err(wrong)?;
        found.ok_or_else(|| self.missing(member, id))
    }

    fn missing(&self, member: &str, id: &ResourceId) -> InstanceError {
        invalid(format!("providerSpec.value.{member} is '{}'; {id} does not exist", id.name()))
    }

    /// The data disks that outlived an earlier machine of the same name.
    async fn present_disks(&self) -> Result<Vec<ResourceId>, InstanceError> {
        let mut present = Vec::new();
        for disk in self.spec.data_disks.iter().filter(|it| !it.is_deleted()) {
            let id = self.names.data_disk(disk);
            let Some(found) = self.read(&id, version(ResourceKind::Disk)).await.map_err(wrong)? else {
                continue;
            };
            if self.is_foreign(&found) {
                return Err(invalid(format!(
                    "the disk {} belongs to another cluster, by its tags",
                    id.name()
                )));
            }
            present.push(id);
        }
        Ok(present)
    }
}
