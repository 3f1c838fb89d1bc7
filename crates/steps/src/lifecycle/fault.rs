//! Conversion of cloud errors into errors of a step and of the customer.
//!
//! The first pattern that matches decides: an error that the customer can fix is returned with its code and ends the operation,
//! a temporary one is retried, and anything else is an internal error.

use api::doc::OperationError;
use api::error::{Class, Classify as _};
use api::install::InstallError;
use cloud::{CloudError, ResourceFailure};

use crate::engine::{StepError, StepErrorKind};

/// The code of a deployment that failed for a reason that the customer cannot fix.
pub const DEPLOYMENT_FAILED: &str = "DeploymentFailed";
/// The code of errors that are internal to the service.
pub const INTERNAL: &str = "InternalServerError";
/// The code of a quota that does not suffice for the workers.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";

/// One row of the table of errors.
struct Pattern {
    /// Matched against the code and the message of the fault.
    word: &'static str,
    /// The customer's code, one of the API contract. For a failed deployment, the cloud's own code is among the details.
    code: &'static str,
    kind: StepErrorKind,
    /// For the customer; the cloud's own message if none.
    message: Option<&'static str>,
}

const PATTERNS: &[Pattern] = &[
    Pattern {
        word: "KeyBasedAuthenticationNotPermitted",
        code: DEPLOYMENT_FAILED,
        kind: StepErrorKind::Terminal,
        message: Some(
            "Key-based authentication is not permitted on the cluster's storage account by a policy of the subscription.",
        ),
    },
    Pattern {
        word: "RequestDisallowedByPolicy",
        code: "RequestDisallowedByPolicy",
        kind: StepErrorKind::Terminal,
        message: None,
    },
    Pattern {
        word: "InvalidTemplateDeployment",
        code: DEPLOYMENT_FAILED,
        kind: StepErrorKind::Terminal,
        message: None,
    },
    Pattern {
        word: "ZonalAllocationFailed",
        code: DEPLOYMENT_FAILED,
        kind: StepErrorKind::Terminal,
        message: Some(
            "The location has no capacity for this machine size in one of the zones. Choose another size or location, or try again later.",
        ),
    },
    Pattern {
        word: "AllocationFailed",
        code: DEPLOYMENT_FAILED,
        kind: StepErrorKind::Terminal,
        message: Some(
            "The location has no capacity for this machine size. Choose another size or location, or try again later.",
        ),
    },
    Pattern {
        word: "OverconstrainedAllocationRequest",
        code: DEPLOYMENT_FAILED,
        kind: StepErrorKind::Terminal,
        message: Some(
            "The location has no capacity for this machine size with the features that the cluster needs. Choose another size or \
             location.",
        ),
    },
    Pattern {
        word: "OSProvisioningTimedOut",
        code: DEPLOYMENT_FAILED,
        kind: StepErrorKind::Terminal,
        message: Some(
            "A machine of the cluster did not start in time. Delete the cluster and create it again.",
        ),
    },
    Pattern {
        word: "QuotaExceeded",
        code: "ResourceQuotaExceeded",
        kind: StepErrorKind::Terminal,
        message: None,
    },
    Pattern {
        word: "SkuNotAvailable",
        code: "InvalidParameter",
        kind: StepErrorKind::Terminal,
        message: None,
    },
    Pattern {
        word: "NotAvailableForSubscription",
        code: "InvalidParameter",
        kind: StepErrorKind::Terminal,
        message: None,
    },
    Pattern {
        word: "MissingSubscriptionRegistration",
        code: "ResourceProviderNotRegistered",
        kind: StepErrorKind::Terminal,
        message: None,
    },
];

/// The code among the details of an error that names who uses a resource.
const IN_USE: &str = "InUse";

/// An error for the customer: a code, a sentence, and the field at fault.
pub fn customer_error(code: &str, message: impl Into<String>, target: Option<&str>) -> OperationError {
    OperationError {
        code: code.to_owned(),
        message: message.into(),
        target: target.map(str::to_owned),
        details: Vec::new(),
    }
}

impl Pattern {
    /// The customer's error for a fault that matches, with the message of the cloud or of the pattern.
    fn customer_error(&self, said: &str) -> OperationError {
        let mut error = customer_error(self.code, self.message.unwrap_or(said), None);
        if self.code == DEPLOYMENT_FAILED {
            error.details.push(customer_error(self.word, said, None));
        }
        error
    }
}

/// An error that the customer can fix, with its code and the field at fault; it ends the operation.
pub fn user_error(code: &str, message: impl Into<String>, target: Option<&str>) -> StepError {
    let message = message.into();
    StepError::terminal(code, message.clone()).with_customer_error(customer_error(code, message, target))
}

