//! `kubernetes/patch`: changes fields of an existing object.

use kubelink::patch::{Change, patch};
use serde_json::Value;

use super::place::Place;
use super::with::{With, text};
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepError, StepOutcome};
use crate::problem::Problem;

#[derive(Debug)]
pub(super) struct Patch {
    place: Place,
    name: String,
    change: Change,
    subresource: Option<String>,
}

impl Patch {
    pub(super) fn read(with: &mut With<'_>) -> Result<Patch, Problem> {
        let place = Place::read(with)?;
        let name = with.name("name")?;
        let name = with.required("name", name)?;
        let how: fn(Value) -> Change = with
            .member("type", Change::Merge as fn(Value) -> Change, |value| match text(value)?.as_str() {
                "merge" => Ok(Change::Merge as fn(Value) -> Change),
                "strategic" => Ok(Change::Strategic),
                "json" => Ok(Change::Json),
                other => {
                    Err(format!("{other:?} is not a type of patch; there are merge, strategic and json"))
                }
            })?
            .unwrap_or(Change::Merge);
        let found = with.raw("patch").cloned();
        let change = how(with.required("patch", found)?);
        let unknown = with.is_template("patch");
        match &change {
            _ if unknown => {}
            Change::Merge(value) | Change::Strategic(value) if !value.is_object() => {
                return Err(with.problem("patch", "an object is expected"));
            }
            Change::Json(value) if !value.is_array() => {
                return Err(with.problem("patch", "a JSON patch is a list of operations"));
            }
            _ => {}
        }
        let subresource = with.name("subresource")?;
        Ok(Patch { place, name, change, subresource })
    }

    pub(super) async fn poll(&self, cx: &ClusterContext) -> Result<PollStatus, StepError> {
        let target = self.place.target(&cx.link, &self.name).await?;
        let changed = patch(&cx.link, &target, &self.change, self.subresource.as_deref()).await?;
        let what = if changed { "patched" } else { "was so already" };
        Ok(PollStatus::Done(StepOutcome::with_message(format!("{target} {what}"))))
    }
}
