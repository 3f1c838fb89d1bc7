//! The description of the API, made from its routes, with what all of them have in common added here.

use api::admin::{ErrorBody, ErrorEnvelope};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, PathItem, Ref, RefOr, Response, ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};

/// The name of the schema that every error answer has.
const ENVELOPE: &str = "ErrorEnvelope";

/// The description of the API.
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

/// The same as JSON.
pub(crate) fn text() -> String {
    openapi().to_pretty_json().unwrap_or_else(|error| {
        // It is made of texts and numbers only.
        tracing::error!(error = &error as &dyn std::error::Error, "The OpenAPI document cannot be written");
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

/// Adds the refusals that the routes have in common.
fn complete(operation: &mut Operation, has_body: bool) {
    let parameters = operation.parameters.as_deref().unwrap_or_default();
    let is_in = |place: ParameterIn| {
        parameters.iter().any(|it| matches!(it, RefOr::T(parameter) if parameter.parameter_in == place))
    };
    let (in_path, in_header) = (is_in(ParameterIn::Path), is_in(ParameterIn::Header));
    let mut common = vec![
        ("400", "The request is not as it must be."),
        ("403", "Neither certificate nor token let the caller in, or they may only read."),
        ("500", "Something is wrong in the server."),
        ("503", "The store cannot be used now."),
    ];
    if in_path {
        common.push(("404", "There is no such thing."));
    }
    if in_header {
        common.push(("412", "It was changed since the version that If-Match names."));
    }
    if has_body {
        common.push(("415", "The body is of a type that is not accepted."));
    }
    let responses = &mut operation.responses.responses;
    for (status, description) in common {
        responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(error(description)));
    }
    for (status, response) in responses.iter_mut() {
        // An answer that says nothing of its body is a refusal.
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
