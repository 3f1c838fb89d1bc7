//! Template deployments. Templates whose resources are written out are deployed, as `az network lb create` and `az vm create` send them. The
//! emulator does not have the template language: of its expressions only `[reference('NAME')]` as an output is evaluated.

use std::time::Duration;

use cloud::ResourceId;
use serde_json::{Map, Value, json};

use super::access::{self, Caller};
use super::error::ArmError;
use super::kind::{ArmResource, Behaviour, DeleteStyle, Kind, PutStyle};
use super::message::{ArmRequest, ArmResponse};
use super::{resources, store};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// The type of deployments.
pub(crate) const DEPLOYMENT_TYPE: &str = "Microsoft.Resources/deployments";

/// Members of a resource in a template that are not a part of its body.
const TEMPLATE_MEMBERS: [&str; 7] =
    ["apiVersion", "comments", "condition", "copy", "dependsOn", "name", "type"];

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
        id: &ResourceId,
        _before: Option<&ArmResource>,
        body: &mut Map<String, Value>,
    ) -> Result<(), Failure> {
        let template = template(body)?;
        let planned = planned(id, &template)?;
        let mut written = Vec::new();
        for PlannedResource { id, type_name, body, .. } in planned {
            let kind = resources::known_kind(&type_name)?;
            written.push(resources::write(cx, kind, &id, body)?.resource);
        }
        let outputs = outputs(cx, &template, &written)?;
        let Some(Value::Object(properties)) = body.get_mut("properties") else { return Ok(()) };
        properties.remove("template");
        properties.entry("mode").or_insert_with(|| json!("Incremental"));
        properties.insert("timestamp".to_owned(), json!(cx.now.to_string()));
        let ids: Vec<Value> = written.iter().map(|it| json!({ "id": it.id })).collect();
        properties.insert("outputResources".to_owned(), json!(ids));
        properties.insert("outputs".to_owned(), outputs);
        properties.insert("providers".to_owned(), json!([]));
        properties.insert("dependencies".to_owned(), json!([]));
        Ok(())
    }

    /// What a deployment made exists without it.
    fn references(&self, _id: &ResourceId, _body: &Map<String, Value>) -> Vec<ResourceId> {
        Vec::new()
    }
}

/// A resource of a template.
#[derive(Debug, Clone, PartialEq)]
struct PlannedResource {
    id: ResourceId,
    type_name: String,
    body: Map<String, Value>,
    /// The resources of the template that come first, as `TYPE/NAME` or as ids.
    depends_on: Vec<String>,
}

fn invalid(why: &str) -> Failure {
    ArmError::bad_request("InvalidTemplate", format!("Deployment template validation failed: {why}.")).into()
}

/// The template of a deployment's body.
fn template(body: &Map<String, Value>) -> Result<Value, Failure> {
    let Some(Value::Object(properties)) = body.get("properties") else {
        let message = "The request content was invalid: 'properties' is required.";
        return Err(ArmError::bad_request("InvalidRequestContent", message).into());
    };
    if properties.contains_key("templateLink") {
        return Err(invalid("this emulator does not follow template links"));
    }
    Ok(properties.get("template").cloned().unwrap_or_default())
}

/// The resources of a template in the order in which they are written.
fn planned(deployment: &ResourceId, template: &Value) -> Result<Vec<PlannedResource>, Failure> {
    let items: Vec<Value> = match template.get("resources") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.clone(),
        Some(Value::Object(members)) => members.values().cloned().collect(),
        Some(_) => return Err(invalid("'resources' is neither an array nor an object")),
    };
    let group = store::group_of(deployment);
    let mut waiting = Vec::new();
    for item in items {
        waiting.push(planned_resource(&group, item)?);
    }
    let mut ordered: Vec<PlannedResource> = Vec::new();
    while !waiting.is_empty() {
        let is_free = |it: &PlannedResource| {
            !waiting.iter().any(|other| it.depends_on.iter().any(|name| other.is_named(name)))
        };
        let Some(next) = waiting.iter().position(is_free) else {
            return Err(invalid("the resources depend on each other in a circle"));
        };
        ordered.push(waiting.remove(next));
    }
    Ok(ordered)
}

fn planned_resource(group: &ResourceId, mut item: Value) -> Result<PlannedResource, Failure> {
    if let Some(expression) = find_expression(&item) {
        return Err(invalid(&format!("this emulator does not evaluate the expression '{expression}'")));
    }
    remove_nulls(&mut item);
    let Value::Object(mut body) = item else { return Err(invalid("a resource is not an object")) };
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (type_name, name) = (text("type"), text("name"));
    let depends_on = body.get("dependsOn").and_then(Value::as_array).into_iter().flatten();
    let depends_on = depends_on.filter_map(Value::as_str).map(str::to_owned).collect();
    let (Some((namespace, types)), names) = (type_name.split_once('/'), name.split('/')) else {
        return Err(invalid("a resource has no type"));
    };
    let types: Vec<&str> = types.split('/').collect();
    let names: Vec<&str> = names.filter(|it| !it.is_empty()).collect();
    if types.len() != names.len() {
        return Err(invalid(&format!("the name '{name}' has other segments than the type '{type_name}'")));
    }
    let path: String = types.iter().zip(&names).map(|(kind, name)| format!("/{kind}/{name}")).collect();
    let id = format!("{group}/providers/{namespace}{path}");
    let id = id.parse().map_err(|_| invalid(&format!("'{name}' is no name of a resource")))?;
    for member in TEMPLATE_MEMBERS {
        body.remove(member);
    }
    Ok(PlannedResource { id, type_name, body, depends_on })
}

