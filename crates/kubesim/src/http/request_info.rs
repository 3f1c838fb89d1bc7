//! What a request asks for, read from its method, path and query alone: whether it is permitted is decided before it
//! is known whether such a resource exists.

use hyper::Method;

use super::query::{Query, decode};
use crate::rbac::{AccessTarget, Attributes, ResourceAttributes};

/// The verb and target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestInfo {
    verb: String,
    path: String,
    resource: Option<ResourcePath>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ResourcePath {
    namespace: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
}

impl RequestInfo {
    /// Reads a request.
    pub(super) fn new(method: &Method, path: &str, query: &Query) -> RequestInfo {
        let path = decode(path, false);
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let found = match parts.as_slice() {
            ["api", _, rest @ ..] if !rest.is_empty() => resource_of(method, query, "", rest),
            ["apis", group, _, rest @ ..] if !rest.is_empty() => resource_of(method, query, group, rest),
            _ => None,
        };
        match found {
            Some((verb, resource)) => RequestInfo { verb, path, resource: Some(resource) },
            None => RequestInfo { verb: method.as_str().to_ascii_lowercase(), path, resource: None },
        }
    }

    /// What has to be permitted.
    pub(super) fn attributes(&self) -> Attributes<'_> {
        let target = match &self.resource {
            None => AccessTarget::Path(&self.path),
            Some(resource) => AccessTarget::Resource(ResourceAttributes {
                namespace: &resource.namespace,
                group: &resource.group,
                resource: &resource.resource,
                subresource: &resource.subresource,
                name: &resource.name,
            }),
        };
        Attributes { verb: &self.verb, target }
    }
}

fn resource_of(
    method: &Method,
    query: &Query,
    group: &str,
    parts: &[&str],
) -> Option<(String, ResourcePath)> {
    let (watches, parts) = match parts {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        ["watch" | "proxy"] => return None,
        parts => (false, parts),
    };
    let mut verb = match *method {
        _ if watches => "watch",
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    };
    // A namespace is also the path of what is in it.
    let (namespace, parts) = match parts {
        ["namespaces", namespace, "status" | "finalize", ..] => (*namespace, parts),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        ["namespaces", namespace] => (*namespace, parts),
        _ => ("", parts),
    };
    let at = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
    let mut resource = ResourcePath {
        namespace: namespace.to_owned(),
        group: group.to_owned(),
        resource: at(0),
        subresource: if watches { String::new() } else { at(2) },
        name: at(1),
    };
    if resource.name.is_empty() && verb == "get" {
        verb = if query.flag("watch") { "watch" } else { "list" };
        if let Some(name) = selected_name(query) {
            resource.name = name.to_owned();
        }
    }
    if resource.name.is_empty() && verb == "delete" {
        verb = "deletecollection";
    }
    Some((verb.to_owned(), resource))
}

/// The name that a field selector asks for: who may read one object may also watch it.
fn selected_name(query: &Query) -> Option<&str> {
    query.get("fieldSelector")?.split(',').find_map(|term| {
        let (field, value) = term.split_once('=')?;
        let value = value.strip_prefix('=').unwrap_or(value);
        let is_name =
            !value.is_empty() && !value.contains(['/', '%', '\\', '=']) && value != "." && value != "..";
        (field == "metadata.name" && is_name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(method: &str, path: &str) -> String {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let info = RequestInfo::new(&method.parse().unwrap(), path, &Query::parse(query));
        match info.attributes().target {
            AccessTarget::Path(path) => format!("{} {path}", info.verb),
            AccessTarget::Resource(one) => format!(
                "{} {}:{}:{}:{}:{}",
                info.verb, one.group, one.namespace, one.resource, one.name, one.subresource
            ),
        }
    }

    #[test]
    fn verb_and_resource_are_read_from_the_path() {
        for (method, path, expect) in [
            ("GET", "/healthz/etcd", "get /healthz/etcd"),
            ("POST", "/api/v1", "post /api/v1"),
            ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
            ("GET", "/api/v1/nodes", "list ::nodes::"),
            ("GET", "/api/v1/nodes?watch=true", "watch ::nodes::"),
            ("GET", "/api/v1/watch/nodes", "watch ::nodes::"),
            ("GET", "/api/v1/namespaces/a", "get :a:namespaces:a:"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update :a:namespaces:a:finalize"),
            ("GET", "/api/v1/namespaces/a/pods/b/log", "get :a:pods:b:log"),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps:a:deployments::"),
            ("GET", "/apis/none/v1/things/x", "get none::things:x:"),
            ("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Da", "list ::nodes:a:"),
            ("GET", "/api/v1/nodes?fieldSelector=metadata.name!%3Da", "list ::nodes::"),
            ("OPTIONS", "/api/v1/nodes", " ::nodes::"),
        ] {
            assert_eq!(shown(method, path), expect, "{method} {path}");
        }
    }
}
