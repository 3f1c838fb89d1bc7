//! Paths of the resource manager. Keywords are compared without case, empty segments are dropped, names are decoded. An encoded slash
//! separates segments like any other: some SDKs encode a scope as if it were a name.

use cloud::ResourceId;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::error::ArmError;
use super::kind::find_kind;

/// The longest name of a resource that any provider accepts.
const NAME_CHARS_MAX: usize = 260;

/// Providers whose resources extend a resource, a group, a subscription or the tenant.
const EXTENSIONS: [&str; 3] =
    ["Microsoft.Authorization", "Microsoft.Maintenance", "Microsoft.ResourceHealth"];

/// What a path cannot have as it is. The slashes of a decoded path separate segments.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/subscriptions`
    Subscriptions,
    /// `/tenants`
    Tenants,
    /// `/subscriptions/S`
    Subscription { subscription: String },
    /// `/subscriptions/S/resourceGroups`
    Groups { subscription: String },
    /// `/subscriptions/S/resourceGroups/G`
    Group { group: ResourceId },
    /// `/subscriptions/S/resources`
    SubscriptionResources { subscription: String },
    /// `/subscriptions/S/resourceGroups/G/resources`
    GroupResources { group: ResourceId },
    /// `/subscriptions/S/locations`
    Locations { subscription: String },
    /// `/subscriptions/S/operationresults/ID`
    OperationResult { subscription: String, id: String },
    /// `/subscriptions/S/providers`
    Providers { subscription: String },
    /// `/subscriptions/S/providers/NAMESPACE[/…]`
    SubscriptionProvider { subscription: String, namespace: String, rest: Vec<String> },
    /// A resource, or a part of one.
    Resource { id: ResourceId, type_name: String },
    /// The resources of a type in a group or below a resource; on POST, the last segment is an action.
    Collection { group: ResourceId, parent: Option<ResourceId>, type_name: String },
    /// A resource that extends a scope: `{scope}/providers/NAMESPACE/TYPE[/NAME…]`. The scope of the tenant is empty.
    Extension { scope: String, namespace: String, rest: Vec<String> },
}

/// Parses the path of a request.
pub(crate) fn parse(path: &str) -> Result<Target, ArmError> {
    let segments = segments(path)?;
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let is = |at: usize, word: &str| words.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word));
    if is(0, "providers") && words.len() >= 3 {
        return extension("", &words[1..]);
    }
    if is(0, "tenants") && words.len() == 1 {
        return Ok(Target::Tenants);
    }
    if !is(0, "subscriptions") {
        return Err(unknown(path));
    }
    let Some(&subscription) = words.get(1) else { return Ok(Target::Subscriptions) };
    let named = || subscription.to_owned();
    match words.len() {
        2 => return Ok(Target::Subscription { subscription: named() }),
        3 if is(2, "resourcegroups") => return Ok(Target::Groups { subscription: named() }),
        3 if is(2, "resources") => return Ok(Target::SubscriptionResources { subscription: named() }),
        3 if is(2, "providers") => return Ok(Target::Providers { subscription: named() }),
        3 if is(2, "locations") => return Ok(Target::Locations { subscription: named() }),
        4 if is(2, "operationresults") => {
            return Ok(Target::OperationResult { subscription: named(), id: words[3].to_owned() });
        }
        _ => {}
    }
    if is(2, "providers") {
        let (namespace, rest) = (words[3], &words[4..]);
        if is_extension(&words[3..]) {
            return extension(&format!("/subscriptions/{subscription}"), &words[3..]);
        }
        let rest = rest.iter().map(|it| (*it).to_owned()).collect();
        return Ok(Target::SubscriptionProvider {
            subscription: named(),
            namespace: namespace.to_owned(),
            rest,
        });
    }
    if !is(2, "resourcegroups") {
        return Err(unknown(path));
    }
    let group = ResourceId::group(subscription, words[3]);
    match words.len() {
        4 => return Ok(Target::Group { group }),
        5 if is(4, "resources") => return Ok(Target::GroupResources { group }),
        _ if is(4, "providers") && words.len() >= 7 => {}
        _ => return Err(unknown(path)),
    }
    if is_extension(&words[5..]) {
        return extension(group.as_str(), &words[5..]);
    }
    in_group(path, group, words[5], &words[6..])
}

/// A resource, a collection or an extension below a group; `rest` is what follows the namespace.
fn in_group(path: &str, group: ResourceId, namespace: &str, rest: &[&str]) -> Result<Target, ArmError> {
    let mut types: Vec<&str> = Vec::new();
    let mut id = format!("{group}/providers/{namespace}");
    let mut parent: Option<ResourceId> = None;
    let mut rest = rest;
    loop {
        match rest {
            [] => {
                let id = parent.ok_or_else(|| unknown(path))?;
                return Ok(Target::Resource { id, type_name: spelled(namespace, &types) });
            }
            [word, extended @ ..]
                if word.eq_ignore_ascii_case("providers") && !types.is_empty() && extended.len() >= 2 =>
            {
                let scope = parent.as_ref().map_or(group.as_str(), ResourceId::as_str);
                return extension(scope, extended);
            }
            [collection] => {
                types.push(collection);
                return Ok(Target::Collection { group, parent, type_name: spelled(namespace, &types) });
            }
            [kind, name, below @ ..] => {
                types.push(kind);
                let type_name = spelled(namespace, &types);
                let kind = type_name.rsplit('/').next().unwrap_or(kind);
                id = format!("{id}/{kind}/{name}");
                parent = Some(id.parse().map_err(|_| unknown(path))?);
                rest = below;
            }
        }
    }
}

