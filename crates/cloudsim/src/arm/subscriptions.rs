//! Subscriptions and what they have besides groups: providers, features, sizes, usages, operations.

use std::collections::BTreeSet;

use cloud::{Availability, Size};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::error::ArmError;
use super::kind::find_kind;
use super::message::{ArmRequest, ArmResponse, method_not_allowed};
use super::resources::{self, short_location, shown};
use super::store::{self, GROUP_TYPE};
use super::{access, kinds, lists, operations};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::sizes;

/// The locations that the emulator names. It accepts any other, too.
const LOCATIONS: [(&str, &str); 5] = [
    ("eastus", "East US"),
    ("westus2", "West US 2"),
    ("westeurope", "West Europe"),
    ("northeurope", "North Europe"),
    ("uksouth", "UK South"),
];

/// Namespaces without resources of their own, besides those of the kinds.
const NAMESPACES: [&str; 7] = [
    "Microsoft.Authorization",
    "Microsoft.Features",
    "Microsoft.Maintenance",
    "Microsoft.RedHatOpenShift",
    "Microsoft.ResourceHealth",
    "Microsoft.Resources",
    "Microsoft.Quota",
];

fn subscription_body(cx: &CallContext<'_>, subscription: &str) -> Value {
    json!({
        "id": format!("/subscriptions/{subscription}"),
        "subscriptionId": subscription,
        "tenantId": cx.endpoints.tenant_id,
        "displayName": format!("Simulated subscription {subscription}"),
        "state": "Enabled",
        "subscriptionPolicies": {
            "locationPlacementId": "Public_2014-09-01",
            "quotaId": "PayAsYouGo_2014-09-01",
            "spendingLimit": "Off",
        },
        "authorizationSource": "RoleBased",
    })
}

/// The emulator's own subscription, and each that has a group.
pub(crate) fn list(cx: &CallContext<'_>) -> Result<ArmResponse, Failure> {
    let mut found = BTreeSet::from([cx.endpoints.subscription_id.clone()]);
    let groups = store::of_type_anywhere(cx.db, GROUP_TYPE)?;
    found.extend(groups.iter().map(|it| it.id.subscription().to_lowercase()));
    Ok(ArmResponse::list(found.iter().map(|it| subscription_body(cx, it)).collect()))
}

pub(crate) fn tenants(cx: &CallContext<'_>) -> ArmResponse {
    let id = &cx.endpoints.tenant_id;
    ArmResponse::list(vec![
        json!({ "id": format!("/tenants/{id}"), "tenantId": id, "displayName": "Simulated tenant" }),
    ])
}

pub(crate) fn get(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    subscription: &str,
) -> Result<ArmResponse, Failure> {
    if request.method != Method::GET {
        return Err(method_not_allowed(request));
    }
    let scope = format!("/subscriptions/{subscription}");
    access::check(cx, request.caller, "Microsoft.Resources/subscriptions/read", &scope)?;
    Ok(ArmResponse::ok(subscription_body(cx, subscription)))
}

pub(crate) fn locations(subscription: &str) -> ArmResponse {
    let location = |(name, display): &(&str, &str)| {
        json!({
            "id": format!("/subscriptions/{subscription}/locations/{name}"),
            "name": name,
            "displayName": display,
            "regionalDisplayName": display,
            "type": "Region",
            "metadata": { "regionType": "Physical" },
        })
    };
    ArmResponse::list(LOCATIONS.iter().map(location).collect())
}

fn namespaces() -> BTreeSet<&'static str> {
    let of_kinds = kinds::all().filter_map(|it| it.type_name.split('/').next());
    of_kinds.chain(NAMESPACES).collect()
}

fn provider_body(cx: &CallContext<'_>, subscription: &str, namespace: &str) -> Result<Value, Failure> {
    let types: Vec<Value> = kinds::all()
        .filter_map(|it| it.type_name.strip_prefix(namespace)?.strip_prefix('/'))
        .map(|it| {
            json!({
                "resourceType": it,
                "locations": LOCATIONS.map(|(_, display)| display),
                "apiVersions": ["2024-05-01", "2023-07-01", "2022-12-01"],
                "zoneMappings": LOCATIONS.map(|(_, display)| json!({ "location": display, "zones": ["1", "2", "3"] })),
                "capabilities": "None",
            })
        })
        .collect();
    let state =
        if sizes::is_registered(cx, subscription, namespace)? { "Registered" } else { "NotRegistered" };
    Ok(json!({
        "id": format!("/subscriptions/{subscription}/providers/{namespace}"),
        "namespace": namespace,
        "registrationPolicy": "RegistrationRequired",
        "registrationState": state,
        "resourceTypes": types,
    }))
}

