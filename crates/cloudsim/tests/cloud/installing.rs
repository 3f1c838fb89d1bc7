//! Installations from request to removal, and the clusters that come of them.

use api::install::{InstallError, InstallRequest, InstallStage, Installer as _};
use cloud::{Infrastructure as _, Machines as _, Properties, ResourceKind};
use cloudsim::{CloudFault, FaultRule};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::environment::{Environment, eventually};

pub(crate) async fn client(kubeconfig: &str) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

fn of(
    client: &kube::Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn config(client: &kube::Client, kind: &str) -> Api<DynamicObject> {
    of(client, "config.openshift.io", "v1", kind, None)
}

async fn value(api: &Api<DynamicObject>, name: &str) -> Value {
    serde_json::to_value(api.get(name).await.unwrap()).unwrap()
}

fn condition(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|it| it["type"] == kind).unwrap_or_default();
    found["status"].as_str().unwrap_or_default().to_owned()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    conditions.is_some_and(|it| it.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
}

pub(crate) async fn ready_nodes(client: &kube::Client, count: usize) {
    let nodes: Api<Node> = Api::all(client.clone());
    eventually("the nodes are ready", async || {
        let nodes = nodes.list(&ListParams::default()).await.ok()?;
        (nodes.iter().filter(|it| is_ready(it)).count() == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_order_becomes_a_cluster_that_looks_like_openshift() {
    let environment = Environment::new().await;
    let request = environment.prepared("one").await;
    let installer = environment.cloud.installer();
    assert!(matches!(installer.credentials(request.cluster).await, Err(InstallError::NotFound { .. })));
    let done = environment.installed(&request).await;
    assert_eq!((done.stage, done.percent, &done.failure), (InstallStage::Complete, 100, &None));
    assert_eq!(installer.install(&request).await.unwrap(), done, "the same order changes nothing");
    let mut other = request.clone();
    other.version = "4.18.1".to_owned();
    assert!(matches!(installer.install(&other).await, Err(InstallError::Conflict { .. })));

    // The machines in the cloud, behind the load balancer.
    let held = environment.cloud.azure().list(&request.group).await.unwrap();
    let named = |kind: ResourceKind| -> Vec<String> {
        held.iter().filter(|it| it.properties.kind() == kind).map(|it| it.id.name().to_owned()).collect()
    };
    let (machines, disks) = (named(ResourceKind::Machine), named(ResourceKind::Disk));
    assert_eq!((machines.len(), disks.len()), (7, 7));
    assert!(machines.contains(&"one-x7k2p-bootstrap".to_owned()), "{machines:?}");
    assert!(disks.contains(&"one-x7k2p-bootstrap_OSDisk".to_owned()), "{disks:?}");
    match environment.get(&request.load_balancer).await.unwrap().properties {
        Properties::LoadBalancer { backends, .. } => {
            assert_eq!(backends.len(), 4, "{backends:?}");
        }
        other => panic!("{other:?}"),
    }

    let credentials = installer.credentials(request.cluster).await.unwrap();
    assert_eq!(credentials.kubeadmin_password.expose().len(), 23);
    // The customer's credentials are not ours.
    let (ours, theirs) = (credentials.kubeconfig.expose(), credentials.customer_kubeconfig.expose());
    assert!(ours.contains("user: admin\n") && theirs.contains("user: customer-admin\n"), "{theirs}");
    let client = client(credentials.customer_kubeconfig.expose()).await;
    ready_nodes(&client, 6).await;
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let name = node.metadata.name.unwrap();
        let id = node.spec.unwrap().provider_id.unwrap();
        assert!(machines.contains(&name), "{name}");
        assert_eq!(
            id,
            format!("azure://{}/providers/Microsoft.Compute/virtualMachines/{name}", request.group)
        );
    }

    let version = value(&config(&client, "ClusterVersion"), "version").await;
    assert_eq!(version["status"]["desired"]["version"], "4.17.3");
    assert_eq!(version["status"]["history"][0]["state"], "Completed");
    assert_eq!(
        (condition(&version, "Available"), condition(&version, "Progressing")),
        ("True".into(), "False".into())
    );
    let operators = config(&client, "ClusterOperator").list(&ListParams::default()).await.unwrap();
    assert!(operators.items.len() >= 25);
    for operator in operators {
        let operator = serde_json::to_value(operator).unwrap();
        assert_eq!(condition(&operator, "Available"), "True", "{operator}");
        assert_eq!(condition(&operator, "Progressing"), "False");
    }
    let infrastructure = value(&config(&client, "Infrastructure"), "cluster").await;
    assert_eq!(infrastructure["status"]["infrastructureName"], "one-x7k2p");
    for (kind, name) in
        [("APIServer", "cluster"), ("DNS", "cluster"), ("Console", "cluster"), ("Ingress", "cluster")]
    {
        value(&config(&client, kind), name).await;
    }
    for kind in ["Console", "KubeAPIServer", "Etcd"] {
        value(&of(&client, "operator.openshift.io", "v1", kind, None), "cluster").await;
    }
    let machines = of(&client, "machine.openshift.io", "v1beta1", "Machine", Some("openshift-machine-api"));
    let machines = machines.list(&ListParams::default()).await.unwrap();
    assert_eq!(machines.items.len(), 6);
    assert!(machines.items.iter().all(|it| it.data["status"]["phase"] == "Running"));
    let sets = of(&client, "machine.openshift.io", "v1beta1", "MachineSet", Some("openshift-machine-api"));
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 3);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert!(namespaces.list(&ListParams::default()).await.unwrap().items.len() > 30);
    let secrets: Api<Secret> = Api::namespaced(client, "kube-system");
    let kubeadmin = secrets.get("kubeadmin").await.unwrap().data.unwrap();
    assert_eq!(kubeadmin["kubeadmin"].0, credentials.kubeadmin_password.expose().as_bytes());

    installer.remove(request.cluster).await.unwrap();
    assert_eq!(installer.installation(request.cluster).await.unwrap(), None);
    installer.remove(request.cluster).await.unwrap();
    environment.cloud.azure().delete(&request.group).await.unwrap();
    assert_eq!(environment.get(&request.group).await, None);
}

#[tokio::test]
async fn an_installed_cluster_rolls_out_what_is_changed() {
    let environment = Environment::new().await;
    let request = environment.prepared("one").await;
    environment.installed(&request).await;
    let credentials = environment.cloud.installer().credentials(request.cluster).await.unwrap();
    let client = client(credentials.kubeconfig.expose()).await;
    let operators = config(&client, "ClusterOperator");
    let rolled_out = async |name: &str, wanted: &str| {
        eventually("it is rolled out and settled", async || {
            let operator = value(&operators, name).await;
            let version =
                operator["metadata"]["annotations"]["sim.shipshape.dev/rolled-out"].as_str()?.to_owned();
            (version.starts_with(wanted) && condition(&operator, "Progressing") == "False").then_some(version)
        })
        .await
    };
    let secret = |name: &str, value: &str| -> Secret {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "type": "Opaque",
            "stringData": { "tls.crt": value, "tls.key": value }
        }))
        .unwrap()
    };
    let in_config: Api<Secret> = Api::namespaced(client.clone(), "openshift-config");
    in_config.create(&PostParams::default(), &secret("one-apiserver", "a")).await.unwrap();
    let patch = json!({ "spec": { "servingCerts": { "namedCertificates": [
        { "names": ["api.one.example.test"], "servingCertificate": { "name": "one-apiserver" } }
    ] } } });
    let by_us = PatchParams::default();
    config(&client, "APIServer").patch("cluster", &by_us, &Patch::Merge(&patch)).await.unwrap();
    let first = rolled_out("kube-apiserver", "one-apiserver@").await;
    // The same name with other content is another certificate.
    let changed = json!({ "stringData": { "tls.crt": "b" } });
    in_config.patch("one-apiserver", &by_us, &Patch::Merge(&changed)).await.unwrap();
    eventually("the change is rolled out", async || {
        (rolled_out("kube-apiserver", "one-apiserver@").await != first).then_some(())
    })
    .await;

    let in_ingress: Api<Secret> = Api::namespaced(client.clone(), "openshift-ingress");
    in_ingress.create(&PostParams::default(), &secret("one-ingress", "a")).await.unwrap();
    let controllers =
        of(&client, "operator.openshift.io", "v1", "IngressController", Some("openshift-ingress-operator"));
    let patch = json!({ "spec": { "defaultCertificate": { "name": "one-ingress" } } });
    controllers.patch("default", &by_us, &Patch::Merge(&patch)).await.unwrap();
    rolled_out("ingress", "one-ingress@").await;

    let versions = config(&client, "ClusterVersion");
    let patch = json!({ "spec": { "desiredUpdate": { "version": "4.18.1" } } });
    versions.patch("version", &by_us, &Patch::Merge(&patch)).await.unwrap();
    eventually("the cluster is updated", async || {
        let version = value(&versions, "version").await;
        let newest = &version["status"]["history"][0];
        (newest["version"] == "4.18.1" && newest["state"] == "Completed").then_some(())
    })
    .await;
    let operator = value(&operators, "dns").await;
    assert_eq!(operator["status"]["versions"][0]["version"], "4.18.1");
}

