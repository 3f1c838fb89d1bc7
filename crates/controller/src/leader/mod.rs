//! Leader election by a Lease of coordination.k8s.io: of all processes that want to, one acts.
//!
//! The holder renews its lease and stops its work before the lease could end for others, even if it cannot reach the API server. Every
//! write compares the resource version that was read, so two candidates cannot both succeed.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use api::clock::SharedClock;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::error::error_chain;
use crate::informers::Observability;

mod decide;

use decide::{Next, Observed};

/// Longest time between two looks at a lease that another process holds: a released lease is noticed by then.
const POLL_MAX: Duration = Duration::from_secs(5);

/// Time without an attempt to take a lease after which the election hangs: longer than the requests of one attempt may take.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// Time between two attempts to renew after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Longest time that a release may take. A lease that is not released ends by itself.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Durations of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseDurations {
    lease: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

/// Durations that cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a lease of {} s with a renew deadline of {} s and a retry period of {} s cannot work; whole seconds with lease > renew deadline > retry period > 0 are accepted",
    lease.as_secs(), renew_deadline.as_secs(), retry.as_secs()
)]
pub struct InvalidLeaseDurations {
    lease: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

impl LeaseDurations {
    /// OpenShift's: survive an API server that is away for a minute, with few writes.
    pub const OPENSHIFT: LeaseDurations = LeaseDurations::seconds(137, 107, 26);

    /// Those of the machine API's controllers.
    pub const MACHINE_CONTROLLERS: LeaseDurations = LeaseDurations::seconds(120, 107, 26);

    /// Where a standby must act within seconds.
    pub const QUICK: LeaseDurations = LeaseDurations::seconds(15, 10, 2);

    const fn seconds(lease: u64, renew_deadline: u64, retry: u64) -> LeaseDurations {
        LeaseDurations {
            lease: Duration::from_secs(lease),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry: Duration::from_secs(retry),
        }
    }

    /// A lease that others may take over `lease` after it was renewed. Its holder renews it every `retry`, and stops its work when it
    /// could not for `renew_deadline`.
    pub fn new(
        lease: Duration,
        renew_deadline: Duration,
        retry: Duration,
    ) -> Result<LeaseDurations, InvalidLeaseDurations> {
        let is_whole = lease.subsec_nanos() == 0 && i32::try_from(lease.as_secs()).is_ok();
        if is_whole && lease > renew_deadline && renew_deadline > retry && !retry.is_zero() {
            Ok(LeaseDurations { lease, renew_deadline, retry })
        } else {
            Err(InvalidLeaseDurations { lease, renew_deadline, retry })
        }
    }

    /// The duration of the lease.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The time after a renewal at which work that was cancelled must have ended. What its last requests do comes before the lease ends.
    fn work_ends(&self) -> Duration {
        (self.lease + self.renew_deadline) / 2
    }
}

/// A candidate for a lease.
#[derive(Clone)]
pub struct LeaderElection {
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    durations: LeaseDurations,
    clock: SharedClock,
    observability: Observability,
}

/// Why the work of a leader ends.
enum Ending<T> {
    /// The work ended by itself.
    Returned(T),
    /// This process shuts down.
    Shutdown,
    /// The lease was not renewed in time.
    NotRenewed,
    /// Another process holds the lease.
    Lost,
}

impl LeaderElection {
    /// A candidate for the lease `name`. `process` names this process for people, such as by its pod; it need not be unique.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        process: &str,
        durations: LeaseDurations,
        clock: SharedClock,
        observability: Observability,
    ) -> LeaderElection {
        LeaderElection {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            // Two processes of the same name, or this one after a restart, are different holders.
            identity: format!("{process}_{}", uuid::Uuid::new_v4()),
            durations,
            clock,
            observability,
        }
    }

