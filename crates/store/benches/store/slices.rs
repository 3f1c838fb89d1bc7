//! Alternating slices: one of the floor, one of what is measured.

use std::time::Duration;

/// Length and number of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// One slice of the floor or of what is measured.
    pub(crate) slice: Duration,
    /// Slices of each.
    pub(crate) pairs: usize,
    /// The large backlog.
    pub(crate) large: usize,
    /// Writing time of the feed test.
    pub(crate) feed: Duration,
}

impl Plan {
    pub(crate) const FULL: Plan =
        Plan { slice: Duration::from_millis(800), pairs: 9, large: 1_000_000, feed: Duration::from_secs(8) };
    pub(crate) const QUICK: Plan =
        Plan { slice: Duration::from_millis(200), pairs: 5, large: 100_000, feed: Duration::from_secs(2) };
}

/// Results of the slices: rates, or times.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    floor: Vec<f64>,
    measured: Vec<f64>,
}

impl Pairs {
    pub(crate) fn floor(&self) -> f64 {
        median(self.floor.clone())
    }

    pub(crate) fn measured(&self) -> f64 {
        median(self.measured.clone())
    }

    /// Median of the ratios of neighbours, which ran under the same load.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.floor.iter().zip(&self.measured).map(|(floor, measured)| measured / floor).collect())
    }
}

/// Runs slices alternately. The first pair only warms up caches, plans and connections.
pub(crate) async fn alternate(
    plan: Plan,
    mut floor: impl AsyncFnMut(Duration) -> anyhow::Result<f64>,
    mut measured: impl AsyncFnMut(Duration) -> anyhow::Result<f64>,
) -> anyhow::Result<Pairs> {
    let mut pairs = Pairs::default();
    let warm_up = plan.slice / 2;
    floor(warm_up).await?;
    measured(warm_up).await?;
    for _ in 0..plan.pairs {
        pairs.floor.push(floor(plan.slice).await?);
        pairs.measured.push(measured(plan.slice).await?);
    }
    Ok(pairs)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => (values[length / 2 - 1] + values[length / 2]) / 2.0,
    }
}
