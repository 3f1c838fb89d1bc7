//! The API server's own record of who requested what, compared with what roles grant.

use std::collections::BTreeSet;
use std::path::PathBuf;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};
use testkit::kube::TestClusterOptions;

/// The audit log of one API server.
pub(crate) struct AuditLog {
    directory: tempfile::TempDir,
}

/// One request as the API server saw it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AuditedRequest {
    pub(crate) verb: String,
    pub(crate) group: String,
    /// With its subresource, such as `pods/eviction`.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) code: i64,
}

impl AuditLog {
    /// A log of the requests of service accounts, and the options of a cluster that writes it.
    pub(crate) fn new() -> (AuditLog, TestClusterOptions) {
        let directory = tempfile::tempdir().unwrap();
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]
        });
        let log = AuditLog { directory };
        std::fs::write(log.path("policy.json"), policy.to_string()).unwrap();
        let flag = |name: &str, value: String| format!("--{name}={value}");
        let options = TestClusterOptions::default()
            .api_server_flag(&flag("audit-policy-file", log.path("policy.json").display().to_string()))
            .api_server_flag(&flag("audit-log-path", log.path("audit.log").display().to_string()))
            .api_server_flag("--audit-log-mode=blocking");
        (log, options)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The requests of a service account for resources, without repetitions.
    pub(crate) fn requests(&self, namespace: &str, account: &str) -> BTreeSet<AuditedRequest> {
        self.all_requests(namespace, account).into_iter().collect()
    }

    /// The number of writes of a service account, but for leases.
    pub(crate) fn writes(&self, namespace: &str, account: &str) -> usize {
        let is_write = |it: &&AuditedRequest| {
            !matches!(it.verb.as_str(), "get" | "list" | "watch") && it.resource != "leases"
        };
        self.all_requests(namespace, account).iter().filter(is_write).count()
    }

    fn all_requests(&self, namespace: &str, account: &str) -> Vec<AuditedRequest> {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let text = std::fs::read_to_string(self.path("audit.log")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours = events.filter(|event| event["user"]["username"] == user.as_str());
        ours.filter_map(|event| {
            let reference = event.get("objectRef")?;
            let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
            let resource = match reference["subresource"].as_str() {
                Some(subresource) => format!("{}/{subresource}", text("resource")),
                None => text("resource"),
            };
            Some(AuditedRequest {
                verb: event["verb"].as_str().unwrap_or_default().to_owned(),
                group: text("apiGroup"),
                resource,
                namespace: text("namespace"),
                name: text("name"),
                code: event["responseStatus"]["code"].as_i64().unwrap_or_default(),
            })
        })
        .collect()
    }
}

/// A permission that one rule of a role grants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    group: String,
    resource: String,
    verb: String,
}

impl Grant {
    pub(crate) fn new(group: &str, resource: &str, verb: &str) -> Grant {
        Grant { group: group.to_owned(), resource: resource.to_owned(), verb: verb.to_owned() }
    }
}

/// The grants of a role that no request needed.
pub(crate) fn unused(rules: &[PolicyRule], requests: &BTreeSet<AuditedRequest>) -> BTreeSet<Grant> {
    let mut unused = BTreeSet::new();
    for rule in rules {
        let names = rule.resource_names.as_deref().unwrap_or_default();
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let is_use = |request: &AuditedRequest| {
                        request.group == *group
                            && request.resource == *resource
                            && request.verb == *verb
                            && (names.is_empty() || names.contains(&request.name))
                    };
                    if !requests.iter().any(is_use) {
                        unused.insert(Grant::new(group, resource, verb));
                    }
                }
            }
        }
    }
    unused
}
