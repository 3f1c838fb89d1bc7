//! Parser of selectors.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::key::Type;
use super::{Key, Operand, Order, Selector, Selectors, Test};

/// Maximum depth of nested groups.
const DEPTH_MAX: usize = 8;
/// Maximum number of selectors of a schedule, including groups.
const SELECTORS_MAX: usize = 200;
/// Maximum number of values in a list; use a label for a larger selection.
const VALUES_MAX: usize = 1000;

/// Error of a selector, with its path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SelectorError {
    place: String,
    message: String,
}

impl SelectorError {
    /// The path, such as `selectors[2].values`.
    pub fn place(&self) -> &str {
        &self.place
    }
}

fn refused<T>(place: &str, message: impl Into<String>) -> Result<T, SelectorError> {
    Err(SelectorError { place: place.to_owned(), message: message.into() })
}

pub(super) fn selectors(selectors: &[Value]) -> Result<Selectors, SelectorError> {
    let mut seen = 0;
    list(selectors, "selectors", 0, &mut seen).map(Selectors)
}

fn list(
    values: &[Value],
    place: &str,
    depth: usize,
    seen: &mut usize,
) -> Result<Vec<Selector>, SelectorError> {
    if values.is_empty() {
        return refused(place, "there must be at least one selector");
    }
    if depth > DEPTH_MAX {
        return refused(place, format!("groups may lie at most {DEPTH_MAX} deep in each other"));
    }
    *seen += values.len();
    if *seen > SELECTORS_MAX {
        return refused(place, format!("there are more than {SELECTORS_MAX} selectors"));
    }
    let read = |(index, value)| selector(value, &format!("{place}[{index}]"), depth, seen);
    values.iter().enumerate().map(read).collect()
}

fn selector(value: &Value, place: &str, depth: usize, seen: &mut usize) -> Result<Selector, SelectorError> {
    let Value::Object(members) = value else {
        return refused(
            place,
            "a selector is an object with key, operator and value or values, or with any or all",
        );
    };
    for group in ["any", "all"] {
        let Some(inner) = members.get(group) else { continue };
        let place = format!("{place}.{group}");
        if members.len() > 1 {
            return refused(&place, format!("a selector with {group} has no other members"));
        }
        let Value::Array(values) = inner else {
            return refused(&place, format!("{group} is a list of selectors"));
        };
        let inner = list(values, &place, depth + 1, seen)?;
        return Ok(if group == "any" { Selector::Any(inner) } else { Selector::All(inner) });
    }
    term(members, place)
}

fn term(members: &Map<String, Value>, place: &str) -> Result<Selector, SelectorError> {
    const MEMBERS: [&str; 4] = ["key", "operator", "value", "values"];
    if let Some(other) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return refused(
            &format!("{place}.{other}"),
            "a selector has the members key, operator, value and values, or any, or all",
        );
    }
    let text = |name: &str| match members.get(name) {
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => refused(&format!("{place}.{name}"), format!("{name} must be a text")),
        None => refused(&format!("{place}.{name}"), format!("{name} is missing")),
    };
    let spelled = text("key")?;
    let key = match Key::named(spelled) {
        Some(key) => key,
        None => {
            let message = format!("{spelled:?} is no key; keys are {}", Key::spellings());
            return refused(&format!("{place}.key"), message);
        }
    };
    let test = Reader { members, place, key: &key }.test(text("operator")?)?;
    Ok(Selector::Term { key, test })
}

/// Parse the operand of an operator.
struct Reader<'a> {
    members: &'a Map<String, Value>,
    place: &'a str,
    key: &'a Key,
}

