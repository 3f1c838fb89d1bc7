//! Deletion: the virtual machine, then what it holds. Every part is read again after its deletion was accepted, so that a deletion that
//! fails later is repeated and nothing is left behind.

use azure_core::http::Method;
use cloud::{CloudError, InstanceError, ResourceId, ResourceKind};
use serde_json::Value;

use super::errors::{Verb, instance_error};
use super::state::{self, Stage};
use super::{AVAILABILITY_SETS, Target};
use crate::arm::{Call, Condition};
use crate::json::{items, set, text};
use crate::resources::version;

fn wrong(error: CloudError) -> InstanceError {
    instance_error(error, Verb::Delete)
}

impl Target {
    pub(super) async fn delete(&self) -> Result<(), InstanceError> {
        self.delete_machine_and_disks().await?;
        self.delete_interface().await?;
        if let Some(id) = self.names.public_address() {
            self.delete_part(&id, version(ResourceKind::PublicIp), "public address").await?;
        }
        self.delete_availability_set().await
    }

    /// Deletes the virtual machine, its OS disk and the data disks that go with it.
    pub(super) async fn delete_machine_and_disks(&self) -> Result<(), InstanceError> {
        let id = self.names.machine();
        let present = self.machine().await.map_err(wrong)?;
        if let Some(present) = self.own(present)? {
            if state::stage(&present) != Stage::Deleting {
                self.send_delete(&id, version(ResourceKind::Machine)).await.map_err(wrong)?;
            }
            if self.machine().await.map_err(wrong)?.is_some_and(|it| !self.is_foreign(&it)) {
                let why = format!("the virtual machine {} is being deleted", id.name());
                return Err(InstanceError::RequeueAfter(self.waits.machine, why));
            }
        }
        for id in self.own_disks() {
            self.delete_part(&id, version(ResourceKind::Disk), "disk").await?;
        }
        Ok(())
    }

    /// Deletes the disks that outlived a creation that failed. One that is attached belongs to a virtual machine that is not visible yet.
    pub(super) async fn delete_disks_of_failed_creation(&self) -> Result<(), InstanceError> {
        for id in self.own_disks() {
            let present = self.read(&id, version(ResourceKind::Disk)).await.map_err(wrong)?;
            if present.is_some_and(|it| text(&it, "/managedBy").is_empty()) {
                self.delete_part(&id, version(ResourceKind::Disk), "disk").await?;
            }
        }
        Ok(())
    }

    /// The disks that are deleted with the virtual machine.
    fn own_disks(&self) -> Vec<ResourceId> {
        let data_disks = self.spec.data_disks.iter().filter(|it| it.is_deleted());
        [self.names.os_disk()].into_iter().chain(data_disks.map(|it| self.names.data_disk(it))).collect()
    }

    /// A resource that was read, unless it is another cluster's.
    fn own(&self, present: Option<Value>) -> Result<Option<Value>, InstanceError> {
        let Some(present) = present else { return Ok(None) };
        Ok(self.is_own(&present, Verb::Delete)?.then_some(present))
    }

    /// Deletes a part unless it is gone or another cluster's.
    async fn delete_part(&self, id: &ResourceId, version: &str, what: &str) -> Result<(), InstanceError> {
        let present = self.read(id, version).await.map_err(wrong)?;
        if self.own(present)?.is_none() {
            return Ok(());
        }
        self.send_delete(id, version).await.map_err(wrong)?;
        self.confirm_absence(id, version, what).await
    }

    /// Deletes the interface. It is asked for even when it cannot be read: an interface that was made a moment ago may not be visible
    /// yet, and one that is in use reveals a virtual machine that is not visible yet.
    async fn delete_interface(&self) -> Result<(), InstanceError> {
        let (id, version) = (self.names.interface(), version(ResourceKind::NetworkInterface));
        let present = self.read(&id, version).await.map_err(wrong)?;
        if let Some(present) = &present
            && !self.is_own(present, Verb::Delete)?
        {
            return Ok(());
        }
        if let Some(mut failed) = present.filter(is_failed) {
            // A failed interface can only be deleted after it was written again as it is.
            set(&mut failed, &["etag"], Value::Null);
            self.put(&id, version, &failed, Condition::None).await.map_err(wrong)?;
        }
        self.send_delete(&id, version).await.map_err(wrong)?;
        self.confirm_absence(&id, version, "interface").await
    }

    async fn confirm_absence(&self, id: &ResourceId, version: &str, what: &str) -> Result<(), InstanceError> {
        match self.read(id, version).await.map_err(wrong)? {
            None => Ok(()),
            Some(_) => {
                let why = format!("the {what} {} is being deleted", id.name());
                Err(InstanceError::RequeueAfter(self.waits.part, why))
            }
        }
    }

    async fn send_delete(&self, id: &ResourceId, version: &str) -> Result<(), CloudError> {
        match self.arm.send(Call::new(Method::Delete, id.as_str(), version)).await {
            Ok(_) | Err(CloudError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes the availability set of the MachineSet with its last machine. A machine that joins it meanwhile keeps it: Azure refuses
    /// to delete one in use, and its creation is repeated when the set is gone.
    async fn delete_availability_set(&self) -> Result<(), InstanceError> {
        if !self.spec.zone.is_empty() || !self.spec.availability_set.is_empty() {
            return Ok(());
        }
        let Some(id) = self.names.own_availability_set() else { return Ok(()) };
        let Some(present) = self.read(&id, AVAILABILITY_SETS).await.map_err(wrong)? else { return Ok(()) };
        if self.is_foreign(&present) || !items(&present, "/properties/virtualMachines").is_empty() {
            return Ok(());
        }
        let Err(error) = self.send_delete(&id, AVAILABILITY_SETS).await else { return Ok(()) };
        let present = self.read(&id, AVAILABILITY_SETS).await.map_err(wrong)?;
        let has_members = present.is_some_and(|it| !items(&it, "/properties/virtualMachines").is_empty());
        if has_members { Ok(()) } else { Err(wrong(error)) }
    }
}

fn is_failed(body: &Value) -> bool {
    text(body, "/properties/provisioningState").eq_ignore_ascii_case("Failed")
}
