//! Pages of lists.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::error::ArmError;
use super::kind::ArmResource;
use super::message::{ArmRequest, ArmResponse};
use crate::call_context::CallContext;
use crate::database;
use crate::failure::Failure;

const META: &str = "meta";
const PAGE_SIZE: &str = "pageSize";
const PAGE_SIZE_DEFAULT: usize = 100;
const PAGE_SIZE_MAX: usize = 1000;

/// Sets the number of items on a page.
pub(crate) fn set_page_size(cx: &CallContext<'_>, items: usize) -> Result<(), Failure> {
    database::write(cx.db, META, PAGE_SIZE, &items.clamp(1, PAGE_SIZE_MAX))
}

/// One page of these resources, which are ordered by key.
pub(crate) fn page(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    resources: &[ArmResource],
    show: impl Fn(&ArmResource) -> Result<Map<String, Value>, Failure>,
) -> Result<ArmResponse, Failure> {
    let size: usize = database::record(cx.db, META, PAGE_SIZE)?.unwrap_or(PAGE_SIZE_DEFAULT);
    let top = match request.parameter("$top") {
        None => size,
        Some(text) => {
            let number: usize = text.parse().ok().filter(|it| *it > 0).ok_or_else(|| {
                ArmError::bad_request(
                    "InvalidTop",
                    format!("The value '{text}' of $top is not a positive number."),
                )
            })?;
            number.min(size)
        }
    };
    let after = request.parameter("$skiptoken").unwrap_or_default().to_lowercase();
    let mut rest = resources.iter().filter(|it| it.is_visible(cx.now) && it.id.key() > after);
    let mut items = Vec::new();
    let mut last = String::new();
    for resource in rest.by_ref().take(top) {
        items.push(Value::Object(show(resource)?));
        last = resource.id.key();
    }
    let mut body = json!({ "value": items });
    if rest.next().is_some() {
        body["nextLink"] = json!(next_link(request, &last));
    }
    Ok(ArmResponse::ok(body))
}

fn next_link(request: &ArmRequest<'_>, last: &str) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut link = format!("{}{}?", request.base, request.path);
    for (name, value) in request.query.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("$skiptoken")) {
        link.push_str(&format!("{name}={}&", encode(value)));
    }
    link + "$skiptoken=" + &encode(last)
}
