//! Schedules of cron jobs: five fields, or a name such as `@daily` or `@every 90m`. The meaning and the error texts are
//! those of the real controller.

use api::calendar::Zone;
use jiff::civil::Date;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// Marks a field without a restriction.
const ANY: u64 = 1 << 63;
/// Years after which a schedule counts as one that never comes, such as 31 February.
const YEARS_MAX: i16 = 5;
const DAY: i64 = 86_400;
/// Spans in which the last time before now is searched for, in seconds: a schedule is rarely looked at long after it
/// was due, so that the shortest span mostly suffices.
const SPANS: [i64; 5] = [3600, DAY, 32 * DAY, 366 * DAY, 5 * 366 * DAY];

/// When a cron job is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CronSchedule {
    /// At the minutes that all fields allow.
    Fields(Fields),
    /// At a fixed interval in seconds.
    Every(i64),
}

/// The allowed values of each field, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
}

/// The lowest and highest value of a field, and the names of its values from the lowest on.
struct Bounds {
    lowest: u32,
    highest: u32,
    names: &'static [&'static str],
}

const MINUTE: Bounds = Bounds { lowest: 0, highest: 59, names: &[] };
const HOUR: Bounds = Bounds { lowest: 0, highest: 23, names: &[] };
const DAY_OF_MONTH: Bounds = Bounds { lowest: 1, highest: 31, names: &[] };
const MONTH: Bounds = Bounds {
    lowest: 1,
    highest: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Bounds =
    Bounds { lowest: 0, highest: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl CronSchedule {
    /// Parses a schedule. A time zone within it is skipped: it is not allowed there.
    pub(crate) fn parse(text: &str) -> Result<CronSchedule, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        let rest = match text.split_once(' ') {
            Some((zone, rest)) if zone.starts_with("TZ=") || zone.starts_with("CRON_TZ=") => rest.trim(),
            _ => text,
        };
        let described = match rest {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => rest,
        };
        if let Some(interval) = described.strip_prefix("@every ") {
            let seconds = interval_seconds(interval).ok_or_else(|| {
                format!("failed to parse duration {rest}: time: invalid duration {interval:?}")
            })?;
            // Intervals below a second are rounded up, as by the real parser.
            return Ok(CronSchedule::Every(seconds.max(1)));
        }
        if described.starts_with('@') {
            return Err(format!("unrecognized descriptor: {rest}"));
        }
        let parts: Vec<&str> = described.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts.as_slice() else {
            let count = parts.len();
            return Err(format!("expected exactly 5 fields, found {count}: [{}]", parts.join(" ")));
        };
        Ok(CronSchedule::Fields(Fields {
            minute: field(minute, &MINUTE)?,
            hour: field(hour, &HOUR)?,
            day: field(day, &DAY_OF_MONTH)?,
            month: field(month, &MONTH)?,
            weekday: field(weekday, &WEEKDAY)?,
        }))
    }

    /// The first time after `start`; `None` if it never comes.
    pub(crate) fn next(self, start: Timestamp, zone: &Zone) -> Option<Timestamp> {
        match self {
            CronSchedule::Every(seconds) => {
                Timestamp::from_second(start.as_second().checked_add(seconds)?).ok()
            }
            CronSchedule::Fields(fields) => fields.next(start, zone),
        }
    }

    /// The last time after `start` and not after `now`. Times of an interval are counted from `start`.
    pub(crate) fn last(self, start: Timestamp, now: Timestamp, zone: &Zone) -> Option<Timestamp> {
        if let CronSchedule::Every(seconds) = self {
            let count = (now.as_second() - start.as_second()).div_euclid(seconds);
            return (count > 0)
                .then(|| Timestamp::from_second(start.as_second() + count * seconds).ok())
                .flatten();
        }
        for span in SPANS {
            let from = now.saturating_sub(SignedDuration::from_secs(span)).unwrap_or(start).max(start);
            let times = std::iter::successors(self.next(from, zone), |time| self.next(*time, zone));
            let last = times.take_while(|time| *time <= now).last();
            if last.is_some() || from == start {
                return last;
            }
        }
        None
    }
}

impl Fields {
    fn next(self, start: Timestamp, zone: &Zone) -> Option<Timestamp> {
        // Times are whole minutes.
        let first = start.as_second().div_euclid(60).checked_add(1)?.checked_mul(60)?;
        let mut at = zoned(Timestamp::from_second(first).ok()?, zone);
        let last_year = at.year().saturating_add(YEARS_MAX);
        while at.year() <= last_year {
            at = if !has(self.month, at.month()) {
                let next_month = at.date().first_of_month().checked_add(Span::new().months(1)).ok()?;
                start_of(next_month, zone)?
            } else if !self.allows_day(at.date()) {
                start_of(at.date().tomorrow().ok()?, zone)?
            } else if !has(self.hour, at.hour()) {
                later(&at, 60 - i64::from(at.minute()), zone)?
            } else if !has(self.minute, at.minute()) {
                later(&at, 1, zone)?
            } else {
                return Some(at.timestamp());
            };
        }
        None
    }

    /// A day that either field allows, unless one of them has no restriction.
    fn allows_day(self, date: Date) -> bool {
        let day = has(self.day, date.day());
        let weekday = has(self.weekday, date.weekday().to_sunday_zero_offset());
        if self.day & ANY != 0 || self.weekday & ANY != 0 { day && weekday } else { day || weekday }
    }
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits & (1 << value) != 0)
}

fn zoned(at: Timestamp, zone: &Zone) -> Zoned {
    at.to_zoned(zone.time_zone().clone())
}

