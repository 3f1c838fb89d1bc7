//! Strategic merge patch: a merge patch that knows how the lists of a kind are merged.
//!
//! Directives: `$patch: delete|replace` in objects and list items, `$retainKeys`, `$setElementOrder/LIST` and
//! `$deleteFromPrimitiveList/LIST`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::{Merge, NodeId, Origin, Schema, go_format, go_type_of};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Merges the patch into the object; lists are merged as the schema declares.
pub fn strategic(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    if schema.origin == Origin::Crd {
        return Err(bad_request("strategic merge patch format is not supported"));
    }
    let Value::Object(patch) = patch else { return Err(bad_request("invalid JSON document")) };
    let object = object.as_object().cloned().unwrap_or_default();
    let result = Merger { schema }.map(object, patch.clone(), Some(schema.root))?;
    Ok(Value::Object(result))
}

type Object = Map<String, Value>;

struct Merger<'a> {
    schema: &'a Schema,
}

impl Merger<'_> {
    fn map(
        &self,
        mut original: Object,
        mut patch: Object,
        node: Option<NodeId>,
    ) -> Result<Object, PatchError> {
        if let Some(directive) = patch.remove(DIRECTIVE) {
            return match directive.as_str() {
                Some("replace") => Ok(patch),
                Some("delete") => Ok(Object::new()),
                _ => {
                    patch.insert(DIRECTIVE.to_owned(), directive.clone());
                    Err(unknown_directive(&directive, &patch))
                }
            };
        }
        retain_keys(&mut original, &mut patch)?;
        self.order_lists(&mut original, &mut patch, node)?;
        for (name, change) in patch {
            let (name, is_deletion) = match name.strip_prefix(DELETE_FROM) {
                Some(list) if change.is_array() => (list.to_owned(), true),
                Some(_) => return Err(bad_request("invalid patch format of primitive list")),
                None => (name, false),
            };
            if change.is_null() {
                original.remove(&name);
                continue;
            }
            let current = original.remove(&name);
            let (child, merge) = self.child(node, &name);
            let merged = match (current, change) {
                (current, _) if current.is_none() && is_deletion => None,
                (Some(Value::Object(current)), Value::Object(change)) => {
                    Some(Value::Object(self.map(current, change, child)?))
                }
                (Some(Value::Array(current)), Value::Array(change)) if merge.merge || is_deletion => {
                    Some(Value::Array(self.list(current, change, child, &merge, is_deletion)?))
                }
                (Some(Value::Array(_)), Value::Array(change)) => Some(Value::Array(change)),
                (current, _) if is_deletion => current,
                (_, change) => without_directives(change),
            };
            if let Some(merged) = merged {
                original.insert(name, merged);
            }
        }
        Ok(original)
    }

    /// The node of a field and its merge strategy.
    fn child(&self, node: Option<NodeId>, name: &str) -> (Option<NodeId>, Merge) {
        let Some(node) = node.map(|id| self.schema.node(id)) else { return (None, Merge::default()) };
        match node.properties.get(name) {
            Some(field) => (Some(field.node), field.merge.clone()),
            None => (node.additional, Merge::default()),
        }
    }

    /// Merges lists that come with `$setElementOrder` and puts them into that order.
    fn order_lists(
        &self,
        original: &mut Object,
        patch: &mut Object,
        node: Option<NodeId>,
    ) -> Result<(), PatchError> {
        let directives: Vec<String> =
            patch.keys().filter(|name| name.starts_with(ELEMENT_ORDER)).cloned().collect();
        for directive in directives {
            let name = directive.trim_start_matches(ELEMENT_ORDER);
            let order = array(patch.remove(&directive))?.unwrap_or_default();
            let current = array(original.get(name).cloned())?;
            let change = array(patch.remove(name))?;
            let (child, merge) = self.child(node, name);
            let key = merge.key.as_deref();
            check_order(change.as_deref().unwrap_or_default(), &order, key)?;
            let merged = match (&current, change) {
                (None, None) => continue,
                (Some(current), None) => current.clone(),
                (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
                (Some(current), Some(change)) if merge.merge => {
                    self.list(current.clone(), change, child, &merge, false)?
                }
                (Some(_), Some(change)) => change,
            };
            let ordered = in_order(merged, &order, &current.unwrap_or_default(), key)?;
            original.insert(name.to_owned(), Value::Array(ordered));
        }
        Ok(())
    }

    fn list(
        &self,
        original: Vec<Value>,
        patch: Vec<Value>,
        node: Option<NodeId>,
        merge: &Merge,
        is_deletion: bool,
    ) -> Result<Vec<Value>, PatchError> {
        if original.is_empty() && patch.is_empty() {
            return Ok(original);
        }
        let both = || original.iter().chain(&patch);
        if both().any(Value::is_array) {
            return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned()));
        }
        if both().all(Value::is_object) {
            return self.list_of_objects(original, patch, node, merge);
        }
        if both().any(Value::is_object) {
            return Err(PatchError::Internal("list element types are not identical".to_owned()));
        }
        if is_deletion {
            let unwanted: HashSet<String> = patch.iter().map(ToString::to_string).collect();
            return Ok(original.into_iter().filter(|item| !unwanted.contains(&item.to_string())).collect());
        }
        let mut seen = HashSet::new();
        let merged = both().filter(|item| seen.insert(item.to_string())).cloned().collect();
        in_order(merged, &patch, &original, None)
    }

    fn list_of_objects(
        &self,
        mut original: Vec<Value>,
        patch: Vec<Value>,
        node: Option<NodeId>,
        merge: &Merge,
    ) -> Result<Vec<Value>, PatchError> {
        let Some(key) = merge.key.as_deref() else {
            return Err(PatchError::Internal("cannot merge lists without merge key".to_owned()));
        };
        let mut changes = Vec::new();
        let mut deleted = HashSet::new();
        let mut is_replaced = false;
        for item in patch {
            let Value::Object(object) = &item else { continue };
            match object.get(DIRECTIVE) {
                None => changes.push(item),
                Some(directive) => match directive.as_str() {
                    Some("delete") => {
                        deleted.insert(key_text(&item, key)?);
                    }
                    Some("replace") => is_replaced = true,
                    Some("merge") => {
                        let text = "merging lists cannot yet be specified in the patch";
                        return Err(PatchError::Internal(text.to_owned()));
                    }
                    _ => return Err(unknown_directive(directive, object)),
                },
            }
        }
        if is_replaced {
            return Ok(changes);
        }
        if !deleted.is_empty() {
            original.retain(|item| item.get(key).is_none_or(|value| !deleted.contains(&value.to_string())));
        }
        let mut merged = original.clone();
        let mut places = HashMap::new();
        for (index, item) in merged.iter().enumerate() {
            if let Some(value) = item.get(key) {
                places.entry(value.to_string()).or_insert(index);
            }
        }
        let items = node.and_then(|id| self.schema.node(id).items);
        for change in &changes {
            let value = key_text(change, key)?;
            match places.get(&value) {
                Some(index) => {
                    let (Value::Object(current), Value::Object(change)) =
                        (merged[*index].take(), change.clone())
                    else {
                        continue;
                    };
                    merged[*index] = Value::Object(self.map(current, change, items)?);
                }
                None => {
                    places.insert(value, merged.len());
                    merged.push(change.clone());
                }
            }
        }
        in_order(merged, &changes, &original, Some(key))
    }
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(list) = directive else { return Err(bad_request("invalid patch format of retainKeys")) };
    let retained: HashSet<&str> = list.iter().filter_map(Value::as_str).collect();
    let is_listed = |name: &String| {
        let name = name.strip_prefix(ELEMENT_ORDER).or(name.strip_prefix(DELETE_FROM)).unwrap_or(name);
        retained.contains(name)
    };
    if patch.iter().any(|(name, value)| !value.is_null() && !is_listed(name)) {
        return Err(bad_request("invalid patch format of retainKeys"));
    }
    original.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// The items that `order` contains, in its order, interleaved with the others, which keep the server's order.
fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    server: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let text = |item: &Value| match key {
        Some(key) => key_text(item, key),
        None => Ok(item.to_string()),
    };
    let index = |list: &[Value]| -> Result<HashMap<String, usize>, PatchError> {
        let mut places = HashMap::new();
        for (index, item) in list.iter().enumerate() {
            places.entry(text(item)?).or_insert(index);
        }
        Ok(places)
    };
    let (ordered, on_server) = (index(order)?, index(server)?);
    let mut named: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut others: Vec<(Option<usize>, Value)> = Vec::new();
    for item in merged {
        let text = text(&item)?;
        let place = on_server.get(&text).copied();
        match ordered.get(&text) {
            Some(index) => named.push((*index, place, item)),
            None => others.push((place, item)),
        }
    }
    named.sort_by_key(|(index, _, _)| *index);
    others.sort_by_key(|(place, _)| place.unwrap_or(usize::MAX));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let is_other_first = match (others.peek(), named.peek()) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((Some(left), _)), Some((_, Some(right), _))) => left < right,
            (Some(_), Some(_)) => false,
        };
        match is_other_first {
            true => result.extend(others.next().map(|(_, item)| item)),
            false => result.extend(named.next().map(|(_, _, item)| item)),
        }
    }
    Ok(result)
}

/// Fails unless the items of a patch are in the order of its `$setElementOrder`.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut left = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let found = match key {
            Some(key) => {
                key_text(item, key)?;
                left.by_ref().any(|other| other.get(key) == item.get(key))
            }
            None => left.by_ref().any(|other| other == item),
        };
        if !found {
            let (patch, order) = (go_format(&Value::from(patch)), go_format(&Value::from(order)));
            return Err(PatchError::Internal(format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

/// The value without objects and list items that are directives only.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            Some(Value::Object(
                fields.filter_map(|(name, value)| Some((name, without_directives(value)?))).collect(),
            ))
        }
        Value::Array(list) => Some(Value::Array(list.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn array(value: Option<Value>) -> Result<Option<Vec<Value>>, PatchError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => {
            let text = format!("expected a []interface {{}}, but received a {}", go_type_of(&other));
            Err(PatchError::Internal(text))
        }
    }
}

fn key_text(item: &Value, key: &str) -> Result<String, PatchError> {
    match item.get(key) {
        Some(value) => Ok(value.to_string()),
        None => Err(PatchError::Internal(format!(
            "map: {} does not contain declared merge key: {key}",
            go_format(item)
        ))),
    }
}

fn unknown_directive(directive: &Value, map: &Object) -> PatchError {
    let directive = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    let map = go_format(&Value::Object(map.clone()));
    PatchError::Internal(format!("unknown patch type: {directive} in map: {map}"))
}

fn bad_request(text: &str) -> PatchError {
    PatchError::BadRequest(text.to_owned())
}
