//! Several calendars in one zone: the union of their times.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Date, Time};

use super::{Calendar, CalendarError, Zone};

/// Maximum number of expressions of a schedule; each is evaluated at every boundary.
pub const CALENDARS_MAX: usize = 32;

/// Years after which weekdays fall on the same dates again, so that every interval was examined.
const CYCLE_YEARS: i16 = 400;

/// One or more calendars in one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendars {
    calendars: Vec<Calendar>,
    zone: Zone,
}

/// Reason why texts are not calendars of one zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalendarsError {
    /// There is none.
    #[error("there is no calendar; at least one is needed")]
    None,
    /// There are too many.
    #[error("there are {count} calendars; at most {CALENDARS_MAX} are accepted")]
    TooMany {
        /// Number of expressions.
        count: usize,
    },
    /// The zone is unknown.
    #[error("{name:?} is no time zone; a zone is UTC or an IANA name such as Europe/Berlin")]
    Zone {
        /// The name of the zone.
        name: String,
    },
    /// One of them is invalid.
    #[error("{error}")]
    Calendar {
        /// Its index, from 0.
        index: usize,
        /// The cause.
        error: CalendarError,
    },
    /// One of them names another zone than the rest.
    #[error(
        "the calendar names the zone {named}, but the others are read in {zone}; give all of them one zone"
    )]
    TwoZones {
        /// Its index, from 0.
        index: usize,
        /// The zone that it names.
        named: String,
        /// The zone of the others.
        zone: String,
    },
}

impl Calendars {
    /// Parse expressions. The zone is `zone`, or else the one that the expressions name, or else UTC.
    pub fn parse<T: AsRef<str>>(texts: &[T], zone: Option<&str>) -> Result<Calendars, CalendarsError> {
        if texts.is_empty() {
            return Err(CalendarsError::None);
        }
        if texts.len() > CALENDARS_MAX {
            return Err(CalendarsError::TooMany { count: texts.len() });
        }
        let given = match zone {
            Some(name) => {
                Some(Zone::named(name).ok_or_else(|| CalendarsError::Zone { name: name.to_owned() })?)
            }
            None => None,
        };
        let calendars = texts
            .iter()
            .enumerate()
            .map(|(index, text)| {
                Calendar::parse(text.as_ref()).map_err(|error| CalendarsError::Calendar { index, error })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let zone = given.or_else(|| calendars[0].zone().cloned()).unwrap_or(Zone::UTC);
        for (index, calendar) in calendars.iter().enumerate() {
            if let Some(named) = calendar.zone().filter(|named| named.name() != zone.name()) {
                let (named, zone) = (named.name().to_owned(), zone.name().to_owned());
                return Err(CalendarsError::TwoZones { index, named, zone });
            }
        }
        Ok(Calendars { calendars, zone })
    }

    /// The zone of the calendars.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The calendars.
    pub fn iter(&self) -> impl Iterator<Item = &Calendar> {
        self.calendars.iter()
    }

    /// The first occurrence of any of them strictly after `instant`; none when there is none.
    pub fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        self.calendars.iter().filter_map(|it| it.next_after(instant, self.zone.time_zone())).min()
    }

    /// All occurrences after `instant`, in order.
    pub fn after(&self, instant: Timestamp) -> impl Iterator<Item = Timestamp> {
        let mut last = instant;
        std::iter::from_fn(move || {
            last = self.next_after(last)?;
            Some(last)
        })
    }

    /// Whether an occurrence is at this instant only because the zone skips its local time.
    pub fn is_moved_to(&self, instant: Timestamp) -> bool {
        let local = self.zone.time_zone().to_datetime(instant);
        let names = |calendar: &Calendar| calendar.local_at_or_after(local) == Some(local);
        let before = instant.checked_sub(jiff::SignedDuration::from_nanos(1));
        before.is_ok_and(|before| self.next_after(before) == Some(instant))
            && !self.calendars.iter().any(names)
    }

    /// The shortest interval between two consecutive occurrences from `from` on; none when there are not two.
    ///
    /// By the local clock: a daily calendar's interval is 24 hours in every zone, though one day of the year has 23.
    pub fn shortest_interval(&self, from: Timestamp) -> Option<Duration> {
        let begin = self.zone.time_zone().to_datetime(from).date();
        let end = begin.year().saturating_add(CYCLE_YEARS);
        let mut next: Vec<Option<Date>> =
            self.calendars.iter().map(|calendar| calendar.date_at_or_after(begin)).collect();
        let mut days: HashMap<u64, Day> = HashMap::new();
        let mut before: Option<(Date, u32)> = None;
        let mut shortest: Option<u32> = None;
        while let Some(date) = next.iter().flatten().min().copied().filter(|date| date.year() <= end) {
            let mut firing = 0_u64;
            for (index, (next, calendar)) in next.iter_mut().zip(&self.calendars).enumerate() {
                if *next == Some(date) {
                    firing |= 1 << index;
                    *next = date.tomorrow().ok().and_then(|date| calendar.date_at_or_after(date));
                }
            }
            let day = days.entry(firing).or_insert_with(|| self.day(firing));
            let across = before.map(|(earlier, last)| seconds_between(earlier, last, date, day.first));
            shortest = [shortest, day.shortest, across].into_iter().flatten().min();
            if shortest == Some(1) {
                break;
            }
            before = Some((date, day.last));
        }
        shortest.map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// The times of a day on which these calendars fire.
    fn day(&self, firing: u64) -> Day {
        let mut times: Vec<u32> = Vec::new();
        for (_, calendar) in self.calendars.iter().enumerate().filter(|(index, _)| firing & (1 << index) != 0)
        {
            let mut time = calendar.time_at_or_after(Time::midnight());
            while let Some(found) = time {
                times.push(second_of_day(found));
                time = match found.checked_add(jiff::Span::new().seconds(1)) {
                    Ok(next) => calendar.time_at_or_after(next),
                    Err(_) => None, // the last second of the day
                };
            }
        }
        times.sort_unstable();
        times.dedup();
        Day {
            first: times.first().copied().unwrap_or(0),
            last: times.last().copied().unwrap_or(0),
            shortest: times.windows(2).map(|pair| pair[1] - pair[0]).min(),
        }
    }
}

/// Summary of a day's times, in seconds since midnight.
#[derive(Debug, Clone, Copy)]
struct Day {
    first: u32,
    last: u32,
    shortest: Option<u32>,
}

fn second_of_day(time: Time) -> u32 {
    let number = |number: i8| u32::try_from(number).unwrap_or(0);
    number(time.hour()) * 3600 + number(time.minute()) * 60 + number(time.second())
}

fn seconds_between(earlier: Date, last: u32, later: Date, first: u32) -> u32 {
    let days = later.duration_since(earlier).as_hours() / 24;
    let seconds = i64::from(first) - i64::from(last) + days * 86_400;
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