/// The error of a resource that cannot be deleted because the customer uses it. It is transient: they may be about to stop.
pub fn in_use(what: &str, by: &str) -> StepError {
    let said = format!("{what} is in use by {by}");
    let is = |id: &str, kind: &str| id.to_lowercase().contains(&format!("/{kind}/"));
    let privately = is(by, "privateendpoints") || is(by, "privatelinkservices");
    let code = if is(what, "loadbalancers") && privately {
        "CannotDeleteLoadBalancerWithPrivateLinkService"
    } else if is(what, "subnets") {
        "InUseSubnetCannotBeDeleted"
    } else {
        DEPLOYMENT_FAILED
    };
    let mut error = customer_error(code, format!("{said}. Remove it, or let it use something else."), None);
    if code == DEPLOYMENT_FAILED {
        error.details.push(customer_error(IN_USE, said.clone(), None));
    }
    StepError::transient("InUse", said).with_customer_error(error)
}

/// The error of a failed resource or installation. The customer gets the cloud's code; its message only where they can fix the cause.
pub fn from_fault(fault: &ResourceFailure, what: impl Into<String>) -> StepError {
    let what = what.into();
    let full = format!("{what}: {}: {}", fault.code, fault.message);
    match pattern(&fault.code, &fault.message) {
        Some(pattern) => StepError::new(pattern.kind, pattern.code, full)
            .with_customer_error(pattern.customer_error(&fault.message)),
        None => {
            let mut customer = customer_error(DEPLOYMENT_FAILED, "Deployment failed.", None);
            customer.details.push(customer_error(&fault.code, format!("{what} with this code."), None));
            StepError::transient(DEPLOYMENT_FAILED, full).with_customer_error(customer)
        }
    }
}

/// Whether a failed deployment has a cause that the customer can fix.
pub fn can_be_fixed_by_customer(error: &OperationError) -> bool {
    let is_known = |code: &str| code == IN_USE || PATTERNS.iter().any(|it| it.word == code);
    error.details.iter().any(|it| is_known(&it.code))
}

fn pattern(code: &str, message: &str) -> Option<&'static Pattern> {
    PATTERNS.iter().find(|it| code.contains(it.word) || message.contains(it.word))
}

impl From<CloudError> for StepError {
    fn from(error: CloudError) -> StepError {
        let kind = match error.class() {
            Class::Transient => StepErrorKind::Transient,
            Class::Terminal => StepErrorKind::Terminal,
        };
        let said = error.to_string();
        let (code, customer) = match &error {
            CloudError::Denied { .. } => ("Forbidden", Some(customer_error("Forbidden", said.clone(), None))),
            CloudError::Credential { .. } => {
                let target = Some("properties.servicePrincipalProfile");
                let code = "InvalidServicePrincipalCredentials";
                (code, Some(customer_error(code, said.clone(), target)))
            }
            CloudError::Quota { .. } => {
                ("ResourceQuotaExceeded", Some(customer_error("ResourceQuotaExceeded", said.clone(), None)))
            }
            CloudError::Locked { .. } => {
                ("ScopeLocked", Some(customer_error("ScopeLocked", said.clone(), None)))
            }
            CloudError::Invalid { code, why } => match pattern(code, why) {
                Some(pattern) => (pattern.code, Some(pattern.customer_error(why))),
                None => ("Invalid", None),
            },
            CloudError::Policy { .. } => {
                let code = "RequestDisallowedByPolicy";
                (code, Some(customer_error(code, said.clone(), None)))
            }
            CloudError::Busy { .. } => ("CloudBusy", None),
            CloudError::PreconditionFailed { .. } => ("PreconditionFailed", None),
            CloudError::Configuration { .. } => ("Configuration", None),
            CloudError::NotFound { .. } => ("NotFound", None),
            CloudError::Conflict { .. } => ("Conflict", None),
            CloudError::InUse { .. } => ("InUse", None),
            CloudError::Throttled { .. } => ("Throttled", None),
            CloudError::Unavailable { .. } => ("CloudUnavailable", None),
            CloudError::UnexpectedResponse { .. } => ("UnexpectedResponse", None),
        };
        let mut step = StepError::new(kind, code, said).with_retry_after(error.retry_after());
        if let Some(customer) = customer {
            step = step.with_customer_error(customer);
        }
        step.with_source(error)
    }
}

