//! Durations as people write them: `90s`, `30m`, `1h30m`, `500ms`, and days, `7d`.
//!
//! The grammar is Go's, because the systems that Shipshape stands in for write durations that way, with
//! `d` added for retention times. A day is always 24 hours; calendar days belong to schedules, not here.
//! Negative durations are rejected.
//!
//! Two types: [`TimeSpan`] is a length for code, configuration and sentences; [`DurationText`] is a length on the wire and in
//! documents, which is written exactly as it was received. Durations that Shipshape creates are written without days, because
//! clients of the reference parse durations with Go's parser.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Units, largest first: the order in which a duration is written.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Maximum length of a duration's text. The longest that Shipshape writes has 33 bytes.
const TEXT_BYTES_MAX: usize = 100;

/// Maximum number of characters of the text in an error message.
const SHOWN_CHARS_MAX: usize = 60;

/// A length of time that reads and writes as text, in configuration and in sentences. On the wire: [`DurationText`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimeSpan(Duration);

impl TimeSpan {
    /// The longest span, about 292 years: what Go's durations hold, and what any clock can still add.
    pub const MAX: TimeSpan = TimeSpan(Duration::from_nanos(i64::MAX as u64));

    /// `duration` as a span; one longer than [`TimeSpan::MAX`] becomes that.
    pub const fn new(duration: Duration) -> TimeSpan {
        if duration.as_nanos() > TimeSpan::MAX.0.as_nanos() { TimeSpan::MAX } else { TimeSpan(duration) }
    }

    /// A span in seconds.
    pub const fn seconds(seconds: u32) -> TimeSpan {
        TimeSpan::new(Duration::from_secs(seconds as u64))
    }

    /// A span in minutes.
    pub const fn minutes(minutes: u32) -> TimeSpan {
        TimeSpan::new(Duration::from_secs(minutes as u64 * 60))
    }

    /// A span in hours.
    pub const fn hours(hours: u32) -> TimeSpan {
        TimeSpan::new(Duration::from_secs(hours as u64 * 3_600))
    }

    /// A span in days of 24 hours.
    pub const fn days(days: u32) -> TimeSpan {
        TimeSpan::new(Duration::from_secs(days as u64 * 86_400))
    }

    /// The span as the standard library's type.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Duration {
        span.0
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_in(&UNITS, self.0, f)
    }
}

/// Write a length in these units, largest first, without units whose count is zero.
fn write_in(units: &[(&str, u128)], length: Duration, out: &mut impl fmt::Write) -> fmt::Result {
    let mut nanos = length.as_nanos();
    if nanos == 0 {
        return out.write_str("0s");
    }
    for (unit, size) in units {
        if nanos >= *size {
            write!(out, "{}{unit}", nanos / size)?;
            nanos %= size;
        }
    }
    Ok(())
}

/// A duration in JSON and in documents: its length, and the text that was received. The text is written back;
/// the length is compared, so two texts of the same length are equal.
#[derive(Debug, Clone)]
pub struct DurationText {
    span: TimeSpan,
    text: Box<str>,
}

impl DurationText {
    /// Its length.
    pub fn span(&self) -> TimeSpan {
        self.span
    }

    /// Its length as the standard library's type.
    pub fn duration(&self) -> Duration {
        self.span.duration()
    }

    /// The text that was received.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<TimeSpan> for DurationText {
    /// In a form that Go's parser reads: hours are the largest unit.
    fn from(span: TimeSpan) -> DurationText {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = write_in(&UNITS[1..], span.0, &mut text);
        DurationText { span, text: text.into() }
    }
}

impl FromStr for DurationText {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<DurationText, DurationError> {
        Ok(DurationText { span: text.parse()?, text: text.into() })
    }
}

impl PartialEq for DurationText {
    fn eq(&self, other: &DurationText) -> bool {
        self.span == other.span
    }
}

impl Eq for DurationText {}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationText, D::Error> {
        deserializer.deserialize_str(Visitor(PhantomData))
    }
}

/// Reason why a text is not a duration. The message names the text and the accepted form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {problem}; {ACCEPTED}")]
pub struct DurationError {
    text: String,
    problem: Problem,
}

/// Accepted form, at the end of every message.
const ACCEPTED: &str = "write numbers with units, such as 90s, 30m, 1h30m, 500ms or 7d";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("it is empty")]
    Empty,
    #[error("it has more than {TEXT_BYTES_MAX} characters")]
    TooManyCharacters,
    #[error("it must not be negative")]
    Negative,
    #[error("a number is missing before {0:?}")]
    NumberMissing(String),
    #[error("the number {0} has no unit")]
    UnitMissing(String),
    #[error("{0:?} is not a unit (d, h, m, s, ms, us, ns)")]
    UnitUnknown(String),
    #[error("{0} has more places than a nanosecond can hold")]
    TooFine(String),
    #[error("it is longer than {}", TimeSpan::MAX)]
    TooLong,
}

