//! `rotate-tls-secret`: puts a new certificate and key into a TLS Secret, from another Secret of the same cluster.
//!
//! The parameters reference the key and never contain it, because many can read manifests, their history and the audit log. A
//! backup of the previous pair stays in the cluster until the end, so that an undo can restore it. See
//! `docs/decisions/0008-state-of-built-in-tasks.md`.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use kubelink::certificate::{ServerCertificate, pair};
use kubelink::delete::{DeleteOptions, delete};
use kubelink::link::FIELD_MANAGER;
use kubelink::patch::{Change, patch};
use kubelink::rollout::{Workload, restart, rollout};
use kubelink::{Failure, LinkError, Target};
use planner::task::TaskProblem;
use planner::task::builtin::rotate_tls_secret::{
    RotateTlsSecretParameters, STEPS, SecretRef, WorkloadKind, WorkloadRef,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use steps::ClusterContext;
use steps::engine::{PollStatus, Step, StepContext, StepError, StepOutcome};
use steps::kinds::still_waiting;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Annotation of the backup Secret: the run that created it.
const BACKUP_OF_RUN: &str = "shipshape.dev/kept-by";
/// Duration of one poll of a rollout.
const ROLLOUT_POLL: Duration = Duration::from_secs(20);

/// The requests that a run makes about a Secret.
trait SecretRequests {
    /// The Secret, for messages.
    fn label(&self) -> String;
    fn api(&self, cx: &ClusterContext) -> Api<Secret>;
    async fn find(&self, cx: &ClusterContext) -> Result<Option<Secret>, StepError>;
    async fn get(&self, cx: &ClusterContext) -> Result<Secret, StepError>;
}

impl SecretRequests for SecretRef {
    fn label(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.name)
    }

    fn api(&self, cx: &ClusterContext) -> Api<Secret> {
        Api::namespaced(cx.link.client(), &self.namespace)
    }

    async fn find(&self, cx: &ClusterContext) -> Result<Option<Secret>, StepError> {
        let found = self.api(cx).get_opt(&self.name).await;
        Ok(found.map_err(|error| cx.link.failed("read", self.label(), error))?)
    }

    async fn get(&self, cx: &ClusterContext) -> Result<Secret, StepError> {
        let missing = || StepError::terminal("NotFound", format!("there is no {}", self.label()));
        self.find(cx).await?.ok_or_else(missing)
    }
}

/// One run of the task.
#[derive(Debug)]
struct Rotation {
    parameters: RotateTlsSecretParameters,
}

pub(super) fn steps(parameters: &Map<String, Value>) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let rotation = Arc::new(Rotation { parameters: RotateTlsSecretParameters::read(parameters)? });
    macro_rules! on {
        ($verb:ident) => {{
            let rotation = rotation.clone();
            move |cx: Arc<ClusterContext>, step: StepContext| {
                let rotation = rotation.clone();
                async move { rotation.$verb(&cx, &step).await }
            }
        }};
        ($verb:ident, undo) => {{
            let rotation = rotation.clone();
            move |cx: Arc<ClusterContext>, step: StepContext, _: Value| {
                let rotation = rotation.clone();
                async move { rotation.$verb(&cx, &step).await }
            }
        }};
    }
    Ok(vec![
        Step::action(STEPS[0], on!(check)),
        Step::action(STEPS[1], on!(back_up)).undo(on!(undo_back_up, undo)),
        Step::action(STEPS[2], on!(rotate)).undo(on!(restore, undo)),
        Step::wait(STEPS[3], Duration::from_secs(90 * 60), on!(restart)),
        Step::action(STEPS[4], on!(remove_backup)),
    ])
}

/// What the check leaves for the rotation.
#[derive(Serialize, Deserialize)]
struct CheckedCertificate {
    fingerprint: String,
}

impl Rotation {
    /// Secret with the previous certificate and key, until the run ends.
    fn backup(&self) -> SecretRef {
        SecretRef {
            namespace: self.parameters.target.namespace.clone(),
            name: format!("{}-before-rotation", self.parameters.target.name),
        }
    }

    /// The new certificate and key, after validation.
    async fn new_pair(
        &self,
        cx: &ClusterContext,
    ) -> Result<(ServerCertificate, ByteString, ByteString), StepError> {
        let source = self.parameters.source.get(cx).await?;
        let invalid = |cause: String| {
            StepError::terminal("BadCertificate", format!("{}: {cause}", self.parameters.source.label()))
        };
        let data = source.data.unwrap_or_default();
        let part = |name: &str| data.get(name).cloned().ok_or_else(|| invalid(format!("it has no {name}")));
        let (certificate, key) = (part(CERTIFICATE)?, part(KEY)?);
        let leaf = pair(&certificate.0, &key.0).map_err(|cause| invalid(cause.to_owned()))?;
        self.validate(&leaf, cx.clock.now()).map_err(invalid)?;
        Ok((leaf, certificate, key))
    }

