//! The alerts: read by Prometheus's own tool, played through by it, and about metrics that there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::{prerequisites, promtool, wait_until};

use super::executable::{CommandOutput, Home};
use super::maintenance::{done, import_sim, walk_through};

/// The budgets are surveyed every so many seconds.
const PATIENCE: Duration = Duration::from_secs(120);

fn alerts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/alerts")
}

#[test]
fn the_alerts_are_sound_and_fire_when_they_should() {
    let Some(promtool) = promtool::find() else {
        return prerequisites::skip(prerequisites::PROMTOOL, promtool::MISSING);
    };
    for arguments in [["check", "rules", "shipshape.rules.yaml"], ["test", "rules", "tests.yaml"]] {
        let answer = CommandOutput::new(
            Command::new(&promtool).args(arguments).current_dir(alerts()).output().unwrap(),
        );
        assert_eq!(answer.code, Some(0), "{answer:?}");
    }
}

#[test]
fn every_metric_that_an_alert_names_is_exposed_by_the_process() {
    let home = Home::new();
    let _sim = home.sim(&["--clusters", "1", "--nodes", "1"]);
    let up = home.up(&[]);
    // A family without members is not exposed, so there must have been work and a limit.
    import_sim(&home, "harbour", 1);
    done(&home, &["task", "apply", "-f", &walk_through("cordon-node.yaml")]);
    done(&home, &["budget", "set", "fleet", "5"]);
    let run =
        ["task", "run", "cordon-node", "--cluster", "harbour", "-p", "node=worker-1", "-p", "pause=10ms"];
    done(&home, &[&run[..], &["--wait"]].concat());
    let metrics = wait_until("the limit is exposed", PATIENCE, || {
        let (status, text) = up.get("/metrics");
        assert_eq!(status, 200);
        let has = |name: &str| text.contains(name);
        (has("shipshape_actuator_budget_limit{") && has("shipshape_apiserver_reachability{")).then_some(text)
    });
    let metrics = metrics.unwrap();
    let names: BTreeSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let rules = std::fs::read_to_string(alerts().join("shipshape.rules.yaml")).unwrap();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let wanted: BTreeSet<&str> =
        rules.split(|c: char| !is_part(c)).filter(|word| word.starts_with("shipshape_")).collect();
    assert!(wanted.len() > 8, "{wanted:?}");
    for metric in wanted {
        let bare = ["_total", "_count", "_sum", "_bucket"]
            .into_iter()
            .find_map(|end| metric.strip_suffix(end))
            .unwrap_or(metric);
        let is_exposed = names.contains(metric) || names.contains(bare);
        assert!(is_exposed || is_collected(metric), "{metric} is not among {names:?}");
    }
}

/// Whether a collector of the monitor has this metric: one of conditions that the cluster of the test is not in is not exposed.
fn is_collected(metric: &str) -> bool {
    let collectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../monitor/src/collect");
    let name = format!("name: \"{}\"", metric.strip_prefix("shipshape_").unwrap_or(metric));
    std::fs::read_dir(collectors)
        .unwrap()
        .any(|file| std::fs::read_to_string(file.unwrap().path()).unwrap().contains(&name))
}

#[test]
fn every_alert_has_a_runbook() {
    let rules = std::fs::read_to_string(alerts().join("shipshape.rules.yaml")).unwrap();
    let rules: serde_json::Value = serde_saphyr::from_str(&rules).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    let alerts: Vec<_> = groups.iter().flat_map(|it| it["rules"].as_array().unwrap()).collect();
    assert!(alerts.len() >= 14);
    for alert in alerts {
        let runbook = alert["annotations"]["runbook"].as_str().unwrap_or_default();
        assert!(runbook.len() > 100, "{}", alert["alert"]);
        assert!(alert["labels"]["severity"].is_string() && alert["annotations"]["summary"].is_string());
    }
}
