//! Everyday command lines.

use testkit::{kube, prerequisites};

use crate::compare;
use crate::servers::{Kubectl, Servers};

const MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {colour: red}\ndata:\n  x: \"1\"\n";

pub(crate) const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: 'example.test/web:1'}]
";

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.harbour.example.test}
spec:
  group: harbour.example.test
  scope: Namespaced
  names: {kind: Ship, plural: ships, singular: ship, shortNames: [sh]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Masts, type: integer, jsonPath: .spec.masts}]
    schema:
      openAPIV3Schema:
        type: object
        description: A ship of the harbour.
        properties:
          spec:
            type: object
            description: How it is built.
            properties:
              masts: {type: integer, description: How many masts it has.}
";

#[test]
fn objects_are_created_printed_changed_and_deleted() {
    compare(|k| {
        k.feed("create -f -", MAP);
        k.feed("create -f -", MAP);
        k.run("get configmap a");
        k.run("get configmap a -o wide --show-labels");
        k.run("get configmap a -o name");
        k.run("get configmap a -o jsonpath={.data}");
        k.run("get configmap a -o yaml");
        k.run("get configmap a -o json");
        k.run("label configmap a size=m");
        k.run("label configmap a size=l");
        k.run("label configmap a size=l --overwrite");
        k.run("label configmap a size-");
        k.run("annotate configmap a note=hello");
        k.run("get configmap -l colour=red --no-headers");
        k.run("get configmap --field-selector metadata.name=a");
        k.run("patch configmap a --type=merge -p {\"data\":{\"y\":\"2\"}}");
        k.run("patch configmap a --type=json -p [{\"op\":\"remove\",\"path\":\"/data/y\"}]");
        k.run("describe configmap a");
        k.run("delete configmap a");
        k.run("get configmap a");
        k.run("get nonsense");
    });
}

#[test]
fn objects_are_edited() {
    compare(|k| {
        k.feed("create -f -", MAP);
        // An editor that changes nothing and prints the file.
        k.edit("edit configmap a", "cat");
        k.edit("edit configmap a", "sed -i s/red/blue/");
        k.run("get configmap a -o jsonpath={.metadata.labels}");
        k.edit("edit configmap/a -o json", "sed -i s/blue/green/");
        k.run("get configmap a --show-labels");
        k.edit("edit configmap none", "cat");
        k.feed("apply -f -", WEB);
        k.edit("edit deployment web", "sed -i s/web:1/web:2/");
        k.run("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}");
        k.run("delete deployment web");
    });
}

#[test]
fn changes_are_watched() {
    let changes = |k: &mut Kubectl| {
        for line in [
            "label configmap a size=m",
            "patch configmap a --type=merge -p {\"data\":{\"y\":\"2\"}}",
            "label configmap a colour=blue --overwrite",
            "label configmap a colour=red --overwrite",
            "delete configmap a",
        ] {
            k.run(line);
        }
    };
    compare(move |k| {
        k.feed("create -f -", MAP);
        k.watch("get configmap -w -l colour=red", 2, 5, changes);
        k.feed("create -f -", MAP);
        k.watch("get configmap -w -l colour=red --output-watch-events", 2, 5, changes);
    });
}

#[test]
fn pods_are_watched_as_they_change() {
    compare(|k| {
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {schedulerName: nobody, containers: [{name: main, image: 'example.test/p:1'}]}\n";
        k.feed("create -f -", pod);
        k.watch("get pods -w", 2, 3, |k| {
            k.run("patch pod p --subresource=status --type=merge -p {\"status\":{\"phase\":\"Running\",\"containerStatuses\":[{\"name\":\"main\",\"ready\":true,\"restartCount\":1,\"image\":\"i\",\"imageID\":\"i\",\"state\":{\"running\":{}}}]}}");
            k.run("patch pod p --subresource=status --type=merge -p {\"status\":{\"phase\":\"Succeeded\"}}");
            k.run("delete pod p --grace-period=0 --force");
        });
    });
}

#[test]
fn long_lists_are_paged() {
    compare(|k| {
        for number in 1..=5 {
            let one = MAP.replace("name: a", &format!("name: m{number}")).replace("red", "paged");
            k.feed("create -f -", &one);
        }
        k.run("get configmaps -l colour=paged --chunk-size=2");
        k.run("get configmaps -l colour=paged --chunk-size=0 -o name");
        k.run("get configmaps -l colour=paged --chunk-size=1 --sort-by=.metadata.name");
        k.run("get --raw /api/v1/namespaces/{ns}/configmaps?limit=2&continue=nonsense");
        k.run("describe configmaps -l colour=paged --chunk-size=2");
    });
}

