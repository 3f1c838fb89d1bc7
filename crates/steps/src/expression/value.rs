//! Values of an evaluation: inputs are borrowed, results are shared, and nothing is copied.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::error::{DataError, EvaluationError};
use super::meter::{Held, Meter, Tracked};

/// A value of an expression.
#[derive(Debug, Clone)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(Text<'a>),
    Bytes(Bytes<'a>),
    List(List<'a>),
    Map(Mapping<'a>),
    Type(&'static str),
    /// A timestamp or a duration.
    Moment(cel::Value),
}

/// A string, borrowed or made.
#[derive(Debug, Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Owned(Rc<Tracked<'a, String>>),
}

/// Bytes, borrowed or made.
#[derive(Debug, Clone)]
pub(super) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Owned(Rc<Tracked<'a, Vec<u8>>>),
}

/// A list, borrowed or made.
#[derive(Debug, Clone)]
pub(super) enum List<'a> {
    Borrowed(&'a [Value]),
    Owned(Rc<Tracked<'a, Vec<Val<'a>>>>),
}

/// A map, borrowed or made.
#[derive(Debug, Clone)]
pub(super) enum Mapping<'a> {
    Borrowed(&'a Map<String, Value>),
    Owned(Rc<Tracked<'a, Entries<'a>>>),
}

/// The entries of a map: each key as it was written, and its value.
pub(super) type Entries<'a> = BTreeMap<Key, (Val<'a>, Val<'a>)>;

/// A key of a map. Whole numbers are equal whatever their type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Bool(bool),
    Number(i128),
    Text(String),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Owned(made) => &made.value,
        }
    }
}

impl Bytes<'_> {
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Owned(made) => &made.value,
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            List::Borrowed(items) => items.len(),
            List::Owned(made) => made.value.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Val<'a>> {
        match self {
            List::Borrowed(items) => items.get(index).map(Val::of),
            List::Owned(made) => made.value.get(index).cloned(),
        }
    }
}

impl<'a> Mapping<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Mapping::Borrowed(members) => members.len(),
            Mapping::Owned(made) => made.value.len(),
        }
    }

    pub(super) fn member(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Mapping::Borrowed(members) => members.get(name).map(Val::of),
            Mapping::Owned(_) => self.get(&Key::Text(name.to_owned())),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Val<'a>> {
        match (self, key) {
            (Mapping::Borrowed(members), Key::Text(name)) => members.get(name).map(Val::of),
            (Mapping::Borrowed(_), _) => None,
            (Mapping::Owned(made), key) => made.value.get(key).map(|(_, value)| value.clone()),
        }
    }

    /// The keys as a list.
    pub(super) fn keys(&self, meter: &'a Meter<'a>) -> Result<List<'a>, EvaluationError> {
        meter.charge(self.len() as u64)?;
        let mut held = Held::nothing(meter);
        held.grow(self.len() * size_of::<Val<'_>>())?;
        let keys = match self {
            Mapping::Borrowed(members) => {
                members.keys().map(|name| Val::Text(Text::Borrowed(name))).collect()
            }
            Mapping::Owned(made) => made.value.values().map(|(key, _)| key.clone()).collect(),
        };
        Ok(List::Owned(Tracked::new(keys, held)))
    }
}

impl Key {
    /// A value as a key, if it can be one.
    pub(super) fn of(value: &Val<'_>) -> Option<Key> {
        match value {
            Val::Bool(it) => Some(Key::Bool(*it)),
            Val::Int(it) => Some(Key::Number(i128::from(*it))),
            Val::UInt(it) => Some(Key::Number(i128::from(*it))),
            Val::Text(it) => Some(Key::Text(it.as_str().to_owned())),
            _ => None,
        }
    }

    /// A value as the key of a lookup: besides keys, whole numbers as doubles. `Some(None)` is a key that no map has.
    pub(super) fn asked(value: &Val<'_>) -> Option<Option<Key>> {
        match value {
            Val::Double(it) => Some(whole(*it).map(Key::Number)),
            value => Key::of(value).map(Some),
        }
    }
}

/// A double as a whole number.
pub(super) fn whole(double: f64) -> Option<i128> {
    let fits = double > i64::MIN as f64 && double < u64::MAX as f64 && double.fract() == 0.0;
    fits.then_some(double as i128)
}

impl<'a> Val<'a> {
    /// JSON as a value. Whole numbers are `int`, so that they can be compared and computed with literals.
    pub(super) fn of(value: &'a Value) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(it) => Val::Bool(*it),
            Value::Number(it) => match (it.as_i64(), it.as_u64()) {
                (Some(it), _) => Val::Int(it),
                (None, Some(it)) => Val::UInt(it),
                (None, None) => Val::Double(it.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(it) => Val::Text(Text::Borrowed(it)),
            Value::Array(items) => Val::List(List::Borrowed(items)),
            Value::Object(members) => Val::Map(Mapping::Borrowed(members)),
        }
    }

    /// A string that was made.
    pub(super) fn text(text: String, meter: &'a Meter<'a>) -> Result<Val<'a>, EvaluationError> {
        let mut held = Held::nothing(meter);
        held.grow(text.len())?;
        Ok(Val::Text(Text::Owned(Tracked::new(text, held))))
    }

