use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::process::{ChildProcess, example_path, output};
use crate::{prerequisites, wait_until};

const SOON: Duration = Duration::from_secs(120);

/// A private cluster, or `None` after a skip was recorded.
fn cluster(options: TestClusterOptions) -> Option<PrivateTestCluster> {
    let cluster = private(options);
    if cluster.is_none() {
        prerequisites::skip(prerequisites::KUBERNETES, MISSING);
    }
    cluster
}

/// The trimmed output of kubectl, or its error.
fn kubectl(cluster: &TestCluster, arguments: &str) -> Result<String, String> {
    let mut command = cluster.kubectl();
    command.args(arguments.split_whitespace());
    let output = output(command, "", SOON).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn tests_share_a_ready_cluster_with_separate_namespaces() {
    let Some(cluster) = shared() else { return prerequisites::skip(prerequisites::KUBERNETES, MISSING) };
    assert!(cluster.is_ready());
    assert!(std::ptr::eq(cluster, shared().unwrap()));
    let (one, two) = (cluster.namespace("one").unwrap(), cluster.namespace("two").unwrap());
    kubectl(cluster, &format!("create configmap mine -n {one} --from-literal=a=b")).unwrap();
    assert_eq!(
        kubectl(cluster, &format!("get configmap mine -n {one} -o jsonpath={{.data.a}}")).unwrap(),
        "b"
    );
    assert!(kubectl(cluster, &format!("get configmap mine -n {two}")).unwrap_err().contains("NotFound"));
    // A pod is rejected without the service account, for which `namespace` waited.
    let pod = kubectl(cluster, &format!("run a-pod -n {one} --image=none --restart=Never")).unwrap();
    assert_eq!(pod, "pod/a-pod created");
    let version = kubectl(cluster, "version").unwrap();
    assert!(version.contains("Server Version: v1."), "{version}");
    assert!(cluster.kubeconfig().contains("client-key-data: "), "everything is inline");
    assert!(cluster.url().starts_with("https://127.0.0.1:"));
}

#[test]
fn the_shared_cluster_has_controllers_that_act() {
    let Some(cluster) = shared() else { return prerequisites::skip(prerequisites::KUBERNETES, MISSING) };
    if !cluster.has_controllers() {
        return prerequisites::skip(prerequisites::KUBERNETES_CONTROLLERS, "only the API server was found");
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
fn private_clusters_have_separate_data() {
    let Some(one) = cluster(TestClusterOptions::default()) else { return };
    let Some(two) = cluster(TestClusterOptions::default()) else { return };
    kubectl(&one, "create configmap mine").unwrap();
    assert!(kubectl(&two, "get configmap mine").unwrap_err().contains("NotFound"));
    assert_ne!(one.url(), two.url());
    assert_ne!(one.ca_pem(), two.ca_pem());
    // Without controllers `namespace` creates the service account.
    let namespace = two.namespace("pods").unwrap();
    kubectl(&two, &format!("run a-pod -n {namespace} --image=none --restart=Never")).unwrap();
    let directory = one.directory().to_owned();
    drop(one);
    assert!(!directory.exists());
    assert!(two.is_ready());
}

#[test]
fn an_api_server_can_be_paused_killed_and_restarted_with_its_data_and_address() {
    let controllers = Binaries::find().unwrap().is_some_and(|found| found.has_controllers());
    let options = if controllers {
        TestClusterOptions::default().with_controllers()
    } else {
        TestClusterOptions::default()
    };
    let Some(cluster) = cluster(options) else { return };
    assert_eq!(cluster.has_controllers(), controllers);
    let (url, first) = (cluster.url().to_owned(), cluster.pid().unwrap());
    kubectl(&cluster, "create configmap mine --from-literal=a=b").unwrap();

    cluster.pause().unwrap();
    let begin = Instant::now();
    let error = kubectl(&cluster, "get --raw /readyz --request-timeout=1s").unwrap_err();
    assert!(begin.elapsed() >= Duration::from_secs(1), "a paused server refuses nothing: {error}");
    cluster.resume().unwrap();
    wait_until("it is ready again", SOON, || cluster.is_ready().then_some(())).unwrap();

    cluster.kill().unwrap();
    assert_eq!(cluster.pid(), None);
    assert!(!cluster.is_ready());
    assert!(cluster.kill().is_err(), "it is not running");
    assert!(cluster.pause().is_err(), "it is not running");

    cluster.restart().unwrap();
    assert_ne!(cluster.pid().unwrap(), first);
    assert!(cluster.restart().is_err(), "it runs already");
    assert_eq!(cluster.url(), url);
    assert_eq!(kubectl(&cluster, "get configmap mine -o jsonpath={.data.a}").unwrap(), "b");
    // The controllers are connected again: `namespace` waits for them.
    cluster.namespace("again").unwrap();

    // A paused server ends with its cluster too.
    cluster.pause().unwrap();
    let process = PathBuf::from(format!("/proc/{}", cluster.pid().unwrap()));
    drop(cluster);
    assert!(!process.exists());
}

#[test]
fn an_invalid_flag_of_the_api_server_is_reported_with_its_log() {
    let Some(binaries) = Binaries::find().unwrap() else {
        return prerequisites::skip(prerequisites::KUBERNETES, MISSING);
    };
    let options = TestClusterOptions::default().api_server_flag("--no-such-flag");
    let error = PrivateTestCluster::start(&binaries, &options).unwrap_err().to_string();
    assert!(error.contains("no-such-flag"), "{error}");
}

/// A process that holds the shared cluster of `run` and perhaps a private one, and the working directories of their
/// programs.
fn holder(run: Option<&Path>, own: &str) -> (ChildProcess, Vec<PathBuf>) {
    let mut command = Command::new(example_path("hold-clusters").unwrap());
    // Its clusters are not those of this test run.
    command.arg(own).env_remove("SHIPSHAPE_TEST_RUN").envs(run.map(|run| ("SHIPSHAPE_TEST_RUN", run)));
    let mut child = ChildProcess::start(command).unwrap();
    let mut directories = Vec::new();
    while let Some(("directory", directory)) = child.line(SOON).unwrap().split_once(' ') {
        directories.push(PathBuf::from(directory));
    }
    (child, directories)
}

/// The process ids of the programs whose working directory is `directory`.
fn programs_in(directory: &Path) -> BTreeSet<OsString> {
    let works_there = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == directory)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter(works_there).map(|entry| entry.file_name()).collect()
}

/// The guarantee of this crate, for etcd, the shared cluster and a private one.
#[test]
fn no_cluster_outlives_a_test_process_that_was_killed() {
    if !is_installed().unwrap() {
        return prerequisites::skip(prerequisites::KUBERNETES, MISSING);
    }
    let (mut child, directories) = holder(None, "own");
    assert_eq!(directories.len(), 2, "those of the shared and of the own cluster");
    assert!(programs_in(&directories[0]).len() >= 2, "etcd and the shared API server");
    assert_eq!(programs_in(&directories[1]).len(), 1, "the own API server");

    child.kill9().unwrap();
    wait_until("the clusters and their directories are gone", SOON, || {
        let gone = |directory: &PathBuf| programs_in(directory).is_empty() && !directory.exists();
        directories.iter().all(gone).then_some(())
    })
    .unwrap();
}

#[test]
fn processes_of_a_run_share_a_cluster_that_outlives_each_of_them() {
    if !is_installed().unwrap() {
        return prerequisites::skip(prerequisites::KUBERNETES, MISSING);
    }
    let run = run_directory::scratch().unwrap();
    let (mut first, directories) = holder(Some(run.path()), "none");
    assert_eq!(directories, [run.path()]);
    let started = programs_in(run.path());
    first.kill9().unwrap();

    let (_second, directories) = holder(Some(run.path()), "none");
    assert_eq!(directories, [run.path()]);
    assert_eq!(programs_in(run.path()), started, "nothing has ended, nothing was started again");
    let path = run.path().to_owned();
    drop(run);
    assert!(programs_in(&path).is_empty());
}
