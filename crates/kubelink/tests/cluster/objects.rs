//! Get, delete, wait, rollout, restart, jobs, signing requests.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, ResourceExt};
use kubelink::csr::{CsrPolicy, approve};
use kubelink::delete::{DeleteOptions, DeleteResult, delete, delete_matching};
use kubelink::job::{JobRequest, LOG_MAX, clean_up, run_job};
use kubelink::patch::{Change, patch};
use kubelink::rollout::{Workload, restart, rollout};
use kubelink::wait::{ObjectSelection, WaitStatus, wait};
use kubelink::{Failure, ProgressSink, Target};
use serde_json::json;

use crate::support::{LogServer, world};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_waits_until_the_object_is_gone_and_can_be_repeated() {
    let Some(world) = world("delete") else { return };
    let target = Target::typed::<ConfigMap>(Some(&world.namespace), "a");
    let options = DeleteOptions::default();
    assert_eq!(
        delete(&world.link, &target, &options, &ProgressSink::disabled()).await.unwrap(),
        DeleteResult::Absent
    );
    let made: ConfigMap = world.create(world.api(), json!({"metadata": {"name": "a"}})).await;
    let other = DeleteOptions { uid: Some("another".into()), ..options.clone() };
    assert_eq!(
        delete(&world.link, &target, &other, &ProgressSink::disabled()).await.unwrap(),
        DeleteResult::Absent
    );
    assert_eq!(world.link.get(&target).await.unwrap().unwrap().uid(), made.uid());
    assert_eq!(
        delete(&world.link, &target, &options, &ProgressSink::disabled()).await.unwrap(),
        DeleteResult::Gone
    );
    assert!(world.link.get(&target).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_delayed_by_finalizers_names_them_and_returns_when_they_are_removed() {
    let Some(world) = world("delete-held") else { return };
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.dev/hold"]}});
    let _: ConfigMap = world.create(world.api(), held).await;
    let target = Target::typed::<ConfigMap>(Some(&world.namespace), "a");
    let short = DeleteOptions { wait: Some(Duration::from_millis(300)), ..DeleteOptions::default() };
    let error = delete(&world.link, &target, &short, &ProgressSink::disabled()).await.unwrap_err();
    assert!(error.to_string().contains("its finalizers to be removed: example.dev/hold"), "{error}");
    let waits = Arc::new(tokio::sync::Notify::new());
    let notify = waits.clone();
    let progress = ProgressSink::new(Arc::new(api::clock::SystemClock), move |note| {
        if note.sentence.contains("finalizers") {
            notify.notify_one();
        }
    });
    let free = async {
        waits.notified().await;
        let patch = json!({"metadata": {"finalizers": null}});
        world.api::<ConfigMap>().patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    let options = DeleteOptions::default();
    let (end, ()) = tokio::join!(delete(&world.link, &target, &options, &progress), free);
    assert_eq!(end.unwrap(), DeleteResult::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_objects_that_match_the_selector_are_deleted() {
    let Some(world) = world("delete-many") else { return };
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "db")] {
        let map = json!({"metadata": {"name": name, "labels": {"app": app}}});
        let _: ConfigMap = world.create(world.api(), map).await;
    }
    let (resource, _) = world.link.resolve("v1", "ConfigMap").await.unwrap();
    let (options, progress) = (DeleteOptions::default(), ProgressSink::disabled());
    let space = Some(world.namespace.as_str());
    let gone = delete_matching(&world.link, &resource, space, "app=web", &options, &progress).await.unwrap();
    assert_eq!(gone.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(
        delete_matching(&world.link, &resource, space, "app=web", &options, &progress)
            .await
            .unwrap()
            .is_empty()
    );
    let all = delete_matching(&world.link, &resource, space, " ", &options, &progress).await.unwrap_err();
    assert!(matches!(all.failure, Failure::Precondition { .. }), "{all}");
    world.api::<ConfigMap>().get("c").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_of_each_type_changes_the_object_and_returns_whether_it_did() {
    let Some(world) = world("patch") else { return };
    let node = world.node("a").await;
    let target = Target::typed::<Node>(None, &node);
    let merge = Change::Merge(json!({"metadata": {"labels": {"zone": node}}}));
    assert!(patch(&world.link, &target, &merge, None).await.unwrap());
    assert!(!patch(&world.link, &target, &merge, None).await.unwrap());
    let found = kubelink::facts::nodes_matching(&world.link, &format!("zone={node}")).await.unwrap();
    assert_eq!(found.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), [node.as_str()]);
    let strategic =
        Change::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    assert!(patch(&world.link, &target, &strategic, Some("status")).await.unwrap());
    let wrong = Change::Json(json!([{"op": "test", "path": "/metadata/labels/zone", "value": "other"}]));
    let error = patch(&world.link, &target, &wrong, None).await.unwrap_err();
    assert!(matches!(error.failure, Failure::Invalid { .. }), "{error}");
    let error = patch(&world.link, &target, &Change::Json(json!({"op": "test"})), None).await.unwrap_err();
    assert!(error.to_string().contains("is not a JSON patch"), "{error}");
    let missing = patch(&world.link, &Target::typed::<Node>(None, "none"), &merge, None).await.unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_happens_once_for_a_run_and_the_rollout_is_followed() {
    let Some(world) = world("rollout") else { return };
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "example.invalid/c"}]}}}});
    let made: Deployment = world.create(world.api(), deployment).await;
    let (link, namespace) = (&world.link, &world.namespace);
    assert!(restart(link, Workload::Deployment, namespace, "web", "run-1").await.unwrap());
    assert!(!restart(link, Workload::Deployment, namespace, "web", "run-1").await.unwrap());
    let seen: Deployment = world.api().get("web").await.unwrap();
    assert_eq!(
        seen.metadata.generation,
        made.metadata.generation.map(|it| it + 1),
        "one restart, one generation"
    );

    let missing = rollout(
        link,
        Workload::Deployment,
        namespace,
        "none",
        Duration::from_secs(3),
        &ProgressSink::disabled(),
    )
    .await;
    assert!(missing.unwrap_err().to_string().contains("to exist"));
    // Without replicas only the controller's status is waited for; the test writes it if there is no controller.
    if !testkit::kube::shared().unwrap().has_controllers() {
        let status = json!({"status": {"observedGeneration": 2}});
        world
            .api::<Deployment>()
            .patch_status("web", &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
    let words = rollout(link, Workload::Deployment, namespace, "web", LIMIT, &ProgressSink::disabled())
        .await
        .unwrap();
    assert_eq!(words, "deployment \"web\" successfully rolled out");

    let paused = json!({"spec": {"paused": true}});
    world.api::<Deployment>().patch("web", &PatchParams::default(), &Patch::Merge(paused)).await.unwrap();
    let error = restart(link, Workload::Deployment, namespace, "web", "run-2").await.unwrap_err();
    assert!(matches!(error.failure, Failure::Precondition { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_once_for_a_run_and_its_failure_and_log_are_its_result() {
    let Some(world) = world("job") else { return };
    if !testkit::kube::shared().unwrap().has_controllers() {
        return testkit::prerequisites::skip(
            testkit::prerequisites::KUBERNETES_CONTROLLERS,
            "nobody makes pods of jobs",
        );
    }
    let node = world.node("a").await;
    let long_log = "a line of the log\n".repeat(10_000) + "the last line\n";
    let _logs = LogServer::start(&world.client(), &node, long_log).await;
    let mut request =
        JobRequest::of_image("run-1", "Check disks", &world.namespace, "example.invalid/check", &["check"])
            .with_env("LEVEL", "deep");
    request.spec.template.spec.as_mut().unwrap().node_name = Some(node);
    let progress = ProgressSink::disabled();
    // The first call is dropped after the job was created, as by a crash; the second finds the same job.
    let short = run_job(&world.link, &request, Duration::from_millis(300), &progress).await.unwrap_err();
    assert!(matches!(short.failure, Failure::TimeLimit { .. }), "{short}");
    let fail = async {
        let which = ObjectSelection::Labelled(format!("batch.kubernetes.io/job-name={}", request.name()));
        let judge = |pods: &[&Pod]| match pods {
            [] => WaitStatus::Waiting("the pod".to_owned()),
            [pod, ..] => WaitStatus::Done(pod.name_any()),
        };
        let pod = wait(&world.link, world.api(), &which, "the pod", LIMIT, &progress, judge).await.unwrap();
        let status = json!({"status": {"phase": "Failed"}});
        world.api::<Pod>().patch_status(&pod, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(run_job(&world.link, &request, LIMIT, &progress), fail);
    let outcome = outcome.unwrap();
    assert!(
        outcome.result.as_ref().is_err_and(|why| why.starts_with("BackoffLimitExceeded: ")),
        "{:?}",
        outcome.result
    );
    let log = outcome.log.unwrap();
    assert!(
        log.ends_with("a line of the log\nthe last line\n") && log.starts_with("... "),
        "{}",
        &log[..200]
    );
    assert!(log.len() <= LOG_MAX + 100);
    assert_eq!(
        run_job(&world.link, &request, LIMIT, &progress).await.unwrap().result,
        outcome.result,
        "the result is the same at the second call"
    );
    assert_eq!(world.api::<Job>().list(&ListParams::default()).await.unwrap().items.len(), 1);
    clean_up(&world.link, &request, &progress).await.unwrap();
    clean_up(&world.link, &request, &progress).await.unwrap();
    let stranger = json!({"metadata": {"name": request.name()}, "spec": request.spec});
    let target = Target::typed::<Job>(Some(&world.namespace), &request.name());
    delete(&world.link, &target, &DeleteOptions::default(), &progress).await.unwrap();
    let _: Job = world.create(world.api(), stranger).await;
    let error = run_job(&world.link, &request, LIMIT, &progress).await.unwrap_err();
    assert!(error.to_string().contains("is not this run's"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_requests_of_known_nodes_are_approved_and_others_reported() {
    let Some(world) = world("csr") else { return };
    let node = world.node("a").await;
    let addresses = json!({"status": {"addresses": [{"type": "Hostname", "address": node}]}});
    Api::<Node>::all(world.client())
        .patch_status(&node, &PatchParams::default(), &Patch::Merge(addresses))
        .await
        .unwrap();
    // As the node authorizer would allow it.
    let role = json!({"metadata": {"name": node}, "rules": [{"apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"], "verbs": ["create"]}]});
    let _: ClusterRole = world.create(Api::all(world.client()), role).await;
    let binding = json!({"metadata": {"name": node},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": node},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("system:node:{node}")}]});
    let _: ClusterRoleBinding = world.create(Api::all(world.client()), binding).await;
    let as_node = |name: &str| {
        let mut config = kube_config();
        config.auth_info.impersonate = Some(format!("system:node:{name}"));
        config.auth_info.impersonate_groups =
            Some(vec!["system:nodes".into(), "system:authenticated".into()]);
        kube::Client::try_from(config).unwrap()
    };
    let ask = async |client: kube::Client, name: &str, dns: &str| {
        let mut params = rcgen::CertificateParams::new(vec![dns.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
        let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let request = k8s_openapi::ByteString(pem.into_bytes());
        let object = json!({"metadata": {"name": name}, "spec": {"signerName": "kubernetes.io/kubelet-serving",
            "request": request, "usages": ["digital signature", "server auth"]}});
        let _: CertificateSigningRequest = world.create(Api::all(client), object).await;
    };
    let (good, bad) = (format!("{node}-good"), format!("{node}-bad"));
    ask(as_node(&node), &good, &node).await;
    ask(as_node(&node), &bad, "api.example").await;
    let report = approve(&world.link, &CsrPolicy::default()).await.unwrap();
    assert!(report.approved.contains(&good), "{report:?}");
    let left = report.left.iter().find(|(name, _)| *name == bad).unwrap();
    assert_eq!(left.1, format!("DNS name api.example is not one of node {node}"));
    let requests: Api<CertificateSigningRequest> = Api::all(world.client());
    let conditions = requests.get_approval(&good).await.unwrap().status.unwrap().conditions.unwrap();
    assert_eq!((conditions[0].type_.as_str(), conditions[0].status.as_str()), ("Approved", "True"));
    assert!(
        !approve(&world.link, &CsrPolicy::default()).await.unwrap().approved.contains(&good),
        "approved twice"
    );
}

fn kube_config() -> kube::Config {
    let text = testkit::kube::shared().unwrap().kubeconfig();
    let parsed: kube::config::Kubeconfig = kube::config::Kubeconfig::from_yaml(text).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let make = kube::Config::from_custom_kubeconfig(parsed, &options);
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(make)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_reports_what_it_waits_for() {
    let Some(world) = world("wait") else { return };
    let notes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = notes.clone();
    let clock = Arc::new(api::clock::SystemClock);
    let progress = ProgressSink::new(clock, move |note| sink.lock().unwrap().push(note.sentence.clone()));
    let which = ObjectSelection::Named("later".to_owned());
    let judge = |found: &[&ConfigMap]| match found {
        [] => WaitStatus::Waiting("the map to exist".to_owned()),
        [map, ..] => WaitStatus::Done(map.name_any()),
    };
    let work = wait(&world.link, world.api(), &which, "a map", LIMIT, &progress, judge);
    let make = async { world.create(world.api::<ConfigMap>(), json!({"metadata": {"name": "later"}})).await };
    let (found, _) = tokio::join!(work, make);
    assert_eq!(found.unwrap(), "later");
}
