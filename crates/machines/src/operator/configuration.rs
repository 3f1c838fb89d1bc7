//! What the operator rolls out, as the objects that configure the cluster say. Each sentence about a wrong one names object and field.

use std::collections::{BTreeMap, BTreeSet};

use controller::ObjectKey;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::platform::{PlatformProvider, provider_of};
use crate::payload::is_image_name;

/// The ConfigMap with the images.
pub(super) const IMAGES: &str = "machine-api-operator-images";
/// Its key.
const IMAGES_KEY: &str = "images.json";
/// The name of every object that configures a cluster.
pub(super) const CLUSTER: &str = "cluster";
/// The feature gate with which objects say which API is authoritative for them.
const MIGRATION_GATE: &str = "MachineAPIMigration";

/// The objects that configure the operator, as read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConfigurationSources<'a> {
    /// The namespace of the ConfigMap.
    pub(crate) namespace: &'a str,
    /// The platform that the command line names, in place of the Infrastructure's.
    pub(crate) platform: Option<&'a str>,
    /// The version of this release.
    pub(crate) version: &'a str,
    /// Whether the cluster has the kind Infrastructure.
    pub(crate) has_infrastructure_kind: bool,
    pub(crate) infrastructure: Option<&'a Value>,
    pub(crate) proxy: Option<&'a Value>,
    pub(crate) feature_gate: Option<&'a Value>,
    pub(crate) images: Option<&'a ConfigMap>,
}

/// What is to be done on the platform of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Configuration {
    /// Nothing, since the platform has no machine controllers; with the reason.
    NoOp(String),
    /// The controllers are rolled out.
    RollOut(RolloutConfiguration),
}

/// What the rolled out objects depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RolloutConfiguration {
    pub(crate) provider: PlatformProvider,
    /// The image of the provider.
    pub(crate) image: String,
    /// The cloud of Azure, if it is not the public one.
    pub(crate) azure_cloud: Option<String>,
    /// Whether objects say which API is authoritative for them.
    pub(crate) migration: bool,
    /// Variables with the cluster's proxy.
    pub(crate) proxy: Vec<(&'static str, String)>,
}

/// The configuration, or a sentence about every object that cannot be used.
pub(crate) fn configuration(sources: &ConfigurationSources<'_>) -> Result<Configuration, Vec<String>> {
    let platform = match platform(sources) {
        Ok(Some(platform)) => platform,
        Ok(None) => {
            let why =
                "this cluster has no Infrastructure of config.openshift.io, and --platform is not given";
            return Ok(Configuration::NoOp(why.to_owned()));
        }
        Err(problem) => return Err(vec![problem]),
    };
    let Some(provider) = provider_of(&platform) else {
        return Ok(Configuration::NoOp(format!("platform {platform:?} has no machine controllers")));
    };
    let (image, proxy) = (image(sources, provider), proxy(sources.proxy));
    match (image, proxy) {
        (Ok(image), Ok(proxy)) => Ok(Configuration::RollOut(RolloutConfiguration {
            provider,
            image,
            azure_cloud: azure_cloud(sources.infrastructure),
            migration: gates(sources.feature_gate, sources.version).contains(MIGRATION_GATE),
            proxy,
        })),
        (image, proxy) => Err([image.err(), proxy.err()].into_iter().flatten().collect()),
    }
}

/// The name of the platform; none where nothing names one.
fn platform(sources: &ConfigurationSources<'_>) -> Result<Option<String>, String> {
    if let Some(platform) = sources.platform {
        return Ok(Some(platform.to_owned()));
    }
    if !sources.has_infrastructure_kind {
        return Ok(None);
    }
    let infrastructure =
        sources.infrastructure.ok_or_else(|| format!("Infrastructure {CLUSTER} is not found"))?;
    // The second is the field of early releases.
    let fields = ["/status/platformStatus/type", "/status/platform"];
    let named = fields.into_iter().filter_map(|field| infrastructure.pointer(field)?.as_str());
    let named = named.map(str::to_owned).find(|it| !it.is_empty());
    named.map(Some).ok_or_else(|| format!("Infrastructure {CLUSTER}: status.platformStatus.type is empty"))
}

/// The image of a provider.
fn image(sources: &ConfigurationSources<'_>, provider: PlatformProvider) -> Result<String, String> {
    let object = format!("ConfigMap {}", ObjectKey::namespaced(sources.namespace, IMAGES));
    let images = sources.images.ok_or_else(|| format!("{object} is not found"))?;
    let text = images.data.as_ref().and_then(|data| data.get(IMAGES_KEY));
    let field = format!("{object}: data[{IMAGES_KEY:?}]");
    let text = text.ok_or_else(|| format!("{field} is missing"))?;
    let images: BTreeMap<String, Value> = serde_json::from_str(text)
        .map_err(|error| format!("{field} is not a JSON object with names of images: {error}"))?;
    let key = provider.image;
    let image = images.get(key).ok_or_else(|| {
        format!("{field}: {key:?} is missing, the image of the controllers on platform {}", provider.platform)
    })?;
    let name = image.as_str().filter(|name| is_image_name(name));
    let name = name.ok_or_else(|| {
        format!("{field}: {key:?} is {image}, which is not the name of an image; letters, digits and . - _ / : @ are accepted")
    })?;
    Ok(name.to_owned())
}

/// The variables of the cluster's proxy.
fn proxy(proxy: Option<&Value>) -> Result<Vec<(&'static str, String)>, String> {
    let mut variables = Vec::new();
    for (variable, field) in
        [("HTTP_PROXY", "httpProxy"), ("HTTPS_PROXY", "httpsProxy"), ("NO_PROXY", "noProxy")]
    {
        let value = proxy.and_then(|it| it.pointer("/status")?.get(field)?.as_str()).unwrap_or_default();
        if value.is_empty() {
            continue;
        }
        if variable != "NO_PROXY" && !is_proxy_url(value) {
            // What precedes an @ is a password.
            let shown = value.rsplit('@').next().unwrap_or_default();
            return Err(format!(
                "Proxy {CLUSTER}: status.{field} {shown:?} is not a URL such as http://proxy.example:3128"
            ));
        }
        variables.push((variable, value.to_owned()));
    }
    Ok(variables)
}

fn is_proxy_url(value: &str) -> bool {
    let uri = value.parse::<http::Uri>().ok();
    uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

/// The cloud of Azure, as the controllers' flag names it; none for the public one and on other platforms.
fn azure_cloud(infrastructure: Option<&Value>) -> Option<String> {
    let cloud = infrastructure?.pointer("/status/platformStatus/azure/cloudName")?.as_str()?;
    (!cloud.is_empty() && cloud != "AzurePublicCloud").then(|| cloud.to_owned())
}

/// The feature gates that are enabled in this version, or in any where none is of this version.
fn gates(feature_gate: Option<&Value>, version: &str) -> BTreeSet<String> {
    let all: Vec<&Value> = feature_gate
        .and_then(|it| it.pointer("/status/featureGates")?.as_array())
        .into_iter()
        .flatten()
        .collect();
    let is_of_version = |it: &&&Value| it.get("version").and_then(Value::as_str) == Some(version);
    let of_version: Vec<&Value> = all.iter().filter(is_of_version).copied().collect();
    let counted = if of_version.is_empty() { all } else { of_version };
    let enabled = counted.into_iter().filter_map(|it| it.get("enabled")?.as_array()).flatten();
    enabled.filter_map(|it| Some(it.get("name")?.as_str()?.to_owned())).collect()
}
