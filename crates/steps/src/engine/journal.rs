//! The checkpoint of a plan's work, as a type.
//!
//! Only the engine writes it. Others read it to show the progress of work: completed steps, the current step and what it waits
//! for, why the work waits, what was undone. Members that this release does not know are preserved.

use api::admin::StepProgress;
use api::doc::{ResultCode, StepName};
use api::work::Ending;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The checkpoint of a plan's work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Journal {
    /// The version of the task with which the work started; 0 if it has no versions.
    pub task_version: u32,
    /// The definition with which the work started, for tasks written as data: later versions do not change running work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Value>,
    /// The completed steps, in the order of their completion.
    pub done: Vec<CompletedStep>,
    /// The undo, once it has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoState>,
    /// The current step, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepProgress>,
    /// What the customer sees of that step while its message is an error, which only operators see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Why the work waits, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitState>,
    /// Members written by other releases.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A completed step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CompletedStep {
    /// Its name.
    pub name: StepName,
    /// What it left for later steps and its undo.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub memory: Value,
}

/// The progress of an undo, and the outcome that follows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoState {
    /// The outcome of the work after the undo.
    pub ending: Ending,
    /// The machine-readable reason.
    #[serde(default)]
    pub code: ResultCode,
    /// The reason as a sentence.
    #[serde(default)]
    pub message: String,
    /// Who requested the cancel, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that they gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The interrupted step, which is undone first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepName>,
    /// Steps whose undo has been handled.
    #[serde(default)]
    pub settled: Vec<StepName>,
    /// What was undone, as sentences.
    #[serde(default)]
    pub undone: Vec<String>,
    /// What could not be undone, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

/// Why work waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitState {
    /// The machine-readable reason.
    pub code: WaitingCode,
    /// The reason as a sentence.
    #[serde(default)]
    pub message: String,
    /// Since when it waits for that reason.
    pub since: Timestamp,
    /// How often in a row it was parked for that reason; the delay grows with each.
    #[serde(default)]
    pub times: u32,
    /// How many of these times have an entry in the history: the first, and those with a new message.
    #[serde(default, rename = "told", skip_serializing_if = "is_zero")]
    pub logged: u32,
    /// Attempts that failed with an error for the customer since a step last completed.
    #[serde(default, rename = "theirs", skip_serializing_if = "is_zero")]
    pub customer_failures: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Reasons for which work waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitingCode {
    /// The cluster's API server does not answer.
    Unreachable,
    /// A precondition of the task is not met.
    Precondition,
    /// The last attempt failed.
    BackingOff,
    /// A customer's operation went first.
    Preempted,
    /// The worker was shut down.
    Shutdown,
    /// A reason that another release wrote.
    #[serde(other)]
    Other,
}

impl UndoState {
    /// An undo that has not started.
    pub fn new(ending: Ending, code: impl Into<ResultCode>, message: impl Into<String>) -> UndoState {
        UndoState {
            ending,
            code: code.into(),
            message: message.into(),
            by: None,
            reason: None,
            step: None,
            settled: Vec::new(),
            undone: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl WaitingCode {
    /// Whether the work waits for an external condition, without using up attempts, for as long as it takes.
    pub(super) fn is_parked(self) -> bool {
        match self {
            WaitingCode::Unreachable | WaitingCode::Precondition => true,
            WaitingCode::BackingOff | WaitingCode::Preempted | WaitingCode::Shutdown | WaitingCode::Other => {
                false
            }
        }
    }

    /// The reason as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitingCode::Unreachable => "Unreachable",
            WaitingCode::Precondition => "Precondition",
            WaitingCode::BackingOff => "BackingOff",
            WaitingCode::Preempted => "Preempted",
            WaitingCode::Shutdown => "Shutdown",
            WaitingCode::Other => "Other",
        }
    }
}

impl Journal {
    /// Reads a checkpoint. Without one, or with one that no release of Shipshape wrote, the journal is empty: a plan can always
    /// start again.
    pub fn read(checkpoint: Option<&Value>) -> Journal {
        checkpoint.and_then(|value| Journal::deserialize(value).ok()).unwrap_or_default()
    }

    /// The checkpoint to be stored.
    pub fn write(&self) -> Value {
        serde_json::to_value(self).expect("a journal has text keys and no values that JSON does not have")
    }

    /// The current step, or the last one.
    pub fn step(&self) -> Option<&StepProgress> {
        self.step.as_ref()
    }

    /// What the customer sees of the current step: never the message of an error, unless it was written for customers.
    pub fn for_customer(&self) -> &str {
        let said = self.step.as_ref().map_or("", |step| &step.message);
        self.customer.as_deref().unwrap_or(said)
    }

    /// Why the work waits.
    pub fn waiting(&self) -> Option<&WaitState> {
        self.waiting.as_ref()
    }

    /// Whether the work is being undone.
    pub fn is_undoing(&self) -> bool {
        self.undo.is_some()
    }

    /// Whether the step has completed.
    pub fn is_done(&self, step: &str) -> bool {
        self.done.iter().any(|it| it.name == step)
    }

    /// Whether the step was started and has not completed. A step without a name is one that a lost worker may have started: it
    /// stands for the next one.
    pub fn is_open(&self, step: &str) -> bool {
        self.step.as_ref().is_some_and(|it| it.name == step || it.name.is_empty()) && !self.is_done(step)
    }

    /// Whether the work may have taken effect.
    pub fn has_begun(&self) -> bool {
        self.step.is_some() || !self.done.is_empty() || self.is_undoing()
    }

    /// What the step left; null if it left nothing or has not completed.
    pub fn memory(&self, step: &str) -> Value {
        self.done.iter().find(|it| it.name == step).map_or(Value::Null, |it| it.memory.clone())
    }

    /// What the completed steps left, by their names.
    pub fn memories(&self) -> Map<String, Value> {
        let left = self.done.iter().filter(|it| !it.memory.is_null());
        left.map(|it| (it.name.to_string(), it.memory.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_journal_is_read_back_as_written_with_unknown_members() {
        let stored = json!({
            "taskVersion": 3,
            "plan": {"steps": []},
            "done": [{"name": "cordon", "memory": {"node": "a"}}, {"name": "drain"}],
            "step": {"name": "wait", "index": 3, "of": 4, "since": "2026-03-01T00:00:00Z", "message": "2 of 3 ready"},
            "waiting": {"code": "Unreachable", "message": "no answer", "since": "2026-03-01T00:00:00Z", "times": 2},
            "tomorrow": {"a": 1},
        });
        let journal = Journal::read(Some(&stored));
        assert!(journal.is_done("drain") && journal.is_open("wait") && !journal.is_undoing());
        assert_eq!(journal.memory("cordon"), json!({"node": "a"}));
        assert_eq!(journal.memories().len(), 1);
        assert_eq!(journal.waiting().map(|it| it.code), Some(WaitingCode::Unreachable));
        assert_eq!(journal.write(), stored);
    }

    #[test]
    fn missing_and_unknown_checkpoints_are_read_without_error() {
        assert_eq!(Journal::read(None), Journal::default());
        assert_eq!(Journal::read(Some(&json!("left by somebody"))), Journal::default());
        let later = json!({"waiting": {"code": "Frozen", "since": "2026-03-01T00:00:00Z"}});
        let waiting = Journal::read(Some(&later)).waiting.unwrap();
        assert_eq!((waiting.code, waiting.code.as_str()), (WaitingCode::Other, "Other"));
    }
}
