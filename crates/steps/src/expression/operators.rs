//! `+`, `-`, `*`, `/`, `%` and negation: between equal types, without overflow.

use cel::common::ast::operators;

use super::error::{DataError, EvaluationError};
use super::functions::library;
use super::meter::{Held, Meter, Tracked};
use super::value::{List, Val};

/// Applies a binary operator.
pub(super) fn arithmetic<'a>(
    name: &str,
    a: &Val<'a>,
    b: &Val<'a>,
    meter: &'a Meter<'a>,
) -> Result<Val<'a>, EvaluationError> {
    let types = || EvaluationError::types(name, vec![a.type_name(), b.type_name()]);
    let zero = || EvaluationError::DataError(DataError::Zero);
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => {
            let found = match name {
                operators::ADD => a.checked_add(*b),
                operators::SUBSTRACT => a.checked_sub(*b),
                operators::MULTIPLY => a.checked_mul(*b),
                operators::DIVIDE | operators::MODULO if *b == 0 => return Err(zero()),
                operators::DIVIDE => a.checked_div(*b),
                operators::MODULO => a.checked_rem(*b),
                _ => return Err(types()),
            };
            found.map(Val::Int).ok_or_else(|| EvaluationError::range(name))
        }
        (Val::UInt(a), Val::UInt(b)) => {
            let found = match name {
                operators::ADD => a.checked_add(*b),
                operators::SUBSTRACT => a.checked_sub(*b),
                operators::MULTIPLY => a.checked_mul(*b),
                operators::DIVIDE | operators::MODULO if *b == 0 => return Err(zero()),
                operators::DIVIDE => a.checked_div(*b),
                operators::MODULO => a.checked_rem(*b),
                _ => return Err(types()),
            };
            found.map(Val::UInt).ok_or_else(|| EvaluationError::range(name))
        }
        (Val::Double(a), Val::Double(b)) => match name {
            operators::ADD => Ok(Val::Double(a + b)),
            operators::SUBSTRACT => Ok(Val::Double(a - b)),
            operators::MULTIPLY => Ok(Val::Double(a * b)),
            operators::DIVIDE => Ok(Val::Double(a / b)),
            _ => Err(types()),
        },
        (Val::Moment(_), Val::Moment(_)) if matches!(name, operators::ADD | operators::SUBSTRACT) => {
            library(name, false, &[a.clone(), b.clone()], meter)
        }
        _ if name == operators::ADD => joined(a, b, meter),
        _ => Err(types()),
    }
}

/// Concatenates two strings or two lists. The memory is counted before it is allocated.
fn joined<'a>(a: &Val<'a>, b: &Val<'a>, meter: &'a Meter<'a>) -> Result<Val<'a>, EvaluationError> {
    let mut held = Held::nothing(meter);
    match (a, b) {
        (Val::Text(a), Val::Text(b)) => {
            let (a, b) = (a.as_str(), b.as_str());
            meter.charge_bytes(a.len() + b.len())?;
            held.grow(a.len() + b.len())?;
            Ok(Val::Text(super::value::Text::Owned(Tracked::new([a, b].concat(), held))))
        }
        (Val::Bytes(a), Val::Bytes(b)) => {
            let (a, b) = (a.as_slice(), b.as_slice());
            meter.charge_bytes(a.len() + b.len())?;
            held.grow(a.len() + b.len())?;
            Ok(Val::Bytes(super::value::Bytes::Owned(Tracked::new([a, b].concat(), held))))
        }
        // The `cel` crate adds a map's keys.
        (Val::List(_), Val::Map(b)) => joined(a, &Val::List(b.keys(meter)?), meter),
        (Val::List(a), Val::List(b)) => {
            let count = a.len() + b.len();
            meter.charge(count as u64)?;
            held.grow(count * size_of::<Val<'_>>())?;
            let mut items = Vec::with_capacity(count);
            items.extend((0..a.len()).filter_map(|index| a.get(index)));
            items.extend((0..b.len()).filter_map(|index| b.get(index)));
            Ok(Val::List(List::Owned(Tracked::new(items, held))))
        }
        _ => Err(EvaluationError::types(operators::ADD, vec![a.type_name(), b.type_name()])),
    }
}

/// Negates a number.
pub(super) fn negate(value: Val<'_>) -> Result<Val<'_>, EvaluationError> {
    match value {
        Val::Int(it) => {
            it.checked_neg().map(Val::Int).ok_or_else(|| EvaluationError::range(operators::NEGATE))
        }
        Val::Double(it) => Ok(Val::Double(-it)),
        other => Err(EvaluationError::types(operators::NEGATE, vec![other.type_name()])),
    }
}
