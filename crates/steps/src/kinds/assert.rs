//! `assert`: continues only if a condition over the cluster's facts holds. A condition that does not hold is terminal.

use kubelink::facts;
use serde_json::{Map, Value, json};

use super::with::{With, text};
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepError, StepOutcome};
use crate::expression::{Evaluation, Expression};
use crate::offload;
use crate::problem::Problem;

/// What a condition may refer to.
const FACTS: [&str; 4] = ["cluster", "nodes", "operators", "parameters"];

#[derive(Debug)]
pub(super) struct Assert {
    that: Expression,
    message: Option<String>,
    parameters: Value,
}

impl Assert {
    pub(super) fn read(with: &mut With<'_>, parameters: &Map<String, Value>) -> Result<Assert, Problem> {
        let that = expression(with, "that", &FACTS)?;
        let message = with.text("message")?;
        Ok(Assert { that, message, parameters: Value::Object(parameters.clone()) })
    }

    pub(super) async fn poll(&self, cx: &ClusterContext) -> Result<PollStatus, StepError> {
        let facts = self.facts(cx).await?;
        let that = self.that.clone();
        self.outcome(offload(move |stop| that.evaluate(&facts, stop)).await)
    }

    /// The result of the step for an evaluation; `None` is one that was stopped early.
    fn outcome(&self, said: Option<Evaluation>) -> Result<PollStatus, StepError> {
        let failed = |why: String| {
            let message = match &self.message {
                Some(message) => format!("{message} ({why})"),
                None => why,
            };
            Err(StepError::terminal("AssertFailed", message))
        };
        match said.unwrap_or_else(|| Evaluation::TimedOut("its evaluation was stopped early".to_owned())) {
            Evaluation::Value(true) => {
                Ok(PollStatus::Done(StepOutcome::with_message(format!("it holds that {}", self.that.text()))))
            }
            Evaluation::Value(false) => failed(format!("it does not hold that {}", self.that.text())),
            Evaluation::Undetermined(why) | Evaluation::Invalid(why) => {
                failed(format!("{} cannot be evaluated: {why}", self.that.text()))
            }
            Evaluation::TimedOut(why) => {
                let message = format!("{} is not evaluated yet: {why}", self.that.text());
                Err(StepError::transient("EvaluationInterrupted", message))
            }
        }
    }

    /// Reads only the facts that the condition refers to.
    async fn facts(&self, cx: &ClusterContext) -> Result<Map<String, Value>, StepError> {
        let mut found = Map::new();
        found.insert("parameters".to_owned(), self.parameters.clone());
        if self.that.uses("cluster") {
            let mut cluster = cx.cluster.value();
            if cx.cluster.version.is_none() {
                cluster["version"] = json!(facts::version(&cx.link).await?);
            }
            found.insert("cluster".to_owned(), cluster);
        }
        if self.that.uses("nodes") {
            let nodes = facts::nodes(&cx.link).await?;
            let nodes = nodes.iter().map(|it| {
                json!({"name": it.name, "ready": it.ready, "unschedulable": !it.schedulable, "roles": it.roles,
                    "version": it.kubelet_version})
            });
            found.insert("nodes".to_owned(), nodes.collect());
        }
        if self.that.uses("operators") {
            let operators = facts::operators(&cx.link).await?.unwrap_or_default();
            let operators = operators.iter().map(|it| {
                json!({"name": it.name, "available": it.available, "progressing": it.progressing, "degraded": it.degraded})
            });
            found.insert("operators".to_owned(), operators.collect());
        }
        Ok(found)
    }
}

/// An expression among the members. A template in it would insert text into a program, and is rejected.
pub(super) fn expression(
    with: &mut With<'_>,
    name: &'static str,
    variables: &[&str],
) -> Result<Expression, Problem> {
    let found = with.raw(name).map(text).transpose().map_err(|message| with.problem(name, message))?;
    let found = with.required(name, found)?;
    if found.contains("${{") {
        let why = "an expression names parameters by themselves (parameters.X), not by a template";
        return Err(with.problem(name, why));
    }
    Expression::compile(&found, variables).map_err(|message| with.problem(name, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::StepErrorKind;

    #[test]
    fn a_timed_out_assertion_is_retried() {
        let that = Expression::compile("parameters.ok", &FACTS).unwrap();
        let assert = Assert { that, message: None, parameters: json!({}) };
        let kind = |said| assert.outcome(said).map(drop).map_err(|error| error.kind());
        assert_eq!(kind(Some(Evaluation::TimedOut("slow".to_owned()))), Err(StepErrorKind::Transient));
        assert_eq!(kind(None), Err(StepErrorKind::Transient));
        assert_eq!(kind(Some(Evaluation::Invalid("large".to_owned()))), Err(StepErrorKind::Terminal));
        assert_eq!(kind(Some(Evaluation::Value(false))), Err(StepErrorKind::Terminal));
        assert_eq!(kind(Some(Evaluation::Value(true))), Ok(()));
    }
}
