//! The alerts of the payload: read and played through by Prometheus's own tool, and about metrics that there are.

use std::path::Path;
use std::process::Command;

use machines::payload::{Release, manifests};
use serde_json::Value;
use testkit::{prerequisites, promtool};

fn rules() -> Value {
    let release = Release::new("shipshape:1", "1").unwrap();
    let found = manifests(&release).into_iter().find(|it| it.object["kind"] == "PrometheusRule");
    found.unwrap().object["spec"].clone()
}

#[test]
fn the_alerts_are_sound_and_fire_when_they_should() {
    let Some(promtool) = promtool::find() else {
        return prerequisites::skip(prerequisites::PROMTOOL, promtool::MISSING);
    };
    let directory = tempfile::tempdir().unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/machine-api/tests/alerts.yaml");
    std::fs::copy(tests, directory.path().join("tests.yaml")).unwrap();
    std::fs::write(directory.path().join("rules.yaml"), rules().to_string()).unwrap();
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]] {
        let output = Command::new(&promtool).args(arguments).current_dir(directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
    }
}

#[test]
fn every_alert_of_the_reference_has_severity_summary_and_description() {
    let rules = rules();
    let groups = rules["groups"].as_array().unwrap();
    let alerts: Vec<&Value> = groups.iter().flat_map(|it| it["rules"].as_array().unwrap()).collect();
    let names: Vec<&str> = alerts.iter().map(|it| it["alert"].as_str().unwrap()).collect();
    let expected = [
        "MachineWithoutValidNode",
        "MachineWithNoRunningPhase",
        "MachineNotYetDeleted",
        "MachineAPIOperatorMetricsCollectionFailing",
        "MachineHealthCheckUnterminatedShortCircuit",
        "MachineApiOperatorDown",
    ];
    assert_eq!(names, expected);
    for alert in alerts {
        let text =
            |pointer: &str| alert.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        assert!(!text("/labels/severity").is_empty() && !text("/annotations/summary").is_empty(), "{alert}");
        assert!(text("/annotations/description").len() > 80, "{alert}");
    }
}
