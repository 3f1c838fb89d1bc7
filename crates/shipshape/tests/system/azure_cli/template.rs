//! Texts of a recording in which `<<name>>` stands for a value of one run: an id, an address, a time, a secret. The first text of a run that
//! has a name binds it; from then on it stands for that value, in requests as in responses. Times and the like bind nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

/// The values of a run by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Bindings(BTreeMap<String, String>);

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    Name(&'a str),
}

fn pieces(template: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some((literal, (name, after))) =
        rest.split_once("<<").and_then(|(literal, rest)| Some((literal, rest.split_once(">>")?)))
    {
        if !literal.is_empty() {
            found.push(Piece::Literal(literal));
        }
        found.push(Piece::Name(name));
        rest = after;
    }
    if !rest.is_empty() {
        found.push(Piece::Literal(rest));
    }
    found
}

/// The length of the scheme, host and port at the beginning of a text.
fn address_length(text: &str) -> usize {
    let host = text.find("://").map_or(0, |at| at + 3);
    text[host..].find('/').map_or(text.len(), |end| host + end)
}

/// Whether a value is of the kind that a name has: the name without its number.
fn is_of_kind(name: &str, value: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|it| it.is_ascii_hexdigit());
    match name.trim_end_matches(|it: char| it.is_ascii_digit()) {
        "uuid" => value.len() == 36 && value.split('-').count() == 5 && is_hex(&value.replace('-', "")),
        "hex" => (32..=64).contains(&value.len()) && is_hex(value),
        "url" => value.strip_prefix("https://127.0.0.1:").is_some_and(|port| port.parse::<u16>().is_ok()),
        "address" => value.parse::<std::net::Ipv4Addr>().is_ok(),
        "suffix" => value.len() == 5 && value.bytes().all(|it| it.is_ascii_alphanumeric()),
        "time" => value.parse::<Timestamp>().is_ok(),
        "text" | "secret" => !value.is_empty(),
        _ => false,
    }
}

impl Bindings {
    pub(super) fn bind(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// The text with the values of this run.
    pub(super) fn fill(&self, template: &str) -> String {
        let value = |it: Piece<'_>| match it {
            Piece::Literal(text) => text.to_owned(),
            Piece::Name(name) => {
                self.0.get(name).unwrap_or_else(|| panic!("{name} is unknown in {template}")).clone()
            }
        };
        pieces(template).into_iter().map(value).collect()
    }

    pub(super) fn fill_json(&self, template: &Value) -> Value {
        match template {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|it| self.fill_json(it)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, it)| (name.clone(), self.fill_json(it))).collect()
            }
            other => other.clone(),
        }
    }

    /// Compares a text and binds its new names.
    pub(super) fn compare(&mut self, template: &str, text: &str) -> Result<(), String> {
        let differs = || Err(format!("{text:?} in place of {template:?}"));
        let pieces = pieces(template);
        let mut rest = text;
        for (at, piece) in pieces.iter().enumerate() {
            let (wanted, name) = match piece {
                Piece::Literal(literal) => (Some((*literal).to_owned()), None),
                Piece::Name(name) => (self.0.get(*name).cloned(), Some(*name)),
            };
            let length = match (&wanted, pieces.get(at + 1)) {
                (Some(wanted), _) => wanted.len(),
                (None, _) if name.is_some_and(|it| it.starts_with("url")) => address_length(rest),
                (None, Some(Piece::Literal(next))) => rest.find(next).unwrap_or(rest.len()),
                (None, _) => rest.len(),
            };
            let Some((found, after)) = rest.split_at_checked(length) else { return differs() };
            match (wanted, name) {
                // Ids and host names come back in the spelling of either side.
                (Some(wanted), Some(_)) if !wanted.eq_ignore_ascii_case(found) => return differs(),
                (Some(wanted), None) if wanted != found => return differs(),
                (None, Some(name)) if !is_of_kind(name, found) => return differs(),
                (None, Some(name)) if name.ends_with(|it: char| it.is_ascii_digit()) => {
                    self.bind(name, found);
                }
                _ => {}
            }
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { differs() }
    }

    /// Compares every member that the template has; lists as a whole.
    pub(super) fn compare_json(&mut self, template: &Value, found: &Value, at: &str) -> Result<(), String> {
        match (template, found) {
            (Value::Object(wanted), Value::Object(members)) => wanted.iter().try_for_each(|(name, value)| {
                let at = format!("{at}/{name}");
                let member = members.get(name).ok_or_else(|| format!("{at} is missing"))?;
                self.compare_json(value, member, &at)
            }),
            (Value::Array(wanted), Value::Array(items)) if wanted.len() == items.len() => {
                let mut left: Vec<&Value> = items.iter().collect();
                self.compare_items(wanted, &mut left, at)
            }
            (Value::String(wanted), Value::Number(_)) if wanted == "<<number>>" => Ok(()),
            (Value::String(wanted), Value::String(text)) => {
                self.compare(wanted, text).map_err(|why| format!("{at}: {why}"))
            }
            (wanted, found) if wanted == found => Ok(()),
            (wanted, found) => Err(format!("{at}: {found} in place of {wanted}")),
        }
    }

    /// Finds an item for every template of a list. The order has no meaning: servers sort by ids, which are others in each run.
    fn compare_items(&mut self, wanted: &[Value], left: &mut Vec<&Value>, at: &str) -> Result<(), String> {
        let Some((first, rest)) = wanted.split_first() else { return Ok(()) };
        let mut difference = None;
        for place in 0..left.len() {
            let item = left.remove(place);
            let mut bindings = self.clone();
            let compared = bindings
                .compare_json(first, item, &format!("{at}/{place}"))
                .and_then(|()| bindings.compare_items(rest, left, at));
            match compared {
                Ok(()) => {
                    *self = bindings;
                    return Ok(());
                }
                Err(why) => difference = difference.or(Some(why)),
            }
            left.insert(place, item);
        }
        Err(difference.unwrap_or_else(|| format!("{at}: {first} is missing")))
    }
}

