//! How far work is, for those who show it.

use jiff::Timestamp;

use super::Journal;

/// How far work is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The step that it is in, or was in last.
    pub step: String,
    /// What is done or waited for in it, or why the work rests, in a sentence.
    pub message: String,
    /// Since when it is in that step.
    pub since: Timestamp,
    /// So many steps are done
    pub done: usize,
    /// of so many.
    pub of: usize,
}

impl Progress {
    /// From 0 to 100; 100 only when all is done.
    pub fn percent(&self) -> u8 {
        let share = self.done.min(self.of) * 100 / self.of.max(1);
        u8::try_from(share).unwrap_or(100)
    }
}

/// How far the work of a journal is; none before its first step.
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
    fn progress_counts_what_is_done_and_says_what_is_waited_for() {
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
