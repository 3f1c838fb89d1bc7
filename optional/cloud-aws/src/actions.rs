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
