//! Requests to a cluster that may be hostile: a bounded body, bounded lists, and objects that are read one by one, so that an
//! object that cannot be read is counted and does not spoil the rest.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;
use kubelink::{Link, LinkError};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// Objects per page; a page of large objects must not fill the memory.
const PAGE: usize = 50;

/// Largest body of a response: a page of objects of the largest size that etcd stores would be 75 MiB, and is not of this world.
const BODY_MAX: usize = 16 * 1024 * 1024;

/// Most objects of a list.
const LIST_MAX: usize = 20_000;

/// Reads from one cluster during one visit.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    link: Link,
    /// Cancelled when the time of the visit is over.
    over: CancellationToken,
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// No response.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A response with another status than was expected.
    #[error("{path} returned {status}")]
    Status {
        /// The requested path.
        path: String,
        /// The status.
        status: StatusCode,
    },
    /// A body that is too large.
    #[error("{path} returned more than {} MiB", BODY_MAX / 1024 / 1024)]
    TooLarge {
        /// The requested path.
        path: String,
    },
    /// A list without an end.
    #[error("{path} has more than {LIST_MAX} objects")]
    TooMany {
        /// The requested path.
        path: String,
    },
    /// A body that is not what the path should return.
    #[error("{path} returned something that cannot be read: {why}")]
    Unreadable {
        /// The requested path.
        path: String,
        /// The parser's message, without any of the body.
        why: String,
    },
    /// The time of the visit is over.
    #[error("the time of the visit was over")]
    Over,
}

/// A whole list.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    /// The objects.
    pub(crate) items: Vec<T>,
    /// Number of objects that could not be read.
    pub(crate) unreadable: usize,
}

#[derive(Debug, Deserialize)]
struct ListPage<'a> {
    #[serde(default, borrow)]
    items: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    metadata: ListMetadata,
}

#[derive(Debug, Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl Fetcher {
    pub(crate) fn new(link: Link, over: CancellationToken) -> Fetcher {
        Fetcher { link, over }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Something else that reads from the cluster, until the time of the visit is over.
    pub(crate) async fn within_visit<T>(
        &self,
        read: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        self.over.run_until_cancelled(read).await.ok_or(FetchError::Over)?
    }

    /// Sends a GET and reads the whole response, whatever its status.
    pub(crate) async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), FetchError> {
        let sent = self.over.run_until_cancelled(self.send(path)).await;
        sent.ok_or(FetchError::Over)?
    }

    async fn send(&self, path: &str) -> Result<(StatusCode, Bytes), FetchError> {
        let failed = |error: kube::Error| FetchError::Link(self.link.failed("read", path, error));
        let unreadable = |why: String| FetchError::Unreadable { path: path.to_owned(), why };
        let request = Request::get(path).header(http::header::ACCEPT, "application/json").body(Body::empty());
        let request = request.map_err(|error| unreadable(error.to_string()))?;
        let response = self.link.client().send(request).await.map_err(failed)?;
        let (parts, body) = response.into_parts();
        let read = Limited::new(body, BODY_MAX).collect().await;
        let bytes = read.map_err(|error| match error.downcast::<kube::Error>() {
            Ok(error) => failed(*error),
            Err(error) if error.is::<LengthLimitError>() => FetchError::TooLarge { path: path.to_owned() },
            Err(error) => unreadable(error.to_string()),
        })?;
        Ok((parts.status, bytes.to_bytes()))
    }

    /// Reads an object; none if it, or its kind, does not exist.
    pub(crate) async fn object<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, FetchError> {
        let (status, body) = self.get(path).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                let read = serde_json::from_slice(&body);
                read.map(Some).map_err(|error| unreadable(path, &error))
            }
            status => Err(FetchError::Status { path: path.to_owned(), status }),
        }
    }

    /// Reads a whole list, page by page; none if the kind is not served. A list that expires in between is read once more from its
    /// start.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<Listed<T>>, FetchError> {
        let mut restarted = false;
        loop {
            match self.pages(path).await {
                Err(FetchError::Status { status: StatusCode::GONE, .. }) if !restarted => restarted = true,
                outcome => return outcome,
            }
        }
    }

    async fn pages<T: DeserializeOwned>(&self, path: &str) -> Result<Option<Listed<T>>, FetchError> {
        let mut all = Listed { items: Vec::new(), unreadable: 0 };
        let mut next: Option<String> = None;
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let token = next
                .as_deref()
                .map(|it| format!("&continue={}", utf8_percent_encode(it, NON_ALPHANUMERIC)))
                .unwrap_or_default();
            let (status, body) = self.get(&format!("{path}{separator}limit={PAGE}{token}")).await?;
            match status {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Ok(None),
                status => return Err(FetchError::Status { path: path.to_owned(), status }),
            }
            let page: ListPage<'_> =
                serde_json::from_slice(&body).map_err(|error| unreadable(path, &error))?;
            for item in page.items.unwrap_or_default() {
                match serde_json::from_str(item.get()) {
                    Ok(item) => all.items.push(item),
                    Err(_) => all.unreadable += 1,
                }
            }
            if all.items.len() + all.unreadable > LIST_MAX {
                return Err(FetchError::TooMany { path: path.to_owned() });
            }
            let last = std::mem::replace(&mut next, page.metadata.next.filter(|it| !it.is_empty()));
            if next.is_none() {
                return Ok(Some(all));
            }
            if next == last {
                // It would never end.
                return Err(FetchError::TooMany { path: path.to_owned() });
            }
        }
    }
}

fn unreadable(path: &str, error: &serde_json::Error) -> FetchError {
    // The message of serde may quote the body; its category and place do not.
    let why = format!("{:?} error at line {}, column {}", error.classify(), error.line(), error.column());
    FetchError::Unreadable { path: path.to_owned(), why }
}
