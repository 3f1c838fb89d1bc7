//! Wiring of the operators' portal: in the process of the API, or alone as its client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::portal::{Login, Options, Portal, Role};
use anyhow::{Context as _, bail};
use api::clock::SystemClock;
use client::Client;
use serve::Listener;
use serve::tls::{self, CertificateFiles, ClientCertificates};

use crate::config::{Config, PortalConfig};
use crate::listening::Listen;
use crate::process::Process;
use crate::supervisor::Stage;

/// Actor in histories and the audit log for the sign-in link of the banner.
const BY_LINK: &str = "operator by link";

/// URL of the portal and its sign-in link.
pub(crate) struct PortalAddress {
    /// URL for browsers.
    pub(crate) url: String,
    /// A link for one sign-in; none with other kinds of sign-in.
    pub(crate) link: Option<String>,
}

/// Paths of a certificate and its key.
pub(crate) type CertificatePaths = (PathBuf, PathBuf);

/// The listen address.
pub(crate) fn listen(config: &Config) -> Listen {
    Listen { key: "portal.listen", flag: "--portal", address: config.portal.listen }
}

/// Starts the portal. `pair` is the certificate of the API, used unless the settings name another for the portal.
pub(crate) async fn open(
    process: &mut Process,
    admin: Client,
    pair: Option<CertificatePaths>,
) -> anyhow::Result<PortalAddress> {
    let open = process.readiness.condition("portal");
    let config = &process.config.portal;
    let pair = portal_certificate(config).or(pair);
    let login = login(&process.config, pair.is_some())?;
    let listener = listen(&process.config).bind().await?;
    let limits = Portal::limits(config.connections, config.connections_per_address);
    let mut listener = Listener::new(listener, limits)?;
    if let Some((certificate, key)) = &pair {
        let files = CertificateFiles::open(certificate, key).context("the portal")?;
        listener = listener
            .with_tls(tls::server_config(files, ClientCertificates::NotRequested).context("the portal")?);
    }
    let (url, connections) = (config.url.clone().unwrap_or_else(|| listener.url()), config.connections);
    let by_link = matches!(login, Login::OneTimeLink);
    let portal = Portal::new(Options { admin, login, clock: Arc::new(SystemClock), url: url.clone() })?;
    let link = match by_link {
        true => Some(format!("{url}{}", portal.one_time_link(BY_LINK, Role::Operator)?)),
        false => None,
    };
    tracing::info!("The portal is at {url}");
    process.record_connection_limit("portal.connections", connections);
    let live = portal.clone();
    process.tasks.spawn(Stage::Listeners, "portal", |shutdown| async move {
        portal.serve(listener, shutdown).await;
        Ok(())
    });
    process.tasks.spawn(Stage::Listeners, "portal-live", |shutdown| async move {
        live.follow(shutdown).await;
        Ok(())
    });
    open.ready();
    Ok(PortalAddress { url, link })
}

/// The configured certificate of the portal, else that of the API.
pub(crate) fn configured_certificate(config: &Config) -> Option<CertificatePaths> {
    let shared = config.frontend.certificate.clone().zip(config.frontend.key.clone());
    portal_certificate(&config.portal).or(shared)
}

fn portal_certificate(config: &PortalConfig) -> Option<CertificatePaths> {
    let path = |file: &crate::config::FilePath| AsRef::<Path>::as_ref(file).to_owned();
    config.certificate.as_ref().map(path).zip(config.key.as_ref().map(path))
}

/// The kind of sign-in. A link in the log is allowed on loopback addresses only.
fn login(config: &Config, has_tls: bool) -> anyhow::Result<Login> {
    let PortalConfig { listen, oidc, .. } = &config.portal;
    let is_local = listen.ip().is_loopback();
    if config.frontend.insecure && is_local {
        return Ok(Login::Open);
    }
    if !has_tls {
        bail!("portal.certificate and portal.key must name the portal's certificate and its private key");
    }
    if !oidc.issuer.is_empty() {
        return Ok(Login::Oidc(oidc.clone()));
    }
    if !is_local {
        bail!(
            "portal.listen {listen} is not a loopback address and requires sign-in; set portal.oidc.issuer, or listen on a loopback address such as 127.0.0.1:8444"
        );
    }
    Ok(Login::OneTimeLink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_sign_in_depends_on_the_settings() {
        let check = |change: &dyn Fn(&mut Config), has_tls: bool, expect: &str| {
            let mut config = Config::default();
            change(&mut config);
            let found = match login(&config, has_tls) {
                Ok(Login::OneTimeLink) => "link".to_owned(),
                Ok(Login::Oidc(_)) => "oidc".to_owned(),
                Ok(Login::Open) => "open".to_owned(),
                Err(error) => error.to_string(),
            };
            assert!(found.contains(expect), "{found}");
        };
        let everywhere = |config: &mut Config| config.portal.listen = ([0, 0, 0, 0], 8444).into();
        let issuer = |config: &mut Config| config.portal.oidc.issuer = "https://id.example".to_owned();
        check(&|_| {}, true, "link");
        check(&|_| {}, false, "portal.certificate");
        check(&|config| config.frontend.insecure = true, false, "open");
        check(&everywhere, true, "portal.oidc.issuer");
        check(&issuer, true, "oidc");
        let both = |config: &mut Config| {
            everywhere(config);
            issuer(config);
        };
        check(&both, true, "oidc");
    }
}
