//! The definitions of `deploy/crds` on a real API server: they are accepted, manifests in OpenShift's form apply, defaults are set,
//! and what the schemas forbid is refused.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::process::Stdio;
use std::sync::OnceLock;

use testkit::kube::TestCluster;

/// The shared cluster with the definitions applied; `None`, with a message, if this machine has no cluster.
fn cluster() -> Option<&'static TestCluster> {
    static APPLIED: OnceLock<()> = OnceLock::new();
    let Some(cluster) = testkit::kube::shared() else {
        testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
        return None;
    };
    APPLIED.get_or_init(|| {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
        kubectl(cluster, &["apply", "--server-side", "--force-conflicts", "-f", directory], "").unwrap();
        let established = ["wait", "--for=condition=Established", "--timeout=60s", "-f", directory];
        kubectl(cluster, &established, "").unwrap();
    });
    Some(cluster)
}

/// Runs kubectl; the output, or what it wrote to standard error.
fn kubectl(cluster: &TestCluster, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = cluster.kubectl();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// A namespace with kubectl in it.
struct Namespace {
    cluster: &'static TestCluster,
    name: String,
}

fn namespace() -> Option<Namespace> {
    let cluster = cluster()?;
    Some(Namespace { cluster, name: cluster.namespace("crds").unwrap() })
}

impl Namespace {
    fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        kubectl(self.cluster, &[&["-n", &self.name], arguments].concat(), input)
    }

    fn apply(&self, manifest: &str) -> Result<String, String> {
        self.kubectl(&["apply", "-f", "-"], manifest)
    }

    fn field(&self, object: &str, path: &str) -> String {
        self.kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")], "").unwrap()
    }

    fn set_status(&self, object: &str, status: &str) -> Result<String, String> {
        let patch = format!(r#"{{"status": {status}}}"#);
        self.kubectl(&["patch", object, "--subresource=status", "--type=merge", "-p", &patch], "")
    }
}

const MACHINE_NAME: &str = "machines.machine.openshift.io/example-worker-0";
const MACHINE: &str = r#"
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata:
  name: example-worker-0
  labels:
    machine.openshift.io/cluster-api-cluster: example
    machine.openshift.io/cluster-api-machine-role: worker
    machine.openshift.io/cluster-api-machine-type: worker
spec:
  lifecycleHooks:
    preDrain:
    - {name: example.com/MigrateStorage, owner: clusteroperator/storage}
  metadata:
    labels: {node-role.kubernetes.io/infra: ""}
  providerSpec:
    value:
      apiVersion: machine.openshift.io/v1beta1
      kind: AWSMachineProviderConfig
      ami: {id: ami-0123456789abcdef0}
      instanceType: m5.large
      blockDevices:
      - ebs: {volumeSize: 120, volumeType: gp3}
      placement: {availabilityZone: eu-west-1a, region: eu-west-1}
      userDataSecret: {name: worker-user-data}
  taints:
  - {key: dedicated, value: infra, effect: NoSchedule}
"#;

const MACHINE_SET_NAME: &str = "machinesets.machine.openshift.io/example-worker";
const MACHINE_SET: &str = r#"
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata:
  name: example-worker
  labels: {machine.openshift.io/cluster-api-cluster: example}
  annotations:
    machine.openshift.io/cluster-api-autoscaler-node-group-min-size: "1"
    machine.openshift.io/cluster-api-autoscaler-node-group-max-size: "9"
spec:
  selector:
    matchLabels:
      machine.openshift.io/cluster-api-cluster: example
      machine.openshift.io/cluster-api-machineset: example-worker
  template:
    metadata:
      labels:
        machine.openshift.io/cluster-api-cluster: example
        machine.openshift.io/cluster-api-machine-role: worker
        machine.openshift.io/cluster-api-machine-type: worker
        machine.openshift.io/cluster-api-machineset: example-worker
    spec:
      metadata: {}
      lifecycleHooks: {}
      providerSpec:
        value:
          apiVersion: machine.openshift.io/v1beta1
          kind: AzureMachineProviderSpec
          location: westeurope
          vmSize: Standard_D4s_v3
          credentialsSecret: {name: azure-cloud-credentials, namespace: openshift-machine-api}
          image: {offer: "", publisher: "", resourceID: /resourceGroups/rg/providers/i, sku: "", version: ""}
          osDisk: {diskSizeGB: 128, managedDisk: {storageAccountType: Premium_LRS}, osType: Linux}
          zone: "1"
"#;

const HEALTH_CHECK: &str = r#"
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata:
  name: workers
spec:
  selector:
    matchLabels: {machine.openshift.io/cluster-api-machine-role: worker}
  unhealthyConditions:
  - {type: Ready, status: "False", timeout: 300s}
  - {type: Ready, status: Unknown, timeout: 5m}
"#;

#[test]
fn a_machine_applies_and_keeps_its_provider_spec_and_status() {
    let Some(namespace) = namespace() else { return };
    namespace.apply(MACHINE).unwrap();
    let path = ".spec.providerSpec.value.blockDevices[0].ebs.volumeSize";
    assert_eq!(namespace.field(MACHINE_NAME, path), "120");
    assert_eq!(namespace.field(MACHINE_NAME, ".spec.authoritativeAPI"), "MachineAPI");
    let status = r#"{"phase": "Running", "nodeRef": {"kind": "Node", "name": "n0"},
        "providerStatus": {"vmState": {"a": 1}}, "addresses": [{"type": "InternalIP", "address": "10.0.0.4"}]}"#;
    namespace.set_status(MACHINE_NAME, status).unwrap();
    assert_eq!(namespace.field(MACHINE_NAME, ".status.providerStatus.vmState.a"), "1");
    let table = namespace.kubectl(&["get", "machines.machine.openshift.io", "-o", "wide"], "").unwrap();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let expect = ["NAME", "PHASE", "TYPE", "REGION", "ZONE", "AGE", "NODE", "PROVIDERID", "STATE"];
    assert_eq!(lines.next().unwrap(), expect);
    assert_eq!(lines.next().unwrap()[..2], ["example-worker-0", "Running"]);
}

