//! Confirmation of destructive commands.

use std::io::{IsTerminal as _, Write as _};

use anyhow::bail;
use clap::Args;

/// The confirmation flag.
#[derive(Debug, Clone, Copy, Args)]
pub struct Confirm {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Confirm {
    /// Asks for confirmation unless `--yes` was given; `what` is the question without its question mark.
    pub(super) fn ask(self, what: &str) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        let stdin = std::io::stdin();
        if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
            bail!("{what}? There is no terminal to confirm it; pass --yes");
        }
        let mut stderr = std::io::stderr().lock();
        write!(stderr, "{what}? [y/N] ")?;
        stderr.flush()?;
        let mut reply = String::new();
        stdin.read_line(&mut reply)?;
        match is_yes(&reply) {
            true => Ok(()),
            false => bail!("cancelled; nothing was changed"),
        }
    }
}

fn is_yes(reply: &str) -> bool {
    matches!(reply.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_y_and_yes_confirm() {
        assert!(super::is_yes("y\n") && super::is_yes(" YES "));
        assert!(!super::is_yes("\n") && !super::is_yes("yep") && !super::is_yes("n"));
    }
}
