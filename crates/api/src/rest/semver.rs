//! Versions of OpenShift: `MAJOR.MINOR.PATCH`, optionally with a pre-release tag.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A valid version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Patch number.
    pub patch: u32,
    /// Pre-release tag behind the hyphen; empty for a release.
    pub before: String,
}

impl Semver {
    /// The minor version, which is the name of its role set.
    pub fn minor_name(&self) -> String {
        format!("{}.{}", self.major, self.minor)
    }

    /// The first release of a minor version such as `4.19`.
    pub const fn of_minor(major: u32, minor: u32) -> Semver {
        Semver { major, minor, patch: 0, before: String::new() }
    }
}

/// A number without a sign or a leading zero.
fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

impl FromStr for Semver {
    type Err = ();

    fn from_str(text: &str) -> Result<Semver, ()> {
        let (core, before) = match text.split_once('-') {
            Some((core, before)) => (core, before),
            None => (text, ""),
        };
        let is_tag = |text: &str| {
            text.split('.').all(|part| {
                !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            })
        };
        if (text.contains('-') && !is_tag(before)) || text.len() > 100 {
            return Err(());
        }
        let numbers: Option<Vec<u32>> = core.split('.').map(number).collect();
        match numbers.as_deref() {
            Some([major, minor, patch]) => {
                Ok(Semver { major: *major, minor: *minor, patch: *patch, before: before.to_owned() })
            }
            _ => Err(()),
        }
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if self.before.is_empty() { Ok(()) } else { write!(f, "-{}", self.before) }
    }
}

impl Ord for Semver {
    fn cmp(&self, other: &Semver) -> Ordering {
        let core = |it: &Semver| (it.major, it.minor, it.patch);
        // A pre-release is older than its release.
        core(self).cmp(&core(other)).then_with(|| match (self.before.as_str(), other.before.as_str()) {
            ("", "") => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (one, two) => tags(one, two),
        })
    }
}

/// Compare tags part by part: numbers by value and before texts, as in semantic versioning.
fn tags(one: &str, two: &str) -> Ordering {
    let part = |text: &str| match number(text) {
        Some(number) => (0, number, String::new()),
        None => (1, 0, text.to_owned()),
    };
    one.split('.').map(part).cmp(two.split('.').map(part))
}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Semver) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_written_and_ordered() {
        let sorted = ["4.9.1", "4.17.0-rc.2", "4.17.0-rc.10", "4.17.0", "4.17.3", "4.17.12", "4.18.0"];
        let read: Vec<Semver> = sorted.iter().map(|text| text.parse().unwrap()).collect();
        assert!(read.is_sorted());
        for (text, version) in sorted.iter().zip(&read) {
            assert_eq!(version.to_string(), *text);
        }
        assert_eq!(read[3].minor_name(), "4.17");
        for nonsense in
            ["", "4", "4.17", "4.17.x", "v4.17.3", "4.17.03", "4.17.3-", "4.17.3-a..b", "4.17.3.1", "+4.1.1"]
        {
            assert!(nonsense.parse::<Semver>().is_err(), "{nonsense}");
        }
    }
}
