//! One rule of a role: what it permits, and which other rules it covers.

use serde_json::Value;

/// Permits everything in a list of verbs, groups, resources or paths.
const ALL: &str = "*";

/// What a request does, as far as permissions depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// The verb.
    pub verb: &'a str,
    /// What it is done to.
    pub target: AccessTarget<'a>,
}

/// What a request is directed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessTarget<'a> {
    /// A path that is no resource, such as `/healthz`.
    Path(&'a str),
    /// A resource, its objects or one of them.
    Resource(ResourceAttributes<'a>),
}

/// A resource in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceAttributes<'a> {
    /// The namespace, empty for none or all.
    pub namespace: &'a str,
    /// The API group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The object, empty for all.
    pub name: &'a str,
}

impl<'a> Attributes<'a> {
    /// A verb on a resource.
    pub fn on(verb: &'a str, resource: ResourceAttributes<'a>) -> Attributes<'a> {
        Attributes { verb, target: AccessTarget::Resource(resource) }
    }

    /// The namespace, empty for none.
    pub fn namespace(&self) -> &'a str {
        match self.target {
            AccessTarget::Path(_) => "",
            AccessTarget::Resource(resource) => resource.namespace,
        }
    }
}

/// A rule: every combination of its verbs with its groups and resources, or with its paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The verbs.
    pub verbs: Box<[Box<str>]>,
    /// The API groups.
    pub groups: Box<[Box<str>]>,
    /// The resources.
    pub resources: Box<[Box<str>]>,
    /// The names of objects; none stands for all.
    pub names: Box<[Box<str>]>,
    /// Paths that are no resources.
    pub paths: Box<[Box<str>]>,
}

impl Rule {
    /// Reads a rule.
    pub fn from_value(value: &Value) -> Rule {
        let list = |field: &str| -> Box<[Box<str>]> {
            let items = value[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(Into::into).collect()
        };
        Rule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// Reads the rules of a role.
    pub fn all_of(role: &Value) -> Vec<Rule> {
        role["rules"].as_array().into_iter().flatten().map(Rule::from_value).collect()
    }

    /// Whether the rule permits a request.
    pub fn permits(&self, attributes: &Attributes<'_>) -> bool {
        has_or_all(&self.verbs, attributes.verb)
            && match attributes.target {
                AccessTarget::Path(path) => self.paths.iter().any(|own| path_covers(own, path)),
                AccessTarget::Resource(target) => {
                    has_or_all(&self.groups, target.group)
                        && self.resources.iter().any(|own| resource_matches(own, &target))
                        && (self.names.is_empty() || has(&self.names, target.name))
                }
            }
    }

    /// The parts of `wanted` that none of `owned` covers: rules with one verb and one resource or path each.
    pub fn uncovered(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
        let parts = wanted.iter().flat_map(Rule::parts);
        parts.filter(|part| !owned.iter().any(|own| own.covers(part))).collect()
    }

    /// Rules with one verb and one resource or path each, which together are this rule.
    fn parts(&self) -> Vec<Rule> {
        let one = |text: &str| -> Box<[Box<str>]> { Box::new([text.into()]) };
        let mut parts = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Rule {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    match self.names.is_empty() {
                        true => parts.push(part),
                        false => {
                            parts.extend(
                                self.names.iter().map(|name| Rule { names: one(name), ..part.clone() }),
                            );
                        }
                    }
                }
            }
        }
        for path in &self.paths {
            parts.extend(self.verbs.iter().map(|verb| Rule {
                verbs: one(verb),
                paths: one(path),
                ..Rule::default()
            }));
        }
        parts
    }

    /// Whether this rule permits whatever `part` permits.
    fn covers(&self, part: &Rule) -> bool {
        let all =
            |own: &[Box<str>], wanted: &[Box<str>]| has(own, ALL) || wanted.iter().all(|one| has(own, one));
        let resource = |wanted: &str| {
            let below = wanted.split_once('/').map(|(_, below)| below);
            has_or_all(&self.resources, wanted)
                || below.is_some_and(|below| has(&self.resources, &format!("*/{below}")))
        };
        all(&self.verbs, &part.verbs)
            && all(&self.groups, &part.groups)
            && part.resources.iter().all(|one| resource(one))
            && part.paths.iter().all(|one| self.paths.iter().any(|own| path_covers(own, one)))
            && (self.names.is_empty()
                || (!part.names.is_empty() && part.names.iter().all(|name| has(&self.names, name))))
    }
}

