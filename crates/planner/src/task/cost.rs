//! Cost of validating parameters against a schema, computed before the validation.
//!
//! A schema with two references to itself doubles the work with every level, and a validation cannot be interrupted. So the work
//! is counted first: how often each part of the schema is applied to each part of the parameters. Counts are memoized, so this
//! is fast whatever the result. A schema that refers to itself for the same value has no finite count, and is rejected.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use steps::expression::Pattern;

/// Most parts of a schema.
pub(super) const PARTS_MAX: usize = 2000;
/// Most work of a validation; one unit is a part of the schema applied to a part of the parameters.
pub(super) const WORK_MAX: u64 = 1_000_000;
/// Deepest nesting of parts during a validation.
pub(super) const DEPTH_MAX: usize = 400;
/// Longest pattern, in bytes.
pub(super) const PATTERN_MAX: usize = 4096;
/// Largest total size of the compiled patterns of a schema, in bytes.
const PATTERNS_SIZE_MAX: usize = 8 << 20;
/// Assumed weight of a pattern that only the validator can compile.
const PATTERN_UNKNOWN: u64 = 1 << 10;
/// Longest reference in a message, in characters.
const SHOWN_MAX: usize = 100;
/// Cost of a reference to a published schema, for each part of the parameters.
const EXTERNAL_REFERENCE: u64 = 200;

/// Keywords with one schema for the same value.
const SINGLE_KEYWORDS: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with a list of schemas for the same value.
const LIST_KEYWORDS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords with named schemas for the same value.
const NAMED_KEYWORDS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords with one schema for each member or item.
const CHILD_KEYWORDS: [&str; 6] = [
    "additionalProperties",
    "unevaluatedProperties",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "items",
];
/// Keywords with a reference to another schema.
const REFERENCE_KEYWORDS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Index of a schema: its named parts, and the weights of its patterns.
#[derive(Debug)]
pub(super) struct Costs {
    /// Paths to the parts that other parts refer to by name.
    anchors: BTreeMap<String, Vec<String>>,
    /// Parts with an id of their own; the first is the whole schema.
    documents: Vec<Document>,
    patterns: HashMap<String, u64>,
}

#[derive(Debug)]
struct Document {
    path: String,
    /// Last segments of its URIs, which do not change when a URI is resolved.
    names: Vec<String>,
}

/// Exceeded limit: the part of the schema and a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CostExceeded {
    /// A JSON pointer.
    pub(super) at: String,
    pub(super) message: String,
}

impl Costs {
    /// Indexes a schema. Rejects too many parts, too large patterns, and parts that refer to themselves for the same value.
    pub(super) fn new(schema: &Value) -> Result<Costs, CostExceeded> {
        let whole = Document { path: String::new(), names: Vec::new() };
        let mut costs = Costs { anchors: BTreeMap::new(), documents: vec![whole], patterns: HashMap::new() };
        let (mut parts, mut size) = (0, 0);
        costs.index(schema, &mut String::new(), &mut parts, &mut size)?;
        match costs.cycle(schema) {
            Some(reference) => {
                let reference: String = reference.chars().take(SHOWN_MAX).collect();
                let message = format!(
                    "the reference {reference:?} leads back to itself for the same value; a schema may refer to itself only for members or items"
                );
                Err(CostExceeded { at: String::new(), message })
            }
            None => Ok(costs),
        }
    }

