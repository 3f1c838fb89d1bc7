//! `kubernetes/wait`: waits until a condition over an object holds; with a selector, over every match and at least one.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::FutureExt;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kubelink::wait::{Verdict, Which as Watched, wait_for};
use serde_json::{Map, Value};

use super::assert::expression;
use super::failure::still_waiting;
use super::place::Place;
use super::with::{Which, With};
use crate::aside;
use crate::cluster::ClusterContext;
use crate::engine::{Look, Outcome, StepContext, StepError};
use crate::expression::{Expression, Said};
use crate::problem::Problem;

#[derive(Debug)]
pub(super) struct Wait {
    place: Place,
    which: Which,
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

    pub(super) async fn look(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        limit: Duration,
    ) -> Result<Look, StepError> {
        let api = self.place.api(&cx.link).await?;
        let (watched, told) = match &self.which {
            Which::Named(name) => (Watched::Named(name.clone()), self.place.told(name)),
            Which::Labelled(selector) => (Watched::Labelled(selector.clone()), self.place.told(selector)),
        };
        let judge = |objects: &[&DynamicObject]| self.judge(objects).boxed();
        match wait_for(&cx.link, api, &watched, &told, limit, &cx.progress(step), judge).await {
            Ok(count) => {
                let what = if count == 1 { told } else { format!("{count} of {told}") };
                Ok(Look::Done(Outcome::said(format!("{what}: it holds that {}", self.until.text()))))
            }
            Err(error) => still_waiting(error),
        }
    }

    /// Looks at all objects, off the threads that serve others.
    fn judge(&self, objects: &[&DynamicObject]) -> impl Future<Output = Verdict<usize>> + Send + use<> {
        let objects: Vec<DynamicObject> = objects.iter().map(|object| (*object).clone()).collect();
        let (until, parameters) = (self.until.clone(), self.parameters.clone());
        async move {
            let judged = aside(move |stop| judge(&until, objects, parameters, stop)).await;
            judged.unwrap_or_else(|| Verdict::Hopeless("the evaluation ended early".to_owned()))
        }
    }
}

fn judge(
    until: &Expression,
    objects: Vec<DynamicObject>,
    parameters: Value,
    stop: &AtomicBool,
) -> Verdict<usize> {
    if objects.is_empty() {
        return Verdict::Waiting("it to exist".to_owned());
    }
    let (count, text) = (objects.len(), until.text());
    let mut variables = Map::new();
    variables.insert("parameters".to_owned(), parameters);
    for object in objects {
        let name = object.name_any();
        variables.insert("object".to_owned(), serde_json::to_value(object).unwrap_or_default());
        match until.evaluate(&variables, stop) {
            Said::Truth(true) => {}
            Said::Truth(false) if count == 1 => return Verdict::Waiting(text.to_owned()),
            Said::Truth(false) => return Verdict::Waiting(format!("{text} of {name}")),
            Said::Unclear(why) => return Verdict::Waiting(format!("{text} ({why})")),
            Said::Never(why) => return Verdict::Hopeless(format!("{text}: {why}")),
        }
    }
    Verdict::Done(count)
}
