use proptest::prelude::*;
use serde_json::json;

use std::sync::atomic::AtomicBool;

use super::*;

const NAMES: [&str; 3] = ["cluster", "nodes", "object"];

fn evaluate(text: &str, data: Value) -> Evaluation {
    let stop = AtomicBool::new(false);
    Expression::compile(text, &NAMES).expect(text).evaluate(data.as_object().unwrap(), &stop)
}

#[test]
fn conditions_are_true_false_or_unclear() {
    let data = json!({"cluster": {"version": "v1.37.1", "labels": {"ring": "1"}},
        "nodes": [{"name": "a", "ready": true}, {"name": "b", "ready": false}],
        "object": {"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}});
    let check = |text: &str, expect: bool| {
        assert_eq!(evaluate(text, data.clone()), Evaluation::Value(expect), "{text}");
    };
    check("nodes.all(n, n.ready)", false);
    check("nodes.exists(n, n.name == 'a' && n.ready)", true);
    check("size(nodes) == 2", true);
    check("nodes.size() > 1 && cluster.version.startsWith('v1.')", true);
    check("object.status.readyReplicas + 1 == object.spec.replicas", true);
    check("has(object.status.updatedReplicas)", false);
    check("cluster.labels['ring'] == '1'", true);
    check("nodes.filter(n, !n.ready).map(n, n.name) == ['b']", true);
    check("cluster.version.matches('^v1[.]3[0-9]')", true);
    check("nodes.all(a, nodes.exists(b, a.name == b.name))", true);
    check("'type' in {'type': 1}", true);
    assert_eq!(
        evaluate("object.status.gone == 1", data.clone()),
        Evaluation::Undetermined("there is no gone".to_owned())
    );
    assert!(matches!(
        evaluate("object.spec.replicas == 1 || nodes[9].ready", data.clone()),
        Evaluation::Undetermined(_)
    ));
    assert_eq!(evaluate("size(nodes)", data), Evaluation::Invalid("it is neither true nor false".to_owned()));
}

#[test]
fn an_invalid_expression_is_rejected_with_a_sentence() {
    let check = |text: &str, expect: &str| {
        let error = Expression::compile(text, &NAMES).expect_err(text);
        assert!(error.contains(expect), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    };
    check("", "is empty");
    check("nodes.all(n, ", "it is not an expression in CEL at line 1");
    check("node.size() > 1", "node is not known; there are cluster, nodes, object");
    check("nodes.al(n, n.ready)", "there is no function al");
    check("launch(nodes)", "there is no function launch");
    check("nodes.all(n, m.ready)", "m is not known");
    check(&"nodes.all(a, ".repeat(4), "it is not an expression");
    let deep = "nodes.all(a, nodes.all(b, nodes.all(c, nodes.all(d, true))))";
    check(deep, "nested more than 3 deep");
    check(&format!("[{}] == []", "1,".repeat(3000)), "has 6008 bytes");
    check(&format!("{}1{} == 1", "(".repeat(1500), ")".repeat(1500)), "its brackets are nested more than 16");
    check(&format!("1{} > 0", " + 1".repeat(1000)), "it is nested more than 48 deep");
    check(&format!("cluster{}", ".a".repeat(2000)), "it is nested more than 48 deep");
}

#[test]
fn the_deepest_accepted_expression_can_be_evaluated_on_a_small_stack() {
    let sum = format!("1{} > 0", " + 1".repeat(45));
    let nested = format!("{}1 > 0{}", "(true && ".repeat(15), ")".repeat(15));
    let many = vec!["size(nodes) == 0"; 200].join(" && ");
    let not = format!("{}true", "!".repeat(4000));
    for text in [sum, nested, many, not] {
        let evaluate = move || evaluate(&text, json!({"nodes": []}));
        let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(evaluate).unwrap();
        assert_eq!(worker.join().unwrap(), Evaluation::Value(true));
    }
}

#[test]
fn an_expression_with_too_much_work_ends_with_its_limit() {
    let nodes: Vec<Value> = (0..3000).map(|n| json!({"name": n})).collect();
    let found = evaluate("nodes.all(a, nodes.all(b, true))", json!({"nodes": nodes}));
    assert_eq!(found, Evaluation::Invalid("it takes more than 20000000 units of work".to_owned()));
    let nodes: Vec<Value> = (0..1000).map(|n| json!({"name": n})).collect();
    assert_eq!(
        evaluate("nodes.all(a, nodes.exists(b, a == b))", json!({"nodes": nodes})),
        Evaluation::Value(true)
    );
}

/// Without limits of work and memory, each of these froze or crashed the process.
#[test]
fn hostile_expressions_end_within_their_limits() {
    let many = format!("[{}]", vec!["0"; 60].join(","));
    let numbers = format!("{:?}", (0..60).collect::<Vec<_>>());
    let plus = vec!["x"; 20].join(" + ");
    let hostile = [
        format!("{numbers}.all(x, !'a'.matches('\\\\pL{{' + string(x + 50) + '}}'))"),
        format!("{numbers}.all(a, {numbers}.all(b, !'a'.matches(string(a) + '-' + string(b))))"),
        format!(
            "size(['x'].map(x, {plus}).map(x, {plus}).map(x, {plus}).map(x, {plus}).map(x, {plus}).map(x, {plus})) == 1"
        ),
        format!(
            "size([[0]].map(x, {plus}).map(x, {plus}).map(x, {plus}).map(x, {plus}).map(x, {plus})) == 1"
        ),
        format!("nodes.all(a, nodes.all(b, {many}.map(c, {many}) != nodes))"),
        format!(
            "[{many}].map(x, [x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x])\
            .map(x, [x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x]).map(x, [x,x,x,x,x,x,x,x]).map(x, [x == x, x == x])[0][1]"
        ),
        "nodes.all(a, nodes.all(b, nodes.all(c, a.name + b.name + c.name != '')))".to_owned(),
        "nodes.map(a, nodes.map(b, nodes.map(c, [a, b, c]))).size() > 0".to_owned(),
    ];
    let nodes: Vec<Value> = (0..500).map(|n| json!({"name": format!("node-{n}")})).collect();
    let data = json!({"nodes": nodes});
    for text in hostile {
        let found = evaluate(&text, data.clone());
        assert!(matches!(found, Evaluation::Invalid(_)), "{text}: {found:?}");
    }
}

#[test]
fn patterns_are_small_and_compiled_once() {
    let rejected = |text: &str| Expression::compile(text, &NAMES).unwrap_err();
    let many = format!("[{}]", vec!["0"; 60].join(","));
    let large = rejected(&format!("{many}.all(x, !'a'.matches('\\\\pL{{100}}'))"));
    assert_eq!(large, "matches is given a pattern that is too large: \"\\\\pL{100}\"");
    assert!(
        rejected("'a'.matches('(')")
            .starts_with("matches is given a pattern that is not a regular expression")
    );
    let long = rejected(&format!("'a'.matches('{}')", "a".repeat(600)));
    assert!(long.starts_with("matches is given a pattern of more than 512 bytes"), "{long}");
    let several: Vec<String> = (0..60).map(|n| format!("'a'.matches('{n}\\\\pL{{9}}\\\\pL{{9}}')")).collect();
    assert!(rejected(&several.join(" || ")).contains("its patterns together take more than 4 MiB"));
    let names: Vec<Value> = (0..5000).map(|n| json!({"name": format!("worker-{n}.example.com")})).collect();
    let text =
        r"nodes.all(n, n.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))";
    assert_eq!(evaluate(text, json!({"nodes": names})), Evaluation::Value(true));
    let words = r"nodes.all(n, n.name.matches('^\\w+-\\d+[.]\\w+[.]com$'))";
    assert_eq!(evaluate(words, json!({"nodes": names})), Evaluation::Value(true));
}

#[test]
fn a_stopped_evaluation_ends() {
    let nodes: Vec<Value> = (0..1000).collect::<Vec<_>>().into_iter().map(|n| json!(n)).collect();
    let data = json!({"nodes": nodes});
    let expression = Expression::compile("nodes.all(a, nodes.exists(b, a == b))", &NAMES).unwrap();
    let stop = AtomicBool::new(true);
    let meter = Meter::new(&stop);
    let found = expression.evaluate_within(data.as_object().unwrap(), &meter);
    assert_eq!(found, Evaluation::TimedOut("it takes more than 10 s".to_owned()));
    assert!(meter.work() < 10_000, "{}", meter.work());
}

/// A reader of a manifest's status may not read the Secrets of its cluster.
#[test]
fn no_message_quotes_a_value() {
    let secret = "hunter2-(correct-horse";
    let data = json!({"object": {"data": {"password": secret, "list": [secret], "number": 8273645}}});
    for text in [
        "object.data.password > 1",
        "object.data.password + 1 == 2",
        "1 + object.data.password == 2",
        "object.data.password && true",
        "object.data.password ? true : false",
        "!object.data.password",
        "-object.data.password == 1",
        "object.data.password.field == 1",
        "has(object.data.password.field)",
        "int(object.data.password) == 1",
        "uint(object.data.password) == 1u",
        "double(object.data.password) == 1.0",
        "bool(object.data.password)",
        "timestamp(object.data.password) > timestamp(0)",
        "duration(object.data.password) > duration('1s')",
        "timestamp(0).getHours(object.data.password) == 1",
        "'a'.matches(object.data.password)",
        "{'a': 1}[object.data.password] == 1",
        "object[object.data.password] == 1",
        "object.data.list[object.data.password] == 1",
        "object.data.list[object.data.number] == 1",
        "object.data.number / 0 == 1",
        "object.data.number % 0 == 1",
        "object.data.number * 9223372036854775807 == 1",
        "object.data in object.data.password",
        "object.data in object.data",
        "object.data.all(k, object.data[k] > 1)",
        "object.data.password.all(x, true)",
        "{object.data.list: 1} == {}",
        "{object.data.password: 1, object.data.password: 2} == {}",
        "object.data < object.data",
        "object.data - object.data == 1",
        "size(object.data.number) == 1",
        "object.data.password.size(object.data.password) == 1",
        "object.data.list.contains(object.data.password)",
        "object.data.getHours() == 1",
        "string(object.data) == ''",
        "bytes(object.data.number) == b''",
        "object.data.nothing == object.data.password",
        "object.data.password",
    ] {
        let found = evaluate(text, data.clone());
        assert!(!matches!(found, Evaluation::Value(_)), "{text}: {found:?}");
        let message = format!("{found:?}");
        for part in ["hunter", "correct", "horse", "8273645"] {
            assert!(!message.contains(part), "{text}: {message}");
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_compiler_panic(text in "[a-z0-9 .()\\[\\]{}'\"&|!=<>+,?:-]{0,60}") {
        let _ = Expression::compile(&text, &NAMES);
    }
}

/// Expressions over small data, so that the interpreter of the library can evaluate them too.
fn expressions(hostile: bool) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("0"),
        Just("1"),
        Just("2u"),
        Just("1.5"),
        Just("-3"),
        Just("true"),
        Just("false"),
        Just("null"),
        Just("'a'"),
        Just("'bb'"),
        Just("b'c'"),
        Just("[]"),
        Just("[1, 2, 3]"),
        Just("{'a': 1}"),
        Just("{1: 'x'}"),
        Just("nodes"),
        Just("cluster"),
        Just("object.spec"),
        Just("object.gone"),
        Just("x"),
        Just("y"),
        Just("timestamp('2026-01-02T03:04:05Z')"),
        Just("duration('90s')"),
        Just("int"),
        Just("string"),
    ]
    .prop_map(str::to_owned);
    leaf.prop_recursive(6, 48, 4, move |inner| {
        let operators = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in",
        ]);
        let methods = prop::sample::select(vec![
            "size()",
            "startsWith('a')",
            "endsWith('b')",
            "contains('a')",
            "matches('^a+$')",
            "getHours()",
            "getFullYear()",
            "name",
            "all(x, true)",
        ]);
        let functions = prop::sample::select(vec![
            "size",
            "int",
            "uint",
            "double",
            "string",
            "bytes",
            "bool",
            "type",
            "dyn",
            "timestamp",
            "duration",
        ]);
        let loops = prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter"]);
        let lists = if hostile {
            vec!["nodes", "[0, 1, 2, 3, 4, 5, 6, 7]"]
        } else {
            vec!["[1, 2]", "{'a': 1}", "nodes"]
        };
        let lists = prop::sample::select(lists);
        prop_oneof![
            (inner.clone(), operators, inner.clone()).prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            (inner.clone(), methods).prop_map(|(a, m)| format!("{a}.{m}")),
            (functions, inner.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            inner.clone().prop_map(|a| format!("!{a}")),
            inner.clone().prop_map(|a| format!("has({a}.name)")),
            (lists.clone(), loops, prop_oneof![Just("x"), Just("y")], inner.clone())
                .prop_map(|(l, f, v, a)| format!("{l}.{f}({v}, {a})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("{a}.map(x, {b})")),
        ]
    })
}

/// Evaluates with the interpreter of the library.
fn library_result(text: &str, data: &Value) -> Result<Option<bool>, ()> {
    let mut context = cel::Context::default();
    for (name, value) in data.as_object().unwrap() {
        context.add_variable_from_value(name.as_str(), to_cel(value));
    }
    match cel::Program::compile(text).unwrap().execute(&context) {
        Ok(cel::Value::Bool(truth)) => Ok(Some(truth)),
        Ok(_) => Ok(None),
        Err(_) => Err(()),
    }
}

fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(it) => cel::Value::Bool(*it),
        Value::Number(it) => cel::Value::Int(it.as_i64().unwrap()),
        Value::String(it) => cel::Value::String(Arc::new(it.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), to_cel(value)));
            members.collect::<std::collections::HashMap<_, _>>().into()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 200_000, ..ProptestConfig::with_cases(400) })]

    /// The semantics are those of the library.
    #[test]
    fn the_results_are_those_of_the_library(text in expressions(false)) {
        let data = json!({"cluster": {"name": "a", "n": 2}, "nodes": [{"name": "a"}, {"name": "b"}],
            "object": {"spec": {"name": 1}}});
        let compiled = Expression::compile(&text, &NAMES);
        prop_assume!(compiled.is_ok());
        let stop = AtomicBool::new(false);
        let result = compiled.unwrap().evaluate(data.as_object().unwrap(), &stop);
        match library_result(&text, &data) {
            Ok(Some(truth)) => prop_assert_eq!(result, Evaluation::Value(truth)),
            Ok(None) => prop_assert_eq!(result, Evaluation::Invalid("it is neither true nor false".to_owned())),
            Err(()) => prop_assert!(matches!(result, Evaluation::Undetermined(_)), "{:?}", result),
        }
    }

    #[test]
    fn no_expression_costs_more_than_its_limits(text in expressions(true)) {
        let nodes: Vec<Value> = (0..400).map(|n| json!({"name": format!("node-{n}"), "all": [n, n, n]})).collect();
        let data = json!({"cluster": {"name": "a"}, "nodes": nodes, "object": {"spec": {"name": "x".repeat(10_000)}}});
        if let Ok(expression) = Expression::compile(&text, &NAMES) {
            let stop = AtomicBool::new(false);
            let meter = Meter::new(&stop);
            let _ = expression.evaluate_within(data.as_object().unwrap(), &meter);
            prop_assert!(meter.work() <= 2 * WORK_MAX, "{}", meter.work());
            prop_assert!(meter.peak() <= MEMORY_MAX, "{}", meter.peak());
        }
    }
}