impl Reader<'_> {
    fn test(&self, operator: &str) -> Result<Test, SelectorError> {
        let compare = |order| {
            let with = self.comparable(operator, self.value(operator)?)?;
            Ok(Test::Compare { order, with })
        };
        match operator {
            "eq" => Ok(Test::OneOf(vec![self.operand(self.value(operator)?, "value")?])),
            "ne" => Ok(Test::NoneOf(vec![self.operand(self.value(operator)?, "value")?])),
            "in" => self.values(operator).map(Test::OneOf),
            "notin" => self.values(operator).map(Test::NoneOf),
            "exists" => {
                self.must_lack("value", operator)?;
                self.must_lack("values", operator)?;
                Ok(Test::Exists)
            }
            "prefix" => Ok(Test::Prefix(self.value(operator)?.to_owned())),
            "lt" => compare(Order::Less),
            "le" => compare(Order::LessOrEqual),
            "gt" => compare(Order::Greater),
            "ge" => compare(Order::GreaterOrEqual),
            other => refused(
                &self.at("operator"),
                format!(
                    "{other:?} is no operator; operators are eq, ne, in, notin, exists, prefix, lt, le, gt and ge"
                ),
            ),
        }
    }

    fn at(&self, member: &str) -> String {
        format!("{}.{member}", self.place)
    }

    /// A member, unless it is empty; clients of MIMO send empty members for absent ones.
    fn given(&self, member: &str) -> Option<&Value> {
        self.members.get(member).filter(|value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(values) => !values.is_empty(),
            _ => true,
        })
    }

    fn must_lack(&self, member: &str, operator: &str) -> Result<(), SelectorError> {
        match self.given(member) {
            Some(_) => refused(&self.at(member), format!("the operator {operator} takes no {member}")),
            None => Ok(()),
        }
    }

    fn value(&self, operator: &str) -> Result<&str, SelectorError> {
        self.must_lack("values", operator)?;
        match self.given("value") {
            Some(Value::String(text)) => Ok(text),
            Some(_) => refused(&self.at("value"), "value must be a text"),
            None => refused(&self.at("value"), format!("the operator {operator} needs a value")),
        }
    }

    fn values(&self, operator: &str) -> Result<Vec<Operand>, SelectorError> {
        self.must_lack("value", operator)?;
        let values = match self.given("values") {
            Some(Value::Array(values)) if values.len() <= VALUES_MAX => values,
            Some(Value::Array(_)) => {
                return refused(&self.at("values"), format!("there are more than {VALUES_MAX} values"));
            }
            Some(_) => return refused(&self.at("values"), "values must be a list of texts"),
            None => {
                return refused(
                    &self.at("values"),
                    format!("the operator {operator} needs at least one value in values"),
                );
            }
        };
        let read = |(index, value): (usize, &Value)| match value {
            Value::String(text) => self.operand(text, &format!("values[{index}]")),
            _ => refused(&self.at(&format!("values[{index}]")), "every value must be a text"),
        };
        values.iter().enumerate().map(read).collect()
    }

    /// Parse an operand for equality.
    fn operand(&self, text: &str, member: &str) -> Result<Operand, SelectorError> {
        let refuse = |message: String| refused(&self.at(member), message);
        let key = self.key.as_str();
        match self.key.kind() {
            Type::Text | Type::Label => Ok(Operand::Text(text.to_owned())),
            Type::LowerText if text == text.to_lowercase() => Ok(Operand::Text(text.to_owned())),
            Type::LowerText => {
                refuse(format!("{key} is kept in lower case, so {text:?} would match nothing"))
            }
            Type::Word(words) if words.contains(&text) => Ok(Operand::Text(text.to_owned())),
            Type::Word(words) => refuse(format!("{text:?} is no {key}; accepted are {}", words.join(", "))),
            Type::Number(greatest) => match text.parse::<u16>() {
                Ok(number) if number <= greatest && number.to_string() == text => {
                    Ok(Operand::Number(number.into()))
                }
                _ => refuse(format!("{text:?} is no {key}; accepted are \"0\" to \"{greatest}\"")),
            },
            Type::Version => text.parse().map(Operand::Version).or_else(|error| refuse(error.to_string())),
            Type::Date => match instant(text) {
                Some(instant) => Ok(Operand::Date(instant)),
                None => refuse(format!(
                    "{text:?} is no time; write, for example, 2026-03-01 or 2026-03-01T12:00:00Z"
                )),
            },
        }
    }

    /// Parse an operand for ordering, which not every key has.
    fn comparable(&self, operator: &str, text: &str) -> Result<Operand, SelectorError> {
        let key = self.key.as_str();
        match self.key.kind() {
            Type::Number(_) | Type::Version | Type::Date => self.operand(text, "value"),
            Type::Label => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Operand::Number(number)),
                _ => refused(
                    &self.at("value"),
                    format!("{text:?} is no number; labels are compared by {operator} as numbers"),
                ),
            },
            Type::Text | Type::LowerText | Type::Word(_) => refused(
                &self.at("operator"),
                format!(
                    "{key} has no order; {operator} is for version, createdAt, architectureVersion, bucketID and labels"
                ),
            ),
        }
    }
}

/// An instant, or a day, which begins at midnight in universal time.
fn instant(text: &str) -> Option<Timestamp> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Some(instant);
    }
    let day: jiff::civil::Date = text.parse().ok()?;
    day.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp())
}
