//! Paths: cleaned, matched in lower case, shown in the caller's spelling; and the resource ids in them.

use std::sync::Arc;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use super::{Code, Refusal};

/// The path of a request in the caller's spelling, cleaned.
#[derive(Debug, Clone)]
pub(crate) struct Spelled(pub(crate) Arc<str>);

/// Collapses empty segments, `.` and `..`.
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

/// The id of a cluster, taken from a path and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceId {
    /// In the caller's spelling.
    pub(crate) spelled: String,
    /// In lower case: the path under which it is stored.
    pub(crate) path: String,
    /// The subscription, in lower case.
    pub(crate) subscription: String,
    /// The name, in the caller's spelling.
    pub(crate) name: String,
}

impl ResourceId {
    /// Finds and checks the id in a path: the eight segments from `subscriptions` on.
    pub(crate) fn within(path: &str) -> Result<ResourceId, Refusal> {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let from =
            segments.iter().position(|segment| segment.eq_ignore_ascii_case("subscriptions")).unwrap_or(0);
        let decoded = |at: usize| {
            let segment = segments.get(from + at).copied().unwrap_or_default();
            percent_decode_str(segment).decode_utf8().map(std::borrow::Cow::into_owned).unwrap_or_default()
        };
        let [subscription, group, namespace, kind, name] = [1, 3, 5, 6, 7].map(decoded);
        let refuse = |code, message: &str| Err(Refusal::new(StatusCode::BAD_REQUEST, code, message));
        if subscription.len() != 36 || Uuid::try_parse(&subscription).is_err() {
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

/// `^[-a-z0-9_().]{0,89}[-a-z0-9_()]$` in any case.
fn is_name(text: &str) -> bool {
    let accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"-_().".contains(&byte);
    (1..=90).contains(&text.len()) && text.bytes().all(accepted) && !text.ends_with('.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "/admin/subscriptions/00000000-0000-0000-0000-00000000000A/resourceGroups/RG/providers/\
                        Microsoft.RedHatOpenShift/openShiftClusters/One";

    #[test]
    fn a_path_is_cleaned() {
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
    fn each_segment_has_its_own_refusal() {
        let check = |from: &str, to: &str, code: &str| {
            let refusal = ResourceId::within(&GOOD.replace(from, to)).unwrap_err();
            assert!(format!("{refusal:?}").contains(code), "{refusal:?} should be {code}");
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
