//! Cron jobs: create a job whenever the schedule is due, and keep a limited history of finished jobs.

use api::calendar::Zone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::context::{ControllerContext, key};
use super::work_items::WorkItem;
use super::{job, pods};
use crate::cron::CronSchedule;
use crate::events::{EventSource, Severity};
use crate::fields;
use crate::state::time;
use crate::status::ApiResult;
use crate::verbs::Propagation;

const SOURCE: EventSource<'static> = EventSource::Controller("cronjob-controller");

pub(super) fn reconcile(context: &mut ControllerContext<'_>, at: &str) -> ApiResult<()> {
    let (kind, job_kind) = (
        ControllerContext::built_in_kind("batch", "CronJob")?,
        ControllerContext::built_in_kind("batch", "Job")?,
    );
    let Some(before) = context.read(kind, at) else { return Ok(()) };
    let uid = before["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let jobs = context.controlled(job_kind, &uid);
    let mut cron = before.clone();
    delete_old_jobs(context, &cron, &jobs)?;
    update_active(context, &mut cron, &jobs);
    let decision = decide(&cron, context.now);
    let started = match decision.due {
        Some(due) => start(context, &mut cron, due),
        None => Ok(()),
    };
    if let Some(next) = decision.next {
        context.later.push((next, WorkItem::CronJob(at.into())));
    }
    if cron["status"] != before["status"] {
        context.update_status(kind, cron)?;
    }
    started
}

/// What the schedule asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Decision {
    /// The latest time that has come and has no job yet.
    due: Option<Timestamp>,
    /// When to look again.
    next: Option<Timestamp>,
}

fn decide(cron: &Value, now: Timestamp) -> Decision {
    let spec = &cron["spec"];
    if !cron["metadata"]["deletionTimestamp"].is_null() || spec["suspend"] == true {
        return Decision::default();
    }
    let zone = match spec["timeZone"].as_str() {
        Some(name) => Zone::named(name),
        None => Some(Zone::UTC),
    };
    let (Some(zone), Ok(schedule)) =
        (zone, CronSchedule::parse(spec["schedule"].as_str().unwrap_or_default()))
    else {
        return Decision::default();
    };
    let instant = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let Some(start) = instant(&cron["status"]["lastScheduleTime"])
        .or_else(|| instant(&cron["metadata"]["creationTimestamp"]))
    else {
        return Decision::default();
    };
    let deadline = spec["startingDeadlineSeconds"].as_i64().map(SignedDuration::from_secs);
    let earliest =
        deadline.and_then(|deadline| now.checked_sub(deadline).ok()).map_or(start, |at| at.max(start));
    // An interval is counted from the last run, whatever the deadline.
    let missed = schedule.last(start, now, &zone);
    let next =
        schedule.next(missed.filter(|_| matches!(schedule, CronSchedule::Every(_))).unwrap_or(now), &zone);
    Decision { due: missed.filter(|at| *at > earliest), next }
}

