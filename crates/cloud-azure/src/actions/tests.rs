//! Tests of the lists of actions.

use super::*;

#[test]
fn the_role_has_every_kind_of_resource_and_nothing_twice() {
    let actions = required_actions();
    assert!(actions.contains(&"Microsoft.Network/virtualNetworks/subnets/write".to_owned()));
    assert!(actions.contains(&"Microsoft.Resources/subscriptions/resourceGroups/delete".to_owned()));
    assert!(actions.windows(2).all(|pair| pair[0] < pair[1]));
    // A role that may do everything has no use for a list.
    assert!(!actions.iter().any(|it| it.contains('*')));
}

#[test]
fn what_only_preparation_needs_is_no_part_of_the_role() {
    for action in preparation_actions() {
        assert!(!required_actions().iter().any(|it| matches(action, it)), "{action}");
    }
}

#[test]
fn the_definition_has_the_members_that_az_reads() {
    let role = role_definition("Shipshape", &["/subscriptions/s".to_owned()]);
    assert_eq!(role["AssignableScopes"], json!(["/subscriptions/s"]));
    assert_eq!(role["IsCustom"], json!(true));
    assert_eq!(role["Actions"].as_array().unwrap().len(), required_actions().len());
}

#[test]
fn the_action_of_a_call_follows_from_its_path() {
    let check = |method: Method, path: &str, expect: &str| {
        assert_eq!(action_of(method, path).as_deref(), Some(expect));
    };
    let group = "/subscriptions/s/resourceGroups/g";
    check(Method::Put, group, "Microsoft.Resources/subscriptions/resourceGroups/write");
    check(
        Method::Get,
        &format!("{group}/resources"),
        "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
    );
    check(Method::Get, "/subscriptions/s/providers", "Microsoft.Resources/subscriptions/providers/read");
    check(
        Method::Post,
        "/subscriptions/s/providers/Microsoft.Compute/register",
        "Microsoft.Compute/register/action",
    );
    let feature = "/subscriptions/s/providers/Microsoft.Features/providers/Microsoft.Compute/features/f";
    check(Method::Get, feature, "Microsoft.Features/providers/features/read");
    check(
        Method::Post,
        &format!("{feature}/register"),
        "Microsoft.Features/providers/features/register/action",
    );
    let subnet = format!("{group}/providers/Microsoft.Network/virtualNetworks/v/subnets/s");
    check(Method::Delete, &subnet, "Microsoft.Network/virtualNetworks/subnets/delete");
    let permissions = format!("{subnet}/providers/Microsoft.Authorization/permissions");
    check(Method::Get, &permissions, "Microsoft.Authorization/permissions/read");
    let machine = format!("{group}/providers/Microsoft.Compute/virtualMachines/m/start");
    check(Method::Post, &machine, "Microsoft.Compute/virtualMachines/start/action");
}
