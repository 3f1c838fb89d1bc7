//! Template deployments. Only empty templates are accepted: the emulator does not have the template language.

use std::time::Duration;

use cloud::ResourceId;
use serde_json::{Map, Value, json};

use super::error::ArmError;
use super::kind::{ArmResource, Behaviour, DeleteStyle, Kind, PutStyle};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// The type of deployments.
pub(crate) const DEPLOYMENT_TYPE: &str = "Microsoft.Resources/deployments";

/// The kinds of `Microsoft.Resources` that are stored like resources.
pub(crate) static KINDS: [Kind; 1] = [Kind {
    type_name: DEPLOYMENT_TYPE,
    put: PutStyle::AsyncOperation,
    delete: DeleteStyle::Location,
    span: Duration::from_secs(2),
    has_location: false,
    has_etag: false,
    behaviour: &Deployment,
}];

struct Deployment;

impl Behaviour for Deployment {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        _id: &ResourceId,
        _before: Option<&ArmResource>,
        body: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        let Some(Value::Object(properties)) = body.get_mut("properties") else {
            let message = "The request content was invalid: 'properties' is required.";
            return Err(ArmError::bad_request("InvalidRequestContent", message).into());
        };
        let template = properties.remove("template").unwrap_or_default();
        let resources = template.get("resources");
        let is_empty = match resources {
            None => true,
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(members)) => members.is_empty(),
            Some(_) => false,
        };
        if !is_empty || properties.contains_key("templateLink") {
            let message = "Deployment template validation failed: this emulator accepts only templates without resources.";
            return Err(ArmError::bad_request("InvalidTemplate", message).into());
        }
        properties.entry("mode").or_insert_with(|| json!("Incremental"));
        properties.insert("timestamp".to_owned(), json!(cx.now.to_string()));
        properties.insert("outputResources".to_owned(), json!([]));
        properties.insert("outputs".to_owned(), template.get("outputs").cloned().unwrap_or(json!({})));
        properties.insert("providers".to_owned(), json!([]));
        properties.insert("dependencies".to_owned(), json!([]));
        Ok(())
    }

    fn references(&self, _id: &ResourceId, _body: &Map<String, Value>) -> Vec<ResourceId> {
        Vec::new()
    }
}
