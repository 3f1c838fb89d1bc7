//! `shipshape cloud fault`: faults of the simulated cloud.

use std::str::FromStr;

use api::duration::TimeSpan;
use clap::Subcommand;
use cloudsim::{CloudFault, FaultRule, FaultTiming};

use super::super::print::{Output, Printable};
use super::super::table::{Column, View, Width};
use super::super::{Connect, Invocation};
use crate::output;

/// Commands of faults.
#[derive(Debug, Subcommand)]
pub enum FaultCommand {
    /// Inject a fault
    #[command(visible_alias = "create")]
    Set {
        /// throttled=SECONDS, unavailable, unavailable-after, reset, reset-after, handshake-fails, hangs=DURATION, quota=NAME,
        /// denied, fails=CODE, unseen=DURATION, spreads-late=DURATION
        #[arg(value_name = "FAULT")]
        fault: FaultArg,
        /// Only calls of this verb, such as put
        #[arg(long)]
        verb: Option<String>,
        /// Only calls for a resource whose id or name contains this
        #[arg(long, value_name = "TEXT")]
        about: Option<String>,
        /// Only the next N calls [default: all]
        #[arg(long, value_name = "N")]
        times: Option<u32>,
        /// Only this share of the calls, from 0 to 1 [default: all]
        #[arg(long, value_name = "SHARE", value_parser = share)]
        share: Option<f64>,
        #[command(flatten)]
        connect: Connect,
    },
    /// List the faults
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Remove all faults
    Clear {
        #[command(flatten)]
        connect: Connect,
    },
}

/// A fault on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultArg(CloudFault);

impl FromStr for FaultArg {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultArg, String> {
        let unknown = || {
            format!(
                "{text:?} is not a fault; accepted: throttled=SECONDS, unavailable, unavailable-after, reset, reset-after, handshake-fails, hangs=DURATION, quota=NAME, denied, fails=CODE, unseen=DURATION, spreads-late=DURATION"
            )
        };
        let span = |text: &str| text.parse::<TimeSpan>().map(TimeSpan::duration).map_err(|_| unknown());
        let millis = |text: &str| Ok::<_, String>(u64::try_from(span(text)?.as_millis()).unwrap_or(u64::MAX));
        Ok(FaultArg(match text.split_once('=') {
            None => match text {
                "unavailable" => CloudFault::Unavailable { when: FaultTiming::Before },
                "unavailable-after" => CloudFault::Unavailable { when: FaultTiming::After },
                "reset" => CloudFault::Reset { when: FaultTiming::Before },
                "reset-after" => CloudFault::Reset { when: FaultTiming::After },
                "handshake-fails" => CloudFault::HandshakeFails {},
                "denied" => CloudFault::Denied {},
                _ => return Err(unknown()),
            },
            Some((_, "")) => return Err(unknown()),
            Some(("throttled", value)) => {
                // A bare number is in seconds, like Retry-After.
                let seconds = value.parse().or_else(|_| span(value).map(|it| it.as_secs()));
                CloudFault::Throttled { after_seconds: seconds? }
            }
            Some(("hangs", value)) => {
                CloudFault::Delayed { millis: millis(value)?, when: FaultTiming::Before }
            }
            Some(("quota", value)) => CloudFault::Quota { quota: value.to_owned() },
            Some(("fails", value)) => CloudFault::ProvisioningFails {
                code: value.to_owned(),
                message: "Injected fault.".to_owned(),
            },
            Some(("unseen", value)) => CloudFault::DelayedVisibility { millis: millis(value)? },
            Some(("spreads-late", value)) => CloudFault::DelayedPropagation { millis: millis(value)? },
            Some(_) => return Err(unknown()),
        }))
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1, such as 0.2".to_owned()),
    }
}

/// Runs the command.
pub(super) async fn run(command: &FaultCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        FaultCommand::Set { fault, verb, about, times, share, connect } => {
            let rule = FaultRule {
                fault: fault.0.clone(),
                verb: verb.clone(),
                about: about.clone(),
                after: None,
                times: *times,
                share: *share,
            };
            let sentence = format!("fault set: {}\n", rule.description());
            invocation.cloud(connect)?.cloud.inject(rule).await?;
            output::show(&sentence)
        }
        FaultCommand::List { output, connect } => {
            output.print_list(invocation, &invocation.cloud(connect)?.cloud.faults().await?)
        }
        FaultCommand::Clear { connect } => {
            invocation.cloud(connect)?.cloud.clear_faults().await?;
            output::show("faults cleared\n")
        }
    }
}

/// Text of a fault rule.
trait DescribeFault {
    fn description(&self) -> String;
}

impl DescribeFault for FaultRule {
    fn description(&self) -> String {
        let verb =
            self.verb.as_deref().map_or_else(|| "every call".to_owned(), |verb| format!("calls of {verb}"));
        let about = self.about.as_deref().map(|about| format!(" about {about}")).unwrap_or_default();
        format!("{verb}{about}: {}", self.fault)
    }
}

impl Printable for FaultRule {
    const KIND: &'static str = "fault";
    const COLUMNS: &'static [Column] = &[
        Column("FAULT", Width::Always),
        Column("VERB", Width::Always),
        Column("ABOUT", Width::Always),
        Column("TIMES", Width::Always),
        Column("SHARE", Width::Always),
    ];

    fn name(&self) -> String {
        self.fault.to_string()
    }

    fn cells(&self, _view: &View) -> Vec<String> {
        let or_all = |text: Option<String>| text.unwrap_or_else(|| "all".to_owned());
        vec![
            self.fault.to_string(),
            or_all(self.verb.clone()),
            or_all(self.about.clone()),
            or_all(self.times.map(|it| it.to_string())),
            or_all(self.share.map(|it| it.to_string())),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        ["Fault", "Verb", "About", "Times", "Share"].into_iter().zip(self.cells(view)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed() {
        let check = |text: &str, expect: CloudFault| assert_eq!(text.parse(), Ok(FaultArg(expect)), "{text}");
        check("throttled=5", CloudFault::Throttled { after_seconds: 5 });
        check("throttled=1m", CloudFault::Throttled { after_seconds: 60 });
        check("reset-after", CloudFault::Reset { when: FaultTiming::After });
        check("hangs=2s", CloudFault::Delayed { millis: 2_000, when: FaultTiming::Before });
        check("quota=cores", CloudFault::Quota { quota: "cores".to_owned() });
        check("unseen=500ms", CloudFault::DelayedVisibility { millis: 500 });
        for wrong in ["", "slow", "throttled", "throttled=", "hangs=long", "quota=", "x=y"] {
            let error = wrong.parse::<FaultArg>().unwrap_err();
            assert!(
                error.starts_with(&format!("{wrong:?} is not a fault; accepted: throttled=SECONDS")),
                "{error}"
            );
        }
        assert!(share("0.2").is_ok() && share("2").is_err() && share("few").is_err());
    }
}
