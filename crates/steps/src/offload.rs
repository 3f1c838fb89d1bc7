//! Runs computations on threads of their own, so that they do not block the threads that serve requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Longest time of one computation: an evaluation of one object, or of all that a step polls.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(10);
/// Most computations of maintenance at the same time.
static MAINTENANCE: Semaphore = Semaphore::const_new(4);
/// Most checks for callers of the API at the same time. They take no permit from maintenance.
static CHECKS: Semaphore = Semaphore::const_new(4);

/// Runs a computation of maintenance, such as an evaluation, on a blocking thread. It receives a flag that is set when its time
/// is over or when nobody waits for it any more, and must then return; `None` if it panicked.
pub async fn offload<T: Send + 'static>(work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Option<T> {
    run(&MAINTENANCE, work).await
}

/// Runs a check for a caller of the API like [`offload`], with permits of its own.
pub async fn offload_check<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Option<T> {
    run(&CHECKS, work).await
}

async fn run<T: Send + 'static>(
    permits: &'static Semaphore,
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Option<T> {
    let stop = Stop(Arc::new(AtomicBool::new(false)));
    // The permit goes with the computation, which may outlive its caller.
    let permit = permits.acquire().await.ok()?;
    let flag = stop.0.clone();
    let work = spawn_blocking(move || {
        let _permit = permit;
        work(&flag)
    });
    tokio::pin!(work);
    let ended = match timeout(TIME_MAX, &mut work).await {
        Ok(ended) => ended,
        Err(_) => {
            stop.0.store(true, Ordering::Relaxed);
            work.await
        }
    };
    ended.ok()
}

/// Sets its flag when dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    fn until(stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }

    /// Uses a runtime of one thread, which the computation would block if it ran there.
    #[tokio::test]
    async fn the_runtime_serves_others_during_a_computation() {
        let (free, held) = std::sync::mpsc::channel();
        let work = offload(move |_| held.recv().is_ok());
        let others = async move {
            tokio::task::yield_now().await;
            free.send(()).is_ok()
        };
        assert_eq!(tokio::join!(work, others), (Some(true), true));
    }

    #[tokio::test]
    async fn an_abandoned_computation_stops() {
        let (ended, end) = oneshot::channel();
        let (began, begin) = oneshot::channel();
        let work = offload(move |stop| {
            let _ = began.send(());
            until(stop);
            let _ = ended.send(());
        });
        tokio::select! {
            _ = work => panic!("it returned by itself"),
            begun = begin => begun.unwrap(),
        }
        tokio::time::timeout(Duration::from_secs(60), end).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn long_checks_do_not_block_maintenance() {
        let (free, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let mut checks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let held = held.clone();
            checks.spawn(offload_check(move |_| held.lock().unwrap().recv().is_err()));
        }
        while CHECKS.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let done = timeout(Duration::from_secs(60), offload(|_| 1)).await;
        drop(free);
        assert_eq!(done.unwrap(), Some(1));
        assert_eq!(checks.join_all().await, [Some(true); 8]);
    }

    #[tokio::test]
    async fn a_panicking_computation_is_none() {
        assert_eq!(offload(|_| -> u32 { panic!("no") }).await, None);
        assert_eq!(offload(|_| 1).await, Some(1));
    }
}
