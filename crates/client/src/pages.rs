//! Lists that are fetched page by page.

use api::admin::Page;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, Stream};
use http::Uri;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::exchange::Client;
use crate::path::ApiPath;

/// Requested number of items per page.
const PAGE_SIZE: &str = "100";

/// Stream of the items of a list; each page is fetched on demand.
pub struct Pages<T>(BoxStream<'static, Result<T, ClientError>>);

impl<T> std::fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pages")
    }
}

impl<T: DeserializeOwned + Send + 'static> Pages<T> {
    pub(crate) fn new(client: &Client, path: &ApiPath) -> Pages<T> {
        Pages::starting_at(client, path.clone().query("limit", PAGE_SIZE).to_uri())
    }

    /// A list whose page size the server chooses, since the ARM API has no limit parameter.
    pub(crate) fn with_server_page_size(client: &Client, path: &ApiPath) -> Pages<T> {
        Pages::starting_at(client, path.to_uri())
    }

    fn starting_at(client: &Client, first: String) -> Pages<T> {
        let client = client.clone();
        let pages = stream::try_unfold(Some(first), move |next| {
            let client = client.clone();
            async move {
                let Some(path) = next else { return Ok(None) };
                let page: Page<T> = client.get_at(&path).await?.value;
                let next = next_page(&client, &path, &page.next_link)?;
                Ok(Some((stream::iter(page.value.into_iter().map(Ok)), next)))
            }
        });
        Pages(flatten(pages).boxed())
    }

    /// Reads all items.
    pub async fn all(mut self) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        while let Some(item) = self.0.next().await {
            all.push(item?);
        }
        Ok(all)
    }

    /// Reads at most `count` items, without fetching further pages.
    pub async fn first(self, count: usize) -> Result<Vec<T>, ClientError> {
        let mut items = self.0.take(count);
        let mut first = Vec::new();
        while let Some(item) = items.next().await {
            first.push(item?);
        }
        Ok(first)
    }
}

impl<T> Stream for Pages<T> {
    type Item = Result<T, ClientError>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

fn flatten<T, S>(
    pages: impl Stream<Item = Result<S, ClientError>>,
) -> impl Stream<Item = Result<T, ClientError>>
where
    S: Stream<Item = Result<T, ClientError>>,
{
    futures_util::TryStreamExt::try_flatten(pages)
}

/// Path of the next page. The host of the link is ignored, so that the credential is sent to no other server.
pub(crate) fn next_page(client: &Client, from: &str, link: &str) -> Result<Option<String>, ClientError> {
    if link.is_empty() {
        return Ok(None);
    }
    let uri: Uri = link.parse().map_err(|error| client.invalid_response(from, &error))?;
    match uri.path_and_query().map(http::uri::PathAndQuery::as_str) {
        Some(next) if next == from => Err(client.invalid_response(from, &"its next page is the same page")),
        Some(next) => Ok(Some(next.to_owned())),
        None => Err(client.invalid_response(from, &"the link to the next page has no path")),
    }
}
