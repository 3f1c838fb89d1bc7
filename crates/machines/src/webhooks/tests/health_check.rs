//! MachineHealthChecks.

use serde_json::{Value, json};

use crate::webhooks::facts::PlatformFacts;
use crate::webhooks::{WebhookKind, defaults, validate};

fn warnings(spec: Value) -> Vec<String> {
    let check = json!({"spec": spec});
    assert!(
        defaults(WebhookKind::MachineHealthCheck, &check, &PlatformFacts::default()).unwrap().0.is_empty()
    );
    let verdict = validate(WebhookKind::MachineHealthCheck, None, &check, &PlatformFacts::default());
    assert_eq!(verdict.refusal(), None);
    verdict.warnings
}

#[test]
fn rule_15_a_duration_that_cannot_be_read_is_a_warning_and_no_refusal() {
    let detail = "must be a duration such as 300s or 1h30m; until it is one, nothing is remediated";
    assert_eq!(
        warnings(json!({
            "nodeStartupTimeout": "0soon",
            "unhealthyConditions": [{"timeout": "5m"}, {"timeout": "99999999999999999h"}],
        })),
        [
            format!("spec.nodeStartupTimeout: Invalid value: \"0soon\": {detail}"),
            format!("spec.unhealthyConditions[1].timeout: Invalid value: \"99999999999999999h\": {detail}"),
        ]
    );
    for spec in [
        json!({}),
        json!({"nodeStartupTimeout": "0"}),
        json!({"nodeStartupTimeout": "10m", "unhealthyConditions": [{"timeout": "1.5h"}]}),
    ] {
        assert_eq!(warnings(spec.clone()), Vec::<String>::new(), "{spec}");
    }
}
