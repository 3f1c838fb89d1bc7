//! Waiting for conditions outside this process that send no event: another process, a file, a port.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Short enough not to slow tests down, long enough that a hundred waiting tests leave the cores free.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Polls until `poll` returns a value, at most for `deadline`.
///
/// `what` completes the sentence "timed out after 5s waiting until …". The thread is blocked meanwhile, so
/// asynchronous tests use the timers of their runtime instead.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that sleeps: conditions outside this process send no event"
)]
pub fn wait_until<T>(
    what: &str,
    deadline: Duration,
    mut poll: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(found) = poll() {
            return Ok(found);
        }
        let Some(left) = deadline.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
            anyhow::bail!("timed out after {deadline:?} waiting until {what}");
        };
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_first_poll_is_returned_at_once() {
        assert_eq!(wait_until("it is there", Duration::ZERO, || Some(7)).unwrap(), 7);
    }

    #[test]
    fn it_polls_until_a_value_is_returned() {
        let mut looks = 0;
        let found = wait_until("the third poll", Duration::from_secs(10), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn a_timeout_names_the_condition() {
        let found = wait_until("the impossible happens", Duration::from_millis(5), || None::<()>);
        assert_eq!(
            found.unwrap_err().to_string(),
            "timed out after 5ms waiting until the impossible happens"
        );
    }
}
