//! `rotate-tls-secret`: puts a new certificate and key into a TLS Secret, from another Secret of the same cluster.
//!
//! The key is named by reference and never by value: manifests, their history and the audit log are read by many. What was
//! there before is kept in the cluster until the end, so that it can be put back. See
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
use serde_json::{Map, Value, json};
use steps::ClusterContext;
use steps::engine::{PollStatus, Step, StepContext, StepError, StepOutcome};
use steps::kinds::still_waiting;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// On the Secret that holds what was there before: whose it is.
const KEPT_BY: &str = "shipshape.dev/kept-by";
/// How long a look at a rollout takes before the cluster is asked anew.
const LOOK: Duration = Duration::from_secs(20);

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
        Step::action(STEPS[1], on!(keep)).undo(on!(forget_kept, undo)),
        Step::action(STEPS[2], on!(rotate)).undo(on!(put_back, undo)),
        Step::wait(STEPS[3], Duration::from_secs(90 * 60), on!(restart)),
        Step::action(STEPS[4], on!(forget)),
    ])
}

impl Rotation {
    /// The Secret that holds the previous certificate and key until the run ends.
    fn backup(&self) -> SecretRef {
        SecretRef {
            namespace: self.parameters.target.namespace.clone(),
            name: format!("{}-before-rotation", self.parameters.target.name),
        }
    }

    /// The new certificate and key, if they are fit.
    async fn new_pair(
        &self,
        cx: &ClusterContext,
    ) -> Result<(ServerCertificate, ByteString, ByteString), StepError> {
        let source = self.parameters.source.get(cx).await?;
        let refuse = |why: String| {
            StepError::terminal("BadCertificate", format!("{}: {why}", self.parameters.source.label()))
        };
        let data = source.data.unwrap_or_default();
        let part = |name: &str| data.get(name).cloned().ok_or_else(|| refuse(format!("it has no {name}")));
        let (certificate, key) = (part(CERTIFICATE)?, part(KEY)?);
        let leaf = pair(&certificate.0, &key.0).map_err(|why| refuse(why.to_owned()))?;
        self.judge(&leaf, cx.clock.now()).map_err(refuse)?;
        Ok((leaf, certificate, key))
    }

    fn judge(&self, leaf: &ServerCertificate, now: jiff::Timestamp) -> Result<(), String> {
        let validity = &leaf.validity;
        if self.parameters.fingerprint.as_ref().is_some_and(|wanted| *wanted != leaf.fingerprint) {
            return Err(format!(
                "its certificate has the fingerprint {}, which is not the one given",
                leaf.fingerprint
            ));
        }
        if validity.not_before > now {
            return Err(format!("its certificate does not hold before {}", validity.not_before));
        }
        let needed = now.saturating_add(SignedDuration::from_hours(24 * self.parameters.minimum_days));
        if needed.is_ok_and(|needed| validity.not_after < needed) {
            return Err(format!(
                "its certificate ends at {}, within {} days",
                validity.not_after, self.parameters.minimum_days
            ));
        }
        match self
            .parameters
            .dns_names
            .iter()
            .find(|name| !leaf.dns_names.iter().any(|held| covers(held, name)))
        {
            Some(missing) => {
                Err(format!("its certificate is not for {missing}; it is for {}", leaf.dns_names.join(", ")))
            }
            None => Ok(()),
        }
    }

    async fn check(&self, cx: &ClusterContext, _: &StepContext) -> Result<StepOutcome, StepError> {
        let (leaf, _, _) = self.new_pair(cx).await?;
        self.parameters.target.get(cx).await?;
        let message =
            format!("the certificate of {} holds until {}", leaf.validity.subject, leaf.validity.not_after);
        let memory = json!({"fingerprint": leaf.fingerprint});
        Ok(StepOutcome { message: Some(message), memory, log: None })
    }

    async fn keep(&self, cx: &ClusterContext, step: &StepContext) -> Result<StepOutcome, StepError> {
        let (kept, holder) = (self.backup(), cx.holder(step).id);
        let target = self.parameters.target.get(cx).await?;
        if let Some(found) = kept.find(cx).await? {
            match found.annotations().get(KEPT_BY) {
                // Of a run that was cut off before its end; what it kept is older than what is there now.
                Some(other) if *other != holder => self.remove(cx, step).await?,
                Some(_) => {
                    return Ok(StepOutcome::with_message(format!(
                        "what was there is kept in {}",
                        kept.label()
                    )));
                }
                None => {
                    let why =
                        format!("{} is there and is not ours; what was there cannot be kept", kept.label());
                    return Err(StepError::terminal("NameTaken", why));
                }
            }
        }
        let metadata = ObjectMeta {
            name: Some(kept.name.clone()),
            namespace: Some(kept.namespace.clone()),
            annotations: Some([(KEPT_BY.to_owned(), holder)].into()),
            ..ObjectMeta::default()
        };
        let copy = Secret { metadata, data: target.data, ..Secret::default() };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let made = kept.api(cx).create(&params, &copy).await;
        made.map_err(|error| unquoted(cx.link.failed("create", kept.label(), error)))?;
        Ok(StepOutcome::with_message(format!("what was there is kept in {}", kept.label())))
    }