#[test]
fn labels_of_the_instance_are_shown_in_columns() {
    let Some(namespace) = namespace() else { return };
    namespace.apply(MACHINE).unwrap();
    let labels = ["instance-type=m5.large", "region=eu-west-1", "zone=eu-west-1a"];
    let labels = labels.map(|label| format!("machine.openshift.io/{label}"));
    let mut arguments = vec!["label", MACHINE_NAME];
    arguments.extend(labels.iter().map(String::as_str));
    namespace.kubectl(&arguments, "").unwrap();
    let status = r#"{"phase": "Running"}"#;
    namespace.set_status(MACHINE_NAME, status).unwrap();
    let table = namespace.kubectl(&["get", "machines.machine.openshift.io", "--no-headers"], "").unwrap();
    let columns: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(columns[1..5], ["Running", "m5.large", "eu-west-1", "eu-west-1a"]);
}

#[test]
fn a_machine_set_has_its_defaults_and_scales() {
    let Some(namespace) = namespace() else { return };
    namespace.apply(MACHINE_SET).unwrap();
    assert_eq!(namespace.field(MACHINE_SET_NAME, ".spec.replicas"), "1");
    namespace.kubectl(&["scale", MACHINE_SET_NAME, "--replicas=7"], "").unwrap();
    assert_eq!(namespace.field(MACHINE_SET_NAME, ".spec.replicas"), "7");
    let status =
        r#"{"replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "labelSelector": "a=b,c in (d)"}"#;
    namespace.set_status(MACHINE_SET_NAME, status).unwrap();
    let machine_sets =
        format!("/apis/machine.openshift.io/v1beta1/namespaces/{}/machinesets", namespace.name);
    let path = format!("{machine_sets}/example-worker/scale");
    let scale = namespace.kubectl(&["get", "--raw", &path], "").unwrap();
    for expect in [r#""spec":{"replicas":7}"#, r#""replicas":3"#, r#""selector":"a=b,c in (d)""#] {
        assert!(scale.contains(expect), "{scale}");
    }
    let table = namespace.kubectl(&["get", MACHINE_SET_NAME], "").unwrap();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(lines.next().unwrap(), ["NAME", "DESIRED", "CURRENT", "READY", "AVAILABLE", "AGE"]);
    assert_eq!(lines.next().unwrap()[1..5], ["7", "3", "2", "1"]);
}

#[test]
fn a_machine_health_check_has_its_defaults_and_short_names() {
    let Some(namespace) = namespace() else { return };
    namespace.apply(HEALTH_CHECK).unwrap();
    for short in ["mhc/workers", "mhcs/workers"] {
        assert_eq!(namespace.field(short, ".spec.maxUnhealthy"), "100%");
        assert_eq!(namespace.field(short, ".spec.nodeStartupTimeout"), "10m");
    }
    let table = namespace.kubectl(&["get", "mhc"], "").unwrap();
    let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "MAXUNHEALTHY", "EXPECTEDMACHINES", "CURRENTHEALTHY"]);
}

