//! Environment variables that are settings: those that start with `SHIPSHAPE_`, with a few exceptions.

use std::ffi::OsStr;

use cli::Environment;

/// Prefix of all variables of Shipshape.
pub(super) const PREFIX: &str = "SHIPSHAPE_";

/// Names the configuration file; not a setting itself.
pub(super) const CONFIG_FILE: &str = "SHIPSHAPE_CONFIG";

/// Variables with the prefix that are not settings: the configuration file, the context, and shell completion.
const NOT_SETTINGS: [&str; 3] = [CONFIG_FILE, "SHIPSHAPE_CONTEXT", "SHIPSHAPE_COMPLETE"];

/// Every variable that is a setting, misspelt ones included.
pub(super) fn settings(environment: &Environment) -> impl Iterator<Item = (String, &OsStr)> {
    environment.iter().filter_map(|(name, value)| {
        let name = name.to_string_lossy();
        let is_setting = name.starts_with(PREFIX)
            && !NOT_SETTINGS.contains(&name.as_ref())
            && !name.starts_with("SHIPSHAPE_TEST_")
            && !is_service_link(&name, value);
        is_setting.then(|| (name.into_owned(), value))
    })
}

/// Whether Kubernetes added this variable to the pod because a Service is named `shipshape` or
/// `shipshape-…`. Such a variable must not prevent a start.
fn is_service_link(name: &str, value: &OsStr) -> bool {
    if name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return true;
    }
    if name.ends_with("_PORT") {
        // Kubernetes sets a URL such as `tcp://10.0.0.1:8443`; any other value is a mistake of the user.
        return value.to_str().is_some_and(|value| value.contains("://"));
    }
    let after_port = name.split("_PORT_").nth(1);
    after_port.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_kubernetes_adds_for_a_service_are_not_settings() {
        let check = |name: &str, value: &str, is_setting: bool| {
            let environment = Environment::from_iter([(name, value)]);
            assert_eq!(settings(&environment).count() == 1, is_setting, "{name}={value}");
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
