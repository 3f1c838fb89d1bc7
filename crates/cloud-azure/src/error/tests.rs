//! Tests of errors: their reading and their classes.

use proptest::prelude::*;

use super::*;

const ID: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkSecurityGroups/n";

fn error(status: u16, body: &str) -> CloudError {
    let call = CallName { method: "PUT", subject: ID, principal: "app" };
    ServiceError::parse(status, body.as_bytes()).into_cloud_error(call)
}

fn coded(status: u16, code: &str, message: &str) -> CloudError {
    error(status, &serde_json::json!({"error": {"code": code, "message": message}}).to_string())
}

#[test]
fn codes_decide_the_class() {
    let busy =
        ["AnotherOperationInProgress", "RetryableError", "InvalidResourceReference", "PrincipalNotFound"];
    for (code, status) in busy.into_iter().zip([409, 429, 400, 400]) {
        assert!(matches!(coded(status, code, "m"), CloudError::Busy { .. }), "{code}");
    }
    assert!(matches!(coded(409, "Odd", "Please retry later."), CloudError::Busy { .. }));
    assert!(matches!(coded(409, "StorageAccountAlreadyTaken", "m"), CloudError::Conflict { .. }));
    assert!(matches!(coded(409, "ScopeLocked", "m"), CloudError::Locked { .. }));
    assert!(
        matches!(coded(409, "SkuNotAvailable", "m"), CloudError::Invalid { code, .. } if code == "SkuNotAvailable")
    );
    assert!(matches!(coded(400, "NicReservedForAnotherVm", "m"), CloudError::InUse { .. }));
    assert!(matches!(coded(412, "PreconditionFailed", "m"), CloudError::PreconditionFailed { .. }));
    assert!(matches!(coded(429, "TooManyRequests", "m"), CloudError::Throttled { .. }));
    assert!(matches!(
        coded(409, "OperationNotAllowed", "The VM is deallocated."),
        CloudError::Conflict { .. }
    ));
}

#[test]
fn a_quota_has_its_numbers() {
    let text = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. \
                Additional details - Location: westeurope, Current Limit: 10, Current Usage: 8, Additional Required: 44, \
                (Minimum) New Limit Required: 52.";
    let CloudError::Quota { quota, limit, used, wanted } = coded(409, "OperationNotAllowed", text) else {
        panic!("no quota")
    };
    assert_eq!((quota.as_str(), limit, used, wanted), ("cores", 10, 8, 44));
    assert!(
        matches!(coded(409, "QuotaExceeded", "Too many cores."), CloudError::Invalid { code, .. } if code == "QuotaExceeded")
    );
}

#[test]
fn the_user_of_a_resource_is_found_in_the_message() {
    let nic = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/x";
    let text = format!(
        "Network security group {ID} cannot be deleted because it is in use by {nic}/ipConfigurations/pip-v4."
    );
    let CloudError::InUse { by, .. } = coded(400, "InUseNetworkSecurityGroupCannotBeDeleted", &text) else {
        panic!("not in use")
    };
    assert_eq!(by, nic);
}

#[test]
fn a_missing_right_names_principal_action_and_scope() {
    let text = "The client 'app-1' with object id 'o' does not have authorization to perform action \
                'Microsoft.Network/virtualNetworks/read' over scope '/subscriptions/s' or the scope is invalid.";
    let shown = coded(403, "AuthorizationFailed", text).to_string();
    assert_eq!(
        shown,
        "app-1 may not Microsoft.Network/virtualNetworks/read (AuthorizationFailed) on /subscriptions/s"
    );
}

#[test]
fn a_policy_is_named() {
    let body = r#"{"error":{"code":"RequestDisallowedByPolicy","message":"Resource was disallowed.\r\n","additionalInfo":
        [{"type":"PolicyViolation","info":{"policyAssignmentName":"tags-needed"}}]}}"#;
    let shown = error(403, body).to_string();
    assert!(
        shown.contains("forbidden by the policy tags-needed: RequestDisallowedByPolicy: Resource was"),
        "{shown}"
    );
}

