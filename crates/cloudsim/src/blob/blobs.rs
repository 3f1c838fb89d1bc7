//! Requests on block blobs.

use std::collections::BTreeMap;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use http::{Method, StatusCode};
use jiff::Timestamp;
use md5::{Digest as _, Md5};

use super::access::{Access, BlobAction};
use super::error::{BlobError, BlobFailure};
use super::store::{self, Blob, ContentHeaders, StoredBlob};
use super::{BLOB_BYTES_MAX, BlobCall, BlobRequest, BlobResponse, conditions, containers, xml};
use crate::arm::Change;
use crate::arm::kinds::storage;
use crate::failure::Failure;

const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";
const NAME_CHARS_MAX: usize = 1024;
const METADATA_BYTES_MAX: usize = 8 * 1024;
const BLOCKS_MAX: usize = 50_000;
/// Longest id of a block before its encoding.
const BLOCK_ID_BYTES_MAX: usize = 64;

/// A request on a blob whose container exists.
struct Target<'a> {
    call: &'a BlobCall<'a>,
    /// The key of the container.
    container: String,
    name: &'a str,
    present: Option<StoredBlob>,
}

/// Requests on a blob.
pub(super) fn handle(call: &BlobCall<'_>, container: &str, name: &str) -> Result<BlobResponse, BlobFailure> {
    let request = call.request;
    let found = storage::find_container(call.cx, &call.account.id, container)?;
    let found = found.filter(|it| it.change != Change::Deleting);
    let present = match &found {
        Some(container) => store::find(call.cx, &container.id.key(), name)?,
        None => None,
    };
    let write = if present.is_some() { BlobAction::WriteBlob } else { BlobAction::CreateBlob };
    let action = match (request.method, request.component()) {
        (&Method::GET | &Method::HEAD, "" | "metadata") | (&Method::GET, "blocklist") => BlobAction::ReadBlob,
        (&Method::PUT, "" | "block" | "blocklist") => write,
        (&Method::PUT, "metadata" | "properties") => BlobAction::WriteBlob,
        (&Method::DELETE, "") => BlobAction::DeleteBlob,
        _ => return Err(request.unsupported()),
    };
    call.authorize(action, found.as_ref())?;
    let container = containers::required(found.as_ref())?.id.key();
    let target = Target { call, container, name, present };
    match (request.method, request.component()) {
        (&Method::PUT, "") => target.put(),
        (&Method::PUT, "block") => target.put_block(),
        (&Method::PUT, "blocklist") => target.commit(),
        (&Method::PUT, "metadata") => {
            let metadata = metadata(request)?;
            target.change(|blob| blob.metadata = metadata)
        }
        (&Method::PUT, "properties") => {
            let headers = content_headers(request);
            target.change(|blob| blob.headers = headers)
        }
        (&Method::DELETE, _) => {
            let stored = target.required()?;
            store::delete(call.cx, stored)?;
            let mut response = BlobResponse::new(StatusCode::ACCEPTED);
            response.set("x-ms-delete-type-permanent", "true");
            Ok(response)
        }
        (_, "blocklist") => target.block_list(),
        _ => target.read(),
    }
}

/// The metadata in the headers of a request.
pub(super) fn metadata(request: &BlobRequest<'_>) -> Result<BTreeMap<String, String>, BlobError> {
    let mut metadata = BTreeMap::new();
    for (name, value) in request.headers {
        let Some(name) = name.as_str().strip_prefix("x-ms-meta-") else { continue };
        let is_name = name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
            && !name.starts_with(|it: char| it.is_ascii_digit());
        let value = value.to_str().ok().filter(|_| is_name && !name.is_empty());
        let Some(value) = value else {
            let message = format!("The metadata specified is invalid: {name}.");
            return Err(BlobError::bad_request("InvalidMetadata", message));
        };
        metadata.insert(name.to_owned(), value.to_owned());
    }
    match metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() {
        0..=METADATA_BYTES_MAX => Ok(metadata),
        _ => {
            let message = format!("The metadata is larger than {METADATA_BYTES_MAX} bytes.");
            Err(BlobError::bad_request("MetadataTooLarge", message))
        }
    }
}

