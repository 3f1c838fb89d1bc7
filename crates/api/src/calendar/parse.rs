//! Parser of calendar expressions.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::field::{Field, Part, Place};
use super::{Calendar, EVERY_WEEKDAY, WEEKDAYS, Zone};

/// Maximum length of an expression in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// systemd's limit on the elements of one list.
const ELEMENTS_MAX: usize = 240;

/// Error of an expression: the problem, its position, and the accepted form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no calendar: {problem}")]
pub struct CalendarError {
    text: String,
    problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("it is empty; write, for example, Mon..Fri *-*-* 02:30 or weekly")]
    Empty,
    #[error("it has {0} bytes; at most {TEXT_BYTES_MAX} are accepted")]
    TooLong(usize),
    #[error(
        "{0:?} is no weekday; weekdays are Mon to Sun or their full names, as a list or a range (Mon..Fri)"
    )]
    Weekday(String),
    #[error(
        "the range of weekdays ending in {0} runs backwards; a week begins on Monday (write Fri..Sun,Mon)"
    )]
    WeekdaysBackwards(&'static str),
    #[error("the list of weekdays goes on with {0:?}; only a comma, .. or a space may follow a weekday")]
    AfterWeekday(String),
    #[error("a weekday is missing at the end of its range; write, for example, Mon..Fri")]
    WeekdayMissing,
    #[error("{0:?} is neither a date (year-month-day or month-day) nor a time (hour:minute[:second])")]
    NeitherDateNorTime(String),
    #[error("the date {0:?} is not as year-month-day or month-day, where ~ may stand before the day")]
    Date(String),
    #[error("the time {0:?} is not as hour:minute or hour:minute:second")]
    Time(String),
    #[error(
        "the time is followed by {0:?}; only UTC or the name of a time zone may follow it, after one space"
    )]
    Behind(String),
    #[error("{0:?} is no time zone; a zone is UTC or an IANA name such as Europe/Berlin")]
    Zone(String),
    #[error("{text:?} is no {place}; write *, a number, a range (1..5), steps (0/2), or a list of these", place = .place.word())]
    Element { place: Place, text: String },
    #[error("{place} {text:?}: * cannot have steps or be in a list; write {least}/2 for every second one", place = .place.word(), least = .place.bounds().0)]
    Star { place: Place, text: String },
    #[error("{text} is no {place}; accepted are {} to {}", .place.bounds().0, .place.bounds().1, place = .place.word())]
    OutOfRange { place: Place, text: String },
    #[error("{place} range {text:?} runs backwards", place = .place.word())]
    Backwards { place: Place, text: String },
    #[error("{place} {text:?}: a step must be at least 1", place = .place.word())]
    StepZero { place: Place, text: String },
    #[error("{place} {text:?}: the first step leads past {end}", place = .place.word())]
    StepTooLong { place: Place, text: String, end: u16 },
    #[error("second {0:?} has a fraction; only whole seconds are accepted")]
    Fraction(String),
    #[error("the list of {place}s has more than {ELEMENTS_MAX} elements", place = .0.word())]
    TooMany(Place),
    #[error("{0:?} is no instant; write @ and seconds since 1970, up to the year 9999")]
    Instant(String),
}

/// Names of frequent calendars; case is ignored, as in systemd.
fn shorthand(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "minutely" => "*-*-* *:*:00",
        "hourly" => "*-*-* *:00:00",
        "daily" => "*-*-* 00:00:00",
        "weekly" => "Mon *-*-* 00:00:00",
        "monthly" => "*-*-01 00:00:00",
        "quarterly" => "*-01,04,07,10-01 00:00:00",
        "semiannually" | "semi-annually" | "biannually" | "bi-annually" => "*-01,07-01 00:00:00",
        // The misspelling is systemd's own, kept there for old files.
        "yearly" | "annually" | "anually" => "*-01-01 00:00:00",
        _ => return None,
    })
}

/// Parse a whole expression.
pub(super) fn calendar(text: &str) -> Result<Calendar, CalendarError> {
    if text.len() > TEXT_BYTES_MAX {
        let beginning = text.chars().take(60).collect();
        return Err(CalendarError { text: beginning, problem: Problem::TooLong(text.len()) });
    }
    read(text).map_err(|problem| CalendarError { text: text.to_owned(), problem })
}

