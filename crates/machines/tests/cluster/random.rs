//! Random events: scale, delete, fail, heal, interrupt, hold by hooks, end the process. Whatever comes, hooks are honoured, remediation
//! stays within its limit, and in the end instances equal Machines and their number is the wanted one.

use std::collections::BTreeSet;

use api::crd::machine::find_condition;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use tokio::task::JoinSet;

use crate::world::{World, eventually};

/// Long ago, so that the timeout of a condition is over.
const PAST: &str = "2026-01-01T00:00:00Z";

#[derive(Debug, Clone)]
enum Event {
    Scale(u32),
    Delete(usize),
    /// The cloud takes an instance back.
    Interrupt(usize),
    Break(usize),
    Heal(usize),
    /// Holds drain and deletion of a Machine.
    Hold(usize),
    ReleaseAll,
    /// Ends the process and starts another.
    Restart,
    /// Breaks every Node while no process runs: more than may be remediated.
    Outage,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0_u32..6).prop_map(Event::Scale),
        2 => (0_usize..5).prop_map(Event::Delete),
        2 => (0_usize..5).prop_map(Event::Interrupt),
        2 => (0_usize..5).prop_map(Event::Break),
        1 => (0_usize..5).prop_map(Event::Heal),
        2 => (0_usize..5).prop_map(Event::Hold),
        1 => Just(Event::ReleaseAll),
        2 => Just(Event::Restart),
        1 => Just(Event::Outage),
    ]
}

#[test]
fn machines_and_instances_converge_after_any_events() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config {
        cases: 10,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&proptest::collection::vec(event(), 6..14), |events| {
        runtime.block_on(converges(&events));
        Ok(())
    });
    result.unwrap();
}

struct Run {
    world: World,
    running: JoinSet<()>,
    wanted: u32,
    /// Machines with hooks, whose instances the cloud has.
    held: BTreeSet<String>,
}

async fn converges(events: &[Event]) {
    let world = World::simulated().await;
    let check = json!({
        "metadata": {"name": "check"},
        "spec": {"selector": {"matchLabels": {"set": world.namespace}}, "maxUnhealthy": "60%",
            "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "60s"}]},
    });
    world.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    world.create_set(3, json!({"size": "small"})).await;
    let running = world.start();
    let mut run = Run { world, running, wanted: 3, held: BTreeSet::new() };
    for event in events {
        run.apply(event).await;
        run.assert_hooks_are_honoured().await;
    }
    run.settle().await;
    run.running.shutdown().await;
}

impl Run {
    async fn apply(&mut self, event: &Event) {
        match event {
            Event::Scale(replicas) => {
                self.wanted = *replicas;
                self.world.scale(self.wanted).await;
            }
            Event::Delete(index) => {
                if let Some(name) = self.name(*index).await {
                    self.world.delete(&name).await;
                }
            }
            Event::Interrupt(index) => {
                if let Some(name) = self.name(*index).await {
                    self.held.remove(&name);
                    self.world.cloud.vanish(&name);
                }
            }
            Event::Break(index) => {
                if let Some(name) = self.name(*index).await {
                    self.world.set_ready(&name, "False", PAST).await;
                }
            }
            Event::Heal(index) => {
                if let Some(name) = self.name(*index).await {
                    self.world.set_ready(&name, "True", PAST).await;
                }
            }
            Event::Hold(index) => {
                if let Some(name) = self.name(*index).await {
                    self.hold(&name).await;
                }
            }
            Event::ReleaseAll => self.release_all().await,
            Event::Restart => {
                self.running.shutdown().await;
                self.running = self.world.start();
            }
            Event::Outage => self.outage().await,
        }
    }

    async fn name(&self, index: usize) -> Option<String> {
        self.world.list().await.get(index).map(ResourceExt::name_any)
    }

    async fn hold(&mut self, name: &str) {
        let hooks = json!({"preDrain": [{"name": "Hold", "owner": "test"}], "preTerminate": [{"name": "Hold", "owner": "test"}]});
        let patch = Patch::Merge(json!({"spec": {"lifecycleHooks": hooks}}));
        let Ok(machine) = self.world.machines().patch(name, &PatchParams::default(), &patch).await else {
            return;
        };
        // Hooks that come after the deletion may be too late.
        let has_instance = self.world.cloud.instances().contains(&machine.name_any());
        if machine.metadata.deletion_timestamp.is_none() && has_instance {
            self.held.insert(machine.name_any());
        }
    }

    async fn release_all(&mut self) {
        self.held.clear();
        let release = Patch::Merge(json!({"spec": {"lifecycleHooks": null}}));
        for machine in self.world.list().await {
            let _ = self.world.machines().patch(&machine.name_any(), &PatchParams::default(), &release).await;
        }
    }

    async fn assert_hooks_are_honoured(&self) {
        let instances = self.world.cloud.instances();
        for name in &self.held {
            assert!(instances.contains(name), "the instance of {name} was deleted despite its hook");
            if let Some(node) = self.world.nodes().get_opt(name).await.unwrap() {
                let unschedulable = node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
                assert!(!unschedulable, "node {name} was cordoned despite the hook of its Machine");
            }
        }
    }

    /// Removes what holds the work up, and waits until everything is as it shall be.
    async fn settle(&mut self) {
        self.release_all().await;
        for machine in self.world.list().await {
            let name = machine.name_any();
            self.world.set_ready(&name, "True", PAST).await;
        }
        let failed = async || {
            let machines = self.world.list().await;
            let has_failed = |machine: &&api::crd::machine::Machine| {
                let phase = machine.status.as_ref().and_then(|status| status.phase.as_ref());
                machine.metadata.deletion_timestamp.is_none()
                    && phase.is_some_and(|it| it.as_str() == "Failed")
            };
            machines.iter().filter(has_failed).map(ResourceExt::name_any).collect::<Vec<String>>()
        };
        // More may be Failed than may be remediated, and an instance that vanished is noticed at a resync only.
        eventually("the wanted number runs", async || {
            for name in failed().await {
                self.world.delete(&name).await;
            }
            self.world.runs(usize::try_from(self.wanted).unwrap()).await
        })
        .await;
        self.world.running(usize::try_from(self.wanted).unwrap()).await;
        let leftovers = self.world.cloud.leftovers();
        assert_eq!(leftovers.into_iter().collect::<Vec<String>>(), self.world.cloud.instances());
    }

    async fn outage(&mut self) {
        self.settle().await;
        if self.wanted == 0 {
            return;
        }
        self.running.shutdown().await;
        let names = self.names().await;
        for name in &names {
            self.world.set_ready(name, "False", PAST).await;
        }
        self.running = self.world.start();
        let is_allowed = async || {
            let status = self.world.checks().get("check").await.unwrap().status.unwrap_or_default();
            find_condition(&status.conditions, "RemediationAllowed")
                .is_some_and(|found| found.status.as_str() == "True")
        };
        eventually("remediation is restricted", async || !is_allowed().await).await;
        assert_eq!(self.names().await, names, "remediated beyond maxUnhealthy");
        // Those that are healed last may be remediated before that.
        for name in &names {
            self.world.set_ready(name, "True", PAST).await;
        }
        eventually("remediation is allowed again", is_allowed).await;
    }

    /// The Machines that are not being deleted.
    async fn names(&self) -> Vec<String> {
        let machines = self.world.list().await;
        let alive = machines.iter().filter(|machine| machine.metadata.deletion_timestamp.is_none());
        alive.map(ResourceExt::name_any).collect()
    }
}