#[test]
fn bodies_that_are_no_json_are_described() {
    let page = "<!DOCTYPE html><html><head><title>Sign in to Contoso proxy</title></head></html>";
    let shown = error(502, page).to_string();
    assert!(
        shown.contains("titled 'Sign in to Contoso proxy'") && shown.contains("check the address"),
        "{shown}"
    );
    assert!(error(503, "").to_string().contains("no body"));
    assert!(error(500, "{\"error\":{\"code\":\"Trunc").to_string().contains("neither JSON nor XML"));
    let xml = "<?xml version=\"1.0\"?><Error><Code>BlobNotFound</Code><Message>No blob.</Message></Error>";
    assert_eq!(ServiceError::parse(404, xml.as_bytes()).code, "BlobNotFound");
}

proptest! {
    #[test]
    fn any_body_gives_one_short_sentence(status in 0u16..700, body in proptest::collection::vec(any::<u8>(), 0..600)) {
        let error = ServiceError::parse(status, &body).into_cloud_error(CallName { method: "GET", subject: ID, principal: "app" });
        let shown = error.to_string();
        prop_assert!(shown.chars().count() < 1500 && !shown.contains('\n'));
    }

    #[test]
    fn no_message_carries_a_credential(secret in "[A-Za-z0-9_-]{24,80}", before in "[ -~]{0,40}", status in 400u16..600) {
        for text in [
            format!("{before} Authorization: Bearer {secret}"),
            format!("{before} client_secret={secret}&x=y"),
            format!("{before} https://a.b/c?sig={secret}&se=1"),
            format!("{before} \"access_token\": \"{secret}\""),
            format!("{before} eyJ{secret}.eyJ{secret}.{secret}"),
        ] {
            let body = serde_json::json!({"error": {"code": "Odd", "message": text}}).to_string();
            let error = ServiceError::parse(status, body.as_bytes());
            prop_assert!(!error.message.contains(&secret), "{}", error.message);
        }
    }
}

#[test]
fn codes_of_every_kind_have_their_class() {
    use api::error::{Class, Classify as _};
    let class = |status, code: &str, message: &str| coded(status, code, message).class();
    let transient = [
        (429, "RetryableError"),
        (409, "AnotherOperationInProgress"),
        (409, "CanceledAndSupersededDueToAnotherOperation"),
        (409, "ConflictingConcurrentWriteNotAllowed"),
        (409, "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity"),
        (400, "InvalidResourceReference"),
        (400, "PrincipalNotFound"),
        (400, "NicReservedForAnotherVm"),
        (400, "NicInUse"),
        (400, "InUseSubnetCannotBeDeleted"),
        (400, "InUseNetworkSecurityGroupCannotBeDeleted"),
        (400, "PublicIPAddressCannotBeDeleted"),
        (400, "CannotDeleteLoadBalancerWithPrivateLinkService"),
        (403, "AuthorizationFailed"),
        (403, "LinkedAuthorizationFailed"),
        (403, "DenyAssignmentAuthorizationFailed"),
        (409, "ResourceGroupBeingDeleted"),
        (412, "PreconditionFailed"),
        (408, "RequestTimeout"),
        (500, "InternalServerError"),
        (504, "GatewayTimeout"),
    ];
    for (status, code) in transient {
        assert_eq!(class(status, code, "m"), Class::Transient, "{code}");
        // An operation that ends in it is no different.
        if !matches!(status, 403 | 408 | 412 | 500..) {
            assert_eq!(class(0, code, "m"), Class::Transient, "{code}");
        }
    }
    let terminal = [
        (409, "SkuNotAvailable"),
        (409, "ZonalAllocationFailed"),
        (409, "MissingSubscriptionRegistration"),
        (409, "RoleAssignmentUpdateNotPermitted"),
        (400, "RoleAssignmentUpdateNotPermitted"),
        (409, "RoleAssignmentExists"),
        (409, "StorageAccountAlreadyTaken"),
        (403, "RequestDisallowedByPolicy"),
        (409, "ScopeLocked"),
        (404, "ResourceNotFound"),
        (400, "MissingApiVersionParameter"),
        (401, "InvalidAuthenticationToken"),
    ];
    for (status, code) in terminal {
        assert_eq!(class(status, code, "m"), Class::Terminal, "{code}");
    }
}

