//! Bad input, case by case: the status, the code, the member, and that nothing was stored.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::fixture::{TASK, TestServer, admin, kubeconfig, manifest, manifests, task};

/// One bad request.
struct Case {
    what: &'static str,
    method: Method,
    path: String,
    body: Bytes,
    status: u16,
    code: &'static str,
    target: &'static str,
}

fn put(what: &'static str, path: String, body: Value, code: &'static str, target: &'static str) -> Case {
    raw(what, path, body.to_string().into(), code, target)
}

fn raw(what: &'static str, path: String, body: Bytes, code: &'static str, target: &'static str) -> Case {
    Case { what, method: Method::PUT, path, body, status: 400, code, target }
}

fn kubeconfig_with(from: &str, to: &str) -> Value {
    let text = kubeconfig();
    assert!(text.contains(from));
    json!({"kubeconfig": text.replace(from, to)})
}

fn cases() -> Vec<Case> {
    let orders = || manifests("one");
    let order = |more: Value| {
        let mut body = json!({"maintenanceTaskID": TASK});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let import = |name: &str| format!("{}/import", admin(name));
    let tasks =
        || "/admin/maintenancetasks/7f1d0a52-7a53-4a6b-9a0e-3a4f7a3b2c12?api-version=admin".to_owned();
    let with = |name: &str, value: Value| {
        let mut body = task();
        body["name"] = "another".into();
        body[name] = value;
        body
    };
    let step = |uses: &str, with_: Value| json!([{"uses": uses, "with": with_}]);
    let second = api::clock::Clock::now(&api::clock::SystemClock).as_second();
    const PARAMETER: &str = "InvalidParameter";
    const CONTENT: &str = "InvalidRequestContent";
    vec![
        put("no task", orders(), json!({}), PARAMETER, "maintenanceTaskID"),
        put(
            "unknown task",
            orders(),
            json!({"maintenanceTaskID": "9b741734-6505-447f-8510-85eb0ae561ff"}),
            PARAMETER,
            "maintenanceTaskID",
        ),
        put(
            "a task by name",
            orders(),
            json!({"maintenanceTaskID": "wait-a-moment"}),
            PARAMETER,
            "maintenanceTaskID",
        ),
        put(
            "a hostile task id",
            orders(),
            json!({"maintenanceTaskID": "' or 1=1 --\u{0}"}),
            PARAMETER,
            "maintenanceTaskID",
        ),
        put(
            "runBefore before runAfter",
            orders(),
            order(json!({"runAfter": second + 100, "runBefore": second + 50})),
            PARAMETER,
            "runBefore",
        ),
        put(
            "runBefore at runAfter",
            orders(),
            order(json!({"runAfter": second + 100, "runBefore": second + 100})),
            PARAMETER,
            "runBefore",
        ),
        put(
            "runBefore in the past",
            orders(),
            order(json!({"runBefore": second - 50})),
            PARAMETER,
            "runBefore",
        ),
        put("runAfter beyond time", orders(), order(json!({"runAfter": i64::MAX})), PARAMETER, "runAfter"),
        put("runAfter in words", orders(), order(json!({"runAfter": "tomorrow"})), PARAMETER, "runAfter"),
        put(
            "priority out of range",
            orders(),
            order(json!({"priority": 3_000_000_000_u64})),
            PARAMETER,
            "priority",
        ),
        put("priority broken", orders(), order(json!({"priority": 1.5})), PARAMETER, "priority"),
        put(
            "parameters of the wrong type",
            orders(),
            order(json!({"parameters": {"long": 3}})),
            PARAMETER,
            "parameters.long",
        ),
        put(
            "unknown parameter",
            orders(),
            order(json!({"parameters": {"wide": 3}})),
            PARAMETER,
            "parameters.wide",
        ),
        put("parameters no object", orders(), order(json!({"parameters": []})), PARAMETER, "parameters"),
        put(
            "reason with control characters",
            orders(),
            order(json!({"reason": "a\u{1b}[31m"})),
            PARAMETER,
            "reason",
        ),
        put("reason too long", orders(), order(json!({"reason": "x".repeat(5000)})), PARAMETER, "reason"),
        put(
            "dryRun neither true nor false",
            format!("{}&dryRun=maybe", orders()),
            order(json!({})),
            PARAMETER,
            "dryRun",
        ),
        raw("null body", orders(), "null".into(), CONTENT, ""),
        raw("empty body", orders(), "".into(), CONTENT, ""),
        raw("bad JSON", orders(), "{".into(), CONTENT, ""),
        raw("a list", orders(), "[]".into(), CONTENT, ""),
        raw(
            "invalid UTF-8",
            orders(),
            Bytes::from_static(b"{\"maintenanceTaskID\":\"\xff\xfe\"}"),
            CONTENT,
            "",
        ),
        raw(
            "a member twice",
            orders(),
            format!("{{\"maintenanceTaskID\":\"{TASK}\",\"maintenanceTaskID\":\"{TASK}\"}}").into(),
            CONTENT,
            "",
        ),
        raw(
            "10 MB",
            orders(),
            format!("{{\"reason\":\"{}\"}}", "x".repeat(10_000_000)).into(),
            "InvalidResource",
            "",
        ),
        raw("deep nesting", orders(), "[".repeat(500_000).into(), CONTENT, ""),
        put(
            "no api-version",
            orders().replace("?api-version=admin", ""),
            order(json!({})),
            "InvalidApiVersionParameter",
            "api-version",
        ),
        put(
            "wrong api-version",
            orders().replace("admin?", "x?").replace("=admin", "=2025-07-25"),
            order(json!({})),
            "InvalidApiVersionParameter",
            "api-version",
        ),
        Case { status: 404, ..put("unknown cluster", manifests("nobody"), order(json!({})), "NotFound", "") },
        put("a hostile cluster name", manifests("a%00b"), order(json!({})), "ResourceNotFound", ""),
        put(
            "a hostile group",
            manifests("one").replace("imported", "..%2f..%2fetc"),
            order(json!({})),
            "ResourceGroupNotFound",
            "",
        ),
        Case {
            method: Method::POST,
            ..raw(
                "cancel with unknown members",
                manifest("one", "x/cancel"),
                "{\"force\":true}".into(),
                PARAMETER,
                "force",
            )
        },
        put("no kubeconfig", import("new"), json!({}), PARAMETER, "kubeconfig"),
        put(
            "a kubeconfig that is none",
            import("new"),
            json!({"kubeconfig": "hello"}),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "a kubeconfig that runs a program",
            import("new"),
            kubeconfig_with("{token: secret}", "{exec: {apiVersion: x, command: rm}}"),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "a kubeconfig that reads a file",
            import("new"),
            kubeconfig_with("{token: secret}", "{tokenFile: /etc/shadow}"),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "a kubeconfig with a key in a file",
            import("new"),
            kubeconfig_with("{token: secret}", "{client-certificate: /a, client-key: /b}"),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "a kubeconfig with a provider",
            import("new"),
            kubeconfig_with("{token: secret}", "{auth-provider: {name: gcp, config: {}}}"),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "a kubeconfig with a proxy",
            import("new"),
            kubeconfig_with("6443'}", "6443', proxy-url: 'http://x'}"),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "a kubeconfig without trust",
            import("new"),
            kubeconfig_with("6443'}", "6443', insecure-skip-tls-verify: true}"),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "a kubeconfig over plain HTTP",
            import("new"),
            kubeconfig_with("https://", "http://"),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "another context",
            import("new"),
            json!({"kubeconfig": kubeconfig(), "context": "b"}),
            PARAMETER,
            "kubeconfig",
        ),
        put(
            "a place that nobody has",
            import("new"),
            json!({"kubeconfig": kubeconfig(), "location": "moon"}),
            "InvalidLocation",
            "location",
        ),
        put(
            "a label that is no word",
            import("new"),
            json!({"kubeconfig": kubeconfig(), "labels": {"a b": "c"}}),
            PARAMETER,
            "labels.a b",
        ),
        put(
            "a label that is no text",
            import("new"),
            json!({"kubeconfig": kubeconfig(), "labels": {"a": 1}}),
            PARAMETER,
            "labels.a",
        ),
        put(
            "an unknown member",
            import("new"),
            json!({"kubeconfig": kubeconfig(), "lables": {}}),
            PARAMETER,
            "lables",
        ),
        put(
            "too many labels",
            format!("{}/labels", admin("one")),
            Value::Object((0..100).map(|n| (n.to_string(), "".into())).collect()),
            PARAMETER,
            "",
        ),
        put(
            "an unknown kind of step",
            tasks(),
            with("steps", step("shell", json!({}))),
            PARAMETER,
            "steps[0].uses",
        ),
        put(
            "a step with an unknown member",
            tasks(),
            with("steps", step("pause", json!({"duration": "1s", "x": 1}))),
            PARAMETER,
            "steps[0].with.x",
        ),
        put(
            "a step without what it needs",
            tasks(),
            with("steps", step("pause", json!({}))),
            PARAMETER,
            "steps[0].with.duration",
        ),
        put(
            "bad CEL",
            tasks(),
            with("steps", step("assert", json!({"that": "1 +"}))),
            PARAMETER,
            "steps[0].with.that",
        ),
        put("a bad name", tasks(), with("name", "Not Kebab".into()), PARAMETER, "name"),
        put(
            "a bad schema",
            tasks(),
            with("parameters", json!({"type": "nonsense"})),
            PARAMETER,
            "parameters",
        ),
        put(
            "ten thousand steps",
            tasks(),
            with("steps", json!(vec![json!({"uses": "pause", "with": {"duration": "1s"}}); 10_000])),
            PARAMETER,
            "steps",
        ),
        put("no steps", tasks(), with("steps", json!([])), PARAMETER, "steps"),
        put("an unknown member of a task", tasks(), with("stpes", json!([])), PARAMETER, "stpes"),
        put("another id in the body", tasks(), with("id", TASK.into()), PARAMETER, "id"),
        put(
            "an id that is none",
            "/admin/maintenancetasks/my-task?api-version=admin".to_owned(),
            task(),
            PARAMETER,
            "id",
        ),
    ]
}

#[tokio::test]
async fn bad_input_is_rejected_with_status_code_and_target_and_nothing_is_stored() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let place = server.store.feed_end().await.unwrap();
    let mut wrong = Vec::new();
    for case in cases() {
        let reply = server.send(case.method, &case.path, &[], Some(case.body)).await;
        let expect = (case.status, case.code.to_owned(), case.target.to_owned());
        if reply.error() != expect {
            wrong.push(format!("{}: expected {expect:?}, found {}", case.what, reply.text));
        }
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        if !message.ends_with('.') && !message.ends_with("not found") || message.contains("secret") {
            wrong.push(format!("{}: {message:?} is no clear sentence", case.what));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(server.store.feed_end().await.unwrap(), place, "something was stored");
    server.close().await;
}

#[tokio::test]
async fn yaml_that_expands_without_limit_is_rejected() {
    let server = TestServer::open().await;
    let path = format!("/admin/maintenancetasks/{TASK}?api-version=admin");
    let place = server.store.feed_end().await.unwrap();
    let mut bomb = "name: a\ntitle: a\nx0: &x0 [a,a,a,a,a,a,a,a,a,a]\n".to_owned();
    for level in 1..10 {
        let below = format!("*x{},", level - 1).repeat(10);
        bomb.push_str(&format!("x{level}: &x{level} [{}]\n", below.trim_end_matches(',')));
    }
    for body in [bomb.as_str(), "name: &a [*a]\n", "a: 1\na: 2\n", ": : :", "", "- a\n", "\u{feff}null"] {
        let headers = [("content-type", "application/yaml")];
        let reply = server.send(Method::PUT, &path, &headers, Some(body.to_owned().into())).await;
        assert_eq!(reply.error().0, 400, "{body:.60}");
    }
    assert_eq!(server.store.feed_end().await.unwrap(), place);
    server.close().await;
}

#[tokio::test]
async fn bad_pages_are_rejected() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let paths = [
        manifests("one"),
        manifest("one", "x/history"),
        "/admin/maintenancemanifests?api-version=admin".to_owned(),
        "/admin/maintenancemanifests/queued?api-version=admin".to_owned(),
        "/admin/providers/microsoft.redhatopenshift/openshiftclusters?".to_owned(),
    ];
    for path in paths {
        for (query, target) in [
            ("limit=0", "limit"),
            ("limit=-1", "limit"),
            ("limit=many", "limit"),
            ("limit=99999999999", "limit"),
            ("limit=1&limit=2", "limit"),
            ("$skipToken=nonsense", "$skipToken"),
            ("%24skipToken=%00", "$skipToken"),
        ] {
            let found = server.get(&format!("{path}&{query}")).await.error();
            assert_eq!(found, (400, "InvalidParameter".to_owned(), target.to_owned()), "{path} {query}");
        }
    }
    server.close().await;
}
