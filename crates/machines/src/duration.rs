//! Durations in Go's form, as the machine API has them.

use std::time::Duration;

/// Parses a duration without a sign, such as `300ms`, `1.5h` or `2h45m`; `0` needs no unit. `None` if it is not one.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0.0_f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        if number.is_empty() || number.starts_with('.') || number.ends_with('.') {
            return None;
        }
        total += number.parse::<f64>().ok()? * seconds_of(unit)?;
        rest = after;
    }
    Duration::try_from_secs_f64(total).ok()
}

fn seconds_of(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" | "µs" | "μs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text}");
        };
        check("0", Some(0));
        check("0s", Some(0));
        check("300ms", Some(300));
        check("1.5h", Some(5_400_000));
        check("2h45m", Some(9_900_000));
        check("1000us", Some(1));
        check("1000µs", Some(1));
        check("1000000ns", Some(1));
        for invalid in ["", "5", "s", "-5s", "5 s", "1.s", ".5s", "5d", "1h30", "0soon", "9e9h"] {
            check(invalid, None);
        }
        check(&format!("{}h", "9".repeat(400)), None);
    }
}
