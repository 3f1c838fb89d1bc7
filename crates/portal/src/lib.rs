//! The operators' web pages, rendered here: what happens, what is about to happen, why something waits, and how to stop it.
//!
//! The portal is a client of the Admin API, like the command line, and has no store. A page is made of panels (`view`); each
//! is rendered on the server and sent again over server-sent events when what it shows has changed (`live`), so that the one
//! script that browsers load has only to put them in place. `door` lets people in: it knows sessions, refuses what comes from
//! elsewhere, and sets the headers that every answer carries. What people do (`act`) is said to the Admin API in their name.
//!
//! It never shows a secret, never makes a call for each row of a page, and never sends a browser to another place than itself.

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

/// What the portal works with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The Admin API, as an operator. What people do is said through it in their names.
    pub admin: Client,
    /// How people sign in.
    pub login: Login,
    /// The clock of the machine, or of a test.
    pub clock: SharedClock,
    /// Where browsers find the portal, such as `https://127.0.0.1:8444`. What changes something must come from there.
    pub url: String,
}

/// How people sign in.
#[expect(clippy::large_enum_variant, reason = "there is one of them, and it is handed on once")]
#[derive(Debug, Clone)]
pub enum Login {
    /// By a link that works once, made by [`Portal::one_time_link`].
    OneTimeLink,
    /// By an OpenID Connect provider.
    Oidc(OidcConfig),
    /// Not at all: whoever comes is an operator. Only for the loopback interface.
    Open,
}

/// Why there is no portal.
#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    /// A setting cannot be used.
    #[error("{0}")]
    Setting(String),
    /// There is no randomness to make tokens of.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
}

/// The portal; clones are the same one.
#[derive(Debug, Clone)]
pub struct Portal {
    state: Arc<PortalState>,
}

/// What all requests share.
#[derive(Debug)]
struct PortalState {
    admin: Client,
    entry: SignIn,
    clock: SharedClock,
    sessions: Sessions,
    hub: LivePages,
    /// Scheme, host and port that a browser names as the origin of our pages.
    origin: String,
    /// Where everybody is let in: the hosts by which requests may name us.
    own_names: HostNames,
    /// Stands in rendered pages where each session's own token goes.
    mark: String,
}

/// The way in.
#[derive(Debug)]
enum SignIn {
    OneTimeLink,
    Oidc(Box<Provider>),
    Open,
}

impl Portal {
    /// A portal; nothing is asked of anybody yet.
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
                format!("the portal's address {url:?} is none; expected one such as https://127.0.0.1:8444");
            return Err(PortalError::Setting(message));
        }
        let entry = match login {
            Login::OneTimeLink => SignIn::OneTimeLink,
            Login::Open => SignIn::Open,
            Login::Oidc(config) => SignIn::Oidc(Box::new(Provider::new(config, &origin)?)),
        };
        let mark = session::token()?;
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        let own_names = HostNames::new(authority_host(authority)).with_loopback();
        let (sessions, hub) = (Sessions::default(), LivePages::default());
        let state = PortalState { admin, entry, clock, sessions, hub, origin, own_names, mark };
        Ok(Portal { state: Arc::new(state) })
    }

    /// A path with a token that signs in `user` once, within a day.
    pub fn one_time_link(&self, user: &str, role: Role) -> Result<String, PortalError> {
        let token = self.state.sessions.issue(user, role, self.state.clock.now())?;
        Ok(format!("/login/link/{token}"))
    }

    /// All pages, actions and assets.
    pub fn router(&self) -> Router {
        let state = self.state.clone();
        // What strangers may see too; there is nothing else below these two.
        let assets = Router::new().route("/{mark}/{name}", get(assets::asset)).fallback(middleware::nowhere);
        let login = Router::new()
            .route("/", get(login::page))
            .route("/link/{token}", get(login::link))
            .route("/start", get(login::start))
            .route("/callback", get(login::callback))
            .fallback(middleware::nowhere);
        // A nested router does not see its own path with a slash behind it.
        let open = Router::new()
            .route("/assets/", any(middleware::nowhere))
            .route("/login/", any(middleware::nowhere))
            .nest("/assets", assets)
            .nest("/login", login)
            .layer(from_fn(middleware::only_read));
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
