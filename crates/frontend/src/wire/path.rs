//! Paths: normalized, matched in lower case, shown as the caller wrote them; and the resource ids in them.

use std::sync::Arc;

use api::rest::{is_group_name as is_name, is_uuid};
use http::StatusCode;
use percent_encoding::percent_decode_str;

use super::{ApiError, Code};

/// The normalized path of a request, as the caller wrote it.
#[derive(Debug, Clone)]
pub(crate) struct OriginalPath(pub(crate) Arc<str>);

/// Removes empty segments, `.` and `..`.
pub(crate) fn clean(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

/// A valid resource id of a cluster, from a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceId {
    /// In the caller's spelling.
    pub(crate) spelled: String,
    /// In lower case: the path of the stored document.
    pub(crate) path: String,
    /// The subscription, in lower case.
    pub(crate) subscription: String,
    /// The name, in the caller's spelling.
    pub(crate) name: String,
}

impl ResourceId {
    /// Finds and checks the id in a path: the eight segments from `subscriptions` on.
    pub(crate) fn within(path: &str) -> Result<ResourceId, ApiError> {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let from =
            segments.iter().position(|segment| segment.eq_ignore_ascii_case("subscriptions")).unwrap_or(0);
        let decoded = |at: usize| {
            let segment = segments.get(from + at).copied().unwrap_or_default();
            percent_decode_str(segment).decode_utf8().map(std::borrow::Cow::into_owned).unwrap_or_default()
        };
        let [subscription, group, namespace, kind, name] = [1, 3, 5, 6, 7].map(decoded);
        let refuse = |code, message: &str| Err(ApiError::new(StatusCode::BAD_REQUEST, code, message));
        if !is_uuid(&subscription) {
            return refuse(Code::InvalidSubscriptionID, "The subscription in the path is not a UUID.");
        }
        if !is_name(&group) {
            return refuse(
                Code::ResourceGroupNotFound,
                "The path does not hold a valid resource group name.",
            );
        }
        if !namespace.eq_ignore_ascii_case("microsoft.redhatopenshift") {
            return refuse(
                Code::InvalidResourceNamespace,
                "The provider in the path must be Microsoft.RedHatOpenShift.",
            );
        }
        if !kind.eq_ignore_ascii_case("openshiftclusters") {
            return refuse(
                Code::InvalidResourceType,
                "The resource type in the path must be openShiftClusters.",
            );
        }
        if !is_name(&name) {
            return refuse(Code::ResourceNotFound, "The path does not hold a valid cluster name.");
        }
        let words = [0, 2, 4].map(decoded);
        let spelled = format!(
            "/{}/{subscription}/{}/{group}/{}/{namespace}/{kind}/{name}",
            words[0], words[1], words[2]
        );
        let path = spelled.to_lowercase();
        Ok(ResourceId { path, subscription: subscription.to_lowercase(), name, spelled })
    }
}

/// Validates the segments of a resource manager path, in order, before anything else of the request. Other paths are left to the
/// router.
pub(crate) fn check_segments(path: &str, locations: &[String]) -> Result<(), ApiError> {
    let path = path.strip_prefix("/admin").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let segments: Vec<String> = path
        .split('/')
        .skip(1)
        .map(|it| percent_decode_str(it).decode_utf8_lossy().to_ascii_lowercase())
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let refuse = |code, message: &str| Err(ApiError::new(StatusCode::BAD_REQUEST, code, message));
    let ["subscriptions", subscription, rest @ ..] = segments.as_slice() else { return Ok(()) };
    if !is_uuid(subscription) {
        return refuse(Code::InvalidSubscriptionID, "The subscription in the path is not a UUID.");
    }
    let (group, rest) = match rest {
        ["resourcegroups", group, rest @ ..] => (Some(*group), rest),
        rest => (None, rest),
    };
    if group.is_some_and(|group| !is_name(group)) {
        return refuse(Code::ResourceGroupNotFound, "The path does not hold a valid resource group name.");
    }
    let ["providers", namespace, rest @ ..] = rest else { return Ok(()) };
    if *namespace != "microsoft.redhatopenshift" {
        let message = "The provider in the path must be Microsoft.RedHatOpenShift.";
        return refuse(Code::InvalidResourceNamespace, message);
    }
    match (group, rest) {
        (Some(_), [kind, ..]) if *kind != "openshiftclusters" && *kind != "deployments" => {
            refuse(Code::InvalidResourceType, "The resource type in the path must be openShiftClusters.")
        }
        (Some(_), ["openshiftclusters", name, ..]) if !is_name(name) => {
            refuse(Code::ResourceNotFound, "The path does not hold a valid cluster name.")
        }
        (None, ["locations", location, ..])
            if !locations.iter().any(|it| it.eq_ignore_ascii_case(location)) =>
        {
            let message = format!("The location in the path must be one of: {}.", locations.join(", "));
            refuse(Code::InvalidLocation, &message)
        }
        (None, ["locations", _, "operationsstatus" | "operationresults", id]) if !is_uuid(id) => {
            refuse(Code::InvalidOperationID, "The operation in the path is not a UUID.")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "/admin/subscriptions/00000000-0000-0000-0000-00000000000A/resourceGroups/RG/providers/\
                        Microsoft.RedHatOpenShift/openShiftClusters/One";

    #[test]
    fn a_path_is_normalized() {
        let check = |given: &str, expect: &str| assert_eq!(clean(given), expect);
        check("/", "/");
        check("//admin///clusters/", "/admin/clusters");
        check("/admin/./x/../clusters", "/admin/clusters");
        check("/../../etc", "/etc");
    }

    #[test]
    fn an_id_keeps_its_spelling_and_is_stored_in_lower_case() {
        let id = ResourceId::within(&format!("{GOOD}/maintenancemanifests/x")).unwrap();
        assert_eq!(id.spelled, GOOD.strip_prefix("/admin").unwrap());
        assert_eq!(id.path, id.spelled.to_lowercase());
        assert_eq!((id.name.as_str(), id.subscription.len()), ("One", 36));
    }

    #[test]
    fn each_invalid_segment_has_its_own_error_code() {
        let check = |from: &str, to: &str, code: &str| {
            let error = ResourceId::within(&GOOD.replace(from, to)).unwrap_err();
            assert!(format!("{error:?}").contains(code), "{error:?} should be {code}");
        };
        check("00000000-0000-0000-0000-00000000000A", "x", "InvalidSubscriptionID");
        check(
            "00000000-0000-0000-0000-00000000000A",
            "%7b0000000-0000-0000-0000-00000000000A",
            "InvalidSubscriptionID",
        );
        check("RG", "a%20b", "ResourceGroupNotFound");
        check("RG", "a.", "ResourceGroupNotFound");
        check("Microsoft.RedHatOpenShift", "Microsoft.Compute", "InvalidResourceNamespace");
        check("openShiftClusters", "virtualMachines", "InvalidResourceType");
        check("One", "%ff", "ResourceNotFound");
        check("One", &"n".repeat(91), "ResourceNotFound");
    }

    proptest! {
        #[test]
        fn no_path_makes_the_reader_panic(text in ".*") {
            let _ = (clean(&text), ResourceId::within(&text));
        }
    }
}
