//! The kinds of smaller groups.

use super::row::{Row, STATUS, StatusRule, Subresource};
use super::{columns, defaults, rules, shared};
use crate::names::NameRule;

const APPROVAL: Subresource =
    Subresource { name: "approval", sends: None, verbs: &["get", "patch", "update"] };
const RBAC: &str = "rbac.authorization.k8s.io";
/// Reviews are created and answered, but not stored.
const CREATE_ONLY: &[&str] = &["create"];

/// The kinds of smaller groups.
pub(super) const ROWS: &[Row] = &[
    Row {
        generation: true,
        columns: columns::WEBHOOKS,
        validate: rules::webhook_configuration,
        ..Row::cluster_scoped(
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            "mutatingwebhookconfiguration",
        )
    },
    Row {
        generation: true,
        columns: columns::WEBHOOKS,
        validate: rules::webhook_configuration,
        ..Row::cluster_scoped(
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
        )
    },
    Row {
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        subresources: &[STATUS],
        status: StatusRule::Cleared,
        generation: true,
        returns_deleted: true,
        columns: columns::PLAIN,
        default: defaults::custom_resource_definition,
        validate: rules::custom_resource_definition,
        ..Row::cluster_scoped(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "customresourcedefinition",
        )
    },
    Row {
        verbs: CREATE_ONLY,
        ..Row::cluster_scoped(
            "authentication.k8s.io",
            "SelfSubjectReview",
            "selfsubjectreviews",
            "selfsubjectreview",
        )
    },
    Row {
        verbs: CREATE_ONLY,
        ..Row::cluster_scoped("authentication.k8s.io", "TokenReview", "tokenreviews", "tokenreview")
    },
    Row {
        verbs: CREATE_ONLY,
        ..Row::namespaced(
            "authorization.k8s.io",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
        )
    },
    Row {
        verbs: CREATE_ONLY,
        ..Row::cluster_scoped(
            "authorization.k8s.io",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
        )
    },
    Row {
        verbs: CREATE_ONLY,
        ..Row::cluster_scoped(
            "authorization.k8s.io",
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
        )
    },
    Row {
        verbs: CREATE_ONLY,
        ..Row::cluster_scoped(
            "authorization.k8s.io",
            "SubjectAccessReview",
            "subjectaccessreviews",
            "subjectaccessreview",
        )
    },
    Row {
        short: &["csr"],
        subresources: &[APPROVAL, STATUS],
        status: StatusRule::Cleared,
        fields: &["spec.signerName"],
        columns: columns::CERTIFICATE_SIGNING_REQUEST,
        default: defaults::certificate_signing_request,
        validate: rules::certificate_signing_request,
        ..Row::cluster_scoped(
            "certificates.k8s.io",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            "certificatesigningrequest",
        )
    },
    Row { columns: columns::LEASE, ..Row::namespaced("coordination.k8s.io", "Lease", "leases", "lease") },
    Row {
        short: &["ev"],
        shared: Some(shared::EVENTS),
        columns: columns::EVENT,
        fields: &[
            "reason",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reportingController",
            "type",
        ],
        validate: rules::event,
        ..Row::namespaced("events.k8s.io", "Event", "events", "event")
    },
    Row {
        short: &["pdb"],
        subresources: &[STATUS],
        status: StatusRule::Cleared,
        generation: true,
        columns: columns::POD_DISRUPTION_BUDGET,
        prepare: rules::prepare_pod_disruption_budget,
        validate: rules::pod_disruption_budget,
        ..Row::namespaced("policy", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget")
    },
    Row {
        names: NameRule::PathSegment,
        columns: columns::ROLE_BINDING,
        default: defaults::role_binding,
        validate: rules::cluster_role_binding,
        ..Row::cluster_scoped(RBAC, "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding")
    },
    Row {
        names: NameRule::PathSegment,
        validate: rules::cluster_role,
        ..Row::cluster_scoped(RBAC, "ClusterRole", "clusterroles", "clusterrole")
    },
    Row {
        names: NameRule::PathSegment,
        columns: columns::ROLE_BINDING,
        default: defaults::role_binding,
        validate: rules::role_binding,
        ..Row::namespaced(RBAC, "RoleBinding", "rolebindings", "rolebinding")
    },
    Row {
        names: NameRule::PathSegment,
        validate: rules::role,
        ..Row::namespaced(RBAC, "Role", "roles", "role")
    },
];
