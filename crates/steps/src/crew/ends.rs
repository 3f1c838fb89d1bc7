//! The ends of work that are still to be written: those who come to their end while others' ends are written come along with
//! the next. Nobody waits for more.

use std::time::Duration;

use api::error::{Class, Classify as _};
use store::{CompletionOutcome, PreparedCompletion, StoreError, WorkLease};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// The most that one write ends; a longer one would keep others of the store waiting.
const BATCH_MAX: usize = 200;
/// The first pause after a refused write; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after a refused write.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An end to be written, and whoever waits for that.
pub(super) type Coming = (PreparedCompletion, oneshot::Sender<CompletionOutcome>);

/// Ends that are to be written.
#[derive(Debug)]
pub struct Ends {
    coming: mpsc::UnboundedReceiver<Coming>,
    /// Those that have come, each with whoever waits for it.
    unwritten: Vec<PreparedCompletion>,
    waiting: Vec<oneshot::Sender<CompletionOutcome>>,
    /// So many of them were refused together, and are written each for itself.
    singly: usize,
    /// After a failure: the pause before the next try, and its end.
    pause: Duration,
    again_at: Option<Instant>,
}

impl Ends {
    pub(super) fn new(coming: mpsc::UnboundedReceiver<Coming>) -> Ends {
        Ends { coming, unwritten: Vec::new(), waiting: Vec::new(), singly: 0, pause: PAUSE, again_at: None }
    }

    /// Waits until there is something to be written: a new end, or, after a pause, those that the store did not take. Giving
    /// up the wait loses none.
    pub(super) async fn next(&mut self) {
        match self.again_at {
            Some(at) => sleep_until(at).await,
            None if !self.unwritten.is_empty() => {}
            None => {
                if let Some(end) = self.coming.recv().await {
                    self.take(end);
                }
            }
        }
    }

    /// Whoever is at its end at this moment comes along.
    pub(super) fn gather(&mut self) {
        while self.unwritten.len() < BATCH_MAX
            && let Ok(end) = self.coming.try_recv()
        {
            self.take(end);
        }
    }

    fn take(&mut self, (end, waiting): Coming) {
        self.unwritten.push(end);
        self.waiting.push(waiting);
    }

    /// What is to be written now; nothing during a pause.
    pub(super) fn due(&self) -> &[PreparedCompletion] {
        let pausing = self.again_at.is_some_and(|at| at > Instant::now());
        &self.unwritten[..if pausing { 0 } else { self.at_once() }]
    }

    /// How many are written at once.
    fn at_once(&self) -> usize {
        if self.singly > 0 { 1 } else { self.unwritten.len() }
    }

