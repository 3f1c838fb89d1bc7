use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use serde_json::json;

use super::super::parameters::{check_parameters, check_schema};
use super::super::{TaskProblem, form};
use super::*;

fn stored(schema: &Value) -> Result<(), String> {
    check_schema(schema).map_err(|problem| problem.to_string())
}

/// What a task with this schema says of these parameters.
fn given(schema: &Value, parameters: &Value) -> Result<(), TaskProblem> {
    let task = form::from_value(json!({"name": "t", "title": "t", "parameters": schema,
        "steps": [{"uses": "pause", "with": {"duration": "1s"}}]}));
    let task = form::check(&task.unwrap()).unwrap();
    check_parameters(&task, parameters.as_object().unwrap())
}

/// Each level refers to the next one twice.
fn chain(levels: usize, word: &str) -> Value {
    let mut parts = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        parts.insert(format!("l{level}"), json!({word: [next, next]}));
    }
    parts.insert(format!("l{levels}"), json!({"type": "integer"}));
    json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/l0"}}, "$defs": parts})
}

const OFTEN: &str = "parts of the schema refer to each other so often";

#[test]
fn a_schema_whose_work_doubles_with_every_level_is_rejected() {
    for word in ["anyOf", "allOf", "oneOf"] {
        assert!(stored(&chain(19, word)).is_err());
        let exceeded = stored(&chain(25, word)).unwrap_err();
        assert!(exceeded.starts_with("parameters: ") && exceeded.contains(OFTEN), "{exceeded}");
    }
    // Few levels cost little, and stay.
    assert_eq!(stored(&chain(5, "anyOf")), Ok(()));
    assert!(given(&chain(5, "anyOf"), &json!({"p": "x"})).is_err());
    assert_eq!(given(&chain(5, "anyOf"), &json!({"p": 1})), Ok(()));
}

#[test]
fn other_kinds_of_references_are_counted_too() {
    let doubled = |name: &str, target: &str| {
        let mut schema = chain(25, "anyOf");
        let text = schema.to_string().replace("#/$defs/", target).replace("\"$ref\"", &format!("\"{name}\""));
        schema = serde_json::from_str(&text).unwrap();
        for level in 0..=25 {
            schema["$defs"][format!("l{level}")]["$anchor"] = json!(format!("l{level}"));
            schema["$defs"][format!("l{level}")]["$dynamicAnchor"] = json!(format!("l{level}"));
        }
        schema["$id"] = json!("https://example.com/s");
        schema
    };
    for (name, target) in [
        ("$ref", "#"),
        ("$dynamicRef", "#"),
        ("$ref", "#/%24defs/"),
        ("$ref", "https://example.com/s#/$defs/"),
        ("$ref", "s#/$defs/"),
    ] {
        let exceeded = stored(&doubled(name, target)).unwrap_err();
        assert!(exceeded.contains(OFTEN), "{name} {target}: {exceeded}");
    }
    let mut unevaluated = json!({"type": "integer"});
    for _ in 0..30 {
        unevaluated = json!({"allOf": [unevaluated], "unevaluatedProperties": false});
    }
    let exceeded = stored(&json!({"type": "object", "properties": {"p": unevaluated}})).unwrap_err();
    assert!(exceeded.contains(OFTEN), "{exceeded}");
}

/// A schema that leads into itself is only as deep as what it is held against.
#[test]
fn a_recursive_schema_is_rejected_for_parameters_that_would_take_too_long() {
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"next": inner}));
    let once = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}});
    assert_eq!(given(&once, &json!({"p": nested(60)})), Ok(()));
    let next = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}});
    let twice = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"anyOf": [next, next]}}});
    assert_eq!(given(&twice, &json!({"p": nested(5)})), Ok(()));
    let exceeded = given(&twice, &json!({"p": nested(60)})).unwrap_err();
    assert_eq!(exceeded.target, "parameters");
    assert!(exceeded.message.contains(OFTEN), "{exceeded}");
}