#[test]
fn pods_nodes_and_workloads_are_described() {
    compare(|k| {
        // No other pods are scheduled on it.
        let node = "apiVersion: v1\nkind: Node\nmetadata: {name: described, labels: {sim.shipshape.dev/simulated: 'true'}}\nspec: {taints: [{key: mine, effect: NoSchedule}]}\n";
        k.feed("create -f -", node);
        k.until(&["get", "node", "described"], " Ready ");
        k.until(&["get", "node", "described", "-o", "jsonpath={.spec.taints[*].key}"], "mine");
        k.until(&["get", "lease", "described", "-n", "kube-node-lease"], "described");
        let web = WEB.replace("replicas: 2", "replicas: 1").replace(
            "containers:",
            "nodeSelector: {sim.shipshape.dev/simulated: 'true'}\n      nodeName: described\n      containers:",
        );
        k.feed("apply -f -", &web);
        k.until(&["get", "deployment", "web"], "1/1");
        k.run("describe pods -l app=web --show-events=false");
        k.run("describe node described --show-events=false");
        k.run("describe deployment web --show-events=false");
        k.run("describe replicasets -l app=web --show-events=false");
        k.feed("apply -f -", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}\n");
        k.until(&["get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}"], "1");
        k.run("describe pdb web --show-events=false");
        k.run("describe serviceaccount default");
        k.run("delete deployment web --wait=true");
        k.until(&["get", "pods"], "No resources found");
        k.run("delete node described");
    });
}

#[test]
fn events_are_listed() {
    compare(|k| {
        k.run("get events");
        k.feed("create -f -", "apiVersion: v1\nkind: Event\nmetadata: {name: e}\ninvolvedObject: {kind: ConfigMap, name: a, namespace: '{ns}'}\nreason: Tested\nmessage: It was tested.\ntype: Normal\nsource: {component: test}\n");
        k.run("get events");
        k.run("get events --field-selector reason=Tested -o name");
        k.run("get events -o wide --field-selector involvedObject.kind=Pod");
    });
}

#[test]
fn manifests_are_applied_client_side() {
    compare(|k| {
        k.feed("apply -f -", MAP);
        k.feed("apply -f -", MAP);
        k.feed("apply -f -", &MAP.replace("\"1\"", "\"2\""));
        k.run("get configmap a -o jsonpath={.data.x}");
        k.feed("diff -f -", MAP);
        k.feed("apply --dry-run=server -f -", MAP);
        k.feed("delete -f -", MAP);
    });
}

#[test]
fn manifests_are_applied_server_side() {
    compare(|k| {
        k.feed("apply --server-side -f -", MAP);
        k.feed("apply --server-side -f -", MAP);
        k.feed("apply --server-side --field-manager=other -f -", &MAP.replace("\"1\"", "\"3\""));
        k.feed(
            "apply --server-side --field-manager=other --force-conflicts -f -",
            &MAP.replace("\"1\"", "\"3\""),
        );
        k.run("get configmap a -o yaml --show-managed-fields");
    });
}

#[test]
fn invalid_manifests_are_rejected() {
    compare(|k| {
        k.feed("apply -f -", &MAP.replace("data:", "dta:"));
        k.feed("create -f -", "apiVersion: v1\nkind: Nonsense\nmetadata: {name: a}\n");
        k.feed("create -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Wrong_Name}\n");
        k.feed("apply -f -", &WEB.replace("replicas: 2", "replicas: many"));
    });
}

#[test]
fn a_deployment_rolls_out_scales_and_restarts() {
    compare(|k| {
        k.feed("apply -f -", WEB);
        k.until(&["get", "deployment", "web"], "2/2");
        k.run("rollout status deployment/web");
        k.run("get deployment web");
        k.run("get pods -l app=web --no-headers -o custom-columns=STATUS:.status.phase,IMAGE:.spec.containers[0].image");
        k.run("scale deployment web --replicas=3");
        k.until(&["get", "deployment", "web"], "3/3");
        k.run("wait --for=condition=Available deployment/web --timeout=60s");
        k.run("rollout restart deployment/web");
        k.until(&["rollout", "status", "deployment/web"], "successfully rolled out");
        k.run("rollout history deployment/web");
        k.run("set image deployment/web main=example.test/web:2");
        k.until(&["rollout", "status", "deployment/web"], "successfully rolled out");
        k.run("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}");
        k.run("delete deployment web --wait=true");
        k.until(&["get", "pods"], "No resources found");
    });
}