impl FromStr for TimeSpan {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<TimeSpan, DurationError> {
        parse(text).map_err(|problem| DurationError { text: shown(text), problem })
    }
}

/// The text, truncated for a message.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn parse(text: &str) -> Result<TimeSpan, Problem> {
    if text.is_empty() {
        return Err(Problem::Empty);
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(Problem::TooManyCharacters);
    }
    if text.starts_with('-') {
        return Err(Problem::Negative);
    }
    if text == "0" {
        return Ok(TimeSpan::default()); // Go accepts it, and nothing else without a unit
    }
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_where(after, |c| c.is_ascii_digit() || c == '.');
        if number.is_empty() {
            return Err(Problem::NumberMissing(unit.to_owned()));
        }
        if unit.is_empty() {
            return Err(Problem::UnitMissing(number.to_owned()));
        }
        total = total.checked_add(nanos(number, unit)?).ok_or(Problem::TooLong)?;
        rest = after;
    }
    if total > TimeSpan::MAX.0.as_nanos() {
        return Err(Problem::TooLong);
    }
    let nanos = u64::try_from(total).map_err(|_| Problem::TooLong)?;
    Ok(TimeSpan(Duration::from_nanos(nanos)))
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// One part such as `1.5h`. Whole and fractional digits are parsed as integers: a float would lose nanoseconds.
fn nanos(number: &str, unit: &str) -> Result<u128, Problem> {
    let size = match unit {
        "µs" | "μs" => 1_000, // both code points of the micro sign, as Go
        _ => UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, size)| *size)
            .ok_or_else(|| Problem::UnitUnknown(unit.to_owned()))?,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(Problem::NumberMissing(unit.to_owned()));
    }
    let digits =
        |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u128>().map_err(|_| Problem::TooLong) };
    let whole = digits(whole)?.checked_mul(size).ok_or(Problem::TooLong)?;
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= 15);
    let scale = places
        .map(|places| 10_u128.pow(places))
        .ok_or_else(|| Problem::TooFine(format!("{number}{unit}")))?;
    let part = digits(fraction)? * size;
    if part % scale != 0 {
        return Err(Problem::TooFine(format!("{number}{unit}")));
    }
    whole.checked_add(part / scale).ok_or(Problem::TooLong)
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TimeSpan, D::Error> {
        deserializer.deserialize_str(Visitor(PhantomData))
    }
}

struct Visitor<T>(PhantomData<T>);

