//! A stand-in for a kubelet that serves logs to the API server.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Responds to every request with one log, until it is dropped.
pub(crate) struct LogServer(#[expect(dead_code, reason = "held so that its task ends with it")] JoinSet<()>);

impl LogServer {
    /// Serves `log` as the kubelet of `node`, and sets the node's address.
    pub(crate) async fn start(client: &Client, node: &str, log: String) -> LogServer {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut answers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                answers.spawn(answer(acceptor.clone(), stream, log.clone()));
            }
        });
        LogServer(tasks)
    }
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream, log: String) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let length = log.len();
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{log}"
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}