    /// Bytes that were made.
    pub(super) fn bytes(bytes: Vec<u8>, meter: &'a Meter<'a>) -> Result<Val<'a>, EvaluationError> {
        let mut held = Held::nothing(meter);
        held.grow(bytes.len())?;
        Ok(Val::Bytes(Bytes::Owned(Tracked::new(bytes, held))))
    }

    /// The name of its type, as `type(x)` returns it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::UInt(_) => "uint",
            Val::Double(_) => "double",
            Val::Text(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::List(_) => "list",
            Val::Map(_) => "map",
            Val::Type(_) => "type",
            Val::Moment(cel::Value::Duration(_)) => "google.protobuf.Duration",
            Val::Moment(_) => "google.protobuf.Timestamp",
        }
    }

    /// Whether two values are equal. Values of different types are not, except numbers.
    pub(super) fn equals(&self, other: &Val<'a>, meter: &'a Meter<'a>) -> Result<bool, EvaluationError> {
        meter.charge(1)?;
        match (self, other) {
            (Val::Null, Val::Null) => Ok(true),
            (Val::Bool(a), Val::Bool(b)) => Ok(a == b),
            (Val::Text(a), Val::Text(b)) => same(a.as_str().as_bytes(), b.as_str().as_bytes(), meter),
            (Val::Bytes(a), Val::Bytes(b)) => same(a.as_slice(), b.as_slice(), meter),
            (Val::Type(a), Val::Type(b)) => Ok(a == b),
            (Val::Moment(a), Val::Moment(b)) => Ok(a == b),
            (Val::List(a), Val::List(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for index in 0..a.len() {
                    if let (Some(a), Some(b)) = (a.get(index), b.get(index))
                        && !a.equals(&b, meter)?
                    {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Val::Map(a), Val::Map(b)) => same_map(a, b, meter),
            _ => Ok(self.numeric(other) == Some(Ordering::Equal)),
        }
    }

    /// The order of two values, for the operator of this name.
    pub(super) fn compare(
        &self,
        other: &Val<'a>,
        operator: &str,
        meter: &Meter<'_>,
    ) -> Result<Ordering, EvaluationError> {
        let ordered = match (self, other) {
            (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
            (Val::Text(a), Val::Text(b)) => {
                let (a, b) = (a.as_str(), b.as_str());
                meter.charge_bytes(a.len().min(b.len()))?;
                Some(a.cmp(b))
            }
            (Val::Bytes(a), Val::Bytes(b)) => {
                let (a, b) = (a.as_slice(), b.as_slice());
                meter.charge_bytes(a.len().min(b.len()))?;
                Some(a.cmp(b))
            }
            (Val::Moment(a), Val::Moment(b)) => a.partial_cmp(b),
            _ => self.numeric(other),
        };
        ordered.ok_or_else(|| EvaluationError::types(operator, vec![self.type_name(), other.type_name()]))
    }

    fn numeric(&self, other: &Val<'_>) -> Option<Ordering> {
        match (self, other) {
            (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
            (Val::UInt(a), Val::UInt(b)) => Some(a.cmp(b)),
            (Val::Int(a), Val::UInt(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Val::UInt(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
            (Val::Double(a), Val::Int(b)) => a.partial_cmp(&(*b as f64)),
            (Val::Double(a), Val::UInt(b)) => a.partial_cmp(&(*b as f64)),
            (Val::Int(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
            (Val::UInt(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
            _ => None,
        }
    }

    /// Whether a list or map contains a value.
    pub(super) fn is_in(&self, container: &Val<'a>, meter: &'a Meter<'a>) -> Result<bool, EvaluationError> {
        let types = || EvaluationError::types("@in", vec![self.type_name(), container.type_name()]);
        match container {
            Val::List(list) => {
                for index in 0..list.len() {
                    if let Some(item) = list.get(index)
                        && item.equals(self, meter)?
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Val::Map(map) => {
                let key = asked(self, meter)?.ok_or_else(types)?;
                Ok(key.is_some_and(|key| map.get(&key).is_some()))
            }
            _ => Err(types()),
        }
    }

    /// The element at an index or under a key.
    pub(super) fn at(
        &self,
        index: &Val<'a>,
        operator: &str,
        meter: &'a Meter<'a>,
    ) -> Result<Val<'a>, EvaluationError> {
        let types = || EvaluationError::types(operator, vec![self.type_name(), index.type_name()]);
        match self {
            Val::List(list) => {
                let at = match index {
                    Val::Int(it) => i128::from(*it),
                    Val::UInt(it) => i128::from(*it),
                    Val::Double(it) => whole(*it).ok_or_else(types)?,
                    _ => return Err(types()),
                };
                let found = usize::try_from(at).ok().and_then(|at| list.get(at));
                found.ok_or(EvaluationError::DataError(DataError::Index))
            }
            Val::Map(map) => {
                let key = asked(index, meter)?.ok_or_else(types)?;
                key.and_then(|key| map.get(&key)).ok_or(EvaluationError::DataError(DataError::MissingKey))
            }
            _ => Err(types()),
        }
    }
}

fn asked(value: &Val<'_>, meter: &Meter<'_>) -> Result<Option<Option<Key>>, EvaluationError> {
    if let Val::Text(text) = value {
        meter.charge_bytes(text.as_str().len())?;
    }
    Ok(Key::asked(value))
}

fn same(a: &[u8], b: &[u8], meter: &Meter<'_>) -> Result<bool, EvaluationError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    meter.charge_bytes(a.len())?;
    Ok(a == b)
}

fn same_map<'a>(a: &Mapping<'a>, b: &Mapping<'a>, meter: &'a Meter<'a>) -> Result<bool, EvaluationError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let equal = |value: Val<'a>, other: Option<Val<'a>>| match other {
        Some(other) => value.equals(&other, meter),
        None => Ok(false),
    };
    match a {
        Mapping::Borrowed(members) => {
            for (name, value) in *members {
                meter.charge_bytes(name.len())?;
                if !equal(Val::of(value), b.member(name))? {
                    return Ok(false);
                }
            }
        }
        Mapping::Owned(made) => {
            for (key, (_, value)) in &made.value {
                if let Key::Text(name) = key {
                    meter.charge_bytes(name.len())?;
                }
                if !equal(value.clone(), b.get(key))? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
