//! Injected faults: rules that calls are matched against, and the handle with which tests set them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::install::InstallStage;
use serde::{Deserialize, Serialize};

use crate::protocol::VERBS;
use crate::seed;

/// More rules than this are a mistake; the oldest are dropped.
const RULES_MAX: usize = 1000;

/// A fault rule names a verb that no call has.
#[derive(Debug, thiserror::Error)]
#[error("verb is {0:?}; accepted are {accepted}", accepted = VERBS.join(", "))]
pub struct UnknownVerb(String);

/// The fault rules of a service. Clones share the same rules, which are lost when the service stops.
#[derive(Debug, Clone)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    seed: u64,
    calls: u64,
    /// Counted apart, so that the number of connections does not change which calls a seed chooses.
    handshakes: u64,
    rules: Vec<FaultRule>,
    aim: Option<Aim>,
    /// Calls that [`Faults::strike_new_call`] was applied to: verb, subject, and how often it was made before.
    struck: BTreeSet<(String, String, u32)>,
}

/// A fault for one call that was not struck yet.
#[derive(Debug)]
struct Aim {
    fault: CloudFault,
    /// Calls since the fault was requested, by verb and subject.
    arrivals: BTreeMap<(String, String), u32>,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Faults {
        Faults {
            inner: Arc::new(Mutex::new(Inner {
                seed,
                calls: 0,
                handshakes: 0,
                rules: Vec::new(),
                aim: None,
                struck: BTreeSet::new(),
            })),
        }
    }

    /// Adds a rule. Of several rules that match a call, the oldest applies. A rule of an unknown verb would never match: it is rejected.
    pub fn inject(&self, rule: FaultRule) -> Result<(), UnknownVerb> {
        if let Some(verb) = rule.verb.as_deref().filter(|it| !VERBS.contains(it)) {
            return Err(UnknownVerb(verb.to_owned()));
        }
        let mut inner = self.lock();
        if inner.rules.len() >= RULES_MAX {
            inner.rules.remove(0);
        }
        inner.rules.push(rule);
        Ok(())
    }

    /// Applies a fault to the next call that this method has not struck before, whatever the order of the calls. A call is recognized
    /// by its verb, its subject, and how many of them were made since this was requested. Replaces an earlier request.
    pub fn strike_new_call(&self, fault: CloudFault) {
        self.lock().aim = Some(Aim { fault, arrivals: BTreeMap::new() });
    }

    /// Whether [`Faults::strike_new_call`] still waits for such a call.
    pub fn awaits_new_call(&self) -> bool {
        self.lock().aim.is_some()
    }

    /// Forgets which calls were struck: all are new again.
    pub fn forget_struck_calls(&self) {
        self.lock().struck.clear();
    }

    /// The active rules, with their remaining number of calls.
    pub fn present(&self) -> Vec<FaultRule> {
        self.lock().rules.clone()
    }

    /// Removes all rules. Struck calls stay known.
    pub fn clear(&self) {
        let mut inner = self.lock();
        inner.rules.clear();
        inner.aim = None;
    }

