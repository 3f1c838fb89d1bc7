//! What an OpenShift cluster holds besides what every Kubernetes cluster does, as far as anybody looks at it.

use api::install::InstallRequest;
use serde_json::{Value, json};

use super::machines::PlannedMachine;

/// A kind of OpenShift: group, version, kind, plural, whether it is in namespaces, columns for kubectl.
struct Custom(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    &'static [(&'static str, &'static str)],
);

const CONFIG: &str = "config.openshift.io";
const OPERATOR: &str = "operator.openshift.io";
const MACHINE: &str = "machine.openshift.io";

const CONDITION_COLUMNS: &[(&str, &str)] = &[
    ("Version", ".status.versions[?(@.name==\"operator\")].version"),
    ("Available", ".status.conditions[?(@.type==\"Available\")].status"),
    ("Progressing", ".status.conditions[?(@.type==\"Progressing\")].status"),
    ("Degraded", ".status.conditions[?(@.type==\"Degraded\")].status"),
];

const KINDS: [Custom; 30] = [
    Custom(
        CONFIG,
        "v1",
        "ClusterVersion",
        "clusterversions",
        false,
        &[
            ("Version", ".status.history[?(@.state==\"Completed\")].version"),
            ("Available", ".status.conditions[?(@.type==\"Available\")].status"),
            ("Progressing", ".status.conditions[?(@.type==\"Progressing\")].status"),
            ("Status", ".status.conditions[?(@.type==\"Progressing\")].message"),
        ],
    ),
    Custom(CONFIG, "v1", "ClusterOperator", "clusteroperators", false, CONDITION_COLUMNS),
    Custom(CONFIG, "v1", "Infrastructure", "infrastructures", false, &[]),
    Custom(CONFIG, "v1", "APIServer", "apiservers", false, &[]),
    Custom(CONFIG, "v1", "Authentication", "authentications", false, &[]),
    Custom(CONFIG, "v1", "OAuth", "oauths", false, &[]),
    Custom(CONFIG, "v1", "DNS", "dnses", false, &[]),
    Custom(CONFIG, "v1", "Console", "consoles", false, &[]),
    Custom(CONFIG, "v1", "Ingress", "ingresses", false, &[]),
    Custom(CONFIG, "v1", "Network", "networks", false, &[]),
    Custom(CONFIG, "v1", "Proxy", "proxies", false, &[]),
    Custom(CONFIG, "v1", "Image", "images", false, &[]),
    Custom(CONFIG, "v1", "Scheduler", "schedulers", false, &[]),
    Custom(CONFIG, "v1", "FeatureGate", "featuregates", false, &[]),
    Custom(CONFIG, "v1", "OperatorHub", "operatorhubs", false, &[]),
    Custom(OPERATOR, "v1", "IngressController", "ingresscontrollers", true, &[]),
    Custom(OPERATOR, "v1", "Console", "consoles", false, &[]),
    Custom(OPERATOR, "v1", "DNS", "dnses", false, &[]),
    Custom(OPERATOR, "v1", "Network", "networks", false, &[]),
    Custom(OPERATOR, "v1", "KubeAPIServer", "kubeapiservers", false, &[]),
    Custom(OPERATOR, "v1", "KubeControllerManager", "kubecontrollermanagers", false, &[]),
    Custom(OPERATOR, "v1", "KubeScheduler", "kubeschedulers", false, &[]),
    Custom(OPERATOR, "v1", "Etcd", "etcds", false, &[]),
    Custom(OPERATOR, "v1", "CloudCredential", "cloudcredentials", false, &[]),
    Custom("samples.operator.openshift.io", "v1", "Config", "configs", false, &[]),
    Custom("imageregistry.operator.openshift.io", "v1", "Config", "configs", false, &[]),
    Custom("cloudcredential.openshift.io", "v1", "CredentialsRequest", "credentialsrequests", true, &[]),
    Custom("machineconfiguration.openshift.io", "v1", "MachineConfigPool", "machineconfigpools", false, &[]),
    Custom(
        MACHINE,
        "v1beta1",
        "Machine",
        "machines",
        true,
        &[
            ("Phase", ".status.phase"),
            ("Type", ".metadata.labels.machine\\.openshift\\.io/instance-type"),
            ("Region", ".metadata.labels.machine\\.openshift\\.io/region"),
            ("Zone", ".metadata.labels.machine\\.openshift\\.io/zone"),
        ],
    ),
    Custom(
        MACHINE,
        "v1beta1",
        "MachineSet",
        "machinesets",
        true,
        &[
            ("Desired", ".spec.replicas"),
            ("Current", ".status.replicas"),
            ("Ready", ".status.readyReplicas"),
            ("Available", ".status.availableReplicas"),
        ],
    ),
];

