//! Users: who sends a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of all users who have authenticated.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of those who have not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The start of the name of a ServiceAccount's user; namespace and name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A user of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: Arc<str>,
    /// The unique id, empty if the user has none.
    pub uid: Arc<str>,
    /// The groups.
    pub groups: Arc<[String]>,
    /// Further attributes.
    pub extra: Arc<BTreeMap<String, Vec<String>>>,
}

impl User {
    /// A user with these groups.
    pub fn new(name: &str, groups: impl IntoIterator<Item = impl Into<String>>) -> User {
        let groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        User { name: name.into(), groups: groups.into(), ..User::default() }
    }

    /// The administrator, who may do everything.
    pub fn admin() -> User {
        User::new("admin", [MASTERS, AUTHENTICATED])
    }

    /// The customer who owns the cluster; has all permissions too, under another name.
    pub fn customer() -> User {
        User::new("customer-admin", [MASTERS, AUTHENTICATED])
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> User {
        User::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// The user of a ServiceAccount.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
        let mut groups = service_account_groups(namespace);
        groups.push(AUTHENTICATED.to_owned());
        User { uid: uid.into(), ..User::new(&format!("{SERVICE_ACCOUNT}{namespace}:{name}"), groups) }
    }

    /// The same user with one more attribute.
    #[must_use]
    pub fn with_extra(mut self, key: &str, value: &str) -> User {
        Arc::make_mut(&mut self.extra).insert(key.to_owned(), vec![value.to_owned()]);
        self
    }

    /// Whether the user is in this group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    /// Whether the user may do everything, whatever the roles are.
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// The `UserInfo` of reviews.
    pub fn info(&self) -> Value {
        let mut info = json!({});
        if !self.name.is_empty() {
            info["username"] = json!(&*self.name);
        }
        if !self.uid.is_empty() {
            info["uid"] = json!(&*self.uid);
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(&*self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(&*self.extra);
        }
        info
    }
}

/// The groups of all ServiceAccounts of a namespace.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The namespace and name in the user name of a ServiceAccount.
pub(crate) fn service_account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_name = |text: &str| !text.is_empty() && !text.contains([':', '/']);
    (is_name(namespace) && is_name(name)).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_name_of_a_service_account_has_its_namespace_and_name() {
        let user = User::service_account("apps", "web", "1");
        assert_eq!(service_account_of(&user.name), Some(("apps", "web")));
        for other in [
            "admin",
            "system:serviceaccount:apps",
            "system:serviceaccount::web",
            "system:serviceaccount:a:b:c",
        ] {
            assert_eq!(service_account_of(other), None, "{other}");
        }
    }
}
