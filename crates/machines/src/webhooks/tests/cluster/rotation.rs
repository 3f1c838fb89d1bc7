//! Certificates are renewed by two replicas under a steady stream of requests.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use serve::ListenerLimits;
use tokio_util::sync::CancellationToken;

use super::{NAMESPACE, RunningWebhooks, balancer, until, world};
use crate::webhooks::{CertificatePolicy, CertificateSource, WebhookEndpoint, Webhooks};

const SECRET: &str = "machine-api-webhooks-authority";

/// Certificates that live long but are renewed every few seconds.
fn policy() -> CertificatePolicy {
    let seconds = SignedDuration::from_secs;
    CertificatePolicy {
        authority_lifetime: seconds(600),
        authority_renewal: seconds(597),
        serving_lifetime: seconds(300),
        serving_renewal: seconds(299),
        publication: seconds(2),
    }
}

/// The authority that signs.
async fn authority(secrets: &Api<Secret>) -> Option<Vec<u8>> {
    let secret = secrets.get_opt(SECRET).await.unwrap()?;
    Some(secret.data?.get("ca.crt")?.0.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_certificates_are_renewed_and_the_secret_is_lost() {
    let Some(world) = world().await else { return };
    let configure = |endpoint: Option<WebhookEndpoint>| {
        move |config: &mut crate::webhooks::WebhookConfig| {
            config.certificate = CertificateSource::Private(policy());
            config.endpoint = endpoint;
            // Each request makes a handshake of its own.
            config.limits = ListenerLimits { idle: Duration::ZERO, ..ListenerLimits::default() };
        }
    };
    // The endpoint has to be known before the replicas are bound, and the balancer needs their addresses.
    let ports: Vec<_> = (0..2).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = ports.iter().map(|it| it.local_addr().unwrap()).collect();
    drop(ports);
    let endpoint = WebhookEndpoint::Url(format!("https://{}", balancer::start(addresses.clone())));
    let mut replicas = Vec::new();
    for address in addresses {
        let configure = configure(Some(endpoint.clone()));
        replicas.push(
            world
                .webhooks(|config| {
                    configure(config);
                    config.listen = address;
                })
                .await,
        );
    }
    let webhooks = RunningWebhooks::start(replicas);
    let invalid = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "metadata": {"name": "s"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {}}
    });
    until("the webhooks are registered", async || world.dry_run("MachineSet", &invalid).await.is_some())
        .await;

    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    let (sent, done) = (AtomicUsize::new(0), CancellationToken::new());
    let stream = async {
        while !done.is_cancelled() {
            let refusal =
                world.dry_run("MachineSet", &invalid).await.expect("the API server reached no webhook");
            assert!(refusal.contains("does not match template"), "{refusal}");
            sent.fetch_add(1, Ordering::Relaxed);
        }
    };
    let observation = async {
        let mut authorities = BTreeSet::new();
        until("three authorities have signed", async || {
            authorities.extend(authority(&secrets).await);
            authorities.len() >= 3
        })
        .await;
        secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
        until("two more have signed after the loss of the Secret", async || {
            authorities.extend(authority(&secrets).await);
            authorities.len() >= 5
        })
        .await;
        done.cancel();
    };
    tokio::join!(stream, observation);
    assert!(sent.load(Ordering::Relaxed) > 50, "{sent:?} requests");
    webhooks.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_start_together_share_one_authority() {
    let Some(world) = world().await else { return };
    let endpoint = WebhookEndpoint::Url("https://127.0.0.1:1".to_owned());
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(world.webhooks(|config| config.endpoint = Some(endpoint.clone())).await);
    }
    let addresses: Vec<_> = replicas.iter().map(Webhooks::address).collect();
    let webhooks = RunningWebhooks::start(replicas);
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    until("the authority is stored", async || authority(&secrets).await.is_some()).await;
    let pem = authority(&secrets).await.unwrap();
    for address in addresses {
        until("the replica is trusted", async || is_trusted(address, &pem).await).await;
    }
    webhooks.stop().await;
}

/// Whether a client that trusts only this authority gets a response.
async fn is_trusted(address: SocketAddr, authority: &[u8]) -> bool {
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(vec![pem_contents(authority)]);
    let client = kube::Client::try_from(config).unwrap();
    let request = http::Request::get("/").body(Vec::new()).unwrap();
    // 404 is a response of the webhooks; without trust there is none.
    matches!(client.request_text(request).await, Err(kube::Error::Api(status)) if status.code == 404)
}

fn pem_contents(pem: &[u8]) -> Vec<u8> {
    x509_parser::pem::Pem::iter_from_buffer(pem).next().unwrap().unwrap().contents
}
