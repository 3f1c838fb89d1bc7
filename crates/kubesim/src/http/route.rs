//! Routing by path.

use std::sync::Arc;

use super::query::decode;
use crate::kinds::{self, Kind};
use crate::registry::Registry;
use crate::verbs::Target;

/// What the path of a request refers to.
#[derive(Debug)]
pub(super) enum Route {
    /// A collection, an object or a subresource.
    Objects(Target),
    /// A watch in the deprecated form with a path.
    Watch(Target),
    /// A subresource that this custom kind does not have, of the named object.
    UnknownSubresource(Arc<Kind>, String),
    /// The core versions: `/api`.
    CoreVersions,
    /// The groups: `/apis`.
    Groups,
    /// One group: `/apis/apps`.
    Group(String),
    /// The resources of a group and version.
    Resources(String, String),
    /// The index of OpenAPI documents.
    OpenApiIndex,
    /// The OpenAPI document of a group and version.
    OpenApi(String, String),
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// A resource of a served group that is not served.
    UnknownResource,
    /// Not a path of the API.
    Unknown,
}

impl Route {
    /// Parses a path.
    pub(super) fn parse(path: &str, kinds: &Registry) -> Route {
        let segments: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["version"] => Route::Version,
            ["healthz" | "livez" | "readyz", ..] => Route::Health,
            ["api"] => Route::CoreVersions,
            ["apis"] => Route::Groups,
            ["openapi", "v2"] => Route::OpenApiV2,
            ["openapi", "v3"] => Route::OpenApiIndex,
            ["openapi", "v3", "api", version] => Route::OpenApi(String::new(), (*version).to_owned()),
            ["openapi", "v3", "apis", group, version] => {
                Route::OpenApi((*group).to_owned(), (*version).to_owned())
            }
            ["apis", group] => Route::Group((*group).to_owned()),
            ["api", version, rest @ ..] => Route::in_version("", version, rest, kinds),
            ["apis", group, version, rest @ ..] => Route::in_version(group, version, rest, kinds),
            _ => Route::Unknown,
        }
    }

    fn in_version(group: &str, version: &str, rest: &[&str], served: &Registry) -> Route {
        // An unknown resource of a built-in group gets a Status instead of a plain 404.
        let is_built_in = kinds::built_in().iter().any(|kind| kind.group() == group);
        let not_found = if is_built_in { Route::UnknownResource } else { Route::Unknown };
        if !served.all().any(|kind| kind.group() == group && kind.version() == version) {
            return not_found;
        }
        if let ["watch", rest @ ..] = rest
            && !rest.is_empty()
        {
            return match Route::in_version(group, version, rest, served) {
                Route::Objects(target) if target.subresource.is_empty() => Route::Watch(target),
                _ => not_found,
            };
        }
        let (namespace, plural, name, subresource) = match rest {
            [] => return Route::Resources(group.to_owned(), version.to_owned()),
            ["namespaces", name, part @ ("status" | "finalize")] if group.is_empty() => {
                ("", "namespaces", *name, *part)
            }
            ["namespaces", namespace, plural] => (*namespace, *plural, "", ""),
            ["namespaces", namespace, plural, name] => (*namespace, *plural, *name, ""),
            ["namespaces", namespace, plural, name, part] => (*namespace, *plural, *name, *part),
            [plural] => ("", *plural, "", ""),
            [plural, name] => ("", *plural, *name, ""),
            [plural, name, part] => ("", *plural, *name, *part),
            _ => return not_found,
        };
        let Some(kind) = served.find(group, version, plural) else { return not_found };
        let fits = match (kind.is_namespaced(), namespace.is_empty()) {
            (true, false) | (false, true) => true,
            // Only lists can span all namespaces.
            (true, true) => name.is_empty(),
            (false, false) => false,
        };
        if !fits {
            return not_found;
        }
        if !subresource.is_empty() && kind.subresource(subresource).is_none() {
            return match kind.custom() {
                Some(_) => Route::UnknownSubresource(kind.clone(), name.to_owned()),
                None => Route::UnknownResource,
            };
        }
        Route::Objects(Target {
            kind: kind.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_understood() {
        let kinds = Registry::default();
        let shown = |path: &str| match Route::parse(path, &kinds) {
            Route::Objects(target) => {
                format!(
                    "{} {} {} {}",
                    target.kind.plural(),
                    target.namespace,
                    target.name,
                    target.subresource
                )
            }
            other => format!("{other:?}"),
        };
        assert_eq!(shown("/api/v1/namespaces/a/pods/b/log"), "pods a b log");
        assert_eq!(shown("/api/v1/namespaces/a"), "namespaces  a ");
        assert_eq!(shown("/api/v1/namespaces/a/finalize"), "namespaces  a finalize");
        assert_eq!(shown("/apis/apps/v1/deployments"), "deployments   ");
        assert_eq!(shown("/api/v1/namespaces/a/nodes/b"), "UnknownResource");
        assert_eq!(shown("/api/v1/pods/b"), "UnknownResource");
        assert_eq!(shown("/api/v1/namespaces/a/pods/b/exec"), "UnknownResource");
        assert_eq!(shown("/apis/none/v1/things"), "Unknown");
        assert_eq!(shown("/"), "Unknown");
    }
}
