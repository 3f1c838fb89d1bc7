//! The queue of completions that are not written yet. Completions that arrive during one write go together with the next; none
//! waits longer than that.

use api::error::{Class, Classify as _};
use backon::{BackoffBuilder as _, ExponentialBackoff};
use store::{CompletionOutcome, PreparedCompletion, StoreError, WorkLease};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::backoff::store_backoff;

/// The most completions in one write; a larger one would keep other callers of the store waiting.
const BATCH_MAX: usize = 200;

/// A completion to be written, and the channel on which its run waits for that.
pub(super) type QueuedCompletion = (PreparedCompletion, oneshot::Sender<CompletionOutcome>);

/// Completions that are not written yet.
#[derive(Debug)]
pub struct CompletionQueue {
    incoming: mpsc::UnboundedReceiver<QueuedCompletion>,
    unwritten: Vec<PreparedCompletion>,
    /// The run that waits for each of the unwritten completions, in the same order.
    waiting: Vec<oneshot::Sender<CompletionOutcome>>,
    /// How many of the unwritten completions were rejected together, and are written one by one.
    singly: usize,
    backoff: ExponentialBackoff,
    /// When the write is retried after a failure.
    retry_at: Option<Instant>,
}

impl CompletionQueue {
    pub(super) fn new(incoming: mpsc::UnboundedReceiver<QueuedCompletion>) -> CompletionQueue {
        CompletionQueue {
            incoming,
            unwritten: Vec::new(),
            waiting: Vec::new(),
            singly: 0,
            backoff: store_backoff().build(),
            retry_at: None,
        }
    }

    /// Waits until there is something to write: a new completion, or the end of the delay after a failed write. Cancel-safe.
    pub(super) async fn next(&mut self) {
        match self.retry_at {
            Some(at) => sleep_until(at).await,
            None if !self.unwritten.is_empty() => {}
            None => {
                if let Some(completion) = self.incoming.recv().await {
                    self.push(completion);
                }
            }
        }
    }

    /// Adds the completions that have arrived since.
    pub(super) fn gather(&mut self) {
        while self.unwritten.len() < BATCH_MAX
            && let Ok(completion) = self.incoming.try_recv()
        {
            self.push(completion);
        }
    }

    fn push(&mut self, (end, waiting): QueuedCompletion) {
        self.unwritten.push(end);
        self.waiting.push(waiting);
    }

    /// The completions to write now; none during the delay after a failed write.
    pub(super) fn due(&self) -> &[PreparedCompletion] {
        let is_delayed = self.retry_at.is_some_and(|at| at > Instant::now());
        &self.unwritten[..if is_delayed { 0 } else { self.batch_len() }]
    }

    fn batch_len(&self) -> usize {
        if self.singly > 0 { 1 } else { self.unwritten.len() }
    }

    /// Applies the result of writing the due completions. Returns those that are written, each with the run that waits for it.
    pub(super) fn apply(
        &mut self,
        result: Result<Vec<CompletionOutcome>, StoreError>,
    ) -> Vec<(WorkLease, oneshot::Sender<CompletionOutcome>, CompletionOutcome)> {
        let sent = self.batch_len();
        let mut written = Vec::new();
        self.retry_at = None;
        match result {
            Ok(outcomes) => {
                let ends = self.unwritten.drain(..sent).zip(self.waiting.drain(..sent));
                written.extend(
                    ends.zip(outcomes).map(|((end, waiting), outcome)| (end.lease(), waiting, outcome)),
                );
                self.backoff = store_backoff().build();
                self.singly = self.singly.saturating_sub(1);
            }
            Err(error) if error.class() == Class::Transient => {
                tracing::info!(error = %error, "Writing {sent} completions failed; retrying");
                self.retry_at = Some(Instant::now() + self.backoff.next().unwrap_or_default());
            }
            Err(error) if sent == 1 => {
                // Dropping the sender tells the run that nothing was written; the lease expires, and another process retries.
                log_rejected(self.unwritten.remove(0).lease(), &error);
                drop(self.waiting.remove(0));
                self.singly = self.singly.saturating_sub(1);
            }
            // One of them cannot be stored; the others can.
            Err(_) => self.singly = sent,
        }
        written
    }
}

/// Logs a completion that can never be stored.
pub(super) fn log_rejected(hold: WorkLease, error: &StoreError) {
    tracing::error!(
        error = error as &dyn std::error::Error,
        "The store rejected the completion of work {}",
        hold.work
    );
}

