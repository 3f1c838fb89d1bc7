//! Links: trust, reachability and their errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use api::clock::SystemClock;
use api::error::{Class, Classify};
use base64::Engine as _;
use futures_util::future::join_all;
use kubelink::facts::version;
use kubelink::{AllowedRisks, Failure, Kubeconfig, Link, LinkError, Links, LinksLimits, Timeouts};
use serde_json::json;
use testkit::kube::TestCluster;
use uuid::Uuid;

fn cluster() -> Option<&'static TestCluster> {
    let cluster = testkit::kube::shared();
    if cluster.is_none() {
        testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
    }
    cluster
}

/// A kubeconfig with a token instead of the administrator's certificate.
fn with_token(server: &str, authority: &str, token: &str) -> Kubeconfig {
    let authority = base64::engine::general_purpose::STANDARD.encode(authority);
    let text = json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "u", "user": {"token": token}}]});
    Kubeconfig::parse(&text.to_string(), None, &AllowedRisks::nothing()).unwrap()
}

fn link(kubeconfig: &Kubeconfig) -> Link {
    let timeouts = Timeouts { connect: Duration::from_millis(500), request: Duration::from_secs(5) };
    Link::open("far", kubeconfig, timeouts, Arc::new(SystemClock)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_with_a_certificate_of_another_authority_is_not_trusted() {
    let Some(cluster) = cluster() else { return };
    let key = rcgen::KeyPair::generate().unwrap();
    let stranger =
        rcgen::CertificateParams::new(vec!["stranger".to_owned()]).unwrap().self_signed(&key).unwrap();
    let error = version(&link(&with_token(cluster.url(), &stranger.pem(), "t"))).await.unwrap_err();
    assert!(matches!(error.failure, Failure::Tls { .. }), "{error:?}");
    assert_eq!(error.class(), Class::Terminal);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_a_listener_is_a_transient_failure() {
    let Some(cluster) = cluster() else { return };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error =
        version(&link(&with_token(&format!("https://{nobody}"), cluster.ca_pem(), "t"))).await.unwrap_err();
    assert!(matches!(error.failure, Failure::ConnectionRefused(_)), "{error:?}");
    assert_eq!(error.class(), Class::Transient);
    assert!(error.to_string().ends_with("the API server refuses connections"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_credential_is_loaded_again() {
    let Some(cluster) = cluster() else { return };
    let links = Links::new(LinksLimits::default(), Arc::new(SystemClock));
    let loads = AtomicU32::new(0);
    let good = Kubeconfig::parse(cluster.kubeconfig(), None, &AllowedRisks::nothing()).unwrap();
    let id = Uuid::from_u128(7);
    let take = async || {
        let load = async || -> Result<(String, Kubeconfig), LinkError> {
            let first = loads.fetch_add(1, Ordering::SeqCst) == 0;
            let expired = || with_token(cluster.url(), cluster.ca_pem(), "expired");
            Ok(("harbour".to_owned(), if first { expired() } else { good.clone() }))
        };
        links.link(id, "etag", load).await.unwrap()
    };
    // /version is open to everyone; nodes are not.
    let refused = kubelink::facts::nodes(&take().await).await.unwrap_err();
    assert!(matches!(refused.failure, Failure::Unauthorized), "{refused:?}");
    assert!(refused.to_string().starts_with("cluster harbour: could not "), "{refused}");
    kubelink::facts::nodes(&take().await).await.unwrap();
    kubelink::facts::nodes(&take().await).await.unwrap();
    assert_eq!(loads.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_unreachable_clusters_time_out_together() {
    let Some(cluster) = cluster() else { return };
    // A listener that accepts into its backlog and never responds: a reachable host without a server.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    let kubeconfig = with_token(&server, cluster.ca_pem(), "t");
    let begun = Instant::now();
    let ends = join_all((0..200).map(|_| {
        let link = link(&kubeconfig);
        async move { version(&link).await }
    }))
    .await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    for end in ends {
        let error = end.unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_request_has_the_servers_message() {
    let Some(cluster) = cluster() else { return };
    let mut text: serde_json::Value = serde_json::from_str(&kubeconfig_json(cluster)).unwrap();
    text["users"][0]["user"]["as"] = json!("nobody-in-particular");
    let kubeconfig = Kubeconfig::parse(&text.to_string(), None, &AllowedRisks::nothing()).unwrap();
    let error = kubelink::facts::nodes(&link(&kubeconfig)).await.unwrap_err();
    let Failure::Forbidden { message } = &error.failure else { panic!("{error:?}") };
    assert!(message.contains("nobody-in-particular"), "{message}");
    assert_eq!(error.class(), Class::Terminal);
}

fn kubeconfig_json(cluster: &TestCluster) -> String {
    Kubeconfig::parse(cluster.kubeconfig(), None, &AllowedRisks::nothing())
        .unwrap()
        .document()
        .expose()
        .clone()
}
