//! Blobs on a database in memory: contents across chunks, limits, pages, and deletions that take time.

use cloud::ResourceId;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::access::Access;
use super::error::BlobFailure;
use super::{BLOB_BYTES_MAX, BlobCall, BlobRequest, BlobResponse, blobs, containers};
use crate::arm::{find_kind, groups, resources, store, type_of};
use crate::call_context::{CallContext, FaultEffects};
use crate::database;
use crate::endpoints::Endpoints;
use crate::entra::VerifiedTokens;

const MEBIBYTE: usize = 1024 * 1024;

/// A cloud in memory with an account, whose key every request has.
struct Fixture {
    db: Connection,
    endpoints: Endpoints,
    tokens: VerifiedTokens,
    now: Timestamp,
    account: ResourceId,
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

impl Fixture {
    fn new() -> Fixture {
        let group: ResourceId =
            "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g".parse().unwrap();
        let fixture = Fixture {
            db: database::open(None).unwrap(),
            endpoints: Endpoints { blob: "https://127.0.0.1:9".to_owned(), ..Endpoints::default() },
            tokens: VerifiedTokens::default(),
            now: Timestamp::from_second(1_700_000_000).unwrap(),
            account: group.sibling("Microsoft.Storage", "storageAccounts", "acct"),
        };
        groups::write(&fixture.cx(), &group, &object(json!({ "location": "westeurope" }))).unwrap();
        let body =
            json!({ "location": "westeurope", "kind": "StorageV2", "sku": { "name": "Standard_LRS" } });
        let kind = find_kind(&type_of(&fixture.account).unwrap()).unwrap();
        resources::write(&fixture.cx(), kind, &fixture.account, object(body)).unwrap();
        fixture
    }

    fn cx(&self) -> CallContext<'_> {
        CallContext {
            db: &self.db,
            now: self.now,
            seed: 1,
            pace: 1.0,
            effects: FaultEffects::default(),
            endpoints: &self.endpoints,
            tokens: &self.tokens,
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
        store::sweep(&self.db, self.now).unwrap();
    }

    /// The response to a request, or status and code of its error.
    fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> Result<BlobResponse, (StatusCode, String)> {
        let cx = self.cx();
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = format!("/acct/{path}");
        let request = BlobRequest::new(&method, &path, query, &headers, body);
        let account = store::find(&self.db, &self.account.key()).unwrap().unwrap();
        let call = BlobCall { cx: &cx, request: &request, account: &account, access: &Access::SharedKey };
        let container = request.container.as_deref().unwrap();
        let done = match &request.blob {
            Some(blob) => blobs::handle(&call, container, blob),
            None => containers::handle(&call, container),
        };
        done.map_err(|failure| match failure {
            BlobFailure::Rejected(error) => (error.status, error.code),
            BlobFailure::Failed(failure) => panic!("the service failed: {failure:?}"),
        })
    }

    fn create_container(&self, name: &str) -> Result<BlobResponse, (StatusCode, String)> {
        self.send(Method::PUT, &format!("{name}?restype=container"), &[], &[])
    }

