//! What is to go wrong: rules that calls meet, and the handle by which tests set them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cloud::sim::{FaultRule, Trouble};

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
        Trouble::Throttled { .. }
        | Trouble::Unavailable { .. }
        | Trouble::Reset { .. }
        | Trouble::Hangs { .. }
        | Trouble::Denied {} => true,
    }
}

#[cfg(test)]
mod tests {
    use cloud::sim::Moment;

    use super::*;

    fn met(faults: &Faults, verb: &str, subject: &str) -> bool {
        faults.meet(verb, subject, |_| true).is_some()
    }

    #[test]
    fn a_rule_is_met_by_what_it_names_and_as_often_as_it_says() {
        let faults = Faults::new(1);
        faults.inject(FaultRule::of(Trouble::Denied {}).on("put").about("Master-").times(2));
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
            faults.inject(FaultRule::of(Trouble::Unavailable { when }).share(0.05));
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
        faults.inject(FaultRule::of(Trouble::Unseen { millis: 5 }));
        assert!(!met(&faults, "get", "x"));
        assert!(met(&faults, "put", "x"));
    }
}
