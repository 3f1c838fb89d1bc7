//! The watch against an API server that is a function, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::informer::tests::object;
use crate::informer::{Informer, Selection};
use crate::informers::{Informers, InformersError, Observability};

type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A server without objects: each listing is counted, and answered with this code; a watch stays silent.
fn server(code: StatusCode) -> (Client, Arc<AtomicUsize>) {
    let listings = Arc::new(AtomicUsize::new(0));
    let count = listings.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let body: AnyBody = if is_watch {
            let silence = futures_util::stream::pending::<Result<Frame<Bytes>, BoxError>>().boxed();
            StreamBody::new(silence).boxed_unsync()
        } else {
            count.fetch_add(1, Ordering::SeqCst);
            let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [],
                "status": "Failure", "code": code.as_u16(), "message": "", "reason": ""});
            Full::new(Bytes::from(list.to_string())).map_err(|never| match never {}).boxed_unsync()
        };
        let code = if is_watch { StatusCode::OK } else { code };
        std::future::ready(Response::builder().status(code).body(body).map_err(BoxError::from))
    });
    (Client::new(service, "default"), listings)
}

fn start(client: Client) -> (Arc<Informers>, JoinSet<Result<(), InformersError>>) {
    let informers = Informers::new(client, Observability::default());
    let (mut tasks, run) = (JoinSet::new(), informers.clone());
    tasks.spawn(async move { run.run(CancellationToken::new()).await });
    (informers, tasks)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_watch_never_confirms_is_checked_by_a_new_listing() {
    let (client, listings) = server(StatusCode::OK);
    let (informers, _tasks) = start(client.clone());
    let informer = informers.select(Api::<ConfigMap>::all(client), Selection::all().labels("role=child"));
    informer.synced().await;
    let changes = informer.subscribe();
    // It does not match the selection, so the API server does not report it here.
    informer.remember(object("other", "1", 9));
    assert!(!changes.next().await.is_deleted());
    assert!(changes.next().await.is_deleted());
    assert_eq!((informer.len(), listings.load(Ordering::SeqCst)), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn listings_that_fail_are_repeated_more_and_more_rarely() {
    let (client, listings) = server(StatusCode::INTERNAL_SERVER_ERROR);
    let (informers, _tasks) = start(client);
    let informer = informers.all::<ConfigMap>();
    let waited = tokio::time::timeout(Duration::from_secs(60), informer.synced()).await;
    assert!(waited.is_err() && !informer.is_synced());
    // After 0, 0.25, 0.75, 1.75, 3.75 and 7.75 s, then every 5 s.
    assert_eq!(listings.load(Ordering::SeqCst), 16);
}

#[tokio::test(start_paused = true)]
async fn many_requests_to_catch_up_share_a_listing() {
    let (client, listings) = server(StatusCode::OK);
    let (informers, _tasks) = start(client);
    let informer = informers.all::<ConfigMap>();
    informer.synced().await;
    futures_util::future::join_all((0..100).map(|_| informer.catch_up())).await;
    assert_eq!(listings.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_panics_ends_the_informers() {
    let (client, _) = server(StatusCode::OK);
    let (informers, mut tasks) = start(client);
    let informer = informers.all::<ConfigMap>();
    informer.synced().await;
    let _observation = informer.observe(|_| panic!("a bug in a mapping"));
    informer.remember(object("a", "1", 9));
    let error = tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "a mapping of changes of ConfigMap panicked");
    assert!(matches!(informers.run(CancellationToken::new()).await, Err(InformersError::RunsAlready)));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_is_healthy() {
    let (client, _) = server(StatusCode::OK);
    let (informers, _tasks) = start(client);
    let informer = informers.all::<ConfigMap>();
    informer.synced().await;
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(informers.observability().health.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn the_watch_lasts_as_long_as_a_reader_or_an_index() {
    let (client, _) = server(StatusCode::OK);
    let (informer, end) = Informer::new(
        Api::<ConfigMap>::all(client),
        ApiResource::erase::<ConfigMap>(&()),
        Observability::default(),
    );
    let (changes, index) = (informer.subscribe(), informer.index(|_| Vec::new()));
    drop(informer);
    assert!(!end.is_cancelled());
    drop(changes);
    assert!(!end.is_cancelled());
    drop(index);
    assert!(end.is_cancelled());
}
