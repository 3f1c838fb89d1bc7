//! The scenes of the first clusters of a demonstration. A scene can be started again at any time: existing manifests are found by
//! their parameters.

use std::time::Duration;

use anyhow::{Context as _, bail};
use api::admin::{ManifestForm, ManifestRequest, Phase};
use cloud::{Machine, Machines as _, ResourceId};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::Stage;
use super::fleet::{Member, Scene};

/// Interval between two reads of a manifest.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Largest number of reads.
const POLLS_MAX: u32 = 600;

/// Default pause of the task on a drained node; long enough to be seen.
const DRAIN_PAUSE: &str = "5s";

/// Runs the scene of a ready cluster.
pub(super) async fn run(stage: &Stage, member: &Member) -> anyhow::Result<()> {
    let scene = SceneRun { stage, member, id: member.place.id() };
    match member.scene {
        Scene::RunTasks => scene.run_tasks().await,
        Scene::StoppedNode => scene.stopped_node().await,
        Scene::BlockedDrain => scene.blocked_drain().await,
        Scene::Unreachable => scene.unreachable().await,
        Scene::Planned => scene.planned().await,
        Scene::Quiet => Ok(()),
    }
}

/// The scene of one cluster.
struct SceneRun<'a> {
    stage: &'a Stage,
    member: &'a Member,
    id: String,
}

