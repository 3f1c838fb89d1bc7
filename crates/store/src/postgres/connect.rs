//! Connections to the server: the meaning of the URL, encryption, timeouts, and the error that an operator reads.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::JoinSet;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, NoTlsStream};
use tokio_postgres::{Client, Config, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::open::{Location, OpenError, Options};

/// For each address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time without acknowledgement of sent data after which the server counts as gone.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a connection from the pool.
const POOL_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of every session. All statements are index probes by design: the planner must not choose a scan or a hash
/// of a table that looked small when the plan was made, and plans are made once. Timeouts: a hanging transaction
/// delays the feed for everybody, and a statement that takes seconds waits for a dead one.
const SESSION: &str = "-c jit=off -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off \
    -c enable_hashjoin=off -c enable_mergejoin=off -c synchronous_commit=on \
    -c idle_in_transaction_session_timeout=10s -c statement_timeout=10s -c lock_timeout=8s \
    -c default_transaction_isolation=read\\ committed -c client_min_messages=warning";

/// Configuration of connections to the server.
#[derive(Clone)]
pub(super) struct ServerConfig {
    pub(super) config: Config,
    tls: Option<MakeRustlsConnect>,
    /// Location without password.
    pub(super) place: String,
}

impl std::fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConfig").field("place", &self.place).field("tls", &self.tls.is_some()).finish()
    }
}

/// Both kinds of dedicated connection: plain and encrypted.
pub(super) enum ServerConnection {
    Plain(Box<Connection<Socket, NoTlsStream>>),
    Encrypted(Box<Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>>),
}

/// A connection that closes when this value is dropped.
#[derive(Debug)]
pub(super) struct DirectConnection {
    pub(super) client: Client,
    _task: JoinSet<()>,
}

impl ServerConfig {
    pub(super) fn find(options: &Options) -> Result<ServerConfig, OpenError> {
        let Location::Postgres(url) = &options.location else {
            return Err(OpenError::Url { why: "not a PostgreSQL URL".to_owned() });
        };
        let mut config: Config =
            url.expose().parse().map_err(|error| OpenError::Url { why: url_error(&error) })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(OpenError::Url { why: "the host is missing".to_owned() });
        }
        if config.get_password().is_none()
            && let Some(password) = &options.password
        {
            config.password(password.expose());
        }
        if config.get_application_name().is_none() {
            config.application_name("shipshape");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        config
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(3))
            .keepalives_retries(3);
        // Of several hosts only one is the primary, and it can change.
        if config.get_hosts().len().max(config.get_hostaddrs().len()) > 1
            && config.get_target_session_attrs() == TargetSessionAttrs::Any
        {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let place = place(&config);
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => None,
            SslMode::Prefer if is_local(&config) => {
                // Nothing leaves the host, and a distribution's self-signed certificate would be rejected.
                config.ssl_mode(SslMode::Disable);
                None
            }
            _ => {
                config.ssl_mode(SslMode::Require);
                Some(MakeRustlsConnect::new(tls(options.ca_file.as_deref(), &place)?))
            }
        };
        Ok(ServerConfig { config, tls, place })
    }

    /// Pool of connections.
    pub(super) fn pool(&self, connections: usize) -> Result<Pool, OpenError> {
        // A closed connection is detected without asking the server.
        let settings = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let mut config = self.config.clone();
        let requested = config.get_options().map(|options| format!("{options} ")).unwrap_or_default();
        config.options(format!("{requested}{SESSION}"));
        let manager = match &self.tls {
            Some(tls) => Manager::from_config(config, tls.clone(), settings),
            None => Manager::from_config(config, NoTls, settings),
        };
        Pool::builder(manager)
            .max_size(connections.max(1))
            .timeouts(Timeouts {
                wait: Some(POOL_TIMEOUT),
                create: Some(POOL_TIMEOUT),
                recycle: Some(POOL_TIMEOUT),
            })
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| OpenError::Server { place: self.place.clone(), why: error.to_string() })
    }

    /// Opens a dedicated connection.
    pub(super) async fn connect(&self) -> Result<(Client, ServerConnection), tokio_postgres::Error> {
        Ok(match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                (client, ServerConnection::Encrypted(Box::new(connection)))
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                (client, ServerConnection::Plain(Box::new(connection)))
            }
        })
    }

    /// Opens a dedicated connection with its own task, for a longer session.
    pub(super) async fn direct(&self) -> Result<DirectConnection, OpenError> {
        let (client, link) = self.connect().await.map_err(|error| self.refused(&error))?;
        let mut task = JoinSet::new();
        match link {
            ServerConnection::Plain(connection) => task.spawn(async move { drop(connection.await) }),
            ServerConnection::Encrypted(connection) => task.spawn(async move { drop(connection.await) }),
        };
        Ok(DirectConnection { client, _task: task })
    }

    /// Describes why opening failed, in one sentence.
    pub(super) fn refused(&self, error: &tokio_postgres::Error) -> OpenError {
        let user = self.config.get_user().unwrap_or_default();
        let why = match error.as_db_error() {
            Some(db) => match *db.code() {
                SqlState::INVALID_PASSWORD => format!("the password of user {user} is wrong"),
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                    format!("user {user} is refused: {}", db.message())
                }
                SqlState::INVALID_CATALOG_NAME => {
                    format!("there is no database {}; create it", self.config.get_dbname().unwrap_or(user))
                }
                SqlState::INSUFFICIENT_PRIVILEGE => {
                    format!("user {user} lacks a permission: {}", db.message())
                }
                _ => format!("the server rejected the connection: {}", db.message()),
            },
            None => {
                let mut text = error.to_string();
                let mut cause = std::error::Error::source(error);
                while let Some(it) = cause {
                    text = format!("{text}: {it}");
                    cause = it.source();
                }
                match text.contains("password missing") {
                    true => format!("user {user} needs a password, but none is configured"),
                    false => format!("cannot be reached ({text})"),
                }
            }
        };
        OpenError::Server { place: self.place.clone(), why }
    }
}