    fn put(&self, path: &str, content: &[u8]) {
        self.send(Method::PUT, path, &[("x-ms-blob-type", "BlockBlob")], content).unwrap();
    }
}

#[test]
fn a_content_is_read_across_chunks() {
    let fixture = Fixture::new();
    fixture.create_container("abc").unwrap();
    let content: Vec<u8> = (0..2 * MEBIBYTE + 5).map(|it| u8::try_from(it % 251).unwrap()).collect();
    fixture.put("abc/b", &content);
    assert_eq!(fixture.send(Method::GET, "abc/b", &[], &[]).unwrap().body, content);
    for (first, last) in [
        (0, 0),
        (MEBIBYTE - 1, MEBIBYTE),
        (MEBIBYTE, 2 * MEBIBYTE - 1),
        (1, 2 * MEBIBYTE + 1),
        (2 * MEBIBYTE, 2 * MEBIBYTE + 4),
    ] {
        let range = format!("bytes={first}-{last}");
        let found = fixture.send(Method::GET, "abc/b", &[("x-ms-range", &range)], &[]).unwrap();
        assert_eq!(found.status, StatusCode::PARTIAL_CONTENT);
        assert_eq!(found.body, content[first..=last], "{range}");
    }
}

#[test]
fn a_replaced_blob_leaves_nothing_behind() {
    let fixture = Fixture::new();
    fixture.create_container("abc").unwrap();
    fixture.put("abc/b", &vec![1; MEBIBYTE + 1]);
    fixture.put("abc/b", b"short");
    assert_eq!(fixture.send(Method::GET, "abc/b", &[], &[]).unwrap().body, b"short"[..]);
    let chunks: i64 = fixture.db.query_row("select count(*) from blob_chunk", [], |row| row.get(0)).unwrap();
    assert_eq!(chunks, 1);
}

#[test]
fn a_blob_has_a_limit_however_it_is_written() {
    let fixture = Fixture::new();
    fixture.create_container("abc").unwrap();
    let half = vec![0; BLOB_BYTES_MAX / 2 + 1];
    let stage = |id: &str| fixture.send(Method::PUT, &format!("abc/b?comp=block&blockid={id}"), &[], &half);
    stage("MDA=").unwrap();
    // The same block again takes its place.
    stage("MDA=").unwrap();
    let error = stage("MDE=").err().unwrap();
    assert_eq!(error, (StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge".to_owned()));
    // One block twice in a list.
    let list = b"<BlockList><Latest>MDA=</Latest><Latest>MDA=</Latest></BlockList>";
    let error = fixture.send(Method::PUT, "abc/b?comp=blocklist", &[], list).err().unwrap();
    assert_eq!(error.0, StatusCode::PAYLOAD_TOO_LARGE);
    let list = b"<BlockList><Latest>MDA=</Latest></BlockList>";
    fixture.send(Method::PUT, "abc/b?comp=blocklist", &[], list).unwrap();
}

#[test]
fn the_name_of_a_deleted_container_is_free_after_a_while() {
    let mut fixture = Fixture::new();
    fixture.create_container("abc").unwrap();
    fixture.put("abc/b", b"x");
    fixture.send(Method::DELETE, "abc?restype=container", &[], &[]).unwrap();
    let error = fixture.create_container("abc").err().unwrap();
    assert_eq!(error, (StatusCode::CONFLICT, "ContainerBeingDeleted".to_owned()));
    let error = fixture.send(Method::GET, "abc/b", &[], &[]).err().unwrap();
    assert_eq!(error, (StatusCode::NOT_FOUND, "ContainerNotFound".to_owned()));
    fixture.pass(60);
    fixture.create_container("abc").unwrap();
    let error = fixture.send(Method::GET, "abc/b", &[], &[]).err().unwrap();
    assert_eq!(error, (StatusCode::NOT_FOUND, "BlobNotFound".to_owned()));
}

#[test]
fn an_account_that_goes_takes_its_blobs_with_it() {
    let fixture = Fixture::new();
    fixture.create_container("abc").unwrap();
    fixture.put("abc/b", b"x");
    fixture.send(Method::PUT, "abc/c?comp=block&blockid=MDA=", &[], b"y").unwrap();
    let account = store::find(&fixture.db, &fixture.account.key()).unwrap().unwrap();
    resources::delete(&fixture.cx(), find_kind(&account.type_name).unwrap(), &account).unwrap();
    for table in ["blob", "blob_chunk", "blob_block"] {
        let sql = format!("select count(*) from {table}");
        let count: i64 = fixture.db.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
}

#[test]
fn a_list_with_a_delimiter_reads_past_what_it_groups() {
    let fixture = Fixture::new();
    fixture.create_container("abc").unwrap();
    for number in 0..30 {
        fixture.put(&format!("abc/a/{number:02}"), b"x");
    }
    for name in ["a-", "b", "c/1", "c/2"] {
        fixture.put(&format!("abc/{name}"), b"x");
    }
    let mut marker = String::new();
    let mut pages: Vec<Vec<String>> = Vec::new();
    loop {
        let path = format!("abc?restype=container&comp=list&delimiter=%2F&maxresults=2&marker={marker}");
        let body = fixture.send(Method::GET, &path, &[], &[]).unwrap().body;
        let leaves = super::xml::leaves(std::str::from_utf8(&body).unwrap()).unwrap();
        let of = |wanted: &str| -> Vec<String> {
            leaves.iter().filter(|(name, _)| name == wanted).map(|(_, text)| text.clone()).collect()
        };
        pages.push(of("Name"));
        match of("NextMarker").pop() {
            Some(next) if !next.is_empty() => marker = next,
            _ => break,
        }
    }
    assert_eq!(pages, [vec!["a-", "a/"], vec!["b", "c/"]]);
}
