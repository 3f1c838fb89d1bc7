//! Subscription lifecycle notifications of the resource manager.

use serde_json::{Value, json};

use crate::error::ClientError;
use crate::exchange::{Client, TypedResponse};
use crate::path::ApiPath;

impl Client {
    /// Sets the state of a subscription, such as `Registered`.
    pub async fn set_subscription(
        &self,
        subscription: &str,
        state: &str,
    ) -> Result<TypedResponse<Value>, ClientError> {
        let path = ApiPath::from_resource_id("", &format!("subscriptions/{subscription}"))
            .with_subscription_version();
        self.put(&path, &json!({ "state": state, "properties": {} }), None).await
    }
}
