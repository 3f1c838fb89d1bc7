//! What controllers of the real server do over time, against a clock that the tests set.

use api::clock::ManualClock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use kubesim::kubelet::{Kubelets, NodeTemplate};
use kubesim::{ClusterOptions, SimulatedCluster};
use serde_json::{Value, json};

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.test/web:1"}]},
    })
}

#[tokio::test]
async fn a_cron_job_creates_jobs_when_they_are_due() {
    let clock = ManualClock::at("2026-01-01T00:00:10Z".parse().unwrap());
    let options = ClusterOptions { clock: clock.clone(), ..ClusterOptions::default() };
    let cluster = SimulatedCluster::start("test", options).await.unwrap();
    let kubelets = Kubelets::with_delay_factor(&cluster, vec![NodeTemplate::worker("worker-1")], 0.0);
    let (cron_jobs, jobs) = (
        Api::<CronJob>::default_namespaced(cluster.client()),
        Api::<Job>::default_namespaced(cluster.client()),
    );
    let tick = json!({
        "metadata": {"name": "tick"},
        "spec": {
            "schedule": "*/5 * * * *", "successfulJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {"from": "tick"}}, "spec": {"template": template()}},
        },
    });
    cron_jobs.create(&PostParams::default(), &object(tick)).await.unwrap();
    let namespaces = Api::<Namespace>::all(cluster.client());
    for (number, name) in ["tick-29453765", "tick-29453770", "tick-29453775"].into_iter().enumerate() {
        clock.advance(SignedDuration::from_mins(5));
        // A clock that is set by hand wakes nobody; a change does.
        let other = json!({"metadata": {"name": format!("other-{number}")}});
        namespaces.create(&PostParams::default(), &object(other)).await.unwrap();
        let is_complete = |job: Option<&Job>| {
            job.and_then(|job| job.status.as_ref()).is_some_and(|status| status.completion_time.is_some())
        };
        await_condition(jobs.clone(), name, is_complete).await.unwrap();
    }
    let is_idle = |cron: Option<&CronJob>| {
        let status = cron.and_then(|cron| cron.status.as_ref());
        status.is_some_and(|status| status.active.as_ref().is_none_or(Vec::is_empty))
    };
    await_condition(cron_jobs.clone(), "tick", is_idle).await.unwrap();
    let status = cron_jobs.get("tick").await.unwrap().status.unwrap();
    assert_eq!(status.last_schedule_time.unwrap().0, "2026-01-01T00:15:00Z".parse().unwrap());
    assert!(status.last_successful_time.is_some());
    let is_gone = |job: Option<&Job>| job.is_none();
    await_condition(jobs.clone(), "tick-29453765", is_gone).await.unwrap();
    let last = jobs.get("tick-29453775").await.unwrap();
    assert_eq!(last.metadata.labels.unwrap()["from"], "tick");
    kubelets.stop().await;
}

#[tokio::test]
async fn a_cluster_without_controllers_changes_nothing_by_itself() {
    let options = ClusterOptions { controllers: false, ..ClusterOptions::default() };
    let cluster = SimulatedCluster::start("test", options).await.unwrap();
    let client = cluster.client();
    let web = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web"}]},
        }},
    });
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &object(web)).await.unwrap();
    let team = json!({"metadata": {"name": "team"}});
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object(team)).await.unwrap();
    // The namespace came last, so whatever would act on the deployment has done so by then.
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "team");
    await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some()).await.unwrap();
    let sets = Api::<ReplicaSet>::all(client).list(&ListParams::default()).await.unwrap();
    assert_eq!(sets.items, []);
    let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
    assert_eq!(status.observed_generation, None);
}

/// The signer is a controller of the real server, which the suite that compares both does not run.
#[tokio::test]
async fn an_approved_signing_request_gets_a_certificate_that_authenticates() {
    let cluster = SimulatedCluster::start("test", ClusterOptions::default()).await.unwrap();
    let requests = Api::<CertificateSigningRequest>::all(cluster.client());
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:worker-1");
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    for (name, usages) in
        [("good", json!(["digital signature", "client auth"])), ("bad", json!(["server auth"]))]
    {
        let request = json!({
            "metadata": {"name": name},
            "spec": {
                "request": STANDARD.encode(&pem), "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": usages,
            },
        });
        let created = requests.create(&PostParams::default(), &object(request)).await.unwrap();
        assert_eq!(created.status.and_then(|status| status.certificate), None);
        let approval = json!({"status": {
            "conditions": [{"type": "Approved", "status": "True", "reason": "Tested", "message": "by the test"}],
        }});
        requests.patch_approval(name, &PatchParams::default(), &Patch::Merge(&approval)).await.unwrap();
    }
    let is_failed = |request: Option<&CertificateSigningRequest>| {
        let status = request.and_then(|request| request.status.as_ref());
        status.is_some_and(|status| status.conditions.iter().flatten().any(|one| one.type_ == "Failed"))
    };
    await_condition(requests.clone(), "bad", is_failed).await.unwrap();
    let is_issued = |request: Option<&CertificateSigningRequest>| {
        request.and_then(|request| request.status.as_ref()).is_some_and(|status| status.certificate.is_some())
    };
    await_condition(requests.clone(), "good", is_issued).await.unwrap();
    let certificate = requests.get("good").await.unwrap().status.unwrap().certificate.unwrap().0;
    let mut kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig()).unwrap();
    kubeconfig.auth_infos[0].auth_info = Some(AuthInfo {
        client_certificate_data: Some(STANDARD.encode(certificate)),
        client_key_data: Some(STANDARD.encode(key.serialize_pem()).into()),
        ..AuthInfo::default()
    });
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let reviews = Api::<SelfSubjectReview>::all(Client::try_from(config).unwrap());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("system:node:worker-1"));
    assert!(user.groups.unwrap().contains(&"system:nodes".to_owned()));
}