/// The headers of the content that a request sets; others are empty.
fn content_headers(request: &BlobRequest<'_>) -> ContentHeaders {
    let text = |name: &str| request.header(name).map(str::to_owned);
    ContentHeaders {
        content_type: text("x-ms-blob-content-type").unwrap_or_else(|| CONTENT_TYPE_DEFAULT.to_owned()),
        content_encoding: text("x-ms-blob-content-encoding"),
        content_language: text("x-ms-blob-content-language"),
        content_disposition: text("x-ms-blob-content-disposition"),
        cache_control: text("x-ms-blob-cache-control"),
        content_md5: text("x-ms-blob-content-md5"),
    }
}

fn md5(content: &[u8]) -> String {
    STANDARD.encode(Md5::digest(content))
}

/// Checks the digest of the body, where the request has one.
fn check_md5(request: &BlobRequest<'_>) -> Result<(), BlobError> {
    match request.header("content-md5") {
        Some(sent) if sent != md5(request.body) => {
            let message = "The MD5 value specified in the request did not match with the MD5 value calculated by the server.";
            Err(BlobError::bad_request("Md5Mismatch", message))
        }
        _ => Ok(()),
    }
}

fn stamped(mut response: BlobResponse, seed: u64, blob: &Blob) -> BlobResponse {
    response.set(ETAG.as_str(), &format!("\"{}\"", blob.etag(seed)));
    response.set(LAST_MODIFIED.as_str(), &conditions::http_date(blob.modified));
    response
}

