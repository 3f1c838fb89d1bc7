//! Creation: what is there is used, and a launch that is repeated is the same launch.

use api::secret::Secret;
use aws_sdk_ec2::types::Instance as Ec2Instance;
use cloud::{Instance, InstanceError};

use crate::errors::{BUSY_WAIT, CallError, Verb, failed};
use crate::find::{Target, newest};
use crate::launch::Launch;
use crate::state::{self, Stage};

/// Wait for an instance that AWS has launched and does not show yet.
const VISIBLE_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

fn wait(after: std::time::Duration, why: String) -> InstanceError {
    InstanceError::RequeueAfter(after, why)
}

/// The instance of the Machine's only launch has ended. AWS makes no second one for the same token, and what ended the first is no
/// passing fault: a volume that cannot be made, a key that cannot be used, or somebody who terminated it.
fn ended(found: &Ec2Instance) -> InstanceError {
    InstanceError::InvalidConfiguration(format!(
        "the instance {} was terminated after its launch: {}",
        state::id(found),
        state::end_reason(found)
    ))
}

impl Target {
    pub(crate) async fn create(
        &self,
        user_data: Option<&Secret<Vec<u8>>>,
    ) -> Result<Instance, InstanceError> {
        if let Some(id) = &self.recorded {
            return Err(failed(
                Verb::Create,
                format!("the Machine has recorded the instance {id}; no other one is launched"),
            ));
        }
        if let Some(found) = self.present().await? {
            return self.finish(&found).await;
        }
        let launched = self.launch(user_data).await?;
        // What cannot be read is not reported: a Machine whose instance is not found fails.
        match self.by_id(state::id(&launched), Verb::Create).await? {
            Some(found) if state::stage(&found) == Stage::Present => self.finish(&found).await,
            Some(found) => Err(ended(&found)),
            None if state::stage(&launched) == Stage::Terminated => Err(ended(&launched)),
            None => {
                let id = state::id(&launched);
                Err(wait(VISIBLE_WAIT, format!("the instance {id} was launched and is not visible yet")))
            }
        }
    }

    /// The instance that an earlier call has launched. One that has ended belongs to this Machine only by its token: AWS shows the
    /// instances of earlier Machines of the name for an hour.
    async fn present(&self) -> Result<Option<Ec2Instance>, InstanceError> {
        let all = self.by_tags(Verb::Create).await?;
        if let Some(found) = newest(all.iter().filter(|it| state::stage(it) == Stage::Present).cloned()) {
            return Ok(Some(found));
        }
        if let Some(found) = all.iter().find(|it| state::stage(it) == Stage::Ending) {
            return Err(wait(BUSY_WAIT, format!("the instance {} is shutting down", state::id(found))));
        }
        match all.iter().find(|it| it.client_token() == Some(self.token.as_str())) {
            Some(found) => Err(ended(found)),
            None => Ok(None),
        }
    }

    async fn launch(&self, user_data: Option<&Secret<Vec<u8>>>) -> Result<Ec2Instance, InstanceError> {
        // Nothing is launched for load balancers that do not exist.
        self.memberships(Verb::Create).await?;
        let network = self.network().await?;
        let launch = Launch {
            spec: &self.spec,
            token: &self.token,
            tags: &self.tags,
            network: &network,
            user_data: user_data.map(|it| it.expose().as_slice()),
        };
        let call = launch.request().send_with(&self.clients.ec2).await;
        let wrong = |error: CallError| error.for_machine(Verb::Create);
        let launched = call.map_err(|error| wrong(CallError::of("RunInstances", error)))?;
        let launched =
            launched.instances.unwrap_or_default().into_iter().find(|it| it.instance_id().is_some());
        launched.ok_or_else(|| wrong(CallError::incomplete("RunInstances")))
    }

    /// Completes a launched instance.
    async fn finish(&self, found: &Ec2Instance) -> Result<Instance, InstanceError> {
        self.register(found, Verb::Create).await?;
        Ok(state::instance(found, &self.spec.placement.region))
    }
}
