//! The operators' web pages, rendered on the server: running and planned work, why work waits, and how to stop it.
//!
//! The portal is a client of the Admin API, like the command line, and has no store. A page consists of panels (`view`); each is
//! rendered on the server and sent again as a server-sent event when its content changes (`live`), so that the script in the browser
//! only replaces it. `middleware` authenticates requests by their session, rejects requests of other origins, and sets the
//! security headers of every response. `actions` sends what users request to the Admin API in their name.
//!
//! It never shows a secret, never makes a request for each row of a page, and never redirects a browser to another site, except to
//! the identity provider.

mod actions;
mod assets;
mod command_line;
mod fields;
mod layout;
mod live;
mod login;
mod middleware;
mod oidc;
mod pages;
mod serve;
mod session;
mod sign_in_attempts;
mod view;

use std::sync::Arc;

use ::serve::{HostNames, authority_host};
use api::clock::SharedClock;
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any, get, post};
use client::Client;
use tokio_util::sync::CancellationToken;

pub use oidc::OidcConfig;
pub use session::Role;

use live::LivePages;
use oidc::Provider;
use session::Sessions;

/// Options of the portal.
#[derive(Debug, Clone)]
pub struct Options {
    /// Client of the Admin API with the role operator. Actions are requested through it in the names of users.
    pub admin: Client,
    /// How users sign in.
    pub login: Login,
    /// The clock.
    pub clock: SharedClock,
    /// URL of the portal for browsers, such as `https://127.0.0.1:8444`. Changes are accepted from this origin only.
    pub url: String,
}

/// How users sign in.
#[expect(clippy::large_enum_variant, reason = "there is one value, and it is moved once")]
#[derive(Debug, Clone)]
pub enum Login {
    /// By a link that works once, see [`Portal::one_time_link`].
    OneTimeLink,
    /// By an OpenID Connect provider.
    Oidc(OidcConfig),
    /// Without authentication: every user is an operator. Only for the loopback interface.
    Open,
}

/// Errors of the portal's creation.
#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    /// A setting is not valid.
    #[error("{0}")]
    Setting(String),
    /// Generating a random token failed.
    #[error("the system's random number generator failed")]
    Random(#[source] getrandom::Error),
}

/// The portal; clones share its state.
#[derive(Debug, Clone)]
pub struct Portal {
    state: Arc<PortalState>,
}

/// State shared by all requests.
#[derive(Debug)]
struct PortalState {
    admin: Client,
    sign_in: SignIn,
    clock: SharedClock,
    sessions: Sessions,
    hub: LivePages,
    /// Origin of the pages: scheme, host and port.
    origin: String,
    /// Hosts that requests may name, when the portal is open without authentication.
    own_names: HostNames,
    /// Placeholder in rendered pages for the CSRF token of the session.
    csrf_placeholder: String,
}

/// How users sign in, with its state.
#[derive(Debug)]
enum SignIn {
    OneTimeLink,
    Oidc(Box<Provider>),
    Open,
}

impl Portal {
    /// Creates a portal. Sends no request.
    pub fn new(options: Options) -> Result<Portal, PortalError> {
        let Options { admin, login, clock, url } = options;
        let origin = url.trim_end_matches('/').to_owned();
        let is_web = origin.parse::<http::Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("https" | "http"))
                && matches!(uri.path(), "" | "/")
                && uri.host().is_some()
        });
        if !is_web {
            let message =
                format!("the portal's URL {url:?} is not valid; expected one such as https://127.0.0.1:8444");
            return Err(PortalError::Setting(message));
        }
        let sign_in = match login {
            Login::OneTimeLink => SignIn::OneTimeLink,
            Login::Open => SignIn::Open,
            Login::Oidc(config) => SignIn::Oidc(Box::new(Provider::new(config, &origin)?)),
        };
        let csrf_placeholder = session::token()?;
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        let own_names = HostNames::new(authority_host(authority)).with_loopback();
        let (sessions, hub) = (Sessions::default(), LivePages::default());
        let state = PortalState { admin, sign_in, clock, sessions, hub, origin, own_names, csrf_placeholder };
        Ok(Portal { state: Arc::new(state) })
    }

    /// A path with a token that signs in `user` once, within a day.
    pub fn one_time_link(&self, user: &str, role: Role) -> Result<String, PortalError> {
        let token = self.state.sessions.issue(user, role, self.state.clock.now())?;
        Ok(format!("/login/link/{token}"))
    }

    /// The router of all pages, actions and assets.
    pub fn router(&self) -> Router {
        let state = self.state.clone();
        // Routes without authentication.
        let assets =
            Router::new().route("/{digest}/{name}", get(assets::asset)).fallback(middleware::not_found);
        let login = Router::new()
            .route("/", get(login::page))
            .route("/link/{token}", get(login::link))
            .route("/start", get(login::start))
            .route("/callback", get(login::callback))
            .fallback(middleware::not_found);
        // A nested router does not match its own path with a trailing slash.
        let open = Router::new()
            .route("/assets/", any(middleware::not_found))
            .route("/login/", any(middleware::not_found))
            .nest("/assets", assets)
            .nest("/login", login)
            .layer(from_fn(middleware::read_only));
        let closed = Router::new()
            .route("/logout", post(login::logout))
            .route("/live", get(live::live))
            .route("/json/{*path}", get(pages::json))
            .nest("/act", actions::router())
            .route("/preview/schedule", post(pages::schedules::preview))
            .fallback(pages::show)
            .layer(from_fn_with_state(state.clone(), middleware::session));
        open.merge(closed).layer(from_fn_with_state(state.clone(), middleware::portal)).with_state(state)
    }

    /// Reads the Admin API's events for all open pages, until `shutdown`.
    pub async fn follow(self, shutdown: CancellationToken) {
        let following = self.state.hub.follow(&self.state.admin);
        shutdown.run_until_cancelled(following).await;
        self.state.hub.close();
    }
}