/// The definitions of OpenShift's kinds. They take every field: the real ones are the real operators' affair.
pub(super) fn definitions() -> Vec<Value> {
    KINDS.iter().map(definition).collect()
}

fn definition(kind: &Custom) -> Value {
    let Custom(group, version, kind, plural, namespaced, columns) = *kind;
    let numbers = ["Desired", "Current", "Ready", "Available"];
    let column = |(name, path): &(&str, &str)| {
        let counts = path.ends_with("eplicas") && numbers.contains(name);
        json!({ "name": name, "type": if counts { "integer" } else { "string" }, "jsonPath": path })
    };
    let columns: Vec<Value> = columns.iter().map(column).collect();
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "names": {
                "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
                "shortNames": short_names(plural, group)
            },
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "additionalPrinterColumns": columns,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": free, "status": free },
                    "x-kubernetes-preserve-unknown-fields": true
                } }
            }]
        }
    })
}

fn short_names(plural: &str, group: &str) -> Vec<&'static str> {
    match (plural, group) {
        ("clusteroperators", _) => vec!["co"],
        ("machineconfigpools", _) => vec!["mcp"],
        _ => Vec::new(),
    }
}

/// Namespaces that every cluster has.
pub(super) const NAMESPACES: [&str; 32] = [
    "openshift",
    "openshift-apiserver",
    "openshift-apiserver-operator",
    "openshift-authentication",
    "openshift-authentication-operator",
    "openshift-azure-logging",
    "openshift-azure-operator",
    "openshift-cloud-controller-manager",
    "openshift-cloud-credential-operator",
    "openshift-cluster-version",
    "openshift-config",
    "openshift-config-managed",
    "openshift-config-operator",
    "openshift-console",
    "openshift-console-operator",
    "openshift-controller-manager",
    "openshift-dns",
    "openshift-dns-operator",
    "openshift-etcd",
    "openshift-image-registry",
    "openshift-ingress",
    "openshift-ingress-operator",
    "openshift-kube-apiserver",
    "openshift-kube-controller-manager",
    "openshift-kube-scheduler",
    "openshift-machine-api",
    "openshift-machine-config-operator",
    "openshift-marketplace",
    "openshift-monitoring",
    "openshift-network-operator",
    "openshift-operator-lifecycle-manager",
    "openshift-service-ca",
];

/// Deployments that make it look alive: namespace, name, replicas, whether it runs in the control plane.
const DEPLOYMENTS: [(&str, &str, u32, bool); 7] = [
    ("openshift-apiserver", "apiserver", 3, true),
    ("openshift-authentication", "oauth-openshift", 3, true),
    ("openshift-cluster-version", "cluster-version-operator", 1, true),
    ("openshift-console", "console", 2, true),
    ("openshift-ingress", "router-default", 2, false),
    ("openshift-machine-api", "machine-api-operator", 1, true),
    ("openshift-monitoring", "prometheus-operator", 1, true),
];

pub(super) fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": { "openshift.io/cluster-monitoring": "true" } }
    })
}

pub(super) fn deployments(request: &InstallRequest) -> Vec<Value> {
    DEPLOYMENTS
        .iter()
        .map(|&(namespace, name, replicas, on_masters)| {
            let role = if on_masters { "control-plane" } else { "worker" };
            let selector = json!({ format!("node-role.kubernetes.io/{role}"): "" });
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
                "spec": {
                    "replicas": replicas, "selector": { "matchLabels": { "app": name } },
                    "template": {
                        "metadata": { "labels": { "app": name } },
                        "spec": {
                            "nodeSelector": selector,
                            "tolerations": [{ "operator": "Exists" }],
                            "containers": [{
                                "name": name,
                                "image": format!("quay.io/openshift-release-dev/ocp-release:{}-x86_64", request.version)
                            }]
                        }
                    }
                }
            })
        })
        .collect()
}

