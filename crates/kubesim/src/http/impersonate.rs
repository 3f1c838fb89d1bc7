//! Impersonation: a request of one user as another. Each attribute of the other user must be permitted, either to
//! `impersonate` or, more narrowly, for what the request does (`impersonate-on:`).

use std::collections::BTreeMap;

use hyper::HeaderMap;

use super::query::decode;
use crate::access::{
    ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, service_account_groups, service_account_of,
};
use crate::rbac::{self, AccessTarget, Attributes, ResourceAttributes};
use crate::state::State;
use crate::status::{ApiResult, StatusError};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
const NODES: &str = "system:nodes";
/// From so many groups or extra values on, one permission for all of them is tried first.
const MANY: usize = 4;

/// What a user may be impersonated as, in the order in which the real server tries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    /// Whether the mode can be used for this user at all.
    fn applies(self, requester: &User, wanted: &User) -> bool {
        let plain = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_of(&wanted.name);
        match self {
            Mode::AssociatedNode => {
                let own = requester.extra.get("authentication.kubernetes.io/node-name");
                plain
                    && node.is_some()
                    && service_account_of(&requester.name).is_some()
                    && own.and_then(|names| names.first()).map(String::as_str) == node
            }
            Mode::ArbitraryNode => plain && node.is_some(),
            Mode::ServiceAccount => plain && service_account_of(&wanted.name).is_some(),
            Mode::UserInfo => node.is_none() && service_account_of(&wanted.name).is_none(),
            Mode::Legacy => true,
        }
    }
}

/// The user as whom a request is sent, if its headers name one.
pub(super) fn impersonate(
    state: &State,
    requester: &User,
    headers: &HeaderMap,
    attributes: &Attributes<'_>,
) -> ApiResult<Option<User>> {
    let Some(wanted) = wanted_user(headers)? else { return Ok(None) };
    let mut first = None;
    for mode in MODES.into_iter().filter(|mode| mode.applies(requester, &wanted)) {
        match as_user(state, requester, &wanted, mode, attributes) {
            Ok(user) => return Ok(Some(user)),
            Err(refusal) => first = first.or(Some(refusal)),
        }
    }
    Err(first.unwrap_or_else(|| StatusError::internal("all impersonation modes failed")))
}

fn wanted_user(headers: &HeaderMap) -> ApiResult<Option<User>> {
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let one = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let groups: Vec<String> = headers.get_all(GROUP).iter().map(text).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            extra.entry(decode(key, false)).or_default().push(text(value));
        }
    }
    let (name, uid) = (one(USER), one(UID));
    if name.is_empty() && (!uid.is_empty() || !groups.is_empty() || !extra.is_empty()) {
        let list = |items: &[String]| match items {
            [] => "[]string(nil)".to_owned(),
            items => {
                let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
                format!("[]string{{{}}}", items.join(", "))
            }
        };
        let shown: Vec<String> =
            extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
        let extra = match shown.is_empty() {
            true => "map[string][]string(nil)".to_owned(),
            false => format!("map[string][]string{{{}}}", shown.join(", ")),
        };
        return Err(StatusError::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{}, Extra:{extra}}} without impersonating a user name",
            list(&groups)
        )));
    }
    if name.is_empty() {
        return Ok(None);
    }
    Ok(Some(User { uid: uid.into(), extra: extra.into(), ..User::new(&name, groups) }))
}

/// The other user, if the requester may impersonate him in this mode.
fn as_user(
    state: &State,
    requester: &User,
    wanted: &User,
    mode: Mode,
    attributes: &Attributes<'_>,
) -> ApiResult<User> {
    let is_narrow = mode != Mode::Legacy;
    let expect = |attributes: &Attributes<'_>| rbac::expect(state, requester, attributes);
    if is_narrow {
        let verb = format!("impersonate-on:{}:{}", mode.name(), attributes.verb);
        expect(&Attributes { verb: &verb, ..*attributes })?;
    }
    let verb = if is_narrow { format!("impersonate:{}", mode.name()) } else { "impersonate".to_owned() };
    let group = if is_narrow { AUTHENTICATION } else { "" };
    let on = |resource: ResourceAttributes<'_>| expect(&Attributes::on(&verb, resource));
    let refuse = |resource: ResourceAttributes<'_>, why: &str| {
        let attributes = Attributes { verb: &verb, target: AccessTarget::Resource(resource) };
        Err(rbac::forbidden(requester, &attributes, why))
    };

    let mut groups = wanted.groups.to_vec();
    let mut target =
        ResourceAttributes { group, resource: "users", name: &wanted.name, ..Default::default() };
    if let Some(node) = node_of(&wanted.name).filter(|_| is_narrow) {
        target.resource = "nodes";
        target.name = if mode == Mode::AssociatedNode { "*" } else { node };
        groups = vec![NODES.to_owned()];
    } else if let Some((namespace, name)) = service_account_of(&wanted.name) {
        (target.resource, target.namespace, target.name) = ("serviceaccounts", namespace, name);
        if groups.is_empty() {
            groups = service_account_groups(namespace);
        }
    }
    on(target)?;

    if !wanted.uid.is_empty() {
        let name = &*wanted.uid;
        on(ResourceAttributes { group: AUTHENTICATION, resource: "uids", name, ..Default::default() })?;
    }

    let target = ResourceAttributes { group, resource: "groups", ..Default::default() };
    if is_narrow && wanted.is_in("") {
        return refuse(target, "impersonating the empty string group is not allowed");
    }
    if is_narrow && wanted.is_in(MASTERS) {
        let target = ResourceAttributes { name: MASTERS, ..target };
        return refuse(target, "impersonating the system:masters group is not allowed");
    }
    let all =
        is_narrow && wanted.groups.len() >= MANY && on(ResourceAttributes { name: "*", ..target }).is_ok();
    for name in wanted.groups.iter().filter(|_| !all) {
        on(ResourceAttributes { name, ..target })?;
    }

    let target = ResourceAttributes { group: AUTHENTICATION, resource: "userextras", ..Default::default() };
    let values = wanted.extra.values().map(Vec::len).sum::<usize>();
    let all = is_narrow
        && values.max(wanted.extra.len()) >= MANY
        && on(ResourceAttributes { subresource: "*", name: "*", ..target }).is_ok();
    for (key, values) in wanted.extra.iter().filter(|_| !all) {
        for name in values {
            on(ResourceAttributes { subresource: key, name, ..target })?;
        }
    }

    let standing = match &*wanted.name {
        ANONYMOUS => Some(UNAUTHENTICATED),
        _ if groups.iter().any(|group| group == UNAUTHENTICATED) => None,
        _ => Some(AUTHENTICATED),
    };
    if let Some(standing) = standing.filter(|standing| !groups.iter().any(|group| group == standing)) {
        groups.push(standing.to_owned());
    }
    Ok(User { groups: groups.into(), ..wanted.clone() })
}

/// The node in a user name.
fn node_of(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| !name.is_empty())
}