    /// Takes in what became of those that were due; which are written, and who is to be told of it.
    pub(super) fn answered(
        &mut self,
        answer: Result<Vec<CompletionOutcome>, StoreError>,
    ) -> Vec<(WorkLease, oneshot::Sender<CompletionOutcome>, CompletionOutcome)> {
        let asked = self.at_once();
        let mut written = Vec::new();
        self.again_at = None;
        match answer {
            Ok(fates) => {
                let ends = self.unwritten.drain(..asked).zip(self.waiting.drain(..asked));
                written.extend(ends.zip(fates).map(|((end, waiting), fate)| (end.lease(), waiting, fate)));
                self.pause = PAUSE;
                self.singly = self.singly.saturating_sub(1);
            }
            Err(error) if error.class() == Class::Transient => {
                tracing::info!(error = %error, "{asked} ends are said again");
                self.again_at = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
            Err(error) if asked == 1 => {
                // Dropping the answer tells the run that nothing was written; the lease runs out, and another tries.
                refused(self.unwritten.remove(0).lease(), &error);
                drop(self.waiting.remove(0));
                self.singly = self.singly.saturating_sub(1);
            }
            // One of them cannot be stored; the others can.
            Err(_) => self.singly = asked,
        }
        written
    }
}

/// An end can never be stored as it is.
pub(super) fn refused(hold: WorkLease, error: &StoreError) {
    tracing::error!(error = error as &dyn std::error::Error, "The end of work {} was refused", hold.work);
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

    /// So many ends that wait to be written.
    async fn ends(
        count: u128,
    ) -> (Ends, Vec<oneshot::Receiver<CompletionOutcome>>, mpsc::UnboundedSender<Coming>) {
        let (sender, coming) = mpsc::unbounded_channel();
        let mut ends = Ends::new(coming);
        let mut waiting = Vec::new();
        for work in 0..count {
            let (written, fate) = oneshot::channel();
            sender.send((end(work), written)).unwrap();
            waiting.push(fate);
        }
        ends.next().await;
        ends.gather();
        (ends, waiting, sender)
    }

    fn answer(ends: &mut Ends, answer: Result<Vec<CompletionOutcome>, StoreError>) -> usize {
        let written = ends.answered(answer);
        let count = written.len();
        for (_, waiting, fate) in written {
            let _ = waiting.send(fate);
        }
        count
    }

    fn away() -> StoreError {
        StoreError::Unavailable { what: "the store is away".to_owned(), source: None }
    }

    fn wrong() -> StoreError {
        StoreError::Broken { what: "one of them".to_owned(), source: None }
    }

    #[tokio::test(start_paused = true)]
    async fn ends_are_said_again_after_a_pause_while_the_store_is_away() {
        let (mut ends, mut waiting, _sender) = ends(2).await;
        assert_eq!(ends.due().len(), 2);
        for pause in [PAUSE, PAUSE * 2, PAUSE * 4] {
            assert_eq!(answer(&mut ends, Err(away())), 0);
            assert!(ends.due().is_empty(), "nothing is due during a pause");
            let begun = Instant::now();
            ends.next().await;
            assert_eq!((begun.elapsed().as_millis(), ends.due().len()), (pause.as_millis(), 2));
        }
        assert_eq!(answer(&mut ends, Ok(vec![CompletionOutcome::Done, CompletionOutcome::Lost])), 2);
        assert_eq!(
            (waiting.remove(0).await, waiting.remove(0).await),
            (Ok(CompletionOutcome::Done), Ok(CompletionOutcome::Lost))
        );
        assert!(ends.next().now_or_never().is_none(), "there is nothing more");
    }

    #[tokio::test]
    async fn one_that_cannot_be_stored_does_not_hold_up_the_others() {
        let (mut ends, mut waiting, sender) = ends(3).await;
        answer(&mut ends, Err(wrong()));
        assert_eq!(ends.due().len(), 1, "now each for itself");
        // Later ones come meanwhile, and are not meant.
        for work in 7..9 {
            sender.send((end(work), oneshot::channel().0)).unwrap();
        }
        ends.gather();
        assert_eq!(answer(&mut ends, Ok(vec![CompletionOutcome::Done])), 1);
        assert_eq!(answer(&mut ends, Err(wrong())), 0);
        assert_eq!(answer(&mut ends, Ok(vec![CompletionOutcome::Done])), 1);
        assert_eq!(ends.due().len(), 2, "they go together");
        assert_eq!(answer(&mut ends, Ok(vec![CompletionOutcome::Done, CompletionOutcome::Done])), 2);
        assert_eq!(waiting.remove(0).await, Ok(CompletionOutcome::Done));
        assert!(
            waiting.remove(0).await.is_err(),
            "who waits for the refused one learns that nothing was written"
        );
        assert_eq!(waiting.remove(0).await, Ok(CompletionOutcome::Done));
        assert!(ends.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_a_pause_leaves_nothing_to_wait_for() {
        let (mut ends, _waiting, _sender) = ends(1).await;
        answer(&mut ends, Err(away()));
        ends.next().await;
        answer(&mut ends, Err(wrong()));
        assert!(ends.next().now_or_never().is_none());
    }
}
