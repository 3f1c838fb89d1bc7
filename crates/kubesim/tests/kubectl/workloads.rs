//! What controllers leave behind: events and revisions.

use crate::scenarios::WEB;
use crate::{compare, compare_at_once};

#[test]
fn workloads_are_described_with_their_events() {
    compare(|k| {
        let columns = "--no-headers -o custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message,FROM:.source.component,COUNT:.count --sort-by=.message";
        let of = |kind: &str| format!("get events --field-selector involvedObject.kind={kind} {columns}");
        k.feed("apply -f -", WEB);
        k.until(&["get", "deployment", "web"], "2/2");
        k.until(&["get", "events"], "Scaled up replica set");
        k.run("describe deployment web");
        k.run("scale deployment web --replicas=1");
        k.until(&["get", "events"], "from 2 to 1");
        k.until(&["get", "events"], "Deleted pod");
        k.run(&of("Deployment"));
        k.run(&of("ReplicaSet"));
        // Which node the scheduler chose is left to it.
        k.until(&["get", "events"], "Successfully assigned");
        k.run("get events --field-selector reason=Scheduled --no-headers -o custom-columns=TYPE:.type,ACTION:.action,FROM:.reportingComponent,COUNT:.count");
        k.run("create job job --image=example.test/job:1 -- true");
        k.until(&["get", "events"], "Job completed");
        k.run("describe job job");
        let set = WEB
            .replace("Deployment", "StatefulSet")
            .replace("web}", "set}")
            .replace("replicas: 2", "replicas: 1");
        k.feed("apply -f -", &set);
        k.until(&["get", "statefulset", "set"], "1/1");
        k.run("scale statefulset set --replicas=0");
        k.until(&["get", "events"], "SuccessfulDelete");
        k.until(&["get", "events"], "Delete Pod set-0 in StatefulSet set successful");
        k.run(&of("StatefulSet"));
        k.run("get events.events.k8s.io --field-selector reason=Completed -o custom-columns=NOTE:.note,FROM:.deprecatedSource.component");
        k.run("delete deployment/web statefulset/set job/job");
    });
}

#[test]
fn a_cron_job_runs_when_its_minute_comes() {
    let tick = r#"
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: "example.test/job:1"}]
"#;
    compare_at_once(|k| {
        k.feed("apply -f -", tick);
        k.run("wait cronjob/tick --for=jsonpath={.status.lastSuccessfulTime} --timeout=100s");
        k.until(&["get", "events"], "SawCompletedJob");
        k.run("get cronjob tick --no-headers -o custom-columns=SCHEDULE:.spec.schedule,SUSPEND:.spec.suspend,ACTIVE:.status.active");
        k.run("get jobs --no-headers -o custom-columns=OWNER:.metadata.ownerReferences[0].name,SUCCEEDED:.status.succeeded");
        k.run("get events --field-selector involvedObject.kind=CronJob --no-headers -o custom-columns=TYPE:.type,REASON:.reason,FROM:.source.component --sort-by=.reason");
        k.run("delete cronjob tick");
        k.until(&["get", "jobs"], "No resources found");
    });
}

#[test]
fn sets_are_rolled_back() {
    compare(|k| {
        for (kind, name) in [("StatefulSet", "set"), ("DaemonSet", "agent")] {
            let lower = kind.to_lowercase();
            let set = WEB.replace("Deployment", kind).replace("name: web}", &format!("name: {name}}}"));
            let set = match kind {
                // No other pods are on this node.
                "DaemonSet" => set.replace("  replicas: 2\n", "").replace(
                    "containers:",
                    "nodeSelector: {kubernetes.io/hostname: worker-4}\n      containers:",
                ),
                _ => set.replace("replicas: 2", "replicas: 1"),
            };
            k.feed("apply -f -", &set);
            let status = [
                "rollout".to_owned(),
                "status".to_owned(),
                format!("{lower}/{name}"),
                "--timeout=80s".to_owned(),
            ];
            let status: Vec<&str> = status.iter().map(String::as_str).collect();
            k.until(
                &status,
                if kind == "DaemonSet" { "successfully rolled out" } else { "roll out complete" },
            );
            k.run(&format!("rollout history {lower}/{name}"));
            k.run(&format!("set image {lower}/{name} main=example.test/web:2"));
            k.until(
                &["get", "controllerrevisions", "-l", "app=web", "-o", "jsonpath={.items[*].revision}"],
                "2",
            );
            k.run(&format!("rollout history {lower}/{name}"));
            k.run(&format!("rollout history {lower}/{name} --revision=1"));
            k.until(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"], "web:2");
            k.run(&format!("rollout undo {lower}/{name}"));
            k.until(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"], "web:1");
            k.until(&["get", "controllerrevisions", "-o", "jsonpath={.items[*].revision}"], "3");
            k.run(&format!("rollout history {lower}/{name}"));
            k.run(&format!("get {lower} {name} -o jsonpath={{.spec.template.spec.containers[0].image}}"));
            k.run("get controllerrevisions --no-headers -o custom-columns=REVISION:.revision,IMAGE:.data.spec.template.spec.containers[0].image,OWNER:.metadata.ownerReferences[0].name --sort-by=.revision");
            k.run(&format!("rollout undo {lower}/{name} --to-revision=7"));
            k.run(&format!("delete {lower} {name}"));
            k.until(&["get", "controllerrevisions"], "No resources found");
            k.until(&["get", "pods"], "No resources found");
        }
    });
}
