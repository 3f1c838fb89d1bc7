//! Jobs: run pods until enough of them have succeeded or too many have failed.

use serde_json::{Value, json};

use super::context::{ControllerContext, key};
use super::pods;
use super::work_items::WorkItem;
use crate::events::{EventSource, Severity};
use crate::fields;
use crate::state::time;
use crate::status::ApiResult;
use crate::verbs::{Propagation, set_condition};

/// The reporter of its events.
const SOURCE: &str = "job-controller";

pub(super) fn reconcile(context: &mut ControllerContext<'_>, at: &str) -> ApiResult<()> {
    let (kind, pod_kind) =
        (ControllerContext::built_in_kind("batch", "Job")?, ControllerContext::built_in_kind("", "Pod")?);
    let Some(job) = context.read(kind, at) else { return Ok(()) };
    if !job["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    if let Some(end) = finish_time(&job) {
        let ttl = job["spec"]["ttlSecondsAfterFinished"].as_i64();
        if let Some(seconds) = ttl
            && context.has_elapsed(end, seconds, WorkItem::Job(at.into()))
        {
            context.delete(kind, at, Propagation::Foreground)?;
        }
        return Ok(());
    }
    let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let owned = context.controlled(pod_kind, &uid);
    let counts = PodCounts::new(&job, &owned);
    let limit = job["spec"]["activeDeadlineSeconds"].as_i64().filter(|_| job["spec"]["suspend"] != true);
    let is_overdue = limit.is_some_and(|seconds| {
        context.has_elapsed(&job["status"]["startTime"], seconds, WorkItem::Job(at.into()))
    });
    let outcome = if is_overdue { Some(JobResult::DeadlineExceeded) } else { counts.outcome(&job) };
    let active: Vec<&Value> = owned.iter().filter(|pod| pods::is_active(pod)).collect();
    let desired = match outcome {
        Some(_) => 0,
        None => counts.desired(&job),
    };
    let present = i64::try_from(active.len()).unwrap_or(i64::MAX);
    for _ in present..desired {
        let mut pod = pods::from_template(&job);
        fields::set(&mut pod, &["metadata", "labels", "batch.kubernetes.io/controller-uid"], json!(uid));
        context.create_pod(SOURCE, &job, pod)?;
    }
    for pod in active.iter().skip(usize::try_from(desired).unwrap_or(0)) {
        context.delete_pod(SOURCE, &job, &key(pod))?;
    }
    let owned = context.controlled(pod_kind, &uid);
    let Some(job) = context.read(kind, at) else { return Ok(()) };
    let (was_suspended, was_finished) = (is_suspended(&job), finish_time(&job).is_some());
    let changed = with_status(job, &owned, &counts, outcome, &time(context.now));
    context.update_status(kind, changed.clone())?;
    if is_suspended(&changed) && !was_suspended {
        context.record(
            EventSource::Controller(SOURCE),
            &changed,
            Severity::Normal,
            "Suspended",
            "Job suspended",
        );
    }
    if !was_finished && finish_time(&changed).is_some() {
        record_end(context, &changed);
    }
    Ok(())
}

fn is_suspended(job: &Value) -> bool {
    pods::condition(job, "Suspended").is_some_and(|condition| condition["status"] == "True")
}

/// Records that a job has completed or failed.
fn record_end(context: &mut ControllerContext<'_>, job: &Value) {
    let source = EventSource::Controller(SOURCE);
    match pods::condition(job, "Failed") {
        Some(failure) => {
            let text = |field: &str| failure[field].as_str().unwrap_or_default();
            context.record(source, job, Severity::Warning, text("reason"), text("message"));
        }
        None => context.record(source, job, Severity::Normal, "Completed", "Job completed"),
    }
}

/// When the job completed or failed, if it has.
fn finish_time(job: &Value) -> Option<&Value> {
    finished_condition(job).map(|condition| &condition["lastTransitionTime"])
}

/// The condition with which the job completed or failed, if it has.
pub(super) fn finished_condition(job: &Value) -> Option<&Value> {
    let conditions = ["Complete", "Failed"].iter().filter_map(|kind| pods::condition(job, kind));
    conditions.into_iter().find(|condition| condition["status"] == "True")
}

/// The result of a finished job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobResult {
    Complete,
    BackoffLimitExceeded,
    DeadlineExceeded,
}

#[derive(Debug, Clone, Copy)]
struct PodCounts {
    succeeded: i64,
    failed: i64,
    active: i64,
}