/// Starts the job of a time, as the concurrency policy allows.
fn start(context: &mut ControllerContext<'_>, cron: &mut Value, due: Timestamp) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("batch", "Job")?;
    let active = cron["status"]["active"].as_array().cloned().unwrap_or_default();
    match cron["spec"]["concurrencyPolicy"].as_str() {
        Some("Forbid") if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            context.record(SOURCE, cron, Severity::Normal, "JobAlreadyActive", message);
            return Ok(());
        }
        Some("Replace") => {
            for running in &active {
                let namespace = running["namespace"].as_str().unwrap_or_default();
                let name = running["name"].as_str().unwrap_or_default();
                delete_job(context, cron, &format!("{namespace}/{name}"))?;
            }
            set_active(cron, Vec::new());
        }
        _ => {}
    }
    let namespace = cron["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let object = job_at(cron, due);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let created = match context.create(kind, &namespace, object) {
        Ok(created) => {
            let message = format!("Created job {name}");
            context.record(SOURCE, cron, Severity::Normal, "SuccessfulCreate", &message);
            created.value()
        }
        // An earlier attempt created it, but its status was not written.
        Err(failure) if failure.code == 409 => match context.read(kind, &format!("{namespace}/{name}")) {
            Some(found) if is_controlled_by(&found, cron) => found,
            _ => return Ok(()),
        },
        Err(failure) => {
            let message = format!("Error creating job: {}", failure.message);
            context.record(SOURCE, cron, Severity::Warning, "FailedCreate", &message);
            return Err(failure);
        }
    };
    let metadata = &created["metadata"];
    let reference = json!({
        "kind": "Job", "apiVersion": "batch/v1", "namespace": namespace, "name": name, "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    });
    let mut active = cron["status"]["active"].as_array().cloned().unwrap_or_default();
    active.push(reference);
    set_active(cron, active);
    fields::set(cron, &["status", "lastScheduleTime"], json!(time(due)));
    Ok(())
}

fn is_controlled_by(job: &Value, cron: &Value) -> bool {
    let owners = job["metadata"]["ownerReferences"].as_array();
    owners
        .into_iter()
        .flatten()
        .any(|owner| owner["controller"] == true && owner["uid"] == cron["metadata"]["uid"])
}

/// The job of a scheduled time; the name makes it unique.
fn job_at(cron: &Value, due: Timestamp) -> Value {
    let template = &cron["spec"]["jobTemplate"];
    let name = cron["metadata"]["name"].as_str().unwrap_or_default();
    let mut job = json!({
        "metadata": {
            "name": format!("{name}-{}", due.as_second() / 60), "ownerReferences": [pods::controller(cron)],
        },
        "spec": template["spec"],
    });
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            fields::set(&mut job, &["metadata", field], template["metadata"][field].clone());
        }
    }
    let zone = cron["spec"]["timeZone"].as_str().and_then(Zone::named).unwrap_or(Zone::UTC);
    let local = due.to_zoned(zone.time_zone().clone());
    let text = match local.offset().seconds() {
        0 => local.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        _ => local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    };
    let annotation = "batch.kubernetes.io/cronjob-scheduled-timestamp";
    fields::set(&mut job, &["metadata", "annotations", annotation], json!(text));
    job
}

/// Removes finished and missing jobs from the list of active ones, and notes the last success.
fn update_active(context: &mut ControllerContext<'_>, cron: &mut Value, jobs: &[Value]) {
    let mut active = Vec::new();
    for reference in cron["status"]["active"].as_array().cloned().unwrap_or_default() {
        let name = reference["name"].as_str().unwrap_or_default();
        let found = jobs.iter().find(|job| job["metadata"]["uid"] == reference["uid"]);
        match found.map(job::finished_condition) {
            Some(None) => active.push(reference),
            Some(Some(condition)) => {
                let condition = condition["type"].as_str().unwrap_or_default();
                let message = format!("Saw completed job: {name}, condition: {condition}");
                context.record(SOURCE, cron, Severity::Normal, "SawCompletedJob", &message);
            }
            None => {
                let message = format!("Active job went missing: {name}");
                context.record(SOURCE, cron, Severity::Normal, "MissingJob", &message);
            }
        }
    }
    set_active(cron, active);
    let completed = jobs.iter().filter_map(|job| job["status"]["completionTime"].as_str());
    let last = cron["status"]["lastSuccessfulTime"].as_str();
    // Times in this form are in the order of their text.
    if let Some(newest) = completed.chain(last).max().map(str::to_owned) {
        fields::set(cron, &["status", "lastSuccessfulTime"], json!(newest));
    }
}

fn set_active(cron: &mut Value, active: Vec<Value>) {
    if !active.is_empty() {
        fields::set(cron, &["status", "active"], Value::Array(active));
    } else if let Some(status) = cron["status"].as_object_mut() {
        status.remove("active");
    }
}

