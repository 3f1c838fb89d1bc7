//! No JSON makes the functions panic, and defaults are complete after one pass.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::webhooks::facts::{Architecture, Platform, PlatformFacts};
use crate::webhooks::{WebhookKind, defaults, validate};

/// Names of fields that are read somewhere, so that arbitrary values meet the code behind them.
const NAMES: &[&str] = &[
    "metadata",
    "labels",
    "finalizers",
    "deletionTimestamp",
    "spec",
    "template",
    "selector",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "replicas",
    "providerSpec",
    "value",
    "lifecycleHooks",
    "preDrain",
    "name",
    "owner",
    "namespace",
    "userDataSecret",
    "credentialsSecret",
    "image",
    "osDisk",
    "dataDisks",
    "diskSizeGB",
    "lun",
    "nameSuffix",
    "securityProfile",
    "settings",
    "disks",
    "gpus",
    "count",
    "type",
    "networkInterfaces",
    "placement",
    "host",
    "dedicatedHost",
    "tags",
    "blockDevices",
    "ebs",
    "workspace",
    "network",
    "devices",
    "memorySize",
    "processors",
    "memoryGiB",
    "capacityReservationGroupID",
];

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop_oneof!["In", "master", "Dynamic", "host", "1Gi", "/a/b"].prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let name = prop_oneof![4 => proptest::sample::select(NAMES).prop_map(str::to_owned), 1 => ".{0,6}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(name, inner, 0..6)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn arbitrary_facts() -> impl Strategy<Value = PlatformFacts> {
    let platform = proptest::sample::select(&[
        Platform::Aws,
        Platform::Azure,
        Platform::Gcp,
        Platform::VSphere,
        Platform::Nutanix,
        Platform::PowerVs,
        Platform::Other,
    ]);
    (platform, proptest::option::of(".{0,8}"), any::<bool>()).prop_map(|(platform, cluster_id, flag)| {
        PlatformFacts {
            platform,
            cluster_id,
            region: flag.then(|| "r1".to_owned()),
            is_azure_government: flag,
            is_dns_disconnected: flag,
            architecture: if flag { Architecture::Arm64 } else { Architecture::Amd64 },
            feature_gates: Default::default(),
        }
    })
}

fn arbitrary_kind() -> impl Strategy<Value = WebhookKind> {
    proptest::sample::select(&[
        WebhookKind::Machine,
        WebhookKind::MachineSet,
        WebhookKind::MachineHealthCheck,
    ])
}

/// An object of which a part is as it should be, so that the rest is reached.
fn arbitrary_object() -> impl Strategy<Value = Value> {
    prop_oneof![
        arbitrary_json(),
        arbitrary_json()
            .prop_map(|value| json!({"metadata": {}, "spec": {"providerSpec": {"value": value}}})),
        (arbitrary_json(), arbitrary_json()).prop_map(|(value, selector)| json!({
            "spec": {"selector": selector, "template": {"spec": {"providerSpec": {"value": value}}}}
        })),
        (arbitrary_json(), arbitrary_json()).prop_map(|(value, conditions)| json!({
            "spec": {"nodeStartupTimeout": value, "unhealthyConditions": [conditions, {"timeout": value}]}
        })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_json_makes_a_rule_panic(
        kind in arbitrary_kind(), facts in arbitrary_facts(),
        old in proptest::option::of(arbitrary_object()), new in arbitrary_object()
    ) {
        let verdict = validate(kind, old.as_ref(), &new, &facts);
        prop_assert_eq!(verdict.refusal().is_none(), verdict.errors.is_empty());
        prop_assert_eq!(validate(kind, old.as_ref(), &new, &facts), verdict);
    }

    #[test]
    fn defaults_can_be_applied_and_are_complete(
        kind in arbitrary_kind(), facts in arbitrary_facts(), mut object in arbitrary_object()
    ) {
        if let Ok(patch) = defaults(kind, &object, &facts) {
            json_patch::patch(&mut object, &patch).unwrap();
            let again = defaults(kind, &object, &facts).unwrap();
            prop_assert!(again.0.is_empty(), "{}", again);
        }
    }
}
