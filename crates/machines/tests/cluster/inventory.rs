//! The rules of the machine API and the tests that are named after them.

use std::path::Path;

/// A rule of the specification, and the beginning of the names of its tests. Rules that one test covers together are named in it.
const RULES: &[(&str, &str)] = &[
    ("3.1 1 and 5 gone and deleting", "rule_3_1_1_and_5"),
    ("3.1 2 authority", "rule_3_1_2"),
    ("3.1 3 validation", "rule_3_1_3"),
    ("3.1 4 finalizer", "rule_3_1_4"),
    ("3.1 6 Failed is final", "rule_3_1_6"),
    ("3.1 7 provider cannot be asked", "rule_3_1_7"),
    ("3.1 8 labels of the instance", "rule_3_1_8_"),
    ("3.1 8a failed refresh", "rule_3_1_8a"),
    ("3.1 8c not provisioned", "rule_3_1_8c"),
    ("3.1 8d Provisioned", "rule_3_1_8d"),
    ("3.1 8e Running", "rule_3_1_8e"),
    ("3.1 9 vanished instance", "rule_3_1_9"),
    ("3.1 10a phase before creation", "rule_3_1_10a"),
    ("3.1 10b failed creation", "rule_3_1_10b"),
    ("3.1 10c creation", "rule_3_1_10c"),
    ("3.2 1 phase Deleting", "rule_3_2_1"),
    ("3.2 2 to 4 finalizer, drain, hooks", "rule_3_2_2_to_4"),
    ("3.2 3 and 8 drained, finalizer removed", "rule_3_2_3_and_8"),
    ("3.2 5 deletion of the instance", "rule_3_2_5"),
    ("3.2 6 instance still there", "rule_3_2_6"),
    ("3.2 7 Node", "rule_3_2_7"),
    ("3.3 status", "rule_3_3"),
    ("3.4 phases", "rule_3_4"),
    ("4 when to drain, hooks, skipping, backoff, events", "rule_4_"),
    ("4 step 1 Node gone", "rule_4_1"),
    ("4 steps 2 and 3 control plane, cordon", "rule_4_2"),
    ("4 step 4 eviction", "rule_4_4"),
    ("5 actuator", "rule_5_"),
    ("6.1 orphaning, what counts", "rule_6_1_"),
    ("6.1 1 deleted set", "rule_6_1_1"),
    ("6.1 2 authority", "rule_6_1_2"),
    ("6.1 3 validation", "rule_6_1_3"),
    ("6.1 4 to 6 members", "rule_6_1_4_to_6"),
    ("6.1 5 adoption", "rule_6_1_5"),
    ("6.1 7 and 8 replicas, then status", "rule_6_1_7_and_8"),
    ("6.1 9 minReadySeconds", "rule_6_1_9"),
    ("6.2 scaling", "rule_6_2"),
    ("6.3 delete priority", "rule_6_3"),
    ("6.4 status", "rule_6_4"),
    ("7.1 1 and 4 metrics", "rule_7_1_1_"),
    ("7.1 2 pause", "rule_7_1_2"),
    ("7.1 3 and 6 targets and their verdicts", "rule_7_1_3_and_6"),
    ("7.1 5 nodeStartupTimeout", "rule_7_1_5"),
    ("7.1 7 counts", "rule_7_1_7"),
    ("7.1 8 maxUnhealthy", "rule_7_1_8"),
    ("7.1 9 short circuit", "rule_7_1_9"),
    ("7.1 10 remediationsAllowed", "rule_7_1_10"),
    ("7.1 11 gate", "rule_7_1_11"),
    ("7.1 12 withdrawal", "rule_7_1_12"),
    ("7.1 13 next check", "rule_7_1_13"),
    ("7.2 1 Failed", "rule_7_2_1"),
    ("7.2 2 to 5 starting", "rule_7_2_2_to_5"),
    ("7.2 6 Node missing", "rule_7_2_6"),
    ("7.2 7 and 8 conditions", "rule_7_2_7_and_8"),
    ("7.2 8 several conditions", "rule_7_2_8"),
    ("7.2 9 absent condition", "rule_7_2_9"),
    ("7.2 10 healthy", "rule_7_2_10"),
    ("7.3 ways of remediation, templates, control plane", "rule_7_3_"),
    ("7.3 1 annotation", "rule_7_3_1"),
    ("7.3 2 no controller", "rule_7_3_2"),
    ("7.3 3 and 4 deletion", "rule_7_3_3_and_4"),
    ("8 matching", "rule_8_a_match"),
    ("8 only InternalIP", "rule_8_only"),
    ("8 1 deleted Node", "rule_8_1"),
    ("8 2 readiness", "rule_8_2"),
    ("8 3 labels and annotations", "rule_8_3"),
    ("8 4 taints", "rule_8_4"),
    ("8 5 unchanged Node", "rule_8_5"),
    ("11 termination handler", "rule_11"),
    ("15 quirks", "rule_15"),
];

#[test]
fn every_rule_has_a_test_that_is_named_after_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Vec::new();
    for folder in ["src", "tests"] {
        collect(&root.join(folder), &mut names);
    }
    let has_test = |prefix: &str| names.iter().any(|name| name.contains(prefix));
    let missing: Vec<&str> =
        RULES.iter().filter(|(_, prefix)| !has_test(prefix)).map(|(rule, _)| *rule).collect();
    assert!(missing.is_empty(), "rules without a test: {missing:?}");
    let is_known = |name: &&String| RULES.iter().any(|(_, prefix)| name.contains(prefix));
    let unknown: Vec<&String> =
        names.iter().filter(|name| name.starts_with("rule_")).filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "tests of rules that are not listed: {unknown:?}");
}

/// The names of the functions below a folder whose name has a rule in it.
fn collect(folder: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let functions = text.lines().filter_map(|line| line.split_once("fn ")?.1.split('(').next());
            names.extend(functions.filter(|name| name.contains("rule_")).map(str::to_owned));
        }
    }
}
