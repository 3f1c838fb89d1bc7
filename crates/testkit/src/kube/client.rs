//! A minimal HTTP client for the requests that starting a cluster takes, with one connection each.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::pki::Identity;

/// A server that is starting or paused accepts connections without a response, so the request is repeated.
const GET_TIMEOUT: Duration = Duration::from_secs(5);
/// A request that is sent only once may take long on a busy machine.
const POST_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one API server, as one user.
#[derive(Clone, Debug)]
pub(super) struct Client {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

/// The response to a request.
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Client {
    pub(super) fn new(port: u16, authority: &str, identity: &Identity) -> anyhow::Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        Ok(Client { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), config: Arc::new(config) })
    }

    pub(super) fn get(&self, path: &str) -> anyhow::Result<Response> {
        self.request("GET", path, "", GET_TIMEOUT).with_context(|| format!("GET {path}"))
    }

    pub(super) fn post(&self, path: &str, json: &str) -> anyhow::Result<Response> {
        self.request("POST", path, json, POST_TIMEOUT).with_context(|| format!("POST {path}"))
    }

    /// Sends an HTTP/1.0 request, where the end of the connection is the end of the body.
    fn request(&self, method: &str, path: &str, json: &str, timeout: Duration) -> anyhow::Result<Response> {
        let tcp = TcpStream::connect_timeout(&self.address, timeout)?;
        tcp.set_read_timeout(Some(timeout))?;
        tcp.set_write_timeout(Some(timeout))?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(&self.config), name)?, tcp);
        let length = json.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}",
            self.address
        )?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        parse(&String::from_utf8_lossy(&response)).context("the response is not HTTP")
    }
}

fn parse(response: &str) -> Option<Response> {
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split_whitespace().nth(1)?.parse().ok()?;
    Some(Response { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_status_and_a_body() {
        let check = |given: &str, expect: Option<(u16, &str)>| {
            let response = parse(given);
            assert_eq!(response.as_ref().map(|response| (response.status, response.body.as_str())), expect);
        };
        check("HTTP/1.0 200 OK\r\nA: b\r\n\r\nok\r\n\r\nmore", Some((200, "ok\r\n\r\nmore")));
        check("HTTP/1.1 409 Conflict\r\n\r\n", Some((409, "")));
        check("HTTP/1.0 200 OK\r\n", None);
        check("SSH-2.0\r\n\r\n", None);
    }
}
