//! What is to go wrong: rules that calls meet, and the handle by which tests set them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::install::InstallStage;
use serde::{Deserialize, Serialize};

use crate::seed;

/// More rules than this are a mistake; the oldest are forgotten.
const RULES_MAX: usize = 1000;

/// The rules of a service. Cheap to clone; every clone is of the same rules. They are gone when the service ends.
#[derive(Debug, Clone)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    seed: u64,
    calls: u64,
    rules: Vec<FaultRule>,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Faults {
        Faults { inner: Arc::new(Mutex::new(Inner { seed, calls: 0, rules: Vec::new() })) }
    }

    /// Lets something go wrong from now on. Of several rules that fit a call, the oldest is met.
    pub fn inject(&self, rule: FaultRule) {
        let mut inner = self.lock();
        if inner.rules.len() >= RULES_MAX {
            inner.rules.remove(0);
        }
        inner.rules.push(rule);
    }

    /// What goes wrong now, with what is left of each.
    pub fn present(&self) -> Vec<FaultRule> {
        self.lock().rules.clone()
    }

    /// Lets nothing go wrong any longer.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// What a call meets, among what `is_meant` lets pass.
    pub(crate) fn meet(
        &self,
        verb: &str,
        subject: &str,
        is_meant: impl Fn(&Trouble) -> bool,
    ) -> Option<Trouble> {
        let mut inner = self.lock();
        inner.calls += 1;
        let (seed, calls) = (inner.seed, inner.calls.to_string());
        let subject = subject.to_lowercase();
        let at = inner.rules.iter().enumerate().position(|(number, rule)| {
            let fits = is_meant(&rule.trouble)
                && suits(&rule.trouble, verb)
                && rule.verb.as_deref().is_none_or(|it| it == verb)
                && rule.about.as_ref().is_none_or(|it| subject.contains(&it.to_lowercase()));
            let drawn = || seed::share(seed, &["fault", &calls, &number.to_string()]);
            fits && rule.share.is_none_or(|share| drawn() < share)
        })?;
        let rule = &mut inner.rules[at];
        let trouble = rule.trouble.clone();
        if let Some(times) = &mut rule.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                inner.rules.remove(at);
            }
        }
        Some(trouble)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Some troubles befall some verbs only.
fn suits(trouble: &Trouble, verb: &str) -> bool {
    match trouble {
        Trouble::Quota { .. } | Trouble::FailsLater { .. } | Trouble::Unseen { .. } => verb == "put",
        Trouble::SpreadsLate { .. } => verb == "assignRole",
        Trouble::InstallFails { .. } => verb == "install",
        Trouble::Throttled { .. }
        | Trouble::Unavailable { .. }
        | Trouble::Reset { .. }
        | Trouble::Hangs { .. }
        | Trouble::Denied {} => true,
    }
}

/// What is to go wrong, and when: posted to `/sim/faults`. A rule lasts until it is spent, cleared, or the service ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// What goes wrong.
    pub trouble: Trouble,
    /// Only calls of this verb, as [`Call::verb`](crate::protocol::Call::verb) spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Only calls about something whose id or name contains this, whatever the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Only so many calls; all when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Only this share of the calls, from 0 to 1, by the service's seed; all when none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl FaultRule {
    /// Each call meets it.
    pub fn new(trouble: Trouble) -> FaultRule {
        FaultRule { trouble, verb: None, about: None, times: None, share: None }
    }

    /// Only calls of this verb.
    #[must_use]
    pub fn on(mut self, verb: &str) -> FaultRule {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Only calls about something whose id or name contains this.
    #[must_use]
    pub fn about(mut self, text: &str) -> FaultRule {
        self.about = Some(text.to_owned());
        self
    }

    /// Only so many calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> FaultRule {
        self.times = Some(times);
        self
    }

    /// Only this share of the calls.
    #[must_use]
    pub fn share(mut self, share: f64) -> FaultRule {
        self.share = Some(share);
        self
    }
}

