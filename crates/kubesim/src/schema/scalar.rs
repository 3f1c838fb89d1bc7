//! Scalars that the real server rewrites in canonical form: quantities and times.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

/// The real server's error for an invalid quantity.
const NO_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The canonical form of a value; `None` if its Go type has none, or if the value is invalid.
pub(super) fn canonical(go_type: &str, value: &Value) -> Option<Value> {
    match go_type {
        "resource.Quantity" => quantity(&plain_text(value)?).map(Value::from),
        "v1.Time" => {
            let time = value.as_str()?.parse::<Timestamp>().ok()?;
            Some(Value::from(Timestamp::from_second(time.as_second()).ok()?.to_string()))
        }
        "v1.MicroTime" => {
            let text = value.as_str()?;
            let time = text.parse::<Timestamp>().ok()?.to_zoned(TimeZone::UTC);
            is_micro(text.get(SECONDS..)?).then_some(())?;
            Some(Value::from(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()))
        }
        _ => None,
    }
}

/// Go's error for an invalid value of such a type.
pub(super) fn error_text(go_type: &str, value: &Value) -> Option<String> {
    let is_time = matches!(go_type, "v1.Time" | "v1.MicroTime");
    if canonical(go_type, value).is_some() || !(is_time || go_type == "resource.Quantity") {
        return None;
    }
    match (is_time, value) {
        (true, Value::String(text)) => {
            let layout = match go_type {
                "v1.Time" => "2006-01-02T15:04:05Z07:00",
                _ => "2006-01-02T15:04:05.000000Z07:00",
            };
            let (part, expected) = match text.get(SECONDS..) {
                Some(rest) if go_type == "v1.MicroTime" && text.parse::<Timestamp>().is_ok() => {
                    (rest, ".000000")
                }
                _ => (text.as_str(), "2006"),
            };
            let (text, part) = (super::quoted(text), super::quoted(part));
            Some(format!("parsing time {text} as \"{layout}\": cannot parse {part} as \"{expected}\""))
        }
        (true, other) => {
            Some(format!("json: cannot unmarshal {} into Go value of type string", super::json_type(other)))
        }
        (false, _) => Some(NO_QUANTITY.to_owned()),
    }
}

/// The index of the fraction in `2006-01-02T15:04:05.000000Z`.
const SECONDS: usize = 19;

/// Whether a fraction has exactly six digits.
fn is_micro(rest: &str) -> bool {
    let digits =
        rest.strip_prefix('.').map(|rest| rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    digits == Some(6)
}

fn plain_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    Binary,
    Decimal,
    Exponent,
}

const NANO: i128 = 1_000_000_000;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// The canonical form of a quantity: no fraction, the largest suffix that leaves an integer.
fn quantity(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (suffix, scale) = scale(suffix)?;
    let nanos = nanos(number, scale)?;
    Some(match suffix {
        // Small or fractional values are not written in powers of two.
        Suffix::Binary if nanos.abs() >= 1024 * NANO && nanos % NANO == 0 => binary(nanos / NANO),
        Suffix::Binary | Suffix::Decimal => decimal(nanos, Suffix::Decimal),
        Suffix::Exponent => decimal(nanos, Suffix::Exponent),
    })
}

/// A factor: numerator and denominator.
type Scale = (i128, i128);

fn scale(suffix: &str) -> Option<(Suffix, Scale)> {
    if let Some(power) = BINARY.iter().skip(1).position(|known| *known == suffix) {
        return Some((Suffix::Binary, (1024_i128.checked_pow(u32::try_from(power).ok()? + 1)?, 1)));
    }
    if let Some(place) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some((Suffix::Decimal, power_of_ten(3 * (i32::try_from(place).ok()? - 3))?));
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let power = digits.strip_prefix('+').unwrap_or(digits).parse::<i32>().ok()?;
    Some((Suffix::Exponent, power_of_ten(power)?))
}

fn power_of_ten(power: i32) -> Option<Scale> {
    let size = 10_i128.checked_pow(power.unsigned_abs())?;
    Some(if power < 0 { (1, size) } else { (size, 1) })
}

/// A decimal number times a factor, in billionths, rounded away from zero.
fn nanos(number: &str, (numerator, denominator): Scale) -> Option<i128> {
    let (is_negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 || digits.contains(['+', '-']) || fraction.contains('.') {
        return None;
    }
    let mantissa = format!("{whole}{fraction}").parse::<i128>().ok()?;
    let below = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(denominator)?;
    let above = mantissa.checked_mul(numerator)?.checked_mul(NANO)?;
    let rounded = above / below + i128::from(above % below != 0);
    Some(if is_negative { -rounded } else { rounded })
}

fn binary(mut whole: i128) -> String {
    let mut place = 0;
    while whole % 1024 == 0 && place + 1 < BINARY.len() {
        whole /= 1024;
        place += 1;
    }
    format!("{whole}{}", BINARY[place])
}

fn decimal(mut nanos: i128, suffix: Suffix) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    let mut place = 0;
    while nanos % 1000 == 0 && place + 1 < DECIMAL.len() {
        nanos /= 1000;
        place += 1;
    }
    let mut text = nanos.to_string();
    match (suffix, place) {
        (Suffix::Exponent, 3) => {}
        (Suffix::Exponent, place) => {
            let _ = write!(text, "e{}", 3 * place as i64 - 9);
        }
        (_, place) => text.push_str(DECIMAL[place]),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{canonical, quantity};

    #[test]
    fn quantities_have_a_canonical_form() {
        let cases = [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1024Mi", "1Gi"),
            ("1Gi", "1Gi"),
            ("0.1Gi", "107374182400m"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1.5e3", "1500"),
            ("0", "0"),
            ("-2000", "-2k"),
            ("1000000", "1M"),
            ("0.0000000001", "1n"),
        ];
        for (input, expected) in cases {
            assert_eq!(quantity(input).as_deref(), Some(expected), "of {input}");
        }
        for input in ["", "x", "1.2.3", "1Kib", "--1", "1e", "12e999"] {
            assert_eq!(quantity(input), None, "of {input}");
        }
    }

    #[test]
    fn times_are_written_in_utc() {
        let time = |go_type: &str, text: &str| canonical(go_type, &text.into());
        assert_eq!(time("v1.Time", "2024-01-01T01:02:03.9+02:00"), Some("2023-12-31T23:02:03Z".into()));
        assert_eq!(
            time("v1.MicroTime", "2024-01-01T01:02:03.000001+01:00"),
            Some("2024-01-01T00:02:03.000001Z".into())
        );
        assert_eq!(time("v1.MicroTime", "2024-01-01T01:02:03Z"), None);
        assert_eq!(time("v1.Time", "yesterday"), None);
    }
}