/// Every part applies all parts to the same value: the validator would walk each of the paths among them.
#[test]
fn a_schema_that_refers_to_itself_for_the_same_value_is_rejected() {
    let all: Vec<Value> = (0..15).map(|n| json!({"$ref": format!("#/$defs/d{n}")})).collect();
    let parts: Map<String, Value> = (0..15).map(|n| (format!("d{n}"), json!({"allOf": all}))).collect();
    let dense = json!({"type": "object", "$defs": parts,
        "properties": {"p": {"$ref": "#/$defs/d0", "default": 1}}});
    let itself = json!({"type": "object", "properties": {"p": {"anyOf": [{"$ref": "#/properties/p"}, {"type": "integer"}]}}});
    let whole = json!({"type": "object", "not": {"$ref": "#"}});
    let anchors = json!({"type": "object", "properties": {"p": {"$ref": "#a"}}, "$defs": {
        "a": {"$anchor": "a", "if": {"$ref": "#b"}}, "b": {"$anchor": "b", "$ref": "#/%24defs/a"}}});
    for (schema, reference) in
        [(dense, "#/$defs/d0"), (itself, "#/properties/p"), (whole, "#"), (anchors, "#/%24defs/a")]
    {
        let Err(exceeded) = Costs::new(&schema) else { panic!("{schema} is accepted") };
        let expect = format!("the reference {reference:?} leads back to itself for the same value");
        assert!(exceeded.message.starts_with(&expect), "{}", exceeded.message);
        assert!(stored(&schema).unwrap_err().contains("leads back to itself"));
    }
}