#[test]
fn nodes_are_cordoned_tainted_and_drained() {
    compare(|k| {
        k.run("get nodes --no-headers -o custom-columns=NAME:.metadata.name,ROLE:.metadata.labels.node-role\\.kubernetes\\.io/worker");
        k.until(&["get", "node", "worker-6"], " Ready ");
        k.run("cordon worker-6");
        k.run("cordon worker-6");
        k.run("get node worker-6");
        // Pods of other scenarios may have been scheduled on the node before it was cordoned.
        k.run("drain worker-6 --ignore-daemonsets --pod-selector=app=nobody");
        k.run("uncordon worker-6");
        k.run("uncordon worker-6");
        k.run("taint node worker-6 key=value:NoSchedule");
        k.run("taint node worker-6 key=value:NoSchedule");
        k.run("taint node worker-6 key-");
        k.run("cordon none");
    });
}

#[test]
fn a_drain_evicts_pods_and_a_budget_blocks_it() {
    compare(|k| {
        // A unique label: a drain covers all namespaces, and other scenarios use the real server too.
        let one = WEB
            .replace("app: web", "app: drained")
            .replace("replicas: 2", "replicas: 1")
            .replace("containers:", "nodeSelector: {kubernetes.io/hostname: worker-5}\n      containers:");
        k.feed("apply -f -", &one);
        k.until(&["get", "deployment", "web"], "1/1");
        k.feed("apply -f -", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 1, selector: {matchLabels: {app: drained}}}\n");
        k.until(&["get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}"], "1");
        k.run("get pdb web");
        k.run("drain worker-5 --ignore-daemonsets --pod-selector=app=drained --timeout=1s");
        k.run("uncordon worker-5");
        k.run("delete pdb web");
        k.run("drain worker-5 --ignore-daemonsets --pod-selector=app=drained --timeout=60s");
        k.run("uncordon worker-5");
    });
}

#[test]
fn jobs_run_and_are_described() {
    compare(|k| {
        k.run("create job job --image=example.test/job:1 -- true");
        k.run("wait --for=condition=Complete job/job --timeout=60s");
        k.run("get job job -o jsonpath={.status.succeeded}");
        k.run("describe job job --show-events=false");
        k.run("get pods -l job-name=job --no-headers -o custom-columns=PHASE:.status.phase");
        k.run("delete job job");
    });
}

/// On kubesim only: a real API server reads logs from kubelets, which do not exist here.
#[test]
fn logs_of_simulated_pods_are_printed() {
    let Some(servers) = Servers::shared() else {
        return prerequisites::skip(prerequisites::KUBERNETES, kube::MISSING);
    };
    let mut k = servers.sim();
    k.run("create job talk --image=example.test/talk:1");
    k.run("wait --for=condition=Complete job/talk --timeout=60s");
    let said = k.run("logs job/talk");
    assert!(said.contains(" started on worker-") && said.trim_end().ends_with(" done"), "{said}");
    let last = k.run("logs -l job-name=talk --tail=1");
    assert!(last.trim_end().ends_with(" done") && last.lines().count() == 1, "{last}");
    assert!(k.run("logs job/none").contains("not found"));
    k.run("delete job talk");
}

#[test]
fn jobs_fail_at_their_deadline_and_are_deleted_after_their_ttl() {
    let job = |name: &str, spec: &str, outcome: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  {spec}\n  template:\n    metadata: {{annotations: {{sim.shipshape.dev/outcome: {outcome}}}}}\n    spec:\n      restartPolicy: Never\n      terminationGracePeriodSeconds: 1\n      containers: [{{name: main, image: 'example.test/job:1'}}]\n"
        )
    };
    compare(move |k| {
        k.feed("create -f -", &job("late", "activeDeadlineSeconds: 2", "run"));
        k.run("wait --for=condition=Failed job/late --timeout=60s");
        k.run("get job late -o jsonpath={.status.conditions[*].type}={.status.conditions[*].status}={.status.conditions[*].reason}={.status.conditions[*].message}");
        k.run("get job late --no-headers");
        k.feed("create -f -", &job("brief", "ttlSecondsAfterFinished: 1", "complete"));
        k.run("wait --for=delete job/brief --timeout=60s");
        k.run("get job brief");
    });
}

