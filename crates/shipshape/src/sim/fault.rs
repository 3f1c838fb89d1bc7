//! Faults on the command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use api::duration::TimeSpan;
use kubesim::faults::{Fault, Faults};
use serde::{Deserialize, Serialize};

/// A fault on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum FaultArg {
    /// A lasting fault.
    Start(Fault),
    /// Closes all open watches once.
    DropWatches,
    /// Removes all faults.
    None,
}

/// An unknown fault.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not a fault; accepted: latency=DURATION (such as latency=500ms), 429=SECONDS (such as 429=5s), 500, reset, unreachable, drop-watches, none"
)]
pub(crate) struct UnknownFault {
    text: String,
}

impl FromStr for FaultArg {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<FaultArg, UnknownFault> {
        let unknown = || UnknownFault { text: text.to_owned() };
        let span = |text: &str| text.parse::<TimeSpan>().map(TimeSpan::duration).map_err(|_| unknown());
        Ok(match text.split_once('=') {
            None => match text {
                "500" => FaultArg::Start(Fault::InternalError),
                "reset" => FaultArg::Start(Fault::ConnectionReset),
                "unreachable" => FaultArg::Start(Fault::Unreachable),
                "drop-watches" => FaultArg::DropWatches,
                "none" => FaultArg::None,
                _ => return Err(unknown()),
            },
            Some(("latency", value)) => FaultArg::Start(Fault::Latency(span(value)?)),
            Some(("429", value)) => {
                let seconds = u32::try_from(span(value)?.as_secs()).map_err(|_| unknown())?;
                FaultArg::Start(Fault::TooManyRequests { retry_after_seconds: seconds })
            }
            Some(_) => return Err(unknown()),
        })
    }
}

impl fmt::Display for FaultArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultArg::Start(fault) => f.write_str(&name(*fault)),
            FaultArg::DropWatches => f.write_str("drop-watches"),
            FaultArg::None => f.write_str("none"),
        }
    }
}

impl TryFrom<String> for FaultArg {
    type Error = UnknownFault;

    fn try_from(text: String) -> Result<FaultArg, UnknownFault> {
        text.parse()
    }
}

impl From<FaultArg> for String {
    fn from(fault: FaultArg) -> String {
        fault.to_string()
    }
}

impl FaultArg {
    /// Applies the fault to a cluster.
    pub(super) fn apply(&self, faults: &Faults, times: Option<u32>, path: Option<&str>) {
        match (self, times, path) {
            (FaultArg::None, ..) => faults.clear(),
            (FaultArg::DropWatches, ..) => faults.drop_watches(),
            (FaultArg::Start(fault), None, None) => faults.always(*fault),
            (FaultArg::Start(fault), Some(times), None) => faults.next_times(*fault, times),
            (FaultArg::Start(fault), times, Some(path)) => faults.on_path(*fault, path, times),
        }
    }
}

/// The text of a fault.
pub(super) fn name(fault: Fault) -> String {
    match fault {
        Fault::Latency(span) => format!("latency={}", millis_text(span)),
        Fault::TooManyRequests { retry_after_seconds } => format!("429={retry_after_seconds}s"),
        Fault::InternalError => "500".to_owned(),
        Fault::ConnectionReset => "reset".to_owned(),
        Fault::Unreachable => "unreachable".to_owned(),
    }
}

fn millis_text(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed_and_formatted() {
        for text in ["latency=500ms", "429=5s", "500", "reset", "unreachable", "drop-watches", "none"] {
            assert_eq!(text.parse::<FaultArg>().unwrap().to_string(), text);
        }
        assert_eq!("latency=2s".parse(), Ok(FaultArg::Start(Fault::Latency(Duration::from_secs(2)))));
    }

    #[test]
    fn an_unknown_fault_is_reported_with_the_accepted_ones() {
        for text in ["", "501", "latency", "latency=", "latency=soon", "429=many", "429", "x=y"] {
            let error = text.parse::<FaultArg>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} is not a fault; accepted: latency=DURATION")),
                "{error}"
            );
        }
    }
}