/// Deletes the oldest finished jobs beyond the limits of the history.
fn delete_old_jobs(context: &mut ControllerContext<'_>, cron: &Value, jobs: &[Value]) -> ApiResult<()> {
    for (outcome, limit) in [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")]
    {
        let Some(limit) = cron["spec"][limit].as_i64() else { continue };
        for surplus in surplus(jobs, outcome, usize::try_from(limit).unwrap_or(0)) {
            delete_job(context, cron, &surplus)?;
        }
    }
    Ok(())
}

/// The keys of the oldest jobs with this outcome beyond the limit.
fn surplus(jobs: &[Value], outcome: &str, limit: usize) -> Vec<String> {
    let has_outcome =
        |job: &&Value| job::finished_condition(job).is_some_and(|condition| condition["type"] == outcome);
    let mut finished: Vec<&Value> = jobs.iter().filter(has_outcome).collect();
    finished.sort_by_key(|job| (job["status"]["startTime"].to_string(), job["metadata"]["name"].to_string()));
    let count = finished.len().saturating_sub(limit);
    finished.into_iter().take(count).map(key).collect()
}

fn delete_job(context: &mut ControllerContext<'_>, cron: &Value, at: &str) -> ApiResult<()> {
    let kind = ControllerContext::built_in_kind("batch", "Job")?;
    context.delete(kind, at, Propagation::Background)?;
    let message = format!("Deleted job {}", at.split_once('/').map_or(at, |(_, name)| name));
    context.record(SOURCE, cron, Severity::Normal, "SuccessfulDelete", &message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn cron(spec: Value) -> Value {
        let mut cron = json!({
            "metadata": {"name": "tick", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:30Z"},
            "spec": {"schedule": "*/5 * * * *"},
        });
        for (field, value) in spec.as_object().unwrap() {
            cron["spec"][field] = value.clone();
        }
        cron
    }

    #[test]
    fn a_job_is_due_at_the_latest_scheduled_time_since_the_last_one() {
        let check = |cron: &Value, now: &str, due: Option<&str>, next: Option<&str>| {
            let expect = Decision { due: due.map(at), next: next.map(at) };
            assert_eq!(decide(cron, at(now)), expect, "{now}: {cron}");
        };
        let plain = cron(json!({}));
        check(&plain, "2026-01-01T00:04:59Z", None, Some("2026-01-01T00:05:00Z"));
        check(&plain, "2026-01-01T00:05:00Z", Some("2026-01-01T00:05:00Z"), Some("2026-01-01T00:10:00Z"));
        check(&plain, "2026-01-01T07:12:00Z", Some("2026-01-01T07:10:00Z"), Some("2026-01-01T07:15:00Z"));
        let mut started = plain;
        started["status"] = json!({"lastScheduleTime": "2026-01-01T00:05:00Z"});
        check(&started, "2026-01-01T00:09:00Z", None, Some("2026-01-01T00:10:00Z"));
        let late = cron(json!({"startingDeadlineSeconds": 60}));
        check(&late, "2026-01-01T00:07:00Z", None, Some("2026-01-01T00:10:00Z"));
        check(&cron(json!({"suspend": true})), "2026-01-01T00:07:00Z", None, None);
        check(&cron(json!({"schedule": "nonsense"})), "2026-01-01T00:07:00Z", None, None);
        let interval = cron(json!({"schedule": "@every 2m"}));
        check(&interval, "2026-01-01T00:05:00Z", Some("2026-01-01T00:04:30Z"), Some("2026-01-01T00:06:30Z"));
    }

    #[test]
    fn a_job_is_named_after_its_scheduled_time() {
        let job = job_at(&cron(json!({"timeZone": "Europe/Berlin"})), at("2026-01-01T00:05:00Z"));
        assert_eq!(job["metadata"]["name"], "tick-29453765");
        let annotation = "batch.kubernetes.io/cronjob-scheduled-timestamp";
        assert_eq!(job["metadata"]["annotations"][annotation], "2026-01-01T01:05:00+01:00");
    }

    #[test]
    fn the_oldest_finished_jobs_beyond_the_limit_are_deleted() {
        let job = |name: &str, outcome: &str| {
            json!({
                "metadata": {"namespace": "ns", "name": name},
                "status": {"startTime": format!("2026-01-01T00:0{}:00Z", &name[1..]),
                           "conditions": [{"type": outcome, "status": "True"}]},
            })
        };
        let jobs = [job("j3", "Complete"), job("j1", "Complete"), job("j2", "Failed"), job("j4", "Complete")];
        assert_eq!(surplus(&jobs, "Complete", 1), ["ns/j1", "ns/j3"]);
        assert_eq!(surplus(&jobs, "Failed", 1), Vec::<String>::new());
    }
}