impl<T: FromStr<Err = DurationError>> serde::de::Visitor<'_> for Visitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration as text, such as \"90s\", \"30m\", \"1h30m\", \"500ms\" or \"7d\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_people_write_is_understood_and_written_back_shortest() {
        let check = |text: &str, nanos: u64, written: &str| {
            let span: TimeSpan = text.parse().expect(text);
            assert_eq!(span.duration(), Duration::from_nanos(nanos), "{text}");
            assert_eq!(span.to_string(), written, "{text}");
        };
        check("90s", 90_000_000_000, "1m30s");
        check("30m", 1_800_000_000_000, "30m");
        check("1h30m", 5_400_000_000_000, "1h30m");
        check("1.5h", 5_400_000_000_000, "1h30m");
        check(".5s", 500_000_000, "500ms");
        check("500ms", 500_000_000, "500ms");
        check("7d", 604_800_000_000_000, "7d");
        check("400d", 34_560_000_000_000_000, "400d");
        check("10µs", 10_000, "10us");
        check("0", 0, "0s");
        check("1m1h", 3_660_000_000_000, "1h1m");
        check("9223372036854775807ns", i64::MAX as u64, "106751d23h47m16s854ms775us807ns");
    }

    #[test]
    fn what_is_not_a_duration_is_refused_with_its_reason() {
        let check = |text: &str, reason: &str| {
            let error = text.parse::<TimeSpan>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text:?} is not a duration: {reason};")), "{error}");
            assert!(error.ends_with("such as 90s, 30m, 1h30m, 500ms or 7d"), "{error}");
        };
        check("", "it is empty");
        check("-5m", "it must not be negative");
        check("5", "the number 5 has no unit");
        check("5m-3s", "\"m-\" is not a unit (d, h, m, s, ms, us, ns)");
        check("h", "a number is missing before \"h\"");
        check("1.2.3s", "a number is missing before \"s\"");
        check(".s", "a number is missing before \"s\"");
        check("5 minutes", "\" minutes\" is not a unit (d, h, m, s, ms, us, ns)");
        check("2w", "\"w\" is not a unit (d, h, m, s, ms, us, ns)");
        check("0.5ns", "0.5ns has more places than a nanosecond can hold");
        check("9223372036854775808ns", "it is longer than 106751d23h47m16s854ms775us807ns");
        check(
            "99999999999999999999999999999999999999999d",
            "it is longer than 106751d23h47m16s854ms775us807ns",
        );
    }

    #[test]
    fn json_carries_the_text_and_refuses_a_bare_number() {
        let span = TimeSpan::minutes(90);
        assert_eq!(serde_json::to_string(&span).unwrap(), "\"1h30m\"");
        assert_eq!(serde_json::from_str::<TimeSpan>("\"1h30m\"").unwrap(), span);
        let error = serde_json::from_str::<TimeSpan>("30").unwrap_err().to_string();
        assert!(error.contains("expected a duration as text, such as \"90s\""), "{error}");
    }

    #[test]
    fn a_text_comes_back_as_it_was_given_and_counts_by_its_length() {
        for text in ["24h", "1d", "24h0m0s", "1440m", "86400s", "0024h", "1.0d", "86400000ms"] {
            let read: DurationText = serde_json::from_value(serde_json::json!(text)).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::json!(text));
            assert_eq!((read.to_string().as_str(), read.as_str()), (text, text));
            assert_eq!((read.span(), read), (TimeSpan::days(1), DurationText::from(TimeSpan::days(1))));
        }
        assert_ne!("24h".parse::<DurationText>().unwrap(), "24h1ns".parse().unwrap());
        let error = serde_json::from_str::<DurationText>("30").unwrap_err().to_string();
        assert!(error.contains("expected a duration as text, such as \"90s\""), "{error}");
    }

    #[test]
    fn what_shipshape_makes_has_no_unit_that_go_does_not_know() {
        let check = |span: TimeSpan, text: &str| assert_eq!(DurationText::from(span).as_str(), text);
        check(TimeSpan::days(1), "24h");
        check(TimeSpan::days(400), "9600h");
        check(TimeSpan::minutes(90), "1h30m");
        check(TimeSpan::default(), "0s");
        check(TimeSpan::MAX, "2562047h47m16s854ms775us807ns");
    }

    #[test]
    fn a_text_without_end_is_refused_and_not_repeated() {
        let error = format!("{}1s", "0".repeat(1_000_000)).parse::<DurationText>().unwrap_err().to_string();
        assert!(error.contains("it has more than 100 characters") && error.len() < 300, "{error}");
        assert!("ü".repeat(70).parse::<TimeSpan>().is_err());
    }

    #[test]
    fn a_span_never_exceeds_its_bound() {
        assert_eq!(TimeSpan::new(Duration::MAX), TimeSpan::MAX);
    }

    /// Durations of one to four parts in any order, with and without fractions.
    const TEXTS: &str = "([0-9]{1,4}(\\.[0-9]{0,2})?(d|h|m|s|ms|us|µs|ns)){1,4}";

    proptest! {
        #[test]
        fn every_span_survives_being_written_and_read(nanos in 0..=i64::MAX as u64) {
            let span = TimeSpan::new(Duration::from_nanos(nanos));
            prop_assert_eq!(span.to_string().parse::<TimeSpan>(), Ok(span));
        }

        #[test]
        fn every_text_survives_with_its_value(nanos in 0..=i64::MAX as u64, zeros in 0_usize..20, text in TEXTS) {
            for text in [format!("{}{nanos}ns", "0".repeat(zeros)), text] {
                let Ok(span) = text.parse::<TimeSpan>() else { continue };
                let read: DurationText = serde_json::from_value(serde_json::json!(text)).unwrap();
                prop_assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::json!(text));
                prop_assert_eq!(read.span(), span);
                // Equal to whatever has its length: our own form, and the form with days.
                let ours = DurationText::from(span);
                prop_assert_eq!(&ours, &read);
                prop_assert!(!ours.as_str().contains('d'));
                prop_assert_eq!(&ours.as_str().parse::<DurationText>().unwrap(), &read);
                prop_assert_eq!(&span.to_string().parse::<DurationText>().unwrap(), &read);
            }
        }

        #[test]
        fn texts_are_equal_exactly_when_their_lengths_are(a in 0..1_000_000_u32, b in 0..1_000_000_u32) {
            let text = |seconds: u32| format!("{seconds}s").parse::<DurationText>().unwrap();
            prop_assert_eq!(text(a) == DurationText::from(TimeSpan::seconds(b)), a == b);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*|[0-9.dhmsnuµ-]{0,40}") {
            let _ = text.parse::<TimeSpan>();
        }
    }
}
