use serde_json::json;

use super::*;

fn task(steps: Value) -> Value {
    json!({"name": "demo", "title": "A demonstration", "steps": steps,
        "parameters": {"type": "object", "properties": {"wait": {"type": "string"}, "count": {"type": "integer", "default": 3}}}})
}

fn error_of(value: Value) -> String {
    let form = match read(value.to_string().as_bytes(), Format::Json) {
        Ok(form) => form,
        Err(problem) => return problem.to_string(),
    };
    check(&form).expect_err(&value.to_string()).to_string()
}

fn error_of_step(step: Value) -> String {
    error_of(task(json!([{"uses": "pause", "with": {"duration": "1s"}}, step])))
}

#[test]
fn a_valid_task_is_accepted_and_names_its_steps() {
    let form = task(json!([
        {"uses": "pause", "with": {"duration": "${{ parameters.wait }}"}},
        {"name": "steady", "uses": "assert", "with": {"that": "nodes.all(n, n.ready) && parameters.count > 2"}},
        {"name": "map", "uses": "kubernetes/apply", "with": {"manifests": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${{ parameters.wait }}\n"},
         "undo": {"uses": "kubernetes/delete", "with": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}},
    ]));
    let form = read(form.to_string().as_bytes(), Format::Json).unwrap();
    let definition = check(&form).unwrap();
    assert_eq!(definition.step_names(), ["pause", "steady", "map"]);
    let again = Definition::from_document(&definition.at_version(7).document()).unwrap();
    assert_eq!((again.version(), again.form().steps.len()), (7, 3));
    let thawed = Definition::from_snapshot(&again.snapshot()).unwrap();
    assert_eq!(thawed.form(), again.form());
}

#[test]
fn errors_of_a_step_name_the_invalid_member() {
    let check = |step: Value, expect: &str| {
        let found = error_of_step(step.clone());
        assert!(found.starts_with(expect), "{step}: {found}");
    };
    check(
        json!({"uses": "kubernetes/aply"}),
        "steps[1].uses: \"kubernetes/aply\" is not a kind of step; there are pause,",
    );
    check(
        json!({"uses": "pause", "name": "p", "with": {"duration": "5 minutes"}}),
        "steps[1].with.duration: \"5 minutes\" is not a duration",
    );
    check(
        json!({"uses": "pause", "name": "p", "with": {"duration": 5}}),
        "steps[1].with.duration: a text is expected",
    );
    check(
        json!({"uses": "pause", "name": "p", "with": {"duraton": "5s"}}),
        "steps[1].with.duration: duration is required",
    );
    check(
        json!({"uses": "pause", "name": "p", "with": {"duration": "5s", "x": 1}}),
        "steps[1].with.x: x is not known here; there are duration",
    );
    check(
        json!({"uses": "pause", "name": "p", "with": {"duration": "5s"}, "timeout": "4s"}),
        "steps[1].timeout: the pause is longer than",
    );
    check(
        json!({"uses": "pause", "name": "p", "with": {"duration": "5s"}, "timeout": "4"}),
        "steps[1].timeout: \"4\" is not a duration",
    );
    check(
        json!({"uses": "pause", "name": "p", "with": {"duration": "5s"}, "retry": {"attempts": 0}}),
        "steps[1].retry.attempts: 0 attempts",
    );
    check(json!({"uses": "pause", "name": "p", "wiht": {}}), "steps[1].wiht: unknown field `wiht`");
    check(
        json!({"uses": "pause", "name": "P", "with": {"duration": "5s"}}),
        "steps[1].name: \"P\" is not a name",
    );
    check(
        json!({"uses": "pause", "with": {"duration": "5s"}}),
        "steps[1].name: steps[0] has the name pause too",
    );
    check(
        json!({"uses": "assert", "with": {"that": "nodes.all(n, "}}),
        "steps[1].with.that: it is not an expression in CEL at line 1",
    );
    check(
        json!({"uses": "assert", "with": {"that": "${{ parameters.wait }} > 1"}}),
        "steps[1].with.that: an expression names parameters by themselves",
    );
    check(
        json!({"uses": "assert", "with": {"that": "noeds.size() > 1"}}),
        "steps[1].with.that: noeds is not known",
    );
    check(
        json!({"uses": "kubernetes/wait", "with": {"apiVersion": "v1", "kind": "Pod", "selector": "a in (", "until": "true"}}),
        "steps[1].with.selector: \"a in (\" is not a label selector",
    );
    check(
        json!({"uses": "kubernetes/wait", "with": {"apiVersion": "v1", "kind": "Pod", "name": "x", "selector": "a", "until": "true"}}),
        "steps[1].with.selector: name and selector exclude each other",
    );
    check(
        json!({"uses": "kubernetes/wait", "with": {"apiVersion": "v1", "kind": "Pod", "name": "x/../y", "until": "true"}}),
        "steps[1].with.name: \"x/../y\" is not the name",
    );
    check(
        json!({"uses": "kubernetes/wait", "with": {"apiVersion": "v1", "kind": "Pod", "name": "x", "until": "objct.x"}}),
        "steps[1].with.until: objct is not known; there are object",
    );
    check(
        json!({"uses": "kubernetes/apply", "with": {"manifests": [{"kind": "ConfigMap"}]}}),
        "steps[1].with.manifests: document 1 has no apiVersion",
    );
    check(
        json!({"uses": "kubernetes/apply", "with": {"manifests": "a: [b"}}),
        "steps[1].with.manifests: it is not YAML at line",
    );
    check(
        json!({"uses": "kubernetes/patch", "with": {"apiVersion": "v1", "kind": "Pod", "name": "x", "patch": {}, "type": "magic"}}),
        "steps[1].with.type: \"magic\" is not a type of patch",
    );
    check(
        json!({"uses": "kubernetes/patch", "with": {"apiVersion": "v1", "kind": "Pod", "name": "x", "patch": {}, "type": "json"}}),
        "steps[1].with.patch: a JSON patch is a list",
    );
    check(
        json!({"uses": "kubernetes/restart", "with": {"kind": "Pod", "namespace": "x", "name": "x"}}),
        "steps[1].with.kind: \"Pod\" cannot be restarted",
    );
    check(
        json!({"uses": "kubernetes/job", "with": {"namespace": "x"}}),
        "steps[1].with.image: image is required",
    );
    check(
        json!({"uses": "kubernetes/job", "with": {"manifest": {"kind": "Pod"}}}),
        "steps[1].with.manifest: a Job of batch/v1 is expected",
    );
    check(json!({"uses": "node/drain", "with": {}}), "steps[1].with.node: node or selector is required");
    check(
        json!({"uses": "node/drain", "with": {"node": "a", "force": "yes"}}),
        "steps[1].with.force: true or false is expected",
    );
    check(
        json!({"uses": "node/cordon", "with": {"node": "${{ parameters.nod }}"}}),
        "steps[1].with.node: parameters.nod is not a parameter of the task (count, wait)",
    );
    check(
        json!({"uses": "node/cordon", "with": {"node": "a"}, "undo": [{"uses": "pause", "with": {"duration": "x"}}]}),
        "steps[1].undo[0].with.duration:",
    );
    let undo = json!({"uses": "pause", "with": {"duration": "1s"}, "undo": {"uses": "pause", "with": {"duration": "1s"}}});
    check(
        json!({"uses": "node/cordon", "with": {"node": "a"}, "undo": undo}),
        "steps[1].undo.undo: an undo cannot have an undo",
    );
    check(json!({"uses": "node/cordon", "with": ["node"]}), "steps[1].with: an object is expected");
}

#[test]
fn errors_of_a_task_name_the_invalid_member() {
    let check = |member: &str, value: Value, expect: &str| {
        let mut given = task(json!([{"uses": "pause", "with": {"duration": "1s"}}]));
        given[member] = value;
        let found = error_of(given);
        assert!(found.starts_with(expect), "{member}: {found}");
    };
    check("name", json!("My Task"), "name: \"My Task\" is not a name such as");
    check("name", json!("a--b"), "name: \"a--b\" is not a name");
    check("name", json!("restart-workload"), "name: restart-workload is the name of a built-in task");
    check("name", json!("5386a6d2-a5cd-4a76-adc6-fa479d43589d"), "name: a name must not look like an id");
    check("name", Value::Null, "name: invalid type: null");
    check("title", json!(""), "title: a title is required");
    check("titel", json!(""), "titel: unknown field `titel`");
    check("timeLimit", json!("0s"), "timeLimit: a task may take");
    check(
        "expectedDuration",
        json!("0s"),
        "expectedDuration: 0s is not accepted: it must be more than 0s and",
    );
    check(
        "expectedDuration",
        json!("31m"),
        "expectedDuration: 31m is not accepted: it must be more than 0s and at most the time limit, 30m",
    );
    check("steps", json!([]), "steps: a task has at least one step");
    check("steps", json!({}), "steps: invalid type");
    check("parameters", json!({"type": "array"}), "parameters: the schema's type must be object");
    check(
        "parameters",
        json!({"type": "object", "properties": {"a": {"type": "strin"}}}),
        "parameters.properties.a.type: it is not a JSON schema",
    );
    check(
        "parameters",
        json!({"properties": {"a": {"$ref": "https://example.invalid/x"}}}),
        "parameters: it is not a JSON schema",
    );
    check(
        "parameters",
        json!({"properties": {"a": {"type": "string", "pattern": "(?=x)x"}}}),
        "parameters: it is not a JSON schema",
    );
    check(
        "parameters",
        json!({"properties": {"a b": {}}}),
        "parameters.properties.a b: the name of a parameter",
    );
    check(
        "parameters",
        json!({"properties": {"a": {"type": "string", "default": 1}}}),
        "parameters.properties.a: the default does not match the schema",
    );
    check("requires", json!({"minimumVersion": "new"}), "requires.minimumVersion: \"new\" is not a version");
    check("requires", json!({"minimum": "1"}), "requires.minimum: unknown field");
    assert_eq!(error_of(json!(null)), "a task is an object with name, title and steps");
}

#[test]
fn ten_thousand_steps_are_rejected() {
    let steps: Vec<Value> = (0..10_000).map(|n| json!({"name": format!("s-{n}"), "uses": "pause"})).collect();
    assert_eq!(error_of(task(json!(steps))), "steps: the task has 10000 steps, and at most 100 are accepted");
}

#[test]
fn tasks_that_are_too_large_too_deep_or_not_text_are_rejected() {
    let found = |body: &[u8], format| read(body, format).unwrap_err().to_string();
    assert_eq!(
        found(&vec![b' '; BODY_MAX + 1], Format::Json),
        "the task has 1048577 bytes, and at most 1048576 are accepted"
    );
    assert_eq!(found(b"{\"name\": \"\xff\"}", Format::Json), "the task is not text in UTF-8");
    assert_eq!(found(b"  ", Format::Yaml), "the task is empty");
    assert!(found(b"{", Format::Json).starts_with("the task is not JSON: EOF"));
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let deep = task(json!([{"uses": "pause", "with": {"duration": deep}}]));
    assert_eq!(error_of(deep), "steps: the task is nested more than 64 deep");
    let flow = format!("name: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(found(flow.as_bytes(), Format::Yaml).starts_with("the task is not valid YAML"));
}

#[test]
fn exponential_anchors_are_rejected() {
    let mut bomb = "name: demo\ntitle: t\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let alias = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 10].join(", ")));
    }
    let found = read(bomb.as_bytes(), Format::Yaml).unwrap_err().to_string();
    assert!(found.starts_with("the task is not valid YAML"), "{found}");
    let recursive = "name: &a [*a]\ntitle: t\nsteps: []\n";
    assert!(read(recursive.as_bytes(), Format::Yaml).is_err());
    let fair = "name: demo\ntitle: t\nsteps:\n- name: a\n  uses: pause\n  with: &w {duration: 1s}\n- name: b\n  uses: pause\n  with: *w\n";
    let form = read(fair.as_bytes(), Format::Yaml).unwrap();
    assert_eq!(form.steps[1].with, json!({"duration": "1s"}));
    check(&form).unwrap();
}
