//! Selectors: the clusters of a schedule.
//!
//! A schedule's selectors are JSON: `{"key", "operator", "value" or "values"}`, `{"any": [...]}` or `{"all": [...]}`. They
//! are parsed once, when a schedule is stored, into a typed form that cannot fail; a misspelled key is rejected there
//! instead of making a schedule that silently matches nothing.
//!
//! A key that a cluster does not have matches nothing, except with `ne` and `notin`, which then match.

mod attributes;
mod key;
mod parse;
mod version;

#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use attributes::ClusterAttributes;
pub use key::Key;
pub use parse::SelectorError;
pub use version::VersionNumber;

/// Selectors of a schedule, all of which must match.
#[derive(Debug, Clone, PartialEq)]
pub struct Selectors(Vec<Selector>);

/// One selector.
#[derive(Debug, Clone, PartialEq)]
enum Selector {
    /// A condition on one attribute.
    Term { key: Key, test: Test },
    /// At least one of these matches.
    Any(Vec<Selector>),
    /// Every one of these matches.
    All(Vec<Selector>),
}

/// A condition on an attribute.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    OneOf(Vec<Operand>),
    NoneOf(Vec<Operand>),
    Exists,
    Prefix(String),
    Compare { order: Order, with: Operand },
}

/// Accepted orderings of an attribute and the operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Operand of a comparison, by the key's type.
#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Text(String),
    Number(f64),
    Version(VersionNumber),
    Date(Timestamp),
}

impl Selectors {
    /// Parse the selectors of a schedule. The error names the path, such as `selectors[2].values`.
    pub fn parse(selectors: &[serde_json::Value]) -> Result<Selectors, SelectorError> {
        parse::selectors(selectors)
    }

    /// Whether a cluster is selected.
    pub fn matches(&self, cluster: &ClusterAttributes) -> bool {
        self.0.iter().all(|selector| selector.matches(cluster))
    }

    /// Whether a selector uses that key.
    pub fn uses(&self, key: &Key) -> bool {
        self.0.iter().any(|selector| selector.uses(key))
    }
}

impl Selector {
    fn matches(&self, cluster: &ClusterAttributes) -> bool {
        match self {
            Selector::Term { key, test } => test.holds(key, cluster),
            Selector::Any(selectors) => selectors.iter().any(|it| it.matches(cluster)),
            Selector::All(selectors) => selectors.iter().all(|it| it.matches(cluster)),
        }
    }

    fn uses(&self, wanted: &Key) -> bool {
        match self {
            Selector::Term { key, .. } => key == wanted,
            Selector::Any(selectors) | Selector::All(selectors) => selectors.iter().any(|it| it.uses(wanted)),
        }
    }
}

impl Test {
    fn holds(&self, key: &Key, cluster: &ClusterAttributes) -> bool {
        let found = cluster.get(key.as_str());
        match self {
            Test::OneOf(operands) => {
                found.is_some_and(|text| operands.iter().any(|it| it.equals(text, cluster)))
            }
            Test::NoneOf(operands) => {
                found.is_none_or(|text| !operands.iter().any(|it| it.equals(text, cluster)))
            }
            Test::Exists => found.is_some(),
            Test::Prefix(prefix) => found.is_some_and(|text| begins(key, text, prefix)),
            Test::Compare { order, with } => {
                found.and_then(|text| with.compared(text, cluster)).is_some_and(|ordering| match order {
                    Order::Less => ordering.is_lt(),
                    Order::LessOrEqual => ordering.is_le(),
                    Order::Greater => ordering.is_gt(),
                    Order::GreaterOrEqual => ordering.is_ge(),
                })
            }
        }
    }
}

/// A version may be written with or without its `v`.
fn begins(key: &Key, text: &str, prefix: &str) -> bool {
    match key {
        Key::Version => text.trim_start_matches('v').starts_with(prefix.trim_start_matches('v')),
        _ => text.starts_with(prefix),
    }
}

impl Operand {
    fn equals(&self, text: &str, cluster: &ClusterAttributes) -> bool {
        match self {
            Operand::Text(wanted) => wanted == text,
            _ => self.compared(text, cluster).is_some_and(std::cmp::Ordering::is_eq),
        }
    }

    /// Ordering of the attribute and this operand; none when the attribute is not of this type.
    fn compared(&self, text: &str, cluster: &ClusterAttributes) -> Option<std::cmp::Ordering> {
        match self {
            Operand::Text(wanted) => Some(text.cmp(wanted.as_str())),
            Operand::Number(wanted) => text.parse::<f64>().ok()?.partial_cmp(wanted),
            Operand::Version(wanted) => Some(cluster.version()?.cmp(wanted)),
            Operand::Date(wanted) => Some(cluster.created_at().cmp(wanted)),
        }
    }
}
