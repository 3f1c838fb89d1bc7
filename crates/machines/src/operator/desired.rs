//! The objects that the operator rolls out, by the configuration of the cluster. Their templates are in `deploy/machine-api`.

use api::crd::machine::MachineHealthCheck;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use serde::de::DeserializeOwned;

use super::configuration::RolloutConfiguration;

const DEPLOYMENT: &str =
    include_str!("../../../../deploy/machine-api/owned/machine-api-controllers.deployment.yaml");
const DAEMON_SET: &str =
    include_str!("../../../../deploy/machine-api/owned/machine-api-termination-handler.daemonset.yaml");
const HEALTH_CHECK: &str = include_str!(
    "../../../../deploy/machine-api/0000_30_machine-api-operator_13_termination_handler_health_check.yaml"
);

/// The name of the Deployment.
pub(crate) const CONTROLLERS: &str = "machine-api-controllers";
/// The name of the DaemonSet and of the MachineHealthCheck.
pub(crate) const TERMINATION_HANDLER: &str = "machine-api-termination-handler";

/// The Deployment of the controllers.
pub(crate) fn deployment(configuration: &RolloutConfiguration, namespace: &str) -> Deployment {
    let mut deployment: Deployment = template(DEPLOYMENT);
    deployment.metadata.namespace = Some(namespace.to_owned());
    let spec = deployment.spec.template.spec.as_mut();
    for container in containers(spec) {
        container.image = Some(configuration.image.clone());
        let args = container.args.get_or_insert_default();
        for arg in args.iter_mut().filter(|arg| arg.starts_with("--namespace=")) {
            *arg = format!("--namespace={namespace}");
        }
        // Nothing else names it in a cluster without an Infrastructure.
        args.push(format!("--platform={}", configuration.provider.platform));
        if let Some(cloud) = &configuration.azure_cloud {
            args.push(format!("--azure-cloud={cloud}"));
        }
        if configuration.migration {
            args.push("--migration".to_owned());
        }
        let variables: Vec<EnvVar> = configuration
            .proxy
            .iter()
            .map(|(name, value)| EnvVar {
                name: (*name).to_owned(),
                value: Some(value.clone()),
                ..EnvVar::default()
            })
            .collect();
        if !variables.is_empty() {
            container.env.get_or_insert_default().extend(variables);
        }
    }
    deployment
}

/// The DaemonSet of the termination handler, where the platform has one.
pub(crate) fn daemon_set(configuration: &RolloutConfiguration, namespace: &str) -> Option<DaemonSet> {
    if !configuration.provider.has_termination_handler {
        return None;
    }
    let mut daemon_set: DaemonSet = template(DAEMON_SET);
    daemon_set.metadata.namespace = Some(namespace.to_owned());
    let spec = daemon_set.spec.template.spec.as_mut();
    for container in containers(spec) {
        container.image = Some(configuration.image.clone());
    }
    Some(daemon_set)
}

/// The MachineHealthCheck that replaces Machines whose instance is about to be reclaimed, where the platform announces that.
pub(crate) fn health_check(
    configuration: &RolloutConfiguration,
    namespace: &str,
) -> Option<MachineHealthCheck> {
    if !configuration.provider.has_termination_handler {
        return None;
    }
    let mut check: MachineHealthCheck = template(HEALTH_CHECK);
    check.metadata.namespace = Some(namespace.to_owned());
    Some(check)
}

fn containers(spec: Option<&mut PodSpec>) -> impl Iterator<Item = &mut Container> {
    spec.into_iter().flat_map(|spec| spec.containers.iter_mut())
}

fn template<K: DeserializeOwned>(text: &str) -> K {
    serde_saphyr::from_str(text).expect("the templates are part of this crate and are tested")
}
