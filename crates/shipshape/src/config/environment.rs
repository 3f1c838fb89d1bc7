//! The environment of the process, read once: the only place where Shipshape looks at variables.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What every variable of ours begins with.
pub(super) const PREFIX: &str = "SHIPSHAPE_";

/// Names the configuration file; not a setting itself.
pub(super) const CONFIG_FILE: &str = "SHIPSHAPE_CONFIG";

/// What begins like a setting and is none: which file, which server, and a shell that wants words completed.
const NOT_SETTINGS: [&str; 3] = [CONFIG_FILE, "SHIPSHAPE_CONTEXT", "SHIPSHAPE_COMPLETE"];

/// A copy of the environment variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// The variables of this process.
    pub(crate) fn of_process() -> Environment {
        Environment { variables: std::env::vars_os().collect() }
    }

    /// Whether log lines on a terminal may be coloured, by the convention of <https://no-color.org>.
    pub(crate) fn allows_colour(&self) -> bool {
        self.get("NO_COLOR").is_none()
    }

    /// A variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// A variable that is set, not empty, and text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(OsStr::to_str).map(str::to_owned)
    }

    /// The base directory `variable` names, else `fallback` in the home directory.
    /// Relative ones are ignored, as the XDG specification demands.
    pub(crate) fn base_dir(&self, variable: &str, fallback: &str) -> Option<PathBuf> {
        let absolute = |name: &str| self.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(fallback)))
    }

    /// Every variable that is meant for us, without those that are not settings.
    pub(super) fn settings(&self) -> impl Iterator<Item = (String, &OsStr)> {
        self.variables.iter().filter_map(|(name, value)| {
            let name = name.to_string_lossy();
            let ours = name.starts_with(PREFIX)
                && !NOT_SETTINGS.contains(&name.as_ref())
                && !name.starts_with("SHIPSHAPE_TEST_")
                && !is_service_link(&name, value);
            ours.then(|| (name.into_owned(), value.as_os_str()))
        })
    }
}

/// Whether Kubernetes put this variable into the pod because a Service there is called `shipshape` or
/// `shipshape-…`. Such a name must not stop a process, since nobody wrote it.
fn is_service_link(name: &str, value: &OsStr) -> bool {
    if name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return true;
    }
    if name.ends_with("_PORT") {
        // Always `tcp://10.0.0.1:8443`; anything else is a person's mistake.
        return value.to_str().is_some_and(|value| value.contains("://"));
    }
    let after_port = name.split("_PORT_").nth(1);
    after_port.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
impl Environment {
    /// An environment of just these variables.
    pub(crate) fn of(variables: &[(&str, &str)]) -> Environment {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Environment { variables }
    }

    /// The same with one more, which need not be UTF-8.
    pub(crate) fn with_os(mut self, name: &str, value: &OsStr) -> Environment {
        self.variables.insert(name.into(), value.to_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_injects_for_a_service_is_not_taken_for_a_setting() {
        let check = |name: &str, value: &str, ours: bool| {
            let environment = Environment::of(&[(name, value)]);
            assert_eq!(environment.settings().count() == 1, ours, "{name}={value}");
        };
        check("SHIPSHAPE_SERVICE_HOST", "10.0.0.1", false);
        check("SHIPSHAPE_SERVICE_PORT", "8443", false);
        check("SHIPSHAPE_SERVICE_PORT_HTTPS", "8443", false);
        check("SHIPSHAPE_PORT", "tcp://10.0.0.1:8443", false);
        check("SHIPSHAPE_PORT_8443_TCP", "tcp://10.0.0.1:8443", false);
        check("SHIPSHAPE_FRONTEND_PORT_8443_TCP_ADDR", "10.0.0.1", false);
        check("SHIPSHAPE_TEST_POSTGRES", "anything", false);
        check("SHIPSHAPE_CONFIG", "/etc/shipshape.toml", false);
        check("SHIPSHAPE_CONTEXT", "harbour", false);
        check("SHIPSHAPE_HEALTH_PORT", "8446", true);
        check("SHIPSHAPE_STORE_URL", "sqlite:x", true);
        check("shipshape_store_url", "sqlite:x", false);
    }
}
