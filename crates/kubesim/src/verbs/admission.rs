//! The points of a write at which admission webhooks are asked.

use serde_json::Value;

use super::{Caller, Target, Validation, WriteOptions, admit};
use crate::kinds::Kind;
use crate::state::State;
use crate::status::ApiResult;
use crate::webhooks::{Operation, Phase, Question};

/// The object as webhooks want it; `None` if they are not asked.
pub(super) fn mutate(
    state: &State,
    target: &Target,
    caller: &Caller,
    operation: Operation,
    objects: (&Value, Option<&Value>),
    dry_run: bool,
) -> ApiResult<Option<Value>> {
    ask(state, target, caller, (Phase::Mutate, operation), objects, dry_run)
}

/// Fails if a webhook refuses the object.
pub(super) fn validate(
    state: &State,
    target: &Target,
    caller: &Caller,
    operation: Operation,
    objects: (&Value, Option<&Value>),
    dry_run: bool,
) -> ApiResult<()> {
    ask(state, target, caller, (Phase::Validate, operation), objects, dry_run).map(drop)
}

fn ask(
    state: &State,
    target: &Target,
    caller: &Caller,
    (phase, operation): (Phase, Operation),
    (object, old): (&Value, Option<&Value>),
    dry_run: bool,
) -> ApiResult<Option<Value>> {
    let Some(gate) = &caller.gate else { return Ok(None) };
    // The configurations can be changed even if a webhook is broken.
    if target.kind.group() == "admissionregistration.k8s.io" {
        return Ok(None);
    }
    let named = |value: &Value| value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let question = Question {
        phase,
        operation,
        kind: target.kind.clone(),
        subresource: target.subresource.clone(),
        // A namespace is its own.
        namespace: if target.kind.kind() == "Namespace" { named(object) } else { target.namespace.clone() },
        name: if target.name.is_empty() { named(object) } else { target.name.clone() },
        object: object.clone(),
        old: old.cloned().unwrap_or_default(),
        dry_run,
    };
    if !state.webhooks().concern(&question, &state.kinds) {
        return Ok(None);
    }
    gate.answer(question).map(Some)
}

/// Prunes an object that a webhook has changed, and sets its defaults.
pub(crate) fn normalize_patched(kind: &Kind, value: &mut Value) -> ApiResult<()> {
    let options = WriteOptions { validation: Validation::Ignore, ..WriteOptions::default() };
    admit::normalize(kind, value, &options).map(drop)
}
