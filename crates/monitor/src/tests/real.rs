//! The monitor on a real kube-apiserver: exact series of a cluster in which everything is wrong, and a server that is killed, started
//! again and paused.

use std::path::Path;

use api::doc::ReachabilityFailure;
use api::health::HealthStatus;
use testkit::kube::{self, PrivateTestCluster, TestClusterOptions};
use testkit::prerequisites;

use super::{Fixture, Monitor, eventually, failure, fixture, health, import, status_is};

fn kubectl(cluster: &PrivateTestCluster, arguments: &[&str]) {
    let output = cluster.kubectl().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests").join(name).display().to_string()
}

/// The series of the collectors whose objects the test has made.
const PREFIXES: [&str; 8] = [
    "cluster_versions{",
    "clusteroperator_",
    "clusterversion_",
    "machine_",
    "machineconfigpool_",
    "network_mtu",
    "node_",
    "pod_",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_real_cluster_has_exactly_the_series_of_what_is_wrong_and_its_server_may_fail_in_any_way() {
    let Some(cluster) = kube::private(TestClusterOptions::default()) else {
        return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
    };
    kubectl(&cluster, &["create", "-f", &file("kinds.yaml")]);
    kubectl(&cluster, &["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    eventually("the kinds are served", async || {
        let created = cluster.kubectl().args(["apply", "-f", &file("abnormal.yaml")]).output().unwrap();
        created.status.success().then_some(())
    })
    .await;
    let Fixture { store, _directory } = &fixture().await;
    let uuid = import(store, "real", cluster.kubeconfig()).await;
    let monitor = Monitor::start(store);
    let sample = status_is(store, uuid, HealthStatus::Degraded).await;
    let wanted = |line: &String| PREFIXES.iter().any(|prefix| line.starts_with(prefix));
    let found: Vec<String> = monitor.metrics.series.lines().into_iter().filter(wanted).collect();
    let version = format!("resourceProviderVersion=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        found,
        [
            format!("cluster_versions{{actualVersion=\"4.17.9\",desiredVersion=\"4.18.1\",actualMinorVersion=\"4.17\",provisionedByResourceProviderVersion=\"\",{version}}} 1").as_str(),
            "clusteroperator_conditions{name=\"dns\",status=\"False\",type=\"Available\",expected=\"false\"} 1",
            "clusteroperator_conditions{name=\"dns\",status=\"True\",type=\"Degraded\",expected=\"false\"} 1",
            "clusteroperator_count{} 2",
            "clusteroperator_versions{name=\"dns\",version=\"4.17.9\"} 1",
            "clusterversion_conditions{status=\"True\",type=\"Progressing\",expected=\"false\"} 1",
            "machine_count{} 1",
            "machine_phase{machineName=\"worker-0\",phase=\"Failed\",spotInstance=\"false\",role=\"unknown\",machineset=\"w\"} 1",
            "machineconfigpool_conditions{name=\"worker\",status=\"False\",type=\"Updated\",expected=\"false\"} 1",
            "machineconfigpool_conditions{name=\"worker\",status=\"True\",type=\"Degraded\",expected=\"false\"} 1",
            "machineconfigpool_conditions{name=\"worker\",status=\"True\",type=\"Updating\",expected=\"false\"} 1",
            "machineconfigpool_count{} 1",
            "machineconfigpool_unmanagednodescount{} 1",
            "network_mtu{mtu=\"1400\",network_type=\"OVNKubernetes\"} 1",
            "node_conditions{nodeName=\"worker-0\",status=\"False\",type=\"Ready\",spotInstance=\"false\",role=\"worker\",machineset=\"\",expected=\"false\"} 1",
            "node_conditions{nodeName=\"worker-0\",status=\"True\",type=\"DiskPressure\",spotInstance=\"false\",role=\"worker\",machineset=\"\",expected=\"false\"} 1",
            "node_count{role=\"infra\"} 0",
            "node_count{role=\"master\"} 0",
            "node_count{role=\"unknown\"} 0",
            "node_count{role=\"worker\"} 2",
            "node_kubelet_version{nodeName=\"worker-0\",role=\"worker\",kubeletVersion=\"v1.30.1\"} 1",
            "node_kubelet_version{nodeName=\"worker-1\",role=\"worker\",kubeletVersion=\"v1.37.0\"} 1",
            "node_version_skew{} 7",
        ]
    );
    let observed = sample.details.observed.unwrap();
    assert!(observed.collector_errors.is_empty(), "{:?}", observed.collector_errors);
    let kinds: Vec<&str> = observed.causes.iter().map(|it| it.kind.as_str()).collect();
    for kind in ["nodes", "operators", "pools", "machines", "version"] {
        assert!(kinds.contains(&kind), "{kind} is not among {:?}", observed.causes);
    }

    // Killed: the code is 0, and so is that of the ping, which always exist.
    cluster.kill().unwrap();
    let sample = status_is(store, uuid, HealthStatus::Unreachable).await;
    assert_eq!(failure(&sample), Some(ReachabilityFailure::Connect), "{sample:?}");
    assert_eq!(
        monitor.lines("apiserver_healthz_"),
        ["apiserver_healthz_code{code=\"0\"} 1", "apiserver_healthz_ping_code{code=\"0\"} 1"]
    );
    cluster.restart().unwrap();
    status_is(store, uuid, HealthStatus::Degraded).await;

    // Paused: connections open and nothing answers, as behind a tarpit; afterwards the visits go on.
    cluster.pause().unwrap();
    let sample = eventually("it times out", async || {
        health(store, uuid).await.filter(|it| failure(it) == Some(ReachabilityFailure::Timeout))
    })
    .await;
    assert!(!sample.reachable);
    cluster.resume().unwrap();
    status_is(store, uuid, HealthStatus::Degraded).await;
    monitor.stop().await;
}