/// A type as its kind spells it, or else as it was sent.
fn spelled(namespace: &str, types: &[&str]) -> String {
    let sent = format!("{namespace}/{}", types.join("/"));
    find_kind(&sent).map_or(sent, |kind| kind.type_name.to_owned())
}

/// Whether a namespace and what follows it extend a scope.
fn is_extension(words: &[&str]) -> bool {
    let has_tags = |words: &[&str]| matches!(words, [_, kind, ..] if kind.eq_ignore_ascii_case("tags"));
    words.first().is_some_and(|namespace| {
        EXTENSIONS.iter().any(|it| it.eq_ignore_ascii_case(namespace))
            || (namespace.eq_ignore_ascii_case("Microsoft.Resources") && has_tags(words))
    })
}

/// An extension; `words` starts with the namespace.
fn extension(scope: &str, words: &[&str]) -> Result<Target, ArmError> {
    match words {
        [namespace, rest @ ..] if !rest.is_empty() => Ok(Target::Extension {
            scope: scope.to_owned(),
            namespace: (*namespace).to_owned(),
            rest: rest.iter().map(|it| (*it).to_owned()).collect(),
        }),
        _ => Err(unknown(scope)),
    }
}

fn segments(path: &str) -> Result<Vec<String>, ArmError> {
    let invalid = |why: &str| {
        ArmError::bad_request("InvalidRequestUri", format!("The request URI is not valid: {why}."))
    };
    path.replace("%2F", "/")
        .replace("%2f", "/")
        .split('/')
        .filter(|it| !it.is_empty())
        .map(|segment| {
            let text =
                percent_decode_str(segment).decode_utf8().map_err(|_| invalid("a segment is not UTF-8"))?;
            if text.contains(['/', '\\', '?', '#']) || text.chars().any(char::is_control) {
                return Err(invalid("a segment has characters that no name has"));
            }
            // A service behind the resource manager would resolve them, after the path was authorized.
            if matches!(text.as_ref(), "." | "..") {
                return Err(invalid("a segment is '.' or '..'"));
            }
            if text.chars().count() > NAME_CHARS_MAX {
                return Err(invalid("a segment is too long"));
            }
            Ok(text.into_owned())
        })
        .collect()
}

/// A path of decoded segments as a request has it.
pub(crate) fn encode(path: &str) -> String {
    utf8_percent_encode(path, ENCODED).to_string()
}

fn unknown(path: &str) -> ArmError {
    let shown: String = path.chars().take(NAME_CHARS_MAX).collect();
    ArmError::not_found(
        "InvalidResourcePath",
        format!("The path '{shown}' names nothing that this service has."),
    )
}