fn start_of(date: Date, zone: &Zone) -> Option<Zoned> {
    date.to_zoned(zone.time_zone().clone()).ok()
}

/// The time some minutes later, where a change of the clock may lie between.
fn later(at: &Zoned, minutes: i64, zone: &Zone) -> Option<Zoned> {
    Some(zoned(at.timestamp().checked_add(SignedDuration::from_mins(minutes)).ok()?, zone))
}

fn field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    text.split(',').filter(|part| !part.is_empty()).try_fold(0, |bits, part| Ok(bits | range(part, bounds)?))
}

/// The values of `number`, `low-high`, `*` or `?`, each with an optional `/step`.
fn range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end, mut any) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.lowest, bounds.highest, ANY),
        [one] => {
            let value = number_or_name(one, bounds)?;
            (value, value, 0)
        }
        [low, high] => (number_or_name(low, bounds)?, number_or_name(high, bounds)?, 0),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            // A single number with a step goes on to the highest value.
            if ends.len() == 1 {
                end = bounds.highest;
            }
            if step > 1 {
                any = 0;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < bounds.lowest {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", bounds.lowest));
    }
    if end > bounds.highest {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", bounds.highest));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let values = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    Ok(values.fold(any, |bits, value| bits | 1 << value))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let named = bounds.names.iter().zip(bounds.lowest..).find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map_or_else(|| number(text), |(_, value)| Ok(value))
}

fn number(text: &str) -> Result<u32, String> {
    let value: i64 = text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })?;
    if value < 0 {
        return Err(format!("negative number ({value}) not allowed: {text}"));
    }
    // Whatever does not fit is above every maximum.
    Ok(u32::try_from(value).unwrap_or(u32::MAX))
}

/// The whole seconds of an interval such as `1h30m`.
fn interval_seconds(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |length| digits + length);
        let seconds = match &rest[digits..unit_end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += amount * seconds;
        rest = &rest[unit_end..];
    }
    let whole = SignedDuration::try_from_secs_f64(total).ok()?.as_secs();
    (!text.is_empty()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn zone(name: &str) -> Zone {
        Zone::named(name).unwrap()
    }

    #[test]
    fn the_next_time_follows_from_the_fields() {
        let check = |schedule: &str, start: &str, expect: &str| {
            let next = CronSchedule::parse(schedule).unwrap().next(at(start), &Zone::UTC);
            assert_eq!(next, Some(at(expect)), "{schedule} after {start}");
        };
        check("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
        check("*/15 * * * *", "2026-01-01T00:15:01Z", "2026-01-01T00:30:00Z");
        check("5/20 * * * *", "2026-01-01T00:05:00Z", "2026-01-01T00:25:00Z");
        check("30 6-16/4 * * 1-5", "2026-01-02T14:31:00Z", "2026-01-05T06:30:00Z");
        check("0 0 29 FEB ?", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z");
        check("0 12 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z");
        check("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        check("@every 1h30m", "2026-01-01T00:00:10Z", "2026-01-01T01:30:10Z");
        let never = CronSchedule::parse("0 0 31 2 *").unwrap();
        assert_eq!(never.next(at("2026-01-01T00:00:00Z"), &Zone::UTC), None);
    }

    #[test]
    fn a_schedule_follows_the_clock_of_its_zone() {
        let (daily, berlin) = (CronSchedule::parse("30 2 * * *").unwrap(), zone("Europe/Berlin"));
        let next = |start: &str| daily.next(at(start), &berlin).unwrap();
        assert_eq!(next("2026-01-01T12:00:00Z"), at("2026-01-02T01:30:00Z"));
        // The half hour that the spring skips has no run.
        assert_eq!(next("2026-03-28T12:00:00Z"), at("2026-03-30T00:30:00Z"));
    }

    #[test]
    fn the_last_time_is_the_latest_that_was_missed() {
        let check = |schedule: &str, start: &str, now: &str, expect: Option<&str>| {
            let last = CronSchedule::parse(schedule).unwrap().last(at(start), at(now), &Zone::UTC);
            assert_eq!(last, expect.map(at), "{schedule} between {start} and {now}");
        };
        check("0 * * * *", "2026-01-01T00:30:00Z", "2026-01-01T00:59:59Z", None);
        check("0 * * * *", "2026-01-01T00:30:00Z", "2026-01-01T05:10:00Z", Some("2026-01-01T05:00:00Z"));
        check("@yearly", "2020-06-01T00:00:00Z", "2026-05-01T00:00:00Z", Some("2026-01-01T00:00:00Z"));
        check("@every 7m", "2026-01-01T00:00:05Z", "2026-01-01T00:20:00Z", Some("2026-01-01T00:14:05Z"));
    }

    #[test]
    fn an_invalid_schedule_is_refused_with_the_text_of_the_real_parser() {
        let check = |schedule: &str, expect: &str| {
            assert_eq!(CronSchedule::parse(schedule), Err(expect.to_owned()), "{schedule}");
        };
        check("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("9-3 * * * *", "beginning of range (9) beyond end of range (3): 9-3");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax");
        check("@never", "unrecognized descriptor: @never");
    }

    proptest! {
        #[test]
        fn no_schedule_panics(text in "[-@*?/,0-9a-z .]{0,24}") {
            if let Ok(schedule) = CronSchedule::parse(&text) {
                let (start, now) = (at("2026-01-01T00:00:00Z"), at("2026-02-01T00:00:00Z"));
                let last = schedule.last(start, now, &Zone::UTC);
                prop_assert!(last.is_none_or(|last| last > start && last <= now));
            }
        }
    }
}
