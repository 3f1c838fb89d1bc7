//! The host names of the API. Links in responses use only these names, whatever host a request has. A server without authentication
//! accepts only requests for these names, so that a page of another site cannot reach it by a name that resolves to this machine.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, StatusCode, Uri, header};
use serve::tls::CertificateFiles;
use serve::{HostNames, authority_host};

use crate::config::Config;
use crate::wire::{ApiError, Code, Scheme};

/// The names of this API.
#[derive(Debug)]
pub(crate) struct PublicNames {
    hosts: HostNames,
    /// Base of links in responses to requests for another host.
    canonical: String,
    has_public_url: bool,
    checks_host: bool,
}

/// Scheme, host and port of links in the response to a request.
#[derive(Debug, Clone)]
pub(crate) struct LinkBase(pub(crate) Arc<str>);

impl PublicNames {
    /// The configured names, those of the certificate and the listen address.
    pub(crate) fn new(
        config: &Config,
        certificate: Option<Arc<CertificateFiles>>,
        address: SocketAddr,
    ) -> PublicNames {
        let url = config.public_url.as_deref().map(|url| url.trim_end_matches('/'));
        let of_url = url.and_then(|url| url.parse::<Uri>().ok()?.host().map(str::to_owned));
        let own = (!address.ip().is_unspecified()).then(|| address.ip().to_string());
        let configured = config.public_names.iter().cloned();
        let mut hosts =
            HostNames::new(configured.chain(of_url).chain(own)).with_certificate(certificate.clone());
        if address.ip().is_loopback() {
            hosts = hosts.with_loopback();
        }
        let scheme = if certificate.is_some() { Scheme::Https } else { Scheme::Http }.as_str();
        let named = || {
            let known = certificate.as_ref().map(|it| it.names()).unwrap_or_default();
            let of_certificate = known.iter().filter(|_| address.ip().is_unspecified()).cloned();
            config.public_names.iter().cloned().chain(of_certificate).find(|name| !name.starts_with('*'))
        };
        let canonical = url.map(str::to_owned).unwrap_or_else(|| match named() {
            Some(name) if name.contains(':') => format!("{scheme}://[{name}]:{}", address.port()),
            Some(name) => format!("{scheme}://{name}:{}", address.port()),
            None => format!("{scheme}://{}", serve::reachable_address(address)),
        });
        PublicNames { hosts, canonical, has_public_url: url.is_some(), checks_host: config.insecure }
    }

    /// The base of links in the response to a request.
    pub(crate) fn link_base(&self, scheme: Scheme, uri: &Uri, headers: &HeaderMap) -> LinkBase {
        let named = authority(uri, headers);
        let ours = named.filter(|it| authority_host(it).is_some_and(|host| self.hosts.contains(&host)));
        LinkBase(match ours {
            Some(authority) if !self.has_public_url => format!("{}://{authority}", scheme.as_str()).into(),
            _ => self.canonical.as_str().into(),
        })
    }

    /// Removes a `Referer` that names another server: it is no base for links.
    pub(crate) fn drop_foreign_referer(&self, headers: &mut HeaderMap) {
        let Some(value) = headers.get(header::REFERER) else { return };
        let uri = value.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        let host = uri.as_ref().and_then(|uri| authority_host(uri.authority()?.as_str()));
        let is_ours = headers.get_all(header::REFERER).iter().count() == 1
            && host.is_some_and(|host| self.hosts.contains(&host));
        if !is_ours {
            headers.remove(header::REFERER);
        }
    }

    /// Without authentication: rejects a request for another host, or from a page of another site.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        if !self.checks_host {
            return Ok(());
        }
        let refuse = |header: &str, value: &str| {
            let shown: String = value.chars().filter(|letter| !letter.is_control()).take(100).collect();
            let message = format!(
                "The {header} {shown:?} is not one of this API, which accepts loopback names and those of frontend.public_names."
            );
            Err(ApiError::new(StatusCode::FORBIDDEN, Code::Forbidden, message).with_target(header))
        };
        let is_ours =
            |authority: &str| authority_host(authority).is_some_and(|host| self.hosts.contains(&host));
        let hosts = headers.get_all(header::HOST).into_iter().map(|value| value.to_str().unwrap_or("?"));
        let mut named = uri.authority().map(http::uri::Authority::as_str).into_iter().chain(hosts).peekable();
        if named.peek().is_none() {
            return refuse("Host", "");
        }
        if let Some(foreign) = named.find(|authority| !is_ours(authority)) {
            return refuse("Host", foreign);
        }
        for value in headers.get_all(header::ORIGIN) {
            let text = value.to_str().unwrap_or("?");
            let origin = text.parse::<Uri>().ok();
            if !origin.and_then(|uri| Some(is_ours(uri.authority()?.as_str()))).unwrap_or(false) {
                return refuse("Origin", text);
            }
        }
        Ok(())
    }
}

