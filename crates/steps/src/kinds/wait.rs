//! `kubernetes/wait`: waits until a condition over an object holds; with a selector, over every match and at least one.

use std::time::Duration;

use kube::ResourceExt;
use kube::core::DynamicObject;
use kubelink::wait::{Verdict, Which as Watched, wait};
use serde_json::{Map, Value};

use super::assert::expression;
use super::failure::still_waiting;
use super::place::Place;
use super::with::{Which, With};
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
        let judge = |objects: &[&DynamicObject]| self.judge(objects);
        match wait(&cx.link, api, &watched, &told, limit, &cx.progress(step), judge).await {
            Ok(count) => {
                let what = if count == 1 { told } else { format!("{count} of {told}") };
                Ok(Look::Done(Outcome::said(format!("{what}: it holds that {}", self.until.text()))))
            }
            Err(error) => still_waiting(error).map(Look::Waiting),
        }
    }

    fn judge(&self, objects: &[&DynamicObject]) -> Verdict<usize> {
        if objects.is_empty() {
            return Verdict::Waiting("it to exist".to_owned());
        }
        for object in objects {
            let mut variables = Map::new();
            variables.insert("object".to_owned(), serde_json::to_value(object).unwrap_or_default());
            variables.insert("parameters".to_owned(), self.parameters.clone());
            let until = self.until.text();
            match self.until.evaluate(&variables) {
                Said::Truth(true) => {}
                Said::Truth(false) if objects.len() == 1 => return Verdict::Waiting(until.to_owned()),
                Said::Truth(false) => return Verdict::Waiting(format!("{until} of {}", object.name_any())),
                Said::Unclear(why) => return Verdict::Waiting(format!("{until} ({why})")),
                Said::Never(why) => return Verdict::Hopeless(format!("{until}: {why}")),
            }
        }
        Verdict::Done(objects.len())
    }
}