#[cfg(test)]
mod tests {
    use api::work::Ending;
    use futures_util::FutureExt as _;
    use serde_json::json;
    use store::Completion;
    use uuid::Uuid;

    use super::*;

    fn end(work: u128) -> PreparedCompletion {
        let hold = WorkLease {
            work: Uuid::from_u128(work),
            lane: Uuid::from_u128(work),
            owner: Uuid::nil(),
            fence: 1,
        };
        PreparedCompletion::new(&Completion::new(hold, Ending::Completed, json!({}))).unwrap()
    }

    /// A queue with `count` completions.
    async fn queue(
        count: u128,
    ) -> (CompletionQueue, Vec<oneshot::Receiver<CompletionOutcome>>, mpsc::UnboundedSender<QueuedCompletion>)
    {
        let (sender, incoming) = mpsc::unbounded_channel();
        let mut queue = CompletionQueue::new(incoming);
        let mut waiting = Vec::new();
        for work in 0..count {
            let (written, outcome) = oneshot::channel();
            sender.send((end(work), written)).unwrap();
            waiting.push(outcome);
        }
        queue.next().await;
        queue.gather();
        (queue, waiting, sender)
    }

    fn apply(queue: &mut CompletionQueue, result: Result<Vec<CompletionOutcome>, StoreError>) -> usize {
        let written = queue.apply(result);
        let count = written.len();
        for (_, waiting, outcome) in written {
            let _ = waiting.send(outcome);
        }
        count
    }

    fn unavailable() -> StoreError {
        StoreError::Unavailable { what: "the store is unavailable".to_owned(), source: None }
    }

    fn broken() -> StoreError {
        StoreError::Broken { what: "one of them".to_owned(), source: None }
    }

    #[tokio::test(start_paused = true)]
    async fn completions_are_retried_with_backoff_while_the_store_is_unavailable() {
        let (mut queue, mut waiting, _sender) = queue(2).await;
        assert_eq!(queue.due().len(), 2);
        for delay in [100, 200, 400] {
            assert_eq!(apply(&mut queue, Err(unavailable())), 0);
            assert!(queue.due().is_empty(), "nothing is due during the delay");
            let started = Instant::now();
            queue.next().await;
            // Timers are rounded up to the next millisecond.
            assert!((delay..=delay + 1).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
            assert_eq!(queue.due().len(), 2);
        }
        assert_eq!(apply(&mut queue, Ok(vec![CompletionOutcome::Done, CompletionOutcome::Lost])), 2);
        assert_eq!(
            (waiting.remove(0).await, waiting.remove(0).await),
            (Ok(CompletionOutcome::Done), Ok(CompletionOutcome::Lost))
        );
        assert!(queue.next().now_or_never().is_none(), "there is nothing more");
    }

    #[tokio::test]
    async fn a_completion_that_cannot_be_stored_does_not_block_the_others() {
        let (mut queue, mut waiting, sender) = queue(3).await;
        apply(&mut queue, Err(broken()));
        assert_eq!(queue.due().len(), 1, "now one by one");
        // Completions that arrive later are not part of the rejected batch.
        for work in 7..9 {
            sender.send((end(work), oneshot::channel().0)).unwrap();
        }
        queue.gather();
        assert_eq!(apply(&mut queue, Ok(vec![CompletionOutcome::Done])), 1);
        assert_eq!(apply(&mut queue, Err(broken())), 0);
        assert_eq!(apply(&mut queue, Ok(vec![CompletionOutcome::Done])), 1);
        assert_eq!(queue.due().len(), 2, "they are written together");
        assert_eq!(apply(&mut queue, Ok(vec![CompletionOutcome::Done, CompletionOutcome::Done])), 2);
        assert_eq!(waiting.remove(0).await, Ok(CompletionOutcome::Done));
        assert!(
            waiting.remove(0).await.is_err(),
            "the run of the rejected completion learns that nothing was written"
        );
        assert_eq!(waiting.remove(0).await, Ok(CompletionOutcome::Done));
        assert!(queue.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejection_after_a_retry_leaves_nothing_to_write() {
        let (mut queue, _waiting, _sender) = queue(1).await;
        apply(&mut queue, Err(unavailable()));
        queue.next().await;
        apply(&mut queue, Err(broken()));
        assert!(queue.next().now_or_never().is_none());
    }
}
