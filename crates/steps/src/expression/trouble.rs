//! Why an expression has no answer. What it looks at may be a Secret: names that stand in the expression, functions and types
//! are told, values never.

use std::fmt;

use super::meter::{MEMORY_MAX, WORK_MAX};

/// Why an evaluation ended without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// On this data it cannot be told. `&&`, `||`, `all` and `exists` may still find an answer.
    Unclear(Unclear),
    /// It would go beyond a limit, and ends.
    Beyond(Limit),
}

/// What stands in the way of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unclear {
    /// A member that the expression names is not there.
    Missing(String),
    /// A key that was computed is not there.
    MissingKey,
    /// An index is outside of its list.
    Index,
    /// A function or operator does not take these types.
    Types(String, Vec<&'static str>),
    /// A function cannot do this with its argument.
    Failed(String, &'static str),
    /// The result of an operator is no number that can be held.
    Range(String),
    /// Something that is divided by zero.
    Zero,
    /// A map that names a key twice.
    Repeated,
}

/// What is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Work,
    Memory,
    Time,
}

impl Trouble {
    pub(super) fn types(function: &str, types: Vec<&'static str>) -> Trouble {
        Trouble::Unclear(Unclear::Types(shown(function), types))
    }

    pub(super) fn failed(function: &str, what: &'static str) -> Trouble {
        Trouble::Unclear(Unclear::Failed(shown(function), what))
    }

    pub(super) fn range(operator: &str) -> Trouble {
        Trouble::Unclear(Unclear::Range(shown(operator)))
    }

    pub(super) fn missing(name: &str) -> Trouble {
        Trouble::Unclear(Unclear::Missing(name.to_owned()))
    }
}

/// An operator as it is written: `_+_` is `+`.
fn shown(function: &str) -> String {
    match function {
        "@in" => "in".to_owned(),
        "_?_:_" => "?:".to_owned(),
        "_[_]" => "[]".to_owned(),
        name => name.replace('_', ""),
    }
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unclear::Missing(name) => write!(f, "there is no {name}"),
            Unclear::MissingKey => f.write_str("a key that it computes is not there"),
            Unclear::Index => f.write_str("an index is outside of its list"),
            Unclear::Types(function, types) => write!(f, "{function} does not take {}", types.join(" and ")),
            Unclear::Failed(function, what) => write!(f, "{function} {what}"),
            Unclear::Range(operator) => write!(f, "the result of {operator} is out of range"),
            Unclear::Zero => f.write_str("it divides by zero"),
            Unclear::Repeated => f.write_str("a map in it has the same key twice"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Work => write!(f, "it takes more than {WORK_MAX} units of work"),
            Limit::Memory => write!(f, "its values take more than {} MiB", MEMORY_MAX >> 20),
            Limit::Time => write!(f, "it takes more than {} s", crate::aside::TIME_MAX.as_secs()),
        }
    }
}