    /// The fault for a call, among those that `is_meant` accepts.
    pub(crate) fn meet(
        &self,
        verb: &str,
        subject: &str,
        is_meant: impl Fn(&CloudFault) -> bool,
    ) -> Option<CloudFault> {
        debug_assert!(VERBS.contains(&verb), "{verb} is absent from VERBS");
        let mut inner = self.lock();
        let calls = if verb == HANDSHAKE {
            inner.handshakes += 1;
            format!("{HANDSHAKE}{}", inner.handshakes)
        } else {
            inner.calls += 1;
            inner.calls.to_string()
        };
        let seed = inner.seed;
        let subject = subject.to_lowercase();
        let aimed = inner.aim_at(verb, &subject, &is_meant);
        if aimed.is_some() {
            return aimed;
        }
        let fits = |number: usize, rule: &FaultRule| {
            let fits = is_meant(&rule.fault)
                && suits(&rule.fault, verb, rule.verb.is_some())
                && rule.verb.as_deref().is_none_or(|it| it == verb)
                && rule.about.as_ref().is_none_or(|it| subject.contains(&it.to_lowercase()));
            let drawn = || seed::share(seed, &["fault", &calls, &number.to_string()]);
            fits && rule.share.is_none_or(|share| drawn() < share)
        };
        let at = inner.rules.iter_mut().enumerate().position(|(number, rule)| {
            fits(number, rule)
                && match rule.after {
                    Some(left) if left > 0 => {
                        rule.after = Some(left - 1);
                        false
                    }
                    _ => true,
                }
        })?;
        let rule = &mut inner.rules[at];
        let fault = rule.fault.clone();
        if let Some(times) = &mut rule.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                inner.rules.remove(at);
            }
        }
        Some(fault)
    }

    /// Whether a handshake fails that a client starts now.
    pub(crate) fn handshake_fails(&self) -> bool {
        self.meet(HANDSHAKE, "", |it| *it == CloudFault::HandshakeFails {}).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The fault for a call that was not struck yet, if one was requested.
    fn aim_at(
        &mut self,
        verb: &str,
        subject: &str,
        is_meant: impl Fn(&CloudFault) -> bool,
    ) -> Option<CloudFault> {
        // Each attempt at a change has an operation of its own.
        let subject = if verb == "operation" { "" } else { subject };
        let aim = self.aim.as_mut().filter(|it| is_meant(&it.fault) && suits(&it.fault, verb, false))?;
        let earlier = aim.arrivals.entry((verb.to_owned(), subject.to_owned())).or_default();
        let call = (verb.to_owned(), subject.to_owned(), *earlier);
        *earlier += 1;
        if !self.struck.insert(call) {
            return None;
        }
        self.aim.take().map(|it| it.fault)
    }
}

/// The verb of a TLS handshake, with which a connection begins; many calls may follow on it.
const HANDSHAKE: &str = "handshake";

/// The verbs that start the issuing of a certificate.
const ISSUING_VERBS: [&str; 2] = ["ensureCertificate", "renewCertificate"];

/// Whether a fault applies to a verb, which the rule names or not.
fn suits(fault: &CloudFault, verb: &str, is_named: bool) -> bool {
    match fault {
        CloudFault::Quota { .. } | CloudFault::Policy { .. } => verb == "put",
        // A deleted object of a vault is shown as such late only by a rule that names the verb.
        CloudFault::DelayedVisibility { .. } => {
            verb == "put" || (is_named && ["deleteSecret", "deleteCertificate"].contains(&verb))
        }
        // Deletions and certificates fail only by a rule that names them.
        CloudFault::ProvisioningFails { .. } => {
            verb == "put" || (is_named && (verb == "delete" || ISSUING_VERBS.contains(&verb)))
        }
        CloudFault::OperationHangs {} if ISSUING_VERBS.contains(&verb) => is_named,
        CloudFault::OperationLost {} | CloudFault::OperationHangs {} => {
            ["put", "delete", "ensureToken", "deleteToken", "issuePassword"].contains(&verb)
        }
        CloudFault::Conflict { .. } => ["put", "delete", "assignRole", "revokeRole"].contains(&verb),
        CloudFault::DelayedPropagation { .. } => verb == "assignRole",
        CloudFault::InstallFails { .. } => verb == "install",
        CloudFault::HandshakeFails {} => verb == HANDSHAKE,
        CloudFault::Throttled { .. }
        | CloudFault::ThrottledBriefly { .. }
        | CloudFault::Unavailable { .. }
        | CloudFault::Reset { .. }
        | CloudFault::Delayed { .. }
        | CloudFault::Denied {} => true,
        // A request for a token has none.
        CloudFault::TokenExpires {} | CloudFault::Claims {} => verb != "principal",
    }
}

