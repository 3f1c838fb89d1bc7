use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::process::{Child, example_path, output};
use crate::{parts, wait_until};

const SOON: Duration = Duration::from_secs(120);

/// A cluster of the test's own, or `None` after saying that the test is skipped.
fn cluster(options: Options) -> Option<OwnCluster> {
    let cluster = own(options);
    if cluster.is_none() {
        parts::skip(parts::KUBERNETES, MISSING);
    }
    cluster
}

/// What kubectl prints, trimmed; its message when it fails.
fn kubectl(cluster: &Cluster, arguments: &str) -> Result<String, String> {
    let mut command = cluster.kubectl();
    command.args(arguments.split_whitespace());
    let output = output(command, "", SOON).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn tests_share_a_ready_cluster_and_each_has_a_namespace_of_its_own() {
    let Some(cluster) = shared() else { return parts::skip(parts::KUBERNETES, MISSING) };
    assert!(cluster.is_ready());
    assert!(std::ptr::eq(cluster, shared().unwrap()));
    let (one, two) = (cluster.namespace("one").unwrap(), cluster.namespace("two").unwrap());
    kubectl(cluster, &format!("create configmap mine -n {one} --from-literal=a=b")).unwrap();
    assert_eq!(
        kubectl(cluster, &format!("get configmap mine -n {one} -o jsonpath={{.data.a}}")).unwrap(),
        "b"
    );
    assert!(kubectl(cluster, &format!("get configmap mine -n {two}")).unwrap_err().contains("NotFound"));
    // A pod is refused without the service account, which the namespace was waited for.
    let pod = kubectl(cluster, &format!("run a-pod -n {one} --image=none --restart=Never")).unwrap();
    assert_eq!(pod, "pod/a-pod created");
    let version = kubectl(cluster, "version").unwrap();
    assert!(version.contains("Server Version: v1."), "{version}");
    assert!(cluster.kubeconfig().contains("client-key-data: "), "everything is inline");
    assert!(cluster.url().starts_with("https://127.0.0.1:"));
}

#[test]
fn the_shared_cluster_has_controllers_that_act() {
    let Some(cluster) = shared() else { return parts::skip(parts::KUBERNETES, MISSING) };
    if !cluster.has_controllers() {
        return parts::skip(parts::KUBERNETES_CONTROLLERS, "only the API server was found");
    }
    let namespace = cluster.namespace("controllers").unwrap();
    kubectl(cluster, &format!("create deployment web -n {namespace} --image=none --replicas=2")).unwrap();
    let pods = || kubectl(cluster, &format!("get pods -n {namespace} -l app=web -o name")).unwrap();
    wait_until("the Deployment has its pods", SOON, || (pods().lines().count() == 2).then_some(())).unwrap();
    kubectl(cluster, &format!("delete deployment web -n {namespace}")).unwrap();
    wait_until("they are collected with it", SOON, || pods().is_empty().then_some(())).unwrap();
    let token = kubectl(cluster, &format!("create token default -n {namespace}")).unwrap();
    assert_eq!(token.split('.').count(), 3, "a JSON web token");
}

#[test]
fn own_clusters_hold_data_of_their_own() {
    let Some(one) = cluster(Options::default()) else { return };
    let Some(two) = cluster(Options::default()) else { return };
    kubectl(&one, "create configmap mine").unwrap();
    assert!(kubectl(&two, "get configmap mine").unwrap_err().contains("NotFound"));
    assert_ne!(one.url(), two.url());
    assert_ne!(one.ca_pem(), two.ca_pem());
    // Without controllers the service account is still there: the namespace brings it.
    let namespace = two.namespace("pods").unwrap();
    kubectl(&two, &format!("run a-pod -n {namespace} --image=none --restart=Never")).unwrap();
    let directory = one.directory().to_owned();
    drop(one);
    assert!(!directory.exists());
    assert!(two.is_ready());
}

#[test]
fn a_killed_api_server_comes_back_with_its_data_at_the_same_address() {
    let Some(cluster) = cluster(Options::default()) else { return };
    let (url, first) = (cluster.url().to_owned(), cluster.pid().unwrap());
    kubectl(&cluster, "create configmap mine --from-literal=a=b").unwrap();

    cluster.kill().unwrap();
    assert_eq!(cluster.pid(), None);
    assert!(!cluster.is_ready());
    assert!(cluster.kill().is_err(), "it is not running");

    cluster.start_again().unwrap();
    assert_ne!(cluster.pid().unwrap(), first);
    assert!(cluster.start_again().is_err(), "it runs already");
    assert_eq!(cluster.url(), url);
    assert_eq!(kubectl(&cluster, "get configmap mine -o jsonpath={.data.a}").unwrap(), "b");
}

#[test]
fn a_paused_api_server_says_nothing_until_it_is_resumed() {
    let Some(cluster) = cluster(Options::default()) else { return };
    cluster.pause().unwrap();
    let begin = Instant::now();
    let error = kubectl(&cluster, "get --raw /readyz --request-timeout=1s").unwrap_err();
    assert!(begin.elapsed() >= Duration::from_secs(1), "{error}");
    cluster.resume().unwrap();
    wait_until("it is ready again", SOON, || cluster.is_ready().then_some(())).unwrap();

    // One that is paused ends with its cluster all the same.
    cluster.pause().unwrap();
    let process = PathBuf::from(format!("/proc/{}", cluster.pid().unwrap()));
    drop(cluster);
    assert!(!process.exists());
}

#[test]
fn a_flag_that_the_api_server_refuses_is_told_with_its_log() {
    let Some(binaries) = Binaries::find().unwrap() else {
        return parts::skip(parts::KUBERNETES, MISSING);
    };
    let options = Options::default().api_server_flag("--no-such-flag");
    let error = OwnCluster::start(&binaries, &options).unwrap_err().to_string();
    assert!(error.contains("no-such-flag"), "{error}");
}

/// The promise of the whole crate, kept for etcd, the shared cluster and one of a test's own.
#[test]
fn no_cluster_outlives_a_test_process_that_was_killed() {
    if !is_installed().unwrap() {
        return parts::skip(parts::KUBERNETES, MISSING);
    }
    let mut command = Command::new(example_path("hold-clusters").unwrap());
    // Its clusters are its own, not those of this test run, which live on.
    command.env_remove("SHIPSHAPE_TEST_RUN");
    let mut child = Child::start(command).unwrap();
    let mut directories = Vec::new();
    loop {
        let line = child.line(SOON).unwrap();
        match line.split_once(' ') {
            Some(("directory", directory)) => directories.push(PathBuf::from(directory)),
            _ => break,
        }
    }
    assert_eq!(directories.len(), 2, "the shared place and the own cluster");
    let working = || {
        let cwd = |entry: std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).ok();
        let inside = |cwd: &PathBuf| directories.contains(cwd);
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(cwd).filter(inside).count()
    };
    // An etcd and two API servers, and the controllers of the shared one where they are installed.
    assert!(working() >= 3, "{} work in {directories:?}", working());

    child.kill9().unwrap();
    wait_until("the clusters and their directories are gone", SOON, || {
        (working() == 0 && !directories.iter().any(|directory| directory.exists())).then_some(())
    })
    .unwrap();
}
