//! Labels on the command line, and label selectors in kubectl's grammar.

use std::collections::BTreeMap;
use std::str::FromStr;

/// `key=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: String,
}

impl FromStr for KeyValue {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyValue, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(KeyValue { key: key.trim().to_owned(), value: value.to_owned() })
            }
            _ => Err("expected KEY=VALUE".to_owned()),
        }
    }
}

/// A change of a label: `key=value` sets it, `key-` removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelChange {
    Set(KeyValue),
    Remove(String),
}

impl FromStr for LabelChange {
    type Err = String;

    fn from_str(text: &str) -> Result<LabelChange, String> {
        if let Ok(set) = text.parse() {
            return Ok(LabelChange::Set(set));
        }
        match text.strip_suffix('-') {
            Some(key) if !key.is_empty() => Ok(LabelChange::Remove(key.to_owned())),
            _ => Err("expected KEY=VALUE to set a label, or KEY- to remove it".to_owned()),
        }
    }
}

/// A label selector; all of its requirements must match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl LabelSelector {
    /// Whether the labels match.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, test }| match (test, labels.get(key)) {
            (Test::In(values), Some(value)) => values.contains(value),
            (Test::In(_), None) => false,
            (Test::NotIn(values), value) => value.is_none_or(|value| !values.contains(value)),
            (Test::Exists, value) => value.is_some(),
            (Test::Absent, value) => value.is_none(),
        })
    }
}

impl FromStr for LabelSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<LabelSelector, String> {
        let parts = split_outside_parentheses(text);
        parts.iter().map(|part| requirement(part.trim())).collect::<Result<_, _>>().map(LabelSelector)
    }
}

fn split_outside_parentheses(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut inside = false;
    for c in text.chars() {
        match c {
            ',' if !inside => parts.push(String::new()),
            c => {
                inside = (inside || c == '(') && c != ')';
                if let Some(part) = parts.last_mut() {
                    part.push(c);
                }
            }
        }
    }
    parts
}

fn requirement(text: &str) -> Result<Requirement, String> {
    const ACCEPTED: &str =
        "expected a selector such as env=prod, env!=test, tier in (web,db), tier notin (web), gpu or !gpu";
    let requirement = |key: &str, test: Test| {
        let key = key.trim();
        let is_valid = !key.is_empty() && !key.contains(|c: char| c.is_whitespace() || "()=!,".contains(c));
        if is_valid { Ok(Requirement { key: key.to_owned(), test }) } else { Err(ACCEPTED.to_owned()) }
    };
    let values = |text: &str| {
        let inner = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        let values: Option<Vec<String>> =
            inner.map(|inner| inner.split(',').map(|it| it.trim().to_owned()).collect());
        values.ok_or_else(|| ACCEPTED.to_owned())
    };
    if let Some((key, list)) = text.split_once(" notin ") {
        return requirement(key, Test::NotIn(values(list)?));
    }
    if let Some((key, list)) = text.split_once(" in ") {
        return requirement(key, Test::In(values(list)?));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return requirement(key, Test::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return requirement(key, Test::In(vec![value.trim().to_owned()]));
    }
    match text.strip_prefix('!') {
        Some(key) => requirement(key, Test::Absent),
        None => requirement(text, Test::Exists),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_like_kubectl() {
        let labels: BTreeMap<String, String> =
            [("env", "prod"), ("tier", "web")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let check = |text: &str, expect: bool| {
            let selector: LabelSelector = text.parse().unwrap();
            assert_eq!(selector.matches(&labels), expect, "{text}");
        };
        check("env=prod", true);
        check("env==prod,tier=web", true);
        check("env=prod,tier=db", false);
        check("env!=test", true);
        check("gpu!=yes", true);
        check("tier in (db, web)", true);
        check("tier notin (db,web),env", false);
        check("gpu notin (a)", true);
        check("env", true);
        check("gpu", false);
        check("!gpu", true);
        for wrong in ["", "a b", "tier in db", "=x", ",", "!"] {
            assert!(wrong.parse::<LabelSelector>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn labels_are_set_and_removed() {
        assert_eq!("a=b=c".parse(), Ok(LabelChange::Set(KeyValue { key: "a".into(), value: "b=c".into() })));
        assert_eq!("a-".parse(), Ok(LabelChange::Remove("a".into())));
        assert!("a".parse::<LabelChange>().is_err() && "-".parse::<LabelChange>().is_err());
        assert!("=b".parse::<KeyValue>().is_err());
    }
}
