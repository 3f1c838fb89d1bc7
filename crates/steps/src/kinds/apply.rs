//! `kubernetes/apply`: applies objects as they are written, and prunes those of an earlier list.

use kubelink::apply::{ApplyOptions, ApplyReport, Documents, Effect, Force, apply};
use serde_json::Value;

use super::prune::prune;
use super::with::With;
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepContext, StepError, StepOutcome};
use crate::problem::Problem;
use crate::template::sampled;

#[derive(Debug)]
pub(super) struct Apply {
    documents: Documents,
    prune: Option<String>,
    force: bool,
}

impl Apply {
    pub(super) fn read(with: &mut With<'_>) -> Result<Apply, Problem> {
        let unknown = with.is_template("manifests");
        let documents = with.raw("manifests").map(|found| match found {
            // A template for the whole list: its value is known, and read, only when the plan is made.
            Value::String(_) if unknown => Documents::from_values(Vec::new()),
            Value::String(text) => Documents::parse(text),
            Value::Array(objects) if unknown => {
                let mut count = 0;
                Documents::from_values(objects.iter().map(|object| sampled(object, &mut count)).collect())
            }
            Value::Array(objects) => Documents::from_values(objects.clone()),
            Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {
                Documents::from_values(vec![found.clone()])
            }
        });
        let documents =
            documents.transpose().map_err(|error| with.problem("manifests", error.to_string()))?;
        let documents = with.required("manifests", documents)?;
        let prune = with.selector("prune")?;
        let force = with.truth("force")?.unwrap_or(false);
        Ok(Apply { documents, prune, force })
    }

    pub(super) async fn poll(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
    ) -> Result<PollStatus, StepError> {
        let force = if self.force { Force::Yes } else { Force::No };
        let options = ApplyOptions { force, ..ApplyOptions::default() };
        let progress = cx.progress(step);
        let mut done = apply(&cx.link, &self.documents, &options, &progress).await?;
        if let Some(selector) = &self.prune {
            let gone = prune(cx, step, selector, &done).await?;
            done.objects.extend(gone.into_iter().map(|target| (target, Effect::Pruned)));
        }
        let log = done.objects.iter().map(|(target, effect)| format!("{target} {effect}\n")).collect();
        Ok(PollStatus::Done(StepOutcome {
            message: Some(summary(&done)),
            log: Some(log),
            ..StepOutcome::default()
        }))
    }
}

/// `2 created, 1 unchanged`.
fn summary(done: &ApplyReport) -> String {
    let effects = [Effect::Created, Effect::Configured, Effect::Unchanged, Effect::Pruned];
    let counted =
        effects.iter().map(|effect| (done.objects.iter().filter(|(_, it)| it == effect).count(), effect));
    let messages: Vec<String> =
        counted.filter(|(count, _)| *count > 0).map(|(count, effect)| format!("{count} {effect}")).collect();
    if messages.is_empty() { "there was nothing to apply".to_owned() } else { messages.join(", ") }
}