impl std::fmt::Display for Rule {
    /// Formats the rule as messages of the real server do.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = fields
            .into_iter()
            .filter(|(_, items)| !items.is_empty())
            .map(|(name, items)| format!("{name}:{}", quoted_list(items)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// A list of strings as Go prints it with `%q`.
pub(crate) fn quoted_list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("{:?}", item.as_ref())).collect();
    format!("[{}]", items.join(" "))
}

fn has(list: &[Box<str>], text: &str) -> bool {
    list.iter().any(|one| **one == *text)
}

fn has_or_all(list: &[Box<str>], text: &str) -> bool {
    list.iter().any(|one| **one == *text || **one == *ALL)
}

fn resource_matches(own: &str, target: &ResourceAttributes<'_>) -> bool {
    if own == ALL {
        return true;
    }
    match own.split_once('/') {
        _ if target.subresource.is_empty() => own == target.resource,
        Some((resource, below)) => {
            (resource == target.resource || resource == ALL) && below == target.subresource
        }
        None => false,
    }
}

/// Whether a path, possibly with `*` at its end, includes another path.
fn path_covers(own: &str, path: &str) -> bool {
    own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> Rule {
        Rule::from_value(&value)
    }

    fn on<'a>(
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes::on(verb, ResourceAttributes { namespace: "", group, resource, subresource, name })
    }

    #[test]
    fn a_rule_permits_its_verbs_on_its_resources_only() {
        let pods =
            rule(json!({"apiGroups": [""], "resources": ["pods", "*/scale"], "verbs": ["get", "list"]}));
        assert!(pods.permits(&on("get", "", "pods", "", "a")));
        assert!(pods.permits(&on("get", "", "things", "scale", "a")));
        for denied in [
            on("delete", "", "pods", "", "a"),
            on("get", "apps", "pods", "", "a"),
            on("get", "", "pods", "log", "a"),
            on("get", "", "nodes", "", "a"),
            Attributes { verb: "get", target: AccessTarget::Path("/pods") },
        ] {
            assert!(!pods.permits(&denied), "{denied:?}");
        }
    }

    #[test]
    fn names_limit_a_rule_to_single_objects() {
        let one = rule(
            json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["*"]}),
        );
        assert!(one.permits(&on("get", "", "secrets", "", "a")));
        assert!(!one.permits(&on("get", "", "secrets", "", "b")));
        assert!(!one.permits(&on("list", "", "secrets", "", "")), "a list is not of one object");
    }

    #[test]
    fn a_path_with_a_star_permits_everything_below_it() {
        let paths = rule(json!({"nonResourceURLs": ["/healthz", "/apis/*"], "verbs": ["get"]}));
        let at = |path: &'static str| Attributes { verb: "get", target: AccessTarget::Path(path) };
        assert!(paths.permits(&at("/healthz")) && paths.permits(&at("/apis/apps")));
        assert!(!paths.permits(&at("/healthz/etcd")) && !paths.permits(&at("/apis")));
    }

    #[test]
    fn what_is_not_covered_is_listed_part_by_part() {
        let owned = [
            rule(json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})),
            rule(json!({"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]})),
        ];
        let wanted = [
            rule(json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "delete"]})),
            rule(
                json!({"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"], "verbs": ["get"]}),
            ),
        ];
        let missing: Vec<String> = Rule::uncovered(&owned, &wanted).iter().map(ToString::to_string).collect();
        assert_eq!(missing, [r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#]);
        let named = [rule(
            json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"]}),
        )];
        assert_eq!(Rule::uncovered(&named, &wanted[..1]).len(), 2, "names do not cover all objects");
    }
}
