//! The machines of a cluster as their owner meets them: the walk-through, in a cluster of `up` and on a real API server.

use std::path::PathBuf;

use api::crd::machine::Machine;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config, ResourceExt as _};
use kubesim::kubelet::{KubeletOptions, Kubelets, annotations};
use serde_json::json;
use testkit::kube::TestClusterOptions;
use testkit::{kube as test_kube, prerequisites};

use super::executable::{CommandOutput, Home};
use super::maintenance::{done, repository};
use super::pages::{commands, type_into_shell};

const NAMESPACE: &str = "openshift-machine-api";

/// Operations of the simulated cloud take no time here, and clients may poll at once.
const AT_ONCE: [&str; 4] = ["--set", "cloud.pace=0", "--set", "frontend.retry_after_seconds=1"];

fn script() -> String {
    commands("machines.md", "walk-through")
}

/// Types the walk-through into a shell, and looks whether it showed what it is to show.
fn walk(home: &Home, script: &str, kubectl: PathBuf) -> CommandOutput {
    let directory = home.directory.path().join("walk");
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::symlink(repository().join("docs"), directory.join("docs")).unwrap();
    let answer = type_into_shell(home, script, &directory, &[kubectl]);
    answer.shows(&[
        "machineset.machine.openshift.io/spare created",
        "machineset.machine.openshift.io/spare scaled",
        "Provisioning",
        "Running",
        "machineset.machine.openshift.io/spare condition met",
        "PodDisruptionBudget default/web blocks default/web-",
        "machinehealthcheck.machine.openshift.io/spare created",
        "MachineDeleted",
        "Completed",
        "1 machine of MachineSet spare is ready",
    ]);
    answer
}

#[test]
fn the_walk_through_of_machines_works_as_printed() {
    let Some(kubectl) = test_kube::kubectl().unwrap() else {
        return prerequisites::skip(prerequisites::KUBERNETES, test_kube::MISSING);
    };
    let home = Home::new();
    let up = home.up(&AT_ONCE);
    // The same shell, which has the kubeconfig and the manifest.
    let answer = walk(&home, &(script() + &commands("machines.md", "spot")), kubectl);
    answer.shows(&["is evicted in 120 s", "machineset.machine.openshift.io/spot condition met"]);
    let machines = done(&home, &["cloud", "machine", "list"]);
    assert!(
        !machines.contains("spare-") && !machines.contains("spot-"),
        "no virtual machine is left: {machines}"
    );
    up.signal("TERM");
    let ended = up.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn the_walk_through_of_machines_works_on_a_real_api_server() {
    let Some(cluster) = test_kube::private(TestClusterOptions::default().with_controllers()) else {
        return prerequisites::skip(prerequisites::KUBERNETES, test_kube::MISSING);
    };
    let kubectl = test_kube::kubectl().unwrap().unwrap();
    let home = Home::new();
    let _up = home.up(&AT_ONCE);
    // The virtual machines are in the simulated cloud, in the network of a cluster there.
    done(&home, &["cluster", "create", "quay", "--wait"]);
    let quay = home.directory.path().join("quay.kubeconfig");
    done(&home, &["cluster", "kubeconfig", "quay", "-o", quay.to_str().unwrap()]);
    let real = cluster.kubeconfig_path();
    let bring = format!(
        r#"export KUBECONFIG={real}
        kubectl apply --server-side -f deploy/crds
        kubectl wait --for=condition=Established --timeout=60s -f deploy/crds
        kubectl create namespace {NAMESPACE}
        set=$(kubectl --kubeconfig {quay} get machinesets -n {NAMESPACE} -o name | head -n 1)
        for object in secret/azure-cloud-credentials secret/worker-user-data "$set"; do
            kubectl --kubeconfig {quay} get "$object" -n {NAMESPACE} -o yaml |
                sed -e 's/^  replicas: .*/  replicas: 0/' -e '/^  resourceVersion:/d' -e '/^  uid:/d' | kubectl create -f -
        done"#,
        real = real.display(),
        quay = quay.display(),
    );
    type_into_shell(&home, &bring, &repository(), std::slice::from_ref(&kubectl));
    let endpoints = home.directory.path().join(".local/share/shipshape/cloud/endpoints.json");
    let controllers = home.machine_controllers(&real, &endpoints);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = runtime.block_on(Config::from_custom_kubeconfig(
        Kubeconfig::from_yaml(cluster.kubeconfig()).unwrap(),
        &KubeConfigOptions::default(),
    ));
    let _within = runtime.enter();
    let client = Client::try_from(config.unwrap()).unwrap();
    let _kubelets =
        Kubelets::start(client.clone(), KubeletOptions { delay_factor: 0.0, ..KubeletOptions::default() });
    runtime.spawn(join_nodes(client));

    // As printed, but for the origin of the cluster, and for its virtual machines, which are in the cloud without knowing it.
    let script = script()
        .replace(
            "shipshape cluster create harbour --wait",
            &format!("shipshape cluster import harbour --kubeconfig {}", real.display()),
        )
        .replace(
            "shipshape cluster kubeconfig harbour -o harbour.kubeconfig",
            &format!("cp {} harbour.kubeconfig", real.display()),
        )
        .replace(
            "shipshape cloud machine impair \"$broken\"",
            "kubectl annotate node \"$broken\" STATE=NotReady",
        )
        .replace("STATE=", &format!("{}=", annotations::STATE));
    assert!(script.contains("import harbour") && script.contains("annotate node"), "{script}");
    walk(&home, &script, kubectl);
    let machines = done(&home, &["cloud", "machine", "list"]);
    assert!(!machines.contains("spare-"), "no virtual machine is left: {machines}");
    controllers.signal("TERM");
    assert_eq!(controllers.end().code, Some(0));
}

/// Registers a node for every virtual machine of a Machine, as its kubelet does when it has booted.
async fn join_nodes(client: Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let machines: Api<Machine> = Api::namespaced(client, NAMESPACE);
    let mut changed = Box::pin(watcher(machines, watcher::Config::default()).applied_objects());
    while let Some(machine) = changed.next().await {
        let Ok(machine) = machine else { continue };
        let is_linked = machine.status.as_ref().is_some_and(|it| it.node_ref.is_some());
        let (Some(provider_id), false) = (&machine.spec.provider_id, is_linked) else { continue };
        let name = machine.name_any();
        let labels = json!({ annotations::SIMULATED_LABEL: "true", "kubernetes.io/hostname": name });
        let node =
            json!({ "metadata": { "name": name, "labels": labels }, "spec": { "providerID": provider_id } });
        let node: Node = serde_json::from_value(node).unwrap();
        match nodes.create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.unwrap()),
        }
    }
}
