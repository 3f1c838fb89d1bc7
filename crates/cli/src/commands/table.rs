//! Tables and descriptions.

use jiff::Timestamp;

use super::age::age;

/// The name of a column, and whether only `-o wide` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column(pub(super) &'static str, pub(super) Width);

/// When a column is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Always,
    Wide,
}

/// Time and width of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) now: Timestamp,
    pub(super) wide: bool,
}

impl View {
    /// The age of a time, or a timestamp in wide tables.
    pub(super) fn time(&self, time: Timestamp) -> String {
        if self.wide { absolute(time) } else { age(time, self.now) }
    }

    /// The same for an optional time.
    pub(super) fn optional_time(&self, time: Option<Timestamp>) -> String {
        time.map(|time| self.time(time)).unwrap_or_default()
    }

    /// The same for Unix seconds.
    pub(super) fn unix(&self, seconds: i64) -> String {
        Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| self.time(time))
    }
}

/// Timestamp in UTC, to the second.
pub(super) fn absolute(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Timestamp and age, for descriptions.
pub(super) fn with_age(time: Timestamp, now: Timestamp) -> String {
    let age = age(time, now);
    match age.starts_with("in ") {
        true => format!("{} ({age})", absolute(time)),
        false => format!("{} ({age} ago)", absolute(time)),
    }
}

/// The serialized name of an enum value.
pub(super) fn wire_name(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Renders rows like kubectl: each column as wide as its widest cell, with three spaces between columns.
pub(super) fn rows(columns: &[Column], rows: &[Vec<String>], view: &View, heading: bool) -> String {
    let shown: Vec<usize> =
        (0..columns.len()).filter(|at| view.wide || columns[*at].1 == Width::Always).collect();
    let head = shown.iter().map(|at| columns[*at].0.to_owned()).collect();
    let body = rows.iter().map(|row| shown.iter().map(|at| escape_control(row.get(*at))).collect());
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
    let widths: Vec<usize> = (0..shown.len())
        .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines[usize::from(!heading)..] {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("   ").trim_end();
        text.push('\n');
    }
    text
}

/// Renders a description; lines without a value are left out.
pub(super) fn details(details: &[(&str, String)]) -> String {
    let details: Vec<_> = details.iter().filter(|(_, value)| !value.is_empty()).collect();
    let width = details.iter().map(|(name, _)| name.chars().count() + 1).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in details {
        let name = format!("{name}:");
        let mut lines = value.lines().map(|line| escape_control(Some(&line.to_owned())));
        text += &format!("{name:width$}  {}\n", lines.next().unwrap_or_default());
        for line in lines {
            text += &format!("{:width$}  {line}\n", "");
        }
    }
    text
}

/// Replaces control characters: user input may contain line breaks or escape sequences.
pub(super) fn escape_control(cell: Option<&String>) -> String {
    let cell = cell.map(String::as_str).unwrap_or_default();
    cell.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] =
        [Column("NAME", Width::Always), Column("WHY", Width::Wide), Column("AGE", Width::Always)];

    fn view(wide: bool) -> View {
        View { now: "2026-01-01T00:00:00Z".parse().unwrap(), wide }
    }

    #[test]
    fn columns_are_aligned_and_wide_columns_are_optional() {
        let input = [["a", "x\ny", "5m"], ["bcdef", "", "1h"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(rows(&COLUMNS, &input, &view(false), true), "NAME    AGE\na       5m\nbcdef   1h\n");
        assert_eq!(
            rows(&COLUMNS, &input, &view(true), true),
            "NAME    WHY   AGE\na       x\u{FFFD}y   5m\nbcdef         1h\n"
        );
        assert_eq!(rows(&COLUMNS, &input[1..], &view(false), false), "bcdef   1h\n");
    }

    #[test]
    fn times_are_ages_except_in_wide_tables() {
        let time: Timestamp = "2025-12-31T23:55:00Z".parse().unwrap();
        assert_eq!(view(false).time(time), "5m");
        assert_eq!(view(true).time(time), "2025-12-31T23:55:00Z");
        assert_eq!(with_age(time, view(false).now), "2025-12-31T23:55:00Z (5m ago)");
    }

    #[test]
    fn empty_details_are_left_out_and_long_ones_stay_in_their_column() {
        let input = [("Name", "a".to_owned()), ("Reason", String::new()), ("Labels", "x=1\ny=2".to_owned())];
        assert_eq!(details(&input), "Name:    a\nLabels:  x=1\n         y=2\n");
    }
}
