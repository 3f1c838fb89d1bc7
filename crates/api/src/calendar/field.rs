//! One field of a calendar expression: years, months, ... seconds.

use std::fmt;

/// Unit of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Year,
    Month,
    Day,
    /// A day that is counted from the end of its month.
    DayFromEnd,
    Hour,
    Minute,
    Second,
}

impl Place {
    /// Name in messages.
    pub(super) fn word(self) -> &'static str {
        match self {
            Place::Year => "year",
            Place::Month => "month",
            Place::Day => "day",
            Place::DayFromEnd => "day from the end of the month",
            Place::Hour => "hour",
            Place::Minute => "minute",
            Place::Second => "second",
        }
    }

    /// Its least and its greatest number.
    pub(super) fn bounds(self) -> (u16, u16) {
        match self {
            // systemd ends at 2199, MIMO never; jiff's calendar ends here.
            Place::Year => (1970, 9999),
            Place::Month => (1, 12),
            Place::Day => (1, 31),
            // Every month has at least 28 days.
            Place::DayFromEnd => (1, 28),
            Place::Hour => (0, 23),
            Place::Minute | Place::Second => (0, 59),
        }
    }
}

/// One element of a list: a number, a range, or a start with steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) start: u16,
    /// The end of a range; none for a single number and for steps without end. (None sorts first, as in systemd.)
    pub(super) stop: Option<u16>,
    /// 0 for a single number.
    pub(super) step: u16,
}

impl Part {
    /// The least number of this element that is `from` or more.
    fn at_or_after(&self, from: u16, place: Place) -> Option<u16> {
        if place == Place::DayFromEnd && self.stop.is_none() && self.step > 0 {
            // Steps go towards the end of the month, where the numbers become smaller.
            let least = (self.start - 1) % self.step + 1;
            let up = from.saturating_sub(least).div_ceil(self.step) * self.step;
            return Some(least + up).filter(|number| *number <= self.start);
        }
        if from <= self.start {
            return Some(self.start);
        }
        if self.step == 0 {
            return None;
        }
        let number = self.start + (from - self.start).div_ceil(self.step) * self.step;
        Some(number).filter(|number| *number <= self.stop.unwrap_or(place.bounds().1))
    }
}

/// Numbers of one field. Without elements, any number matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    parts: Vec<Part>,
    /// Its numbers as bits; 0 for years, which do not fit.
    mask: u64,
}

impl Field {
    /// Any number.
    pub(super) fn any(place: Place) -> Field {
        Field::of(Vec::new(), place)
    }

    /// One number.
    pub(super) fn one(number: u16, place: Place) -> Field {
        Field::of(vec![Part { start: number, stop: None, step: 0 }], place)
    }

    /// These elements, sorted, each once; ranges end at a number that they name.
    pub(super) fn of(mut parts: Vec<Part>, place: Place) -> Field {
        for part in &mut parts {
            if let Some(stop) = part.stop {
                let stop = stop - (stop - part.start) % part.step.max(1);
                *part = if stop == part.start {
                    Part { start: stop, stop: None, step: 0 }
                } else {
                    Part { stop: Some(stop), ..*part }
                };
            }
        }
        parts.sort_unstable();
        parts.dedup();
        let mut field = Field { parts, mask: 0 };
        if place != Place::Year {
            let mut from = place.bounds().0;
            while let Some(number) = field.at_or_after(from, place) {
                field.mask |= 1 << number;
                from = number + 1;
            }
        }
        field
    }

    /// Whether any number matches.
    pub(super) fn is_any(&self) -> bool {
        self.parts.is_empty()
    }

    /// The least number that is `from` or more.
    pub(super) fn at_or_after(&self, from: u16, place: Place) -> Option<u16> {
        let (least, greatest) = place.bounds();
        if self.is_any() {
            return Some(from.max(least)).filter(|number| *number <= greatest);
        }
        self.parts.iter().filter_map(|part| part.at_or_after(from, place)).min()
    }

    /// Its numbers as bits; for every field but the year.
    pub(super) fn mask(&self) -> u64 {
        self.mask
    }

    /// The least of its numbers that is `from` or more; for every field but the year.
    pub(super) fn number_from(&self, from: u16) -> Option<u16> {
        let rest = self.mask.checked_shr(from.into()).unwrap_or(0);
        (rest != 0).then(|| from + rest.trailing_zeros() as u16)
    }

    /// In systemd's normal form.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, place: Place) -> fmt::Result {
        let every_second = place == Place::Second && self.parts == [Part { start: 0, stop: None, step: 1 }];
        if self.is_any() || every_second {
            return f.write_str("*");
        }
        let width = if place == Place::Year { 4 } else { 2 };
        for (index, part) in self.parts.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{:0width$}", part.start)?;
            if let Some(stop) = part.stop {
                write!(f, "..{stop:0width$}")?;
            }
            if part.step > 1 || (part.step == 1 && part.stop.is_none()) {
                write!(f, "/{}", part.step)?;
            }
        }
        Ok(())
    }
}
