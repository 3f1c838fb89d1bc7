//! Which Machines a MachineHealthCheck finds unhealthy, and whether they may be remediated. Pure.

use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::{
    Machine, MachineHealthCheck, MachineHealthCheckStatus, MachinePhase, names, set_condition,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use crate::conditions::{self, ConditionType};
use crate::duration::parse_duration;
use crate::machine_set::decide::controller_of;

/// Time for which a Machine may be without a Node if the MachineHealthCheck names none.
const NODE_STARTUP_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest time between two checks of a Machine that is about to time out.
const NEXT_CHECK_MAX: Duration = Duration::from_secs(3600);
/// Added to the time that remains, because times in conditions are whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// Time until a MachineHealthCheck that may not remediate looks again.
const RESTRICTED_REQUEUE: Duration = Duration::from_secs(30);

/// A Machine and its Node.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) machine: Arc<Machine>,
    pub(crate) node: NodeState,
}

/// The Node of a Machine.
#[derive(Debug, Clone)]
pub(crate) enum NodeState {
    /// The Machine has no nodeRef.
    None,
    /// The Node of the nodeRef does not exist.
    Missing,
    Found(Arc<Node>),
}

/// Health of a Machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Healthy,
    /// Not healthy, and nothing to do.
    Unhealthy,
    /// Not healthy; may need remediation after this time.
    CheckAfter(Duration),
    Remediate,
}

/// What a MachineHealthCheck asks for, with its durations read.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// `None` without a limit.
    startup: Option<Duration>,
    unhealthy: Vec<UnhealthyNode>,
}

#[derive(Debug, Clone)]
struct UnhealthyNode {
    type_: String,
    status: String,
    timeout: Duration,
}

/// Reads the durations of a MachineHealthCheck; the error names the field.
pub(crate) fn policy(check: &MachineHealthCheck) -> Result<Policy, String> {
    let startup = match check.spec.node_startup_timeout.as_deref() {
        None => NODE_STARTUP_TIMEOUT,
        Some(text) => {
            parse_duration(text).ok_or_else(|| invalid_duration("spec.nodeStartupTimeout", text))?
        }
    };
    let read = |condition: &api::crd::machine::UnhealthyCondition| {
        let text = condition.timeout.as_deref().unwrap_or("0s");
        let field = format!("spec.unhealthyConditions: timeout of {}={}", condition.type_, condition.status);
        let timeout = parse_duration(text).ok_or_else(|| invalid_duration(&field, text))?;
        Ok(UnhealthyNode { type_: condition.type_.clone(), status: condition.status.clone(), timeout })
    };
    let unhealthy = check.spec.unhealthy_conditions.iter().map(read).collect::<Result<_, String>>()?;
    Ok(Policy { startup: (!startup.is_zero()).then_some(startup), unhealthy })
}

fn invalid_duration(field: &str, text: &str) -> String {
    format!("{field}: {text:?} must be a duration such as 300s or 1h30m")
}

/// The health of one Machine.
pub(crate) fn verdict(target: &Target, policy: &Policy, now: Timestamp) -> Verdict {
    let machine = &target.machine;
    let status = machine.status.as_ref();
    if status.is_some_and(|status| status.phase == Some(MachinePhase::Failed)) {
        return Verdict::Remediate;
    }
    let node = match &target.node {
        NodeState::Missing => return Verdict::Remediate,
        NodeState::None => {
            let Some(timeout) = policy.startup else { return Verdict::Unhealthy };
            let Some(updated) = status.and_then(|status| status.last_updated.as_ref()) else {
                return Verdict::CheckAfter(timeout);
            };
            return match remaining(updated.0, timeout, now) {
                None => Verdict::Remediate,
                Some(remaining) => Verdict::CheckAfter(remaining + ROUNDING),
            };
        }
        NodeState::Found(node) => node,
    };
    let mut next: Option<Duration> = None;
    for unhealthy in &policy.unhealthy {
        let Some(since) = condition_since(node, &unhealthy.type_, &unhealthy.status) else { continue };
        match remaining(since, unhealthy.timeout, now) {
            None => return Verdict::Remediate,
            Some(remaining) => {
                let remaining = remaining + ROUNDING;
                next = Some(next.map_or(remaining, |next| next.min(remaining)));
            }
        }
    }
    let remediated_by_others = machine.annotations().contains_key(names::EXTERNAL_REMEDIATION);
    match next {
        Some(next) => Verdict::CheckAfter(next),
        None if machine.metadata.deletion_timestamp.is_some() || remediated_by_others => Verdict::Unhealthy,
        None => Verdict::Healthy,
    }
}

/// Time until `since` is longer ago than `timeout`; `None` if it is.
fn remaining(since: Timestamp, timeout: Duration, now: Timestamp) -> Option<Duration> {
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    // A time that cannot be represented does not come.
    let end = since.checked_add(timeout).unwrap_or(Timestamp::MAX);
    let left = now.duration_until(end);
    (!left.is_negative()).then(|| left.unsigned_abs())
}

/// Since when a condition of a Node has this status; `None` if it has another one or is absent.
fn condition_since(node: &Node, type_: &str, status: &str) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    (found.status == status)
        .then(|| found.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

/// Largest number of unhealthy Machines with which Machines are remediated.
pub(crate) fn unhealthy_limit(check: &MachineHealthCheck, expected: usize) -> Result<usize, String> {
    let invalid =
        |text: &str| format!("spec.maxUnhealthy: {text:?} must be a number or a percentage from 0% to 100%");
    match check.spec.max_unhealthy.as_ref() {
        None => Ok(expected),
        Some(IntOrString::Int(number)) => Ok(usize::try_from(*number).unwrap_or_default()),
        Some(IntOrString::String(text)) => match text.strip_suffix('%') {
            None => text
                .parse::<i64>()
                .map(|it| usize::try_from(it).unwrap_or_default())
                .map_err(|_| invalid(text)),
            Some(percent) => match percent.parse::<i64>() {
                Ok(percent) if percent <= 100 => {
                    Ok(usize::try_from(percent).unwrap_or_default() * expected / 100)
                }
                _ => Err(invalid(text)),
            },
        },
    }
}

/// What a MachineHealthCheck does with its Machines.
#[derive(Debug)]
pub(crate) struct Evaluation {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) expected: usize,
    pub(crate) healthy: usize,
    /// The limit, or why it cannot be read.
    limit: Result<usize, String>,
}

