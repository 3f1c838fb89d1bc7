//! The listeners of the emulated services: on the loopback interface, with certificates of the emulator's own authority. Ports are kept
//! across restarts where possible, so that clients of a restarted emulator find it again.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use serve::pki::{CertificateAuthority, CertificatePair, CertificateRequest, Purpose, Validity};
use serve::tls::{self, ClientCertificates};
use serve::{Listener, ListenerLimits};

use crate::database;
use crate::failure::Failure;
use crate::faults::Faults;

const META: &str = "meta";
const PORTS: &str = "ports";
const AUTHORITY: &str = "tlsAuthority";
const AUTHORITY_NAME: &str = "Simulated Cloud Authority";

/// The authority as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredAuthority {
    certificate: String,
    key: String,
}

/// The TLS configuration of all listeners.
#[derive(Clone)]
pub(crate) struct TlsIdentity {
    config: Arc<rustls::ServerConfig>,
    /// The certificate of the authority, in PEM.
    pub(crate) authority: String,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

/// A certificate that is not presented while a fault rule lets handshakes fail; the server then ends the handshake with an alert.
#[derive(Debug)]
struct FaultyCertificate {
    certificate: Arc<dyn ResolvesServerCert>,
    faults: Faults,
}

impl ResolvesServerCert for FaultyCertificate {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if self.faults.handshake_fails() {
            return None;
        }
        self.certificate.resolve(hello)
    }
}

impl TlsIdentity {
    /// A server certificate for the loopback interface, issued by the authority in the database, which is created at the first start.
    pub(crate) fn open(db: &Connection, faults: Faults) -> Result<TlsIdentity, Failure> {
        let authority = match database::record::<StoredAuthority>(db, META, AUTHORITY)? {
            Some(StoredAuthority { certificate, key }) => {
                CertificateAuthority::from_pem(AUTHORITY_NAME, CertificatePair { certificate, key })?
            }
            None => {
                let authority = CertificateAuthority::generate(AUTHORITY_NAME, Validity::UNLIMITED)?;
                let CertificatePair { certificate, key } = authority.pair();
                database::write(db, META, AUTHORITY, &StoredAuthority { certificate, key })?;
                authority
            }
        };
        let issued = authority.issue(&CertificateRequest {
            common_name: "localhost",
            organization: None,
            alternative_names: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            purpose: Purpose::Server,
            validity: Validity::UNLIMITED,
        })?;
        let broken = |error: tls::TlsError| Failure::Broken(format!("TLS of the emulator: {error}"));
        let certificate = tls::fixed_certificate(&issued.certificate, &issued.key).map_err(broken)?;
        let certificate = Arc::new(FaultyCertificate { certificate, faults });
        let config = tls::server_config(certificate, ClientCertificates::NotRequested).map_err(broken)?;
        Ok(TlsIdentity { config, authority: authority.certificate().to_owned() })
    }

    /// Accepts TLS connections on a bound socket.
    pub(crate) fn listen(&self, tcp: TcpListener) -> io::Result<Listener> {
        Ok(listen(tcp)?.with_tls(self.config.clone()))
    }
}

/// Accepts connections on a bound socket.
pub(crate) fn listen(tcp: TcpListener) -> io::Result<Listener> {
    tcp.set_nonblocking(true)?;
    Listener::new(tokio::net::TcpListener::from_std(tcp)?, limits())
}

/// Everybody is on this machine. A call that hangs on purpose is not waited for at the end.
pub(crate) fn limits() -> ListenerLimits {
    let (connections, closing) = (16_384, Duration::from_secs(1));
    ListenerLimits { connections, connections_per_address: connections, closing, ..ListenerLimits::default() }
}

/// Binds the port that the listener had before, or else any.
pub(crate) fn bind(db: &Connection, name: &str) -> Result<TcpListener, Failure> {
    let mut ports: BTreeMap<String, u16> = database::record(db, META, PORTS)?.unwrap_or_default();
    let before = ports.get(name).copied().unwrap_or_default();
    let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let bound = bind(before).or_else(|_| bind(0));
    let port = bound.as_ref().ok().and_then(|it| it.local_addr().ok()).map_or(0, |it| it.port());
    ports.insert(name.to_owned(), port);
    database::write(db, META, PORTS, &ports)?;
    bound.map_err(|error| Failure::Broken(format!("the listener {name} cannot be bound: {error}")))
}

/// The URL of a bound socket.
pub(crate) fn url(tcp: &TcpListener, scheme: &str) -> Result<String, Failure> {
    let address =
        tcp.local_addr().map_err(|error| Failure::Broken(format!("a listener has no address: {error}")))?;
    Ok(format!("{scheme}://{address}"))
}
