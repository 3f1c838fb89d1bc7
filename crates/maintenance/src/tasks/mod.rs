//! The steps of the built-in tasks that are code, one file each. Their definitions are in `planner::task::builtin`.

pub mod cycle_nodes;

mod approve_node_csrs;
mod check_registry_token;
mod cluster_health;
mod machines;
mod renew_identity_certificate;
mod replace_machine;
mod rotate_certificates;
mod rotate_tls_secret;
mod scale_machineset;

use planner::task::{CodedTask, Definition, TaskProblem};
use serde_json::{Map, Value};
use steps::engine::{Plan, Step};
use steps::{ClusterContext, ClusterFacts};

/// Builds the plan of a task for one cluster.
pub fn plan(
    task: &Definition,
    parameters: &Map<String, Value>,
    cluster: &ClusterFacts,
) -> Result<Plan<ClusterContext>, TaskProblem> {
    let Some(coded) = task.coded() else { return task.plan_from_forms(parameters, cluster) };
    let steps = steps(coded, &task.resolve_parameters(parameters)?)?;
    Ok(Plan { steps, time_limit: task.time_limit() })
}

/// Builds the steps of a task that is code, from validated parameters with their defaults.
fn steps(task: CodedTask, parameters: &Map<String, Value>) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    match task {
        CodedTask::ApproveNodeCsrs => approve_node_csrs::steps(parameters),
        CodedTask::CheckRegistryToken => Ok(check_registry_token::steps()),
        CodedTask::ClusterHealth => cluster_health::steps(parameters),
        CodedTask::CycleNodes => cycle_nodes::steps(parameters),
        CodedTask::RenewIdentityCertificate => Ok(renew_identity_certificate::steps()),
        CodedTask::ReplaceMachine => replace_machine::steps(parameters),
        CodedTask::RotateCertificates => Ok(rotate_certificates::steps()),
        CodedTask::RotateTlsSecret => rotate_tls_secret::steps(parameters),
        CodedTask::ScaleMachineset => scale_machineset::steps(parameters),
    }
}

#[cfg(test)]
mod tests {
    use api::doc::StepName;
    use planner::task::Catalogue;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_steps_of_every_coded_task_have_the_names_that_its_definition_shows() {
        let mut coded = 0;
        for task in Catalogue::builtin().list() {
            let Some(code) = task.coded() else { continue };
            let parameters = match code {
                CodedTask::CycleNodes => json!({"node": "node-1"}),
                CodedTask::RotateTlsSecret => json!({"source": {"namespace": "shop", "name": "new"},
                    "target": {"namespace": "shop", "name": "web"}}),
                CodedTask::ReplaceMachine => json!({"machine": "m", "namespace": "n"}),
                CodedTask::ScaleMachineset => json!({"machineSet": "s", "replicas": 1, "namespace": "n"}),
                _ => json!({}),
            };
            let steps = steps(code, parameters.as_object().unwrap()).unwrap();
            let names: Vec<&StepName> = steps.iter().map(|step| &step.name).collect();
            assert_eq!(names, task.step_names().iter().collect::<Vec<_>>(), "{}", task.name());
            coded += 1;
        }
        assert_eq!(coded, 9);
    }
}
