//! The example tasks, as `docs/how-to/write-a-task.md` explains them: each is accepted and goes through the trial.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::ListParams;
use planner::task::{Definition, Format, check, read};
use serde_json::{Value, json};

use crate::fault_runs::{SHOP, is, no_node_is_cordoned, nothing, web_was_restarted};
use crate::sim::{FaultRun, WorldCheck};

fn example(name: &str) -> Definition {
    let path = format!("{}/../../examples/tasks/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let form = read(&std::fs::read(path).unwrap(), Format::Yaml).unwrap();
    assert_eq!(form.name, name, "a file is called as its task");
    check(&form).unwrap_or_else(|problem| panic!("{name}: {problem}"))
}

async fn tried(name: &str, parameters: Value, done: WorldCheck, undone: WorldCheck) {
    FaultRun {
        task: example(name),
        parameters,
        objects: SHOP.to_owned(),
        done,
        undone,
        ours: false,
        machines: false,
    }
    .all()
    .await;
}

#[test]
fn there_are_five_examples_and_all_are_accepted() {
    let directory = format!("{}/../../examples/tasks", env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let names: Vec<String> =
        names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    for name in names {
        let task = example(&name);
        assert_eq!(Definition::from_document(&task.document()).unwrap().form(), task.form());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_when_steady_survives_every_fault() {
    tried("restart-when-steady", json!({}), web_was_restarted, nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_setting_survives_every_fault_and_changes_back() {
    fn level(
        wanted: &'static str,
    ) -> impl Fn(kubelink::Link) -> futures_util::future::BoxFuture<'static, Result<(), String>> {
        move |link| {
            Box::pin(async move {
                let settings =
                    Api::<ConfigMap>::namespaced(link.client(), "shop").get("settings").await.unwrap();
                let found = settings.data.unwrap_or_default()["level"].clone();
                is(found == wanted, format!("the level is {found}"))
            })
        }
    }
    tried(
        "change-setting",
        json!({"level": "debug"}),
        |link, _| level("debug")(link),
        |link, _| level("info")(link),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hands_on_node_survives_every_fault_and_leaves_no_cordon() {
    let parameters = json!({"node": "node-2", "time": "10ms"});
    tried("drain-node", parameters, no_node_is_cordoned, no_node_is_cordoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_with_web_stopped_survives_every_fault_and_starts_web_again() {
    async fn replicas(link: &kubelink::Link) -> Result<(), String> {
        let web = Api::<Deployment>::namespaced(link.client(), "shop").get("web").await.unwrap();
        let replicas = web.spec.replicas;
        is(replicas == Some(3), format!("web has {replicas:?} replicas"))
    }
    let done: WorldCheck = |link, _| {
        Box::pin(async move {
            let jobs = Api::<Job>::namespaced(link.client(), "shop")
                .list(&ListParams::default())
                .await
                .unwrap()
                .items;
            is(jobs.len() == 1, format!("{} jobs ran", jobs.len()))?;
            let pod = jobs[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            is(
                pod.containers[0].args.as_deref() == Some(&["--cluster".to_owned(), "c".to_owned()]),
                "other arguments",
            )?;
            replicas(&link).await
        })
    };
    let undone: WorldCheck = |link, _| Box::pin(async move { replicas(&link).await });
    tried("migrate-with-web-stopped", json!({}), done, undone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ship_agents_survives_every_fault_and_takes_them_away_again() {
    let done: WorldCheck = |link, _| {
        Box::pin(async move {
            let map = Api::<ConfigMap>::namespaced(link.client(), "agents").get("collector").await.unwrap();
            let data = map.data.unwrap_or_default();
            is(data["cluster"] == "c" && data["endpoint"] == "https://collector.example", format!("{data:?}"))
        })
    };
    let undone: WorldCheck = |link, _| {
        Box::pin(async move {
            let map =
                Api::<ConfigMap>::namespaced(link.client(), "agents").get_opt("collector").await.unwrap();
            let account = Api::<ServiceAccount>::namespaced(link.client(), "agents")
                .get_opt("collector")
                .await
                .unwrap();
            is(map.is_none() && account.is_none(), "something of the agents is left")
        })
    };
    tried("ship-agents", json!({}), done, undone).await;
}
