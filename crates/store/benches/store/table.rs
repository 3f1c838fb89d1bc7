//! The printed table, line by line as results arrive.

use std::time::Duration;

use crate::slices::Pairs;

/// Goal of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// Rate as a multiple of the floor's.
    AtLeast(f64),
    /// Time as a multiple of the floor's.
    AtMost(f64),
    /// Informative rate without a goal.
    Shown,
}

/// One line.
#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    measured: String,
    floor: String,
    ratio: String,
    goal: String,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// No goal.
    Shown,
    Pass,
    Miss,
    /// A guarantee was violated, which no slow machine excuses.
    Broken,
}

impl Row {
    /// Compares rates, or times.
    pub(crate) fn compared(what: impl Into<String>, pairs: &Pairs, goal: Goal) -> Row {
        let ratio = pairs.ratio();
        let judge = |reached| if reached { Verdict::Pass } else { Verdict::Miss };
        let (verdict, says) = match goal {
            Goal::AtLeast(least) => (judge(ratio >= least), format!("at least {least:.2}")),
            Goal::AtMost(most) => (judge(ratio <= most), format!("at most {most:.1} x")),
            Goal::Shown => (Verdict::Shown, String::new()),
        };
        let show = |value: f64| match goal {
            Goal::AtLeast(_) | Goal::Shown => format!("{}/s", thousands(value)),
            Goal::AtMost(_) => millis(value),
        };
        Row {
            what: what.into(),
            measured: show(pairs.measured()),
            floor: show(pairs.floor()),
            ratio: format!("{ratio:.2}"),
            goal: says,
            verdict,
        }
    }

    /// Number of faults, which must be zero.
    pub(crate) fn none_of(what: impl Into<String>, faults: usize, of: usize) -> Row {
        Row {
            what: what.into(),
            measured: faults.to_string(),
            floor: format!("of {}", thousands(of as f64)),
            ratio: String::new(),
            goal: "none".to_owned(),
            verdict: if faults == 0 { Verdict::Pass } else { Verdict::Broken },
        }
    }

    /// A time limit.
    pub(crate) fn within(what: impl Into<String>, taken: Duration, lease: Duration, limit: Duration) -> Row {
        Row {
            what: what.into(),
            measured: format!("{:.1} s", taken.as_secs_f64()),
            floor: format!("{:.1} s", lease.as_secs_f64()),
            ratio: String::new(),
            goal: format!("within {:.1} s", limit.as_secs_f64()),
            verdict: if taken <= limit { Verdict::Pass } else { Verdict::Miss },
        }
    }
}

/// Results so far.
#[derive(Debug, Default)]
pub(crate) struct Table {
    goals: usize,
    reached: usize,
    broken: usize,
}

impl Table {
    pub(crate) fn begin(&self) {
        line("what", "measured", "floor", "ratio", "goal", "");
        println!("{}", "-".repeat(126));
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.goals += usize::from(row.verdict != Verdict::Shown);
        let verdict = match row.verdict {
            Verdict::Shown => "",
            Verdict::Pass => {
                self.reached += 1;
                "pass"
            }
            Verdict::Miss => "MISS",
            Verdict::Broken => {
                self.broken += 1;
                "BROKEN"
            }
        };
        line(&row.what, &row.measured, &row.floor, &row.ratio, &row.goal, verdict);
    }

    pub(crate) fn skip(&self, name: &str, why: &str) {
        println!("{name}: skipped ({why})");
    }

    /// Prints the summary; returns whether every guarantee held.
    pub(crate) fn end(self) -> bool {
        println!("{} of {} goals reached", self.reached, self.goals);
        self.broken == 0
    }
}

fn line(what: &str, measured: &str, floor: &str, ratio: &str, goal: &str, verdict: &str) {
    println!("{what:<66} {measured:>12} {floor:>12} {ratio:>7}  {goal:<16} {verdict}");
}

/// Formats a rate or a number.
fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn millis(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1000.0)
}
