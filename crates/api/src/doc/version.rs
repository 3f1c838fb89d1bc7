//! A version of OpenShift that clusters can be installed with.

use serde::{Deserialize, Serialize};

use super::Document;

/// One installable version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The version, as `4.17.3`.
    pub version: String,
    /// The release image.
    pub openshift_pullspec: String,
    /// The installer image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installer_pullspec: Option<String>,
    /// Whether customers may choose it.
    pub enabled: bool,
    /// Whether it is the default when a customer names none.
    #[serde(default)]
    pub default: bool,
}

impl Document for Version {
    const KIND: &'static str = "version";

    fn path(&self) -> String {
        format!("/versions/{}", self.version.to_lowercase())
    }

    fn scope(&self) -> String {
        "/".to_owned()
    }
}
