//! Lists, page by page.

use api::admin::Page;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, Stream};
use http::Uri;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::exchange::Client;
use crate::path::Path;

/// How many items a page is asked to hold.
const PAGE: &str = "100";

/// The items of a list; each page is fetched when it is reached.
pub struct Pages<T>(BoxStream<'static, Result<T, ClientError>>);

impl<T> std::fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pages")
    }
}

impl<T: DeserializeOwned + Send + 'static> Pages<T> {
    pub(crate) fn of(client: &Client, path: &Path) -> Pages<T> {
        Pages::starting_at(client, path.clone().query("limit", PAGE).text())
    }

    /// A list whose pages are as long as the server likes: the resource manager's contract knows no limit.
    pub(crate) fn of_any_length(client: &Client, path: &Path) -> Pages<T> {
        Pages::starting_at(client, path.text())
    }

    fn starting_at(client: &Client, first: String) -> Pages<T> {
        let client = client.clone();
        let pages = stream::try_unfold(Some(first), move |next| {
            let client = client.clone();
            async move {
                let Some(path) = next else { return Ok(None) };
                let page: Page<T> = client.get_at(&path).await?.value;
                let next = follow(&client, &path, &page.next_link)?;
                Ok(Some((stream::iter(page.value.into_iter().map(Ok)), next)))
            }
        });
        Pages(stream_flat(pages).boxed())
    }

    /// All items, to the end of the list.
    pub async fn all(mut self) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        while let Some(item) = self.0.next().await {
            all.push(item?);
        }
        Ok(all)
    }

    /// At most so many items; no page beyond them is fetched.
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

fn stream_flat<T, S>(
    pages: impl Stream<Item = Result<S, ClientError>>,
) -> impl Stream<Item = Result<T, ClientError>>
where
    S: Stream<Item = Result<T, ClientError>>,
{
    futures_util::TryStreamExt::try_flatten(pages)
}

/// The path of the next page. Only path and query of a link count: a credential goes to no other server, whatever the link says.
pub(crate) fn follow(client: &Client, from: &str, link: &str) -> Result<Option<String>, ClientError> {
    if link.is_empty() {
        return Ok(None);
    }
    let uri: Uri = link.parse().map_err(|error| client.garbled(from, &error))?;
    match uri.path_and_query().map(http::uri::PathAndQuery::as_str) {
        Some(next) if next == from => Err(client.garbled(from, &"its next page is the same page")),
        Some(next) => Ok(Some(next.to_owned())),
        None => Err(client.garbled(from, &"the link to its next page has no path")),
    }
}
