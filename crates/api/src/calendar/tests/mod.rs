mod brute;
mod grammar;
mod oracle;
mod tables;
mod zones;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Calendar, Calendars, Zone};

/// An instant from `2026-03-01 00:00:00`, in universal time.
fn at(text: &str) -> Timestamp {
    let local: jiff::civil::DateTime = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    local.to_zoned(TimeZone::UTC).unwrap().timestamp()
}

fn calendar(text: &str) -> Calendar {
    Calendar::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A random number generator that needs no crate; a failing test prints the seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        // Splitmix.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.roll(chances) == 0
    }

    fn between(&mut self, least: u64, greatest: u64) -> u64 {
        least + self.roll(greatest - least + 1)
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.roll(words.len() as u64)).unwrap()]
    }
}

/// A list of elements of one field.
fn field(dice: &mut Dice, least: u64, greatest: u64, from_end: bool) -> String {
    if dice.one_in(3) {
        return "*".to_owned();
    }
    let count = if dice.one_in(3) { dice.between(2, 3) } else { 1 };
    // systemd 252 lowers its limit on days from the end by three at each further element of a list.
    let greatest = if from_end && count > 1 { 22 } else { greatest };
    let element = |dice: &mut Dice| {
        let start = dice.between(least, greatest);
        let width = if dice.one_in(2) { 2 } else { 1 };
        match dice.roll(5) {
            0 if start < greatest => format!("{start:0width$}..{}", dice.between(start + 1, greatest)),
            1 if start < greatest => {
                let stop = dice.between(start + 1, greatest);
                format!("{start}..{stop}/{}", dice.between(1, stop - start))
            }
            2 if from_end && start > least => format!("{start}/{}", dice.between(1, start - least)),
            2 if !from_end && start < greatest => format!("{start}/{}", dice.between(1, greatest - start)),
            _ => format!("{start:0width$}"),
        }
    };
    (0..count).map(|_| element(dice)).collect::<Vec<_>>().join(",")
}

/// As any field, but with steps that end with the minute: systemd 252 carries others over the turn of an hour.
fn seconds(dice: &mut Dice) -> String {
    if dice.one_in(4) {
        return dice.pick(&["0/1", "0/10", "0/15", "0/30", "00/20"]).to_owned();
    }
    loop {
        let text = field(dice, 0, 59, false);
        if text.split(',').all(|element| !element.contains('/') || element.contains("..")) {
            return text;
        }
    }
}

/// A calendar as somebody may write it, in whole seconds and without a zone.
fn expression(dice: &mut Dice) -> String {
    const SHORT: [&str; 7] = ["Mon", "tue", "WED", "Thu", "Fri", "sat", "Sun"];
    const LONG: [&str; 7] = ["Monday", "Tuesday", "wednesday", "Thursday", "FRIDAY", "Saturday", "Sunday"];
    if dice.one_in(40) {
        let words =
            ["minutely", "Hourly", "daily", "weekly", "MONTHLY", "quarterly", "semiannually", "yearly"];
        return dice.pick(&words).to_owned();
    }
    let mut parts = Vec::new();
    if dice.one_in(3) {
        let names = if dice.one_in(2) { SHORT } else { LONG };
        let day = usize::try_from(dice.roll(7)).unwrap();
        let later = usize::try_from(dice.between(day as u64, 6)).unwrap();
        parts.push(match dice.roll(4) {
            0 => format!("{}..{}", names[day], names[later]),
            1 => format!("{},{}", names[day], names[usize::try_from(dice.roll(7)).unwrap()]),
            2 => format!("{}-{},{}", names[day], names[later], dice.pick(&SHORT)),
            _ => names[day].to_owned(),
        });
    }
    if dice.roll(4) > 0 {
        let (sign, last) = if dice.one_in(4) { ("~", 28) } else { ("-", 31) };
        let (month, day) = (field(dice, 1, 12, false), field(dice, 1, last, sign == "~"));
        parts.push(match dice.roll(6) {
            0 => format!("{}-{month}{sign}{day}", field(dice, 2020, 2120, false)),
            1 => format!("{month}{sign}{day}"),
            _ => format!("*-{month}{sign}{day}"),
        });
    }
    if parts.is_empty() || dice.roll(5) > 0 {
        let (hour, minute) = (field(dice, 0, 23, false), field(dice, 0, 59, false));
        parts.push(match dice.roll(3) {
            0 => format!("{hour}:{minute}:{}", seconds(dice)),
            _ => format!("{hour}:{minute}"),
        });
    }
    parts.join(" ")
}
