//! The instance of a Machine: by the id that the Machine has recorded, otherwise by its tags.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_ec2::types::{Filter, Instance as Ec2Instance};
use cloud::{InstanceError, InstanceRequest};
use jiff::Timestamp;
use serde_json::Value;

use crate::access::Clients;
use crate::errors::{BUSY_WAIT, CallError, Verb, failed};
use crate::spec::ProviderSpec;
use crate::state::{self, Stage};
use crate::tags::{self, NAME_TAG, OWNED};

/// The label of the cluster that a Machine belongs to.
const CLUSTER_LABEL: &str = "machine.openshift.io/cluster-api-cluster";
/// What AWS says about an id that it does not show.
pub(crate) const NOT_FOUND: &[&str] = &["InvalidInstanceID.NotFound"];
/// The condition that the controller adds when a creation has succeeded.
const CREATION_CONDITION: &str = "MachineCreated";

/// A Machine with the way to AWS.
pub(crate) struct Target {
    pub(crate) clients: Arc<Clients>,
    pub(crate) spec: ProviderSpec,
    pub(crate) machine: String,
    pub(crate) cluster: String,
    /// The idempotency token of the launch.
    pub(crate) token: String,
    pub(crate) tags: BTreeMap<String, String>,
    /// The id that the Machine has recorded.
    pub(crate) recorded: Option<String>,
    /// When the Machine has recorded its creation.
    pub(crate) creation: Option<Timestamp>,
    /// When the deletion of the Machine was requested.
    pub(crate) deleted: Option<Timestamp>,
    pub(crate) now: Timestamp,
    /// Time after which AWS shows an accepted change to every reader.
    pub(crate) consistency: Duration,
}

/// The id of the instance that a Machine has recorded. A contradiction between its fields is an error: elsewhere the instance would not
/// be found, and would be given up or left behind.
pub(crate) fn recorded_id(request: &InstanceRequest, region: &str) -> Result<Option<String>, String> {
    let status = request.provider_status.as_ref().and_then(|it| it.get("instanceId")).and_then(Value::as_str);
    let status = status.filter(|it| !it.is_empty());
    let Some(provider_id) = request.provider_id.as_deref().filter(|it| !it.is_empty()) else {
        return Ok(status.map(str::to_owned));
    };
    let parts = provider_id.strip_prefix("aws:///").and_then(|it| it.split_once('/'));
    let Some((zone, id)) = parts.filter(|(_, id)| id.starts_with("i-")) else {
        return Err(format!("spec.providerID is '{provider_id}'; expected aws:///ZONE/INSTANCE"));
    };
    if !zone.is_empty() && !zone.starts_with(region) {
        return Err(format!(
            "spec.providerID is {provider_id}, but providerSpec.value.placement.region is '{region}'; restore it"
        ));
    }
    match status {
        Some(status) if status != id => Err(format!(
            "spec.providerID is {provider_id}, but status.providerStatus.instanceId is '{status}'; restore the right one"
        )),
        _ => Ok(Some(id.to_owned())),
    }
}

/// When the Machine has recorded that its creation succeeded.
pub(crate) fn creation_time(request: &InstanceRequest) -> Option<Timestamp> {
    let conditions = request.provider_status.as_ref()?.get("conditions")?.as_array()?;
    let created = conditions.iter().find(|it| it["type"] == CREATION_CONDITION && it["status"] == "True")?;
    created["lastTransitionTime"].as_str()?.parse().ok()
}

impl Target {
    /// The instance for the trait's `find`: what is ending counts only for a Machine that has recorded it.
    pub(crate) async fn find(&self) -> Result<Option<Ec2Instance>, InstanceError> {
        let Some(id) = &self.recorded else {
            let all = self.by_tags(Verb::Find).await?;
            return Ok(newest(all.into_iter().filter(|it| state::stage(it) == Stage::Present)));
        };
        match self.by_id(id, Verb::Find).await? {
            Some(found) if state::stage(&found) == Stage::Terminated => Ok(None),
            Some(found) => Ok(Some(found)),
            None if self.is_recent(self.creation) => {
                let why = format!("the instance {id} was launched a moment ago and is not visible");
                Err(InstanceError::RequeueAfter(BUSY_WAIT.min(self.consistency), why))
            }
            None => Ok(None),
        }
    }

    /// Whether something has happened so short a time ago that AWS may not show it.
    pub(crate) fn is_recent(&self, time: Option<Timestamp>) -> bool {
        time.is_some_and(|it| self.now.duration_since(it).unsigned_abs() < self.consistency)
    }