/// A fault and the calls that it applies to, posted to `/sim/faults`. A rule is active until it is used up, cleared, or the service stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// The fault.
    #[serde(rename = "trouble")]
    pub fault: CloudFault,
    /// Only calls of this verb, as the names of calls spell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Only calls whose resource id or name contains this text, ignoring case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The number of matching calls that are spared before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// The number of calls; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// The share of the calls, from 0 to 1, drawn by the service's seed; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl FaultRule {
    /// A rule for every call.
    pub fn new(fault: CloudFault) -> FaultRule {
        FaultRule { fault, verb: None, about: None, after: None, times: None, share: None }
    }

    /// Only calls of this verb.
    #[must_use]
    pub fn on(mut self, verb: &str) -> FaultRule {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Restricts the rule to calls whose resource id or name contains this text.
    #[must_use]
    pub fn about(mut self, text: &str) -> FaultRule {
        self.about = Some(text.to_owned());
        self
    }

    /// Spares this number of matching calls first.
    #[must_use]
    pub fn after(mut self, calls: u32) -> FaultRule {
        self.after = Some(calls);
        self
    }

    /// Limits the number of calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> FaultRule {
        self.times = Some(times);
        self
    }

    /// Limits the rule to a share of the calls.
    #[must_use]
    pub fn share(mut self, share: f64) -> FaultRule {
        self.share = Some(share);
        self
    }
}

/// Whether a fault occurs before or after the effect of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultTiming {
    /// The call has no effect.
    Before,
    /// The call has its effect, and the caller does not learn of it.
    After,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum CloudFault {
    /// The call is rejected with status 429.
    Throttled {
        /// The value of `Retry-After`.
        after_seconds: u64,
    },
    /// The call is rejected with status 429, with the wait in milliseconds.
    ThrottledBriefly {
        /// The value of `retry-after-ms`.
        after_millis: u64,
    },
    /// The call fails with status 503.
    Unavailable {
        /// Before or after its effect.
        when: FaultTiming,
    },
    /// The connection is reset.
    Reset {
        /// Before or after its effect.
        when: FaultTiming,
    },
    /// The TLS handshake of a new connection fails. Connections that exist are not concerned.
    HandshakeFails {},
    /// The response is delayed, before or after the effect.
    #[serde(rename = "hangs")]
    Delayed {
        /// The delay in milliseconds.
        millis: u64,
        /// Before or after its effect.
        when: FaultTiming,
    },
    /// A put is rejected because of a quota.
    Quota {
        /// The quota's name.
        quota: String,
    },
    /// The caller lacks the permission.
    Denied {},
    /// A put is accepted and its provisioning fails, as in a partial deployment.
    #[serde(rename = "failsLater")]
    ProvisioningFails {
        /// The cloud's code.
        code: String,
        /// The reason, in a sentence.
        message: String,
    },
    /// Get and list do not show a created resource for a while.
    #[serde(rename = "unseen")]
    DelayedVisibility {
        /// The delay in milliseconds.
        millis: u64,
    },
    /// A role assignment becomes effective late.
    #[serde(rename = "spreadsLate")]
    DelayedPropagation {
        /// The delay in milliseconds.
        millis: u64,
    },
    /// The operation of an accepted change cannot be found.
    OperationLost {},
    /// An accepted change never completes, and its operation never ends.
    OperationHangs {},
    /// A policy denies a put.
    Policy {
        /// The policy's name.
        name: String,
    },
    /// The token has expired: status 401.
    TokenExpires {},
    /// The token lacks claims: status 401 with a challenge that asks for them.
    Claims {},
    /// Another operation is in progress: status 409.
    Conflict {
        /// The value of `Retry-After`.
        after_seconds: u64,
    },
    /// An installation is accepted and fails at a stage. (At `complete` it stays in `operators` with its failure.)
    InstallFails {
        /// The stage.
        stage: InstallStage,
    },
}

