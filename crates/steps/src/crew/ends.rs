//! The ends of work, written together: while one batch is written the next one gathers, and what takes its place is claimed.
//! Nobody waits for more.

use std::sync::Arc;
use std::time::Duration;

use api::error::{Class, Classify as _};
use store::{Completion, Fate};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Crew, Trade};

/// The most that one write ends; a longer one would keep others of the store waiting.
const BATCH_MAX: usize = 200;
/// The first pause after a refused write; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after a refused write.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An end to be written, and whoever waits for that.
#[derive(Debug)]
pub(super) struct End {
    pub(super) completion: Completion,
    pub(super) written: oneshot::Sender<Fate>,
}

/// Writes ends as they come, until it is told that no more will.
pub(super) async fn write<T: Trade>(
    trade: Arc<T>,
    mut ends: mpsc::UnboundedReceiver<End>,
    over: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        let got = tokio::select! {
            biased;
            got = ends.recv_many(&mut batch, BATCH_MAX) => got,
            () = over.cancelled() => return,
        };
        if got == 0 {
            return;
        }
        gather(&mut ends, &mut batch).await;
        trade.crew().holds.leave(batch.iter().map(|end| end.completion.hold));
        // Whoever claims what takes their place goes first: it is read and begun while these ends are written.
        tokio::task::yield_now().await;
        // In the order of their ids, which is that of their making: so they lie side by side in the store.
        batch.sort_unstable_by_key(|end| end.completion.hold.work);
        let (completions, waiting): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|end| (end.completion, end.written)).unzip();
        write_batch(trade.crew(), &completions, waiting, &over).await;
    }
}

/// Whoever is at its end at this moment comes along, and whoever comes while others do; nobody waits for time to pass.
async fn gather(ends: &mut mpsc::UnboundedReceiver<End>, batch: &mut Vec<End>) {
    let mut before = 0;
    while before < batch.len() && batch.len() < BATCH_MAX {
        before = batch.len();
        tokio::task::yield_now().await;
        while batch.len() < BATCH_MAX
            && let Ok(end) = ends.try_recv()
        {
            batch.push(end);
        }
    }
}

async fn write_batch(
    crew: &Crew,
    ends: &[Completion],
    waiting: Vec<oneshot::Sender<Fate>>,
    over: &CancellationToken,
) {
    let mut pause = PAUSE;
    loop {
        match crew.store.complete(ends).await {
            Ok(fates) => {
                crew.holds.release(ends.iter().map(|end| end.hold));
                for (waiting, fate) in waiting.into_iter().zip(fates) {
                    // Whoever waited may be gone with a lost lease.
                    let _ = waiting.send(fate);
                }
                return;
            }
            Err(error) if error.class() == Class::Transient => {
                tracing::info!(error = %error, "{} ends are said again", ends.len());
            }
            Err(error) if ends.len() == 1 => {
                // Dropping the answer tells the run that nothing was written; the lease runs out, and another tries.
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "The end of work {} was refused",
                    ends[0].hold.work
                );
                return;
            }
            Err(_) => {
                // One of them cannot be stored; the others can.
                for (end, waiting) in ends.iter().zip(waiting) {
                    Box::pin(write_batch(crew, std::slice::from_ref(end), vec![waiting], over)).await;
                }
                return;
            }
        }
        if over.run_until_cancelled(sleep(pause)).await.is_none() {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
