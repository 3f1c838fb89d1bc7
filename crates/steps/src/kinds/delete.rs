//! `kubernetes/delete`: ensures that objects are gone.

use std::time::Duration;

use kubelink::delete::{DeleteOptions, DeleteResult, delete, delete_matching};

use super::place::Place;
use super::with::{ObjectSelector, With};
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepContext, StepError, StepOutcome};
use crate::problem::Problem;

#[derive(Debug)]
pub(super) struct Delete {
    place: Place,
    which: ObjectSelector,
    wait: bool,
}

impl Delete {
    pub(super) fn read(with: &mut With<'_>) -> Result<Delete, Problem> {
        let place = Place::read(with)?;
        let which = with.which("name")?;
        let wait = with.truth("wait")?.unwrap_or(true);
        Ok(Delete { place, which, wait })
    }

    /// Deletes all objects together, each by its uid, so that a new object of the same name is never deleted.
    pub(super) async fn poll(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        limit: Duration,
    ) -> Result<PollStatus, StepError> {
        let options = DeleteOptions { wait: self.wait.then_some(limit), ..DeleteOptions::default() };
        let progress = cx.progress(step);
        let message = match &self.which {
            ObjectSelector::Named(name) => {
                let target = self.place.target(&cx.link, name).await?;
                match delete(&cx.link, &target, &options, &progress).await? {
                    DeleteResult::Gone => format!("{target} is gone"),
                    DeleteResult::Absent => format!("{target} was not there"),
                    DeleteResult::Started => format!("{target} is being deleted"),
                }
            }
            ObjectSelector::Labelled(selector) => {
                let (resource, namespace) = self.place.find(&cx.link).await?;
                let namespace = namespace.as_deref();
                let gone =
                    delete_matching(&cx.link, &resource, namespace, selector, &options, &progress).await?;
                format!("{} deleted of {}", gone.len(), self.place.describe(selector))
            }
        };
        Ok(PollStatus::Done(StepOutcome::with_message(message)))
    }
}