    fn validate(&self, leaf: &ServerCertificate, now: jiff::Timestamp) -> Result<(), String> {
        let validity = &leaf.validity;
        if self.parameters.fingerprint.as_ref().is_some_and(|wanted| *wanted != leaf.fingerprint) {
            return Err(format!(
                "the fingerprint of its certificate is {}, not the one in the parameters",
                leaf.fingerprint
            ));
        }
        if validity.not_before > now {
            return Err(format!("its certificate is not valid before {}", validity.not_before));
        }
        let needed = now.saturating_add(SignedDuration::from_hours(24 * self.parameters.minimum_days));
        if needed.is_ok_and(|needed| validity.not_after < needed) {
            return Err(format!(
                "its certificate expires at {}, within {} days",
                validity.not_after, self.parameters.minimum_days
            ));
        }
        match self
            .parameters
            .dns_names
            .iter()
            .find(|name| !leaf.dns_names.iter().any(|pattern| covers(pattern, name)))
        {
            Some(missing) => Err(format!(
                "its certificate does not cover {missing}; it covers {}",
                leaf.dns_names.join(", ")
            )),
            None => Ok(()),
        }
    }

    async fn check(&self, cx: &ClusterContext, _: &StepContext) -> Result<StepOutcome, StepError> {
        let (leaf, _, _) = self.new_pair(cx).await?;
        self.parameters.target.get(cx).await?;
        let message = format!(
            "the certificate of {} is valid until {}",
            leaf.validity.subject, leaf.validity.not_after
        );
        let memory = CheckedCertificate { fingerprint: leaf.fingerprint };
        Ok(StepOutcome::with_message(message).with_memory(&memory))
    }

    async fn back_up(&self, cx: &ClusterContext, step: &StepContext) -> Result<StepOutcome, StepError> {
        let (backup, holder) = (self.backup(), cx.holder(step).id);
        let target = self.parameters.target.get(cx).await?;
        if let Some(found) = backup.find(cx).await? {
            match found.annotations().get(BACKUP_OF_RUN) {
                // Left by a run that was interrupted; its backup is older than the current pair.
                Some(other) if *other != holder => self.remove(cx, step).await?,
                Some(_) => {
                    return Ok(StepOutcome::with_message(format!(
                        "the previous certificate is backed up in {}",
                        backup.label()
                    )));
                }
                None => {
                    let message = format!(
                        "{} exists and is not a backup of this task; rename or delete it",
                        backup.label()
                    );
                    return Err(StepError::terminal("NameTaken", message));
                }
            }
        }
        let metadata = ObjectMeta {
            name: Some(backup.name.clone()),
            namespace: Some(backup.namespace.clone()),
            annotations: Some([(BACKUP_OF_RUN.to_owned(), holder)].into()),
            ..ObjectMeta::default()
        };
        let copy = Secret { metadata, data: target.data, ..Secret::default() };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let created = backup.api(cx).create(&params, &copy).await;
        created.map_err(|error| redacted(cx.link.failed("create", backup.label(), error)))?;
        Ok(StepOutcome::with_message(format!("the previous certificate is backed up in {}", backup.label())))
    }

    async fn rotate(&self, cx: &ClusterContext, step: &StepContext) -> Result<StepOutcome, StepError> {
        let (leaf, certificate, key) = self.new_pair(cx).await?;
        let checked = step.memory_of::<CheckedCertificate>(STEPS[0]);
        if checked.is_some_and(|it| it.fingerprint != leaf.fingerprint) {
            let message = format!("{} changed after it was checked", self.parameters.source.label());
            return Err(StepError::terminal("BadCertificate", message));
        }
        let changed = self.write(cx, &certificate, &key).await?;
        let result = if changed { "now has the new certificate" } else { "already had the new certificate" };
        Ok(StepOutcome::with_message(format!(
            "{} {result}, {}",
            self.parameters.target.label(),
            leaf.fingerprint
        )))
    }

    async fn write(
        &self,
        cx: &ClusterContext,
        certificate: &ByteString,
        key: &ByteString,
    ) -> Result<bool, StepError> {
        let target =
            Target::typed::<Secret>(Some(&self.parameters.target.namespace), &self.parameters.target.name);
        let change = Change::Merge(json!({"data": {CERTIFICATE: certificate, KEY: key}}));
        patch(&cx.link, &target, &change, None).await.map_err(redacted)
    }

    /// Restores the previous certificate from the backup of this run.
    async fn restore(&self, cx: &ClusterContext, step: &StepContext) -> Result<Option<String>, StepError> {
        let Some(backup) = self.backup().find(cx).await? else { return Ok(None) };
        if backup.annotations().get(BACKUP_OF_RUN) != Some(&cx.holder(step).id) {
            return Ok(None);
        }
        let data = backup.data.unwrap_or_default();
        let (Some(certificate), Some(key)) = (data.get(CERTIFICATE), data.get(KEY)) else { return Ok(None) };
        let changed = self.write(cx, certificate, key).await?;
        Ok(changed
            .then(|| format!("restored the previous certificate in {}", self.parameters.target.label())))
    }

