//! Clusters that answer nonsense: every answer has an end, and what can be read is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::clock::SystemClock;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use kube::client::Body;
use kubelink::Link;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::fetch::{FetchError, Fetcher};
use super::probe::{classify, probe};

#[derive(Debug, Deserialize)]
struct Item {
    name: String,
}

/// A cluster that answers each request with what `answer` makes of its path and number.
fn cluster(answer: impl Fn(&str, usize) -> (u16, Vec<u8>) + Send + Sync + 'static) -> Fetcher {
    let (answer, requests) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, number) = (answer.clone(), requests.fetch_add(1, Ordering::SeqCst));
        async move {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let (status, body) = answer(&path, number);
            let response = Response::builder().status(status).body(Full::new(Bytes::from(body)));
            Ok::<_, std::convert::Infallible>(response.unwrap())
        }
    });
    let client = kube::Client::new(service, "default");
    Fetcher::new(Link::from_client("hostile", client, Arc::new(SystemClock)), CancellationToken::new())
}

fn page(items: &str, next: &str) -> (u16, Vec<u8>) {
    (200, format!(r#"{{"items": [{items}], "metadata": {{"continue": "{next}"}}}}"#).into_bytes())
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_counted_and_the_others_are_read() {
    let fetcher = cluster(|path, _| match path.contains("continue=") {
        false => page(r#"{"name": "a"}, {"name": 7}, [], null"#, "n/e xt"),
        true if path.ends_with("continue=n%2Fe%20xt") => page(r#"{"name": "b", "more": {}}"#, ""),
        true => (500, Vec::new()),
    });
    let listed = fetcher.list::<Item>("/x").await.unwrap().unwrap();
    let names: Vec<&str> = listed.items.iter().map(|it| it.name.as_str()).collect();
    assert_eq!((names, listed.unreadable), (vec!["a", "b"], 3));
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up() {
    let many = vec![r#"{"name": "a"}"#; 1000].join(",");
    let growing = cluster(move |_, number| page(&many, &number.to_string()));
    let error = growing.list::<Item>("/x").await.unwrap_err();
    assert_eq!(error.to_string(), "/x has more than 20000 objects");
    let turning = cluster(|_, _| page("", "same"));
    assert!(matches!(turning.list::<Item>("/x").await, Err(FetchError::TooMany { .. })));
}

#[tokio::test]
async fn a_body_of_100_mb_is_not_read() {
    let fetcher = cluster(|_, _| (200, vec![b' '; 100 * 1024 * 1024]));
    let error = fetcher.list::<Item>("/x").await.unwrap_err();
    assert_eq!(error.to_string(), "/x?limit=50 returned more than 16 MiB");
}

#[tokio::test]
async fn a_page_of_html_is_no_list_and_no_healthy_server_and_is_not_quoted() {
    let fetcher = cluster(|_, _| (200, b"<html>Sign in, password=x</html>".to_vec()));
    let error = fetcher.list::<Item>("/x").await.unwrap_err();
    assert!(!error.to_string().contains("Sign in"), "{error}");
    let found = probe(&fetcher).await;
    assert_eq!((found.code, found.is_healthy(), found.is_reachable()), (200, false, false));
}

#[tokio::test]
async fn a_list_that_expires_is_read_once_more_and_a_kind_that_is_not_served_is_none() {
    let once = cluster(|path, number| match (path.contains("continue="), number) {
        (true, 1) => (410, b"{}".to_vec()),
        (false, _) => page(r#"{"name": "a"}"#, "n"),
        (true, _) => page(r#"{"name": "b"}"#, ""),
    });
    assert_eq!(once.list::<Item>("/x").await.unwrap().unwrap().items.len(), 2);
    let always = cluster(|_, _| (410, b"{}".to_vec()));
    let error = always.list::<Item>("/x").await.unwrap_err();
    assert!(matches!(error, FetchError::Status { status: StatusCode::GONE, .. }), "{error}");
    let absent = cluster(|_, _| (404, Vec::new()));
    assert!(absent.list::<Item>("/x").await.unwrap().is_none());
    assert!(absent.object::<Item>("/x").await.unwrap().is_none());
}

#[tokio::test]
async fn a_visit_whose_time_is_over_asks_nothing_more() {
    let over = CancellationToken::new();
    over.cancel();
    let client = kube::Client::new(
        tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Full<Bytes>>, std::io::Error>>()
        }),
        "default",
    );
    let fetcher = Fetcher::new(Link::from_client("slow", client, Arc::new(SystemClock)), over);
    let error = fetcher.get("/healthz").await.unwrap_err();
    assert!(matches!(error, FetchError::Over));
    assert_eq!(classify(&error).as_str(), "timeout");
}
