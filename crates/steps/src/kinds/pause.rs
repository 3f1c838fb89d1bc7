//! `pause`: lets time pass. After a crash or a hand-back it begins anew, so that at least this time passes undisturbed.

use std::time::Duration;

use tokio::time::Instant;

use super::Turn;
use super::with::With;
use crate::engine::{Look, Obstacle, Outcome, Report, StepError};
use crate::problem::Problem;

/// The longest pause; whoever wants to wait for longer wants a schedule.
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

    pub(super) async fn look(&self, turn: Turn) -> Result<Look, StepError> {
        let end = turn.began + self.duration;
        tokio::time::sleep_until(end.min(Instant::now() + turn.limit)).await;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let lasted = api::duration::TimeSpan::new(self.duration);
            return Ok(Look::Done(Outcome::said(format!("paused for {lasted}"))));
        }
        let left = api::duration::TimeSpan::new(Duration::from_secs(left.as_secs() + 1));
        let obstacle = Obstacle {
            what: "pause".to_owned(),
            message: format!("ends in {left}"),
            owner: api::admin::Owner::System,
        };
        Ok(Look::Held(Report { message: format!("pauses for {left} more"), obstacles: vec![obstacle] }))
    }
}
