//! Outages of the server while a command waits: the work continues without this client, and the server may be restarting.

use std::time::Duration;

use client::ClientError;
use tokio::time::Instant;

use super::progress::Progress;

/// Longest outage that a wait tolerates; a restart is shorter.
const OUTAGE_MAX: Duration = Duration::from_secs(300);

/// The current outage, if there is one.
#[derive(Debug, Default)]
pub(super) struct Outage {
    since: Option<Instant>,
}

impl Outage {
    /// Ends the outage.
    pub(super) fn end(&mut self, progress: &Progress) {
        if self.since.take().is_some() {
            progress.line("the server is reachable again");
        }
    }

    /// Tolerates a transient error for a while; returns any other.
    pub(super) fn tolerate(&mut self, error: ClientError, progress: &Progress) -> Result<(), ClientError> {
        if !error.is_transient() {
            return Err(error);
        }
        let since = *self.since.get_or_insert_with(|| {
            progress.line(&format!("{error}; still waiting"));
            Instant::now()
        });
        if since.elapsed() > OUTAGE_MAX { Err(error) } else { Ok(()) }
    }
}