impl Target<'_> {
    fn required(&self) -> Result<&StoredBlob, BlobFailure> {
        self.check()?;
        self.present
            .as_ref()
            .ok_or_else(|| BlobError::not_found("BlobNotFound", "The specified blob does not exist.").into())
    }

    /// Checks the conditions of the request. On a missing blob only a write has any.
    fn check(&self) -> Result<(), BlobFailure> {
        let request = self.call.request;
        let present = self.present.as_ref().map(|it| (it.blob.etag(self.call.cx.seed), it.blob.modified));
        if present.is_none() && *request.method != Method::PUT {
            return Ok(());
        }
        let present: Option<(&str, Timestamp)> = present.as_ref().map(|(etag, time)| (etag.as_str(), *time));
        Ok(conditions::check(request.method, request.headers, present)?)
    }

    fn check_name(&self) -> Result<(), BlobError> {
        let is_sound = (1..=NAME_CHARS_MAX).contains(&self.name.chars().count())
            && !self.name.chars().any(char::is_control);
        match is_sound {
            true => Ok(()),
            false => {
                let message = format!(
                    "The name of a blob has 1 to {NAME_CHARS_MAX} characters and no control characters."
                );
                Err(BlobError::bad_request("InvalidResourceName", message))
            }
        }
    }

    /// Writes the blob with a content.
    fn write(
        &self,
        headers: ContentHeaders,
        content: &[u8],
        blocks: Vec<(String, usize)>,
    ) -> Result<BlobResponse, BlobFailure> {
        let cx = self.call.cx;
        let created = self.present.as_ref().map_or(cx.now, |it| it.blob.created);
        let blob = Blob {
            version: store::next_version(cx)?,
            size: content.len(),
            created,
            modified: cx.now,
            headers,
            metadata: metadata(self.call.request)?,
            blocks,
        };
        store::write(cx, &self.container, self.name, &blob, content)?;
        let mut response = stamped(BlobResponse::new(StatusCode::CREATED), cx.seed, &blob);
        response.set("x-ms-request-server-encrypted", "true");
        Ok(response)
    }

    fn put(&self) -> Result<BlobResponse, BlobFailure> {
        let request = self.call.request;
        self.check_name()?;
        if request.header("x-ms-copy-source").is_some() {
            let message = "The emulated blob service does not copy blobs: x-ms-copy-source.";
            return Err(BlobError::bad_request("UnsupportedHeader", message).into());
        }
        match request.header("x-ms-blob-type") {
            Some("BlockBlob") => {}
            Some(other) => {
                let message =
                    format!("The emulated blob service has block blobs only: x-ms-blob-type {other}.");
                return Err(BlobError::bad_request("InvalidHeaderValue", message).into());
            }
            None => {
                let message =
                    "An HTTP header that's mandatory for this request is not specified: x-ms-blob-type.";
                return Err(BlobError::bad_request("MissingRequiredHeader", message).into());
            }
        }
        self.check()?;
        check_md5(request)?;
        let mut headers = content_headers(request);
        if request.header("x-ms-blob-content-type").is_none()
            && let Some(sent) = request.header(CONTENT_TYPE.as_str())
        {
            sent.clone_into(&mut headers.content_type);
        }
        let digest = md5(request.body);
        headers.content_md5 = headers.content_md5.or_else(|| Some(digest.clone()));
        let mut response = self.write(headers, request.body, Vec::new())?;
        response.set("content-md5", &digest);
        Ok(response)
    }

    /// Changes properties of the blob.
    fn change(&self, change: impl FnOnce(&mut Blob)) -> Result<BlobResponse, BlobFailure> {
        let (cx, stored) = (self.call.cx, self.required()?);
        let mut blob = stored.blob.clone();
        change(&mut blob);
        (blob.version, blob.modified) = (store::next_version(cx)?, cx.now);
        let response = stamped(BlobResponse::new(StatusCode::OK), cx.seed, &blob);
        store::update(cx, &StoredBlob { id: stored.id, blob })?;
        Ok(response)
    }

    fn put_block(&self) -> Result<BlobResponse, BlobFailure> {
        let request = self.call.request;
        self.check_name()?;
        check_md5(request)?;
        let id = request.parameter("blockid").unwrap_or_default();
        let is_sound = STANDARD.decode(id).is_ok_and(|it| (1..=BLOCK_ID_BYTES_MAX).contains(&it.len()));
        if !is_sound {
            let message = "The specified block ID is invalid. The block ID must be Base64-encoded.";
            return Err(BlobError::bad_request("InvalidQueryParameterValue", message).into());
        }
        let others = store::blocks(self.call.cx, &self.container, self.name)?;
        if others.first().is_some_and(|(other, _)| other.len() != id.len()) {
            let message = "The specified blob or block content is invalid: all block IDs have one length.";
            return Err(BlobError::bad_request("InvalidBlobOrBlock", message).into());
        }
        let kept = others.iter().filter(|(other, _)| other != id).map(|(_, size)| size);
        let total = kept.sum::<usize>() + request.body.len();
        if total > BLOB_BYTES_MAX || others.len() >= BLOCKS_MAX {
            return Err(too_large().into());
        }
        store::put_block(self.call.cx, &self.container, self.name, id, request.body)?;
        let mut response = BlobResponse::new(StatusCode::CREATED);
        response.set("content-md5", &md5(request.body));
        response.set("x-ms-request-server-encrypted", "true");
        Ok(response)
    }

    /// Makes the blob of blocks, which are uncommitted or those that it has.
    fn commit(&self) -> Result<BlobResponse, BlobFailure> {
        let (cx, request) = (self.call.cx, self.call.request);
        self.check_name()?;
        self.check()?;
        check_md5(request)?;
        let body = String::from_utf8_lossy(request.body);
        let listed = xml::leaves(&body).filter(|it| it.len() <= BLOCKS_MAX);
        let Some(listed) = listed else {
            return Err(
                BlobError::bad_request("InvalidXmlDocument", "The block list is no valid XML.").into()
            );
        };
        let (mut content, mut blocks) = (Vec::new(), Vec::new());
        for (kind, id) in listed {
            let uncommitted = match kind.as_str() {
                "Latest" | "Uncommitted" => store::block(cx, &self.container, self.name, &id)?,
                "Committed" => None,
                _ => continue,
            };
            let found = match uncommitted {
                Some(found) => Some(found),
                None if kind == "Uncommitted" => None,
                None => self.committed(&id)?,
            };
            let Some(found) = found else {
                let message = "The specified block list is invalid.";
                return Err(BlobError::bad_request("InvalidBlockList", message).into());
            };
            if content.len() + found.len() > BLOB_BYTES_MAX {
                return Err(too_large().into());
            }
            content.extend_from_slice(&found);
            blocks.push((id, found.len()));
        }
        self.write(content_headers(request), &content, blocks)
    }

    /// A block that the blob has.
    fn committed(&self, id: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(stored) = &self.present else { return Ok(None) };
        let mut start = 0;
        for (block, size) in &stored.blob.blocks {
            if block == id {
                return store::content(self.call.cx, stored, &(start..start + size)).map(Some);
            }
            start += size;
        }
        Ok(None)
    }

    fn block_list(&self) -> Result<BlobResponse, BlobFailure> {
        let cx = self.call.cx;
        let uncommitted = store::blocks(cx, &self.container, self.name)?;
        if self.present.is_none() && uncommitted.is_empty() {
            self.required()?;
        }
        let wanted = self.call.request.parameter("blocklisttype").unwrap_or("committed");
        let elements = |name: &str, blocks: &[(String, usize)]| {
            let blocks: String = blocks
                .iter()
                .map(|(id, size)| {
                    let size = xml::element("Size", &size.to_string());
                    format!("<Block>{}{size}</Block>", xml::element("Name", id))
                })
                .collect();
            format!("<{name}>{blocks}</{name}>")
        };
        let mut lists = String::new();
        if wanted != "uncommitted" {
            let committed = self.present.as_ref().map(|it| it.blob.blocks.as_slice()).unwrap_or_default();
            lists.push_str(&elements("CommittedBlocks", committed));
        }
        if wanted != "committed" {
            lists.push_str(&elements("UncommittedBlocks", &uncommitted));
        }
        let mut response = BlobResponse::xml(format!("{}<BlockList>{lists}</BlockList>", xml::DECLARATION));
        if let Some(stored) = &self.present {
            response = stamped(response, cx.seed, &stored.blob);
            response.set("x-ms-blob-content-length", &stored.blob.size.to_string());
        }
        Ok(response)
    }

    /// The content with its properties, or these alone.
    fn read(&self) -> Result<BlobResponse, BlobFailure> {
        let (cx, request) = (self.call.cx, self.call.request);
        let stored = self.required()?;
        let blob = &stored.blob;
        let has_content = *request.method == Method::GET && request.component().is_empty();
        let range = if has_content { conditions::range(request.headers, blob.size)? } else { None };
        let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut response = stamped(BlobResponse::new(status), cx.seed, blob);
        self.describe(&mut response, blob, range.as_ref());
        if has_content {
            let wanted = range.clone().unwrap_or(0..blob.size);
            response.body = store::content(cx, stored, &wanted)?.into();
            if range.is_some() && request.header("x-ms-range-get-content-md5") == Some("true") {
                let digest = md5(&response.body);
                response.set("content-md5", &digest);
            }
        } else {
            response.set(CONTENT_LENGTH.as_str(), &blob.size.to_string());
        }
        Ok(response)
    }

    fn describe(&self, response: &mut BlobResponse, blob: &Blob, range: Option<&Range<usize>>) {
        let headers = &blob.headers;
        // A signature may say with which headers its bearer reads the blob.
        let signed = |name: &str| match self.call.access {
            Access::Sas(_) => self.call.request.parameter(name).map(str::to_owned),
            _ => None,
        };
        let contents = [
            (CONTENT_TYPE, "rsct", Some(headers.content_type.clone())),
            (CONTENT_ENCODING, "rsce", headers.content_encoding.clone()),
            (CONTENT_LANGUAGE, "rscl", headers.content_language.clone()),
            (CONTENT_DISPOSITION, "rscd", headers.content_disposition.clone()),
            (CACHE_CONTROL, "rscc", headers.cache_control.clone()),
        ];
        for (name, parameter, value) in contents {
            if let Some(value) = signed(parameter).or(value) {
                response.set(name.as_str(), &value);
            }
        }
        // The digest is that of the whole, which a part must not claim.
        let digest = if range.is_some() { "x-ms-blob-content-md5" } else { "content-md5" };
        if let Some(value) = &headers.content_md5 {
            response.set(digest, value);
        }
        if let Some(range) = range {
            let value = format!("bytes {}-{}/{}", range.start, range.end - 1, blob.size);
            response.set(CONTENT_RANGE.as_str(), &value);
        }
        for (name, value) in &blob.metadata {
            response.set(&format!("x-ms-meta-{name}"), value);
        }
        for (name, value) in [
            (ACCEPT_RANGES.as_str(), "bytes"),
            ("x-ms-creation-time", &conditions::http_date(blob.created)),
            ("x-ms-blob-type", "BlockBlob"),
            ("x-ms-lease-status", "unlocked"),
            ("x-ms-lease-state", "available"),
            ("x-ms-server-encrypted", "true"),
            ("x-ms-access-tier", "Hot"),
            ("x-ms-access-tier-inferred", "true"),
        ] {
            response.set(name, value);
        }
    }
}

fn too_large() -> BlobError {
    let message = format!("The emulated blob service has blobs of at most {BLOB_BYTES_MAX} bytes.");
    BlobError::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge", message)
}