/// Recursion by members and items is what references are for, also among documents in one.
#[test]
fn a_schema_that_refers_to_itself_for_members_or_items_is_accepted() {
    let all: Vec<Value> = (0..15).map(|n| json!({"$ref": format!("#/$defs/d{n}")})).collect();
    let parts: Map<String, Value> = (0..15)
        .map(|n| (format!("d{n}"), json!({"type": "object", "properties": {"next": {"anyOf": all}}})))
        .collect();
    let dense =
        json!({"type": "object", "$defs": parts, "properties": {"p": {"$ref": "#/$defs/d0", "default": {}}}});
    assert_eq!(stored(&dense), Ok(()));
    assert_eq!(given(&dense, &json!({"p": {"next": {"next": {}}}})), Ok(()));
    let tree = json!({"type": "object", "$id": "https://example.com/strict", "$dynamicAnchor": "node", "$ref": "tree",
        "$defs": {"tree": {"$id": "tree", "$dynamicAnchor": "node", "type": "object",
            "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}}}}}});
    assert_eq!(stored(&tree), Ok(()));
}

/// One part of a schema of `parts` parts.
fn part(parts: usize) -> impl Strategy<Value = Value> {
    let word =
        prop::sample::select(vec!["allOf", "anyOf", "oneOf", "not", "if", "properties", "items", "$ref"]);
    let members = prop::collection::vec((word, prop::collection::vec(0..parts, 1..4)), 0..4);
    members.prop_map(|members| {
        let mut part = Map::from_iter([("format".to_owned(), json!("counted"))]);
        for (word, targets) in members {
            let mut refs = targets.iter().map(|n| json!({"$ref": format!("#/$defs/d{n}")}));
            let value = match word {
                "$ref" => json!(format!("#/$defs/d{}", targets[0])),
                "allOf" | "anyOf" | "oneOf" => refs.collect(),
                "properties" => json!({"a": refs.next(), "b": refs.next().unwrap_or(json!({}))}),
                _ => refs.next().unwrap_or_default(),
            };
            part.insert(word.to_owned(), value);
        }
        Value::Object(part)
    })
}

fn value() -> impl Strategy<Value = Value> {
    Just(json!("x")).prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(Value::Array),
            (inner.clone(), inner).prop_map(|(a, b)| json!({"a": a, "b": b})),
        ]
    })
}

proptest! {
    /// Every part counts how often the validator holds it against a text.
    #[test]
    fn the_validator_does_no_more_than_the_sum_says(
        parts in (2..7_usize).prop_flat_map(|parts| prop::collection::vec(part(parts), parts)),
        value in value(),
    ) {
        let parts: Map<String, Value> =
            parts.into_iter().enumerate().map(|(n, part)| (format!("d{n}"), part)).collect();
        let schema = json!({"$ref": "#/$defs/d0", "$defs": parts});
        let Ok(costs) = Costs::new(&schema) else { return Ok(()) };
        let Ok(work) = costs.check(&schema, &value) else { return Ok(()) };
        let visits = Arc::new(AtomicU64::new(0));
        let counter = visits.clone();
        let counted = move |_: &str| {
            assert!(counter.fetch_add(1, Ordering::Relaxed) < 3 * WORK_MAX, "the validator does not end");
            true
        };
        let validator = jsonschema::options()
            .with_format("counted", counted)
            .should_validate_formats(true)
            .build(&schema)
            .unwrap();
        let errors = validator.iter_errors(&value).count();
        let visits = visits.load(Ordering::Relaxed);
        prop_assert!(visits <= 3 * work, "{} visits, {} units, {} errors: {}", visits, work, errors, schema);
    }
}

#[test]
fn a_schema_that_is_too_deep_or_too_large_is_rejected() {
    let mut parts = Map::new();
    for level in 0..1500 {
        parts.insert(format!("l{level}"), json!({"$ref": format!("#/$defs/l{}", level + 1)}));
    }
    parts.insert("l1500".to_owned(), json!({}));
    let deep = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/l0"}}, "$defs": parts});
    assert!(stored(&deep).unwrap_err().contains(OFTEN));
    let many: Map<String, Value> = (0..2100).map(|n| (format!("l{n}"), json!({}))).collect();
    let large = json!({"type": "object", "$defs": many});
    assert_eq!(stored(&large), Err("parameters: the schema has more than 2000 parts".to_owned()));
    let named: Vec<Value> = (0..5000).map(|n| json!({"n": n})).collect();
    let listed = json!({"type": "object", "properties": {"p": {"enum": named}}});
    assert_eq!(given(&listed, &json!({"p": {"n": 4999}})), Ok(()));
}

#[test]
fn patterns_are_small_and_take_linear_time() {
    let with = |pattern: &str| json!({"type": "object", "properties": {"p": {"type": "string", "pattern": pattern}}});
    assert_eq!(given(&with("^[a-z0-9-]{1,63}$"), &json!({"p": "web-1"})), Ok(()));
    assert_eq!(
        given(&with("^(a|aa)+$"), &json!({"p": "a".repeat(5000) + "b"})).unwrap_err().target,
        "parameters.p"
    );
    let long = stored(&with(&"a".repeat(5000))).unwrap_err();
    assert_eq!(
        long,
        "parameters.properties.p.pattern: the pattern has 5000 bytes, and at most 4096 are accepted"
    );
    assert!(stored(&with("(?=a)b")).is_err(), "what backtracks is not taken");
    assert!(stored(&with("\\pL{1000}")).is_err());
    let several: Map<String, Value> =
        (0..20).map(|n| (format!("p{n}"), json!({"pattern": format!("{n}\\pL{{15}}")}))).collect();
    let exceeded = stored(&json!({"type": "object", "properties": several})).unwrap_err();
    assert!(exceeded.contains("together take more than 8 MiB"), "{exceeded}");
    // A value that a large pattern would take long for is exceeded before it is tried.
    let heavy = given(&with("^(\\w{1,10})x$"), &json!({"p": "w".repeat(200_000)})).unwrap_err();
    assert!(heavy.message.contains(OFTEN), "{heavy}");
}
