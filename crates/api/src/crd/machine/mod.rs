//! The machine API, `machine.openshift.io/v1beta1`: the resources of OpenShift with the same fields, defaults and columns.

mod condition;
mod machine_health_check;
mod machine_set;
mod machine_type;
pub mod names;
mod object_meta;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use condition::{
    Condition, ConditionSeverity, ConditionStatus, find_condition, is_condition_true, set_condition,
    whole_seconds,
};
pub use machine_health_check::{
    MachineHealthCheck, MachineHealthCheckSpec, MachineHealthCheckStatus, UnhealthyCondition,
};
pub use machine_set::{DeletePolicy, MachineSet, MachineSetSpec, MachineSetStatus, MachineTemplate};
pub use machine_type::{
    AuthoritativeApi, LastOperation, LifecycleHook, LifecycleHooks, Machine, MachinePhase, MachineSpec,
    MachineStatus, ProviderSpec, StableApi,
};
pub use object_meta::TemplateMeta;

use super::definition::{Column, DefinitionParts, definition, keyed_path};

/// The definitions of the machine API.
pub(super) fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        definition::<Machine>(machine_parts()),
        definition::<MachineSet>(machine_set_parts()),
        definition::<MachineHealthCheck>(machine_health_check_parts()),
    ]
}

fn machine_parts() -> DefinitionParts {
    let label = |key| keyed_path("labels", key);
    DefinitionParts {
        short_names: &[],
        annotations: names::DEFINITION_ANNOTATIONS,
        columns: vec![
            Column::new("Phase", "string", ".status.phase", "Phase of the Machine"),
            Column::new("Type", "string", label(names::INSTANCE_TYPE_LABEL), "Type of the instance"),
            Column::new("Region", "string", label(names::REGION_LABEL), "Region of the instance"),
            Column::new("Zone", "string", label(names::ZONE_LABEL), "Zone of the instance"),
            Column::new("Age", "date", ".metadata.creationTimestamp", "Age of the Machine"),
            Column::new("Node", "string", ".status.nodeRef.name", "Node of the Machine").wide(),
            Column::new("ProviderID", "string", ".spec.providerID", "Identity of the instance").wide(),
            Column::new(
                "State",
                "string",
                keyed_path("annotations", names::INSTANCE_STATE),
                "State of the instance",
            )
            .wide(),
        ],
        scale: false,
    }
}

fn machine_set_parts() -> DefinitionParts {
    DefinitionParts {
        short_names: &[],
        annotations: names::DEFINITION_ANNOTATIONS,
        columns: vec![
            Column::new("Desired", "integer", ".spec.replicas", "Desired number of Machines"),
            Column::new("Current", "integer", ".status.replicas", "Number of Machines"),
            Column::new("Ready", "integer", ".status.readyReplicas", "Number of Machines with a ready Node"),
            // Upstream types it so; clients that read the table of an existing cluster see the same.
            Column::new(
                "Available",
                "string",
                ".status.availableReplicas",
                "Number of Machines whose Node has been ready long enough",
            ),
            Column::new("Age", "date", ".metadata.creationTimestamp", "Age of the MachineSet"),
        ],
        scale: true,
    }
}

fn machine_health_check_parts() -> DefinitionParts {
    DefinitionParts {
        short_names: &["mhc", "mhcs"],
        annotations: names::DEFINITION_ANNOTATIONS,
        columns: vec![
            Column::new(
                "MaxUnhealthy",
                "string",
                ".spec.maxUnhealthy",
                "Largest number of unhealthy Machines with which Machines are remediated",
            ),
            Column::new(
                "ExpectedMachines",
                "integer",
                ".status.expectedMachines",
                "Number of Machines that are checked",
            ),
            Column::new(
                "CurrentHealthy",
                "integer",
                ".status.currentHealthy",
                "Number of Machines that are healthy",
            ),
        ],
        scale: false,
    }
}
