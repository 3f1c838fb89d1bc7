//! The blobs role, on the data plane of storage accounts.

use api::clock::{Clock as _, SystemClock};
use async_trait::async_trait;
use azure_core::http::headers::{HeaderName, WWW_AUTHENTICATE};
use azure_core::http::{Context, Method, Pipeline, PipelineSendOptions, Request, StatusCode, Url};
use bytes::Bytes;
use cloud::{BlobAddress, Blobs, CloudError, ResourceId};

use crate::client::AzureClient;
use crate::credential::client_options;
use crate::error::{CallName, ServiceError};
use crate::headers::{challenge_claims, retry_after};
use crate::transport::NoResponse;

/// The scope of storage's tokens, the same in every cloud.
const SCOPE: &str = "https://storage.azure.com/.default";
const VERSION: &str = "2024-11-04";
const SERVER_BUSY: &str = "ServerBusy";
const BEING_DELETED: &str = "ContainerBeingDeleted";

#[async_trait]
impl Blobs for AzureClient {
    async fn put_blob(
        &self,
        blob: &BlobAddress,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(), CloudError> {
        let url = self.blob_url(&blob.account, &blob.container, Some(&blob.name))?;
        let headers = [("x-ms-blob-type", "BlockBlob"), ("content-type", content_type)];
        self.storage(Method::Put, url, &headers, Some(body.into())).await.map(drop)
    }

    async fn blob(&self, blob: &BlobAddress) -> Result<Option<Vec<u8>>, CloudError> {
        let url = self.blob_url(&blob.account, &blob.container, Some(&blob.name))?;
        match self.storage(Method::Get, url, &[], None).await {
            Ok(content) => Ok(Some(content.to_vec())),
            Err(CloudError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn delete_blob(&self, blob: &BlobAddress) -> Result<(), CloudError> {
        let url = self.blob_url(&blob.account, &blob.container, Some(&blob.name))?;
        absent_is_done(self.storage(Method::Delete, url, &[], None).await)
    }

    async fn ensure_container(&self, account: &ResourceId, container: &str) -> Result<(), CloudError> {
        let mut url = self.blob_url(account, container, None)?;
        url.set_query(Some("restype=container"));
        match self.storage(Method::Put, url, &[], None).await {
            Ok(_) => Ok(()),
            Err(CloudError::Conflict { why, .. }) if why.starts_with("ContainerAlreadyExists") => Ok(()),
            // Its name is free again after half a minute.
            Err(CloudError::Conflict { what, why }) if why.starts_with(BEING_DELETED) => {
                Err(CloudError::Busy { what, code: BEING_DELETED.to_owned(), why, after: None })
            }
            Err(error) => Err(error),
        }
    }

    async fn delete_container(&self, account: &ResourceId, container: &str) -> Result<(), CloudError> {
        let mut url = self.blob_url(account, container, None)?;
        url.set_query(Some("restype=container"));
        absent_is_done(self.storage(Method::Delete, url, &[], None).await)
    }
}

fn absent_is_done(outcome: Result<Bytes, CloudError>) -> Result<(), CloudError> {
    match outcome {
        Ok(_) | Err(CloudError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl AzureClient {
    fn blob_url(&self, account: &ResourceId, container: &str, blob: Option<&str>) -> Result<Url, CloudError> {
        let settings = &self.inner.settings;
        let account = account.name();
        let base = match &settings.blob {
            Some(base) => format!("{}/{account}", base.trim_end_matches('/')),
            None => format!("https://{account}.{}", settings.blob_suffix),
        };
        let wrong = |_| CloudError::Configuration {
            setting: "blob".to_owned(),
            why: format!("'{base}' is no URL of the storage account {account}"),
        };
        let mut url = Url::parse(&base).map_err(wrong)?;
        let segments = [container].into_iter().chain(blob.into_iter().flat_map(|it| it.split('/')));
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        Ok(url)
    }

    async fn storage(
        &self,
        method: Method,
        url: Url,
        headers: &[(&'static str, &str)],
        body: Option<Bytes>,
    ) -> Result<Bytes, CloudError> {
        let subject = format!("{}{}", url.host_str().unwrap_or_default(), url.path());
        let address = url.origin().ascii_serialization();
        let setting = if self.inner.settings.blob.is_some() { "blob" } else { "blob_suffix" };
        let mut request = Request::new(url, method);
        request.insert_header("x-ms-version", VERSION);
        // The date of the request in RFC 1123, which storage requires.
        let date = SystemClock.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        request.insert_header("x-ms-date", date);
        for (name, value) in headers {
            request.insert_header(*name, (*value).to_owned());
        }
        if let Some(body) = body {
            request.set_body(body);
        }
        let options = client_options(self.inner.http.clone());
        let pipeline = Pipeline::new(
            option_env!("CARGO_PKG_NAME"),
            option_env!("CARGO_PKG_VERSION"),
            options,
            vec![],
            vec![],
            None,
        );
        let checks = || PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let name = CallName {
            method: method.as_str(),
            subject: &subject,
            principal: self.inner.credentials.principal(),
        };
        let mut is_renewed = false;
        loop {
            let token = self.inner.credentials.service_token(SCOPE).await?;
            request.insert_header("authorization", format!("Bearer {}", token.text));
            let response = pipeline.send(&Context::new(), &mut request, Some(checks())).await;
            let response = response.map_err(|error| {
                let cause = NoResponse::of(&error);
                let what = name.with_note(&cause.describe(&address, setting));
                let source: Option<Box<dyn std::error::Error + Send + Sync>> = Some(Box::new(error));
                match cause {
                    NoResponse::TooLarge => CloudError::UnexpectedResponse { what, source },
                    _ => CloudError::Unavailable { what, source },
                }
            })?;
            let (status, headers, body) = response.deconstruct();
            let body: Bytes = body.into();
            if status.is_success() {
                return Ok(body);
            }
            if status == StatusCode::Unauthorized && !is_renewed {
                // The token was revoked or has expired: once with a new one.
                is_renewed = true;
                let challenge = headers.get_optional_str(&WWW_AUTHENTICATE);
                let claims = challenge.and_then(challenge_claims);
                self.inner.credentials.renew(token.generation, claims.as_deref());
                continue;
            }
            let mut error = ServiceError::parse(u16::from(status), &body);
            if let Some(code) = headers.get_optional_str(&HeaderName::from_static("x-ms-error-code")) {
                code.clone_into(&mut error.code);
            }
            error.retry_after = retry_after(&headers);
            // Storage throttles with 503.
            return Err(match (error.code.as_str(), error.retry_after) {
                (SERVER_BUSY, after @ Some(_)) => CloudError::Throttled { after },
                _ => error.into_cloud_error(name),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::testing::{Reply, ScriptedService, settings};

    #[tokio::test]
    async fn an_unreachable_host_is_reported_with_its_setting() {
        let account = ResourceId::group("s", "g").sibling("Microsoft.Storage", "storageAccounts", "store");
        let emulated = Settings { blob: Some("https://blobs.example".to_owned()), ..settings() };
        for (settings, expect) in [
            (
                settings(),
                "no connection to https://store.blob.core.windows.net; check that setting blob_suffix is",
            ),
            (emulated, "no connection to https://blobs.example; check that setting blob is"),
        ] {
            let client = ScriptedService::new([Reply::Refused]).client_with(settings);
            let error = client.ensure_container(&account, "aro").await.unwrap_err();
            assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
            assert!(error.to_string().contains(expect), "{error}");
        }
    }
}
