//! What people type.

use crate::compare;

const MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {colour: red}\ndata:\n  x: \"1\"\n";

const WEB: &str = "apiVersion: apps/v1
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
fn objects_are_made_shown_changed_and_deleted() {
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
fn manifests_are_applied_on_the_client() {
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
fn manifests_are_applied_on_the_server() {
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
fn bad_manifests_are_refused() {
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
        // Pods of neighbours may have come to the node before it was cordoned.
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
fn a_drain_evicts_pods_and_a_budget_holds_it() {
    compare(|k| {
        let one = WEB
            .replace("replicas: 2", "replicas: 1")
            .replace("containers:", "nodeSelector: {kubernetes.io/hostname: worker-5}\n      containers:");
        k.feed("apply -f -", &one);
        k.until(&["get", "deployment", "web"], "1/1");
        k.feed("apply -f -", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 1, selector: {matchLabels: {app: web}}}\n");
        k.until(&["get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}"], "1");
        k.run("get pdb web");
        k.run("drain worker-5 --ignore-daemonsets --pod-selector=app=web --timeout=1s");
        k.run("uncordon worker-5");
        k.run("delete pdb web");
        k.run("drain worker-5 --ignore-daemonsets --pod-selector=app=web --timeout=60s");
        k.run("uncordon worker-5");
    });
}

#[test]
fn jobs_run_and_are_described() {
    compare(|k| {
        k.run("create job job --image=example.test/job:1 -- true");
        k.run("wait --for=condition=Complete job/job --timeout=60s");
        k.run("get job job -o jsonpath={.status.succeeded}");
        k.run("get pods -l job-name=job --no-headers -o custom-columns=PHASE:.status.phase");
        k.run("delete job job");
    });
}

#[test]
fn new_kinds_are_explained_listed_and_edited() {
    compare(|k| {
        k.feed("apply -f -", CRD);
        k.run("wait --for=condition=Established crd/ships.harbour.example.test --timeout=60s");
        k.until(&["get", "ships"], "No resources found");
        k.run("api-resources --api-group=harbour.example.test");
        k.until(&["explain", "ship.spec"], "masts");
        k.run("explain ship");
        k.run("explain ship.spec.masts");
        k.feed(
            "apply -f -",
            "apiVersion: harbour.example.test/v1\nkind: Ship\nmetadata: {name: swan}\nspec: {masts: 2}\n",
        );
        k.run("get sh");
        k.run("get ship swan -o yaml");
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
fn whoever_asks_is_told_what_there_is() {
    compare(|k| {
        k.run("auth can-i delete pods");
        k.run("api-resources --api-group=apps --no-headers");
        k.run("api-resources --api-group=policy");
        k.run("get all");
        k.run("get pods -A -l nobody=has");
        k.run("get --raw /readyz");
    });
}
