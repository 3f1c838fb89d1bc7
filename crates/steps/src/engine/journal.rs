//! What the engine remembers of a plan between two writes: the checkpoint of its work, as a type.
//!
//! Only the engine writes it. Whoever shows how work fares reads it: what is done, which step it is in and what that waits
//! for, why it rests, what was undone. Members that this release does not know are kept as they were.

use api::admin::StepProgress;
use api::doc::ResultCode;
use api::work::Ending;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The checkpoint of a plan's work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Journal {
    /// The version of the task that the work began with; 0 for what has no versions.
    pub task_version: u32,
    /// The definition that the work began with, for tasks written as data: later versions do not change running work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Value>,
    /// The steps that are done, in the order in which they ended.
    pub done: Vec<Done>,
    /// The taking back of what was done, once it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undoing>,
    /// The step that the work is in, or was in last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepProgress>,
    /// What a customer is told of that step, while its message is an error's and thus an operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer: Option<String>,
    /// Why the work rests, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// What other releases wrote.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A step that came to its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// Its name.
    pub name: String,
    /// What it left for later steps and its undo.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub memory: Value,
}

/// How far the taking back has come, and what the end will be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Undoing {
    /// How the work ends when all is taken back.
    pub ending: Ending,
    /// A word for machines: why.
    #[serde(default)]
    pub code: ResultCode,
    /// Why, in a sentence.
    #[serde(default)]
    pub message: String,
    /// Who asked for it, when somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// In whose words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step that was in hand, whose effects are taken back first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Steps whose undo has been dealt with.
    #[serde(default)]
    pub settled: Vec<String>,
    /// What was taken back, in sentences.
    #[serde(default)]
    pub undone: Vec<String>,
    /// What could not be taken back, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

/// Why work rests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// For what.
    pub code: WaitingCode,
    /// In a sentence.
    #[serde(default)]
    pub message: String,
    /// Since when it rests for that reason.
    pub since: Timestamp,
    /// How often in a row it was parked for that reason; each time it rests longer.
    #[serde(default)]
    pub times: u32,
    /// How many of these times were told in its log: the first, and those for which the words changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub told: u32,
    /// So many attempts failed for something that a customer is told of, since a step last came to its end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub theirs: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// For what work can rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitingCode {
    /// The cluster's API server does not answer.
    Unreachable,
    /// What the task requires of the cluster is not so.
    Precondition,
    /// It rests after a failed attempt.
    BackingOff,
    /// A customer's operation went first.
    Preempted,
    /// Its worker was shut down.
    Shutdown,
    /// Something that another release knows of.
    #[serde(other)]
    Other,
}

impl Undoing {
    /// Nothing is taken back yet.
    pub fn new(ending: Ending, code: impl Into<ResultCode>, message: impl Into<String>) -> Undoing {
        Undoing {
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
    /// Whether work that rests for this waits for something outside, at no cost, for as long as it takes.
    pub(super) fn is_parked(self) -> bool {
        match self {
            WaitingCode::Unreachable | WaitingCode::Precondition => true,
            WaitingCode::BackingOff | WaitingCode::Preempted | WaitingCode::Shutdown | WaitingCode::Other => {
                false
            }
        }
    }

    /// The word for it, as it is stored.
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
    /// Reads a checkpoint. What was never checkpointed is an empty journal; so is what no release of ours wrote, for a
    /// plan can always be begun again.
    pub fn read(checkpoint: Option<&Value>) -> Journal {
        checkpoint.and_then(|value| Journal::deserialize(value).ok()).unwrap_or_default()
    }

    /// The checkpoint to be stored.
    pub fn write(&self) -> Value {
        serde_json::to_value(self).expect("a journal has text keys and no values that JSON does not have")
    }

    /// The step that the work is in, or was in last.
    pub fn step(&self) -> Option<&StepProgress> {
        self.step.as_ref()
    }

    /// What a customer is told of the step that the work is in: never an error's words, unless they were written for customers.
    pub fn for_customer(&self) -> &str {
        let said = self.step.as_ref().map_or("", |step| &step.message);
        self.customer.as_deref().unwrap_or(said)
    }

    /// Why the work rests.
    pub fn waiting(&self) -> Option<&Waiting> {
        self.waiting.as_ref()
    }

    /// Whether what was done is being taken back.
    pub fn is_undoing(&self) -> bool {
        self.undo.is_some()
    }

    /// Whether the step of that name came to its end.
    pub fn is_done(&self, step: &str) -> bool {
        self.done.iter().any(|it| it.name == step)
    }

    /// Whether the step of that name was begun and did not come to its end. A step without a name is one that a lost holder
    /// may have begun: it is whichever comes next.
    pub fn is_open(&self, step: &str) -> bool {
        self.step.as_ref().is_some_and(|it| it.name == step || it.name.is_empty()) && !self.is_done(step)
    }

    /// Whether something of the work may have taken effect.
    pub fn has_begun(&self) -> bool {
        self.step.is_some() || !self.done.is_empty() || self.is_undoing()
    }

    /// What the step of that name left; null when it left nothing or did not come to its end.
    pub fn memory(&self, step: &str) -> Value {
        self.done.iter().find(|it| it.name == step).map_or(Value::Null, |it| it.memory.clone())
    }

    /// What all done steps left, by their names.
    pub fn memories(&self) -> Map<String, Value> {
        let left = self.done.iter().filter(|it| !it.memory.is_null());
        left.map(|it| (it.name.clone(), it.memory.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_journal_is_read_back_as_written_with_what_others_added() {
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
    fn nothing_nonsense_and_unknown_words_are_read_without_complaint() {
        assert_eq!(Journal::read(None), Journal::default());
        assert_eq!(Journal::read(Some(&json!("left by somebody"))), Journal::default());
        let later = json!({"waiting": {"code": "Frozen", "since": "2026-03-01T00:00:00Z"}});
        let waiting = Journal::read(Some(&later)).waiting.unwrap();
        assert_eq!((waiting.code, waiting.code.as_str()), (WaitingCode::Other, "Other"));
    }
}