impl Evaluation {
    /// Checks every target.
    pub(crate) fn new(
        check: &MachineHealthCheck,
        policy: &Policy,
        targets: &[Target],
        now: Timestamp,
    ) -> Evaluation {
        let verdicts: Vec<Verdict> = targets.iter().map(|target| verdict(target, policy, now)).collect();
        let healthy = verdicts.iter().filter(|verdict| **verdict == Verdict::Healthy).count();
        let expected = targets.len();
        Evaluation { verdicts, expected, healthy, limit: unhealthy_limit(check, expected) }
    }

    fn unhealthy(&self) -> usize {
        self.expected - self.healthy
    }

    /// Whether Machines may be remediated; otherwise the message about it.
    pub(crate) fn allowed(&self) -> Result<(), String> {
        let limit = self.limit.as_ref().map_err(Clone::clone)?;
        if self.unhealthy() <= *limit {
            return Ok(());
        }
        Err(format!(
            "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy \
             (total: {}, unhealthy: {}, maxUnhealthy: {limit})",
            self.expected,
            self.unhealthy()
        ))
    }

    /// The status for these verdicts.
    pub(crate) fn status(&self, check: &MachineHealthCheck, now: Timestamp) -> MachineHealthCheckStatus {
        let mut status = check.status.clone().unwrap_or_default();
        let count = |number: usize| Some(i64::try_from(number).unwrap_or(i64::MAX));
        (status.expected_machines, status.current_healthy) = (count(self.expected), count(self.healthy));
        let (allowed, condition) = match self.allowed() {
            Ok(()) => {
                let limit = self.limit.as_ref().copied().unwrap_or_default();
                (limit.saturating_sub(self.unhealthy()), ConditionType::RemediationAllowed.holds())
            }
            Err(message) => (0, conditions::too_many_unhealthy(message)),
        };
        status.remediations_allowed = Some(i32::try_from(allowed).unwrap_or(i32::MAX));
        set_condition(&mut status.conditions, condition, now);
        status
    }

    /// When to look again though nothing changes.
    pub(crate) fn look_again(&self) -> Option<Duration> {
        let next = self.verdicts.iter().filter_map(|verdict| match verdict {
            Verdict::CheckAfter(after) => Some((*after).min(NEXT_CHECK_MAX)),
            Verdict::Healthy | Verdict::Unhealthy | Verdict::Remediate => None,
        });
        match self.allowed() {
            Ok(()) => next.min(),
            Err(_) => Some(next.fold(RESTRICTED_REQUEUE, Duration::min)),
        }
    }
}

/// How a Machine is remediated.
#[derive(Debug, PartialEq)]
pub(crate) enum Remediation {
    /// By a request made from this template.
    Request(Box<ObjectReference>),
    /// By an annotation that asks others; `true` if the Machine has it.
    Annotate {
        present: bool,
    },
    /// Not, because nothing would replace it.
    SkipWithoutController,
    Delete,
}

/// How the MachineHealthCheck remediates a Machine.
pub(crate) fn remediation(check: &MachineHealthCheck, machine: &Machine) -> Remediation {
    if let Some(template) = &check.spec.remediation_template {
        return Remediation::Request(Box::new(template.clone()));
    }
    let failed = machine.status.as_ref().is_some_and(|status| status.phase == Some(MachinePhase::Failed));
    let strategy = check.annotations().get(names::REMEDIATION_STRATEGY).map(String::as_str);
    if !failed && strategy == Some(names::EXTERNAL_BAREMETAL) {
        let present = machine.annotations().contains_key(names::EXTERNAL_REMEDIATION);
        return Remediation::Annotate { present };
    }
    match controller_of(&machine.metadata) {
        None => Remediation::SkipWithoutController,
        Some(_) => Remediation::Delete,
    }
}

/// Whether a change of a Machine can change its verdict or how it is remediated.
pub(crate) fn concerns_health(old: Option<&Machine>, new: Option<&Machine>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    let (before, after) = (&old.metadata, &new.metadata);
    let external = |machine: &Machine| machine.annotations().contains_key(names::EXTERNAL_REMEDIATION);
    let phase = |machine: &Machine| machine.status.as_ref().and_then(|status| status.phase.clone());
    let is_linked = |machine: &Machine| node_ref(machine).is_some();
    let updated = |machine: &Machine| machine.status.as_ref().and_then(|status| status.last_updated.clone());
    before.uid != after.uid
        || before.labels != after.labels
        || before.owner_references != after.owner_references
        || before.deletion_timestamp != after.deletion_timestamp
        || external(old) != external(new)
        || phase(old) != phase(new)
        || node_ref(old) != node_ref(new)
        // The time to start counts from it.
        || !is_linked(new) && updated(old) != updated(new)
}

fn node_ref(machine: &Machine) -> Option<&ObjectReference> {
    machine.status.as_ref()?.node_ref.as_ref()
}

/// Whether the MachineHealthCheck does nothing for now.
pub(crate) fn is_paused(check: &MachineHealthCheck) -> bool {
    check.annotations().contains_key(names::PAUSED)
}
