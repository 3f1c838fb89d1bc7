//! Estimated duration of a run: observed durations of its task, blended with the declared one.

use std::time::Duration;

use api::admin::{Confidence, PlanDuration};
use api::doc::TaskStats;
use api::duration::TimeSpan;

use crate::task::ExpectedDuration;

/// Number of observed runs from which an estimate counts as measured.
pub const MEASURED_FROM: u64 = 10;
/// Weight of a declared duration, in observed runs.
const DECLARED_WEIGHT: f64 = 2.0;
/// Weight of a duration derived from steps, in observed runs.
const DERIVED_WEIGHT: f64 = 1.0;
/// Estimate of an unknown task without observed runs.
const UNKNOWN: Duration = Duration::from_secs(30 * 60);

/// Estimates a task; the weight of observed durations grows with their number.
pub fn estimate(stats: Option<&TaskStats>, expected: Option<ExpectedDuration>) -> PlanDuration {
    let runs = stats.map_or(0, TaskStats::runs);
    let at = |percent: usize| {
        let observed = stats.and_then(|it| it.percentile(percent)).map(|it| (it, runs));
        let prior = expected.map(|it| (it.duration, weight(it)));
        TimeSpan::new(blend(prior, observed))
    };
    let confidence = match (runs, expected) {
        (MEASURED_FROM.., _) => Confidence::Measured,
        (1.., _) => Confidence::FewRuns,
        (0, Some(ExpectedDuration { declared: true, .. })) => Confidence::Declared,
        (0, _) => Confidence::Assumed,
    };
    PlanDuration { p50: at(50), p95: at(95), runs, confidence }
}

fn weight(expected: ExpectedDuration) -> f64 {
    if expected.declared { DECLARED_WEIGHT } else { DERIVED_WEIGHT }
}

/// Weighted geometric mean of a prior with its weight in runs, and an observed duration with its number of runs, in whole
/// milliseconds. Durations differ by orders of magnitude: a prior of an hour would dominate an arithmetic mean for hundreds of
/// runs of a second.
pub fn blend(prior: Option<(Duration, f64)>, observed: Option<(Duration, u64)>) -> Duration {
    let millis = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX).max(1);
    let found = match (prior, observed) {
        (None, None) => millis(UNKNOWN),
        (Some((prior, _)), None) => millis(prior),
        (None, Some((observed, _))) => millis(observed),
        (Some((prior, weight)), Some((observed, runs))) => {
            let (prior, observed, runs) = (millis(prior), millis(observed), runs as f64);
            let share = runs / (runs + weight);
            let log = (1.0 - share) * (prior as f64).ln() + share * (observed as f64).ln();
            (log.exp().round() as u64).clamp(prior.min(observed), prior.max(observed))
        }
    };
    Duration::from_millis(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn stats(millis: &[u64]) -> TaskStats {
        let mut stats = TaskStats::of(Uuid::nil());
        stats.add(millis.iter().map(|it| Duration::from_millis(*it)));
        stats
    }

    fn declared(seconds: u64) -> Option<ExpectedDuration> {
        Some(ExpectedDuration { duration: Duration::from_secs(seconds), declared: true })
    }

    #[test]
    fn the_first_run_counts_and_the_time_limit_never_does() {
        let none = estimate(None, declared(60));
        assert_eq!((none.p95, none.runs, none.confidence), (TimeSpan::minutes(1), 0, Confidence::Declared));
        let one = estimate(Some(&stats(&[500])), declared(60));
        assert!(one.p95 < TimeSpan::seconds(15), "{one:?}");
        assert_eq!((one.runs, one.confidence), (1, Confidence::FewRuns));
        let many = estimate(Some(&stats(&[500; 100])), declared(60));
        assert!(many.p95.duration() < Duration::from_millis(560), "{many:?}");
        assert_eq!((many.runs, many.confidence), (100, Confidence::Measured));
    }

    #[test]
    fn an_undeclared_duration_is_assumed_and_an_unknown_task_uses_only_observations() {
        let derived = Some(ExpectedDuration { duration: Duration::from_secs(10), declared: false });
        assert_eq!(estimate(None, derived).confidence, Confidence::Assumed);
        assert_eq!(estimate(None, None).p95, TimeSpan::minutes(30));
        let observed = estimate(Some(&stats(&[7000])), None);
        assert_eq!((observed.p50, observed.p95), (TimeSpan::seconds(7), TimeSpan::seconds(7)));
    }

    #[test]
    fn the_percentiles_are_those_of_the_runs() {
        let range = estimate(Some(&stats(&(1..=100).map(|it| it * 1000).collect::<Vec<_>>())), None);
        assert_eq!((range.p50, range.p95), (TimeSpan::seconds(50), TimeSpan::seconds(95)));
    }

    fn span() -> impl Strategy<Value = Duration> {
        (0_u32..30, 0_u64..1000).prop_map(|(power, more)| Duration::from_millis((1 << power) + more))
    }

    proptest! {
        #[test]
        fn a_blend_lies_between_prior_and_evidence(prior in span(), observed in span(), runs in 1_u64..100_000, weight in 0.5_f64..10.0) {
            let found = blend(Some((prior, weight)), Some((observed, runs)));
            prop_assert!(found >= prior.min(observed) && found <= prior.max(observed), "{found:?}");
        }

        #[test]
        fn a_blend_grows_with_prior_and_evidence(a in span(), b in span(), other in span(), runs in 1_u64..1000) {
            let (low, high) = (a.min(b), a.max(b));
            let blended = |prior, observed| blend(Some((prior, DECLARED_WEIGHT)), Some((observed, runs)));
            prop_assert!(blended(low, other) <= blended(high, other));
            prop_assert!(blended(other, low) <= blended(other, high));
        }

        #[test]
        fn more_runs_bring_a_blend_nearer_to_the_evidence(prior in span(), observed in span(), runs in 1_u64..1000) {
            let distance = |runs| blend(Some((prior, DECLARED_WEIGHT)), Some((observed, runs))).abs_diff(observed);
            prop_assert!(distance(runs + 1) <= distance(runs));
            // Within a hundredth of it after very many.
            prop_assert!(distance(10_000_000) <= observed / 100 + Duration::from_millis(1));
        }
    }
}