impl From<InstallError> for StepError {
    fn from(error: InstallError) -> StepError {
        let kind = match error.class() {
            Class::Transient => StepErrorKind::Transient,
            Class::Terminal => StepErrorKind::Terminal,
        };
        let said = error.to_string();
        let (code, customer, after) = match &error {
            InstallError::NotFound { .. } => ("NotFound", None, None),
            InstallError::Conflict { .. } => ("Conflict", None, None),
            InstallError::Rejected { code, message } => match pattern(code, message) {
                Some(pattern) => (pattern.code, Some(pattern.customer_error(message)), None),
                None => ("Invalid", None, None),
            },
            InstallError::Denied { .. } => {
                ("Forbidden", Some(customer_error("Forbidden", said.clone(), None)), None)
            }
            InstallError::Unavailable { retry_after, .. } => ("InstallerUnavailable", None, *retry_after),
        };
        let mut step = StepError::new(kind, code, said).with_retry_after(after);
        if let Some(customer) = customer {
            step = step.with_customer_error(customer);
        }
        step.with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: &str, message: &str) -> ResourceFailure {
        ResourceFailure { code: code.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn the_first_matching_pattern_decides() {
        let check = |code: &str, message: &str, expect: &str, kind: StepErrorKind| {
            let error = from_fault(&fault(code, message), "it failed");
            assert_eq!(error.customer_error().map(|it| it.code.as_str()), Some(expect), "{code} {message}");
            assert_eq!(error.kind(), kind, "{code} {message}");
        };
        use StepErrorKind::{Terminal, Transient};
        check("RequestDisallowedByPolicy", "no tags", "RequestDisallowedByPolicy", Terminal);
        check(
            "X",
            "InvalidTemplateDeployment: RequestDisallowedByPolicy",
            "RequestDisallowedByPolicy",
            Terminal,
        );
        check("ZonalAllocationFailed", "no room", DEPLOYMENT_FAILED, Terminal);
        let full = from_fault(&fault("ZonalAllocationFailed", "no room"), "it failed");
        let details: Vec<(&str, &str)> = full
            .customer_error()
            .iter()
            .flat_map(|it| &it.details)
            .map(|it| (&*it.code, &*it.message))
            .collect();
        assert_eq!(details, [("ZonalAllocationFailed", "no room")]);
        assert!(full.customer_error().is_some_and(can_be_fixed_by_customer));
        check("AllocationFailed", "no room", DEPLOYMENT_FAILED, Terminal);
        check("OverconstrainedAllocationRequest", "no room", DEPLOYMENT_FAILED, Terminal);
        check("NotAvailableForSubscription", "no", "InvalidParameter", Terminal);
        check("MissingSubscriptionRegistration", "no", "ResourceProviderNotRegistered", Terminal);
        check("Odd", "something", DEPLOYMENT_FAILED, Transient);
        let odd = from_fault(&fault("Odd", "password=hunter2"), "address failed");
        let odd = odd.customer_error().unwrap();
        assert_eq!(odd.message, "Deployment failed.");
        let details: Vec<(&str, &str)> = odd.details.iter().map(|it| (&*it.code, &*it.message)).collect();
        assert_eq!(details, [("Odd", "address failed with this code.")]);
        assert!(!can_be_fixed_by_customer(odd));
    }

    #[test]
    fn a_resource_in_use_has_a_code_of_the_contract_and_names_its_user() {
        let check = |what: &str, by: &str, expect: &str, details: usize| {
            let error = in_use(what, by);
            let customer = error.customer_error().unwrap();
            assert_eq!((customer.code.as_str(), customer.details.len()), (expect, details), "{what} by {by}");
            assert!(
                error.kind() == StepErrorKind::Transient && customer.message.contains(by),
                "{customer:?}"
            );
        };
        let (balancer, endpoint) = ("/n/loadBalancers/one", "/n/privateEndpoints/theirs");
        check(balancer, endpoint, "CannotDeleteLoadBalancerWithPrivateLinkService", 0);
        check("/n/virtualNetworks/v/subnets/s", "/n/machines/m", "InUseSubnetCannotBeDeleted", 0);
        check("/n/networkSecurityGroups/g", "/n/virtualNetworks/v/subnets/s", DEPLOYMENT_FAILED, 1);
    }

    #[test]
    fn the_customer_sees_only_errors_that_they_can_fix() {
        let quota = CloudError::Quota { quota: "cores".to_owned(), limit: 10, used: 8, wanted: 44 };
        let error = StepError::from(quota);
        assert_eq!((error.kind(), error.code().as_str()), (StepErrorKind::Terminal, "ResourceQuotaExceeded"));
        assert!(error.customer_error().is_some_and(|it| it.message.contains("cores")));
        let unexpected =
            StepError::from(CloudError::UnexpectedResponse { what: "get".to_owned(), source: None });
        assert!(unexpected.customer_error().is_none() && unexpected.kind() == StepErrorKind::Terminal);
        assert_eq!(unexpected.code().as_str(), "UnexpectedResponse");
    }
}
