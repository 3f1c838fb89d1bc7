//! The refresh of an instance: its tags, and its memberships of load balancers. Nothing else follows a changed providerSpec.

use cloud::{Instance, InstanceError};
use serde_json::Value;

use crate::errors::{BUSY_WAIT, CallError, Verb, failed};
use crate::find::Target;
use crate::{state, tags};

impl Target {
    pub(crate) async fn update(&self, found: &Instance) -> Result<Instance, InstanceError> {
        let id = found.provider_status.get("instanceId").and_then(Value::as_str).unwrap_or_default();
        let Some(present) = self.by_id(id, Verb::Update).await? else {
            let why = format!("the instance {id} is not visible");
            return Err(if self.is_recent(self.creation) {
                InstanceError::RequeueAfter(BUSY_WAIT, why)
            } else {
                failed(Verb::Update, why)
            });
        };
        let missing = tags::missing(&present, &self.tags);
        if !missing.is_empty() {
            let call = self.clients.ec2.create_tags().resources(id).set_tags(Some(tags::to_sdk(&missing)));
            let written = call.send().await.map_err(|error| CallError::of("CreateTags", error));
            written.map_err(|error| error.for_machine(Verb::Update))?;
        }
        self.register(&present, Verb::Update).await?;
        Ok(state::instance(&present, &self.spec.placement.region))
    }
}