/// The parameters of a query, decoded. `+` stands for a blank, as SDKs send it.
pub(crate) fn query(text: &str) -> Vec<(String, String)> {
    let decode = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    text.split('&')
        .filter(|it| !it.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// Requires an api-version of the form `YYYY-MM-DD` with an optional suffix.
pub(crate) fn check_api_version(query: &[(String, String)]) -> Result<(), ArmError> {
    let given = query.iter().find(|(name, _)| name.eq_ignore_ascii_case("api-version"));
    let Some((_, version)) = given.filter(|(_, value)| !value.is_empty()) else {
        let message = "The api-version query parameter (?api-version=) is required for all requests.";
        return Err(ArmError::bad_request("MissingApiVersionParameter", message));
    };
    let is_digit = |at: usize| version.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let is_dash = |at: usize| version.as_bytes().get(at) == Some(&b'-');
    let has_date = [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(is_digit) && is_dash(4) && is_dash(7);
    let has_suffix = version.is_ascii()
        && (version.len() == 10 || version.get(10..).is_some_and(|it| it.starts_with('-') && it.len() > 1));
    if has_date && has_suffix {
        return Ok(());
    }
    let message = format!("The api-version '{version}' is invalid. The format is 'YYYY-MM-DD[-preview]'.");
    Err(ArmError::bad_request("InvalidApiVersionParameter", message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extension_of(path: &str) -> (String, String, String) {
        match parse(path) {
            Ok(Target::Extension { scope, namespace, rest }) => (scope, namespace, rest.join("/")),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn groups_and_subscriptions_are_recognised_in_any_case() {
        let group = ResourceId::group("s", "g");
        for path in [
            "/subscriptions/s/resourceGroups/g",
            "/Subscriptions/s/resourcegroups/g/",
            "//subscriptions//s/RESOURCEGROUPS/g",
        ] {
            assert_eq!(parse(path).unwrap(), Target::Group { group: group.clone() }, "{path}");
        }
        assert_eq!(parse("/subscriptions").unwrap(), Target::Subscriptions);
        assert_eq!(
            parse("/subscriptions/s/resources").unwrap(),
            Target::SubscriptionResources { subscription: "s".into() }
        );
    }

    #[test]
    fn extensions_have_the_scope_that_they_extend() {
        let group = "/subscriptions/s/resourceGroups/g";
        let network = format!("{group}/providers/Microsoft.Network/virtualNetworks/v");
        for (path, scope, rest) in [
            ("/providers/Microsoft.Authorization/roleDefinitions/x".to_owned(), "", "roleDefinitions/x"),
            (
                "/subscriptions/s/providers/Microsoft.Authorization/roleAssignments".to_owned(),
                "/subscriptions/s",
                "roleAssignments",
            ),
            (format!("{group}/providers/Microsoft.Authorization/locks/l"), group, "locks/l"),
            (
                format!("/{}/providers/Microsoft.Authorization/locks/l", group.replace('/', "%2F")),
                group,
                "locks/l",
            ),
            (format!("{group}/providers/Microsoft.Resources/tags/default"), group, "tags/default"),
            (
                format!("{network}/providers/Microsoft.Resources/tags/default"),
                network.as_str(),
                "tags/default",
            ),
            (
                format!("{network}/providers/Microsoft.Authorization/permissions"),
                network.as_str(),
                "permissions",
            ),
            (
                network.replace("Network/", "Network//") + "/providers/microsoft.authorization/permissions",
                network.as_str(),
                "permissions",
            ),
            (
                format!("{network}/providers/Microsoft.ResourceHealth/availabilityStatuses/current"),
                network.as_str(),
                "availabilityStatuses/current",
            ),
        ] {
            let (found, _, found_rest) = extension_of(&path);
            assert_eq!((found.as_str(), found_rest.as_str()), (scope, rest), "{path}");
        }
    }

    #[test]
    fn children_collections_and_actions_are_distinguished_by_their_number_of_segments() {
        let group = "/subscriptions/s/resourceGroups/g";
        let id: ResourceId = format!("{group}/providers/N.x/ts/a").parse().unwrap();
        let parsed = |tail: &str| parse(&format!("{group}/providers/N.x/{tail}")).unwrap();
        assert_eq!(parsed("ts/a"), Target::Resource { id: id.clone(), type_name: "N.x/ts".into() });
        let collection = |parent, type_name: &str| Target::Collection {
            group: group.parse().unwrap(),
            parent,
            type_name: type_name.into(),
        };
        assert_eq!(parsed("ts"), collection(None, "N.x/ts"));
        assert_eq!(parsed("ts/a/us"), collection(Some(id.clone()), "N.x/ts/us"));
        assert_eq!(
            parsed("ts/a/us/*%2Eb"),
            Target::Resource { id: id.child("us", "*.b"), type_name: "N.x/ts/us".into() }
        );
    }

    #[test]
    fn dot_segments_are_rejected_however_they_are_encoded() {
        for dots in ["..", ".", "%2e%2e", ".%2E", "%2e", "x%2F..%2Fy", "%2E%2e%2fy"] {
            for path in [
                format!("/providers/N.x/{dots}/../subscriptions/s"),
                format!("/subscriptions/s/providers/N.x/{dots}/ts"),
                format!("/subscriptions/s/resourceGroups/g/providers/N.x/ts/{dots}"),
                format!("/subscriptions/{dots}"),
            ] {
                let code = parse(&path).err().map(|it| it.code);
                assert_eq!(code.as_deref(), Some("InvalidRequestUri"), "{path}");
            }
        }
        assert!(parse("/subscriptions/s/resourceGroups/..g.").is_ok());
    }

    #[test]
    fn an_api_version_is_required_and_is_a_date() {
        let code = |text: &str| check_api_version(&query(text)).err().map(|it| it.code);
        assert_eq!(code("api-version=2024-05-01"), None);
        assert_eq!(code("a=b&API-VERSION=2021-06-01-preview"), None);
        assert_eq!(code("").as_deref(), Some("MissingApiVersionParameter"));
        assert_eq!(code("api-version=").as_deref(), Some("MissingApiVersionParameter"));
        for wrong in ["2024", "2024-05-01x", "2024-5-1", "2024-05-01-", "é024-05-01"] {
            let text = format!("api-version={wrong}");
            assert_eq!(code(&text).as_deref(), Some("InvalidApiVersionParameter"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_path_and_no_query_makes_the_parser_panic(path in "\\PC*", query_text in "\\PC*") {
            let _ = parse(&path);
            let _ = check_api_version(&query(&query_text));
        }

        #[test]
        fn no_mixture_of_known_words_makes_the_parser_panic(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("subscriptions"), Just("resourceGroups"), Just("providers"), Just("Microsoft.Network"),
                    Just("Microsoft.Authorization"), Just("s"), Just(""), Just("%2f"), Just("%ff"), Just("locks"),
                ],
                0..14,
            )
        ) {
            let _ = parse(&words.join("/"));
        }
    }
}
