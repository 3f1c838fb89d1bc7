//! Requests for resource providers outside the emulator. The resource manager does its own part as for every provider (authentication,
//! authorization, registration, groups, locks, policies) and forwards the rest with the headers that Azure's sends: the address that the
//! caller used, who changes the resource, and where a managed identity gets its credentials.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use cloud::ResourceId;
use http::header::{
    ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, REFERER, USER_AGENT,
};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::access::Caller;
use super::error::ArmError;
use super::path::{self, Target};
use super::{access, locks, policies, resources, store};
use crate::call_context::{CallContext, FaultEffects};
use crate::failure::Failure;
use crate::providers::ResourceProviders;
use crate::simulator::Simulator;

/// Longest wait for a provider, as in Azure.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Headers of the caller that a provider gets.
const FORWARDED: [HeaderName; 8] = [
    ACCEPT,
    CONTENT_TYPE,
    IF_MATCH,
    IF_NONE_MATCH,
    USER_AGENT,
    HeaderName::from_static("x-ms-client-request-id"),
    HeaderName::from_static("x-ms-return-client-request-id"),
    HeaderName::from_static("x-ms-correlation-request-id"),
];

/// Where a request is forwarded, and what its caller must be allowed to do.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    provider: Router,
    /// What the provider is asked for: the path that was authorized, not the one that was sent.
    path: String,
    namespace: String,
    /// Absent for what belongs to no subscription, which everybody may read.
    subscription: Option<String>,
    permission: Option<Permission>,
    /// The resource that is read or changed; absent for lists in a subscription.
    resource: Option<ForwardedResource>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Permission {
    action: String,
    scope: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ForwardedResource {
    id: ResourceId,
    type_name: String,
}

/// The parts of a request.
#[derive(Clone, Copy)]
pub(crate) struct ForwardedRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) query: &'a [(String, String)],
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    /// Scheme and host of the resource manager as the caller addressed it.
    pub(crate) base: &'a str,
}

/// The provider that answers a request, unless the resource manager answers it itself.
pub(crate) fn find_route(providers: &ResourceProviders, method: &Method, target: &Target) -> Option<Route> {
    let verb = match *method {
        Method::GET | Method::HEAD => "read",
        Method::DELETE => "delete",
        Method::POST => "action",
        _ => "write",
    };
    let permission = |types: &str, scope: &str| {
        Some(Permission { action: format!("{types}/{verb}"), scope: scope.to_owned() })
    };
    let (namespace, subscription, permission, resource, path) = match target {
        Target::Resource { id, type_name } => {
            let resource = ForwardedResource { id: id.clone(), type_name: type_name.clone() };
            let permission = permission(type_name, id.as_str());
            let path = id.as_str().to_owned();
            (type_name.split('/').next()?, Some(id.subscription()), permission, Some(resource), path)
        }
        Target::Collection { group, parent, type_name } => {
            let id = parent.as_ref().unwrap_or(group);
            let resource = ForwardedResource { id: id.clone(), type_name: type_name.clone() };
            let permission = permission(type_name, id.as_str());
            let path = match parent {
                Some(parent) => format!("{parent}/{}", type_name.rsplit('/').next()?),
                None => format!("{group}/providers/{type_name}"),
            };
            (type_name.split('/').next()?, Some(group.subscription()), permission, Some(resource), path)
        }
        Target::SubscriptionProvider { subscription, namespace, rest } => {
            if rest.is_empty() || registration(rest).is_some() {
                return None;
            }
            let types: Vec<&str> = rest.iter().step_by(2).map(String::as_str).collect();
            let types = format!("{namespace}/{}", types.join("/"));
            let permission = permission(&types, &format!("/subscriptions/{subscription}"));
            let path = format!("/subscriptions/{subscription}/providers/{namespace}/{}", rest.join("/"));
            (namespace.as_str(), Some(subscription.as_str()), permission, None, path)
        }
        Target::Extension { scope, namespace, rest }
            if scope.is_empty() && *method == Method::GET && is_operations(rest) =>
        {
            (namespace.as_str(), None, None, None, format!("/providers/{namespace}/operations"))
        }
        _ => return None,
    };
    let provider = providers.find(namespace)?;
    let (namespace, subscription) = (namespace.to_owned(), subscription.map(str::to_owned));
    let path = path::encode(&path);
    Some(Route { provider, path, namespace, subscription, permission, resource })
}

