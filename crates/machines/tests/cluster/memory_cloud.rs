//! A cloud without latency, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use async_trait::async_trait;
use cloud::{
    AddressKind, Instance, InstanceAddress, InstanceError, InstanceProvider, InstanceRequest, SecretRef,
    SecretRefs,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::faults::{Call, CloudFaults};

/// What a call of the provider does when the process shall end at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    BeforeEffect,
    AfterEffect,
}

/// A cloud without latency.
#[derive(Debug, Default)]
pub(crate) struct Cloud {
    state: Mutex<State>,
    pub(crate) ended: Mutex<Option<CancellationToken>>,
    pub(crate) faults: CloudFaults,
}

#[derive(Debug, Default)]
struct State {
    /// Instances by the name of their Machine, with its uid.
    instances: BTreeMap<String, (String, Instance)>,
    /// What was created for an instance before it, by the name of its Machine.
    parts: BTreeSet<String>,
    /// How often an instance was made for each uid.
    made: BTreeMap<String, u32>,
    calls: u32,
    end: Option<(u32, CallEnd)>,
}

impl Cloud {
    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub(crate) fn instances(&self) -> Vec<String> {
        self.state(|state| state.instances.keys().cloned().collect())
    }

    /// The Machines for which something exists, whole or in part.
    pub(crate) fn leftovers(&self) -> BTreeSet<String> {
        self.state(|state| state.parts.iter().chain(state.instances.keys()).cloned().collect())
    }

    /// Takes an instance away, as a cloud does that interrupts it.
    pub(crate) fn vanish(&self, name: &str) {
        self.state(|state| state.instances.remove(name));
    }

    /// The largest number of instances that were made for one Machine.
    pub(crate) fn made_max(&self) -> u32 {
        self.state(|state| state.made.values().copied().max().unwrap_or_default())
    }

    /// Lets the process end at its n-th call; the token is cancelled then.
    pub(crate) fn end_at(&self, call: u32, end: CallEnd) -> CancellationToken {
        let token = CancellationToken::new();
        *self.ended.lock().unwrap() = Some(token.clone());
        self.state(|state| (state.calls, state.end) = (0, Some((call, end))));
        token
    }

    pub(crate) fn end_never(&self) {
        self.state(|state| state.end = None);
    }

    /// Runs a call; the process never sees the end of its last one.
    async fn call<T>(&self, effect: impl FnOnce(&mut State) -> T) -> T {
        let ends = self.state(|state| {
            state.calls += 1;
            state.end.filter(|(call, _)| *call <= state.calls).map(|(call, end)| (call == state.calls, end))
        });
        let never = async || {
            if let Some(token) = &*self.ended.lock().unwrap() {
                token.cancel();
            }
            std::future::pending::<()>().await;
        };
        match ends {
            Some((true, CallEnd::AfterEffect)) => {
                self.state(effect);
                never().await;
                unreachable!("a call that never returns")
            }
            Some(_) => {
                never().await;
                unreachable!("a call that never returns")
            }
            None => self.state(effect),
        }
    }
}

#[async_trait]
impl InstanceProvider for Cloud {
    fn secrets(&self, spec: &Value) -> Result<SecretRefs, InstanceError> {
        match spec.get("invalid") {
            Some(_) => Err(InstanceError::InvalidConfiguration("providerSpec.value.invalid".to_owned())),
            None => {
                let secret = |member: &str| {
                    let name = spec.get(member).and_then(Value::as_str)?.to_owned();
                    Some(SecretRef { namespace: None, name })
                };
                Ok(SecretRefs { credentials: secret("credentials"), user_data: secret("userData") })
            }
        }
    }

    async fn find(&self, request: &InstanceRequest) -> Result<Option<Instance>, InstanceError> {
        self.faults.check(Call::Find)?;
        if !self.faults.is_listed(request)? {
            return Ok(None);
        }
        Ok(self.call(|state| state.instances.get(&request.name).map(|(_, it)| it.clone())).await)
    }

    async fn create(&self, request: &InstanceRequest) -> Result<Instance, InstanceError> {
        if request.provider_spec.get("size") == Some(&json!("huge")) {
            return Err(InstanceError::InvalidConfiguration("size \"huge\" is not offered".to_owned()));
        }
        self.faults.check(Call::Create)?;
        self.state(|state| state.parts.insert(request.name.clone()));
        self.faults.check(Call::CreateAfterParts)?;
        let instance = Instance {
            provider_id: format!("scripted:///{}", request.name),
            addresses: vec![InstanceAddress { kind: AddressKind::Hostname, address: request.name.clone() }],
            state: "Running".to_owned(),
            provider_status: json!({"vmState": "Running"}),
            region: Some("here".to_owned()),
            zone: None,
            instance_type: Some("small".to_owned()),
            interruptible: request.provider_spec.get("spot").is_some(),
        };
        Ok(self
            .call(|state| {
                let entry = state.instances.entry(request.name.clone());
                let made = &mut state.made;
                let (_, instance) = entry.or_insert_with(|| {
                    self.faults.created(&request.name);
                    *made.entry(request.uid.clone()).or_default() += 1;
                    (request.uid.clone(), instance)
                });
                instance.clone()
            })
            .await)
    }

    async fn update(&self, _: &InstanceRequest, found: &Instance) -> Result<Instance, InstanceError> {
        Ok(found.clone())
    }

    async fn delete(&self, request: &InstanceRequest) -> Result<(), InstanceError> {
        self.faults.check(Call::Delete)?;
        self.call(|state| {
            state.parts.remove(&request.name);
            state.instances.remove(&request.name);
        })
        .await;
        Ok(())
    }
}