    /// Finds a reference by which a part refers to itself for the same value. The validator follows every such path until it
    /// repeats, and there are factorially many.
    fn cycle<'a>(&self, schema: &'a Value) -> Option<&'a str> {
        let roots = self.roots(schema);
        let mut parts = Vec::new();
        collect(schema, &mut parts);
        let index: HashMap<usize, usize> =
            parts.iter().enumerate().map(|(at, part)| (std::ptr::from_ref(*part).addr(), at)).collect();
        let known = |part: &Value| index.get(&std::ptr::from_ref(part.as_object()?).addr()).copied();
        let next: Vec<Vec<usize>> = parts
            .iter()
            .map(|part| {
                let referred = references(part).flat_map(|reference| self.targets(&roots, reference));
                embedded(part).into_iter().chain(referred).filter_map(known).collect()
            })
            .collect();
        // Removes parts without successors until none is left, or only those on the way to a cycle.
        let mut before = vec![Vec::new(); parts.len()];
        for (at, next) in next.iter().enumerate() {
            next.iter().for_each(|to| before[*to].push(at));
        }
        let mut left: Vec<usize> = next.iter().map(Vec::len).collect();
        let mut ends: Vec<usize> = (0..parts.len()).filter(|at| left[*at] == 0).collect();
        while let Some(end) = ends.pop() {
            for at in &before[end] {
                left[*at] -= 1;
                if left[*at] == 0 {
                    ends.push(*at);
                }
            }
        }
        let mut at = (0..parts.len()).find(|at| left[*at] > 0)?;
        let mut found = "";
        // This number of moves goes around the cycle at least once, and every cycle contains a reference.
        for _ in 0..=2 * parts.len() {
            let to = next[at].iter().copied().find(|to| left[*to] > 0)?;
            let leads = |reference: &&str| {
                self.targets(&roots, reference).into_iter().filter_map(known).any(|target| target == to)
            };
            found = references(parts[at]).find(leads).unwrap_or(found);
            at = to;
        }
        Some(found)
    }

    fn index(
        &mut self,
        part: &Value,
        at: &mut String,
        parts: &mut usize,
        size: &mut usize,
    ) -> Result<(), CostExceeded> {
        let members: Box<dyn Iterator<Item = (String, &Value)>> = match part {
            Value::Array(items) => {
                Box::new(items.iter().enumerate().map(|(index, item)| (index.to_string(), item)))
            }
            Value::Object(members) => {
                *parts += 1;
                if *parts > PARTS_MAX {
                    let message = format!("the schema has more than {PARTS_MAX} parts");
                    return Err(CostExceeded { at: String::new(), message });
                }
                self.named(members, at);
                self.compile(members, at, size)?;
                Box::new(
                    members.iter().map(|(name, value)| (name.replace('~', "~0").replace('/', "~1"), value)),
                )
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
        };
        for (name, value) in members {
            if is_data(&name, value) {
                continue;
            }
            let before = at.len();
            at.push('/');
            at.push_str(&name);
            self.index(value, at, parts, size)?;
            at.truncate(before);
        }
        Ok(())
    }

    fn named(&mut self, members: &Map<String, Value>, at: &str) {
        for name in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = members.get(name).and_then(Value::as_str) {
                self.anchors.entry(anchor.to_owned()).or_default().push(at.to_owned());
            }
        }
        for name in ["$id", "id"] {
            if let Some(id) = members.get(name).and_then(Value::as_str) {
                let name = last_segment(id);
                match self.documents.iter_mut().find(|known| known.path == at) {
                    Some(known) => known.names.push(name),
                    None => self.documents.push(Document { path: at.to_owned(), names: vec![name] }),
                }
                if let Some((_, anchor)) = id.split_once('#') {
                    self.anchors.entry(anchor.to_owned()).or_default().push(at.to_owned());
                }
            }
        }
    }

    fn compile(
        &mut self,
        members: &Map<String, Value>,
        at: &str,
        size: &mut usize,
    ) -> Result<(), CostExceeded> {
        let own = members.get("pattern").and_then(Value::as_str).map(|text| (text, "pattern"));
        let of_names = members.get("patternProperties").and_then(Value::as_object);
        let of_names =
            of_names.into_iter().flat_map(Map::keys).map(|text| (text.as_str(), "patternProperties"));
        for (text, member) in own.into_iter().chain(of_names) {
            if self.patterns.contains_key(text) {
                continue;
            }
            let exceeded = |message: String| CostExceeded { at: format!("{at}/{member}"), message };
            if text.len() > PATTERN_MAX {
                let message =
                    format!("the pattern has {} bytes, and at most {PATTERN_MAX} are accepted", text.len());
                return Err(exceeded(message));
            }
            // A pattern that does not compile here is left to the validator, which may translate or reject it.
            let (weight, own) = Pattern::measure(text).unwrap_or((PATTERN_UNKNOWN, 1 << 20));
            *size += own;
            if *size > PATTERNS_SIZE_MAX {
                let limit = PATTERNS_SIZE_MAX >> 20;
                return Err(exceeded(format!(
                    "the patterns of the schema together take more than {limit} MiB"
                )));
            }
            self.patterns.insert(text.to_owned(), weight);
        }
        Ok(())
    }

    /// Counts the work of validating a value; an error beyond the limits.
    pub(super) fn check(&self, schema: &Value, value: &Value) -> Result<u64, CostExceeded> {
        self.sum(schema, Subject::Value(value)).ok_or_else(|| {
            let message = format!(
                "parts of the schema refer to each other so often that these parameters take more than {WORK_MAX} units of work"
            );
            CostExceeded { at: String::new(), message }
        })
    }

    /// Rejects a schema whose parts refer to each other too often for any value.
    pub(super) fn check_any(&self, schema: &Value) -> Result<(), CostExceeded> {
        self.sum(schema, Subject::Anything).map(drop).ok_or_else(|| {
            let message = format!(
                "parts of the schema refer to each other so often that parameters take more than {WORK_MAX} units of work"
            );
            CostExceeded { at: String::new(), message }
        })
    }

    fn sum(&self, schema: &Value, subject: Subject<'_>) -> Option<u64> {
        Sum { costs: self, roots: self.roots(schema), memo: HashMap::new(), depth: 0 }.add(schema, subject)
    }

    /// Parts of `documents`, in order; the first is the whole schema.
    fn roots<'a>(&self, schema: &'a Value) -> Vec<&'a Value> {
        self.documents.iter().map(|it| schema.pointer(&it.path).unwrap_or(schema)).collect()
    }

    /// Possible targets of a reference. Which of several applies depends on the dynamic scope, so all are counted.
    fn targets<'a>(&self, roots: &[&'a Value], reference: &str) -> Vec<&'a Value> {
        let (_, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decoded(fragment);
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let paths = self.anchors.get(fragment.as_str()).into_iter().flatten();
            return paths.filter_map(|path| roots.first()?.pointer(path)).collect();
        }
        let (path, _) = reference.split_once(['#', '?']).unwrap_or((reference, ""));
        let name = last_segment(reference);
        // A reference without a document is relative to its own, which may be any.
        let any = path.is_empty()
            || matches!(name.as_str(), "." | "..")
            || !self.documents.iter().any(|it| it.names.contains(&name));
        let named = |it: &Document| any || it.names.is_empty() || it.names.contains(&name);
        let roots = self.documents.iter().zip(roots).filter(|(it, _)| named(it));
        roots.filter_map(|(_, root)| root.pointer(&fragment)).collect()
    }
}