/// Describes the fault of a URL without repeating any part that could be a mistyped password.
fn url_error(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    for option in
        ["sslmode", "target_session_attrs", "port", "connect_timeout", "channel_binding", "keepalives"]
    {
        if cause.contains(option) {
            return format!("unknown value of option {option}");
        }
    }
    "invalid syntax; write special characters in names and passwords as %XX".to_owned()
}

fn place(config: &Config) -> String {
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let ports = config.get_ports();
    let names: Vec<String> = if config.get_hosts().is_empty() {
        config.get_hostaddrs().iter().map(ToString::to_string).collect()
    } else {
        config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect()
    };
    let hosts: Vec<String> = names
        .into_iter()
        .enumerate()
        .map(|(index, name)| match ports.get(index).or(ports.first()) {
            Some(port) if *port != 5432 => format!("{name}:{port}"),
            _ => name,
        })
        .collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{user}{}/{database}", hosts.join(","))
}

fn is_local(config: &Config) -> bool {
    let is_local_host = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse::<IpAddr>().is_ok_and(|it| it.is_loopback()),
    };
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(is_local_host),
        addresses => addresses.iter().all(IpAddr::is_loopback),
    }
}

fn tls(ca_file: Option<&Path>, place: &str) -> Result<ClientConfig, OpenError> {
    let refused = |why: String| OpenError::Server { place: place.to_owned(), why };
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let unreadable = |error: &dyn std::fmt::Display| {
                refused(format!("the certificates in {} cannot be read: {error}", path.display()))
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
                let certificate = certificate.map_err(|error| unreadable(&error))?;
                roots.add(certificate).map_err(|error| unreadable(&error))?;
            }
            if roots.is_empty() {
                return Err(refused(format!("there is no certificate in {}", path.display())));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(refused(
                    "no certificate authorities are installed on this host; configure a CA file".to_owned(),
                ));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(format!("TLS cannot be used: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
