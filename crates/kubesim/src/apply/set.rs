//! Sets of fields: the paths in an object that a manager owns, and their representation in `fieldsV1`.
//!
//! A path is a list of elements. An element has the form in which it is serialized: `f:replicas`, `k:{"name":"web"}`,
//! `v:"tcp"`, `i:0`. Keys and values have one canonical form, so that equal elements are equal text.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::DEPTH_MAX;

/// A set of paths. Each element may be a member itself, have members below it, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Entry {
    is_member: bool,
    below: FieldSet,
}

impl Entry {
    fn is_empty(&self) -> bool {
        !self.is_member && self.below.is_empty()
    }
}

impl FieldSet {
    pub(super) fn from_path(path: &[&str]) -> FieldSet {
        let mut set = FieldSet::default();
        set.insert(&path.iter().map(|name| field(name)).collect::<Vec<_>>());
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.values().all(Entry::is_empty)
    }

    pub(super) fn insert(&mut self, path: &[String]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut set = self;
        for element in parents {
            set = &mut set.entries.entry(element.clone()).or_default().below;
        }
        set.entries.entry(last.clone()).or_default().is_member = true;
    }

    /// Whether the element is a member at this level.
    pub(super) fn has(&self, element: &str) -> bool {
        self.entries.get(element).is_some_and(|entry| entry.is_member)
    }

    /// Whether the whole path is a member.
    pub(super) fn has_path(&self, path: &[String]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut set = self;
        for element in parents {
            match set.below(element) {
                Some(below) => set = below,
                None => return false,
            }
        }
        set.has(last)
    }

    /// The members below the element, if there are any.
    pub(super) fn below(&self, element: &str) -> Option<&FieldSet> {
        self.entries.get(element).map(|entry| &entry.below).filter(|below| !below.is_empty())
    }

    pub(super) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut result = self.clone();
        result.add(other);
        result
    }

    fn add(&mut self, other: &FieldSet) {
        for (element, right) in &other.entries {
            let left = self.entries.entry(element.clone()).or_default();
            left.is_member |= right.is_member;
            left.below.add(&right.below);
        }
    }

    /// Whether the two sets have a member in common.
    pub(super) fn intersects(&self, other: &FieldSet) -> bool {
        let (smaller, larger) =
            if self.entries.len() < other.entries.len() { (self, other) } else { (other, self) };
        smaller.entries.iter().any(|(element, one)| {
            let two = larger.entries.get(element);
            two.is_some_and(|two| (one.is_member && two.is_member) || one.below.intersects(&two.below))
        })
    }

    /// Whether every member is also a member of the other set.
    pub(super) fn is_within(&self, other: &FieldSet) -> bool {
        self.entries.iter().all(|(element, left)| match other.entries.get(element) {
            Some(right) => (right.is_member || !left.is_member) && left.below.is_within(&right.below),
            None => left.is_empty(),
        })
    }

    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let shared = self.entries.iter().filter_map(|(element, left)| {
            let right = other.entries.get(element)?;
            let entry = Entry {
                is_member: left.is_member && right.is_member,
                below: left.below.intersection(&right.below),
            };
            (!entry.is_empty()).then(|| (element.clone(), entry))
        });
        FieldSet { entries: shared.collect() }
    }

    /// Removes the members of the other set; members below them stay.
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        let remaining = self.entries.iter().filter_map(|(element, left)| {
            let entry = match other.entries.get(element) {
                None => left.clone(),
                Some(right) => Entry {
                    is_member: left.is_member && !right.is_member,
                    below: left.below.difference(&right.below),
                },
            };
            (!entry.is_empty()).then(|| (element.clone(), entry))
        });
        FieldSet { entries: remaining.collect() }
    }

    /// Removes the members of the other set and everything below them.
    pub(super) fn without_trees(&self, other: &FieldSet) -> FieldSet {
        let remaining = self.entries.iter().filter_map(|(element, left)| {
            let entry = match other.entries.get(element) {
                None => left.clone(),
                Some(right) if right.is_member => Entry::default(),
                Some(right) => {
                    Entry { is_member: left.is_member, below: left.below.without_trees(&right.below) }
                }
            };
            (!entry.is_empty()).then(|| (element.clone(), entry))
        });
        FieldSet { entries: remaining.collect() }
    }

    /// Adds each element that has members below it and for which `is_named` is true. `step` computes the state that
    /// both closures get for the next level.
    pub(super) fn with_named<P: Clone>(
        &self,
        place: &P,
        step: &impl Fn(&P, &str) -> P,
        is_named: &impl Fn(&P, &str) -> bool,
    ) -> FieldSet {
        let entries = self.entries.iter().map(|(element, entry)| {
            let below = entry.below.with_named(&step(place, element), step, is_named);
            let is_member = entry.is_member || (!entry.below.is_empty() && is_named(place, element));
            (element.clone(), Entry { is_member, below })
        });
        FieldSet { entries: entries.collect() }
    }

    /// All members; those of a level come before those below it.
    pub(super) fn paths(&self) -> Vec<Vec<String>> {
        fn gather(set: &FieldSet, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
            for (element, _) in set.entries.iter().filter(|(_, entry)| entry.is_member) {
                let mut path = prefix.clone();
                path.push(element.clone());
                found.push(path);
            }
            for (element, entry) in &set.entries {
                prefix.push(element.clone());
                gather(&entry.below, prefix, found);
                prefix.pop();
            }
        }
        let mut found = Vec::new();
        gather(self, &mut Vec::new(), &mut found);
        found
    }

    /// The set as `fieldsV1`.
    pub(super) fn to_fields(&self) -> Value {
        let members = self.entries.iter().filter(|(_, entry)| !entry.is_empty()).map(|(element, entry)| {
            let mut below = entry.below.to_fields();
            if let Value::Object(map) = &mut below
                && entry.is_member
                && !map.is_empty()
            {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.clone(), below)
        });
        Value::Object(members.collect())
    }

    /// Reads a set from `fieldsV1`, or returns what cannot be read.
    pub(super) fn from_fields(fields: &Value) -> Result<FieldSet, String> {
        FieldSet::read(fields, DEPTH_MAX)
    }

    fn read(fields: &Value, left: usize) -> Result<FieldSet, String> {
        let left = left.checked_sub(1).ok_or("nested too deep")?;
        let mut set = FieldSet::default();
        let Value::Object(map) = fields else { return Err("expected an object".to_owned()) };
        for (element, inner) in map.iter().filter(|(element, _)| *element != ".") {
            let Some(element) = canonical(element)? else { continue };
            let below = FieldSet::read(inner, left)?;
            let is_member = inner.get(".").is_some() || below.is_empty();
            let entry = set.entries.entry(element).or_default();
            entry.is_member |= is_member;
            entry.below.add(&below);
        }
        Ok(set)
    }
}

