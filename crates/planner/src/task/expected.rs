//! Expected duration of a task without observed runs: the declared one, or a sum over its steps.

use std::time::Duration;

use api::admin::{StepForm, TaskForm};
use api::duration::{DurationText, TimeSpan};
use serde::Deserialize;
use serde_json::Value;
use steps::engine::PLAN_TIME;
use steps::kinds::StepKind;

/// Usual duration of a step that only reads or changes an object.
const CHANGE: Duration = Duration::from_secs(5);
/// Usual duration of a step that waits for workloads.
const WAIT: Duration = Duration::from_secs(2 * 60);

/// Usual duration of a run, by its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedDuration {
    /// Duration.
    pub duration: Duration,
    /// Whether the task declares it; otherwise it is derived from the steps.
    pub declared: bool,
}

pub(super) fn expected(form: &TaskForm) -> ExpectedDuration {
    let limit = form.time_limit.as_ref().map_or(PLAN_TIME, DurationText::duration);
    match &form.expected_duration {
        Some(declared) => ExpectedDuration { duration: declared.duration().min(limit), declared: true },
        None => {
            let steps = form.steps.iter().map(|step| step_duration(step, form.parameters.as_ref()));
            let sum = steps.fold(Duration::ZERO, Duration::saturating_add);
            ExpectedDuration { duration: sum.min(limit), declared: false }
        }
    }
}

fn step_duration(step: &StepForm, schema: Option<&Value>) -> Duration {
    match step.uses.parse() {
        Ok(StepKind::Pause) => pause_duration(step, schema).unwrap_or(CHANGE),
        Ok(StepKind::Drain | StepKind::Wait | StepKind::Restart | StepKind::Job) => WAIT,
        Ok(
            StepKind::Assert
            | StepKind::Apply
            | StepKind::Patch
            | StepKind::Delete
            | StepKind::Cordon
            | StepKind::Uncordon,
        ) => CHANGE,
        // A step of a built-in task that is code.
        Err(_) => CHANGE,
    }
}

/// The parameters of a pause, as far as they matter here.
#[derive(Deserialize)]
struct PauseParameters {
    duration: String,
}

/// Duration of a pause: a literal, or the default of the parameter that it references.
fn pause_duration(step: &StepForm, schema: Option<&Value>) -> Option<Duration> {
    let PauseParameters { duration: text } = PauseParameters::deserialize(&step.with).ok()?;
    let parameter = || {
        let name = text.strip_prefix("${{")?.strip_suffix("}}")?.trim().strip_prefix("parameters.")?;
        schema?.get("properties")?.get(name)?.get("default")?.as_str()
    };
    let written = text.parse().or_else(|error| parameter().map_or(Err(error), str::parse::<TimeSpan>));
    written.ok().map(TimeSpan::duration)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(more: Value, seconds: u64, declared: bool) {
        let mut whole = json!({"name": "t", "title": "t", "steps": [{"uses": "assert"}]});
        whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let found = expected(&serde_json::from_value(whole).unwrap());
        assert_eq!(found, ExpectedDuration { duration: Duration::from_secs(seconds), declared }, "{more}");
    }

    #[test]
    fn a_declared_duration_is_taken_and_an_absent_one_is_the_sum_of_the_steps() {
        check(json!({"expectedDuration": "90s"}), 90, true);
        check(json!({}), 5, false);
        check(json!({"steps": [{"uses": "assert"}, {"uses": "node/drain"}]}), 125, false);
        check(json!({"steps": [{"uses": "pause", "with": {"duration": "7m"}}]}), 420, false);
    }

    #[test]
    fn a_pause_by_a_parameter_takes_its_default_and_nothing_exceeds_the_time_limit() {
        let steps = json!([{"uses": "pause", "with": {"duration": "${{ parameters.rest }}"}}]);
        let schema = json!({"properties": {"rest": {"type": "string", "default": "30s"}}});
        check(json!({"steps": steps, "parameters": schema}), 30, false);
        check(json!({"steps": steps}), 5, false);
        check(json!({"steps": [{"uses": "pause", "with": {"duration": "7d"}}]}), 1800, false);
        check(json!({"timeLimit": "1m", "steps": [{"uses": "node/drain"}]}), 60, false);
    }
}
