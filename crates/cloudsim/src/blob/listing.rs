//! Lists of containers and of blobs, in pages. A marker is the last name before the page, in base64.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::conditions::http_date;
use super::error::{BlobError, BlobFailure};
use super::store::{self, Blob};
use super::xml::{self, element};
use super::{BlobCall, BlobRequest, BlobResponse, containers};
use crate::arm::kinds::storage;
use crate::arm::{ArmResource, Change};
use crate::failure::Failure;

const PAGE_ITEMS_MAX: usize = 5000;
/// Sorts after every name that starts with what it follows.
const LAST: char = char::MAX;

/// The parameters of a list.
struct PageRequest<'a> {
    prefix: &'a str,
    delimiter: Option<&'a str>,
    marker: &'a str,
    after: String,
    limit: usize,
    with_metadata: bool,
}

impl PageRequest<'_> {
    fn read<'a>(request: &'a BlobRequest<'_>) -> Result<PageRequest<'a>, BlobError> {
        let wrong = |name: &str| {
            let message = format!(
                "Value for one of the query parameters specified in the request URI is invalid: {name}."
            );
            BlobError::bad_request("OutOfRangeQueryParameterValue", message)
        };
        let limit = match request.parameter("maxresults").map(str::parse::<usize>) {
            None => PAGE_ITEMS_MAX,
            Some(Ok(limit)) if limit > 0 => limit.min(PAGE_ITEMS_MAX),
            Some(_) => return Err(wrong("maxresults")),
        };
        let marker = request.parameter("marker").unwrap_or_default();
        let decoded = URL_SAFE_NO_PAD.decode(marker).ok().and_then(|it| String::from_utf8(it).ok());
        let include = request.parameter("include").unwrap_or_default();
        Ok(PageRequest {
            prefix: request.parameter("prefix").unwrap_or_default(),
            delimiter: request.parameter("delimiter"),
            marker,
            after: decoded.ok_or_else(|| wrong("marker"))?,
            limit,
            with_metadata: include.split(',').any(|it| it.trim() == "metadata"),
        })
    }

    fn document(&self, attributes: &str, collection: &str, items: &str, next: Option<&str>) -> BlobResponse {
        let marker = next.map(|it| URL_SAFE_NO_PAD.encode(it)).unwrap_or_default();
        let delimiter = self.delimiter.map(|it| element("Delimiter", it)).unwrap_or_default();
        BlobResponse::xml(format!(
            "{}<EnumerationResults {attributes}>{}{}{}{delimiter}<{collection}>{items}</{collection}>{}</EnumerationResults>",
            xml::DECLARATION,
            element("Prefix", self.prefix),
            element("Marker", self.marker),
            element("MaxResults", &self.limit.to_string()),
            element("NextMarker", &marker),
        ))
    }
}

fn service_attribute(call: &BlobCall<'_>) -> String {
    let base = call.cx.endpoints.blob.trim_end_matches('/');
    format!("ServiceEndpoint=\"{}\"", xml::escape(&format!("{base}/{}/", call.request.account)))
}

fn metadata_element<'a>(metadata: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let members: String = metadata.map(|(name, value)| element(name, value)).collect();
    format!("<Metadata>{members}</Metadata>")
}

/// A page of the containers of the account.
pub(super) fn containers(call: &BlobCall<'_>) -> Result<BlobResponse, BlobFailure> {
    let page = PageRequest::read(call.request)?;
    let mut found: Vec<ArmResource> = storage::containers(call.cx, &call.account.id)?
        .into_iter()
        .filter(|it| it.change != Change::Deleting)
        .filter(|it| it.id.name().starts_with(page.prefix) && it.id.name() > page.after.as_str())
        .collect();
    found.sort_by(|one, other| one.id.name().cmp(other.id.name()));
    let next = (found.len() > page.limit).then(|| found[page.limit - 1].id.name().to_owned());
    let mut items = String::new();
    for container in found.iter().take(page.limit) {
        let access =
            containers::public_access(container).map(|it| element("PublicAccess", &it)).unwrap_or_default();
        items.push_str(&format!(
            "<Container>{}<Properties>{}{}<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>{access}<HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold></Properties>",
            element("Name", container.id.name()),
            element("Last-Modified", &http_date(containers::modified(container))),
            element("Etag", &format!("\"{}\"", containers::etag(call.cx, container))),
        ));
        if page.with_metadata {
            items.push_str(&metadata_element(containers::metadata(container)));
        }
        items.push_str("</Container>");
    }
    Ok(page.document(&service_attribute(call), "Containers", &items, next.as_deref()))
}

