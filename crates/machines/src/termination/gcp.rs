//! Google's flag on preempted instances.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::decide::Notice;
use super::metadata::{MetadataAddress, MetadataClient, MetadataError};

const PREEMPTED: &str = "/computeMetadata/v1/instance/preempted";
/// Without this header the service refuses, so that a page in a browser cannot ask.
const FLAVOR: (HeaderName, HeaderValue) =
    (HeaderName::from_static("metadata-flavor"), HeaderValue::from_static("Google"));

/// Longest time of a request; the service answers in milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

/// The flag of this instance.
pub(super) struct Preemption {
    metadata: MetadataClient,
}

impl Preemption {
    pub(super) fn new(address: MetadataAddress) -> Preemption {
        Preemption { metadata: MetadataClient::new(address) }
    }

    pub(super) async fn look(&self) -> Result<Notice, MetadataError> {
        let headers = HeaderMap::from_iter([FLAVOR]);
        let response = self.metadata.send(&Method::GET, PREEMPTED, &headers, LIMIT).await?;
        if response.status != StatusCode::OK {
            return Err(response.refused("200 with TRUE or FALSE"));
        }
        match response.body.trim_ascii() {
            b"TRUE" => Ok(Notice::Termination),
            b"FALSE" => Ok(Notice::None),
            _ => Err(response.unintelligible("TRUE or FALSE")),
        }
    }
}