impl fmt::Display for CloudFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = |when: &FaultTiming| match when {
            FaultTiming::Before => "before its effect",
            FaultTiming::After => "after its effect",
        };
        match self {
            CloudFault::Throttled { after_seconds } => write!(f, "throttled for {after_seconds} s"),
            CloudFault::ThrottledBriefly { after_millis } => write!(f, "throttled for {after_millis} ms"),
            CloudFault::Unavailable { when: at } => write!(f, "unavailable {}", when(at)),
            CloudFault::Reset { when: at } => write!(f, "reset {}", when(at)),
            CloudFault::HandshakeFails {} => f.write_str("the TLS handshake fails"),
            CloudFault::Delayed { millis, when: at } => write!(f, "hangs for {millis} ms {}", when(at)),
            CloudFault::Quota { quota } => write!(f, "the quota {quota} is exceeded"),
            CloudFault::Denied {} => f.write_str("denied"),
            CloudFault::ProvisioningFails { code, .. } => write!(f, "stops with {code}"),
            CloudFault::DelayedVisibility { millis } => write!(f, "is not seen for {millis} ms"),
            CloudFault::DelayedPropagation { millis } => write!(f, "spreads {millis} ms late"),
            CloudFault::OperationLost {} => f.write_str("its operation is lost"),
            CloudFault::OperationHangs {} => f.write_str("its operation never ends"),
            CloudFault::Policy { name } => write!(f, "the policy {name} denies it"),
            CloudFault::TokenExpires {} => f.write_str("the token has expired"),
            CloudFault::Claims {} => f.write_str("the token lacks claims"),
            CloudFault::Conflict { after_seconds } => {
                write!(f, "another operation is in progress for {after_seconds} s")
            }
            CloudFault::InstallFails { stage } => write!(f, "installation fails at {}", stage.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(faults: &Faults, verb: &str, subject: &str) -> bool {
        faults.meet(verb, subject, |_| true).is_some()
    }

    #[test]
    fn a_rule_of_a_verb_that_no_call_has_is_rejected() {
        let faults = Faults::new(1);
        let rejected = faults.inject(FaultRule::new(CloudFault::Denied {}).on("order")).unwrap_err();
        assert!(rejected.to_string().starts_with("verb is \"order\"; accepted are put, get, "), "{rejected}");
        assert!(faults.present().is_empty());
    }

    #[test]
    fn a_rule_is_met_by_what_it_names_and_as_often_as_it_says() {
        let faults = Faults::new(1);
        faults.inject(FaultRule::new(CloudFault::Denied {}).on("put").about("Master-").times(2)).unwrap();
        assert!(!met(&faults, "get", "x-master-0"));
        assert!(!met(&faults, "put", "x-worker-0"));
        assert!(met(&faults, "put", "x-MASTER-0"));
        assert_eq!(faults.present()[0].times, Some(1));
        assert!(met(&faults, "put", "x-master-1"));
        assert!(!met(&faults, "put", "x-master-2"));
        assert!(faults.present().is_empty());
    }

    #[test]
    fn each_call_is_struck_once_in_any_order() {
        let faults = Faults::new(1);
        let run = |calls: &[(&str, &str)]| {
            faults.strike_new_call(CloudFault::Denied {});
            calls.iter().position(|(verb, subject)| met(&faults, verb, subject))
        };
        let (forth, back) = ([("get", "a"), ("get", "b"), ("get", "a")], [("get", "b"), ("get", "a")]);
        assert_eq!(run(&forth), Some(0));
        assert_eq!(run(&back), Some(0));
        assert_eq!(run(&forth), Some(2), "the second call of a is another call");
        assert_eq!(run(&forth), None);
        assert!(faults.awaits_new_call());
        faults.clear();
        assert!(!faults.awaits_new_call() && !met(&faults, "get", "c"));
        faults.forget_struck_calls();
        assert_eq!(run(&back), Some(0));
    }

    #[test]
    fn a_share_is_met_about_that_often_and_the_same_each_time() {
        let run = |seed| {
            let faults = Faults::new(seed);
            let when = FaultTiming::Before;
            faults.inject(FaultRule::new(CloudFault::Unavailable { when }).share(0.05)).unwrap();
            (0..2000).map(|_| met(&faults, "get", "x")).collect::<Vec<bool>>()
        };
        let hits = run(7).into_iter().filter(|it| *it).count();
        assert!((60..=140).contains(&hits), "{hits}");
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn handshakes_fail_by_a_rule_of_their_own_alone() {
        let faults = Faults::new(1);
        faults.inject(FaultRule::new(CloudFault::Denied {})).unwrap();
        assert!(!faults.handshake_fails());
        faults.clear();
        faults.inject(FaultRule::new(CloudFault::HandshakeFails {}).times(1)).unwrap();
        assert!(!met(&faults, "get", "x"));
        assert!(faults.handshake_fails() && !faults.handshake_fails());
    }

    #[test]
    fn what_befalls_puts_only_befalls_nothing_else() {
        let faults = Faults::new(1);
        faults.inject(FaultRule::new(CloudFault::DelayedVisibility { millis: 5 })).unwrap();
        assert!(!met(&faults, "get", "x"));
        assert!(met(&faults, "put", "x"));
    }
}