/// An element of a list of blobs.
enum Entry {
    Blob(String, Box<Blob>),
    /// The beginning that some names have in common, up to a delimiter.
    Prefix(String),
}

/// A page of the blobs of a container.
pub(super) fn blobs(
    call: &BlobCall<'_>,
    name: &str,
    container: &ArmResource,
) -> Result<BlobResponse, BlobFailure> {
    let page = PageRequest::read(call.request)?;
    let (entries, next) = entries(call, &container.id.key(), &page)?;
    let mut items = String::new();
    for entry in &entries {
        match entry {
            Entry::Blob(name, blob) => items.push_str(&blob_element(call, name, blob, page.with_metadata)),
            Entry::Prefix(name) => {
                items.push_str(&format!("<BlobPrefix>{}</BlobPrefix>", element("Name", name)));
            }
        }
    }
    let attributes = format!("{} ContainerName=\"{}\"", service_attribute(call), xml::escape(name));
    Ok(page.document(&attributes, "Blobs", &items, next.as_deref()))
}

/// The entries of a page, and the name after which the next one starts.
fn entries(
    call: &BlobCall<'_>,
    container: &str,
    page: &PageRequest<'_>,
) -> Result<(Vec<Entry>, Option<String>), Failure> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut after = page.after.clone();
    loop {
        let wanted = page.limit - entries.len();
        let rows = store::following(call.cx, container, page.prefix, &after, wanted + 1)?;
        let is_last = rows.len() <= wanted;
        let mut skipped = false;
        for (name, blob) in rows {
            if entries.len() == page.limit {
                return Ok((entries, Some(after)));
            }
            let rest = &name[page.prefix.len()..];
            let cut = page.delimiter.and_then(|it| rest.find(it).map(|at| page.prefix.len() + at + it.len()));
            match cut {
                Some(cut) => {
                    // The names with this beginning are one entry: continue behind them.
                    entries.push(Entry::Prefix(name[..cut].to_owned()));
                    after = format!("{}{LAST}", &name[..cut]);
                    skipped = true;
                    break;
                }
                None => {
                    after.clone_from(&name);
                    entries.push(Entry::Blob(name, Box::new(blob)));
                }
            }
        }
        if !skipped && is_last {
            return Ok((entries, None));
        }
    }
}

fn blob_element(call: &BlobCall<'_>, name: &str, blob: &Blob, with_metadata: bool) -> String {
    let headers = &blob.headers;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let properties: String = [
        ("Creation-Time", http_date(blob.created)),
        ("Last-Modified", http_date(blob.modified)),
        ("Etag", blob.etag(call.cx.seed)),
        ("Content-Length", blob.size.to_string()),
        ("Content-Type", headers.content_type.clone()),
        ("Content-Encoding", text(&headers.content_encoding)),
        ("Content-Language", text(&headers.content_language)),
        ("Content-MD5", text(&headers.content_md5)),
        ("Cache-Control", text(&headers.cache_control)),
        ("Content-Disposition", text(&headers.content_disposition)),
        ("BlobType", "BlockBlob".to_owned()),
        ("AccessTier", "Hot".to_owned()),
        ("AccessTierInferred", "true".to_owned()),
        ("LeaseStatus", "unlocked".to_owned()),
        ("LeaseState", "available".to_owned()),
        ("ServerEncrypted", "true".to_owned()),
    ]
    .iter()
    .map(|(name, value)| element(name, value))
    .collect();
    let metadata = match with_metadata {
        true => metadata_element(blob.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str()))),
        false => String::new(),
    };
    format!("<Blob>{}<Properties>{properties}</Properties>{metadata}</Blob>", element("Name", name))
}
