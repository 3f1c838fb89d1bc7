//! The versions and role sets of a new installation.

use api::doc::{OperatorRole, RoleSet, Version};
use api::rest::Semver;
use store::{AuditContext, Store, StoreError};

/// The versions, the default last.
const VERSIONS: [&str; 3] = ["4.18.26", "4.19.14", "4.20.3"];

/// An operator of the platform: name, role, role's id, namespace, secret, service accounts.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const OPERATORS: [Row; 8] = [
    (
        "cloud-controller-manager",
        "Azure Red Hat OpenShift Cloud Controller Manager",
        "a1f96423-95ce-4224-ab27-4e3dc72facd4",
        "openshift-cloud-controller-manager",
        "azure-cloud-credentials",
        &["cloud-controller-manager"],
    ),
    (
        "ingress",
        "Azure Red Hat OpenShift Cluster Ingress Operator",
        "0336e1d3-7a87-462b-b6db-342b63f7802c",
        "openshift-ingress-operator",
        "cloud-credentials",
        &["ingress-operator"],
    ),
    (
        "machine-api",
        "Azure Red Hat OpenShift Machine API Operator",
        "0358943c-7e01-48ba-8889-02cc51d78637",
        "openshift-machine-api",
        "azure-cloud-credentials",
        &["machine-api-controllers"],
    ),
    (
        "disk-csi-driver",
        "Azure Red Hat OpenShift Disk Storage Operator",
        "5b7237c5-45e1-49d6-bc18-a1f62f400748",
        "openshift-cluster-csi-drivers",
        "azure-disk-credentials",
        &["azure-disk-csi-driver-operator", "azure-disk-csi-driver-controller-sa"],
    ),
    (
        "file-csi-driver",
        "Azure Red Hat OpenShift File Storage Operator",
        "0d7aedc0-15fd-4a67-a412-efad370c947e",
        "openshift-cluster-csi-drivers",
        "azure-file-credentials",
        &["azure-file-csi-driver-operator", "azure-file-csi-driver-controller-sa"],
    ),
    (
        "cloud-network-config",
        "Azure Red Hat OpenShift Network Operator",
        "be7a6435-15ae-4171-8f30-4a343eff9e8f",
        "openshift-cloud-network-config-controller",
        "cloud-credentials",
        &["cloud-network-config-controller"],
    ),
    (
        "image-registry",
        "Azure Red Hat OpenShift Image Registry Operator",
        "8b32b316-c2f5-4ddf-b05b-83dacd2d08b5",
        "openshift-image-registry",
        "installer-cloud-credentials",
        &["cluster-image-registry-operator", "registry"],
    ),
    (
        "aro-operator",
        "Azure Red Hat OpenShift Service Operator",
        "4436bae4-7702-4c84-919b-c4069ff25ee2",
        "openshift-azure-operator",
        "azure-cloud-credentials",
        &["aro-operator-master"],
    ),
];

/// Stores the default versions and role sets if no version is stored yet, and returns whether it did.
pub async fn seed_defaults(store: &Store, by: &AuditContext) -> Result<bool, StoreError> {
    let offered =
        store.versions().list(store::ListOptions { limit: 1, ..store::ListOptions::default() }).await?;
    if !offered.items.is_empty() {
        return Ok(false);
    }
    for version in VERSIONS {
        if let Ok(parsed) = version.parse::<Semver>() {
            let set = RoleSet { openshift_version: parsed.minor_name(), roles: roles() };
            store.collection::<RoleSet>().put(&set, None, by).await?;
        }
        let wanted = Version {
            version: version.to_owned(),
            openshift_pullspec: format!("quay.io/openshift-release-dev/ocp-release:{version}-x86_64"),
            installer_pullspec: Some(format!("quay.io/shipshape/installer:release-{version}")),
            enabled: true,
            default: VERSIONS.last() == Some(&version),
        };
        store.versions().put(&wanted, None, by).await?;
    }
    Ok(true)
}

fn roles() -> Vec<OperatorRole> {
    let role = |(name, role, id, namespace, secret, accounts): Row| OperatorRole {
        operator_name: name.to_owned(),
        role_definition_name: role.to_owned(),
        role_definition_id: format!("/providers/Microsoft.Authorization/roleDefinitions/{id}"),
        service_accounts: accounts
            .iter()
            .map(|account| format!("system:serviceaccount:{namespace}:{account}"))
            .collect(),
        secret_namespace: namespace.to_owned(),
        secret_name: secret.to_owned(),
    };
    OPERATORS.map(role).to_vec()
}