/// Last segment of the path of a URI, in lower case.
fn last_segment(uri: &str) -> String {
    let (path, _) = uri.split_once(['#', '?']).unwrap_or((uri, ""));
    percent_decoded(path.rsplit('/').next().unwrap_or_default()).to_ascii_lowercase()
}

/// Whether a member is plain data without references to schemas.
fn is_data(name: &str, value: &Value) -> bool {
    !value.is_object() && matches!(name, "enum" | "const" | "default" | "examples")
}

/// Collects all parts of a schema.
fn collect<'a>(part: &'a Value, parts: &mut Vec<&'a Map<String, Value>>) {
    match part {
        Value::Array(items) => items.iter().for_each(|item| collect(item, parts)),
        Value::Object(members) => {
            parts.push(members);
            for (_, value) in members.iter().filter(|(name, value)| !is_data(name, value)) {
                collect(value, parts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Subschemas of a part that apply to the same value.
fn embedded(members: &Map<String, Value>) -> Vec<&Value> {
    let one = SINGLE_KEYWORDS.iter().filter_map(|name| members.get(*name));
    let many = LIST_KEYWORDS.iter().filter_map(|name| members.get(*name)?.as_array()).flatten();
    let named =
        NAMED_KEYWORDS.iter().filter_map(|name| members.get(*name)?.as_object()).flat_map(Map::values);
    one.chain(many).chain(named).collect()
}

/// References of a part, which apply to the same value.
fn references(members: &Map<String, Value>) -> impl Iterator<Item = &str> {
    REFERENCE_KEYWORDS.iter().filter_map(|name| members.get(*name)?.as_str())
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |at: usize| after.get(at).and_then(|c| char::from(*c).to_digit(16));
        rest = match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.extend(u8::try_from(high * 16 + low));
                &after[2..]
            }
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Subject that a part of a schema is applied to.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Value(&'a Value),
    /// The name of a member.
    Name(&'a str),
    /// A value with every member of the schema.
    Anything,
}

impl<'a> Subject<'a> {
    fn id(self) -> usize {
        match self {
            Subject::Value(value) => std::ptr::from_ref(value).addr(),
            Subject::Name(name) => name.as_ptr().addr(),
            Subject::Anything => 0,
        }
    }

    fn text(self) -> Option<&'a str> {
        match self {
            Subject::Value(value) => value.as_str(),
            Subject::Name(name) => Some(name),
            Subject::Anything => Some(""),
        }
    }

    fn parts(self) -> u64 {
        fn count(value: &Value) -> u64 {
            match value {
                Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
                Value::Object(members) => 1 + members.values().map(count).sum::<u64>(),
                _ => 1,
            }
        }
        if let Subject::Value(value) = self { count(value) } else { 1 }
    }
}

/// Counting in progress. `None` means more than the limit.
struct Sum<'a> {
    costs: &'a Costs,
    roots: Vec<&'a Value>,
    /// Cost of each part with each subject; `None` while it is being counted.
    memo: HashMap<(usize, usize), Option<u64>>,
    depth: usize,
}

impl<'a> Sum<'a> {
    fn add(&mut self, part: &'a Value, subject: Subject<'a>) -> Option<u64> {
        let Value::Object(members) = part else { return Some(1) };
        let key = (std::ptr::from_ref(part).addr(), subject.id());
        match self.memo.get(&key) {
            Some(Some(known)) => return Some(*known),
            // For any value, a part refers to itself only through members or items, so the depth is bounded by the value.
            Some(None) if matches!(subject, Subject::Anything) => return Some(1),
            Some(None) => return None,
            None => {}
        }
        if self.depth > DEPTH_MAX || self.memo.len() as u64 > WORK_MAX {
            return None;
        }
        self.memo.insert(key, None);
        self.depth += 1;
        let total = self.members(members, subject);
        self.depth -= 1;
        let total = total.filter(|total| *total <= WORK_MAX);
        self.memo.insert(key, Some(total.unwrap_or(u64::MAX)));
        total
    }

    fn members(&mut self, members: &'a Map<String, Value>, subject: Subject<'a>) -> Option<u64> {
        let mut same = 0_u64;
        for part in embedded(members) {
            same = same.checked_add(self.add(part, subject)?)?;
        }
        for reference in references(members) {
            let targets = self.costs.targets(&self.roots, reference);
            if targets.is_empty() {
                same = same.checked_add(subject.parts().checked_mul(EXTERNAL_REFERENCE)?)?;
            }
            for part in targets {
                same = same.checked_add(self.add(part, subject)?)?;
            }
        }
        let mut total = 1_u64.checked_add(own(members, subject))?;
        if let (Some(pattern), Some(text)) = (members.get("pattern").and_then(Value::as_str), subject.text())
        {
            total = total.checked_add(self.pattern(pattern, text)?)?;
        }
        let (below, count) = match subject {
            Subject::Value(Value::Object(values)) => (self.object(members, values)?, values.len() as u64),
            Subject::Value(Value::Array(values)) => (self.array(members, values)?, values.len() as u64),
            Subject::Anything => (self.anything(members)?, 1),
            Subject::Value(_) | Subject::Name(_) => (0, 0),
        };
        // Finding unevaluated members evaluates the other parts again, for each member.
        let again =
            ["unevaluatedProperties", "unevaluatedItems"].iter().any(|name| members.contains_key(*name));
        let times = if again { 2 + count } else { 1 };
        total.checked_add(same.checked_mul(times)?)?.checked_add(below)
    }

    fn object(&mut self, members: &'a Map<String, Value>, values: &'a Map<String, Value>) -> Option<u64> {
        let mut total = values.len() as u64;
        let properties = members.get("properties").and_then(Value::as_object);
        let patterns = members.get("patternProperties").and_then(Value::as_object);
        for (name, value) in values {
            if let Some(part) = properties.and_then(|properties| properties.get(name)) {
                total = total.checked_add(self.add(part, Subject::Value(value))?)?;
            }
            for (pattern, part) in patterns.into_iter().flatten() {
                let cost = self.pattern(pattern, name)?;
                let inner = self.add(part, Subject::Value(value))?;
                total = total.checked_add(cost)?.checked_add(inner)?;
            }
            for each in ["additionalProperties", "unevaluatedProperties"] {
                if let Some(part) = members.get(each) {
                    total = total.checked_add(self.add(part, Subject::Value(value))?)?;
                }
            }
            if let Some(part) = members.get("propertyNames") {
                total = total.checked_add(self.add(part, Subject::Name(name))?)?;
            }
        }
        Some(total)
    }

    fn array(&mut self, members: &'a Map<String, Value>, values: &'a [Value]) -> Option<u64> {
        let mut total = values.len() as u64;
        for (index, value) in values.iter().enumerate() {
            for name in CHILD_KEYWORDS {
                match members.get(name) {
                    Some(Value::Array(parts)) => {
                        if let Some(part) = parts.get(index) {
                            total = total.checked_add(self.add(part, Subject::Value(value))?)?;
                        }
                    }
                    Some(part) if !name.ends_with("Properties") => {
                        total = total.checked_add(self.add(part, Subject::Value(value))?)?;
                    }
                    _ => {}
                }
            }
            let prefix = members.get("prefixItems").and_then(Value::as_array);
            if let Some(part) = prefix.and_then(|parts| parts.get(index)) {
                total = total.checked_add(self.add(part, Subject::Value(value))?)?;
            }
        }
        Some(total)
    }

    /// Counts every part that applies to a member or an item.
    fn anything(&mut self, members: &'a Map<String, Value>) -> Option<u64> {
        let mut total = 0_u64;
        for name in CHILD_KEYWORDS.iter().copied().chain([
            "propertyNames",
            "prefixItems",
            "properties",
            "patternProperties",
        ]) {
            let parts: Vec<&'a Value> = match (name, members.get(name)) {
                ("properties" | "patternProperties", Some(Value::Object(parts))) => parts.values().collect(),
                (_, Some(Value::Array(parts))) => parts.iter().collect(),
                (_, part) => part.into_iter().collect(),
            };
            for part in parts {
                total = total.checked_add(self.add(part, Subject::Anything)?)?;
            }
        }
        Some(total)
    }

    fn pattern(&self, pattern: &str, text: &str) -> Option<u64> {
        let weight = self.costs.patterns.get(pattern).copied().unwrap_or(PATTERN_UNKNOWN);
        weight.checked_mul(1 + text.len() as u64 / 16)
    }
}

/// Cost of the keywords of a part itself.
fn own(members: &Map<String, Value>, subject: Subject<'_>) -> u64 {
    let listed = members.get("enum").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let long = subject.text().map_or(0, |text| text.len() as u64 / 64);
    members.len() as u64 + listed + long
}

#[cfg(test)]
mod tests;
