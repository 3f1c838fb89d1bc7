//! The run of one claimed work, until its outcome is written.

use store::ClaimedWork;
use tokio::time::Instant;

use super::{Attempt, ReleaseOutcome, WorkHandler};
use crate::engine::{RunControl, RunOutcome};

/// Runs claimed work and writes its outcome.
pub(super) async fn run_claimed<H: WorkHandler>(
    handler: &H,
    claimed: ClaimedWork,
    control: RunControl,
    mut facts: H::Facts,
) {
    let mut attempt = Attempt { claimed, control, started: Instant::now() };
    loop {
        match handler.run(&attempt, &mut facts).await {
            RunOutcome::Finished(completion) => {
                if !handler.complete(&attempt, &facts, completion).await {
                    handler.lost(1);
                }
            }
            RunOutcome::Released { yielding, reason } => {
                match handler.pool().release(&attempt.control, &yielding).await {
                    ReleaseOutcome::Released => handler.released(&facts, &yielding, reason).await,
                    ReleaseOutcome::CancelRequested => {
                        // The cancel came before the release: the run continues from the checkpoint that it would have left.
                        attempt.control.cancel.cancel();
                        attempt.claimed.checkpoint = yielding.checkpoint.map(|(_, data)| data);
                        continue;
                    }
                    ReleaseOutcome::LeaseLost => handler.lost(1),
                }
            }
            RunOutcome::LeaseLost => handler.lost(1),
        }
        return;
    }
}
