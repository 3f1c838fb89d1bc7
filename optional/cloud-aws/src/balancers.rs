//! The memberships of an instance in load balancers: classic ones have instances, network ones have target groups with instances or
//! addresses. Memberships are read before they are written, so that a refresh writes nothing.

use aws_sdk_ec2::types::Instance as Ec2Instance;
use aws_sdk_elasticloadbalancing::types::LoadBalancerDescription;
use aws_sdk_elasticloadbalancingv2::types::{
    TargetDescription, TargetGroup, TargetHealthStateEnum, TargetTypeEnum,
};
use cloud::InstanceError;

use crate::errors::{CallError, Verb, failed};
use crate::find::Target;
use crate::state;

/// Codes of load balancers and target groups that do not exist.
const NOT_FOUND: &[&str] = &["LoadBalancerNotFound", "TargetGroupNotFound"];
/// Codes of members that are none any more.
const NO_MEMBER: &[&str] = &["InvalidInstance", "InvalidTarget"];

/// A place where the instances of a load balancer are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Membership {
    /// A classic load balancer, by its name, with the instances that it has.
    Classic { name: String, instances: Vec<String> },
    /// A target group of a network load balancer.
    Group { arn: String, has_addresses: bool },
}

impl Target {
    /// The places in which the providerSpec wants the instance. A load balancer that does not exist may be made later. Deletion needs no
    /// classic ones: they drop what is terminated, and the reference has no permission to do more.
    pub(crate) async fn memberships(&self, verb: Verb) -> Result<Vec<Membership>, InstanceError> {
        let mut all = Vec::new();
        for (index, balancer) in self.spec.load_balancers.iter().enumerate() {
            let (name, kind) = (&balancer.name, &balancer.balancer_type);
            if kind == "classic" && verb == Verb::Delete {
                continue;
            }
            let found = match kind.as_str() {
                "classic" => self.classic(name).await,
                _ => self.network_balancer(name).await,
            };
            match found {
                Ok(found) => all.extend(found),
                Err(error) if error.is(NOT_FOUND) && verb == Verb::Delete => {}
                Err(error) if error.is(NOT_FOUND) => {
                    let member = format!("providerSpec.value.loadBalancers[{index}].name");
                    let why = format!("{member} is '{name}'; there is no {kind} load balancer of this name");
                    return Err(failed(verb, why));
                }
                Err(error) => return Err(error.for_machine(verb)),
            }
        }
        Ok(all)
    }

    async fn classic(&self, name: &str) -> Result<Vec<Membership>, CallError> {
        let call = self.clients.classic.describe_load_balancers().load_balancer_names(name).send().await;
        let found = call.map_err(|error| CallError::of("DescribeLoadBalancers", error))?;
        let instances =
            found.load_balancer_descriptions().iter().flat_map(LoadBalancerDescription::instances);
        let instances = instances.filter_map(|it| it.instance_id().map(str::to_owned)).collect();
        Ok(vec![Membership::Classic { name: name.to_owned(), instances }])
    }

    async fn network_balancer(&self, name: &str) -> Result<Vec<Membership>, CallError> {
        let network = &self.clients.network;
        let call = network.describe_load_balancers().names(name).send().await;
        let found = call.map_err(|error| CallError::of("DescribeLoadBalancers", error))?;
        let mut all = Vec::new();
        for arn in found.load_balancers().iter().filter_map(|it| it.load_balancer_arn()) {
            let mut pages = network.describe_target_groups().load_balancer_arn(arn).into_paginator().send();
            while let Some(page) = pages.next().await {
                let page = page.map_err(|error| CallError::of("DescribeTargetGroups", error))?;
                all.extend(page.target_groups().iter().filter_map(membership));
            }
        }
        Ok(all)
    }

    /// Makes a running instance a member wherever it is none. AWS accepts no other; a refresh comes when it runs.
    pub(crate) async fn register(&self, instance: &Ec2Instance, verb: Verb) -> Result<(), InstanceError> {
        if !state::is_running(instance) {
            return Ok(());
        }
        for place in self.memberships(verb).await? {
            let joined = match &place {
                Membership::Classic { name, instances } => {
                    self.join_classic(name, instances, state::id(instance)).await
                }
                Membership::Group { arn, has_addresses } => {
                    self.set_target(arn, *has_addresses, instance, true).await
                }
            };
            joined.map_err(|error| error.for_machine(verb))?;
        }
        Ok(())
    }

    /// Ends the memberships of an instance in target groups. One in a place that is gone is no more.
    pub(crate) async fn deregister(&self, instance: &Ec2Instance) -> Result<(), InstanceError> {
        for place in self.memberships(Verb::Delete).await? {
            let Membership::Group { arn, has_addresses } = place else { continue };
            match self.set_target(&arn, has_addresses, instance, false).await {
                Ok(()) => {}
                Err(error) if error.is(NOT_FOUND) || error.is(NO_MEMBER) => {}
                Err(error) => return Err(error.for_machine(Verb::Delete)),
            }
        }
        Ok(())
    }

    async fn join_classic(&self, name: &str, instances: &[String], id: &str) -> Result<(), CallError> {
        if instances.iter().any(|it| it == id) {
            return Ok(());
        }
        let member = aws_sdk_elasticloadbalancing::types::Instance::builder().instance_id(id).build();
        let call = self.clients.classic.register_instances_with_load_balancer().load_balancer_name(name);
        let call = call.instances(member).send().await;
        call.map(drop).map_err(|error| CallError::of("RegisterInstancesWithLoadBalancer", error))
    }

    async fn is_target(&self, arn: &str, target: &str) -> Result<bool, CallError> {
        let call = self.clients.network.describe_target_health().target_group_arn(arn).send().await;
        let found = call.map_err(|error| CallError::of("DescribeTargetHealth", error))?;
        Ok(found.target_health_descriptions().iter().any(|it| {
            let is_leaving =
                it.target_health().and_then(|it| it.state()) == Some(&TargetHealthStateEnum::Draining);
            it.target().and_then(|it| it.id()) == Some(target) && !is_leaving
        }))
    }

    async fn set_target(
        &self,
        arn: &str,
        has_addresses: bool,
        instance: &Ec2Instance,
        wanted: bool,
    ) -> Result<(), CallError> {
        let target = if has_addresses { instance.private_ip_address() } else { instance.instance_id() };
        // An instance that has ended has no address.
        let Some(target) = target else { return Ok(()) };
        if self.is_target(arn, target).await? == wanted {
            return Ok(());
        }
        let network = &self.clients.network;
        let target = TargetDescription::builder().id(target).build();
        if wanted {
            let call = network.register_targets().target_group_arn(arn).targets(target).send().await;
            call.map(drop).map_err(|error| CallError::of("RegisterTargets", error))
        } else {
            let call = network.deregister_targets().target_group_arn(arn).targets(target).send().await;
            call.map(drop).map_err(|error| CallError::of("DeregisterTargets", error))
        }
    }
}

/// The membership that a target group offers; `None` for those of functions and other load balancers.
fn membership(group: &TargetGroup) -> Option<Membership> {
    let has_addresses = match group.target_type()? {
        TargetTypeEnum::Instance => false,
        TargetTypeEnum::Ip => true,
        _ => return None,
    };
    Some(Membership::Group { arn: group.target_group_arn()?.to_owned(), has_addresses })
}
