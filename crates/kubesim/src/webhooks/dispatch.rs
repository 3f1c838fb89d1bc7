//! Asks the webhooks that a question concerns: those that may change the object one after the other, the others at
//! the same time.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::Value;

use super::client::{Endpoint, SERVICE_ADDRESS};
use super::configuration::Webhook;
use super::gate::Gate;
use super::review::{self, Answer, CallError, Phase, Question};
use crate::access::User;
use crate::cluster::ClusterInner;
use crate::kinds::{self, Kind};
use crate::objects::object_key;
use crate::patch;
use crate::status::{ApiResult, StatusError};
use crate::verbs;

/// Asks about a write. Returns the object, possibly changed; fails if a webhook refuses it or cannot be called.
pub(crate) async fn ask(
    cluster: &ClusterInner,
    user: &User,
    gate: &Gate,
    question: &Question,
) -> ApiResult<Value> {
    let round = Round { cluster, user, gate, question };
    match question.phase {
        Phase::Mutate => round.mutate().await,
        Phase::Validate => round.validate().await,
    }
}

struct Round<'a> {
    cluster: &'a ClusterInner,
    user: &'a User,
    gate: &'a Gate,
    question: &'a Question,
}

impl Round<'_> {
    /// A webhook that asked for it is called once more if a later one has changed the object.
    async fn mutate(&self) -> ApiResult<Value> {
        let mut object = self.question.object.clone();
        let (mut called, mut again) = (BTreeSet::new(), BTreeSet::new());
        for is_repetition in [false, true] {
            for (index, webhook) in self.webhooks().iter().enumerate() {
                if is_repetition && !again.contains(&index) {
                    continue;
                }
                let Some(kind) = self.wanted(webhook, &object) else { continue };
                if let Some(patch) = self.answer(webhook, &kind, &object).await? {
                    let changed = self.patched(webhook, &object, &patch)?;
                    if changed != object {
                        object = changed;
                        again.append(&mut called);
                    }
                }
                if webhook.is_reinvoked {
                    called.insert(index);
                }
            }
            if again.is_empty() {
                break;
            }
        }
        Ok(object)
    }

    async fn validate(&self) -> ApiResult<Value> {
        let object = &self.question.object;
        let webhooks = self.webhooks();
        let calls = webhooks.iter().filter_map(|webhook| {
            let kind = self.wanted(webhook, object)?;
            Some(async move { self.answer(webhook, &kind, object).await })
        });
        for outcome in join_all(calls).await {
            outcome?;
        }
        Ok(object.clone())
    }

    fn webhooks(&self) -> Vec<Arc<Webhook>> {
        self.cluster.read().webhooks().of(self.question.phase).to_vec()
    }

    /// The kind in whose version a webhook is asked, if it is.
    fn wanted(&self, webhook: &Webhook, object: &Value) -> Option<Arc<Kind>> {
        let question = self.question;
        let state = self.cluster.read();
        let kind = webhook.kind_of(question, &state.kinds)?;
        let is_namespace = question.kind.group().is_empty() && question.kind.kind() == "Namespace";
        let namespace = match (is_namespace, question.namespace.is_empty()) {
            (true, _) if !object.is_null() => Some(object.clone()),
            (true, _) => Some(question.old.clone()),
            (false, true) => None,
            (false, false) => {
                kinds::find("", "Namespace").and_then(|kind| state.read(kind, "", &question.namespace))
            }
        };
        webhook.selects(question, object, namespace.as_ref()).then_some(kind)
    }

    /// The patch of a webhook that allows the write, or nothing.
    async fn answer(&self, webhook: &Webhook, kind: &Kind, object: &Value) -> ApiResult<Option<Value>> {
        if self.question.dry_run && !webhook.supports_dry_run {
            let why = format!("admission webhook {:?} does not support dry run", webhook.name);
            return Err(StatusError::bad_request(why));
        }
        match self.call(webhook, kind, object).await {
            Ok((Answer::Allowed(patch), warnings)) => {
                warnings.into_iter().for_each(|warning| self.gate.warn(warning));
                Ok((!patch.is_null()).then_some(patch))
            }
            Ok((Answer::Refused(refusal), warnings)) => {
                warnings.into_iter().for_each(|warning| self.gate.warn(warning));
                Err(refusal)
            }
            Err(why) if webhook.ignores_failure => {
                tracing::warn!("Failed to call webhook {}, which is ignored: {why}", webhook.name);
                Ok(None)
            }
            Err(why) => {
                Err(StatusError::internal(format!("failed calling webhook {:?}: {why}", webhook.name)))
            }
        }
    }

    async fn call(
        &self,
        webhook: &Webhook,
        kind: &Kind,
        object: &Value,
    ) -> Result<(Answer, Vec<String>), CallError> {
        let Some(version) = webhook.review_version else {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(format!("could not create admission objects: {why}"));
        };
        let uid = crate::random::uid();
        let review = review::request(version, &uid, self.question, kind, object, self.user, self.gate);
        let endpoint =
            Endpoint::new(&webhook.client, |namespace, name, port| self.resolve(namespace, name, port))?;
        let answer = self.cluster.webhook_connections.call(&endpoint, &review, webhook.timeout).await?;
        review::response(webhook, version, &uid, self.question.phase, &answer)
    }

    /// The address of a Service's port.
    fn resolve(&self, namespace: &str, name: &str, port: u64) -> Result<String, String> {
        let state = self.cluster.read();
        let Some(service) = state.objects.get("/services", &object_key(namespace, name)) else {
            return Err(format!("service {name:?} not found"));
        };
        let service = service.value();
        let ports = service["spec"]["ports"].as_array();
        if !ports.into_iter().flatten().any(|one| one["port"] == port) {
            return Err(format!("no service port {port} found for service {name:?}"));
        }
        match service["metadata"]["annotations"][SERVICE_ADDRESS].as_str() {
            Some(address) => Ok(address.to_owned()),
            None => Err(format!(
                "no endpoints available for service {name:?}: in a simulated cluster its annotation {SERVICE_ADDRESS} names host and port"
            )),
        }
    }

    fn patched(&self, webhook: &Webhook, object: &Value, patch: &Value) -> ApiResult<Value> {
        if patch.as_array().is_some_and(Vec::is_empty) {
            return Ok(object.clone());
        }
        if object.is_null() {
            return Err(StatusError::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                webhook.name
            )));
        }
        let mut changed =
            patch::json(object, patch).map_err(|error| StatusError::internal(error.to_string()))?;
        self.question.kind.set_type_meta(&mut changed);
        verbs::normalize_patched(&self.question.kind, &mut changed)
            .map_err(|failure| StatusError::internal(failure.message))?;
        Ok(changed)
    }
}