impl PlannedResource {
    /// Whether a name in `dependsOn` or in an expression is that of this resource: an id, `TYPE/NAME`, or the bare name.
    fn is_named(&self, name: &str) -> bool {
        let short = format!("{}/{}", self.type_name, self.id.name());
        [self.id.as_str(), short.as_str(), self.id.name()].iter().any(|it| it.eq_ignore_ascii_case(name))
    }
}

/// The first text that is an expression: it begins with a single bracket.
fn find_expression(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text.as_str()).filter(|it| it.starts_with('[') && !it.starts_with("[[")),
        Value::Array(items) => items.iter().find_map(find_expression),
        Value::Object(members) => members.values().find_map(find_expression),
        _ => None,
    }
}

/// Removes members that are null: in a template they mean absence.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The outputs with their values.
fn outputs(cx: &CallContext<'_>, template: &Value, written: &[ArmResource]) -> Result<Value, Failure> {
    let mut outputs = template.get("outputs").cloned().unwrap_or_else(|| json!({}));
    for output in outputs.as_object_mut().into_iter().flat_map(Map::values_mut) {
        let Some(expression) = output.get("value").and_then(find_expression) else { continue };
        let name = expression.strip_prefix("[reference('").and_then(|it| it.strip_suffix("')]"));
        let found = name.and_then(|name| written.iter().find(|it| it.id.name().eq_ignore_ascii_case(name)));
        let Some(found) = found else {
            return Err(invalid(&format!("this emulator does not evaluate the expression '{expression}'")));
        };
        let shown = resources::shown(cx, found, None)?;
        output["value"] = shown.get("properties").cloned().unwrap_or_default();
    }
    Ok(outputs)
}

/// Requires that a caller may write every resource of a template.
pub(crate) fn check_rights(
    cx: &CallContext<'_>,
    caller: &Caller,
    id: &ResourceId,
    body: &Map<String, Value>,
) -> Result<(), Failure> {
    for PlannedResource { id, type_name, .. } in planned(id, &template(body)?)? {
        access::check(cx, caller, &format!("{type_name}/write"), id.as_str())?;
    }
    Ok(())
}

/// Answers `POST {deployment}/validate`, which the deployment need not exist for: whether its template can be deployed, as far as that is
/// known without doing so.
pub(crate) fn validate(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    id: &ResourceId,
) -> Result<ArmResponse, Failure> {
    access::check(cx, request.caller, &format!("{DEPLOYMENT_TYPE}/validate/action"), id.as_str())?;
    let group = store::group_of(id);
    store::visible(cx, &group)?.ok_or_else(|| resources::group_not_found(&group))?;
    let body = request.object()?;
    check_rights(cx, request.caller, id, &body)?;
    let planned = planned(id, &template(&body)?)?;
    for resource in &planned {
        resources::known_kind(&resource.type_name)?;
    }
    let ids: Vec<Value> = planned.iter().map(|it| json!({ "id": it.id })).collect();
    let mode = body.get("properties").and_then(|it| it.get("mode")).cloned();
    Ok(ArmResponse::ok(json!({
        "id": id,
        "name": id.name(),
        "type": DEPLOYMENT_TYPE,
        "properties": {
            "mode": mode.unwrap_or_else(|| json!("Incremental")),
            "provisioningState": "Succeeded",
            "timestamp": cx.now.to_string(),
            "providers": [],
            "dependencies": [],
            "validatedResources": ids,
        },
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> ResourceId {
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Resources/deployments/d".parse().unwrap()
    }

    fn names(template: &Value) -> Result<Vec<String>, String> {
        match planned(&deployment(), template) {
            Ok(planned) => Ok(planned.iter().map(|it| it.id.name().to_owned()).collect()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    #[test]
    fn resources_are_ordered_by_their_dependencies() {
        let template = json!({ "resources": [
            { "type": "Microsoft.Network/networkInterfaces", "name": "nic", "dependsOn": ["Microsoft.Network/publicIpAddresses/ip"] },
            { "type": "Microsoft.Network/publicIPAddresses", "name": "ip", "dependsOn": [] },
        ] });
        assert_eq!(names(&template).unwrap(), ["ip", "nic"]);
        let circle = json!({ "resources": [
            { "type": "Microsoft.Network/networkInterfaces", "name": "a", "dependsOn": ["b"] },
            { "type": "Microsoft.Network/networkInterfaces", "name": "b", "dependsOn": ["a"] },
        ] });
        assert!(names(&circle).unwrap_err().contains("in a circle"));
    }

    #[test]
    fn a_body_is_what_the_template_says_without_nulls() {
        let template = json!({ "resources": [{
            "type": "Microsoft.Network/virtualNetworks/subnets", "name": "v/s", "apiVersion": "2024-05-01",
            "properties": { "addressPrefix": "10.0.0.0/24", "routeTable": null },
        }] });
        let planned = planned(&deployment(), &template).unwrap();
        assert!(planned[0].id.as_str().ends_with("/virtualNetworks/v/subnets/s"), "{}", planned[0].id);
        assert_eq!(
            Value::Object(planned[0].body.clone()),
            json!({ "properties": { "addressPrefix": "10.0.0.0/24" } })
        );
    }

    #[test]
    fn an_expression_is_rejected() {
        let template = json!({ "resources": [{
            "type": "Microsoft.Network/publicIPAddresses", "name": "[parameters('name')]",
        }] });
        assert!(
            names(&template).unwrap_err().contains("does not evaluate the expression '[parameters('name')]'")
        );
    }
}
