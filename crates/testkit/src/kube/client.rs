//! The few requests that starting a cluster takes: one connection each, no more HTTP than that.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::pki::Identity;

/// A server that starts or is paused accepts connections and says nothing; then it is asked again.
const GET_TIMEOUT: Duration = Duration::from_secs(5);
/// What was asked for only once may take its time on a machine that also compiles.
const POST_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks one API server, as one user.
#[derive(Clone, Debug)]
pub(super) struct Client {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

/// What it answered.
pub(super) struct Answer {
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

    pub(super) fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.request("GET", path, "", GET_TIMEOUT).with_context(|| format!("GET {path}"))
    }

    pub(super) fn post(&self, path: &str, json: &str) -> anyhow::Result<Answer> {
        self.request("POST", path, json, POST_TIMEOUT).with_context(|| format!("POST {path}"))
    }

    /// HTTP/1.0, in which the end of the connection is the end of the body.
    fn request(&self, method: &str, path: &str, json: &str, timeout: Duration) -> anyhow::Result<Answer> {
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
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        parse(&String::from_utf8_lossy(&answer)).context("the answer is not HTTP")
    }
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split_whitespace().nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let check = |given: &str, expect: Option<(u16, &str)>| {
            let answer = parse(given);
            assert_eq!(answer.as_ref().map(|answer| (answer.status, answer.body.as_str())), expect);
        };
        check("HTTP/1.0 200 OK\r\nA: b\r\n\r\nok\r\n\r\nmore", Some((200, "ok\r\n\r\nmore")));
        check("HTTP/1.1 409 Conflict\r\n\r\n", Some((409, "")));
        check("HTTP/1.0 200 OK\r\n", None);
        check("SSH-2.0\r\n\r\n", None);
    }
}
