//! Comparison of two objects, field by field.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Comparison, SchemaTypes, Shape, Type, list, object};
use crate::apply::set;

impl SchemaTypes<'_> {
    /// The fields that differ between two objects.
    pub(in crate::apply) fn compare(&self, from: &Value, to: &Value) -> Comparison {
        let mut comparison = Comparison::default();
        self.compare_at(self.root(), Some(from), Some(to), &mut Vec::new(), &mut comparison);
        comparison
    }

    fn compare_at(
        &self,
        kind: Type,
        from: Option<&Value>,
        to: Option<&Value>,
        path: &mut Vec<String>,
        found: &mut Comparison,
    ) {
        // Equal values have no differences at any depth.
        if from == to {
            return;
        }
        let (before, after) =
            (from.map(|value| self.shape(kind, value)), to.map(|value| self.shape(kind, value)));
        let mut is_leaf = false;
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            self.compare_as(before, kind, from, to, path, found);
        }
        if let Some(shape) = after.or(before) {
            is_leaf = self.compare_as(shape, kind, from, to, path, found);
        }
        if !is_leaf {
            match (from, to) {
                (None, Some(_)) => found.added.insert(path),
                (Some(_), None) => found.removed.insert(path),
                _ => {}
            }
        }
    }

    /// Compares two values as if both had the shape. Returns whether they were compared as a whole.
    fn compare_as(
        &self,
        shape: Shape,
        kind: Type,
        from: Option<&Value>,
        to: Option<&Value>,
        path: &mut Vec<String>,
        found: &mut Comparison,
    ) -> bool {
        let is_whole = match shape {
            Shape::Map { is_atomic: true } | Shape::AtomicList | Shape::Scalar => true,
            Shape::Map { .. } => {
                object(from).is_none_or(Map::is_empty) && object(to).is_none_or(Map::is_empty)
            }
            Shape::List => list(from).is_empty() && list(to).is_empty(),
        };
        if is_whole {
            match (from, to) {
                (None, _) => found.added.insert(path),
                (_, None) => found.removed.insert(path),
                _ => found.modified.insert(path),
            }
            return true;
        }
        match shape {
            Shape::List => self.compare_lists(kind, list(from), list(to), path, found),
            _ => {
                let (from, to) = (object(from), object(to));
                let only_new = |name: &&String| from.is_none_or(|from| !from.contains_key(*name));
                let old = from.into_iter().flat_map(Map::keys);
                for name in old.chain(to.into_iter().flat_map(Map::keys).filter(only_new)) {
                    let (kind, _) = self.field_or_deduced(kind, name);
                    path.push(set::field(name));
                    let (from, to) = (from.and_then(|map| map.get(name)), to.and_then(|map| map.get(name)));
                    self.compare_at(kind, from, to, path, found);
                    path.pop();
                }
            }
        }
        false
    }

    fn compare_lists(
        &self,
        kind: Type,
        from: &[Value],
        to: &[Value],
        path: &mut Vec<String>,
        found: &mut Comparison,
    ) {
        let items = self.items(kind);
        let mut order = Vec::new();
        let mut pairs: HashMap<String, (Vec<&Value>, Vec<&Value>)> = HashMap::new();
        for (is_old, item) in from.iter().map(|item| (true, item)).chain(to.iter().map(|item| (false, item)))
        {
            let Ok(element) = self.element(kind, item) else { continue };
            let (old, new) = pairs.entry(element.clone()).or_insert_with(|| {
                order.push(element);
                Default::default()
            });
            if is_old { old.push(item) } else { new.push(item) }
        }
        for element in order {
            let Some((old, new)) = pairs.get(&element) else { continue };
            path.push(element);
            match (old.as_slice(), new.as_slice()) {
                (old @ ([] | [_]), new @ ([] | [_])) => {
                    self.compare_at(items, old.first().copied(), new.first().copied(), path, found);
                }
                (old @ [_, _, ..], new @ [_, _, ..]) => {
                    if old != new {
                        found.modified.insert(path);
                    }
                }
                ([_, _, ..], new) => {
                    if let Some(new) = new.first() {
                        self.compare_at(items, None, Some(*new), path, found);
                    }
                    found.removed.insert(path);
                }
                (old, _) => {
                    if let Some(old) = old.first() {
                        self.compare_at(items, Some(*old), None, path, found);
                    }
                    found.added.insert(path);
                }
            }
            path.pop();
        }
    }
}