#[tokio::test]
async fn nodes_follow_their_machines() {
    let environment = Environment::new().await;
    let request = environment.prepared("one").await;
    environment.installed(&request).await;
    let credentials = environment.cloud.installer().credentials(request.cluster).await.unwrap();
    let client = client(credentials.kubeconfig.expose()).await;
    ready_nodes(&client, 6).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let machine = |name: &str| request.group.sibling("Microsoft.Compute", "virtualMachines", name);
    let set_running = async |name: &str, wanted: bool| {
        let mut properties = environment.get(&machine(name)).await.unwrap().properties;
        if let Properties::Machine { running, .. } = &mut properties {
            *running = wanted;
        }
        let mut put = crate::environment::request(machine(name), properties);
        put.tags = environment.get(&machine(name)).await.unwrap().tags;
        environment.cloud.azure().put(put).await.unwrap();
    };
    let master = "one-x7k2p-master-1";
    set_running(master, false).await;
    eventually("its node is not ready", async || {
        (!is_ready(&nodes.get(master).await.unwrap())).then_some(())
    })
    .await;
    set_running(master, true).await;
    ready_nodes(&client, 6).await;
    environment.cloud.azure().delete(&machine(master)).await.unwrap();
    eventually("its node is gone", async || nodes.get_opt(master).await.unwrap().is_none().then_some(()))
        .await;
    let machines = of(&client, "machine.openshift.io", "v1beta1", "Machine", Some("openshift-machine-api"));
    eventually("its Machine says so", async || {
        (value(&machines, master).await["status"]["phase"] == "Failed").then_some(())
    })
    .await;
}