/// What stands once the API server answers, in the request in which it is made.
pub(super) fn first(request: &InstallRequest, kubeadmin_password: &str, cluster_id: &str) -> Vec<Value> {
    let config = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": format!("{CONFIG}/v1"), "kind": kind, "metadata": { "name": name }, "spec": spec });
    let operator = |kind: &str, name: &str, spec: Value| json!({ "apiVersion": format!("{OPERATOR}/v1"), "kind": kind, "metadata": { "name": name }, "spec": spec });
    let managed = json!({ "managementState": "Managed", "logLevel": "Normal", "operatorLogLevel": "Normal" });
    let domain = &request.domain;
    let secret = |namespace: &str, name: &str, kind: &str, data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace },
            "type": kind, "stringData": data
        })
    };
    vec![
        config(
            "ClusterVersion",
            "version",
            json!({
                "clusterID": cluster_id, "channel": "",
            }),
        ),
        config(
            "Infrastructure",
            "cluster",
            json!({
                "cloudConfig": { "name": "cloud-provider-config" }, "platformSpec": { "type": "Azure" }
            }),
        ),
        config("APIServer", "cluster", json!({ "servingCerts": {} })),
        config("Authentication", "cluster", json!({ "type": "" })),
        config("OAuth", "cluster", json!({})),
        config("DNS", "cluster", json!({ "baseDomain": domain })),
        config("Console", "cluster", json!({})),
        config("Ingress", "cluster", json!({ "domain": format!("apps.{domain}") })),
        config("Network", "cluster", json!({ "networkType": "OVNKubernetes" })),
        config("Proxy", "cluster", json!({})),
        config("Image", "cluster", json!({})),
        config("Scheduler", "cluster", json!({ "mastersSchedulable": false })),
        config("FeatureGate", "cluster", json!({})),
        config("OperatorHub", "cluster", json!({})),
        json!({
            "apiVersion": format!("{OPERATOR}/v1"), "kind": "IngressController",
            "metadata": { "name": "default", "namespace": "openshift-ingress-operator" },
            "spec": { "domain": format!("apps.{domain}"), "replicas": 2 }
        }),
        operator("Console", "cluster", managed.clone()),
        operator("DNS", "default", managed.clone()),
        operator("Network", "cluster", managed.clone()),
        operator("KubeAPIServer", "cluster", managed.clone()),
        operator("KubeControllerManager", "cluster", managed.clone()),
        operator("KubeScheduler", "cluster", managed.clone()),
        operator("Etcd", "cluster", managed.clone()),
        operator(
            "CloudCredential",
            "cluster",
            json!({ "credentialsMode": "", "managementState": "Managed" }),
        ),
        json!({
            "apiVersion": "samples.operator.openshift.io/v1", "kind": "Config", "metadata": { "name": "cluster" },
            "spec": managed
        }),
        json!({
            "apiVersion": "imageregistry.operator.openshift.io/v1", "kind": "Config", "metadata": { "name": "cluster" },
            "spec": managed
        }),
        secret("kube-system", "kubeadmin", "Opaque", json!({ "kubeadmin": kubeadmin_password })),
        secret("kube-system", "azure-credentials", "Opaque", json!({ "azure_region": request.location })),
        secret(
            "openshift-config",
            "pull-secret",
            "kubernetes.io/dockerconfigjson",
            json!({ ".dockerconfigjson": "{\"auths\":{}}" }),
        ),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "openshift-install", "namespace": "openshift-config" },
            "data": { "invoker": "shipshape", "version": request.version }
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "console-public", "namespace": "openshift-config-managed" },
            "data": { "consoleURL": format!("https://console-openshift-console.apps.{domain}") }
        }),
    ]
}

/// What those that have a status say of themselves: group and version, kind, namespace, name, patch.
pub(super) fn statuses(
    request: &InstallRequest,
) -> Vec<(String, &'static str, Option<&'static str>, &'static str, Value)> {
    let domain = &request.domain;
    vec![
        (
            format!("{CONFIG}/v1"),
            "Infrastructure",
            None,
            "cluster",
            json!({ "status": {
            "infrastructureName": request.infra_id, "platform": "Azure", "apiServerURL": format!("https://api.{domain}:6443"),
            "apiServerInternalURI": format!("https://api-int.{domain}:6443"), "etcdDiscoveryDomain": "",
            "controlPlaneTopology": "HighlyAvailable", "infrastructureTopology": "HighlyAvailable",
            "platformStatus": { "type": "Azure", "azure": {
                "resourceGroupName": request.group.resource_group(), "networkResourceGroupName": request.masters.subnet.resource_group(),
                "cloudName": "AzurePublicCloud"
            } }
        } }),
        ),
        (
            format!("{CONFIG}/v1"),
            "Console",
            None,
            "cluster",
            json!({ "status": {
            "consoleURL": format!("https://console-openshift-console.apps.{domain}")
        } }),
        ),
        (
            format!("{CONFIG}/v1"),
            "Network",
            None,
            "cluster",
            json!({ "status": {
            "networkType": "OVNKubernetes", "clusterNetworkMTU": 1400
        } }),
        ),
        (
            format!("{OPERATOR}/v1"),
            "IngressController",
            Some("openshift-ingress-operator"),
            "default",
            json!({ "status": {
            "domain": format!("apps.{domain}"), "availableReplicas": 2, "observedGeneration": 1,
            "endpointPublishingStrategy": { "type": "LoadBalancerService", "loadBalancer": { "scope": "External" } },
            "conditions": [{ "type": "Available", "status": "True", "reason": "AsExpected", "message": "" }]
        } }),
        ),
    ]
}

