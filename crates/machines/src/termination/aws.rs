//! Amazon's interruption notices of spot instances, read with a token of the metadata service (version 2).

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;

use super::decide::Notice;
use super::metadata::{MetadataAddress, MetadataClient, MetadataError, MetadataResponse};

const TOKEN: &str = "/latest/api/token";
const TOKEN_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
/// Six hours, the longest that a token can be valid. A new one is asked for when it is refused.
const TTL_SECONDS: HeaderValue = HeaderValue::from_static("21600");
const TERMINATION_TIME: &str = "/latest/meta-data/spot/termination-time";

/// Longest time of a request; the service answers in milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

/// The notices of this instance.
pub(super) struct SpotNotices {
    metadata: MetadataClient,
    token: Option<HeaderValue>,
}

impl SpotNotices {
    pub(super) fn new(address: MetadataAddress) -> SpotNotices {
        SpotNotices { metadata: MetadataClient::new(address), token: None }
    }

    pub(super) async fn look(&mut self) -> Result<Notice, MetadataError> {
        // Only a token from before can have ended.
        if let Some(token) = self.token.take() {
            let response = self.termination_time(&token).await?;
            if response.status != StatusCode::UNAUTHORIZED {
                self.token = Some(token);
                return notice(response);
            }
        }
        let token = self.new_token().await?;
        let response = self.termination_time(&token).await?;
        self.token = Some(token);
        notice(response)
    }

    async fn new_token(&self) -> Result<HeaderValue, MetadataError> {
        let headers = HeaderMap::from_iter([(TOKEN_TTL, TTL_SECONDS)]);
        let response = self.metadata.send(&Method::PUT, TOKEN, &headers, LIMIT).await?;
        if response.status != StatusCode::OK {
            return Err(response.refused("200 with a token"));
        }
        match HeaderValue::from_bytes(&response.body) {
            Ok(mut token) if !token.is_empty() => {
                token.set_sensitive(true);
                Ok(token)
            }
            _ => Err(response.unintelligible("a token that can be sent in a header")),
        }
    }

    async fn termination_time(&self, token: &HeaderValue) -> Result<MetadataResponse, MetadataError> {
        let headers = HeaderMap::from_iter([(TOKEN_HEADER, token.clone())]);
        self.metadata.send(&Method::GET, TERMINATION_TIME, &headers, LIMIT).await
    }
}

/// What the time of termination says. It is absent, or no time, on an instance that stays.
fn notice(response: MetadataResponse) -> Result<Notice, MetadataError> {
    match response.status {
        StatusCode::NOT_FOUND => Ok(Notice::None),
        StatusCode::OK => {
            let text = String::from_utf8_lossy(&response.body);
            Ok(match text.trim().parse::<Timestamp>() {
                Ok(_) => Notice::Termination,
                Err(_) => Notice::None,
            })
        }
        _ => Err(response.refused("200 with the time of termination, or 404")),
    }
}