    /// An instance by its id. One that is another cluster's is a contradiction: the label of the cluster or the tags were changed.
    pub(crate) async fn by_id(&self, id: &str, verb: Verb) -> Result<Option<Ec2Instance>, InstanceError> {
        let call = self.clients.ec2.describe_instances().instance_ids(id).send().await;
        let found = match call.map_err(|error| CallError::of("DescribeInstances", error)) {
            Ok(found) => found,
            Err(error) if error.is(NOT_FOUND) => return Ok(None),
            Err(error) => return Err(error.for_machine(verb)),
        };
        let mut all = found.reservations.unwrap_or_default().into_iter().flat_map(|it| {
            let instances: Vec<Ec2Instance> = it.instances.unwrap_or_default();
            instances
        });
        // An answer about others is none about this one.
        let Some(found) = all.find(|it| it.instance_id() == Some(id)) else { return Ok(None) };
        if tags::is_foreign(&found, &self.cluster) {
            let cluster = &self.cluster;
            return Err(failed(
                verb,
                format!(
                    "the instance {id} belongs to another cluster than '{cluster}', by its tags, but the Machine has recorded it as its \
                     own; restore the label {CLUSTER_LABEL} or the tags"
                ),
            ));
        }
        Ok(Some(found))
    }

    /// All instances with the tags of the Machine, also terminated ones.
    pub(crate) async fn by_tags(&self, verb: Verb) -> Result<Vec<Ec2Instance>, InstanceError> {
        let filter = |name: String, value: &str| Filter::builder().name(name).values(value).build();
        let name = filter(format!("tag:{NAME_TAG}"), &self.machine);
        let owner = filter(format!("tag:{}", tags::cluster_tag(&self.cluster)), OWNED);
        let mut pages =
            self.clients.ec2.describe_instances().filters(name).filters(owner).into_paginator().send();
        let mut all = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| CallError::of("DescribeInstances", error).for_machine(verb))?;
            let reservations = page.reservations.unwrap_or_default();
            all.extend(reservations.into_iter().flat_map(|it| it.instances.unwrap_or_default()));
        }
        // Whatever AWS makes of the filters, another Machine's instance is not ours.
        all.retain(|it| {
            it.instance_id().is_some() && self.has_name(it) && !tags::is_foreign(it, &self.cluster)
        });
        Ok(all)
    }

    fn has_name(&self, instance: &Ec2Instance) -> bool {
        instance
            .tags()
            .iter()
            .any(|it| it.key() == Some(NAME_TAG) && it.value() == Some(self.machine.as_str()))
    }
}

/// The instance that was launched last. There is one, unless somebody has copied tags.
pub(crate) fn newest(all: impl Iterator<Item = Ec2Instance>) -> Option<Ec2Instance> {
    all.max_by_key(|it| {
        (it.launch_time().map(aws_smithy_types::DateTime::as_nanos), it.instance_id().map(str::to_owned))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::tests::request;

    #[test]
    fn the_recorded_id_is_that_of_provider_id_and_status_and_a_contradiction_is_named() {
        let recorded = |provider_id: &str, status: &str| {
            let mut request = request(json!({}));
            request.provider_id = Some(provider_id.to_owned());
            request.provider_status = Some(json!({"instanceId": status}));
            recorded_id(&request, "eu-west-1")
        };
        assert_eq!(recorded("", ""), Ok(None));
        assert_eq!(recorded("", "i-1"), Ok(Some("i-1".to_owned())));
        assert_eq!(recorded("aws:///eu-west-1a/i-1", "i-1"), Ok(Some("i-1".to_owned())));
        assert_eq!(recorded("aws:///eu-west-1a/i-1", ""), Ok(Some("i-1".to_owned())));
        for (provider_id, status, expect) in [
            ("azure:///x/i-1", "", "spec.providerID is 'azure:///x/i-1'; expected aws:///ZONE/INSTANCE"),
            (
                "aws:///eu-west-1a/i-1",
                "i-2",
                "spec.providerID is aws:///eu-west-1a/i-1, but status.providerStatus.instanceId is 'i-2'; restore the right one",
            ),
            (
                "aws:///us-east-1a/i-1",
                "",
                "spec.providerID is aws:///us-east-1a/i-1, but providerSpec.value.placement.region is 'eu-west-1'; restore it",
            ),
        ] {
            assert_eq!(recorded(provider_id, status), Err(expect.to_owned()));
        }
    }

    #[test]
    fn the_time_of_the_creation_is_that_of_its_condition() {
        let mut request = request(json!({}));
        assert_eq!(creation_time(&request), None);
        let condition =
            json!({"type": "MachineCreated", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"});
        request.provider_status = Some(json!({"conditions": [{"type": "Other"}, condition]}));
        assert_eq!(creation_time(&request), Some("2026-03-01T12:00:00Z".parse().unwrap()));
    }
}
