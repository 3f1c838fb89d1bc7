//! Progress on standard error: lines, and on a terminal a progress bar.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::table;
use crate::output;

/// Progress of work on one cluster.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    cluster: String,
}

impl Progress {
    /// Progress of unknown length.
    pub(super) fn new(cluster: &str) -> Progress {
        Progress::with(cluster, || {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        })
    }

    /// Progress in percent.
    pub(super) fn in_percent(cluster: &str) -> Progress {
        Progress::with(cluster, || {
            let bar = ProgressBar::new(100);
            if let Ok(style) = ProgressStyle::with_template("{spinner} [{bar:24}] {percent:>3}%  {wide_msg}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        })
    }

    fn with(cluster: &str, bar: impl FnOnce() -> ProgressBar) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = bar();
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Progress { bar, cluster: cluster.to_owned() }
    }

    /// Writes a permanent line.
    pub(super) fn line(&self, text: &str) {
        let text = table::escape_control(Some(&format!("{}  {text}", self.cluster)));
        match &self.bar {
            Some(bar) => bar.println(text),
            None => output::note_verbatim(&text),
        }
    }

    /// Replaces the message of the progress bar.
    pub(super) fn show(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(table::escape_control(Some(&format!("{}  {text}", self.cluster))));
        }
    }

    /// Sets the position of the progress bar.
    pub(super) fn percent(&self, percent: u8) {
        if let Some(bar) = &self.bar {
            bar.set_position(percent.min(100).into());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
