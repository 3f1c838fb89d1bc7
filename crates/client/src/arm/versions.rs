//! Versions of OpenShift that can be installed.

use api::rest::OpenShiftVersion;
use serde_json::Value;

use crate::error::ClientError;
use crate::exchange::{Answer, Client};
use crate::pages::Pages;
use crate::path::Path;

impl Client {
    /// The versions that customers of a subscription may choose in a location.
    pub fn installable_versions(&self, subscription: &str, location: &str) -> Pages<OpenShiftVersion> {
        let place =
            format!("subscriptions/{subscription}/providers/Microsoft.RedHatOpenShift/locations/{location}");
        let path = Path::of_cluster("", &place).segment("openShiftVersions").for_customers();
        Pages::of_any_length(self, &path)
    }

    /// Every version, those that are switched off too, as operators see them.
    pub fn versions(&self) -> Pages<Value> {
        Pages::of_any_length(self, &Path::of("/admin/versions"))
    }

    /// Makes a version known, or changes what is known of it.
    pub async fn set_version(&self, body: &Value) -> Result<Answer<Value>, ClientError> {
        self.put(&Path::of("/admin/versions"), body, None).await
    }
}
