//! The database goes away while clusters are visited.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use api::health::{HealthFacet, HealthStatus};
use store::{Keyring, Location, Options, Store};
use testkit::postgres::{self, PostgresOptions};
use testkit::prerequisites;
use tokio::task::block_in_place;

use super::{Monitor, config, eventually, import, simulated, status_is};
use crate::config::{Config, Timing};

/// When the collector of nodes succeeded last, on any cluster.
fn last_success(monitor: &Monitor) -> f64 {
    let lines = monitor.lines("collector_last_success_timestamp{collector=\"nodes\"}");
    lines.last().and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_blinds_nobody_and_the_newest_records_are_written_afterwards() {
    let Some(server) = postgres::private(PostgresOptions::default()) else {
        return prerequisites::skip(prerequisites::POSTGRESQL, "no server binaries were found");
    };
    let database = server.database().unwrap();
    let location: Location = database.url().parse().unwrap();
    let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
    let store = Store::open(options).await.unwrap();
    let (well, broken) = (simulated("well").await, simulated("broken").await);
    let good = import(&store, "well", &well.kubeconfig()).await;
    let bad = import(&store, "broken", &broken.kubeconfig()).await;
    // The lease outlasts the absence, as 60 s do outside of tests.
    let timing = Timing { lease: Duration::from_secs(60), ..config().timing };
    let monitor = Monitor::start_with(&store, Config { timing, ..config() });
    status_is(&store, good, HealthStatus::Healthy).await;
    status_is(&store, bad, HealthStatus::Healthy).await;

    block_in_place(|| server.kill().unwrap());
    let away = last_success(&monitor);
    broken.set_reachable(false);
    eventually("visits go on", async || (last_success(&monitor) >= away + 3.0).then_some(())).await;
    eventually("the other is seen to be unreachable", async || {
        let lines = monitor.lines("apiserver_reachability");
        (lines.len() == 2 && lines.iter().any(|it| !it.contains("\"ok\""))).then_some(())
    })
    .await;

    block_in_place(|| server.restart().unwrap());
    status_is(&store, bad, HealthStatus::Unreachable).await;
    let events = store.health_events(vec![good, bad], jiff::Timestamp::UNIX_EPOCH, 100).await.unwrap();
    let statuses = |cluster| {
        let of_cluster = events.iter().filter(|it| it.cluster == cluster);
        let mut statuses: Vec<&str> = of_cluster
            .filter(|it| it.facet == HealthFacet::Status.as_str())
            .map(|it| it.value.as_str())
            .collect();
        statuses.reverse();
        statuses
    };
    assert_eq!((statuses(good), statuses(bad)), (vec!["healthy"], vec!["healthy", "unreachable"]));
    monitor.stop().await;
}