pub(super) fn field(name: &str) -> String {
    format!("f:{name}")
}

/// The element of an item in a list of objects, made of the fields that identify the item.
pub(super) fn key(fields: Map<String, Value>) -> String {
    let fields: Map<String, Value> = fields.into_iter().map(|(name, value)| (name, plain(value))).collect();
    format!("k:{}", Value::Object(fields))
}

/// The element of an item in a list of scalars.
pub(super) fn value(value: &Value) -> String {
    format!("v:{}", plain(value.clone()))
}

/// A path as the real server prints it: `.spec.containers[name="web"].image`.
pub(super) fn printed(path: &[String]) -> String {
    path.iter().map(|element| printed_element(element)).collect()
}

fn printed_element(element: &str) -> String {
    let (kind, rest) = element.split_at_checked(2).unwrap_or((element, ""));
    match kind {
        "f:" => format!(".{rest}"),
        "k:" => {
            let fields: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let pairs: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", pairs.join(","))
        }
        "v:" => format!("[={rest}]"),
        _ => format!("[{rest}]"),
    }
}

/// The canonical form of an element; `None` for an unknown kind of element, which the real server skips.
fn canonical(element: &str) -> Result<Option<String>, String> {
    let (kind, rest) = element.split_at_checked(2).ok_or("key must be 2 characters long:")?;
    if !kind.ends_with(':') {
        return Err(format!("missing colon: {element}"));
    }
    match kind {
        "f:" => Ok(Some(element.to_owned())),
        "k:" => serde_json::from_str(rest).map(|fields| Some(key(fields))).map_err(|error| error.to_string()),
        "v:" => serde_json::from_str(rest).map(|item| Some(value(&item))).map_err(|error| error.to_string()),
        "i:" => rest.parse::<i64>().map(|_| Some(element.to_owned())).map_err(|error| error.to_string()),
        _ => Ok(None),
    }
}

/// Equal numbers have the same form: `80.0` is `80`.
fn plain(value: Value) -> Value {
    match value.as_f64() {
        Some(number)
            if !value.is_i64() && !value.is_u64() && number.fract() == 0.0 && number.abs() < 9e15 =>
        {
            Value::from(number as i64)
        }
        _ => value,
    }
}