    /// The identity in the lease.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Runs `work` whenever this process is the leader. Its token is cancelled when the leadership ends, and what has not ended in time is
    /// dropped; then this process is a candidate again. Returns when `work` ends by itself, or after `shutdown` (`None`); the lease is
    /// released.
    ///
    /// `work` makes its informers itself, so that they list after the lease was taken; one that keeps them warm across terms calls
    /// [`Informers::catch_up`] first. Otherwise a cache may lack the last writes of the previous leader.
    ///
    /// [`Informers::catch_up`]: crate::Informers::catch_up
    pub async fn run_as_leader<F, T>(
        &self,
        shutdown: CancellationToken,
        mut work: impl FnMut(CancellationToken) -> F,
    ) -> Option<T>
    where
        F: Future<Output = T>,
    {
        let (lease, metrics) = (&self.name, &self.observability.metrics);
        metrics.leading(lease, false);
        let mut observed = Observed::default();
        loop {
            let acquired = tokio::select! {
                () = shutdown.cancelled() => return None,
                acquired = self.acquire(&mut observed) => acquired,
            };
            tracing::info!(lease, identity = self.identity, "Became the leader of {lease}");
            metrics.leading(lease, true);
            let ending = self.lead(&mut observed, acquired, &shutdown, &mut work).await;
            metrics.leading(lease, false);
            match ending {
                Ending::Returned(result) => {
                    self.release(&mut observed).await;
                    return Some(result);
                }
                Ending::Shutdown => {
                    self.release(&mut observed).await;
                    return None;
                }
                Ending::NotRenewed => {
                    tracing::warn!(lease, "The lease {lease} could not be renewed; its work was stopped");
                    self.release(&mut observed).await;
                }
                Ending::Lost => {
                    let holder = observed.holder();
                    tracing::warn!(
                        lease,
                        holder,
                        "The lease {lease} was taken by {holder:?}; its work was stopped"
                    );
                }
            }
        }
    }

    /// Waits for the lease, and returns the time from which on it counts.
    async fn acquire(&self, observed: &mut Observed) -> Instant {
        let beat = self.observability.health.heartbeat(&format!("election of {}", self.name), HANGS_AFTER);
        loop {
            beat.beat();
            let asked = Instant::now();
            let poll = self.durations.retry.min(POLL_MAX);
            let wait = match self.attempt(observed).await {
                Ok(true) => return asked,
                Ok(false) => match observed.next(&self.identity, Instant::now()) {
                    Next::Wait(until) => until.min(Instant::now() + poll),
                    Next::Create | Next::Take => Instant::now(),
                },
                Err(error) => {
                    tracing::info!(
                        lease = self.name,
                        "Cannot take the lease {}, retrying: {}",
                        self.name,
                        error_chain(&error)
                    );
                    Instant::now() + RETRY
                }
            };
            sleep_until(wait).await;
        }
    }

    /// Reads the lease and takes it if it is free. Returns whether it is held now.
    async fn attempt(&self, observed: &mut Observed) -> kube::Result<bool> {
        let read = self.api.get_opt(&self.name).await?;
        observed.observe(read, Instant::now());
        match observed.next(&self.identity, Instant::now()) {
            Next::Wait(_) => Ok(false),
            Next::Create | Next::Take => self.write(observed).await,
        }
    }

