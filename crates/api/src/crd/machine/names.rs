//! Labels, annotations, finalizers and namespaces of the machine API.

/// Group of the machine API.
pub const GROUP: &str = "machine.openshift.io";
/// Namespace in which the controllers work.
pub const NAMESPACE: &str = "openshift-machine-api";

/// Finalizer of a Machine, removed when its instance is gone.
pub const MACHINE_FINALIZER: &str = "machine.machine.openshift.io";
/// Finalizer of an address claim.
pub const IP_CLAIM_FINALIZER: &str = "machine.openshift.io/ip-claim-protection";

/// Mandatory label of a Machine with the name of its cluster.
pub const CLUSTER_LABEL: &str = "machine.openshift.io/cluster-api-cluster";
/// Label with the role of a Machine.
pub const ROLE_LABEL: &str = "machine.openshift.io/cluster-api-machine-role";
/// Label with the type of a Machine.
pub const TYPE_LABEL: &str = "machine.openshift.io/cluster-api-machine-type";
/// Label that MachineSets select by, by convention.
pub const MACHINE_SET_LABEL: &str = "machine.openshift.io/cluster-api-machineset";
/// Label with the region of the instance.
pub const REGION_LABEL: &str = "machine.openshift.io/region";
/// Label with the zone of the instance.
pub const ZONE_LABEL: &str = "machine.openshift.io/zone";
/// Label with the type of the instance.
pub const INSTANCE_TYPE_LABEL: &str = "machine.openshift.io/instance-type";
/// Label, with an empty value, of Machines and Nodes whose instance the provider may interrupt.
pub const INTERRUPTIBLE_LABEL: &str = "machine.openshift.io/interruptible-instance";

/// Annotation with the state of the instance.
pub const INSTANCE_STATE: &str = "machine.openshift.io/instance-state";
/// Annotation whose presence skips the drain.
pub const EXCLUDE_NODE_DRAINING: &str = "machine.openshift.io/exclude-node-draining";
/// Annotation that makes a MachineSet delete this Machine first, if its value is not empty.
pub const DELETE_MACHINE: &str = "machine.openshift.io/delete-machine";
/// Older form of [`DELETE_MACHINE`].
pub const DELETE_MACHINE_OLD: &str = "machine.openshift.io/cluster-api-delete-machine";
/// Annotation of a Node with `namespace/name` of its Machine.
pub const MACHINE_ANNOTATION: &str = "machine.openshift.io/machine";
/// Annotation whose presence pauses a MachineHealthCheck.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// Annotation of a MachineHealthCheck that selects another way of remediation.
pub const REMEDIATION_STRATEGY: &str = "machine.openshift.io/remediation-strategy";
/// Value of [`REMEDIATION_STRATEGY`]: Machines are annotated and not deleted.
pub const EXTERNAL_BAREMETAL: &str = "external-baremetal";
/// Annotation that asks for remediation of a Machine by others.
pub const EXTERNAL_REMEDIATION: &str = "host.metal3.io/external-remediation";
/// Annotation with the name of the template from which an object was made.
pub const CLONED_FROM_NAME: &str = "machine.openshift.io/cloned-from-name";
/// Annotation with the kind and group of the template from which an object was made.
pub const CLONED_FROM_GROUP_KIND: &str = "machine.openshift.io/cloned-from-groupkind";
/// Annotation of objects that the operator applies.
pub const OWNED: &str = "machine.openshift.io/owned";
/// Annotation of a MachineSet with the least size that an autoscaler may choose.
pub const AUTOSCALER_MIN_SIZE: &str = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size";
/// Annotation of a MachineSet with the largest size that an autoscaler may choose.
pub const AUTOSCALER_MAX_SIZE: &str = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size";
/// Annotation of a Machine, of our own: how long after its deletion the drain may take, such as `30m`. Then the instance is deleted
/// although pods remain. Without it there is no limit.
pub const DRAIN_DEADLINE: &str = "shipshape.dev/drain-deadline";

/// Annotations of every definition of the group.
pub(super) const DEFINITION_ANNOTATIONS: &[(&str, &str)] = &[
    ("capability.openshift.io/name", "MachineAPI"),
    ("exclude.release.openshift.io/internal-openshift-hosted", "true"),
    ("include.release.openshift.io/self-managed-high-availability", "true"),
];
