//! The documents of clusters' token issuers: the keys by which the directory verifies the tokens of their service accounts.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{BlobAddress, Blobs, CloudError, ResourceId};

/// The container that a storage account serves as a website, which everybody may read.
const CONTAINER: &str = "$web";
/// The name of the document below the issuer's URL by which OpenID Connect finds all others.
const DISCOVERY: &str = ".well-known/openid-configuration";
const KEYS: &str = "openid/v1/jwks";
const CONTENT_TYPE: &str = "application/json";

/// Where the documents of token issuers are published: a storage account of the service, and the URL at which everybody reads its website.
#[derive(Debug, Clone)]
pub struct IssuerStorage {
    blobs: Arc<dyn Blobs>,
    account: ResourceId,
    url: String,
}

impl IssuerStorage {
    /// The website of a storage account, at a URL.
    pub fn new(blobs: Arc<dyn Blobs>, account: ResourceId, url: &str) -> IssuerStorage {
        IssuerStorage { blobs, account, url: url.trim_end_matches('/').to_owned() }
    }

    /// The storage account.
    pub fn account(&self) -> &ResourceId {
        &self.account
    }

    /// The issuer of this name, as it is in tokens and in federated credentials.
    pub fn issuer(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// Publishes the keys of an issuer, a JSON Web Key Set, and then the document that refers to them. Replaces earlier ones.
    pub async fn publish(&self, name: &str, keys: &Value) -> Result<(), CloudError> {
        let discovery = discovery(&self.issuer(name));
        for (document, content) in [(KEYS, keys), (DISCOVERY, &discovery)] {
            let content = content.to_string().into_bytes();
            self.blobs.put_blob(&self.address(name, document), CONTENT_TYPE, content).await?;
        }
        Ok(())
    }

    /// Deletes the documents of an issuer. Deleting missing ones succeeds.
    pub async fn withdraw(&self, name: &str) -> Result<(), CloudError> {
        for document in [DISCOVERY, KEYS] {
            self.blobs.delete_blob(&self.address(name, document)).await?;
        }
        Ok(())
    }

    /// Whether any document of an issuer exists.
    pub async fn is_published(&self, name: &str) -> Result<bool, CloudError> {
        for document in [DISCOVERY, KEYS] {
            if self.blobs.blob(&self.address(name, document)).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn address(&self, name: &str, document: &str) -> BlobAddress {
        let (account, container) = (self.account.clone(), CONTAINER.to_owned());
        BlobAddress { account, container, name: format!("{name}/{document}") }
    }
}

/// What an API server with this issuer publishes itself.
fn discovery(issuer: &str) -> Value {
    json!({
        "issuer": issuer,
        "jwks_uri": format!("{issuer}/{KEYS}"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    })
}