    async fn rotate(&self, cx: &ClusterContext, step: &StepContext) -> Result<StepOutcome, StepError> {
        let (leaf, certificate, key) = self.new_pair(cx).await?;
        let checked = step.memory.get(STEPS[0]).and_then(|it| it.get("fingerprint")).and_then(Value::as_str);
        if checked.is_some_and(|checked| checked != leaf.fingerprint) {
            let why = format!("{} changed after it was checked", self.parameters.source.label());
            return Err(StepError::terminal("BadCertificate", why));
        }
        let changed = self.write(cx, &certificate, &key).await?;
        let what = if changed { "holds the new certificate" } else { "held it already" };
        Ok(StepOutcome::with_message(format!(
            "{} {what}, {}",
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
        patch(&cx.link, &target, &change, None).await.map_err(unquoted)
    }

    /// Puts the previous certificate back, if this run kept it.
    async fn put_back(&self, cx: &ClusterContext, step: &StepContext) -> Result<Option<String>, StepError> {
        let Some(kept) = self.backup().find(cx).await? else { return Ok(None) };
        if kept.annotations().get(KEPT_BY) != Some(&cx.holder(step).id) {
            return Ok(None);
        }
        let data = kept.data.unwrap_or_default();
        let (Some(certificate), Some(key)) = (data.get(CERTIFICATE), data.get(KEY)) else { return Ok(None) };
        let changed = self.write(cx, certificate, key).await?;
        Ok(changed
            .then(|| format!("{} holds the previous certificate again", self.parameters.target.label())))
    }

    async fn restart(&self, cx: &ClusterContext, step: &StepContext) -> Result<PollStatus, StepError> {
        for WorkloadRef { kind, namespace, name } in &self.parameters.restart {
            let workload = workload(*kind);
            restart(&cx.link, workload, namespace, name, &cx.run(step)).await?;
            if let Err(error) = rollout(&cx.link, workload, namespace, name, LOOK, &cx.progress(step)).await {
                return still_waiting(error);
            }
        }
        Ok(PollStatus::Done(StepOutcome::with_message(format!(
            "{} workloads restarted",
            self.parameters.restart.len()
        ))))
    }

    async fn forget(&self, cx: &ClusterContext, step: &StepContext) -> Result<StepOutcome, StepError> {
        self.remove_ours(cx, step).await?;
        Ok(StepOutcome::with_message("the previous certificate is no longer kept"))
    }

    async fn forget_kept(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
    ) -> Result<Option<String>, StepError> {
        self.remove_ours(cx, step).await?;
        Ok(None)
    }

    async fn remove_ours(&self, cx: &ClusterContext, step: &StepContext) -> Result<(), StepError> {
        let Some(found) = self.backup().find(cx).await? else { return Ok(()) };
        match found.annotations().get(KEPT_BY) == Some(&cx.holder(step).id) {
            true => self.remove(cx, step).await,
            false => Ok(()),
        }
    }

    async fn remove(&self, cx: &ClusterContext, step: &StepContext) -> Result<(), StepError> {
        let kept = self.backup();
        let target = Target::typed::<Secret>(Some(&kept.namespace), &kept.name);
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

/// Whether a name of a certificate is this name, or a wildcard for it.
fn covers(held: &str, name: &str) -> bool {
    if held.eq_ignore_ascii_case(name) {
        return true;
    }
    let (Some(parent), Some((_, rest))) = (held.strip_prefix("*."), name.split_once('.')) else {
        return false;
    };
    parent.eq_ignore_ascii_case(rest)
}

/// An API server's words about an invalid Secret may quote it.
fn unquoted(mut error: LinkError) -> StepError {
    if let Failure::Invalid { message, .. } = &mut error.failure {
        "the message is hidden because it may quote the Secret".clone_into(message);
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(more: Value) -> Rotation {
        let mut given =
            json!({"source": {"namespace": "a", "name": "new"}, "target": {"namespace": "a", "name": "web"}});
        given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Rotation { parameters: RotateTlsSecretParameters::read(given.as_object().unwrap()).unwrap() }
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
    fn a_certificate_that_is_not_the_one_that_is_meant_is_refused() {
        let judged = |more: Value, now: &str| rotation(more).judge(&leaf(), now.parse().unwrap()).err();
        assert_eq!(judged(json!({}), "2026-02-01T00:00:00Z"), None);
        assert_eq!(judged(json!({"fingerprint": "AB:".repeat(31) + "AB"}), "2026-02-01T00:00:00Z"), None);
        assert!(
            judged(json!({"fingerprint": "cd".repeat(32)}), "2026-02-01T00:00:00Z")
                .unwrap()
                .contains("not the one given")
        );
        assert!(judged(json!({}), "2025-12-01T00:00:00Z").unwrap().contains("does not hold before"));
        assert!(judged(json!({}), "2026-02-28T12:00:00Z").unwrap().contains("within 1 days"));
        assert!(
            judged(json!({"minimumDays": 60}), "2026-02-01T00:00:00Z").unwrap().contains("within 60 days")
        );
        assert_eq!(
            judged(json!({"dnsNames": ["web.example", "x.apps.example"]}), "2026-02-01T00:00:00Z"),
            None
        );
        let missing = judged(json!({"dnsNames": ["a.b.apps.example"]}), "2026-02-01T00:00:00Z").unwrap();
        assert_eq!(
            missing,
            "its certificate is not for a.b.apps.example; it is for web.example, *.apps.example"
        );
    }
}
