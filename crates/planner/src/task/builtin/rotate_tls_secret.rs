//! `rotate-tls-secret`: puts a new certificate and key into a TLS Secret, from another Secret of the same cluster.
//!
//! The key is named by reference and never by value: manifests, their history and the audit log are read by many. What was
//! there before is kept in the cluster until the end, so that it can be put back. See
//! `docs/decisions/0008-state-of-built-in-tasks.md`.

use std::sync::Arc;
use std::time::Duration;

use api::duration::TimeSpan;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use kubelink::certificate::{Leaf, pair};
use kubelink::delete::{DeleteOptions, delete};
use kubelink::link::FIELD_MANAGER;
use kubelink::patch::{Change, patch};
use kubelink::rollout::{Workload, restart, rollout};
use kubelink::{Failure, LinkError, Target};
use serde_json::{Map, Value, json};
use steps::engine::{Look, Outcome, Step, StepContext, StepError};
use steps::kinds::{check_name, still_waiting};
use steps::{ClusterContext, ClusterFacts};
use uuid::uuid;

use super::{Told, coded};
use crate::task::{Definition, TaskProblem};

const STEPS: [&str; 5] =
    ["check-certificate", "keep-previous", "rotate", "restart-workloads", "forget-previous"];
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// On the Secret that holds what was there before: whose it is.
const KEPT_BY: &str = "shipshape.dev/kept-by";
/// How long a look at a rollout takes before the cluster is asked anew.
const LOOK: Duration = Duration::from_secs(20);

pub(super) fn task() -> Definition {
    let reference = |description: &str| {
        json!({"type": "object", "required": ["namespace", "name"], "additionalProperties": false, "description": description,
            "properties": {"namespace": {"type": "string"}, "name": {"type": "string"}}})
    };
    let workload = json!({"type": "object", "required": ["kind", "namespace", "name"], "additionalProperties": false,
        "properties": {"kind": {"enum": ["Deployment", "DaemonSet", "StatefulSet"]},
            "namespace": {"type": "string"}, "name": {"type": "string"}}});
    let told = Told {
        id: uuid!("6a609e88-744d-40bd-8884-21415c912bb4"),
        version: 1,
        name: "rotate-tls-secret",
        title: "Rotate a TLS secret from a given certificate",
        description: "Copies tls.crt and tls.key from one Secret of the cluster into another, after they were found to \
            belong together, to hold now and for minimumDays more, to cover dnsNames, and to be the certificate whose \
            fingerprint is given. Then restarts the workloads that use it. Undone, the previous certificate is put back.",
        disruptive: true,
        time_limit: TimeSpan::hours(2),
        expected_duration: TimeSpan::minutes(3),
        parameters: json!({
            "type": "object",
            "required": ["source", "target"],
            "additionalProperties": false,
            "properties": {
                "source": reference("The Secret with the new certificate and key"),
                "target": reference("The Secret to be changed"),
                "fingerprint": {"type": "string", "pattern": "^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$",
                    "description": "The SHA-256 of the new certificate, in hex"},
                "dnsNames": {"type": "array", "items": {"type": "string"}, "default": [],
                    "description": "Names that the new certificate must cover"},
                "minimumDays": {"type": "integer", "minimum": 0, "maximum": 3650, "default": 1},
                "restart": {"type": "array", "items": workload, "maxItems": 50, "default": []},
            },
        }),
    };
    coded(told, &STEPS, make)
}

/// A Secret by its place.
#[derive(Debug, Clone)]
struct Place {
    namespace: String,
    name: String,
}

impl Place {
    fn read(parameters: &Map<String, Value>, which: &str) -> Result<Place, TaskProblem> {
        let part = |name: &str| {
            let text =
                parameters.get(which).and_then(|it| it.get(name)).and_then(Value::as_str).unwrap_or_default();
            check_name(text).map_err(|why| TaskProblem::at(format!("parameters.{which}.{name}"), why))
        };
        Ok(Place { namespace: part("namespace")?, name: part("name")? })
    }

    fn told(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.name)
    }

    fn api(&self, cx: &ClusterContext) -> Api<Secret> {
        Api::namespaced(cx.link.client(), &self.namespace)
    }

    async fn find(&self, cx: &ClusterContext) -> Result<Option<Secret>, StepError> {
        let found = self.api(cx).get_opt(&self.name).await;
        Ok(found.map_err(|error| cx.link.failed("read", self.told(), error))?)
    }

    async fn get(&self, cx: &ClusterContext) -> Result<Secret, StepError> {
        let missing = || StepError::terminal("NotFound", format!("there is no {}", self.told()));
        self.find(cx).await?.ok_or_else(missing)
    }
}

#[derive(Debug)]
struct Rotation {
    source: Place,
    target: Place,
    fingerprint: Option<String>,
    dns_names: Vec<String>,
    minimum_days: i64,
    restart: Vec<(Workload, Place)>,
}

