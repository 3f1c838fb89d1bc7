//! The file of one context.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use api::secret::Secret;
use client::{Credential, Pem};
use serde::{Deserialize, Serialize};

use crate::private_file;

/// A server and the credential for it. Relative paths start at the directory of the file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFile {
    /// URL of the server.
    pub server: String,
    /// Certificate authority of the server, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// The same as a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_file: Option<PathBuf>,
    /// Client certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The same as a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<PathBuf>,
    /// Private key of the client certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The same as a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Bearer token, instead of a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The same as a path. The file is read for each command, because such tokens rotate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

impl ContextFile {
    /// A context without credentials.
    pub fn open(server: String) -> ContextFile {
        ContextFile {
            server,
            authority: None,
            authority_file: None,
            certificate: None,
            certificate_file: None,
            key: None,
            key_file: None,
            token: None,
            token_file: None,
        }
    }

    /// Reads a context file.
    pub fn read(path: &Path) -> anyhow::Result<ContextFile> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("{name}: cannot be read"))?;
        // Without the parser's own display, which repeats the line and could print the key.
        toml::from_str(&text)
            .map_err(|error| anyhow::anyhow!("{name}: not a context file: {}", error.message()))
    }

    /// Writes the file atomically, readable by its owner only.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = toml::to_string(self).context("the context cannot be written as TOML")?;
        private_file::write(path, &text)
    }

    /// Converts to the context type of the client.
    pub fn context(&self, path: &Path) -> anyhow::Result<client::Context> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let pem = |inline: &Option<String>, file: &Option<PathBuf>| match (inline, file) {
            (Some(text), _) => Some(Pem::Inline(text.clone())),
            (None, Some(file)) => Some(Pem::File(directory.join(file))),
            (None, None) => None,
        };
        let read = |file: &PathBuf| {
            let file = directory.join(file);
            std::fs::read_to_string(&file)
                .with_context(|| format!("{}: the token cannot be read", file.display()))
        };
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(file)) => Some(read(file)?),
            (None, None) => None,
        };
        let certificate = pem(&self.certificate, &self.certificate_file);
        let credential = match (certificate, pem(&self.key, &self.key_file), token) {
            (Some(certificate), Some(key), _) => Credential::Certificate { certificate, key },
            (_, _, Some(token)) => Credential::Token(Secret::new(token.trim().to_owned())),
            _ => Credential::None,
        };
        Ok(client::Context {
            server: self.server.clone(),
            authority: pem(&self.authority, &self.authority_file),
            credential,
        })
    }

    /// Kind of credential, for tables.
    pub fn credential_kind(&self) -> &'static str {
        let has = |inline: &Option<String>, file: &Option<PathBuf>| inline.is_some() || file.is_some();
        if has(&self.certificate, &self.certificate_file) {
            "certificate"
        } else if has(&self.token, &self.token_file) {
            "token"
        } else {
            "none"
        }
    }
}
