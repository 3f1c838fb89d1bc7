//! Times on the command line: `now`, `2h` from now, Unix seconds, or RFC 3339.

use std::str::FromStr;

use api::duration::TimeSpan;
use jiff::{SignedDuration, Timestamp};

/// A time on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeArg {
    /// Relative to now.
    In(TimeSpan),
    /// Absolute.
    At(Timestamp),
}

/// The text is not a time.
#[derive(Debug, thiserror::Error)]
#[error("expected now, a time from now such as 2h, Unix seconds, or a time such as 2026-11-30T04:00:00Z")]
pub struct InvalidTime;

impl FromStr for TimeArg {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<TimeArg, InvalidTime> {
        if text == "now" {
            return Ok(TimeArg::In(TimeSpan::default()));
        }
        if let Ok(seconds) = text.parse::<i64>() {
            return Timestamp::from_second(seconds).map(TimeArg::At).map_err(|_| InvalidTime);
        }
        if let Ok(span) = text.strip_prefix('+').unwrap_or(text).parse::<TimeSpan>() {
            return Ok(TimeArg::In(span));
        }
        text.parse().map(TimeArg::At).map_err(|_| InvalidTime)
    }
}

impl TimeArg {
    /// Converts to Unix seconds.
    pub(super) fn unix(self, now: Timestamp) -> i64 {
        match self {
            TimeArg::At(time) => time.as_second(),
            TimeArg::In(span) => {
                let span = SignedDuration::try_from(span.duration()).unwrap_or(SignedDuration::MAX);
                now.saturating_add(span).map_or(i64::MAX, Timestamp::as_second)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_in_four_formats() {
        let now = Timestamp::from_second(1_000).unwrap();
        let check =
            |text: &str, unix: i64| assert_eq!(text.parse::<TimeArg>().unwrap().unix(now), unix, "{text}");
        check("now", 1_000);
        check("2h", 8_200);
        check("+90s", 1_090);
        check("1700000000", 1_700_000_000);
        check("1970-01-01T00:00:05Z", 5);
        for wrong in ["", "soon", "-2h", "2026-13-01T00:00:00Z", "99999999999999999999"] {
            assert!(wrong.parse::<TimeArg>().is_err(), "{wrong}");
        }
    }
}