/// Host and port that a request names.
fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let host = || headers.get(header::HOST).and_then(|value| value.to_str().ok());
    uri.authority().map(http::uri::Authority::as_str).or_else(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(adjust: impl FnOnce(&mut Config), listen: &str) -> PublicNames {
        let mut config = Config { insecure: true, ..Config::default() };
        adjust(&mut config);
        PublicNames::new(&config, None, listen.parse().unwrap())
    }

    fn with(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn links_use_names_of_the_api_for_any_host_header() {
        let base = |names: &PublicNames, host: &str| {
            names
                .link_base(Scheme::Https, &Uri::from_static("/x"), &with(&[(header::HOST, host)]))
                .0
                .to_string()
        };
        let local = names(|_| {}, "127.0.0.1:8443");
        assert_eq!(base(&local, "localhost:9000"), "https://localhost:9000");
        assert_eq!(base(&local, "evil.example"), "http://127.0.0.1:8443");
        assert_eq!(base(&local, "user@localhost"), "http://127.0.0.1:8443");
        let named = names(|config| config.public_names = vec!["api.example".to_owned()], "0.0.0.0:8443");
        assert_eq!(base(&named, "API.example"), "https://API.example");
        assert_eq!(base(&named, "127.0.0.1:8443"), "http://api.example:8443");
        let public =
            names(|config| config.public_url = Some("https://m.example/".to_owned()), "0.0.0.0:8443");
        for host in ["m.example", "localhost", "evil.example"] {
            assert_eq!(base(&public, host), "https://m.example");
        }
    }

    #[test]
    fn a_referer_of_another_server_is_ignored() {
        let names = names(|config| config.public_names = vec!["*.example".to_owned()], "127.0.0.1:1");
        let kept = |referers: &[&str]| {
            let pairs: Vec<_> = referers.iter().map(|it| (header::REFERER, *it)).collect();
            let mut headers = with(&pairs);
            names.drop_foreign_referer(&mut headers);
            headers.contains_key(header::REFERER)
        };
        for ours in ["https://a.example/x?y", "http://LOCALHOST:3/", "http://[::1]:3/"] {
            assert!(kept(&[ours]), "{ours}");
        }
        for foreign in
            ["https://evil.test/x", "https://a.example@evil.test/", "/x", "not a url", "https://b.a.example/"]
        {
            assert!(!kept(&[foreign]), "{foreign}");
        }
        assert!(!kept(&["https://a.example/", "https://evil.test/"]));
    }

    #[test]
    fn without_authentication_only_requests_for_own_names_are_accepted() {
        let names = names(|config| config.public_names = vec!["api.example".to_owned()], "127.0.0.1:8443");
        let passes = |uri: &str, pairs: &[(header::HeaderName, &str)]| {
            names.check(&uri.parse().unwrap(), &with(pairs)).is_ok()
        };
        let (host, origin) = (header::HOST, header::ORIGIN);
        for ours in ["localhost", "localhost:8443", "127.0.0.1:1", "[::1]:8443", "api.example"] {
            assert!(passes("/x", &[(host.clone(), ours)]), "{ours}");
        }
        for foreign in
            ["evil.example:8443", "localhost.evil.example", "", "127.0.0.1@evil.example", "10.0.0.1"]
        {
            assert!(!passes("/x", &[(host.clone(), foreign)]), "{foreign}");
        }
        assert!(!passes("/x", &[]));
        assert!(!passes("http://evil.example/x", &[(host.clone(), "localhost")]));
        assert!(!passes("/x", &[(host.clone(), "localhost"), (host.clone(), "evil.example")]));
        assert!(passes("/x", &[(host.clone(), "localhost"), (origin.clone(), "http://127.0.0.1:8444")]));
        for foreign in ["https://evil.example", "null", "", "http://localhost.evil.example"] {
            assert!(!passes("/x", &[(host.clone(), "localhost"), (origin.clone(), foreign)]), "{foreign}");
        }
        let config = Config::default();
        let guarded = PublicNames::new(&config, None, config.listen);
        assert!(guarded.check(&Uri::from_static("/x"), &with(&[(host, "evil.example")])).is_ok());
    }
}