/// Whether the segments behind a namespace are the list of its operations, the only part of a provider that needs no role.
fn is_operations(rest: &[String]) -> bool {
    matches!(rest, [word] if word.eq_ignore_ascii_case("operations"))
}

/// Whether the segments behind a namespace register a provider; false when they end its registration.
fn registration(rest: &[String]) -> Option<bool> {
    match rest {
        [verb] if verb.eq_ignore_ascii_case("register") => Some(true),
        [verb] if verb.eq_ignore_ascii_case("unregister") => Some(false),
        _ => None,
    }
}

/// Forwards a request and returns the provider's response.
pub(crate) async fn respond(
    simulator: &Simulator,
    effects: FaultEffects,
    request: ForwardedRequest<'_>,
    route: &Route,
) -> Result<Response, Failure> {
    let (caller, tenant) = simulator.within(effects, |cx| {
        admit(cx, request, route).map(|caller| (caller, cx.endpoints.tenant_id.clone()))
    })?;
    if let Some(subscription) = &route.subscription
        && !simulator.providers.is_notified(&route.namespace, subscription)
    {
        notify(simulator, &route.namespace, subscription, true).await;
    }
    let mut headers = HeaderMap::new();
    for name in FORWARDED {
        if let Some(value) = request.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let mut insert = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    let named = HeaderName::from_static;
    let sent = request.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    insert(REFERER, format!("{}{sent}", request.base));
    let asked = match request.uri.query() {
        Some(query) => format!("{}?{query}", route.path),
        None => route.path.clone(),
    };
    insert(named("x-ms-client-principal-name"), caller.client_id.clone());
    insert(named("x-ms-client-tenant-id"), tenant.clone());
    insert(named("x-ms-home-tenant-id"), tenant);
    if matches!(*request.method, Method::PUT | Method::PATCH) {
        let mut is_new = false;
        if *request.method == Method::PUT {
            let found = send(&route.provider, &Method::GET, &asked, HeaderMap::new(), Bytes::new()).await?;
            match found.status() {
                StatusCode::NOT_FOUND => is_new = true,
                status if status.is_success() => {}
                // Whether the write creates the resource is unknown, and with it who its creator is.
                _ => return Ok(found),
            }
        }
        let now = simulator.clock.now().to_string();
        insert(named("x-ms-arm-resource-system-data"), system_data(&caller, &now, is_new).to_string());
        insert(named("x-ms-identity-url"), simulator.endpoints().identity_service.clone());
    }
    send(&route.provider, request.method, &asked, headers, request.body.clone()).await
}

/// What the resource manager checks before a provider gets a request.
fn admit(cx: &CallContext<'_>, request: ForwardedRequest<'_>, route: &Route) -> Result<Caller, Failure> {
    let caller = access::authenticate(cx, request.headers)?;
    path::check_api_version(request.query)?;
    if request.query.iter().filter(|(name, _)| name.eq_ignore_ascii_case("api-version")).count() > 1 {
        let message = "The api-version query parameter (?api-version=) was specified more than once.";
        return Err(ArmError::bad_request("InvalidApiVersionParameter", message).into());
    }
    if let Some(Permission { action, scope }) = &route.permission {
        access::check(cx, &caller, action, scope)?;
    }
    if let Some(subscription) = &route.subscription {
        resources::check_registered(cx, subscription, &route.namespace)?;
    }
    let Some(ForwardedResource { id, type_name }) = &route.resource else { return Ok(caller) };
    let group = store::group_of(id);
    store::visible(cx, &group)?.ok_or_else(|| resources::group_not_found(&group))?;
    match *request.method {
        Method::GET | Method::HEAD => {}
        Method::DELETE => locks::check_delete(cx, id.as_str())?,
        Method::PUT => {
            resources::check_group(cx, id)?;
            locks::check_write(cx, id.as_str())?;
            policies::check(cx, id, type_name)?;
        }
        _ => locks::check_write(cx, id.as_str())?,
    }
    Ok(caller)
}

/// The system data of a write; a provider keeps what is absent.
fn system_data(caller: &Caller, now: &str, is_new: bool) -> Value {
    let kind = if caller.identity.is_some() { "ManagedIdentity" } else { "Application" };
    let mut data = json!({
        "lastModifiedBy": caller.client_id, "lastModifiedByType": kind, "lastModifiedAt": now,
    });
    if is_new {
        data["createdBy"] = json!(caller.client_id);
        data["createdByType"] = json!(kind);
        data["createdAt"] = json!(now);
    }
    data
}

/// The subscription and provider whose registration a request changes, with the new state; none for a provider of the emulator itself.
pub(crate) fn find_registration(
    providers: &ResourceProviders,
    method: &Method,
    target: &Target,
) -> Option<(String, String, bool)> {
    match target {
        Target::SubscriptionProvider { subscription, namespace, rest } if *method == Method::POST => {
            let is_registered = registration(rest)?;
            let is_known = providers.find(namespace).is_some();
            is_known.then(|| (subscription.clone(), namespace.clone(), is_registered))
        }
        _ => None,
    }
}

/// Reports the state of a subscription to a provider. When that fails, the next request below the subscription repeats it.
pub(crate) async fn notify(simulator: &Simulator, namespace: &str, subscription: &str, is_registered: bool) {
    let Some(provider) = simulator.providers.find(namespace) else { return };
    simulator.providers.set_notified(namespace, subscription, false);
    let state = if is_registered { "Registered" } else { "Unregistered" };
    let body = json!({
        "state": state,
        "registrationDate": simulator.clock.now().to_string(),
        "properties": { "tenantId": simulator.endpoints().tenant_id, "registeredFeatures": [] },
    });
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let path = format!("/subscriptions/{subscription}?api-version=2.0");
    match send(&provider, &Method::PUT, &path, headers, body.to_string().into()).await {
        Ok(response) if response.status().is_success() => {
            simulator.providers.set_notified(namespace, subscription, is_registered);
        }
        Ok(response) => {
            let status = response.status();
            tracing::warn!(
                "{namespace} rejected the state {state} of subscription {subscription} with {status}"
            );
        }
        Err(error) => {
            tracing::warn!(
                "{namespace} was not notified of the state {state} of subscription {subscription}: {error}"
            );
        }
    }
}

async fn send(
    provider: &Router,
    method: &Method,
    path_and_query: &str,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = method.clone();
    *request.uri_mut() = path_and_query
        .parse()
        .map_err(|_| ArmError::bad_request("InvalidRequestUri", "The request URI is not valid."))?;
    *request.headers_mut() = headers;
    match tokio::time::timeout(RESPONSE_TIMEOUT, provider.clone().oneshot(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(never)) => match never {},
        Err(_) => {
            let message = "The gateway did not receive a response from the resource provider within the specified time period.";
            Err(ArmError::new(StatusCode::GATEWAY_TIMEOUT, "GatewayTimeout", message).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACE: &str = "Microsoft.RedHatOpenShift";
    const GROUP: &str = "/subscriptions/s/resourceGroups/g";

    fn route(method: Method, path: &str) -> Option<Route> {
        let providers = ResourceProviders::default();
        providers.register(NAMESPACE, Router::new());
        find_route(&providers, &method, &path::parse(path).unwrap())
    }

    #[test]
    fn requests_below_a_namespace_are_forwarded_with_the_action_that_they_need() {
        let cluster = format!("{GROUP}/providers/microsoft.redhatopenshift/openShiftClusters/c");
        let locations = format!("/subscriptions/s/providers/{NAMESPACE}/locations/l");
        for (method, path, action, scope) in [
            (Method::GET, cluster.clone(), "openShiftClusters/read", cluster.as_str()),
            (Method::PUT, cluster.clone(), "openShiftClusters/write", &cluster),
            (Method::DELETE, cluster.clone(), "openShiftClusters/delete", &cluster),
            (
                Method::POST,
                format!("{cluster}/listCredentials"),
                "openShiftClusters/listCredentials/action",
                &cluster,
            ),
            (Method::GET, cluster.trim_end_matches("/c").to_owned(), "openShiftClusters/read", GROUP),
            (
                Method::GET,
                format!("/subscriptions/s/providers/{NAMESPACE}/openShiftClusters"),
                "openShiftClusters/read",
                "/subscriptions/s",
            ),
            (
                Method::GET,
                format!("{locations}/openShiftVersions"),
                "locations/openShiftVersions/read",
                "/subscriptions/s",
            ),
            (
                Method::GET,
                format!("{locations}/operationsStatus/1"),
                "locations/operationsStatus/read",
                "/subscriptions/s",
            ),
        ] {
            let found = route(method, &path).and_then(|it| it.permission).expect(&path);
            let wanted = format!("{NAMESPACE}/{action}");
            assert!(found.action.eq_ignore_ascii_case(&wanted), "{path}: {}", found.action);
            assert_eq!(found.scope, scope, "{path}");
        }
        let operations = route(Method::GET, &format!("/providers/{NAMESPACE}/operations")).unwrap();
        assert!(operations.permission.is_none() && operations.subscription.is_none());
    }

    #[test]
    fn the_forwarded_path_is_the_authorized_one() {
        let clusters = format!("{GROUP}/providers/{NAMESPACE}/openShiftClusters");
        let operations = format!("/providers/{NAMESPACE}/operations");
        let versions = format!("/subscriptions/s/providers/{NAMESPACE}/locations/l/openShiftVersions");
        for (sent, forwarded) in [
            (clusters.clone(), &clusters),
            (format!("{clusters}/c/"), &format!("{clusters}/c")),
            (format!("{clusters}//c/a%2Fb/"), &format!("{clusters}/c/a/b")),
            (format!("{clusters}/c/listCredentials"), &format!("{clusters}/c/listCredentials")),
            (format!("{clusters}/%252e%252e"), &format!("{clusters}/%252e%252e")),
            (format!("{clusters}/a%20b(c)"), &format!("{clusters}/a%20b(c)")),
            (versions.clone(), &versions),
            (operations.clone(), &operations),
        ] {
            assert_eq!(&route(Method::GET, &sent).expect(&sent).path, forwarded, "{sent}");
        }
    }

    #[test]
    fn a_tenant_has_nothing_of_a_provider_except_its_operations() {
        for (method, rest) in [
            (Method::POST, "operations"),
            (Method::PUT, "operations"),
            (Method::GET, "operations/x"),
            (Method::GET, "openShiftClusters/c"),
            (Method::POST, "openShiftClusters/c/listCredentials"),
        ] {
            let path = format!("/providers/{NAMESPACE}/{rest}");
            assert!(route(method.clone(), &path).is_none(), "{method} {path}");
        }
    }

    #[test]
    fn registration_extensions_and_other_namespaces_stay_with_the_resource_manager() {
        for path in [
            format!("/subscriptions/s/providers/{NAMESPACE}"),
            format!("/subscriptions/s/providers/{NAMESPACE}/register"),
            format!(
                "{GROUP}/providers/{NAMESPACE}/openShiftClusters/c/providers/Microsoft.Authorization/locks/l"
            ),
            format!("{GROUP}/providers/Microsoft.Network/virtualNetworks/v"),
            GROUP.to_owned(),
        ] {
            assert!(route(Method::POST, &path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_change_does_not_name_a_creator() {
        let caller = Caller {
            client_id: "app".to_owned(),
            object_id: "o".to_owned(),
            tenant_id: "t".to_owned(),
            identity: None,
        };
        assert_eq!(system_data(&caller, "now", true)["createdBy"], "app");
        let changed = system_data(&caller, "now", false);
        assert_eq!(changed["lastModifiedBy"], "app");
        assert!(changed.get("createdAt").is_none(), "{changed}");
    }
}
