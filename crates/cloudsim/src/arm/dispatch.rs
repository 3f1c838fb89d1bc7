//! Which part of the resource manager answers a request, and how fault rules name it.

use cloud::ResourceId;
use http::{Method, StatusCode};

use super::message::{ArmRequest, ArmResponse, method_not_allowed};
use super::path::Target;
use super::{access, authorization, groups, operations, resource_requests, store, subscriptions};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// Answers a request.
pub(crate) fn handle(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    target: &Target,
) -> Result<ArmResponse, Failure> {
    let is_get = request.method == Method::GET;
    match target {
        Target::Subscription { subscription } => subscriptions::get(cx, request, subscription),
        Target::Group { group } => groups::handle(cx, request, group),
        Target::SubscriptionProvider { subscription, namespace, rest } => {
            subscriptions::provider(cx, request, subscription, namespace, rest)
        }
        Target::Resource { id, type_name } => resource_requests::handle(cx, request, id, type_name),
        Target::Collection { group, parent, type_name } => {
            resource_requests::handle_collection(cx, request, group, parent.as_ref(), type_name)
        }
        Target::Extension { scope, namespace, rest } => {
            authorization::handle(cx, request, scope, namespace, rest)
        }
        _ if !is_get => Err(method_not_allowed(request)),
        Target::Subscriptions => subscriptions::list(cx),
        Target::Tenants => Ok(subscriptions::tenants(cx)),
        Target::Locations { subscription } => Ok(subscriptions::locations(subscription)),
        Target::Groups { subscription } => groups::list(cx, request, subscription),
        Target::Providers { subscription } => subscriptions::providers(cx, request, subscription),
        Target::SubscriptionResources { subscription } => {
            let scope = format!("/subscriptions/{subscription}");
            groups::list_resources(cx, request, &scope, store::in_subscription(cx.db, subscription)?)
        }
        Target::GroupResources { group } => {
            if store::visible(cx, group)?.is_none() {
                return Err(super::resources::group_not_found(group));
            }
            groups::list_resources(cx, request, group.as_str(), store::in_group(cx.db, group)?)
        }
        Target::OperationResult { subscription, id } => {
            let scope = format!("/subscriptions/{subscription}");
            access::check(
                cx,
                request.caller,
                "Microsoft.Resources/subscriptions/operationresults/read",
                &scope,
            )?;
            operations::result(cx, request, id)
        }
    }
}

/// The verb and the subject of a request for fault rules.
pub(crate) fn classify(method: &Method, target: &Target) -> (&'static str, String) {
    let by_method = |subject: String| match *method {
        Method::PUT | Method::PATCH | Method::POST => ("put", subject),
        Method::DELETE => ("delete", subject),
        _ => ("get", subject),
    };
    match target {
        Target::Resource { id, type_name } => classify_resource(method, id, type_name),
        Target::Collection { group, parent, type_name } => {
            let subject = parent.as_ref().unwrap_or(group).to_string();
            match *method {
                Method::POST if type_name.to_lowercase().ends_with("/generatecredentials") => {
                    ("issuePassword", subject)
                }
                Method::POST => by_method(subject),
                _ => ("list", subject),
            }
        }
        Target::Group { group } => by_method(group.to_string()),
        Target::GroupResources { group } => ("list", group.to_string()),
        Target::Groups { subscription } | Target::SubscriptionResources { subscription } => {
            ("list", format!("subscription {subscription}"))
        }
        Target::Subscriptions | Target::Tenants => ("get", "subscriptions".to_owned()),
        Target::Subscription { subscription } | Target::Locations { subscription } => {
            ("get", format!("subscription {subscription}"))
        }
        Target::Providers { subscription } => ("providers", format!("subscription {subscription}")),
        Target::OperationResult { id, .. } => ("operation", id.clone()),
        Target::SubscriptionProvider { subscription, namespace, rest } => {
            let has = |word: &str| rest.iter().any(|it| it.eq_ignore_ascii_case(word));
            let subject = format!("subscription {subscription}");
            let place = rest.get(1).map(String::as_str).unwrap_or_default();
            match () {
                () if namespace.eq_ignore_ascii_case("Microsoft.Features") => ("feature", subject),
                () if has("operations") || has("operationResults") => {
                    ("operation", rest.last().cloned().unwrap_or_default())
                }
                () if has("usages") => ("usages", format!("{subject} in {place}")),
                () if has("skus") && rest.len() == 1 => ("sizes", subject),
                () if rest.is_empty() || has("register") || has("unregister") => ("providers", subject),
                () => ("list", format!("{subject} {namespace}/{}", rest.join("/"))),
            }
        }
        Target::Extension { scope, rest, .. } => {
            let kind = rest.first().map(|it| it.to_lowercase()).unwrap_or_default();
            match (kind.as_str(), method) {
                ("permissions", _) => ("permissions", scope.clone()),
                ("roleassignments", &Method::PUT) => ("assignRole", scope.clone()),
                ("roleassignments", &Method::DELETE) => ("revokeRole", scope.clone()),
                ("roleassignments", _) => ("roleAssignments", scope.clone()),
                _ => by_method(format!("{scope}/{}", rest.join("/"))),
            }
        }
    }
}

fn classify_resource(method: &Method, id: &ResourceId, type_name: &str) -> (&'static str, String) {
    let subject = id.to_string();
    if type_name.eq_ignore_ascii_case("Microsoft.ContainerRegistry/registries/tokens") {
        let verb = match *method {
            Method::PUT | Method::PATCH => "ensureToken",
            Method::DELETE => "deleteToken",
            _ => "token",
        };
        return (verb, subject);
    }
    match *method {
        Method::PUT | Method::PATCH | Method::POST => ("put", subject),
        Method::DELETE => ("delete", subject),
        _ => ("get", subject),
    }
}

/// Statuses without a body, whatever a handler puts there.
pub(crate) fn has_no_body(method: &Method, status: StatusCode) -> bool {
    method == Method::HEAD || status == StatusCode::NO_CONTENT
}