#[tokio::test]
async fn nobody_answers_while_no_machine_of_the_control_plane_runs() {
    let environment = Environment::new().await;
    let request = environment.prepared("one").await;
    environment.installed(&request).await;
    let credentials = environment.cloud.installer().credentials(request.cluster).await.unwrap();
    let client = client(credentials.kubeconfig.expose()).await;
    ready_nodes(&client, 6).await;
    let nodes: Api<Node> = Api::all(client);
    let set_running = async |numbers: &[u32], wanted: bool| {
        for number in numbers {
            let name = format!("one-x7k2p-master-{number}");
            let id = request.group.sibling("Microsoft.Compute", "virtualMachines", &name);
            match wanted {
                true => environment.cloud.azure().start_machine(&id).await.unwrap(),
                false => environment.cloud.azure().stop_machine(&id).await.unwrap(),
            }
        }
    };
    let answers = async || nodes.list(&Default::default()).await.is_ok();
    set_running(&[0, 1], false).await;
    eventually("two nodes are not ready", async || {
        let found = nodes.list(&Default::default()).await.unwrap();
        (found.iter().filter(|it| !is_ready(it)).count() == 2).then_some(())
    })
    .await;
    set_running(&[2], false).await;
    eventually("nobody answers", async || (!answers().await).then_some(())).await;
    let machines = environment.cloud.azure().machines(&request.group).await.unwrap();
    let stopped = machines.iter().filter(|it| !it.running).count();
    assert_eq!((machines.len(), stopped), (7, 3), "{machines:?}");
    set_running(&[1], true).await;
    eventually("somebody answers again", async || answers().await.then_some(())).await;
}

