//! Progress of work, for display.

use api::doc::StepName;
use jiff::Timestamp;

use super::Journal;

/// Progress of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The current step, or the last one.
    pub step: StepName,
    /// What is done or waited for in the step, or why the work waits, as a sentence.
    pub message: String,
    /// Since when the work is in that step.
    pub since: Timestamp,
    /// Number of completed steps.
    pub done: usize,
    /// Number of all steps.
    pub of: usize,
}

impl Progress {
    /// From 0 to 100; 100 only when all steps have completed.
    pub fn percent(&self) -> u8 {
        let share = self.done.min(self.of) * 100 / self.of.max(1);
        u8::try_from(share).unwrap_or(100)
    }
}

/// Progress recorded in a journal; none before its first step.
pub fn progress(journal: &Journal) -> Option<Progress> {
    let step = journal.step.as_ref()?;
    let message = journal.waiting.as_ref().map(|it| it.message.clone()).filter(|it| !it.is_empty());
    Some(Progress {
        step: step.name.clone(),
        message: message.unwrap_or_else(|| step.message.clone()),
        since: step.since,
        done: journal.done.len(),
        of: usize::try_from(step.of).unwrap_or(usize::MAX),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_counts_completed_steps_and_names_what_is_waited_for() {
        assert_eq!(progress(&Journal::default()), None);
        let stored = json!({
            "done": [{"name": "a"}, {"name": "b"}],
            "step": {"name": "c", "index": 3, "of": 8, "since": "2026-03-01T00:00:00Z", "message": "2 of 3 ready"},
        });
        let seen = progress(&Journal::read(Some(&stored))).unwrap();
        assert_eq!((seen.step.as_str(), seen.message.as_str(), seen.percent()), ("c", "2 of 3 ready", 25));
        let mut rests = Journal::read(Some(&stored));
        rests.waiting = serde_json::from_value(
            json!({"code": "BackingOff", "message": "the cloud asks us to slow down", "since": "2026-03-01T00:00:00Z"}),
        )
        .unwrap();
        assert_eq!(progress(&rests).unwrap().message, "the cloud asks us to slow down");
    }
}
