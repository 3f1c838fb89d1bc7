//! `kubernetes/wait`: waits until a condition over an object holds; with a selector, over every match and at least one.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kubelink::wait::{ObjectSelection, WaitStatus, wait_for};
use serde_json::{Map, Value};
use tokio::time::sleep;

use super::assert::expression;
use super::failure::still_waiting;
use super::place::Place;
use super::with::{ObjectSelector, With};
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepContext, StepError, StepOutcome};
use crate::expression::{Evaluation, Expression};
use crate::offload;
use crate::problem::Problem;

/// Number of objects that are evaluated together.
const BLOCK: usize = 16;
/// Delay before a block that was not finished in time is evaluated again.
const PAUSE: Duration = Duration::from_secs(1);

/// Result of the evaluation of a block.
enum Answer {
    /// The condition holds for all of its objects.
    Holds,
    /// It decides the verdict.
    Settled(WaitStatus<usize>),
    /// It was not finished in time, which says nothing about the objects.
    TimedOut,
}

#[derive(Debug)]
pub(super) struct Wait {
    place: Place,
    which: ObjectSelector,
    until: Expression,
    parameters: Value,
}

impl Wait {
    pub(super) fn read(with: &mut With<'_>, parameters: &Map<String, Value>) -> Result<Wait, Problem> {
        let place = Place::read(with)?;
        let which = with.which("name")?;
        let until = expression(with, "until", &["object", "parameters"])?;
        Ok(Wait { place, which, until, parameters: Value::Object(parameters.clone()) })
    }

    pub(super) async fn poll(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        limit: Duration,
    ) -> Result<PollStatus, StepError> {
        let api = self.place.api(&cx.link).await?;
        let (watched, label) = match &self.which {
            ObjectSelector::Named(name) => (ObjectSelection::Named(name.clone()), self.place.describe(name)),
            ObjectSelector::Labelled(selector) => {
                (ObjectSelection::Labelled(selector.clone()), self.place.describe(selector))
            }
        };
        let progress = cx.progress(step);
        let waited =
            wait_for(&cx.link, api, &watched, &label, limit, &progress, |objects| self.judge(objects)).await;
        match waited {
            Ok(count) => {
                let what = if count == 1 { label } else { format!("{count} of {label}") };
                Ok(PollStatus::Done(StepOutcome::with_message(format!(
                    "{what}: it holds that {}",
                    self.until.text()
                ))))
            }
            Err(error) => still_waiting(error),
        }
    }

    /// Evaluates the condition over the objects on a thread for evaluations.
    fn judge<'a>(&self, objects: &'a [&'a DynamicObject]) -> BoxFuture<'a, WaitStatus<usize>> {
        let (until, parameters, single) = (self.until.clone(), self.parameters.clone(), objects.len() == 1);
        let evaluate = move |block: Vec<DynamicObject>| {
            let (until, parameters) = (until.clone(), parameters.clone());
            offload(move |stop| evaluate_block(&until, block, single, parameters, stop))
        };
        judge_in_blocks(objects, evaluate).boxed()
    }
}

/// Evaluates block after block until one has a verdict, so that only the objects of these blocks are copied. A block that was
/// not finished is evaluated again: the wait has its own timeout.
async fn judge_in_blocks<T: Clone, F>(
    objects: &[&T],
    mut evaluate: impl FnMut(Vec<T>) -> F,
) -> WaitStatus<usize>
where
    F: Future<Output = Option<Answer>>,
{
    if objects.is_empty() {
        return WaitStatus::Waiting("it to exist".to_owned());
    }
    for block in objects.chunks(BLOCK) {
        loop {
            match evaluate(block.iter().map(|object| (*object).clone()).collect()).await {
                Some(Answer::Holds) => break,
                Some(Answer::Settled(verdict)) => return verdict,
                Some(Answer::TimedOut) | None => sleep(PAUSE).await,
            }
        }
    }
    WaitStatus::Done(objects.len())
}

fn evaluate_block(
    until: &Expression,
    block: Vec<DynamicObject>,
    single: bool,
    parameters: Value,
    stop: &AtomicBool,
) -> Answer {
    let text = until.text();
    let mut variables = Map::new();
    variables.insert("parameters".to_owned(), parameters);
    for object in block {
        let name = object.name_any();
        variables.insert("object".to_owned(), serde_json::to_value(object).unwrap_or_default());
        match until.evaluate(&variables, stop) {
            Evaluation::Value(true) => {}
            Evaluation::Value(false) if single => {
                return Answer::Settled(WaitStatus::Waiting(text.to_owned()));
            }
            Evaluation::Value(false) => {
                return Answer::Settled(WaitStatus::Waiting(format!("{text} of {name}")));
            }
            Evaluation::Undetermined(why) => {
                return Answer::Settled(WaitStatus::Waiting(format!("{text} ({why})")));
            }
            Evaluation::Invalid(why) => {
                return Answer::Settled(WaitStatus::Impossible(format!("{text}: {why}")));
            }
            Evaluation::TimedOut(_) => return Answer::TimedOut,
        }
    }
    Answer::Holds
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    /// Counts its copies.
    struct Counted(Arc<AtomicUsize>);

    impl Clone for Counted {
        fn clone(&self) -> Counted {
            self.0.fetch_add(1, Ordering::Relaxed);
            Counted(self.0.clone())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unfinished_evaluation_is_repeated() {
        let mut answers = vec![Some(Answer::Holds), None, Some(Answer::TimedOut)];
        let verdict = judge_in_blocks(&[&1], |_| ready(answers.pop().unwrap()));
        assert_eq!(verdict.await, WaitStatus::Done(1));
        assert!(answers.is_empty());
    }

    #[test]
    fn a_timed_out_evaluation_decides_nothing() {
        let text = "parameters.all(a, parameters.exists(b, a == b))";
        let until = Expression::compile(text, &["object", "parameters"]).unwrap();
        let parameters: Value = (0..1000).collect();
        let object: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
        let answer = evaluate_block(&until, vec![object], true, parameters, &AtomicBool::new(true));
        assert!(matches!(answer, Answer::TimedOut));
    }

    #[tokio::test]
    async fn the_first_object_that_is_not_ready_ends_the_evaluation() {
        let copies = Arc::new(AtomicUsize::new(0));
        let objects: Vec<Counted> = (0..10 * BLOCK).map(|_| Counted(copies.clone())).collect();
        let objects: Vec<&Counted> = objects.iter().collect();
        let not_yet = || WaitStatus::Waiting("it".to_owned());
        let mut blocks = 0;
        let verdict = judge_in_blocks(&objects, |_| {
            blocks += 1;
            ready(Some(if blocks == 2 { Answer::Settled(not_yet()) } else { Answer::Holds }))
        });
        assert_eq!(verdict.await, not_yet());
        assert_eq!(copies.load(Ordering::Relaxed), 2 * BLOCK);
        let verdict = judge_in_blocks(&objects, |_| ready(Some(Answer::Holds)));
        assert_eq!(verdict.await, WaitStatus::Done(10 * BLOCK));
        assert_eq!(copies.load(Ordering::Relaxed), 12 * BLOCK);
    }
}
