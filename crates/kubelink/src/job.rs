//! Runs a Job until it finishes, and keeps its log.
//!
//! The Job's name is derived from the run's id, so that a repeated call, by this process or another, finds the Job of the first
//! call and waits for it instead of running it twice.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::AsyncReadExt;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec, PodTemplateSpec};
use kube::api::{ListParams, LogParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use sha2::{Digest, Sha256};

use crate::delete::{DeleteOptions, delete};
use crate::error::{Failure, LinkError, error_chain};
use crate::link::{FIELD_MANAGER, Link};
use crate::progress::ProgressSink;
use crate::target::Target;
use crate::wait::{ObjectSelection, WaitStatus, wait};

/// Label of a Job with the run's id, as a digest.
pub const RUN: &str = "shipshape.dev/run";
/// How much of the log is kept: its end.
pub const LOG_MAX: usize = 64 * 1024;
/// How much of the log is read to find its end; kubelets rotate at 10 MiB.
const LOG_READ_MAX: usize = 32 * 1024 * 1024;
/// Time after which Kubernetes deletes a finished Job that was not cleaned up.
const TTL_SECONDS: i32 = 24 * 60 * 60;

/// A Job to run.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRequest {
    /// Stable across retries: the same run never runs twice while its Job exists.
    pub run: String,
    /// Prefix of the Job's name, for people.
    pub title: String,
    /// Namespace of the Job.
    pub namespace: String,
    /// The Job itself; its name is replaced.
    pub spec: JobSpec,
}

impl JobRequest {
    /// One container, run once.
    pub fn of_image(run: &str, title: &str, namespace: &str, image: &str, command: &[&str]) -> JobRequest {
        let command = (!command.is_empty()).then(|| command.iter().map(ToString::to_string).collect());
        let container =
            Container { name: "job".into(), image: Some(image.into()), command, ..Container::default() };
        let pod = PodSpec {
            containers: vec![container],
            restart_policy: Some("Never".into()),
            ..PodSpec::default()
        };
        let template = PodTemplateSpec { spec: Some(pod), ..PodTemplateSpec::default() };
        let spec = JobSpec { template, backoff_limit: Some(0), ..JobSpec::default() };
        JobRequest { run: run.into(), title: title.into(), namespace: namespace.into(), spec }
    }

    /// Sets an environment variable in every container.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> JobRequest {
        let variable = EnvVar { name: name.into(), value: Some(value.into()), ..EnvVar::default() };
        for container in self.spec.template.spec.iter_mut().flat_map(|pod| pod.containers.iter_mut()) {
            container.env.get_or_insert_default().push(variable.clone());
        }
        self
    }

    /// The Job's name: the title and the run's digest, at most 63 characters as labels of pods require.
    pub fn name(&self) -> String {
        let title: String = self
            .title
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let title = title.trim_matches('-');
        let title = title.get(..title.len().min(40)).unwrap_or_default().trim_end_matches('-');
        let title = if title.is_empty() { "job" } else { title };
        format!("{title}-{}", &self.digest()[..16])
    }

    fn digest(&self) -> String {
        Sha256::digest(self.run.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    fn job(&self) -> Job {
        let labels = BTreeMap::from([(RUN.to_owned(), self.digest())]);
        let metadata = ObjectMeta {
            name: Some(self.name()),
            namespace: Some(self.namespace.clone()),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        let mut spec = self.spec.clone();
        spec.ttl_seconds_after_finished.get_or_insert(TTL_SECONDS);
        Job { metadata, spec: Some(spec), status: None }
    }
}

/// Result of a Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// The Job's name.
    pub name: String,
    /// `Ok`, or why it failed.
    pub result: Result<(), String>,
    /// The end of the last pod's log, or why there is none.
    pub log: Result<String, String>,
}

/// Runs the Job, or continues with the one that this run started, and waits until it finishes. A failed Job is a result, not an
/// error.
pub async fn run_job(
    link: &Link,
    request: &JobRequest,
    limit: Duration,
    progress: &ProgressSink,
) -> Result<JobOutcome, LinkError> {
    let name = request.name();
    let target = Target::typed::<Job>(Some(&request.namespace), &name);
    let jobs: Api<Job> = Api::namespaced(link.client(), &request.namespace);
    ensure(link, &jobs, request, &target).await?;
    let which = ObjectSelection::Named(name.clone());
    let result = wait(link, jobs, &which, &target.to_string(), limit, progress, judge).await?;
    let log = last_log(link, &request.namespace, &name).await.map_err(|error| error_chain(&error));
    Ok(JobOutcome { name, result, log })
}

/// Deletes the run's Job and its pods when they are no longer needed: a repeated run would run it again.
pub async fn clean_up(link: &Link, request: &JobRequest, progress: &ProgressSink) -> Result<(), LinkError> {
    let target = Target::typed::<Job>(Some(&request.namespace), &request.name());
    let options = DeleteOptions { wait: None, ..DeleteOptions::default() };
    delete(link, &target, &options, progress).await.map(drop)
}

async fn ensure(
    link: &Link,
    jobs: &Api<Job>,
    request: &JobRequest,
    target: &Target,
) -> Result<(), LinkError> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let made = jobs.create(&params, &request.job()).await.map_err(|error| link.failed("run", target, error));
    match made {
        Ok(_) => return Ok(()),
        Err(error) if matches!(error.failure, Failure::AlreadyExists { .. }) => {}
        Err(error) => return Err(error),
    }
    let found = jobs.get(&target.name).await.map_err(|error| link.failed("read", target, error))?;
    if found.labels().get(RUN) == Some(&request.digest()) {
        return Ok(());
    }
    let why = "a Job of that name exists and is not this run's".to_owned();
    Err(link.error("run", target, Failure::Precondition { why }))
}

