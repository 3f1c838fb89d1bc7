//! Installable versions of OpenShift.

use api::rest::OpenShiftVersion;
use serde_json::Value;

use crate::error::ClientError;
use crate::exchange::{Client, TypedResponse};
use crate::pages::Pages;
use crate::path::ApiPath;

impl Client {
    /// Lists the versions that a subscription can install in a location.
    pub fn installable_versions(&self, subscription: &str, location: &str) -> Pages<OpenShiftVersion> {
        let place =
            format!("subscriptions/{subscription}/providers/Microsoft.RedHatOpenShift/locations/{location}");
        let path = ApiPath::from_resource_id("", &place).segment("openShiftVersions").with_arm_version();
        Pages::with_server_page_size(self, &path)
    }

    /// Lists all versions, including disabled ones (Admin API).
    pub fn versions(&self) -> Pages<Value> {
        Pages::with_server_page_size(self, &ApiPath::new("/admin/versions"))
    }

    /// Creates or changes a version.
    pub async fn set_version(&self, body: &Value) -> Result<TypedResponse<Value>, ClientError> {
        self.put(&ApiPath::new("/admin/versions"), body, None).await
    }
}
