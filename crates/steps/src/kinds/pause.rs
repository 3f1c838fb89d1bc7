//! `pause`: waits for a duration. After a crash or a release it starts again, so that the whole duration passes undisturbed.

use std::time::Duration;

use tokio::time::Instant;

use super::PollLimits;
use super::with::With;
use crate::engine::{Obstacle, PollStatus, Report, StepError, StepOutcome};
use crate::problem::Problem;

/// Longest pause; a longer one should be a schedule.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug)]
pub(super) struct Pause {
    pub(super) duration: Duration,
}

impl Pause {
    pub(super) fn read(with: &mut With<'_>) -> Result<Pause, Problem> {
        let duration = with.duration("duration")?;
        let duration = with.required("duration", duration)?;
        if duration > PAUSE_MAX {
            return Err(with.problem("duration", "a pause lasts at most 24h"));
        }
        Ok(Pause { duration })
    }

    pub(super) async fn poll(&self, limits: PollLimits) -> Result<PollStatus, StepError> {
        let end = limits.began + self.duration;
        tokio::time::sleep_until(end.min(Instant::now() + limits.limit)).await;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let lasted = api::duration::TimeSpan::new(self.duration);
            return Ok(PollStatus::Done(StepOutcome::with_message(format!("paused for {lasted}"))));
        }
        let left = api::duration::TimeSpan::new(Duration::from_secs(left.as_secs() + 1));
        let obstacle = Obstacle {
            what: "pause".to_owned(),
            message: format!("ends in {left}"),
            owner: api::admin::Owner::System,
        };
        Ok(PollStatus::Blocked(Report {
            message: format!("pauses for {left} more"),
            obstacles: vec![obstacle],
        }))
    }
}