impl SceneRun<'_> {
    /// Deploys a workload, drains a node, and cancels the drain of another, which is undone.
    async fn run_tasks(&self) -> anyhow::Result<()> {
        let [first, second, ..] = &self.workers().await?[..] else {
            bail!("the cluster has too few workers")
        };
        let web = self
            .create_manifest("apply-manifests", json!({ "manifests": web(None) }), "a sample workload")
            .await?;
        self.wait_until(&web, is_finished).await?;
        let done = json!({ "node": first.id.name(), "time": DRAIN_PAUSE });
        let done = self.create_manifest("drain-node", done, "a fan is replaced").await?;
        self.wait_until(&done, is_finished).await?;
        let cancelled = json!({ "node": second.id.name(), "time": "20m" });
        let cancelled = self.create_manifest("drain-node", cancelled, "a disk is replaced").await?;
        let at_work =
            |it: &ManifestForm| is_finished(it) || it.step.as_ref().is_some_and(|step| step.name == "work");
        let cancelled = self.wait_until(&cancelled, at_work).await?;
        if !is_finished(&cancelled) {
            let reason = Some("the disk has not arrived");
            self.stage.client.cancel_manifest(&self.id, cancelled.id, reason).await?;
        }
        Ok(())
    }

    /// Stops a machine and checks the health of the cluster.
    async fn stopped_node(&self) -> anyhow::Result<()> {
        let workers = self.workers().await?;
        let machine = workers.first().context("the cluster has no workers")?;
        self.stop(machine).await?;
        self.create_manifest("cluster-health", json!({ "certificateDays": 7 }), "a node does not respond")
            .await
            .map(drop)
    }

    /// Drains the node that runs all pods of a PodDisruptionBudget.
    async fn blocked_drain(&self) -> anyhow::Result<()> {
        let workers = self.workers().await?;
        let node = workers.first().context("the cluster has no workers")?.id.name().to_owned();
        let web = json!({ "manifests": web(Some(&node)) });
        let web =
            self.create_manifest("apply-manifests", web, "a workload that allows no disruption").await?;
        self.wait_until(&web, is_finished).await?;
        // The budget protects the pods only once they run.
        let running = json!({ "namespace": "shop", "name": "web" });
        let running =
            self.create_manifest("restart-when-steady", running, "wait until the workload runs").await?;
        self.wait_until(&running, is_finished).await?;
        let drain = json!({ "node": node, "time": DRAIN_PAUSE });
        self.create_manifest("drain-node", drain, "its firmware is old").await.map(drop)
    }

    /// Stops the control plane, so that the cluster is unreachable.
    async fn unreachable(&self) -> anyhow::Result<()> {
        for machine in self.machines("-master-").await? {
            self.stop(&machine).await?;
        }
        self.create_manifest(
            "cluster-health",
            json!({ "certificateDays": 7 }),
            "the API server does not respond",
        )
        .await
        .map(drop)
    }

    /// Runs tasks and plans one for later.
    async fn planned(&self) -> anyhow::Result<()> {
        let web = self
            .create_manifest("apply-manifests", json!({ "manifests": web(None) }), "a sample workload")
            .await?;
        self.wait_until(&web, is_finished).await?;
        let rotated = self.create_manifest("rotate-certificates", json!({}), "as a precaution").await?;
        self.wait_until(&rotated, is_finished).await?;
        let restart = json!({ "namespace": "shop", "name": "web" });
        let restart = self.create_manifest("restart-when-steady", restart, "memory usage has grown").await?;
        self.wait_until(&restart, is_finished).await?;
        let workers = self.workers().await?;
        let node = workers.last().context("the cluster has no workers")?.id.name().to_owned();
        let later = self.stage.clock.now().checked_add(SignedDuration::from_hours(2))?;
        let parameters = json!({ "node": node, "time": "1m" });
        self.create_manifest_at("drain-node", parameters, "memory is added", Some(later.as_second()))
            .await
            .map(drop)
    }

    async fn create_manifest(
        &self,
        task: &str,
        parameters: Value,
        reason: &str,
    ) -> anyhow::Result<ManifestForm> {
        self.create_manifest_at(task, parameters, reason, None).await
    }

    /// Creates a manifest, unless one with these parameters exists.
    async fn create_manifest_at(
        &self,
        task: &str,
        parameters: Value,
        reason: &str,
        run_after: Option<i64>,
    ) -> anyhow::Result<ManifestForm> {
        let id = *self.stage.tasks.get(task).with_context(|| format!("task {task} not found"))?;
        let Value::Object(parameters) = parameters else { bail!("expected an object of parameters") };
        let existing = self.stage.client.manifests(&self.id).all().await?;
        let is_same = |it: &ManifestForm| {
            it.maintenance_task_id == id
                && it.created_by_schedule.is_empty()
                && contains_all(&it.parameters, &parameters)
        };
        if let Some(found) = existing.into_iter().find(is_same) {
            return Ok(found);
        }
        let request = ManifestRequest {
            maintenance_task_id: id.to_string(),
            priority: None,
            run_after,
            run_before: None,
            parameters,
            status_text: None,
            reason: Some(reason.to_owned()),
        };
        let name = &self.member.place.name;
        let created = self.stage.client.create_manifest(&self.id, &request, false).await;
        Ok(created.with_context(|| format!("{task} on {name}"))?.value)
    }

    /// Polls a manifest until the condition is true.
    async fn wait_until(
        &self,
        manifest: &ManifestForm,
        condition: impl Fn(&ManifestForm) -> bool,
    ) -> anyhow::Result<ManifestForm> {
        for _ in 0..POLLS_MAX {
            let now = self.stage.client.manifest(&self.id, manifest.id).await?.value;
            if condition(&now) {
                return Ok(now);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        bail!("{} on {} takes too long", manifest.task_name, self.member.place.name)
    }

    async fn workers(&self) -> anyhow::Result<Vec<Machine>> {
        self.machines("-worker-").await
    }

    /// The machines of the cluster whose names contain this.
    async fn machines(&self, part: &str) -> anyhow::Result<Vec<Machine>> {
        let group: ResourceId = self.member.place.managed_group().parse()?;
        let mut machines = self.stage.simulated.cloud.azure().machines(&group).await?;
        machines.retain(|it| it.id.name().contains(part));
        Ok(machines)
    }

    async fn stop(&self, machine: &Machine) -> anyhow::Result<()> {
        self.stage
            .simulated
            .cloud
            .azure()
            .stop_machine(&machine.id)
            .await
            .with_context(|| machine.id.to_string())
    }
}

fn is_finished(manifest: &ManifestForm) -> bool {
    manifest.phase == Phase::Finished
}

/// Whether `present` contains `wanted`; the server adds defaults.
fn contains_all(present: &Map<String, Value>, wanted: &Map<String, Value>) -> bool {
    wanted.iter().all(|(key, value)| present.get(key) == Some(value))
}

/// A workload. With a node, all pods are on it and a PodDisruptionBudget allows no disruption.
fn web(node: Option<&str>) -> Value {
    let labels = json!({ "app": "web" });
    let selector = node.map(|node| json!({ "kubernetes.io/hostname": node }));
    let mut pod = json!({ "containers": [{ "name": "web", "image": "example.test/shop/web:4" }] });
    if let Some(selector) = selector {
        pod["nodeSelector"] = selector;
    }
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "shop" },
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        }),
    ];
    if node.is_some() {
        objects.push(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "minAvailable": 2, "selector": { "matchLabels": labels } },
        }));
    }
    Value::Array(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_parameters_are_found_among_those_that_the_server_added() {
        let check = |present: Value, wanted: Value, expect: bool| {
            let (Value::Object(present), Value::Object(wanted)) = (present, wanted) else { panic!("maps") };
            assert_eq!(contains_all(&present, &wanted), expect, "{present:?} {wanted:?}");
        };
        check(json!({"node": "a", "time": "2s"}), json!({"node": "a"}), true);
        check(json!({"node": "a"}), json!({"node": "b"}), false);
        check(json!({}), json!({"node": "b"}), false);
        check(json!({"days": 14}), json!({}), true);
    }

    #[test]
    fn only_a_workload_on_one_node_has_a_disruption_budget() {
        assert_eq!(web(None).as_array().unwrap().len(), 2);
        let pinned = web(Some("worker-1"));
        assert_eq!(pinned[2]["kind"], "PodDisruptionBudget");
        assert_eq!(
            pinned[1]["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"],
            "worker-1"
        );
    }
}
