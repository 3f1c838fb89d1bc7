//! Merging of two objects; lists are merged by their keys.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{SchemaTypes, Shape, Type, list, object};
use crate::apply::set;

impl SchemaTypes<'_> {
    /// Merges the right object into the left one.
    pub(in crate::apply) fn merge(&self, left: &Value, right: &Value) -> Result<Value, String> {
        Ok(self.merge_at(self.root(), Some(left), Some(right))?.unwrap_or(Value::Null))
    }

    fn merge_at(
        &self,
        kind: Type,
        left: Option<&Value>,
        right: Option<&Value>,
    ) -> Result<Option<Value>, String> {
        let Some(shape) = right.or(left).map(|value| self.shape(kind, value)) else { return Ok(None) };
        let is_whole = match shape {
            Shape::Map { is_atomic: true } | Shape::AtomicList | Shape::Scalar => true,
            Shape::Map { .. } => {
                object(left).is_none_or(Map::is_empty) && object(right).is_none_or(Map::is_empty)
            }
            Shape::List => list(left).is_empty() && list(right).is_empty(),
        };
        if is_whole {
            return Ok(right.or(left).cloned());
        }
        if shape == Shape::List {
            let merged = self.merge_lists(kind, list(left), list(right))?;
            return Ok((!merged.is_empty()).then_some(Value::Array(merged)));
        }
        let (left, right) = (object(left), object(right));
        let mut merged = Map::new();
        let only_new = |name: &&String| left.is_none_or(|left| !left.contains_key(*name));
        let old = left.into_iter().flat_map(Map::keys);
        for name in old.chain(right.into_iter().flat_map(Map::keys).filter(only_new)) {
            let (kind, _) = self.field_or_deduced(kind, name);
            let (left, right) = (left.and_then(|map| map.get(name)), right.and_then(|map| map.get(name)));
            if let Some(value) = self.merge_at(kind, left, right)? {
                merged.insert(name.clone(), value);
            }
        }
        Ok((!merged.is_empty()).then_some(Value::Object(merged)))
    }

    /// Items of the right list keep their relative order; items that only the left list has keep their positions
    /// between the items that both have.
    fn merge_lists(&self, kind: Type, left: &[Value], right: &[Value]) -> Result<Vec<Value>, String> {
        let items = self.items(kind);
        let elements = |list: &[Value]| -> Result<Vec<String>, String> {
            let element =
                |(index, item)| self.element(kind, item).map_err(|text| format!("element {index}: {text}"));
            list.iter().enumerate().map(element).collect()
        };
        let (left_names, right_names) = (elements(left)?, elements(right)?);
        let mut on_left: HashMap<&str, Option<&Value>> = HashMap::new();
        for (name, item) in left_names.iter().zip(left) {
            // Items with a duplicate key cannot be merged with an item of the other list.
            on_left.entry(name).and_modify(|value| *value = None).or_insert(Some(item));
        }
        let mut on_right: HashMap<&str, &Value> = HashMap::new();
        for (name, item) in right_names.iter().zip(right) {
            if on_right.insert(name, item).is_some() {
                return Err(format!(
                    "duplicate entries for key {}",
                    set::printed(std::slice::from_ref(name))
                ));
            }
        }
        let mut shared = right_names.iter().filter(|name| on_left.contains_key(name.as_str())).peekable();
        let mut done: HashSet<&str> = HashSet::new();
        let mut merged = Vec::with_capacity(left.len().max(right.len()));
        let (mut l, mut r) = (0, 0);
        let mut take = |left: Option<&Value>, right: Option<&Value>| -> Result<(), String> {
            merged.extend(self.merge_at(items, left, right)?);
            Ok(())
        };
        while l < left_names.len() || r < right_names.len() {
            if let (Some(left_name), Some(right_name)) = (left_names.get(l), right_names.get(r)) {
                if left_name == right_name {
                    done.insert(left_name);
                    take(
                        on_left.get(left_name.as_str()).copied().flatten(),
                        on_right.get(left_name.as_str()).copied(),
                    )?;
                    l += 1;
                    r += 1;
                    shared.next();
                    continue;
                }
                if on_right.contains_key(left_name.as_str())
                    && shared.peek().is_some_and(|next| *next != left_name)
                {
                    l += 1;
                    continue;
                }
            }
            if let Some(left_name) = left_names.get(l) {
                if !on_right.contains_key(left_name.as_str()) {
                    take(left.get(l), None)?;
                    l += 1;
                    continue;
                } else if done.contains(left_name.as_str()) {
                    l += 1;
                }
            }
            if let Some(right_name) = right_names.get(r) {
                done.insert(right_name);
                take(
                    on_left.get(right_name.as_str()).copied().flatten(),
                    on_right.get(right_name.as_str()).copied(),
                )?;
                r += 1;
                if shared.peek().is_some_and(|next| *next == right_name) {
                    shared.next();
                }
            }
        }
        Ok(merged)
    }
}