fn make(parameters: &Map<String, Value>, _: &ClusterFacts) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let rotation = Arc::new(Rotation::read(parameters)?);
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
    fn read(parameters: &Map<String, Value>) -> Result<Rotation, TaskProblem> {
        let (source, target) = (Place::read(parameters, "source")?, Place::read(parameters, "target")?);
        if (&source.namespace, &source.name) == (&target.namespace, &target.name) {
            return Err(TaskProblem::at("parameters.target", "source and target are the same Secret"));
        }
        let list = |name: &str| parameters.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut restart = Vec::new();
        for (index, it) in list("restart").iter().enumerate() {
            let at = |name: &str| format!("parameters.restart[{index}].{name}");
            let text = |name: &str| it.get(name).and_then(Value::as_str).unwrap_or_default();
            let name = |name: &str| check_name(text(name)).map_err(|why| TaskProblem::at(at(name), why));
            let workload = Workload::of_kind(text("kind"))
                .ok_or_else(|| TaskProblem::at(at("kind"), "it cannot be restarted"))?;
            restart.push((workload, Place { namespace: name("namespace")?, name: name("name")? }));
        }
        let fingerprint = parameters.get("fingerprint").and_then(Value::as_str);
        Ok(Rotation {
            source,
            target,
            fingerprint: fingerprint.map(|it| it.replace(':', "").to_ascii_lowercase()),
            dns_names: list("dnsNames").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            minimum_days: parameters.get("minimumDays").and_then(Value::as_i64).unwrap_or(1),
            restart,
        })
    }

    /// Where what was there before is kept.
    fn kept(&self) -> Place {
        Place {
            namespace: self.target.namespace.clone(),
            name: format!("{}-before-rotation", self.target.name),
        }
    }

    /// The new certificate and key, if they are fit.
    async fn new_pair(&self, cx: &ClusterContext) -> Result<(Leaf, ByteString, ByteString), StepError> {
        let source = self.source.get(cx).await?;
        let refuse =
            |why: String| StepError::terminal("BadCertificate", format!("{}: {why}", self.source.told()));
        let data = source.data.unwrap_or_default();
        let part = |name: &str| data.get(name).cloned().ok_or_else(|| refuse(format!("it has no {name}")));
        let (certificate, key) = (part(CERTIFICATE)?, part(KEY)?);
        let leaf = pair(&certificate.0, &key.0).map_err(|why| refuse(why.to_owned()))?;
        self.judge(&leaf, cx.clock.now()).map_err(refuse)?;
        Ok((leaf, certificate, key))
    }

    fn judge(&self, leaf: &Leaf, now: jiff::Timestamp) -> Result<(), String> {
        let validity = &leaf.validity;
        if self.fingerprint.as_ref().is_some_and(|wanted| *wanted != leaf.fingerprint) {
            return Err(format!(
                "its certificate has the fingerprint {}, which is not the one given",
                leaf.fingerprint
            ));
        }
        if validity.not_before > now {
            return Err(format!("its certificate does not hold before {}", validity.not_before));
        }
        let needed = now.saturating_add(SignedDuration::from_hours(24 * self.minimum_days));
        if needed.is_ok_and(|needed| validity.not_after < needed) {
            return Err(format!(
                "its certificate ends at {}, within {} days",
                validity.not_after, self.minimum_days
            ));
        }
        match self.dns_names.iter().find(|name| !leaf.dns_names.iter().any(|held| covers(held, name))) {
            Some(missing) => {
                Err(format!("its certificate is not for {missing}; it is for {}", leaf.dns_names.join(", ")))
            }
            None => Ok(()),
        }
    }

    async fn check(&self, cx: &ClusterContext, _: &StepContext) -> Result<Outcome, StepError> {
        let (leaf, _, _) = self.new_pair(cx).await?;
        self.target.get(cx).await?;
        let message =
            format!("the certificate of {} holds until {}", leaf.validity.subject, leaf.validity.not_after);
        let memory = json!({"fingerprint": leaf.fingerprint});
        Ok(Outcome { message: Some(message), memory, log: None })
    }

    async fn keep(&self, cx: &ClusterContext, step: &StepContext) -> Result<Outcome, StepError> {
        let (kept, holder) = (self.kept(), cx.holder(step).id);
        let target = self.target.get(cx).await?;
        if let Some(found) = kept.find(cx).await? {
            match found.annotations().get(KEPT_BY) {
                // Of a run that was cut off before its end; what it kept is older than what is there now.
                Some(other) if *other != holder => self.remove(cx, step).await?,
                Some(_) => return Ok(Outcome::said(format!("what was there is kept in {}", kept.told()))),
                None => {
                    let why =
                        format!("{} is there and is not ours; what was there cannot be kept", kept.told());
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
        made.map_err(|error| unquoted(cx.link.failed("create", kept.told(), error)))?;
        Ok(Outcome::said(format!("what was there is kept in {}", kept.told())))
    }

    async fn rotate(&self, cx: &ClusterContext, step: &StepContext) -> Result<Outcome, StepError> {
        let (leaf, certificate, key) = self.new_pair(cx).await?;
        let checked = step.memory.get(STEPS[0]).and_then(|it| it.get("fingerprint")).and_then(Value::as_str);
        if checked.is_some_and(|checked| checked != leaf.fingerprint) {
            let why = format!("{} changed after it was checked", self.source.told());
            return Err(StepError::terminal("BadCertificate", why));
        }
        let changed = self.write(cx, &certificate, &key).await?;
        let what = if changed { "holds the new certificate" } else { "held it already" };
        Ok(Outcome::said(format!("{} {what}, {}", self.target.told(), leaf.fingerprint)))
    }

    async fn write(
        &self,
        cx: &ClusterContext,
        certificate: &ByteString,
        key: &ByteString,
    ) -> Result<bool, StepError> {
        let target = Target::of::<Secret>(Some(&self.target.namespace), &self.target.name);
        let change = Change::Merge(json!({"data": {CERTIFICATE: certificate, KEY: key}}));
        patch(&cx.link, &target, &change, None).await.map_err(unquoted)
    }

    /// Puts the previous certificate back, if this run kept it.
    async fn put_back(&self, cx: &ClusterContext, step: &StepContext) -> Result<Option<String>, StepError> {
        let Some(kept) = self.kept().find(cx).await? else { return Ok(None) };
        if kept.annotations().get(KEPT_BY) != Some(&cx.holder(step).id) {
            return Ok(None);
        }
        let data = kept.data.unwrap_or_default();
        let (Some(certificate), Some(key)) = (data.get(CERTIFICATE), data.get(KEY)) else { return Ok(None) };
        let changed = self.write(cx, certificate, key).await?;
        Ok(changed.then(|| format!("{} holds the previous certificate again", self.target.told())))
    }

    async fn restart(&self, cx: &ClusterContext, step: &StepContext) -> Result<Look, StepError> {
        for (workload, Place { namespace, name }) in &self.restart {
            restart(&cx.link, *workload, namespace, name, &cx.run(step)).await?;
            if let Err(error) = rollout(&cx.link, *workload, namespace, name, LOOK, &cx.progress(step)).await
            {
                return still_waiting(error);
            }
        }
        Ok(Look::Done(Outcome::said(format!("{} workloads restarted", self.restart.len()))))
    }

    async fn forget(&self, cx: &ClusterContext, step: &StepContext) -> Result<Outcome, StepError> {
        self.remove_ours(cx, step).await?;
        Ok(Outcome::said("the previous certificate is no longer kept"))
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
        let Some(found) = self.kept().find(cx).await? else { return Ok(()) };
        match found.annotations().get(KEPT_BY) == Some(&cx.holder(step).id) {
            true => self.remove(cx, step).await,
            false => Ok(()),
        }
    }

    async fn remove(&self, cx: &ClusterContext, step: &StepContext) -> Result<(), StepError> {
        let kept = self.kept();
        let target = Target::of::<Secret>(Some(&kept.namespace), &kept.name);
        delete(&cx.link, &target, &DeleteOptions::default(), &cx.progress(step)).await?;
        Ok(())
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
        "its words are not shown, because they may quote the Secret".clone_into(message);
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(more: Value) -> Result<Rotation, TaskProblem> {
        let mut given =
            json!({"source": {"namespace": "a", "name": "new"}, "target": {"namespace": "a", "name": "web"}});
        given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Rotation::read(given.as_object().unwrap())
    }

    fn leaf() -> Leaf {
        let at = |text: &str| text.parse().unwrap();
        let validity = kubelink::certificate::Validity {
            subject: "CN=web".to_owned(),
            not_before: at("2026-01-01T00:00:00Z"),
            not_after: at("2026-03-01T00:00:00Z"),
        };
        Leaf {
            validity,
            dns_names: vec!["web.example".into(), "*.apps.example".into()],
            fingerprint: "ab".repeat(32),
        }
    }

    #[test]
    fn a_certificate_that_is_not_the_one_that_is_meant_is_refused() {
        let judged =
            |more: Value, now: &str| rotation(more).unwrap().judge(&leaf(), now.parse().unwrap()).err();
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

    #[test]
    fn a_secret_is_not_rotated_from_itself() {
        let error = rotation(json!({"source": {"namespace": "a", "name": "web"}})).unwrap_err();
        assert_eq!(error.to_string(), "parameters.target: source and target are the same Secret");
    }
}
