//! Leader election on a real Lease.

use std::sync::Arc;
use std::time::Duration;

use api::clock::{SharedClock, SkewedClock, SystemClock};
use controller::{LeaderElection, LeaseDurations, Observability};
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{Line, Mode, World, soon, world};

/// Short enough that a test can wait for a lease to end, long enough for a busy machine.
fn durations() -> LeaseDurations {
    LeaseDurations::new(Duration::from_secs(6), Duration::from_secs(4), Duration::from_millis(500)).unwrap()
}

/// What happened to a candidate.
#[derive(Debug, PartialEq, Eq)]
enum Happened {
    Started(&'static str),
    Cancelled(&'static str),
    Dropped(&'static str),
}

/// Reports that the work was dropped.
struct ReportDrop(&'static str, mpsc::UnboundedSender<(Happened, Instant)>);

impl Drop for ReportDrop {
    fn drop(&mut self) {
        self.1.send((Happened::Dropped(self.0), Instant::now())).unwrap();
    }
}

struct Candidates {
    tasks: JoinSet<()>,
    happened: mpsc::UnboundedSender<(Happened, Instant)>,
    seen: mpsc::UnboundedReceiver<(Happened, Instant)>,
    namespace: String,
}

impl Candidates {
    fn new(world: &World) -> Candidates {
        let (happened, seen) = mpsc::unbounded_channel();
        Candidates { tasks: JoinSet::new(), happened, seen, namespace: world.namespace.clone() }
    }

    fn start(
        &mut self,
        name: &'static str,
        client: Client,
        clock: SharedClock,
    ) -> (CancellationToken, tokio::task::AbortHandle) {
        let election = LeaderElection::new(
            client,
            &self.namespace,
            "work",
            name,
            durations(),
            clock,
            Observability::default(),
        );
        let (shutdown, happened) = (CancellationToken::new(), self.happened.clone());
        let stop = shutdown.clone();
        let task = self.tasks.spawn(async move {
            let work = |cancel: CancellationToken| {
                let happened = happened.clone();
                async move {
                    happened.send((Happened::Started(name), Instant::now())).unwrap();
                    cancel.cancelled().await;
                    happened.send((Happened::Cancelled(name), Instant::now())).unwrap();
                }
            };
            election.run_as_leader(stop, work).await;
        });
        (shutdown, task)
    }

    async fn next(&mut self) -> (Happened, Instant) {
        soon("a change of the leader", self.seen.recv()).await.unwrap()
    }
}

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

#[tokio::test]
async fn a_released_lease_is_taken_over_and_its_transitions_are_counted() {
    let Some(world) = world("release").await else { return };
    let mut candidates = Candidates::new(&world);
    let (stop_one, _) = candidates.start("one", world.client.clone(), clock());
    assert_eq!(candidates.next().await.0, Happened::Started("one"));
    let (stop_two, _) = candidates.start("two", world.client.clone(), clock());
    stop_one.cancel();
    assert_eq!(candidates.next().await.0, Happened::Cancelled("one"));
    assert_eq!(candidates.next().await.0, Happened::Started("two"));
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let spec = leases.get("work").await.unwrap().spec.unwrap();
    assert!(spec.holder_identity.unwrap().starts_with("two_"));
    assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(1), Some(6)));
    stop_two.cancel();
    assert_eq!(candidates.next().await.0, Happened::Cancelled("two"));
    while candidates.tasks.join_next().await.is_some() {}
    let spec = leases.get("work").await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(""), "released");
}

#[tokio::test]
async fn a_killed_leader_is_followed_when_its_lease_has_ended_even_by_one_with_a_wrong_clock() {
    let Some(world) = world("killed").await else { return };
    let mut candidates = Candidates::new(&world);
    let (_, one) = candidates.start("one", world.client.clone(), clock());
    let (_, started) = candidates.next().await;
    let ahead = SkewedClock { truth: clock(), ahead: SignedDuration::from_hours(24) };
    candidates.start("two", world.client.clone(), Arc::new(ahead));
    one.abort();
    let (happened, at) = candidates.next().await;
    assert_eq!(happened, Happened::Started("two"));
    assert!(at - started >= durations().lease(), "a clock that is ahead takes no lease before it ends");
}

#[tokio::test]
async fn a_leader_that_cannot_renew_stops_before_another_one_starts() {
    let Some(world) = world("cut").await else { return };
    let mut candidates = Candidates::new(&world);
    let line = Line::new();
    candidates.start("one", line.client(&world.client), clock());
    assert_eq!(candidates.next().await.0, Happened::Started("one"));
    candidates.start("two", world.client.clone(), clock());
    line.set(Mode::Silent);
    assert_eq!(candidates.next().await.0, Happened::Cancelled("one"));
    assert_eq!(candidates.next().await.0, Happened::Started("two"));
}

#[tokio::test]
async fn a_leader_survives_that_its_lease_is_deleted() {
    let Some(world) = world("deleted").await else { return };
    let mut candidates = Candidates::new(&world);
    let (stop, _) = candidates.start("one", world.client.clone(), clock());
    assert_eq!(candidates.next().await.0, Happened::Started("one"));
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    leases.delete("work", &DeleteParams::default()).await.unwrap();
    soon(
        "the lease",
        kube::runtime::wait::await_condition(leases, "work", |lease: Option<&Lease>| lease.is_some()),
    )
    .await
    .unwrap();
    stop.cancel();
    assert_eq!(candidates.next().await.0, Happened::Cancelled("one"));
}

#[tokio::test]
async fn work_that_ignores_its_cancellation_is_dropped_before_another_leader_starts() {
    let Some(world) = world("ignores").await else { return };
    let mut candidates = Candidates::new(&world);
    let line = Line::new();
    let client = line.client(&world.client);
    let observability = Observability::default();
    let election =
        LeaderElection::new(client, &world.namespace, "work", "one", durations(), clock(), observability);
    let happened = candidates.happened.clone();
    candidates.tasks.spawn(async move {
        let work = |_| {
            let report = ReportDrop("one", happened.clone());
            async move {
                report.1.send((Happened::Started("one"), Instant::now())).unwrap();
                std::future::pending::<()>().await;
            }
        };
        election.run_as_leader(CancellationToken::new(), work).await;
    });
    assert_eq!(candidates.next().await.0, Happened::Started("one"));
    candidates.start("two", world.client.clone(), clock());
    line.set(Mode::Silent);
    assert_eq!(candidates.next().await.0, Happened::Dropped("one"));
    assert_eq!(candidates.next().await.0, Happened::Started("two"));
}
