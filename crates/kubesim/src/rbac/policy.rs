//! The roles and bindings of a cluster in the form in which requests are checked. Bindings are read once after a
//! change, a role when somebody first needs it: most of the roles that a cluster has from its start serve nobody.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::rule::Rule;
use crate::access::{User, service_account_of};
use crate::objects::{Objects, object_key};

/// The start of the tables of all roles and bindings.
pub(crate) const TABLES: &str = "rbac.authorization.k8s.io/";
const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";
const ROLES: &str = "rbac.authorization.k8s.io/roles";
const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";

/// A role that a binding refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RoleRef {
    /// `ClusterRole` or `Role`.
    pub(crate) kind: Box<str>,
    /// The name.
    pub(crate) name: Box<str>,
}

impl RoleRef {
    /// The `roleRef` of a binding.
    pub(crate) fn of(binding: &Value) -> RoleRef {
        let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default().into();
        RoleRef { kind: text("kind"), name: text("name") }
    }
}

#[derive(Debug)]
struct Binding {
    name: Box<str>,
    role: RoleRef,
    subjects: Box<[Subject]>,
}

#[derive(Debug)]
enum Subject {
    User(Box<str>),
    Group(Box<str>),
    ServiceAccount { namespace: Box<str>, name: Box<str> },
}

/// The rules of a role; an error if it does not exist.
type RoleRules = Result<Arc<[Rule]>, String>;

/// Where a rule comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleSource<'a> {
    binding: &'a Binding,
    namespace: &'a str,
    subject: &'a Subject,
}

/// The bindings of a cluster, and the roles that were needed so far.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    cluster: Vec<Binding>,
    namespaces: HashMap<Box<str>, Vec<Binding>>,
    roles: RwLock<HashMap<(Box<str>, RoleRef), RoleRules>>,
}

impl Policy {
    /// Reads all bindings.
    pub(crate) fn new(objects: &Objects) -> Policy {
        let mut policy = Policy::default();
        for (_, object) in objects.range(CLUSTER_ROLE_BINDINGS, "", "") {
            policy.cluster.push(Binding::new(object.name(), "", &object.value()));
        }
        for (_, object) in objects.range(ROLE_BINDINGS, "", "") {
            let namespace = object.namespace();
            let binding = Binding::new(object.name(), namespace, &object.value());
            policy.namespaces.entry(namespace.into()).or_default().push(binding);
        }
        policy
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub(crate) fn rules(&self, objects: &Objects, namespace: &str, role: &RoleRef) -> RoleRules {
        // Cluster roles are the same in every namespace.
        let place = if &*role.kind == "Role" { namespace } else { "" };
        let key = (place.into(), role.clone());
        if let Some(known) = self.roles.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let (table, word) = match &*role.kind {
            "ClusterRole" => (CLUSTER_ROLES, "clusterrole"),
            "Role" => (ROLES, "role"),
            kind => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        let rules: RoleRules = match objects.get(table, &object_key(place, &role.name)) {
            Some(object) => Ok(Rule::all_of(&object.value()).into()),
            None => Err(format!("{word}.rbac.authorization.k8s.io {:?} not found", role.name)),
        };
        self.roles.write().unwrap_or_else(PoisonError::into_inner).insert(key, rules.clone());
        rules
    }

    /// Calls `visit` with each rule that applies to a user in a namespace, until it returns true. Returns whether it
    /// has, and the roles that bindings refer to but that do not exist.
    pub(crate) fn visit(
        &self,
        objects: &Objects,
        user: &User,
        namespace: &str,
        mut visit: impl FnMut(RuleSource<'_>, &Rule) -> bool,
    ) -> (bool, Vec<String>) {
        let local = self.namespaces.get(namespace).filter(|_| !namespace.is_empty());
        let bindings = self
            .cluster
            .iter()
            .map(|binding| (binding, ""))
            .chain(local.into_iter().flatten().map(|binding| (binding, namespace)));
        let account = service_account_of(&user.name);
        let mut errors = Vec::new();
        for (binding, namespace) in bindings {
            let Some(subject) = binding.subjects.iter().find(|one| one.is(user, account)) else { continue };
            match self.rules(objects, namespace, &binding.role) {
                Ok(rules) => {
                    let source = RuleSource { binding, namespace, subject };
                    if rules.iter().any(|rule| visit(source, rule)) {
                        return (true, errors);
                    }
                }
                Err(error) if errors.contains(&error) => {}
                Err(error) => errors.push(error),
            }
        }
        (false, errors)
    }
}

impl Binding {
    fn new(name: &str, namespace: &str, value: &Value) -> Binding {
        let subjects = value["subjects"].as_array().into_iter().flatten();
        let subjects = subjects.filter_map(|subject| {
            let text = |field: &str| subject[field].as_str().unwrap_or_default();
            match text("kind") {
                "User" => Some(Subject::User(text("name").into())),
                "Group" => Some(Subject::Group(text("name").into())),
                "ServiceAccount" => {
                    let own = text("namespace");
                    let namespace = if own.is_empty() { namespace } else { own };
                    Some(Subject::ServiceAccount { namespace: namespace.into(), name: text("name").into() })
                }
                _ => None,
            }
        });
        Binding { name: name.into(), role: RoleRef::of(value), subjects: subjects.collect() }
    }
}

impl Subject {
    fn is(&self, user: &User, account: Option<(&str, &str)>) -> bool {
        match self {
            Subject::User(name) => *user.name == **name,
            Subject::Group(name) => user.is_in(name),
            Subject::ServiceAccount { namespace, name } => account == Some((namespace, name)),
        }
    }
}

impl std::fmt::Display for RuleSource<'_> {
    /// Names the binding as the real server does; the order of name and namespace is its own.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (binding, namespace) = (self.binding, self.namespace);
        match namespace.is_empty() {
            true => write!(f, "ClusterRoleBinding {:?}", binding.name)?,
            false => write!(f, "RoleBinding {:?}", format!("{}/{namespace}", binding.name))?,
        }
        write!(f, " of {} {:?} to ", binding.role.kind, binding.role.name)?;
        match self.subject {
            Subject::User(name) => write!(f, "User {name:?}"),
            Subject::Group(name) => write!(f, "Group {name:?}"),
            Subject::ServiceAccount { namespace, name } => {
                write!(f, "ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
        }
    }
}
