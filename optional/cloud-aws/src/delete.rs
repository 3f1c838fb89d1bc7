//! Deletion: the recorded instance and all others with the tags of the Machine.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::Instance as Ec2Instance;
use cloud::InstanceError;

use crate::errors::{CallError, Verb};
use crate::find::{NOT_FOUND, Target};
use crate::state::{self, Stage};

impl Target {
    pub(crate) async fn delete(&self) -> Result<(), InstanceError> {
        let mut all: BTreeMap<String, Ec2Instance> = BTreeMap::new();
        if let Some(id) = &self.recorded
            && let Some(found) = self.by_id(id, Verb::Delete).await?
        {
            all.insert(id.clone(), found);
        }
        for found in self.by_tags(Verb::Delete).await? {
            all.insert(state::id(&found).to_owned(), found);
        }
        let is_known = !all.is_empty();
        for (id, found) in all {
            if state::stage(&found) == Stage::Present {
                // An address that stays a target would receive the traffic of another instance one day.
                self.deregister(&found).await?;
                self.terminate(&id).await?;
            }
        }
        if !is_known && self.is_recent(self.deleted) {
            // Its launch may have been accepted a moment before the deletion was requested.
            let why = "an instance that was launched a moment ago may not be visible yet".to_owned();
            return Err(InstanceError::RequeueAfter(self.consistency, why));
        }
        Ok(())
    }

    /// Terminates an instance. One call for each: an unknown id makes AWS refuse all of a call.
    async fn terminate(&self, id: &str) -> Result<(), InstanceError> {
        let call = self.clients.ec2.terminate_instances().instance_ids(id).send().await;
        match call.map_err(|error| CallError::of("TerminateInstances", error)) {
            Ok(_) => Ok(()),
            Err(error) if error.is(NOT_FOUND) => Ok(()),
            Err(error) => Err(error.for_machine(Verb::Delete)),
        }
    }
}
