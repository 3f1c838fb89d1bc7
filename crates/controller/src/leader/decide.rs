//! Who may hold a lease, as a function of what was observed and when. Times of other machines are never compared with ours: a lease has
//! ended when it was not changed for its duration on our own clock, as in client-go.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use tokio::time::Instant;

use super::LeaseDurations;

/// A lease as last observed.
#[derive(Debug, Default)]
pub(super) struct Observed {
    lease: Option<Lease>,
    changed_at: Option<Instant>,
}

/// What a candidate does next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// The lease does not exist: create it.
    Create,
    /// It is free: take it over.
    Take,
    /// Another process holds it, at least until this time.
    Wait(Instant),
}

impl Observed {
    /// Notes what was read at `now`.
    pub(super) fn observe(&mut self, lease: Option<Lease>, now: Instant) {
        let is_same = match (&self.lease, &lease) {
            (Some(before), Some(now)) => before.spec == now.spec,
            _ => false,
        };
        if !is_same {
            self.changed_at = Some(now);
        }
        self.lease = lease;
    }

    pub(super) fn next(&self, identity: &str, now: Instant) -> Next {
        let Some(lease) = &self.lease else { return Next::Create };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        // Our own identity: a write of this process whose response was lost.
        if holder.is_empty() || holder == identity {
            return Next::Take;
        }
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        let ends = self.changed_at.unwrap_or(now) + Duration::from_secs(seconds);
        if ends <= now { Next::Take } else { Next::Wait(ends) }
    }

    /// Whether the lease names this holder.
    pub(super) fn is_held_by(&self, identity: &str) -> bool {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        spec.and_then(|spec| spec.holder_identity.as_deref()) == Some(identity)
    }

    pub(super) fn holder(&self) -> &str {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }
}

/// The spec with which `identity` takes or renews a lease.
pub(super) fn held(
    before: Option<&LeaseSpec>,
    identity: &str,
    durations: &LeaseDurations,
    now: jiff::Timestamp,
) -> LeaseSpec {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    let mut spec = before.cloned().unwrap_or_default();
    if spec.holder_identity.as_deref() != Some(identity) {
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions =
            Some(before.map_or(0, |spec| spec.lease_transitions.unwrap_or(0).saturating_add(1)));
    }
    spec.holder_identity = Some(identity.to_owned());
    spec.lease_duration_seconds = Some(i32::try_from(durations.lease().as_secs()).unwrap_or(i32::MAX));
    spec.renew_time = Some(MicroTime(now));
    spec
}

/// The spec of a lease that its holder released: the next candidate need not wait.
pub(super) fn released(mut spec: LeaseSpec, now: jiff::Timestamp) -> LeaseSpec {
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(now));
    spec
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let renewed = Timestamp::from_second(renewed).unwrap();
        let spec = held(None, holder, &LeaseDurations::OPENSHIFT, renewed);
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn a_lease_ends_when_it_was_not_changed_for_its_duration_on_our_own_clock() {
        let start = Instant::now();
        let seconds = |seconds| start + Duration::from_secs(seconds);
        let mut observed = Observed::default();
        assert_eq!(observed.next("me", start), Next::Create);
        // Renewed long ago by its holder's clock: that clock may be wrong.
        observed.observe(Some(lease("other", 5)), start);
        assert_eq!(observed.next("me", start), Next::Wait(seconds(137)));
        observed.observe(Some(lease("other", 5)), seconds(100));
        assert_eq!(observed.next("me", seconds(100)), Next::Wait(seconds(137)));
        observed.observe(Some(lease("other", 6)), seconds(120));
        assert_eq!(observed.next("me", seconds(137)), Next::Wait(seconds(257)));
        assert_eq!(observed.next("me", seconds(257)), Next::Take);
    }

    #[test]
    fn a_released_lease_and_our_own_are_taken_at_once() {
        let now = Instant::now();
        let mut observed = Observed::default();
        let spec = released(lease("other", 5).spec.unwrap(), Timestamp::UNIX_EPOCH);
        observed.observe(Some(Lease { spec: Some(spec), ..Lease::default() }), now);
        assert_eq!(observed.next("me", now), Next::Take);
        observed.observe(Some(lease("me", 5)), now);
        assert_eq!(observed.next("me", now), Next::Take);
    }

    #[test]
    fn transitions_count_the_changes_of_the_holder() {
        let now = Timestamp::UNIX_EPOCH;
        let one = held(None, "one", &LeaseDurations::OPENSHIFT, now);
        assert_eq!(one.lease_transitions, Some(0));
        let renewed = held(Some(&one), "one", &LeaseDurations::OPENSHIFT, now);
        assert_eq!(renewed.lease_transitions, Some(0));
        let two = held(Some(&renewed), "two", &LeaseDurations::OPENSHIFT, now);
        assert_eq!(two.lease_transitions, Some(1));
    }

    #[test]
    fn a_negative_duration_is_a_lease_that_has_ended() {
        let now = Instant::now();
        let mut hostile = lease("other", 5);
        hostile.spec.as_mut().unwrap().lease_duration_seconds = Some(-5);
        let mut observed = Observed::default();
        observed.observe(Some(hostile), now);
        assert_eq!(observed.next("me", now), Next::Take);
    }
}