#[test]
fn a_rollout_fails_at_its_progress_deadline() {
    compare(|k| {
        let stuck = WEB.replace("replicas: 2", "replicas: 1\n  progressDeadlineSeconds: 3").replace(
            "{labels: {app: web}}\n    spec",
            "{labels: {app: web}, annotations: {sim.shipshape.dev/outcome: stuck}}\n    spec",
        );
        k.feed("apply -f -", &stuck);
        k.run("rollout status deployment/web --timeout=60s");
        k.run("get deployment web -o jsonpath={.status.conditions[*].type}={.status.conditions[*].status}={.status.conditions[*].reason}={.status.conditions[*].message}");
        k.feed("apply -f -", WEB);
        k.until(&["rollout", "status", "deployment/web"], "successfully rolled out");
        k.run("get deployment web -o jsonpath={.status.conditions[*].type}={.status.conditions[*].status}={.status.conditions[*].reason}={.status.conditions[*].message}");
        k.run("delete deployment web --wait=true");
    });
}

#[test]
fn custom_kinds_are_explained_listed_and_edited() {
    compare(|k| {
        k.feed("apply -f -", CRD);
        k.run("wait --for=condition=Established crd/ships.harbour.example.test --timeout=60s");
        k.until(&["get", "ships"], "No resources found");
        k.run("api-resources --api-group=harbour.example.test");
        k.until(&["explain", "ship.spec"], "masts");
        k.run("explain ship");
        k.run("explain ship.spec.masts");
        k.until(&["explain", "ship.spec", "--output=plaintext-openapiv2"], "masts");
        k.run("explain ship --output=plaintext-openapiv2");
        k.run("explain ship.spec.masts --output=plaintext-openapiv2");
        k.feed(
            "apply -f -",
            "apiVersion: harbour.example.test/v1\nkind: Ship\nmetadata: {name: swan}\nspec: {masts: 2}\n",
        );
        k.run("get sh");
        k.run("get ship swan -o yaml");
        k.run("describe ship swan --show-events=false");
        k.edit("edit ship swan", "sed -i 's/masts: 2/masts: 3/'");
        k.run("get sh");
        k.feed(
            "apply -f -",
            "apiVersion: harbour.example.test/v1\nkind: Ship\nmetadata: {name: swan}\nspec: {masts: many}\n",
        );
        k.run("patch ship swan --type=merge -p {\"spec\":{\"masts\":4}}");
        k.run("delete ship swan");
        k.run("delete crd ships.harbour.example.test");
    });
}

#[test]
fn discovery_and_access_are_printed() {
    compare(|k| {
        k.run("auth can-i delete pods");
        k.run("api-resources --api-group=apps --no-headers");
        k.run("api-resources --api-group=policy");
        k.run("get all");
        k.run("get pods -A -l nobody=has");
        k.run("get --raw /readyz");
    });
}

#[test]
fn roles_permit_and_other_users_are_asked_about() {
    compare(|k| {
        k.run("auth can-i list pods --as=robin");
        k.run("get pods --as=robin");
        k.run("create role reader --verb=get,list --resource=pods");
        k.run("create rolebinding reader --role=reader --user=robin --serviceaccount={ns}:default");
        k.until(&["auth", "can-i", "list", "pods", "--as=robin"], "yes");
        k.run("auth can-i list pods --as=robin");
        k.run("auth can-i delete pods --as=robin");
        k.run("auth can-i list pods --as=system:serviceaccount:{ns}:default");
        k.run("auth can-i get /healthz --as=system:anonymous");
        k.run("get pods --as=robin");
        k.run("get secrets --as=robin");
        k.run("auth whoami --as=robin --as-group=team --as-uid=7");
        k.run("describe role reader");
        k.run("get rolebindings -o wide");
        k.run("delete rolebinding reader");
    });
}

#[test]
fn a_token_is_created() {
    compare(|k| {
        let token = k.quiet("create token default --duration=20m");
        assert_eq!(token.split('.').count(), 3, "{token}");
        k.run("create token missing");
        k.run("create token default --duration=1m");
        k.run("create token default --bound-object-kind=Secret --bound-object-name=missing");
    });
}