#[test]
fn values_that_the_schemas_forbid_are_refused() {
    let Some(namespace) = namespace() else { return };
    let check = |manifest: String, expect: &str| {
        let refused = namespace.apply(&manifest).unwrap_err();
        assert!(refused.contains(expect), "{expect}: {refused}");
    };
    let hooks = |name: &str, owner: &str| {
        MACHINE.replace("example.com/MigrateStorage", name).replace("clusteroperator/storage", owner)
    };
    check(hooks("ab", "someone"), "spec.lifecycleHooks.preDrain[0].name");
    check(hooks("Bad/Name/Again", "someone"), "spec.lifecycleHooks.preDrain[0].name");
    check(hooks("Good", "me"), "spec.lifecycleHooks.preDrain[0].owner");
    let twice = "    preDrain:\n    - {name: example.com/MigrateStorage, owner: other}\n";
    check(MACHINE.replace("    preDrain:\n", twice), "Duplicate value");
    check(MACHINE.replace("spec:\n", "spec:\n  authoritativeAPI: Other\n"), "spec.authoritativeAPI");
    let set =
        |field: &str| MACHINE_SET.replace("spec:\n  selector", &format!("spec:\n  {field}\n  selector"));
    check(set("replicas: -1"), "spec.replicas");
    check(set("deletePolicy: Best"), "spec.deletePolicy");
    let health = |field: &str| HEALTH_CHECK.replace("spec:\n", &format!("spec:\n  {field}\n"));
    check(health("maxUnhealthy: 150%"), "spec.maxUnhealthy");
    check(health("maxUnhealthy: abc"), "spec.maxUnhealthy");
    check(health("maxUnhealthy: -1%"), "spec.maxUnhealthy");
    check(health("nodeStartupTimeout: soon"), "spec.nodeStartupTimeout");
    check(HEALTH_CHECK.replace("300s", "-300s"), "timeout");
    check(HEALTH_CHECK.replace("type: Ready", "type: \"\""), "type");
    let without = HEALTH_CHECK.split("  unhealthyConditions:").next().unwrap();
    check(format!("{without}  unhealthyConditions: []\n"), "spec.unhealthyConditions");
}

#[test]
fn values_that_upstream_accepts_are_accepted() {
    let Some(namespace) = namespace() else { return };
    let fields = [
        "maxUnhealthy: 3",
        "maxUnhealthy: \"3\"",
        "maxUnhealthy: 0%",
        "nodeStartupTimeout: \"0\"",
        "nodeStartupTimeout: 1h30m",
        "nodeStartupTimeout: 0s",
    ];
    for (number, field) in fields.iter().enumerate() {
        let manifest = HEALTH_CHECK
            .replace("spec:\n", &format!("spec:\n  {field}\n"))
            .replace("name: workers", &format!("name: workers-{number}"));
        namespace.apply(&manifest).unwrap();
    }
}

#[test]
fn authority_passes_through_migrating_and_is_not_removed() {
    let Some(namespace) = namespace() else { return };
    namespace.apply(MACHINE).unwrap();
    let accepted = |status| drop(namespace.set_status(MACHINE_NAME, status).unwrap());
    let refused = |status, expect: &str| {
        let error = namespace.set_status(MACHINE_NAME, status).unwrap_err();
        assert!(error.contains(expect), "{error}");
    };
    accepted(r#"{"authoritativeAPI": "MachineAPI", "synchronizedGeneration": 5}"#);
    refused(r#"{"authoritativeAPI": "ClusterAPI"}"#, "must pass through Migrating");
    refused(r#"{"authoritativeAPI": null}"#, "may not be removed");
    refused(r#"{"synchronizedGeneration": 4}"#, "must not decrease");
    accepted(r#"{"authoritativeAPI": "Migrating"}"#);
    accepted(
        r#"{"authoritativeAPI": "ClusterAPI", "synchronizedGeneration": 1, "synchronizedAPI": "MachineAPI"}"#,
    );
}

#[test]
fn the_status_changes_only_through_its_subresource() {
    let Some(namespace) = namespace() else { return };
    namespace.apply(&format!("{MACHINE}status: {{phase: Running}}\n")).unwrap();
    assert_eq!(namespace.field(MACHINE_NAME, ".status.phase"), "");
}
