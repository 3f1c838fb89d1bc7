//! The actions that the calls need, which the cluster's credential must permit.

/// What the provider asks of AWS. A credential of OpenShift's machine API permits more.
pub const ACTIONS: &[&str] = &[
    "ec2:CreateTags",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:RunInstances",
    "ec2:TerminateInstances",
    "elasticloadbalancing:DeregisterTargets",
    "elasticloadbalancing:DescribeLoadBalancers",
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTargetHealth",
    "elasticloadbalancing:RegisterInstancesWithLoadBalancer",
    "elasticloadbalancing:RegisterTargets",
    // With an iamInstanceProfile: AWS passes the profile's role on to the instance.
    "iam:PassRole",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credential_that_the_payload_requests_permits_every_action() {
        let request = include_str!(
            "../../../deploy/machine-api/0000_30_machine-api-operator_00_credentials-request.yaml"
        );
        for action in ACTIONS {
            assert!(request.lines().any(|it| it.trim() == format!("- {action}")), "{action}");
        }
    }
}
