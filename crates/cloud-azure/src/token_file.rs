//! Assertions of a workload: the token of its service account, read from its file for every token request.
//!
//! azure_identity has a credential for this, which reads the file when it is made, keeps the content for ten minutes and sends a
//! line feed at its end. A cluster renews the file at any time, so it is read anew: token requests are rare.

use std::path::PathBuf;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::ClientMethodOptions;
use azure_identity::ClientAssertion;

use crate::settings::SettingsError;

/// The token of a service account in a file.
#[derive(Debug)]
pub(crate) struct TokenFile(pub(crate) PathBuf);

impl TokenFile {
    async fn read(&self) -> Result<String, SettingsError> {
        let path = self.0.display();
        let wrong = |why: String| SettingsError { setting: "federated_token_file", why };
        let content = tokio::fs::read_to_string(&self.0).await.map_err(|error| {
            wrong(format!("'{path}' cannot be read ({error}); expected the token of the service account"))
        })?;
        match content.trim() {
            "" => Err(wrong(format!("'{path}' is empty; expected the token of the service account"))),
            token => Ok(token.to_owned()),
        }
    }
}

#[async_trait::async_trait]
impl ClientAssertion for TokenFile {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        self.read().await.map_err(|error| Error::new(ErrorKind::Credential, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_is_read_each_time_and_its_end_is_no_part_of_the_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let file = TokenFile(path.clone());
        let error = file.read().await.unwrap_err().to_string();
        assert!(error.starts_with("setting federated_token_file: '"), "{error}");
        for content in ["one\n", "two\r\n", "three"] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(file.read().await.unwrap(), content.trim());
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(file.read().await.unwrap_err().to_string().contains("is empty"));
    }
}
