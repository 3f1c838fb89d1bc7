//! Subscriptions, as the resource manager tells the server of them.

use serde_json::{Value, json};

use crate::error::ClientError;
use crate::exchange::{Answer, Client};
use crate::path::Path;

impl Client {
    /// Tells the server how a subscription stands, such as `Registered`.
    pub async fn set_subscription(
        &self,
        subscription: &str,
        state: &str,
    ) -> Result<Answer<Value>, ClientError> {
        let path = Path::of_cluster("", &format!("subscriptions/{subscription}")).for_subscriptions();
        self.put(&path, &json!({ "state": state, "properties": {} }), None).await
    }
}