fn judge(jobs: &[&Job]) -> WaitStatus<Result<(), String>> {
    let Some(job) = jobs.first() else {
        return WaitStatus::Impossible("it was deleted before it finished".to_owned());
    };
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let is = |type_: &str| {
        conditions.iter().find(|condition| condition.type_ == type_ && condition.status == "True")
    };
    if is("Complete").is_some() {
        return WaitStatus::Done(Ok(()));
    }
    if let Some(failed) = is("Failed") {
        let reason = failed.reason.as_deref().unwrap_or("Failed");
        let message = failed.message.as_deref().unwrap_or("no reason given");
        return WaitStatus::Done(Err(format!("{reason}: {message}")));
    }
    let count = |count: Option<i32>| count.unwrap_or(0);
    let (active, ready, failed) = (count(status.active), count(status.ready), count(status.failed));
    WaitStatus::Waiting(format!("it to finish: {active} pods active, {ready} ready, {failed} failed"))
}

/// The end of the log of the Job's last pod.
async fn last_log(link: &Link, namespace: &str, job: &str) -> Result<String, LinkError> {
    let pods: Api<Pod> = Api::namespaced(link.client(), namespace);
    let label = format!("the log of Job {namespace}/{job}");
    let params = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let found = pods.list(&params).await.map_err(|error| link.failed("read", &label, error))?;
    let last = found.items.iter().max_by_key(|pod| (pod.creation_timestamp(), pod.name_any()));
    let Some(last) = last else {
        let why = "it has no pods any more".to_owned();
        return Err(link.error("read", &label, Failure::Precondition { why }));
    };
    let container =
        last.spec.as_ref().and_then(|spec| spec.containers.first()).map(|container| container.name.clone());
    let params = LogParams { container, ..LogParams::default() };
    let stream = pods
        .log_stream(&last.name_any(), &params)
        .await
        .map_err(|error| link.failed("read", &label, error))?;
    let mut stream = std::pin::pin!(stream);
    let mut tail = Tail::default();
    let mut chunk = vec![0; 16 * 1024];
    while tail.seen < LOG_READ_MAX {
        match stream.read(&mut chunk).await {
            Ok(0) => break,
            Ok(count) => tail.take(&chunk[..count]),
            // Keep what was read before the connection was lost.
            Err(_) => break,
        }
    }
    Ok(tail.text())
}

/// Keeps the last [`LOG_MAX`] bytes of its input.
#[derive(Default)]
struct Tail {
    kept: Vec<u8>,
    seen: usize,
}

impl Tail {
    fn take(&mut self, bytes: &[u8]) {
        self.seen += bytes.len();
        self.kept.extend_from_slice(bytes);
        if self.kept.len() > 2 * LOG_MAX {
            self.kept.drain(..self.kept.len() - LOG_MAX);
        }
    }

    /// Whole lines, if some had to be left out.
    fn text(mut self) -> String {
        if self.seen <= LOG_MAX {
            return String::from_utf8_lossy(&self.kept).into_owned();
        }
        let from = self.kept.len().saturating_sub(LOG_MAX);
        self.kept.drain(..from);
        let line = self.kept.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let kept = String::from_utf8_lossy(&self.kept[line..]).into_owned();
        format!("... {} bytes before this are left out ...\n{kept}", self.seen - (self.kept.len() - line))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_is_derived_from_the_run() {
        let named = |run: &str, title: &str| JobRequest::of_image(run, title, "x", "i", &[]).name();
        assert_eq!(named("r1", "Rotate certs!"), named("r1", "Rotate certs!"));
        assert_ne!(named("r1", "t"), named("r2", "t"));
        assert!(
            named("r1", "Rotate certs!").starts_with("rotate-certs-"),
            "{}",
            named("r1", "Rotate certs!")
        );
        assert!(named("r", "").starts_with("job-"));
    }

    #[test]
    fn a_job_finishes_by_its_conditions() {
        let job =
            |status: serde_json::Value| -> Job { serde_json::from_value(json!({"status": status})).unwrap() };
        let check = |status, expect| assert_eq!(judge(&[&job(status)]), expect);
        check(json!({"conditions": [{"type": "Complete", "status": "True"}]}), WaitStatus::Done(Ok(())));
        let failed = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}]});
        check(failed, WaitStatus::Done(Err("BackoffLimitExceeded: too often".into())));
        check(
            json!({"active": 1}),
            WaitStatus::Waiting("it to finish: 1 pods active, 0 ready, 0 failed".into()),
        );
        assert_eq!(judge(&[]), WaitStatus::Impossible("it was deleted before it finished".into()));
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_an_api_server_accepts(run: String, title: String) {
            let name = JobRequest::of_image(&run, &title, "x", "i", &[]).name();
            prop_assert!(name.len() <= 63 && name.starts_with(|c: char| c.is_ascii_alphanumeric()), "{name}");
            prop_assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
        }

        #[test]
        fn a_tail_is_bounded_and_ends_as_the_whole(sizes in proptest::collection::vec(0usize..50_000, 0..8)) {
            let whole: Vec<u8> = (b'a'..=b'z').cycle().take(sizes.iter().sum()).collect();
            let mut rest = whole.as_slice();
            let chunks: Vec<&[u8]> = sizes.iter().map(|size| rest.split_off(..*size).unwrap()).collect();
            let mut tail = Tail::default();
            chunks.iter().for_each(|chunk| tail.take(chunk));
            let text = tail.text();
            prop_assert!(text.len() <= LOG_MAX + 100);
            let last = &whole[whole.len().saturating_sub(LOG_MAX)..];
            prop_assert!(text.as_bytes().ends_with(last));
        }
    }
}
