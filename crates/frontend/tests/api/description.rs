//! The OpenAPI document, and the conformance of the API to it, checked by schemathesis.

use std::path::Path;
use std::process::Stdio;

use api::doc::ProvisioningState;
use serde_json::{Value, json};
use testkit::{prerequisites, schemathesis};
use tokio::process::Command;

use crate::arm;
use crate::fixture::{SUBSCRIPTION, TASK, TestServer};

/// Checks of every response: no server error, and the documented status, type and schema.
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

#[tokio::test]
async fn the_openapi_document_has_every_route_and_every_error() {
    let server = TestServer::open().await;
    let reply = server.get("/openapi.json").await.expect(200);
    assert_eq!(reply.header("content-type"), "application/json");
    let document = reply.json();
    assert!(document["components"]["securitySchemes"]["certificate"].is_object());
    assert!(document["components"]["securitySchemes"]["token"].is_object());
    let mut ids = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let roots = ["/admin/", "/subscriptions/", "/providers/"];
        assert!(roots.iter().any(|root| path.starts_with(root)), "{path}");
        for (method, operation) in item.as_object().unwrap() {
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
            let responses = &operation["responses"];
            for status in ["400", "403", "500", "503"] {
                let shape = &responses[status]["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(shape, "#/components/schemas/ErrorEnvelope", "{method} {path} {status}");
            }
            let named = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
            for name in path.split(['{', '}']).skip(1).step_by(2) {
                assert!(
                    named.iter().any(|it| it["name"] == name && it["in"] == "path"),
                    "{method} {path}: {name}"
                );
            }
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "operation ids are unique");
    server.close().await;
}

/// The document with ids of existing objects, so that not every response is "not found".
fn with_real_ids(mut document: Value, clusters: &Value) -> Value {
    let mut known = json!({
        "task": [TASK, "wait-a-moment", "8f1d0a52-7a53-4a6b-9a0e-3a4f7a3b2c13"],
        "scheduleId": ["nightly"],
        "key": ["fleet", "region%2Fwest"],
        "scope": ["region"],
        "name": ["west"],
        "location": ["local"],
        "openShiftVersion": ["4.20.3"],
        "openShiftMinorVersion": ["4.20"],
    });
    known.as_object_mut().unwrap().extend(clusters.as_object().unwrap().clone());
    for item in document["paths"].as_object_mut().unwrap().values_mut() {
        for operation in item.as_object_mut().unwrap().values_mut() {
            let Some(Value::Array(parameters)) = operation.get_mut("parameters") else { continue };
            for parameter in parameters.iter_mut().filter(|it| it["in"] == "path") {
                let name = parameter["name"].as_str().unwrap().to_owned();
                if let Some(values) = known.get(&name) {
                    parameter["schema"] = json!({"type": "string", "enum": values});
                }
            }
        }
    }
    document
}

async fn run(program: &Path, server: &TestServer, document: &Path, examples: u32) {
    // One worker: with more, Python's parser fails occasionally.
    // Event streams do not end, so that their responses are never complete.
    let output = Command::new(program)
        .args(["run", "--url", &server.url, "--checks", CHECKS, "--exclude-path", "/admin/events"])
        // None of these clusters is reachable, for which a server error is correct.
        .args(["--exclude-path-regex", "/kubernetesobjects$"])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", &examples.to_string()])
        .args(["--seed", "7", "--request-timeout", "20", "--suppress-health-check", "all", "--no-color"])
        .args(["--max-failures", "20", "--workers", "1", "--warnings", "off"])
        .arg(document)
        // It writes files into its working directory.
        .current_dir(document.parent().unwrap())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{complaint}");
    assert!(text.contains("passed"), "{text}\n{complaint}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis_finds_no_server_error_and_no_undocumented_response() {
    let Some(program) = schemathesis::find() else {
        return prerequisites::skip(prerequisites::SCHEMATHESIS, schemathesis::MISSING);
    };
    let server = TestServer::open().await;
    server.prepare("one").await;
    server.prepare("two").await;
    // A registered subscription, so that bodies are validated.
    let subscription = json!({"state": "Registered"});
    server.put(&format!("/subscriptions/{SUBSCRIPTION}?api-version=2.0"), &subscription).await.expect(201);
    frontend::seed_defaults(&server.store, &store::AuditContext::service("test")).await.unwrap();
    let manifest = server.request_task("one", json!({})).await.to_string();
    // Provisioned clusters: one that succeeded, and one that is being created.
    server.register().await;
    for name in ["ours", "making"] {
        server.put(&arm::at(name, arm::NEW), &arm::body(name)).await.expect(201);
    }
    let operation = server.cluster("ours").await.operation.unwrap().to_string();
    server.settle("ours", ProvisioningState::Succeeded, None).await;
    let place = tempfile::tempdir().unwrap();
    let document = server.get("/openapi.json").await.expect(200).json();
    let as_it_is = place.path().join("openapi.json");
    std::fs::write(&as_it_is, document.to_string()).unwrap();
    run(&program, &server, &as_it_is, 3).await;
    let imported = json!({
        "subscriptionId": [SUBSCRIPTION],
        "resourceGroupName": ["imported"],
        "resourceName": ["one", "two"],
        "manifestId": [manifest],
        "operationId": ["22222222-2222-2222-2222-222222222222"],
    });
    let made = json!({
        "subscriptionId": [arm::SUBSCRIPTION],
        "resourceGroupName": ["MyGroup"],
        "resourceName": ["ours", "making"],
        "manifestId": [manifest],
        "operationId": [operation],
    });
    for (name, clusters) in [("imported.json", imported), ("made.json", made)] {
        let real = place.path().join(name);
        std::fs::write(&real, with_real_ids(document.clone(), &clusters).to_string()).unwrap();
        run(&program, &server, &real, 6).await;
    }
    server.close().await;
}
