//! Versions of Kubernetes and OpenShift, with their ordering.

use std::cmp::Ordering;
use std::str::FromStr;

/// A version: numbers with dots, optionally after a `v`, optionally with a pre-release tag (`-rc.1`). Build metadata
/// (`+build`) is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionNumber {
    numbers: [u64; 3],
    /// Empty for a release.
    before: Vec<String>,
}

/// A text that is not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no version; write, for example, 4.17.3 or v1.37.1")]
pub struct NotAVersion(String);

impl FromStr for VersionNumber {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<VersionNumber, NotAVersion> {
        read(text).ok_or_else(|| NotAVersion(text.to_owned()))
    }
}

fn read(text: &str) -> Option<VersionNumber> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let text = text.split_once('+').map_or(text, |(version, _build)| version);
    let (release, before) = text.split_once('-').map_or((text, None), |(release, it)| (release, Some(it)));
    let mut numbers = [0; 3];
    for (index, word) in release.split('.').enumerate() {
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        *numbers.get_mut(index)? = digits.then(|| word.parse().ok())??;
    }
    let before: Vec<String> =
        before.into_iter().flat_map(|text| text.split('.')).map(str::to_owned).collect();
    before.iter().all(|word| !word.is_empty()).then_some(VersionNumber { numbers, before })
}

impl Ord for VersionNumber {
    fn cmp(&self, other: &VersionNumber) -> Ordering {
        let releases = |it: &VersionNumber| it.before.is_empty();
        self.numbers.cmp(&other.numbers).then_with(|| match (releases(self), releases(other)) {
            (false, false) => words_in_order(&self.before, &other.before),
            (this, that) => this.cmp(&that), // what comes before a release is less than it
        })
    }
}

impl PartialOrd for VersionNumber {
    fn partial_cmp(&self, other: &VersionNumber) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As in semantic versioning: numbers by value and below texts; of two tags with the same beginning, the longer is greater.
fn words_in_order(these: &[String], those: &[String]) -> Ordering {
    for (this, that) in these.iter().zip(those) {
        let order = match (this.parse::<u64>(), that.parse::<u64>()) {
            (Ok(this), Ok(that)) => this.cmp(&that),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => this.cmp(that),
        };
        if order.is_ne() {
            return order;
        }
    }
    these.len().cmp(&those.len())
}