impl PodCounts {
    /// Finished pods stay counted after they are deleted.
    fn new(job: &Value, owned: &[Value]) -> PodCounts {
        let phase = |desired: &str| {
            let count = owned.iter().filter(|pod| pod["status"]["phase"] == desired).count();
            i64::try_from(count).unwrap_or(i64::MAX)
        };
        let before = |field: &str| job["status"][field].as_i64().unwrap_or(0);
        let active = owned.iter().filter(|pod| pods::is_active(pod)).count();
        PodCounts {
            succeeded: phase("Succeeded").max(before("succeeded")),
            failed: phase("Failed").max(before("failed")),
            active: i64::try_from(active).unwrap_or(i64::MAX),
        }
    }

    fn outcome(self, job: &Value) -> Option<JobResult> {
        if self.failed > job["spec"]["backoffLimit"].as_i64().unwrap_or(6) {
            return Some(JobResult::BackoffLimitExceeded);
        }
        let complete = match job["spec"]["completions"].as_i64() {
            Some(completions) => self.succeeded >= completions,
            None => self.succeeded > 0 && self.active == 0,
        };
        complete.then_some(JobResult::Complete)
    }

    fn desired(self, job: &Value) -> i64 {
        if job["spec"]["suspend"] == true {
            return 0;
        }
        let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
        match job["spec"]["completions"].as_i64() {
            Some(completions) => parallelism.min(completions - self.succeeded).max(0),
            None if self.succeeded > 0 => self.active,
            None => parallelism,
        }
    }
}

fn with_status(
    mut job: Value,
    owned: &[Value],
    counts: &PodCounts,
    result: Option<JobResult>,
    now: &str,
) -> Value {
    let active = owned.iter().filter(|pod| pods::is_active(pod)).count();
    let ready = owned.iter().filter(|pod| pods::is_active(pod) && pods::is_ready(pod)).count();
    let terminating = owned.iter().filter(|pod| pods::is_terminating(pod) && !pods::is_finished(pod)).count();
    let before = job["status"].clone();
    let mut status = json!({
        "ready": ready, "terminating": terminating, "uncountedTerminatedPods": {}, "conditions": before["conditions"],
    });
    let suspended = job["spec"]["suspend"] == true;
    match &before["startTime"] {
        Value::Null if !suspended => status["startTime"] = json!(now),
        Value::Null => {}
        start => status["startTime"] = start.clone(),
    }
    if active > 0 {
        status["active"] = json!(active);
    }
    for (field, value) in [("succeeded", counts.succeeded), ("failed", counts.failed)] {
        if value > 0 {
            status[field] = json!(value);
        }
    }
    if status["conditions"].is_null() {
        status.as_object_mut().map(|fields| fields.remove("conditions"));
    }
    job["status"] = status;
    let mut put_condition = |kind: &str, truth: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": kind, "status": truth, "reason": reason, "message": message,
            "lastProbeTime": now, "lastTransitionTime": now,
        });
        set_condition(&mut job, condition);
    };
    match result {
        None if suspended => put_condition("Suspended", "True", "JobSuspended", "Job suspended"),
        None => {}
        Some(JobResult::Complete) => {
            let message = "Reached expected number of succeeded pods";
            put_condition("SuccessCriteriaMet", "True", "CompletionsReached", message);
            put_condition("Complete", "True", "CompletionsReached", message);
            fields::set(&mut job, &["status", "completionTime"], json!(now));
        }
        Some(JobResult::BackoffLimitExceeded) => {
            let message = "Job has reached the specified backoff limit";
            put_condition("FailureTarget", "True", "BackoffLimitExceeded", message);
            put_condition("Failed", "True", "BackoffLimitExceeded", message);
        }
        Some(JobResult::DeadlineExceeded) => {
            let message = "Job was active longer than specified deadline";
            put_condition("FailureTarget", "True", "DeadlineExceeded", message);
            // The job has failed only when the last of its pods is gone.
            if active == 0 && terminating == 0 {
                put_condition("Failed", "True", "DeadlineExceeded", message);
            }
        }
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_runs_until_enough_have_succeeded_or_too_many_failed() {
        let job = json!({"spec": {"completions": 3, "parallelism": 2, "backoffLimit": 1}});
        let check = |succeeded, failed, active, desired, result| {
            let counts = PodCounts { succeeded, failed, active };
            assert_eq!((counts.desired(&job), counts.outcome(&job)), (desired, result));
        };
        check(0, 0, 0, 2, None);
        check(2, 1, 1, 1, None);
        check(3, 0, 0, 0, Some(JobResult::Complete));
        check(0, 2, 0, 2, Some(JobResult::BackoffLimitExceeded));
    }
}