#[tokio::test]
async fn an_installation_may_fail_at_any_stage_and_be_removed() {
    let environment = Environment::new().await;
    for (number, stage) in [
        InstallStage::Accepted,
        InstallStage::Bootstrap,
        InstallStage::ControlPlane,
        InstallStage::ApiServer,
        InstallStage::Workers,
        InstallStage::Operators,
        InstallStage::Complete,
    ]
    .into_iter()
    .enumerate()
    {
        let mut request = environment.prepared(&format!("c{number}")).await;
        let rule =
            FaultRule::new(CloudFault::InstallFails { stage }).about(&format!("{} ", request.name)).times(1);
        environment.faults.inject(rule).unwrap();
        let ended = environment.installed(&request).await;
        let fault = ended.failure.expect("it failed");
        assert!(!fault.code.is_empty() && ended.percent < 100, "{stage:?}: {fault:?}");
        let expected = if stage == InstallStage::Complete { InstallStage::Operators } else { stage };
        assert_eq!(ended.stage, expected);
        let has_keys = environment.cloud.installer().credentials(request.cluster).await.is_ok();
        assert_eq!(has_keys, stage > InstallStage::ApiServer, "{stage:?}");
        environment.cloud.installer().remove(request.cluster).await.unwrap();
        environment.cloud.azure().delete(&request.group).await.unwrap();
        assert_eq!(environment.cloud.azure().list(&request.group).await.unwrap(), []);
        // The same cluster can be ordered anew once it is gone.
        if stage == InstallStage::Workers {
            request = crate::installing::again(&environment, request).await;
            assert_eq!(environment.installed(&request).await.stage, InstallStage::Complete);
        }
    }
}

/// The same order without its mishap, once the first is forgotten.
async fn again(environment: &Environment, request: InstallRequest) -> InstallRequest {
    let anew = environment.prepared(&request.name).await;
    assert_eq!(anew.group, request.group);
    eventually("it is forgotten", async || match environment.cloud.installer().install(&request).await {
        Ok(_) => Some(()),
        Err(InstallError::Conflict { .. }) => None,
        Err(other) => panic!("{other:?}"),
    })
    .await;
    request
}

#[tokio::test]
async fn what_the_cloud_refuses_fails_the_installation() {
    let environment = Environment::new().await;
    let request = environment.prepared("one").await;
    environment
        .faults
        .inject(FaultRule::new(CloudFault::Quota { quota: "cores".to_owned() }).about("master-2").times(1))
        .unwrap();
    let ended = environment.installed(&request).await;
    assert_eq!(
        (ended.stage, ended.failure.unwrap().code.as_str()),
        (InstallStage::ControlPlane, "OperationNotAllowed")
    );
    let request = environment.prepared("two").await;
    let (code, message) = ("ZonalAllocationFailed".to_owned(), "full".to_owned());
    environment
        .faults
        .inject(
            FaultRule::new(CloudFault::ProvisioningFails { code, message })
                .about("two-x7k2p-bootstrap")
                .times(2),
        )
        .unwrap();
    assert_eq!(environment.installed(&request).await.failure.unwrap().code, "ZonalAllocationFailed");

    let mut request = environment.prepared("three").await;
    environment.cloud.azure().delete(&request.load_balancer).await.unwrap();
    assert!(
        environment
            .cloud
            .installer()
            .install(&request)
            .await
            .is_err_and(|it| matches!(it, InstallError::NotFound { .. }))
    );
    request.infra_id = "Three".to_owned();
    assert!(matches!(
        environment.cloud.installer().install(&request).await,
        Err(InstallError::Rejected { .. })
    ));
}