fn read(text: &str) -> Result<Calendar, Problem> {
    let (text, zone) = split_zone(text)?;
    let rest = shorthand(text).unwrap_or(text);
    if rest.is_empty() {
        return Err(Problem::Empty);
    }
    let (weekdays, rest) = weekdays(rest)?;
    if let Some(seconds) = rest.strip_prefix('@') {
        return instant(seconds, weekdays);
    }
    let (date, time) = match rest.split_once(' ') {
        _ if rest.is_empty() => ("*-*-*", "00:00:00"),
        Some((word, time)) if !word.contains(':') => (word, time.trim_start_matches(' ')),
        None if !rest.contains(':') => (rest, ""),
        _ => ("*-*-*", rest),
    };
    let (years, months, days, from_end) = fields_of_date(date)?;
    let (hours, minutes, seconds) = fields_of_time(if time.is_empty() { "00:00:00" } else { time })?;
    Ok(Calendar { weekdays, years, months, days, from_end, hours, minutes, seconds, zone })
}

/// The last part, when it names a zone.
fn split_zone(text: &str) -> Result<(&str, Option<Zone>), Problem> {
    let Some((before, word)) = text.rsplit_once(' ') else { return Ok((text, None)) };
    // Nothing else at the end begins with a letter, but a weekday in a list of them.
    if !word.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Ok((text, None));
    }
    match Zone::named(word) {
        Some(zone) => Ok((before, Some(zone))),
        None if self::weekdays(word).is_ok() => Err(Problem::NeitherDateNorTime(word.to_owned())),
        None => Err(Problem::Zone(word.to_owned())),
    }
}

/// The weekdays that an expression begins with, and what follows them.
fn weekdays(text: &str) -> Result<(u8, &str), Problem> {
    let mut rest = text;
    let mut days = 0_u8;
    let mut range_from = None;
    if !rest.starts_with(|first: char| first.is_alphabetic()) {
        return Ok((EVERY_WEEKDAY, rest));
    }
    loop {
        let (word, after) = rest.split_at(rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len()));
        let day = WEEKDAYS
            .iter()
            .position(|(short, long)| word.eq_ignore_ascii_case(short) || word.eq_ignore_ascii_case(long))
            .ok_or_else(|| Problem::Weekday(word.to_owned()))?;
        let begun = range_from.take();
        match begun {
            Some(first) if first > day => return Err(Problem::WeekdaysBackwards(WEEKDAYS[day].0)),
            Some(first) => (first..=day).for_each(|day| days |= 1 << day),
            None => days |= 1 << day,
        }
        let ends = |text: &str| text.is_empty() || text.starts_with(' ');
        if ends(after) {
            return Ok((days, after.trim_start_matches(' ')));
        }
        // A hyphen is systemd's old way to write a range.
        if let Some(next) = after.strip_prefix("..").or_else(|| after.strip_prefix('-')) {
            if ends(next) {
                return Err(Problem::WeekdayMissing);
            }
            if begun.is_some() {
                return Err(Problem::AfterWeekday(after.to_owned())); // Mon..Wed..Fri
            }
            range_from = Some(day);
            rest = next;
        } else if let Some(next) = after.strip_prefix(',') {
            if ends(next) {
                return Ok((days, next.trim_start_matches(' '))); // systemd allows a comma at the end
            }
            rest = next;
        } else {
            return Err(Problem::AfterWeekday(after.to_owned()));
        }
    }
}

/// A single instant, which systemd reads in universal time.
fn instant(seconds: &str, weekdays: u8) -> Result<Calendar, Problem> {
    let refusal = || Problem::Instant(format!("@{seconds}"));
    let number = Some(seconds).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|text| text.parse().ok()).ok_or_else(refusal)?;
    let instant = Timestamp::from_second(number).map_err(|_| refusal())?;
    let local = TimeZone::UTC.to_datetime(instant);
    let one = |number: i16, place| {
        u16::try_from(number).map(|number| Field::one(number, place)).map_err(|_| refusal())
    };
    Ok(Calendar {
        weekdays,
        years: one(local.year(), Place::Year)?,
        months: one(local.month().into(), Place::Month)?,
        days: one(local.day().into(), Place::Day)?,
        from_end: false,
        hours: one(local.hour().into(), Place::Hour)?,
        minutes: one(local.minute().into(), Place::Minute)?,
        seconds: one(local.second().into(), Place::Second)?,
        zone: Some(Zone::UTC),
    })
}