    /// Writes this process as the holder. `false` if another process was quicker.
    async fn write(&self, observed: &mut Observed) -> kube::Result<bool> {
        let now = self.clock.now();
        let before = observed.lease();
        let spec = decide::held(before.and_then(|it| it.spec.as_ref()), &self.identity, &self.durations, now);
        let written = match before {
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                };
                self.api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
            }
            Some(before) => {
                let lease = Lease { metadata: before.metadata.clone(), spec: Some(spec) };
                self.api.replace(&self.name, &PostParams::default(), &lease).await
            }
        };
        match written {
            Ok(lease) => {
                observed.observe(Some(lease), Instant::now());
                Ok(true)
            }
            // 404: it was deleted since it was read.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                let read = self.api.get_opt(&self.name).await?;
                observed.observe(read, Instant::now());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Does the work while the lease is renewed.
    async fn lead<F, T>(
        &self,
        observed: &mut Observed,
        acquired: Instant,
        shutdown: &CancellationToken,
        work: &mut impl FnMut(CancellationToken) -> F,
    ) -> Ending<T>
    where
        F: Future<Output = T>,
    {
        let cancel = CancellationToken::new();
        let _cancel_when_dropped = cancel.clone().drop_guard();
        let mut renewed = acquired;
        let mut running = pin!(work(cancel.clone()));
        let ending = tokio::select! {
            result = &mut running => return Ending::Returned(result),
            () = shutdown.cancelled() => Ending::Shutdown,
            ending = self.keep(observed, &mut renewed) => ending,
        };
        cancel.cancel();
        if !matches!(ending, Ending::Lost) {
            let _ = timeout_at(renewed + self.durations.work_ends(), &mut running).await;
        }
        ending
    }

    /// Renews the lease until that fails for too long or another process holds it.
    async fn keep<T>(&self, observed: &mut Observed, renewed: &mut Instant) -> Ending<T> {
        let beat = self.observability.health.heartbeat(&format!("lease {}", self.name), self.durations.lease);
        let mut next = *renewed + self.durations.retry;
        loop {
            let deadline = *renewed + self.durations.renew_deadline;
            sleep_until(next.min(deadline)).await;
            beat.beat();
            let asked = Instant::now();
            if asked >= deadline {
                return Ending::NotRenewed;
            }
            match timeout_at(deadline, self.renew(observed)).await {
                Ok(Ok(true)) => {
                    *renewed = asked;
                    next = asked + self.durations.retry;
                }
                Ok(Ok(false)) => return Ending::Lost,
                Ok(Err(error)) => {
                    tracing::info!(
                        lease = self.name,
                        "Cannot renew the lease {}, retrying: {}",
                        self.name,
                        error_chain(&error)
                    );
                    next = Instant::now() + RETRY.min(self.durations.retry);
                }
                Err(_) => return Ending::NotRenewed,
            }
        }
    }

    /// Renews the lease. `false` if another process holds it.
    async fn renew(&self, observed: &mut Observed) -> kube::Result<bool> {
        if self.write(observed).await? {
            return Ok(true);
        }
        // It changed: by a renewal of ours whose response was lost, by someone who edited or deleted it, or by another holder.
        let is_free = observed.lease().is_none() || observed.holder().is_empty();
        if !is_free && !observed.is_held_by(&self.identity) {
            return Ok(false);
        }
        self.write(observed).await
    }

    /// Lets the next candidate take the lease at once, if it is still ours.
    async fn release(&self, observed: &mut Observed) {
        let release = async {
            if !observed.is_held_by(&self.identity) {
                return Ok(());
            }
            let Some(lease) = observed.lease().cloned() else { return Ok(()) };
            let spec = decide::released(lease.spec.unwrap_or_default(), self.clock.now());
            let lease = Lease { metadata: lease.metadata, spec: Some(spec) };
            let released = self.api.replace(&self.name, &PostParams::default(), &lease).await?;
            observed.observe(Some(released), Instant::now());
            Ok::<(), kube::Error>(())
        };
        match timeout_at(Instant::now() + RELEASE_MAX, release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::info!(
                    lease = self.name,
                    "Cannot release the lease {}: {}",
                    self.name,
                    error_chain(&error)
                );
            }
            Err(_) => tracing::info!(lease = self.name, "Cannot release the lease {} in time", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_cannot_work_are_refused_with_what_is_accepted() {
        let seconds = |lease, renew, retry| {
            LeaseDurations::new(
                Duration::from_secs(lease),
                Duration::from_secs(renew),
                Duration::from_secs(retry),
            )
        };
        assert_eq!(seconds(137, 107, 26), Ok(LeaseDurations::OPENSHIFT));
        for (lease, renew, retry) in [(10, 10, 2), (15, 2, 10), (15, 10, 0), (0, 0, 0), (u64::MAX, 10, 2)] {
            assert!(seconds(lease, renew, retry).is_err(), "{lease} {renew} {retry}");
        }
        assert_eq!(
            seconds(10, 15, 2).unwrap_err().to_string(),
            "a lease of 10 s with a renew deadline of 15 s and a retry period of 2 s cannot work; whole seconds with \
             lease > renew deadline > retry period > 0 are accepted"
        );
    }

    #[test]
    fn work_that_was_cancelled_has_to_end_before_the_lease_does() {
        for durations in
            [LeaseDurations::OPENSHIFT, LeaseDurations::MACHINE_CONTROLLERS, LeaseDurations::QUICK]
        {
            assert!(
                durations.renew_deadline < durations.work_ends() && durations.work_ends() < durations.lease
            );
        }
    }
}