/// Whether something goes wrong before what was asked is done, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Moment {
    /// Nothing was done.
    Before,
    /// It was done, and the caller does not know.
    After,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Trouble {
    /// The call is refused with 429.
    Throttled {
        /// What `Retry-After` says.
        after_seconds: u64,
    },
    /// The call fails with 500.
    Unavailable {
        /// Before or after its effect.
        when: Moment,
    },
    /// The connection is reset.
    Reset {
        /// Before or after its effect.
        when: Moment,
    },
    /// The call is not answered for so long; its effect comes first or last.
    Hangs {
        /// So many milliseconds.
        millis: u64,
        /// Before or after its effect.
        when: Moment,
    },
    /// A put is refused for want of quota.
    Quota {
        /// The quota's name.
        quota: String,
    },
    /// Whoever asks may not.
    Denied {},
    /// A put is accepted and comes to a bad end, as when a template deploys in part.
    FailsLater {
        /// The cloud's code.
        code: String,
        /// In a sentence.
        message: String,
    },
    /// What a put makes is not seen by get and list for a while.
    Unseen {
        /// So many milliseconds.
        millis: u64,
    },
    /// A role takes effect late.
    SpreadsLate {
        /// So many milliseconds.
        millis: u64,
    },
    /// An installation is accepted and fails at a stage. (At `complete` it stays in `operators` with its failure.)
    InstallFails {
        /// The stage.
        stage: InstallStage,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = |when: &Moment| match when {
            Moment::Before => "before its effect",
            Moment::After => "after its effect",
        };
        match self {
            Trouble::Throttled { after_seconds } => write!(f, "throttled for {after_seconds} s"),
            Trouble::Unavailable { when: at } => write!(f, "unavailable {}", when(at)),
            Trouble::Reset { when: at } => write!(f, "reset {}", when(at)),
            Trouble::Hangs { millis, when: at } => write!(f, "hangs for {millis} ms {}", when(at)),
            Trouble::Quota { quota } => write!(f, "the quota {quota} is exceeded"),
            Trouble::Denied {} => f.write_str("denied"),
            Trouble::FailsLater { code, .. } => write!(f, "ends with {code}"),
            Trouble::Unseen { millis } => write!(f, "is not seen for {millis} ms"),
            Trouble::SpreadsLate { millis } => write!(f, "spreads {millis} ms late"),
            Trouble::InstallFails { stage } => write!(f, "installation fails at {}", stage.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(faults: &Faults, verb: &str, subject: &str) -> bool {
        faults.meet(verb, subject, |_| true).is_some()
    }

    #[test]
    fn a_rule_is_met_by_what_it_names_and_as_often_as_it_says() {
        let faults = Faults::new(1);
        faults.inject(FaultRule::new(Trouble::Denied {}).on("put").about("Master-").times(2));
        assert!(!met(&faults, "get", "x-master-0"));
        assert!(!met(&faults, "put", "x-worker-0"));
        assert!(met(&faults, "put", "x-MASTER-0"));
        assert_eq!(faults.present()[0].times, Some(1));
        assert!(met(&faults, "put", "x-master-1"));
        assert!(!met(&faults, "put", "x-master-2"));
        assert!(faults.present().is_empty());
    }

    #[test]
    fn a_share_is_met_about_that_often_and_the_same_each_time() {
        let run = |seed| {
            let faults = Faults::new(seed);
            let when = Moment::Before;
            faults.inject(FaultRule::new(Trouble::Unavailable { when }).share(0.05));
            (0..2000).map(|_| met(&faults, "get", "x")).collect::<Vec<bool>>()
        };
        let hits = run(7).into_iter().filter(|it| *it).count();
        assert!((60..=140).contains(&hits), "{hits}");
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn what_befalls_puts_only_befalls_nothing_else() {
        let faults = Faults::new(1);
        faults.inject(FaultRule::new(Trouble::Unseen { millis: 5 }));
        assert!(!met(&faults, "get", "x"));
        assert!(met(&faults, "put", "x"));
    }
}
