//! Jobs: pods until enough of them have succeeded, or too many have failed.

use serde_json::{Value, json};

use super::desk::{Desk, key};
use super::pods;
use super::tasks::Task;
use crate::fields;
use crate::state::time;
use crate::status::Outcome;
use crate::verbs::{DeleteOptions, Propagation, set_condition};

pub(super) fn reconcile(desk: &mut Desk<'_>, at: &str) -> Outcome<()> {
    let (kind, pod_kind) = (Desk::kind("batch", "Job")?, Desk::kind("", "Pod")?);
    let Some(job) = desk.read(kind, at) else { return Ok(()) };
    if !job["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    if let Some(end) = finished(&job) {
        let lives_on = job["spec"]["ttlSecondsAfterFinished"].as_i64();
        if let Some(seconds) = lives_on
            && desk.has_passed(end, seconds, Task::Job(at.into()))
        {
            desk.delete(kind, at, Propagation::Foreground)?;
        }
        return Ok(());
    }
    let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let namespace = job["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let owned = desk.controlled(pod_kind, &uid);
    let counted = Counted::of(&job, &owned);
    let limit = job["spec"]["activeDeadlineSeconds"].as_i64().filter(|_| job["spec"]["suspend"] != true);
    let is_late = limit
        .is_some_and(|seconds| desk.has_passed(&job["status"]["startTime"], seconds, Task::Job(at.into())));
    let outcome = if is_late { Some(Ended::DeadlineExceeded) } else { counted.outcome(&job) };
    let active: Vec<&Value> = owned.iter().filter(|pod| pods::is_active(pod)).collect();
    let wanted = match outcome {
        Some(_) => 0,
        None => counted.wanted(&job),
    };
    let present = i64::try_from(active.len()).unwrap_or(i64::MAX);
    for _ in present..wanted {
        let mut pod = pods::from_template(&job);
        fields::set(&mut pod, &["metadata", "labels", "batch.kubernetes.io/controller-uid"], json!(uid));
        desk.create(pod_kind, &namespace, pod)?;
    }
    for pod in active.iter().skip(usize::try_from(wanted).unwrap_or(0)) {
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        desk.delete_with(pod_kind, &key(pod), options)?;
    }
    let owned = desk.controlled(pod_kind, &uid);
    let Some(job) = desk.read(kind, at) else { return Ok(()) };
    let told = report(job, &owned, &counted, outcome, &time(desk.now));
    desk.update_status(kind, told)
}

/// When a job came to its end, if it has.
fn finished(job: &Value) -> Option<&Value> {
    let conditions = ["Complete", "Failed"].iter().filter_map(|kind| pods::condition(job, kind));
    let mut ends = conditions.filter(|condition| condition["status"] == "True");
    ends.next().map(|condition| &condition["lastTransitionTime"])
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Complete,
    BackoffLimitExceeded,
    DeadlineExceeded,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    succeeded: i64,
    failed: i64,
    active: i64,
}

impl Counted {
    /// What has ended stays counted, even if its pod is gone.
    fn of(job: &Value, owned: &[Value]) -> Counted {
        let phase = |wanted: &str| {
            let count = owned.iter().filter(|pod| pod["status"]["phase"] == wanted).count();
            i64::try_from(count).unwrap_or(i64::MAX)
        };
        let before = |field: &str| job["status"][field].as_i64().unwrap_or(0);
        let active = owned.iter().filter(|pod| pods::is_active(pod)).count();
        Counted {
            succeeded: phase("Succeeded").max(before("succeeded")),
            failed: phase("Failed").max(before("failed")),
            active: i64::try_from(active).unwrap_or(i64::MAX),
        }
    }

    fn outcome(self, job: &Value) -> Option<Ended> {
        if self.failed > job["spec"]["backoffLimit"].as_i64().unwrap_or(6) {
            return Some(Ended::BackoffLimitExceeded);
        }
        let complete = match job["spec"]["completions"].as_i64() {
            Some(completions) => self.succeeded >= completions,
            None => self.succeeded > 0 && self.active == 0,
        };
        complete.then_some(Ended::Complete)
    }

    fn wanted(self, job: &Value) -> i64 {
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

fn report(mut job: Value, owned: &[Value], counted: &Counted, ended: Option<Ended>, now: &str) -> Value {
    let active = owned.iter().filter(|pod| pods::is_active(pod)).count();
    let ready = owned.iter().filter(|pod| pods::is_active(pod) && pods::is_ready(pod)).count();
    let terminating = owned.iter().filter(|pod| pods::is_ending(pod) && !pods::has_ended(pod)).count();
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
    for (field, value) in [("succeeded", counted.succeeded), ("failed", counted.failed)] {
        if value > 0 {
            status[field] = json!(value);
        }
    }
    if status["conditions"].is_null() {
        status.as_object_mut().map(|fields| fields.remove("conditions"));
    }
    job["status"] = status;
    let mut say = |kind: &str, truth: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": kind, "status": truth, "reason": reason, "message": message,
            "lastProbeTime": now, "lastTransitionTime": now,
        });
        set_condition(&mut job, condition);
    };
    match ended {
        None if suspended => say("Suspended", "True", "JobSuspended", "Job suspended"),
        None => {}
        Some(Ended::Complete) => {
            let message = "Reached expected number of succeeded pods";
            say("SuccessCriteriaMet", "True", "CompletionsReached", message);
            say("Complete", "True", "CompletionsReached", message);
            fields::set(&mut job, &["status", "completionTime"], json!(now));
        }
        Some(Ended::BackoffLimitExceeded) => {
            let message = "Job has reached the specified backoff limit";
            say("FailureTarget", "True", "BackoffLimitExceeded", message);
            say("Failed", "True", "BackoffLimitExceeded", message);
        }
        Some(Ended::DeadlineExceeded) => {
            let message = "Job was active longer than specified deadline";
            say("FailureTarget", "True", "DeadlineExceeded", message);
            // It has failed when the last of its pods is gone.
            if active == 0 && terminating == 0 {
                say("Failed", "True", "DeadlineExceeded", message);
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
        let check = |succeeded, failed, active, wanted, ended| {
            let counted = Counted { succeeded, failed, active };
            assert_eq!((counted.wanted(&job), counted.outcome(&job)), (wanted, ended));
        };
        check(0, 0, 0, 2, None);
        check(2, 1, 1, 1, None);
        check(3, 0, 0, 0, Some(Ended::Complete));
        check(0, 2, 0, 2, Some(Ended::BackoffLimitExceeded));
    }
}
