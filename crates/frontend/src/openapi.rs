//! The OpenAPI document, generated from the routes, with the responses that all routes have in common.

use api::admin::{ErrorBody, ErrorEnvelope};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, PathItem, Ref, RefOr, Response, ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};

/// The schema of every error response.
const ENVELOPE: &str = "ErrorEnvelope";

/// The OpenAPI document of both APIs.
pub fn openapi() -> OpenApi {
    let (_, mut api) = crate::admin::routes().split_for_parts();
    api.merge(crate::arm::routes().split_for_parts().1);
    api.info = InfoBuilder::new()
        .title("Shipshape API")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Clusters by the resource manager's contract, and the Admin API: tasks, manifests, schedules, budgets, versions, \
             clusters and events.",
        ))
        .build();
    let components = api.components.take().unwrap_or_default();
    let bearer =
        SecurityScheme::Http(Http::builder().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build());
    let mutual_tls = SecurityScheme::MutualTls { description: None, extensions: None, deprecated: None };
    let builder = ComponentsBuilder::from(components)
        .schema(ErrorBody::name(), ErrorBody::schema())
        .schema(ENVELOPE, ErrorEnvelope::schema())
        .security_scheme("certificate", mutual_tls)
        .security_scheme("token", bearer);
    api.components = Some(builder.build());
    let either = |name: &str| SecurityRequirement::new::<_, [&str; 0], &str>(name, []);
    api.security = Some(vec![either("certificate"), either("token")]);
    for item in api.paths.paths.values_mut() {
        for (operation, has_body) in operations(item) {
            complete(operation, has_body);
        }
    }
    api
}

/// The OpenAPI document as JSON.
pub(crate) fn text() -> String {
    openapi().to_pretty_json().unwrap_or_else(|error| {
        // The document has only strings and numbers, so this cannot happen.
        tracing::error!(error = &error as &dyn std::error::Error, "Cannot write the OpenAPI document");
        "{}".to_owned()
    })
}

fn operations(item: &mut PathItem) -> Vec<(&mut Operation, bool)> {
    let reading = [&mut item.get, &mut item.delete].into_iter().flatten().map(|operation| (operation, false));
    let writing = [&mut item.put, &mut item.post, &mut item.patch].into_iter().flatten();
    let writing = writing.map(|operation| {
        let has_body = operation.request_body.is_some();
        (operation, has_body)
    });
    reading.chain(writing).collect()
}

/// Adds the error responses that the routes have in common.
fn complete(operation: &mut Operation, has_body: bool) {
    let parameters = operation.parameters.as_deref().unwrap_or_default();
    let is_in = |place: ParameterIn| {
        parameters.iter().any(|it| matches!(it, RefOr::T(parameter) if parameter.parameter_in == place))
    };
    let (in_path, in_header) = (is_in(ParameterIn::Path), is_in(ParameterIn::Header));
    let mut common = vec![
        ("400", "The request is invalid."),
        ("403", "The caller is not authenticated, or may only read."),
        ("500", "Internal server error."),
        ("503", "The store is unavailable."),
    ];
    if in_path {
        common.push(("404", "Not found."));
    }
    if in_header {
        common.push(("412", "It has changed since the version in If-Match."));
    }
    if has_body {
        common.push(("415", "The media type of the body is not supported."));
    }
    let responses = &mut operation.responses.responses;
    for (status, description) in common {
        responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(error(description)));
    }
    for (status, response) in responses.iter_mut() {
        // A response without a body description is an error response.
        if let (false, RefOr::T(response)) = (status.starts_with('2'), response)
            && response.content.is_empty()
        {
            *response = error(&response.description);
        }
    }
}

fn error(description: &str) -> Response {
    let schema = Ref::from_schema_name(ENVELOPE);
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(description).content("application/json", content).build()
}
