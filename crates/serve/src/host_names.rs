//! The host names of a server, to tell requests for it from requests for other hosts.

use std::net::IpAddr;
use std::sync::Arc;

use crate::tls::CertificateFiles;

/// The host names of a server. Ports are ignored, because a proxy may listen on another one.
#[derive(Debug, Clone, Default)]
pub struct HostNames {
    names: Vec<String>,
    certificate: Option<Arc<CertificateFiles>>,
    allows_loopback: bool,
}

impl HostNames {
    /// The configured names. `*.` matches one label.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> HostNames {
        let names = names.into_iter().map(|name| normalize(name.as_ref())).collect();
        HostNames { names, ..HostNames::default() }
    }

    /// Adds the names in a certificate, as its file is now.
    #[must_use]
    pub fn with_certificate(mut self, certificate: Option<Arc<CertificateFiles>>) -> HostNames {
        self.certificate = certificate;
        self
    }

    /// Adds the loopback names and addresses.
    #[must_use]
    pub fn with_loopback(mut self) -> HostNames {
        self.allows_loopback = true;
        self
    }

    /// Whether a host (a name or address without a port) is one of them.
    pub fn contains(&self, host: &str) -> bool {
        let host = normalize(host);
        let certificate_names = || self.certificate.as_ref().map(|it| it.names()).unwrap_or_default();
        (self.allows_loopback && is_loopback_name(&host))
            || self.names.iter().any(|name| matches(name, &host))
            || certificate_names().iter().any(|name| matches(name, &host))
    }
}

/// Whether a host is always this machine.
pub fn is_loopback_name(host: &str) -> bool {
    let host = normalize(host);
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// The host of an authority such as `example.com:8443` or `[::1]:8443`.
pub fn authority_host(authority: &str) -> Option<String> {
    let parsed: http::uri::Authority = authority.trim().parse().ok()?;
    // A name before an @ imitates a host.
    if parsed.as_str().contains('@') || parsed.host().is_empty() {
        return None;
    }
    Some(normalize(parsed.host()))
}

fn normalize(host: &str) -> String {
    host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

fn matches(name: &str, host: &str) -> bool {
    if let (Ok(name), Ok(host)) = (name.parse::<IpAddr>(), host.parse::<IpAddr>()) {
        return name.to_canonical() == host.to_canonical();
    }
    match name.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent),
        None => !name.is_empty() && name == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_match_in_any_spelling() {
        let names = HostNames::new(["API.example.", "*.clusters.example", "192.0.2.7", "2001:db8::1"]);
        for host in ["api.example", "api.EXAMPLE.", "a.clusters.example", "192.0.2.7", "[2001:DB8:0::1]"] {
            assert!(names.contains(host), "{host}");
        }
        let others = [
            "",
            "example",
            "evil.example",
            "a.b.clusters.example",
            "clusters.example",
            ".clusters.example",
            "192.0.2.8",
        ];
        for host in others.into_iter().chain(["localhost", "127.0.0.1", "api.example.evil"]) {
            assert!(!names.contains(host), "{host}");
        }
        let local = HostNames::default().with_loopback();
        for host in [
            "localhost",
            "LOCALHOST.",
            "portal.localhost",
            "127.0.0.1",
            "127.9.9.9",
            "[::1]",
            "::ffff:127.0.0.1",
        ] {
            assert!(local.contains(host), "{host}");
        }
        for host in ["", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0"] {
            assert!(!local.contains(host), "{host}");
        }
    }

    #[test]
    fn the_host_of_an_authority_has_neither_port_nor_user() {
        assert_eq!(authority_host("Example.com:8443").as_deref(), Some("example.com"));
        assert_eq!(authority_host("[::1]:8443").as_deref(), Some("::1"));
        for wrong in ["", ":80", "localhost@evil.example", "a b", "http://x"] {
            assert_eq!(authority_host(wrong), None, "{wrong}");
        }
    }
}
