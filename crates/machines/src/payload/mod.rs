//! The manifests that install the machine API, as they are in `deploy/machine-api`.
//!
//! A file is named `0000_<run level>_machine-api-operator_<order>_<subject>.yaml`, as OpenShift's cluster version operator expects it;
//! the order of the names is the order in which they are applied. The files have placeholders for image and version, which an installer
//! or a release replaces.

use serde_json::Value;

#[cfg(test)]
mod tests;

/// The image in the manifests, until it is replaced. The domain exists nowhere.
pub const IMAGE_PLACEHOLDER: &str = "image.invalid/shipshape:unreleased";

/// The version in the manifests, until it is replaced; the tooling of OpenShift's releases knows it.
pub const VERSION_PLACEHOLDER: &str = "0.0.1-snapshot";

/// Longest name of an image that a registry accepts, with tag and digest.
const IMAGE_LENGTH_MAX: usize = 512;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../deploy/machine-api/", $name)))),*]
    };
}

/// Name and text of each file, in order.
const FILES: &[(&str, &str)] = files![
    "0000_30_machine-api-operator_00_credentials-request.yaml",
    "0000_30_machine-api-operator_00_namespace.yaml",
    "0000_30_machine-api-operator_01_images.configmap.yaml",
    "0000_30_machine-api-operator_01_trusted-ca-configmap.yaml",
    "0000_30_machine-api-operator_02_machine.crd.yaml",
    "0000_30_machine-api-operator_03_machineset.crd.yaml",
    "0000_30_machine-api-operator_07_machinehealthcheck.crd.yaml",
    "0000_30_machine-api-operator_08_webhook_service.yaml",
    "0000_30_machine-api-operator_09_rbac.yaml",
    "0000_30_machine-api-operator_09_termination_handler_scc.yaml",
    "0000_30_machine-api-operator_10_service.yaml",
    "0000_30_machine-api-operator_11_deployment.yaml",
    "0000_30_machine-api-operator_12_clusteroperator.yaml",
    "0000_30_machine-api-operator_13_termination_handler_health_check.yaml",
    "0000_90_machine-api-operator_03_servicemonitor.yaml",
    "0000_90_machine-api-operator_04_alertrules.yaml",
    "0000_90_machine-api-operator_05_networkpolicy.yaml",
];

/// One object of the payload.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The name of its file.
    pub file: &'static str,
    /// The object, with apiVersion and kind.
    pub object: Value,
}

/// What replaces the placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    image: String,
    version: String,
}

/// A release that no manifest can carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRelease {
    /// The image is not the name of one.
    #[error(
        "image {0:?} is not the name of an image: letters, digits and . - _ / : @ are accepted, up to {IMAGE_LENGTH_MAX} of them"
    )]
    Image(String),
    /// The version is not one.
    #[error("version {0:?} is not a version: letters, digits and . - _ + are accepted, up to 128 of them")]
    Version(String),
}

impl Release {
    /// The release of an image. `version` is what the operator reports as its own.
    pub fn new(image: &str, version: &str) -> Result<Release, InvalidRelease> {
        if !is_image_name(image) {
            return Err(InvalidRelease::Image(image.to_owned()));
        }
        if !is_made_of(version, ".-_+", 128) {
            return Err(InvalidRelease::Version(version.to_owned()));
        }
        Ok(Release { image: image.to_owned(), version: version.to_owned() })
    }
}

/// Whether a text can be the name of an image.
pub(crate) fn is_image_name(text: &str) -> bool {
    is_made_of(text, ".-_/:@", IMAGE_LENGTH_MAX)
}

fn is_made_of(text: &str, others: &str, length_max: usize) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    !text.is_empty() && text.len() <= length_max && text.chars().all(is_known)
}

/// Every object of the payload, in the order in which they are applied, with the image and the version of `release`.
pub fn manifests(release: &Release) -> Vec<Manifest> {
    let objects = |(file, text): &(&'static str, &str)| {
        let text =
            text.replace(IMAGE_PLACEHOLDER, &release.image).replace(VERSION_PLACEHOLDER, &release.version);
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&text).expect("the files are part of this crate and are tested");
        let file = *file;
        objects.into_iter().map(move |object| Manifest { file, object })
    };
    FILES.iter().flat_map(objects).collect()
}