type DateFields = (Field, Field, Field, bool);

fn fields_of_date(text: &str) -> Result<DateFields, Problem> {
    if !text.contains(['-', '~']) {
        return Err(Problem::NeitherDateNorTime(text.to_owned()));
    }
    let refusal = || Problem::Date(text.to_owned());
    let day_at = text.rfind(['-', '~']).ok_or_else(refusal)?;
    let (before, day) = (&text[..day_at], &text[day_at + 1..]);
    let (year, month) = before.split_once('-').unwrap_or(("*", before));
    if before.contains('~') || month.contains('-') {
        return Err(refusal());
    }
    // From whichever end they are counted, all days are all days.
    let from_end = text[day_at..].starts_with('~') && day != "*";
    let place = if from_end { Place::DayFromEnd } else { Place::Day };
    Ok((field(year, Place::Year)?, field(month, Place::Month)?, field(day, place)?, from_end))
}

fn fields_of_time(text: &str) -> Result<(Field, Field, Field), Problem> {
    if let Some((_, behind)) = text.split_once(' ') {
        return Err(Problem::Behind(behind.to_owned()));
    }
    let mut parts = text.split(':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(hour), Some(minute), second, None) => Ok((
            field(hour, Place::Hour)?,
            field(minute, Place::Minute)?,
            field(second.unwrap_or("0"), Place::Second)?,
        )),
        _ => Err(Problem::Time(text.to_owned())),
    }
}

fn field(text: &str, place: Place) -> Result<Field, Problem> {
    if text == "*" && place == Place::Second {
        return Ok(Field::of(vec![Part { start: 0, stop: None, step: 1 }], place));
    }
    if text == "*" {
        return Ok(Field::any(place));
    }
    if text.split(',').count() > ELEMENTS_MAX {
        return Err(Problem::TooMany(place));
    }
    text.split(',')
        .map(|text| part(text, place))
        .collect::<Result<_, _>>()
        .map(|parts| Field::of(parts, place))
}

fn part(text: &str, place: Place) -> Result<Part, Problem> {
    if text.starts_with('*') {
        return Err(Problem::Star { place, text: text.to_owned() });
    }
    let (range, step) = match text.split_once('/') {
        Some((range, step)) => (range, Some(number(step, text, place)?)),
        None => (text, None),
    };
    if step == Some(0) {
        return Err(Problem::StepZero { place, text: text.to_owned() });
    }
    let (least, greatest) = place.bounds();
    let within = |word: &str| -> Result<u16, Problem> {
        let number = year_of_two_digits(number(word, text, place)?, place);
        u16::try_from(number)
            .ok()
            .filter(|number| (least..=greatest).contains(number))
            .ok_or_else(|| Problem::OutOfRange { place, text: word.to_owned() })
    };
    let (start, stop) = match range.split_once("..") {
        Some((start, stop)) => (within(start)?, Some(within(stop)?)),
        None => (within(range)?, None),
    };
    if stop.is_some_and(|stop| stop < start) {
        return Err(Problem::Backwards { place, text: text.to_owned() });
    }
    // A step that no range holds leads to the end of the field; a range of one number needs none.
    let step = match (step, stop) {
        (None, None) => 0,
        (None, Some(_)) => 1,
        (Some(step), _) => u16::try_from(step).unwrap_or(u16::MAX / 4).min(u16::MAX / 4),
    };
    let reach = if place == Place::DayFromEnd { start - least } else { greatest - start };
    if stop.is_none() && step > reach {
        let end = if place == Place::DayFromEnd { least } else { greatest };
        return Err(Problem::StepTooLong { place, text: text.to_owned(), end });
    }
    Ok(Part { start, stop, step })
}

/// Digits only; leading zeros are fine.
fn number(word: &str, element: &str, place: Place) -> Result<u64, Problem> {
    if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()) {
        let has_fraction =
            word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        return Err(match place {
            Place::Second if has_fraction => Problem::Fraction(word.to_owned()),
            _ => Problem::Element { place, text: element.to_owned() },
        });
    }
    word.parse().map_err(|_| Problem::OutOfRange { place, text: word.to_owned() })
}

/// systemd reads 69 as 2069 and 70 as 1970.
fn year_of_two_digits(number: u64, place: Place) -> u64 {
    match number {
        0..70 if place == Place::Year => number + 2000,
        70..100 if place == Place::Year => number + 1900,
        _ => number,
    }
}
