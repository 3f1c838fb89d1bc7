//! Errors of an evaluation. The data may be a Secret: messages contain names from the expression, functions and types, but never
//! values.

use std::fmt;

use super::meter::{MEMORY_MAX, WORK_MAX};

/// Why an evaluation has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvaluationError {
    /// It cannot be decided on this data. `&&`, `||`, `all` and `exists` may still have a value.
    DataError(DataError),
    /// It exceeds a limit, and ends.
    Beyond(Limit),
}

/// Why the data gives no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataError {
    /// A member that the expression names does not exist.
    Missing(String),
    /// A computed key does not exist.
    MissingKey,
    /// An index is outside of its list.
    Index,
    /// A function or operator does not take these types.
    Types(String, Vec<&'static str>),
    /// A function rejects its argument.
    Failed(String, &'static str),
    /// The result of an operator is out of range.
    Range(String),
    /// A division by zero.
    Zero,
    /// A map with a repeated key.
    Repeated,
}

/// A limit of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Work,
    Memory,
    Time,
}

impl EvaluationError {
    pub(super) fn types(function: &str, types: Vec<&'static str>) -> EvaluationError {
        EvaluationError::DataError(DataError::Types(shown(function), types))
    }

    pub(super) fn failed(function: &str, what: &'static str) -> EvaluationError {
        EvaluationError::DataError(DataError::Failed(shown(function), what))
    }

    pub(super) fn range(operator: &str) -> EvaluationError {
        EvaluationError::DataError(DataError::Range(shown(operator)))
    }

    pub(super) fn missing(name: &str) -> EvaluationError {
        EvaluationError::DataError(DataError::Missing(name.to_owned()))
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

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataError::Missing(name) => write!(f, "there is no {name}"),
            DataError::MissingKey => f.write_str("a computed key does not exist"),
            DataError::Index => f.write_str("an index is outside of its list"),
            DataError::Types(function, types) => {
                write!(f, "{function} does not take {}", types.join(" and "))
            }
            DataError::Failed(function, what) => write!(f, "{function} {what}"),
            DataError::Range(operator) => write!(f, "the result of {operator} is out of range"),
            DataError::Zero => f.write_str("it divides by zero"),
            DataError::Repeated => f.write_str("a map in it has the same key twice"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Work => write!(f, "it takes more than {WORK_MAX} units of work"),
            Limit::Memory => write!(f, "its values take more than {} MiB", MEMORY_MAX >> 20),
            Limit::Time => write!(f, "it takes more than {} s", crate::offload::TIME_MAX.as_secs()),
        }
    }
}