#[test]
fn a_name_stands_for_the_first_value_that_it_matched() {
    let mut bindings = Bindings::default();
    let (one, other) = ("0192d0e0-0000-7000-8000-000000000001", "0192d0e0-0000-7000-8000-000000000002");
    bindings.bind("base", "https://127.0.0.1:1");
    let url = |id: &str| format!("https://127.0.0.1:1/operations/{id}?v=1");
    let template = "<<base>>/operations/<<uuid1>>?v=1";
    assert!(bindings.compare(template, &url("no-uuid")).is_err());
    assert_eq!(bindings.compare(template, &url(one)), Ok(()));
    assert_eq!(bindings.fill(template), url(one));
    assert!(bindings.compare(template, &url(other)).is_err());
    assert!(bindings.compare(template, &format!("{}&w=2", url(one))).is_err(), "nothing may follow");
    assert_eq!(bindings.compare("at <<time>>", "at 2026-01-02T03:04:05Z"), Ok(()));
    assert_eq!(bindings.compare("at <<time>>", "at 2027-01-02T03:04:05Z"), Ok(()), "a time binds nothing");
    assert!(bindings.compare("at <<time>>", "at noon").is_err());
}

#[test]
fn members_beside_the_recorded_ones_are_ignored_and_missing_ones_are_named() {
    let mut bindings = Bindings::default();
    let mut compare = |template: Value, found: Value| bindings.compare_json(&template, &found, "");
    use serde_json::json;
    assert_eq!(compare(json!({ "a": [1] }), json!({ "a": [1], "b": 2 })), Ok(()));
    assert_eq!(compare(json!({ "a": { "b": 1 } }), json!({ "a": {} })), Err("/a/b is missing".to_owned()));
    assert!(compare(json!([1]), json!([1, 2])).is_err(), "a list is compared as a whole");
    assert_eq!(compare(json!([1, 2]), json!([2, 1])), Ok(()), "in any order");
    assert!(compare(json!([1, 1]), json!([1, 2])).is_err(), "each item once");
    let vault = json!({ "uri": "https://127.0.0.1:42/" });
    assert_eq!(compare(json!({ "uri": "<<url1>>/" }), vault.clone()), Ok(()));
    assert!(compare(json!({ "uri": "<<url2>>/x" }), vault).is_err());
    assert_eq!(compare(json!("<<number>>"), json!(1_763_000_000)), Ok(()));
    assert!(compare(json!("<<number>>"), json!("1")).is_err());
}