/// The providers of a subscription.
pub(crate) fn providers(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    subscription: &str,
) -> Result<ArmResponse, Failure> {
    let scope = format!("/subscriptions/{subscription}");
    access::check(cx, request.caller, "Microsoft.Resources/subscriptions/providers/read", &scope)?;
    let bodies: Result<Vec<Value>, Failure> =
        namespaces().iter().map(|it| provider_body(cx, subscription, it)).collect();
    Ok(ArmResponse::list(bodies?))
}

/// Requests below `/subscriptions/S/providers/NAMESPACE`.
pub(crate) fn provider(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    subscription: &str,
    namespace: &str,
    rest: &[String],
) -> Result<ArmResponse, Failure> {
    let words: Vec<String> = rest.iter().map(|it| it.to_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let scope = format!("/subscriptions/{subscription}");
    let may = |action: &str| access::check(cx, request.caller, action, &scope);
    if namespace.eq_ignore_ascii_case("Microsoft.Features") {
        may("Microsoft.Features/providers/features/read")?;
        return features(cx, request, subscription, rest);
    }
    let known = namespaces().into_iter().find(|it| it.eq_ignore_ascii_case(namespace)).ok_or_else(|| {
        let message = format!("The resource namespace '{namespace}' is invalid.");
        ArmError::not_found("InvalidResourceNamespace", message)
    })?;
    match (request.method, words.as_slice()) {
        (&Method::GET, []) => Ok(ArmResponse::ok(provider_body(cx, subscription, known)?)),
        (&Method::POST, [verb @ ("register" | "unregister")]) => {
            may(&format!("{known}/{verb}/action"))?;
            sizes::set_provider(cx, subscription, known, *verb == "register")?;
            Ok(ArmResponse::ok(provider_body(cx, subscription, known)?))
        }
        (&Method::GET, ["locations", _, "operations", id]) => operations::status(cx, request, id),
        (&Method::GET, ["locations", _, "operationresults", id]) => operations::result(cx, request, id),
        (&Method::GET, ["locations", location, "usages"]) => {
            may(&format!("{known}/locations/usages/read"))?;
            usages(cx, subscription, location, known)
        }
        (&Method::GET, ["skus"]) if known == "Microsoft.Compute" => {
            may("Microsoft.Compute/skus/read")?;
            skus(cx, request, subscription)
        }
        (&Method::GET, ["locations", location, "publishers", rest @ ..]) if known == "Microsoft.Compute" => {
            images(request, subscription, location, rest)
        }
        (&Method::POST, ["checknameavailability"]) => name_availability(cx, request, known),
        (&Method::GET, ["deletedvaults"]) if known == "Microsoft.KeyVault" => {
            may("Microsoft.KeyVault/deletedVaults/read")?;
            Ok(ArmResponse::ok(kinds::vaults::deleted(cx, subscription)?))
        }
        (&Method::GET, ["locations", _, "deletedvaults", name]) if known == "Microsoft.KeyVault" => {
            may("Microsoft.KeyVault/locations/deletedVaults/read")?;
            Ok(ArmResponse::ok(kinds::vaults::find_deleted(cx, name)?))
        }
        // There are no managed HSMs, which `az` lists with the vaults.
        (&Method::GET, ["managedhsms" | "deletedmanagedhsms"]) if known == "Microsoft.KeyVault" => {
            Ok(ArmResponse::list(Vec::new()))
        }
        (&Method::POST, ["locations", _, "deletedvaults", name, "purge"])
            if known == "Microsoft.KeyVault" =>
        {
            may("Microsoft.KeyVault/locations/deletedVaults/purge/action")?;
            kinds::vaults::purge(cx, name)?;
            Ok(ArmResponse::empty(StatusCode::OK))
        }
        (&Method::GET, [_]) => {
            let type_name = format!("{known}/{}", rest[0]);
            let Some(kind) = find_kind(&type_name) else {
                return Err(resources::known_kind(&type_name)
                    .err()
                    .unwrap_or_else(|| method_not_allowed(request)));
            };
            may(&format!("{}/read", kind.type_name))?;
            let found = store::of_type(cx.db, subscription, kind.type_name)?;
            lists::page(cx, request, &found, |it| shown(cx, it, request.parameter("$expand")))
        }
        _ => {
            let message = format!("The path '{}' names nothing that this service has.", request.path);
            Err(ArmError::not_found("InvalidResourcePath", message).into())
        }
    }
}

/// Requests below `Microsoft.Features`; `rest` starts with `features` or with `providers`.
fn features(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    subscription: &str,
    rest: &[String],
) -> Result<ArmResponse, Failure> {
    let body = |name: &str, is_registered: bool| {
        let (namespace, feature) = name.split_once('/').unwrap_or(("", name));
        json!({
            "id": format!("/subscriptions/{subscription}/providers/Microsoft.Features/providers/{namespace}/features/{feature}"),
            "name": name,
            "type": "Microsoft.Features/providers/features",
            "properties": { "state": if is_registered { "Registered" } else { "NotRegistered" } },
        })
    };
    let words: Vec<&str> = rest.iter().map(String::as_str).collect();
    let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
    let all = sizes::features(cx, subscription)?;
    match (request.method, words.as_slice()) {
        (&Method::GET, [one]) if is(one, "features") => {
            Ok(ArmResponse::list(all.iter().map(|(name, state)| body(name, *state)).collect()))
        }
        (&Method::GET, [one, namespace, two]) if is(one, "providers") && is(two, "features") => {
            let of_namespace = all.iter().filter(|(name, _)| {
                name.split('/').next().is_some_and(|it| it.eq_ignore_ascii_case(namespace))
            });
            Ok(ArmResponse::list(of_namespace.map(|(name, state)| body(name, *state)).collect()))
        }
        (method, [one, namespace, two, feature, verb @ ..])
            if is(one, "providers") && is(two, "features") =>
        {
            let name = format!("{namespace}/{feature}");
            let found = sizes::feature(cx, subscription, &name)?;
            match (method, verb, found) {
                (&Method::GET, [], Some(state)) => Ok(ArmResponse::ok(body(&name, state))),
                (&Method::POST, [verb], _) if is(verb, "register") || is(verb, "unregister") => {
                    let is_registered = is(verb, "register");
                    sizes::set_feature(cx, subscription, &name, Some(is_registered))?;
                    Ok(ArmResponse::ok(body(&name, is_registered)))
                }
                (&Method::GET, [], None) => {
                    let message = format!("The feature '{feature}' could not be found.");
                    Err(ArmError::not_found("FeatureNotFound", message).into())
                }
                _ => Err(method_not_allowed(request)),
            }
        }
        _ => Err(method_not_allowed(request)),
    }
}

fn usages(
    cx: &CallContext<'_>,
    subscription: &str,
    location: &str,
    namespace: &str,
) -> Result<ArmResponse, Failure> {
    let is_network = |quota: &str| quota == "PublicIPAddresses";
    let wanted = namespace == "Microsoft.Network";
    let usage = |it: &cloud::Usage| {
        json!({
            "id": format!("/subscriptions/{subscription}/providers/{namespace}/locations/{location}/usages/{}", it.quota),
            "unit": "Count",
            "currentValue": it.used,
            "limit": it.limit,
            "name": { "value": it.quota, "localizedValue": it.quota },
        })
    };
    let found = sizes::usages(cx, subscription, location)?;
    Ok(ArmResponse::list(found.iter().filter(|it| is_network(&it.quota) == wanted).map(usage).collect()))
}

/// The sizes of machines, with an optional filter by location, quoted or not.
fn skus(cx: &CallContext<'_>, request: &ArmRequest<'_>, subscription: &str) -> Result<ArmResponse, Failure> {
    let locations: Vec<String> = match request.parameter("$filter").map(str::trim) {
        None | Some("") => LOCATIONS.iter().map(|it| it.0.to_owned()).collect(),
        Some(filter) => {
            let value = filter.split_once(" eq ").filter(|it| it.0.trim().eq_ignore_ascii_case("location"));
            let Some((_, value)) = value else {
                let message =
                    format!("The filter '{filter}' is not supported; only location can be filtered.");
                return Err(ArmError::bad_request("BadRequest", message).into());
            };
            vec![short_location(value.trim().trim_matches('\''))]
        }
    };
    let mut items = Vec::new();
    for location in &locations {
        let found = sizes::sizes(cx, subscription, location)?;
        items.extend(found.iter().map(|size| sku(size, location)));
    }
    Ok(ArmResponse::list(items))
}

fn sku(size: &Size, location: &str) -> Value {
    let capability = |name: &str, value: String| json!({ "name": name, "value": value });
    let spelled = |it: bool| if it { "True" } else { "False" }.to_owned();
    let restrictions: Vec<Value> = match &size.availability {
        Availability::Available => Vec::new(),
        Availability::Restricted(restriction) => vec![json!({
            "type": "Location",
            "values": [location],
            "restrictionInfo": { "locations": [location] },
            "reasonCode": restriction.reason,
        })],
    };
    let short = size.name.trim_start_matches("Standard_");
    json!({
        "resourceType": "virtualMachines",
        "name": size.name,
        "tier": "Standard",
        "size": short,
        "family": size.family,
        "locations": [location],
        "locationInfo": [{ "location": location, "zones": size.zones, "zoneDetails": [] }],
        "capabilities": [
            capability("vCPUs", size.cores.to_string()),
            capability("vCPUsAvailable", size.cores.to_string()),
            capability("MemoryGB", (u64::from(size.cores) * 4).to_string()),
            capability("PremiumIO", spelled(true)),
            capability("EncryptionAtHostSupported", spelled(size.encryption_at_host)),
            capability("HyperVGenerations", "V1,V2".to_owned()),
            capability("AcceleratedNetworkingEnabled", spelled(true)),
        ],
        "restrictions": restrictions,
    })
}

/// Marketplace images: every publisher, offer and sku has one version.
fn images(
    request: &ArmRequest<'_>,
    subscription: &str,
    location: &str,
    rest: &[&str],
) -> Result<ArmResponse, Failure> {
    const VERSION: &str = "1.0.0";
    let body = |version: &str| {
        json!({
            "id": format!("/Subscriptions/{subscription}/Providers/Microsoft.Compute/Locations/{location}/Publishers/{}", rest.join("/")),
            "name": version,
            "location": location,
        })
    };
    match rest {
        [_, "artifacttypes", "vmimage", "offers", _, "skus", _, "versions"] => {
            Ok(ArmResponse::ok(json!([body(VERSION)])))
        }
        [_, "artifacttypes", "vmimage", "offers", _, "skus", _, "versions", version] => {
            Ok(ArmResponse::ok(body(version)))
        }
        _ => Err(method_not_allowed(request)),
    }
}

/// Whether a globally unique name of an account, a vault or a registry is free.
fn name_availability(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    namespace: &str,
) -> Result<ArmResponse, Failure> {
    let body = request.json()?;
    let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
    let type_name = body.get("type").and_then(Value::as_str).unwrap_or_default();
    if !type_name.to_lowercase().starts_with(&namespace.to_lowercase()) {
        return Err(ArmError::bad_request(
            "InvalidResourceType",
            format!("The type '{type_name}' is not one of {namespace}."),
        )
        .into());
    }
    let invalid = match type_name.eq_ignore_ascii_case(kinds::storage::ACCOUNT) {
        true => kinds::storage::check_name(name).err(),
        false => None,
    };
    if let Some(Failure::Arm(error)) = invalid {
        let answer = json!({ "nameAvailable": false, "reason": error.code, "message": error.message });
        return Ok(ArmResponse::new(StatusCode::OK, answer));
    }
    let taken = store::named(cx.db, type_name, name)?.is_some();
    let mut answer = json!({ "nameAvailable": !taken });
    if taken {
        answer["reason"] = json!("AlreadyExists");
        answer["message"] = json!(format!("The name '{name}' is already taken."));
    }
    Ok(ArmResponse::new(StatusCode::OK, answer))
}