/// A node, as a machine joins, with its Machine if no controller links them. The simulated kubelet takes it from there.
pub(super) fn node(request: &InstallRequest, machine: &PlannedMachine, linked: Option<&str>) -> Value {
    let role = if machine.set.is_none() { "control-plane" } else { "worker" };
    let zone = match &machine.zone {
        Some(zone) => format!("{}-{zone}", request.location),
        None => "0".to_owned(),
    };
    let mut labels = json!({
        kubesim::kubelet::annotations::SIMULATED_LABEL: "true",
        "kubernetes.io/hostname": machine.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.openshift.io/os_id": "rhcos", "node.kubernetes.io/instance-type": machine.size,
        "topology.kubernetes.io/region": request.location, "topology.kubernetes.io/zone": zone,
        format!("node-role.kubernetes.io/{role}"): "",
    });
    let mut spec = json!({ "providerID": machine.provider_id(request) });
    if role == "control-plane" {
        labels["node-role.kubernetes.io/master"] = json!("");
        spec["taints"] = json!([{ "key": "node-role.kubernetes.io/master", "effect": "NoSchedule" }]);
    }
    let annotations = linked.map(|it| json!({ "machine.openshift.io/machine": it }));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": machine.name, "labels": labels, "annotations": annotations },
        "spec": spec
    })
}

fn provider_spec(request: &InstallRequest, machine: &PlannedMachine) -> Value {
    json!({ "value": {
        "apiVersion": format!("{MACHINE}/v1beta1"), "kind": "AzureMachineProviderSpec",
        "location": request.location, "zone": machine.zone, "vmSize": machine.size,
        "osDisk": { "diskSizeGB": machine.disk_size_gb, "osType": "Linux" },
        "resourceGroup": request.group.resource_group(),
        "networkResourceGroup": machine.subnet.resource_group(),
        "vnet": machine.subnet.parent().map(|it| it.name().to_owned()), "subnet": machine.subnet.name()
    } })
}

fn machine_labels(request: &InstallRequest, machine: &PlannedMachine) -> Value {
    let mut labels = json!({
        "machine.openshift.io/cluster-api-cluster": request.infra_id,
        "machine.openshift.io/cluster-api-machine-role": machine.pool,
        "machine.openshift.io/cluster-api-machine-type": machine.pool,
        "machine.openshift.io/instance-type": machine.size,
        "machine.openshift.io/region": request.location,
        "machine.openshift.io/zone": machine.zone.as_deref().unwrap_or_default(),
    });
    if let Some(set) = &machine.set {
        labels["machine.openshift.io/cluster-api-machineset"] = json!(set);
    }
    labels
}

pub(super) fn machine(request: &InstallRequest, machine: &PlannedMachine) -> Value {
    json!({
        "apiVersion": format!("{MACHINE}/v1beta1"), "kind": "Machine",
        "metadata": {
            "name": machine.name, "namespace": "openshift-machine-api", "labels": machine_labels(request, machine)
        },
        "spec": {
            "providerID": machine.provider_id(request), "providerSpec": provider_spec(request, machine),
            "lifecycleHooks": {}, "metadata": {}
        }
    })
}

pub(super) fn machine_status(machine: &PlannedMachine) -> Value {
    json!({ "status": {
        "phase": "Running",
        "nodeRef": { "kind": "Node", "name": machine.name },
        "providerStatus": { "vmState": "Running", "vmId": machine.name }
    } })
}

/// The sets of these machines, by name, with how many each has.
pub(super) fn machine_sets(request: &InstallRequest, workers: &[PlannedMachine]) -> Vec<(Value, Value)> {
    let mut names: Vec<&str> = workers.iter().filter_map(|it| it.set.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter_map(|name| {
            let members: Vec<&PlannedMachine> = workers.iter().filter(|it| it.set.as_deref() == Some(name)).collect();
            let one = members.first()?;
            let count = members.len();
            let selector = json!({
                "machine.openshift.io/cluster-api-cluster": request.infra_id,
                "machine.openshift.io/cluster-api-machineset": name
            });
            let set = json!({
                "apiVersion": format!("{MACHINE}/v1beta1"), "kind": "MachineSet",
                "metadata": {
                    "name": name, "namespace": "openshift-machine-api",
                    "labels": { "machine.openshift.io/cluster-api-cluster": request.infra_id }
                },
                "spec": {
                    "replicas": count, "selector": { "matchLabels": selector },
                    "template": {
                        "metadata": { "labels": machine_labels(request, one) },
                        "spec": { "providerSpec": provider_spec(request, one), "lifecycleHooks": {}, "metadata": {} }
                    }
                }
            });
            let status = json!({ "status": {
                "replicas": count, "fullyLabeledReplicas": count, "readyReplicas": count, "availableReplicas": count,
                "observedGeneration": 1
            } });
            Some((set, status))
        })
        .collect()
}
