//! What a deployment would meet: the rules that need neither a cloud nor a write. Nothing is stored.

use api::admin::ErrorBody;
use api::rest::{
    ApiVersion, CLUSTER_TYPE, PreflightStatus, Wrong, WrongCode, lay_over, match_roles, validate,
};
use axum::extract::State;
use serde_json::{Map, Value};

use super::params::{GroupPath, Version};
use super::{Desk, version, write};
use crate::wire::{Answer, Ask, Refusal, ResourceId};

/// Checks the resources of a deployment. The answer is 200 whatever is found.
#[utoipa::path(
    post, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/deployments/{deploymentName}/preflight",
    operation_id = "Deployments_Preflight", tag = "resource manager",
    params(GroupPath, Version, ("deploymentName" = String, Path, description = "The deployment.")), request_body = Object,
    responses((status = 200, description = "Whether it would be accepted.", body = PreflightStatus))
)]
pub(super) async fn preflight(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    ask.check_media()?;
    version(&ask)?;
    let outcome = match ask.object() {
        Ok(body) => look(&desk, &ask, &body).await?,
        Err(_) => Err(content("The body is not JSON as it must be.")),
    };
    let (status, error) = match outcome {
        Ok(()) => ("Succeeded", None),
        Err(Wrong { code, target, message }) => {
            ("Failed", Some(ErrorBody { code: code.as_str().to_owned(), message, target }))
        }
    };
    Ok(Answer::ok(&PreflightStatus { status: status.to_owned(), error }))
}

fn content(message: &str) -> Wrong {
    Wrong::new(WrongCode::InvalidRequestContent, "", message)
}

/// The first thing that is wrong with any of the resources.
async fn look(desk: &Desk, ask: &Ask, body: &Value) -> Result<Result<(), Wrong>, Refusal> {
    let Some(resources) = body["resources"].as_array() else {
        return Ok(Err(content("The member resources must be a list.")));
    };
    for resource in resources {
        let Value::Object(members) = resource else {
            return Ok(Err(content("Each of the resources must be an object.")));
        };
        let kind = resource["type"].as_str().unwrap_or_default();
        if kind.eq_ignore_ascii_case(CLUSTER_TYPE)
            && let Err(wrong) = one(desk, ask, members).await?
        {
            return Ok(Err(wrong));
        }
    }
    Ok(Ok(()))
}

/// What is wrong with one cluster of a deployment.
async fn one(desk: &Desk, ask: &Ask, members: &Map<String, Value>) -> Result<Result<(), Wrong>, Refusal> {
    let word = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    let Some(version) = ApiVersion::named(word("apiVersion")) else {
        return Ok(Err(content("The member apiVersion of a cluster must name a version of this provider.")));
    };
    let path = format!(
        "/subscriptions/{}/resourceGroups/{}/providers/{CLUSTER_TYPE}/{}",
        ask.segment("subscriptionId"),
        ask.segment("resourceGroupName"),
        word("name")
    );
    let Ok(id) = ResourceId::within(&path) else {
        return Ok(Err(content("The member name of a cluster must be a valid name.")));
    };
    // The template's own words are no members of the resource.
    let mut body = members.clone();
    for name in ["apiVersion", "dependsOn", "scope", "condition", "comments"] {
        body.remove(name);
    }
    let body = Value::Object(body);
    let stored = desk.store.clusters().find(&id.path).await?.map(|read| read.document);
    let known = desk.offer.now();
    Ok(match &stored {
        Some(stored) if stored.provisioned.is_some() => write::proposal(version, stored, &body)
            .and_then(|external| validate(&external.draft(), &desk.ground(&id.spelled, Some(stored)))),
        _ => version.read(body).and_then(|external| {
            let draft = external.draft();
            if let Some(wanted) = draft.properties.as_ref().and_then(|it| it.version) {
                write::check_enabled(wanted, &known)?;
            }
            validate(&draft, &desk.ground(&id.spelled, None))?;
            let mut cluster = write::blank(&id, desk.clock.now());
            lay_over(&draft, &mut cluster);
            let spec = cluster.provisioned.as_deref().map(|it| &it.spec);
            let default = known.default_version().map(|it| it.version.as_str()).unwrap_or_default();
            spec.map_or(Ok(()), |spec| {
                let version = if spec.version.is_empty() { default } else { &spec.version };
                match_roles(&spec.identity, version, &known.role_sets)
            })
        }),
    })
}
