//! `kubernetes/job`: runs a Job until it finishes and keeps its log.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job as JobObject, JobSpec};
use k8s_openapi::api::core::v1::EnvVar;
use kubelink::job::{JobRequest, clean_up, run_job};
use kubelink::names::check_namespace;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::failure::still_waiting;
use super::with::{With, text};
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepContext, StepError, StepOutcome};
use crate::problem::Problem;

/// How much of a failed Job's log is part of the error message.
const LOG_EXCERPT_MAX: usize = 2048;

/// What a finished Job leaves: that there is something tells its undo that the Job has run.
#[derive(Serialize)]
struct JobMemory {
    job: String,
}

#[derive(Debug)]
pub(super) struct Job {
    namespace: String,
    spec: JobSpec,
}

impl Job {
    pub(super) fn read(with: &mut With<'_>) -> Result<Job, Problem> {
        let manifest = with.member("manifest", Job::sample(), |value| Job::of_manifest(value.clone()))?;
        let (namespace, image) = (with.namespace()?, with.text("image")?.filter(|image| !image.is_empty()));
        let (command, args) = (with.texts("command")?, with.texts("args")?);
        let env = with.member("env", Vec::new(), env)?;
        let account = with.name("serviceAccount")?;
        if let Some(job) = manifest {
            let either = with.is_template("manifest") || with.is_template("image");
            return match image {
                Some(_) if !either => Err(with.problem("image", "manifest and image exclude each other")),
                _ => Ok(job),
            };
        }
        let namespace = with.required("namespace", namespace)?;
        let image = with.required("image", image)?;
        let mut request = JobRequest::of_image("", "", &namespace, &image, &[]);
        if let Some(pod) = &mut request.spec.template.spec {
            pod.service_account_name = account;
            for container in &mut pod.containers {
                (container.command, container.args, container.env) =
                    (command.clone(), args.clone(), env.clone());
            }
        }
        Ok(Job { namespace, spec: request.spec })
    }

    fn sample() -> Job {
        Job { namespace: "sample".to_owned(), spec: JobSpec::default() }
    }

    /// A Job as an object, or as YAML text; its name is replaced.
    fn of_manifest(value: Value) -> Result<Job, String> {
        let value = match value {
            Value::String(yaml) => serde_saphyr::from_str(&yaml).map_err(|_| "it is not YAML".to_owned())?,
            value => value,
        };
        let is = |member: &str, wanted: &str| value.get(member).and_then(Value::as_str) == Some(wanted);
        if !is("apiVersion", "batch/v1") || !is("kind", "Job") {
            return Err("a Job of batch/v1 is expected".to_owned());
        }
        let job: JobObject = typed(value, "a Job")?;
        let namespace = job.metadata.namespace.unwrap_or_else(|| "default".to_owned());
        check_namespace(&namespace)?;
        let spec = job.spec.ok_or_else(|| "it has no spec".to_owned())?;
        Ok(Job { namespace, spec })
    }

    fn request(&self, cx: &ClusterContext, step: &StepContext) -> JobRequest {
        JobRequest {
            run: cx.run(step),
            title: step.step.to_string(),
            namespace: self.namespace.clone(),
            spec: self.spec.clone(),
        }
    }

    pub(super) async fn poll(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        limit: Duration,
    ) -> Result<PollStatus, StepError> {
        let request = self.request(cx, step);
        let ended = match run_job(&cx.link, &request, limit, &cx.progress(step)).await {
            Ok(ended) => ended,
            Err(error) => return still_waiting(error),
        };
        let job = format!("Job {}/{}", self.namespace, ended.name);
        let (log, missing) = match ended.log {
            Ok(log) => (Some(log), String::new()),
            Err(why) => (None, format!("; its log is not there: {why}")),
        };
        match ended.result {
            Ok(()) => {
                let outcome = StepOutcome::with_message(format!("{job} succeeded{missing}"));
                let memory = JobMemory { job: ended.name };
                Ok(PollStatus::Done(StepOutcome { log, ..outcome }.with_memory(&memory)))
            }
            Err(why) => {
                let last =
                    log.as_deref().map(|log| format!("; its log ends: {}", end_of(log))).unwrap_or_default();
                let message = format!("{job} failed: {why}{missing}{last}");
                Err(StepError::terminal("JobFailed", message).with_log(log))
            }
        }
    }

    /// Stops a running Job. A finished one keeps its effects.
    pub(super) async fn undo(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        memory: &Value,
    ) -> Result<Option<String>, StepError> {
        if !memory.is_null() {
            return Ok(None);
        }
        let request = self.request(cx, step);
        clean_up(&cx.link, &request, &cx.progress(step)).await?;
        Ok(Some(format!("Job {}/{} stopped", self.namespace, request.name())))
    }
}

/// Environment variables, by name or as Kubernetes lists them.
fn env(value: &Value) -> Result<Vec<EnvVar>, String> {
    fn named(members: &Map<String, Value>) -> Result<Vec<EnvVar>, String> {
        let variable = |(name, value): (&String, &Value)| {
            let value = match value {
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                value => text(value).map_err(|why| format!("{name}: {why}"))?,
            };
            Ok(EnvVar { name: name.clone(), value: Some(value), ..EnvVar::default() })
        };
        members.iter().map(variable).collect()
    }
    match value {
        Value::Object(members) => named(members),
        Value::Array(_) => typed(value.clone(), "a list of variables"),
        _ => Err("names with their values are expected".to_owned()),
    }
}

/// An object of Kubernetes. The message of the parser quotes its input, which may contain a password: only the path is reported.
fn typed<T: DeserializeOwned>(value: Value, what: &str) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string().as_str() {
        "." => format!("it is not {what}"),
        path => format!("it is not {what}: {path} is not as Kubernetes has it"),
    })
}

fn end_of(log: &str) -> &str {
    let from = log.len().saturating_sub(LOG_EXCERPT_MAX);
    let from = (from..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
    log[from..].trim()
}
