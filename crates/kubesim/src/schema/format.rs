//! String formats that the real server checks in objects of CRDs. It ignores unknown formats.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Whether a string is valid in a format; true for formats that are not checked.
pub(crate) fn is_valid(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(format, text),
        "byte" => STANDARD.decode(text).is_ok(),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        "hostname" => is_host_name(text),
        "email" => is_email(text),
        "uri" => is_uri(text),
        "ssn" => is_social_security_number(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "k8sshortname" => text.len() <= 63 && is_label(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_label),
        _ => true,
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    let has_zone = time.ends_with(['Z', 'z'])
        || time.len() > 6 && time.is_char_boundary(time.len() - 6) && {
            let (_, zone) = time.split_at(time.len() - 6);
            zone.starts_with(['+', '-']) && zone.as_bytes()[3] == b':'
        };
    is_date(date) && has_zone && text.to_ascii_uppercase().parse::<jiff::Timestamp>().is_ok()
}

/// Go's durations (`1h30m`, `-1.5s`), and those of Scala (`22 seconds`), which the real server accepts too.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 7] = ["ns", "us", "µs", "μs", "ms", "s", "m"];
    const WORDS: [&str; 9] = ["nano", "micro", "milli", "sec", "second", "min", "minute", "hour", "day"];
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if let Some((number, unit)) = text.split_once(' ') {
        let unit = unit.trim().trim_end_matches('s').trim_end_matches("second");
        let known = unit.is_empty()
            || WORDS.contains(&unit)
            || UNITS.contains(&unit)
            || matches!(unit, "h" | "d" | "w" | "week" | "hr");
        return !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && known;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - digits.len()];
        if number.is_empty() || number == "." || number.matches('.').count() > 1 {
            return false;
        }
        let unit = UNITS.iter().chain(&["h", "d", "w"]).find(|unit| {
            let after = digits.strip_prefix(**unit);
            after.is_some_and(|after| {
                after.is_empty() || after.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            })
        });
        let Some(unit) = unit else { return false };
        rest = &digits[unit.len()..];
    }
    true
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(length) = length.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && length <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && length <= 128)
}

fn is_mac(text: &str) -> bool {
    let separated = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts
                .iter()
                .all(|part| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    separated(':', 2, &[6, 8, 20]) || separated('-', 2, &[6, 8, 20]) || separated('.', 4, &[3, 4, 10])
}

fn is_uuid(format: &str, text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return false;
    }
    // A dash is valid only between the groups of 8-4-4-4-12 digits.
    let mut seen = 0;
    for byte in text.bytes() {
        match byte {
            b'-' if !matches!(seen, 8 | 12 | 16 | 20) => return false,
            b'-' => {}
            _ => seen += 1,
        }
    }
    let variant_fits = matches!(digits[16].to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b');
    match format {
        "uuid3" => digits[12] == b'3',
        "uuid4" => digits[12] == b'4' && variant_fits,
        "uuid5" => digits[12] == b'5' && variant_fits,
        _ => true,
    }
}

fn is_host_name(text: &str) -> bool {
    let is_part = |part: &str| {
        (1..=63).contains(&part.len())
            && part.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 255 && text.strip_suffix('.').unwrap_or(text).split('.').all(is_part)
}

fn is_email(text: &str) -> bool {
    let address = match (text.rsplit_once('<'), text.ends_with('>')) {
        (Some((_, address)), true) => address.trim_end_matches('>'),
        _ => text,
    };
    let Some((user, domain)) = address.rsplit_once('@') else { return false };
    !user.is_empty() && !domain.is_empty() && !address.contains(char::is_whitespace) && !domain.contains('@')
}

/// Like Go's `url.ParseRequestURI`: an absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && !rest.is_empty()
}

fn is_social_security_number(text: &str) -> bool {
    let digits: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    digits.len() == 9 && digits.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 11
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}