    async fn restart(&self, cx: &ClusterContext, step: &StepContext) -> Result<PollStatus, StepError> {
        for WorkloadRef { kind, namespace, name } in &self.parameters.restart {
            let workload = workload(*kind);
            restart(&cx.link, workload, namespace, name, &cx.run(step)).await?;
            if let Err(error) =
                rollout(&cx.link, workload, namespace, name, ROLLOUT_POLL, &cx.progress(step)).await
            {
                return still_waiting(error);
            }
        }
        Ok(PollStatus::Done(StepOutcome::with_message(format!(
            "{} workloads restarted",
            self.parameters.restart.len()
        ))))
    }

    async fn remove_backup(&self, cx: &ClusterContext, step: &StepContext) -> Result<StepOutcome, StepError> {
        self.remove_own_backup(cx, step).await?;
        Ok(StepOutcome::with_message("removed the backup of the previous certificate"))
    }

    async fn undo_back_up(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
    ) -> Result<Option<String>, StepError> {
        self.remove_own_backup(cx, step).await?;
        Ok(None)
    }

    async fn remove_own_backup(&self, cx: &ClusterContext, step: &StepContext) -> Result<(), StepError> {
        let Some(found) = self.backup().find(cx).await? else { return Ok(()) };
        match found.annotations().get(BACKUP_OF_RUN) == Some(&cx.holder(step).id) {
            true => self.remove(cx, step).await,
            false => Ok(()),
        }
    }

    async fn remove(&self, cx: &ClusterContext, step: &StepContext) -> Result<(), StepError> {
        let backup = self.backup();
        let target = Target::typed::<Secret>(Some(&backup.namespace), &backup.name);
        delete(&cx.link, &target, &DeleteOptions::default(), &cx.progress(step)).await?;
        Ok(())
    }
}

fn workload(kind: WorkloadKind) -> Workload {
    match kind {
        WorkloadKind::Deployment => Workload::Deployment,
        WorkloadKind::DaemonSet => Workload::DaemonSet,
        WorkloadKind::StatefulSet => Workload::StatefulSet,
    }
}

/// Whether a DNS name of a certificate equals this name or is a wildcard for it.
fn covers(pattern: &str, name: &str) -> bool {
    if pattern.eq_ignore_ascii_case(name) {
        return true;
    }
    let (Some(parent), Some((_, rest))) = (pattern.strip_prefix("*."), name.split_once('.')) else {
        return false;
    };
    parent.eq_ignore_ascii_case(rest)
}

/// Removes the message of the API server about an invalid Secret, which may quote it.
fn redacted(mut error: LinkError) -> StepError {
    if let Failure::Invalid { message, .. } = &mut error.failure {
        "the message is hidden because it may quote the Secret".clone_into(message);
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(more: Value) -> Rotation {
        let mut parameters =
            json!({"source": {"namespace": "a", "name": "new"}, "target": {"namespace": "a", "name": "web"}});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Rotation { parameters: RotateTlsSecretParameters::read(parameters.as_object().unwrap()).unwrap() }
    }

    fn leaf() -> ServerCertificate {
        let at = |text: &str| text.parse().unwrap();
        let validity = kubelink::certificate::Validity {
            subject: "CN=web".to_owned(),
            not_before: at("2026-01-01T00:00:00Z"),
            not_after: at("2026-03-01T00:00:00Z"),
        };
        ServerCertificate {
            validity,
            dns_names: vec!["web.example".into(), "*.apps.example".into()],
            fingerprint: "ab".repeat(32),
        }
    }

    #[test]
    fn an_unexpected_certificate_is_rejected() {
        let validate = |more: Value, now: &str| rotation(more).validate(&leaf(), now.parse().unwrap()).err();
        assert_eq!(validate(json!({}), "2026-02-01T00:00:00Z"), None);
        assert_eq!(validate(json!({"fingerprint": "AB:".repeat(31) + "AB"}), "2026-02-01T00:00:00Z"), None);
        assert!(
            validate(json!({"fingerprint": "cd".repeat(32)}), "2026-02-01T00:00:00Z")
                .unwrap()
                .contains("not the one in the parameters")
        );
        assert!(validate(json!({}), "2025-12-01T00:00:00Z").unwrap().contains("is not valid before"));
        assert!(validate(json!({}), "2026-02-28T12:00:00Z").unwrap().contains("within 1 days"));
        assert!(
            validate(json!({"minimumDays": 60}), "2026-02-01T00:00:00Z").unwrap().contains("within 60 days")
        );
        assert_eq!(
            validate(json!({"dnsNames": ["web.example", "x.apps.example"]}), "2026-02-01T00:00:00Z"),
            None
        );
        let missing = validate(json!({"dnsNames": ["a.b.apps.example"]}), "2026-02-01T00:00:00Z").unwrap();
        assert_eq!(
            missing,
            "its certificate does not cover a.b.apps.example; it covers web.example, *.apps.example"
        );
    }

    #[test]
    fn a_stored_check_is_read() {
        let stored = json!({"fingerprint": "ab12"});
        let checked = CheckedCertificate::deserialize(&stored).unwrap();
        assert_eq!((checked.fingerprint.as_str(), json!(checked)), ("ab12", stored));
    }
}