#[test]
fn a_detail_decides_where_the_code_is_general() {
    let body = serde_json::json!({"error": {"code": "RetryableError", "message": "A retryable error occurred.\r\n",
        "details": [{"code": "ReferencedResourceNotProvisioned", "message": "\"x\" is not in Succeeded state."}]}});
    assert!(
        matches!(error(429, &body.to_string()), CloudError::Busy { code, .. } if code == "RetryableError")
    );
    let failed = serde_json::json!({"status": "Failed", "error": {"code": "OperationFailed", "message": "m",
        "details": [{"code": "AllocationFailed"}]}});
    let failure = ServiceError::from_value(&failed).into_failure();
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("AllocationFailed", "m"));
    let bare = ServiceError::from_value(&serde_json::json!({"status": "Failed"})).into_failure();
    assert_eq!(bare.code, "Failed");
}

#[test]
fn a_linked_scope_names_the_right_that_is_missing() {
    let nsg = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkSecurityGroups/n";
    let text = format!(
        "The client 'app-1' with object id 'o' has permission to perform action 'Microsoft.Network/virtualNetworks/subnets/write' \
         on scope '/subscriptions/s/x'; however, it does not have permission to perform action(s) \
         'Microsoft.Network/networkSecurityGroups/join/action' on the linked scope(s) '{nsg}' (respectively)."
    );
    let CloudError::Denied { who, action, what } = coded(403, "LinkedAuthorizationFailed", &text) else {
        panic!("not denied")
    };
    assert_eq!((who.as_str(), what.as_str()), ("app-1", nsg));
    assert_eq!(action, "Microsoft.Network/networkSecurityGroups/join/action (LinkedAuthorizationFailed)");
}

#[test]
fn what_is_missing_is_named() {
    let check = |code: &str, message: &str, expect: &str| {
        let CloudError::NotFound { what } = coded(404, code, message) else { panic!("{code}") };
        assert_eq!(what, expect);
    };
    let other = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/p";
    check("ResourceGroupNotFound", "m", "/subscriptions/s/resourceGroups/g");
    check("ResourceNotFound", "m", ID);
    check("NotFound", &format!("Resource {other} referenced by resource {ID} was not found."), other);
    let subnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/x";
    let call = CallName { method: "PUT", subject: subnet, principal: "app" };
    let body = r#"{"error":{"code":"ParentResourceNotFound","message":"m"}}"#;
    let error = ServiceError::parse(404, body.as_bytes()).into_cloud_error(call).to_string();
    assert_eq!(error, format!("{} was not found", subnet.strip_suffix("/subnets/x").unwrap()));
}

#[test]
fn an_unknown_subscription_and_a_wrong_tenant_say_what_to_check() {
    let shown = coded(404, "SubscriptionNotFound", "The subscription 's' could not be found.").to_string();
    assert_eq!(
        shown,
        "SubscriptionNotFound: The subscription 's' could not be found; check the subscription's id and that app may read it"
    );
    let shown =
        coded(401, "InvalidAuthenticationTokenTenant", "The token is from the wrong issuer.").to_string();
    assert_eq!(
        shown,
        "setting tenant_id: InvalidAuthenticationTokenTenant: The token is from the wrong issuer."
    );
}

#[test]
fn ids_of_a_request_are_in_errors_that_operators_read() {
    let with_ids = |status, code: &str| {
        let body = serde_json::json!({"error": {"code": code, "message": "m."}}).to_string();
        let correlation =
            Correlation { client: "c".to_owned(), request: "r".to_owned(), correlation: "k".to_owned() };
        let error = ServiceError { correlation, ..ServiceError::parse(status, body.as_bytes()) };
        error.into_cloud_error(CallName { method: "PUT", subject: ID, principal: "app" }).to_string()
    };
    for (status, code) in [(500, "Odd"), (409, "Odd"), (429, "RetryableError"), (401, "Odd")] {
        assert!(with_ids(status, code).contains("request id r, correlation id k"), "{status} {code}");
    }
    // What a customer reads has the code alone.
    assert!(!with_ids(400, "Odd").contains("request id"));
}
