//! The kinds of steps, by the names in the `uses` of a task.

use std::fmt;
use std::str::FromStr;

/// A kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the table of the module describes each kind")]
pub enum StepKind {
    Pause,
    Assert,
    Apply,
    Patch,
    Delete,
    Wait,
    Restart,
    Job,
    Cordon,
    Uncordon,
    Drain,
}

impl StepKind {
    /// All kinds.
    pub const ALL: [StepKind; 11] = [
        StepKind::Pause,
        StepKind::Assert,
        StepKind::Apply,
        StepKind::Patch,
        StepKind::Delete,
        StepKind::Wait,
        StepKind::Restart,
        StepKind::Job,
        StepKind::Cordon,
        StepKind::Uncordon,
        StepKind::Drain,
    ];

    /// The name in the `uses` of a step.
    pub fn as_str(self) -> &'static str {
        match self {
            StepKind::Pause => "pause",
            StepKind::Assert => "assert",
            StepKind::Apply => "kubernetes/apply",
            StepKind::Patch => "kubernetes/patch",
            StepKind::Delete => "kubernetes/delete",
            StepKind::Wait => "kubernetes/wait",
            StepKind::Restart => "kubernetes/restart",
            StepKind::Job => "kubernetes/job",
            StepKind::Cordon => "node/cordon",
            StepKind::Uncordon => "node/uncordon",
            StepKind::Drain => "node/drain",
        }
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StepKind {
    type Err = String;

    fn from_str(text: &str) -> Result<StepKind, String> {
        let found = StepKind::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| {
            let names = StepKind::ALL.map(StepKind::as_str).join(", ");
            format!("{text:?} is not a kind of step; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_parsed_by_their_names() {
        for kind in StepKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        let error = "shell".parse::<StepKind>().unwrap_err();
        assert!(error.starts_with("\"shell\" is not a kind of step; there are pause, assert,"), "{error}");
    }
}
