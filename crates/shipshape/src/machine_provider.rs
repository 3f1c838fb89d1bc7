//! Which cloud owns the machines of a cluster, and the provider of instances for it.

use std::sync::Arc;

use cloud::InstanceProvider;
use cloud_azure::{AzureInstances, InstanceSettings};
use controller::Connection;
use machines::ClusterPlatform;

use crate::arguments::MachineControllerFlags;
use crate::machine_controllers::simulated_cloud;

/// The platform of a cluster without an Infrastructure.
const DEFAULT_PLATFORM: &str = "Azure";

/// A provider with its name in leases.
pub(crate) struct Provider {
    pub(crate) name: &'static str,
    pub(crate) instances: Arc<dyn InstanceProvider>,
}

/// The provider for a cluster: by the flags, else by the platform of the cluster, which is read only if no flag decides.
pub(crate) async fn choose(
    connection: &Connection,
    flags: &MachineControllerFlags,
) -> anyhow::Result<Provider> {
    if let Some(file) = &flags.cloud_endpoints {
        return azure(simulated_cloud(file)?);
    }
    let named = match &flags.platform {
        Some(name) => Some(name.as_str()),
        None if !flags.azure_cloud.is_empty() => Some("Azure"),
        None => None,
    };
    // On AWS it also says where the services are.
    let is_needed = named.is_none_or(|it| it == "AWS");
    let platform =
        if is_needed { ClusterPlatform::read(&connection.client).await? } else { ClusterPlatform::default() };
    let name = named.or(platform.name.as_deref()).unwrap_or(DEFAULT_PLATFORM);
    match name {
        "Azure" => azure(InstanceSettings::of_cloud(&flags.azure_cloud)?),
        "AWS" => aws(&platform),
        other => anyhow::bail!(
            "platform {other:?} has no provider of machines; accepted are Azure and AWS (--platform overrides the Infrastructure)"
        ),
    }
}

fn azure(settings: InstanceSettings) -> anyhow::Result<Provider> {
    Ok(Provider { name: "azure", instances: Arc::new(AzureInstances::new(settings)?) })
}

#[cfg(feature = "aws")]
fn aws(platform: &ClusterPlatform) -> anyhow::Result<Provider> {
    let endpoint = |service: &str| platform.service_endpoints.get(service).cloned();
    let endpoints =
        cloud_aws::Endpoints { ec2: endpoint("ec2"), load_balancing: endpoint("elasticloadbalancing") };
    let settings = cloud_aws::AwsSettings { endpoints, ..cloud_aws::AwsSettings::default() };
    let instances = cloud_aws::AwsInstances::new(settings, Arc::new(api::clock::SystemClock))?;
    Ok(Provider { name: "aws", instances: Arc::new(instances) })
}

#[cfg(not(feature = "aws"))]
fn aws(_: &ClusterPlatform) -> anyhow::Result<Provider> {
    anyhow::bail!(
        "this executable has no provider for AWS; build it with the feature aws: cargo build --features aws"
    )
}
