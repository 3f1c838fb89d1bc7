//! The registry role: tokens of the container registry and their two passwords.

use api::clock::{Clock as _, SystemClock};
use api::secret::Secret;
use async_trait::async_trait;
use azure_core::http::Method;
use cloud::{CloudError, IssuedPullToken, PullToken, Registry};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::arm::Call;
use crate::client::AzureClient;
use crate::json::{items, text};

const VERSION: &str = "2023-07-01";
/// Validity of a password; it is renewed long before.
const VALIDITY: SignedDuration = SignedDuration::from_hours(180 * 24);
const PASSWORDS: [&str; 2] = ["password1", "password2"];

#[async_trait]
impl Registry for AzureClient {
    async fn verify_host(&self) -> Result<String, CloudError> {
        let settings = &self.inner.settings;
        let path = settings.registry.to_string();
        let Some(found) = self.inner.arm.find(&path, VERSION, &[]).await? else {
            return Err(CloudError::NotFound { what: path });
        };
        let (host, expected) = (text(&found, "/properties/loginServer"), &settings.registry_login_server);
        if host.eq_ignore_ascii_case(expected) {
            return Ok(host.to_owned());
        }
        Err(CloudError::Configuration {
            setting: "registry_suffix".to_owned(),
            why: format!("makes {expected} the registry's host, but the host of {path} is '{host}'"),
        })
    }

    async fn ensure_token(&self, name: &str) -> Result<PullToken, CloudError> {
        if let Some(found) = self.token(name).await? {
            return Ok(found);
        }
        let registry = &self.inner.settings.registry;
        let path = self.token_path(name);
        let body = json!({"properties": {"scopeMapId": format!("{registry}/scopeMaps/_repositories_pull"), "status": "enabled"}});
        match self.inner.arm.send(Call { body: Some(&body), ..Call::new(Method::Put, &path, VERSION) }).await
        {
            // Another call has created it meanwhile.
            Ok(_) | Err(CloudError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        let registry = self.inner.settings.registry_login_server.clone();
        Ok(PullToken { name: name.to_owned(), registry, issued: None, expires: None })
    }

    async fn token(&self, name: &str) -> Result<Option<PullToken>, CloudError> {
        let found = self.inner.arm.find(&self.token_path(name), VERSION, &[]).await?;
        Ok(found.map(|body| self.pull_token(name, newest(&body))))
    }

    async fn issue_password(
        &self,
        name: &str,
        in_use: Option<Timestamp>,
    ) -> Result<IssuedPullToken, CloudError> {
        let path = self.token_path(name);
        let Some(token) = self.inner.arm.find(&path, VERSION, &[]).await? else {
            return Err(CloudError::NotFound { what: path });
        };
        let password = next_password(&token, in_use);
        let expires = SystemClock.now() + VALIDITY;
        let registry = &self.inner.settings.registry;
        let body = json!({"tokenId": path, "name": password, "expiry": expires.to_string()});
        // Sent once: a repetition would replace the password that was just issued.
        let answer = self
            .inner
            .arm
            .post_for_result(&format!("{registry}/generateCredentials"), VERSION, &body)
            .await?;
        let issued = items(&answer, "/passwords").iter().find(|it| text(it, "/name") == password);
        let Some(value) = issued.map(|it| text(it, "/value")).filter(|it| !it.is_empty()) else {
            let what = format!("POST {registry}/generateCredentials (it has no {password})");
            return Err(CloudError::UnexpectedResponse { what, source: None });
        };
        let token = self.pull_token(name, issued);
        let token = PullToken { expires: token.expires.or(Some(expires)), ..token };
        Ok(IssuedPullToken { token, password: Secret::new(value.to_owned()) })
    }

    async fn delete_token(&self, name: &str) -> Result<(), CloudError> {
        match self.inner.arm.send(Call::new(Method::Delete, &self.token_path(name), VERSION)).await {
            Ok(_) | Err(CloudError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl AzureClient {
    /// The tokens of the registry, in its order.
    pub(crate) async fn listed_tokens(&self) -> Result<Vec<PullToken>, CloudError> {
        let path = format!("{}/tokens", self.inner.settings.registry);
        let listed = self.inner.arm.list(&path, VERSION, &[], None).await?;
        Ok(listed.iter().map(|it| self.pull_token(text(it, "/name"), newest(it))).collect())
    }

    fn token_path(&self, name: &str) -> String {
        format!("{}/tokens/{name}", self.inner.settings.registry)
    }

    fn pull_token(&self, name: &str, password: Option<&Value>) -> PullToken {
        let time = |pointer: &str| password.and_then(|it| text(it, pointer).parse::<Timestamp>().ok());
        let registry = self.inner.settings.registry_login_server.clone();
        PullToken { name: name.to_owned(), registry, issued: time("/creationTime"), expires: time("/expiry") }
    }
}

fn created(password: &Value) -> Option<Timestamp> {
    text(password, "/creationTime").parse().ok()
}

fn newest(token: &Value) -> Option<&Value> {
    items(token, "/properties/credentials/passwords").iter().max_by_key(|it| created(it))
}

/// The password to issue: the absent one, else the one that is not in use, else the older.
///
/// The newer one is not always in use: its value may have been lost with the response that contained it. In use is the password whose
/// creation is nearest to the recorded time, which is our own clock's where the registry's response named none.
fn next_password(token: &Value, in_use: Option<Timestamp>) -> &'static str {
    let present = items(token, "/properties/credentials/passwords");
    let password = |name: &str| present.iter().find(|it| text(it, "/name").eq_ignore_ascii_case(name));
    let age = |name: &str| password(name).and_then(created);
    if let (Some(in_use), Some(first), Some(second)) = (in_use, age(PASSWORDS[0]), age(PASSWORDS[1])) {
        let distance = |created: Timestamp| created.duration_since(in_use).abs();
        return if distance(first) <= distance(second) { PASSWORDS[1] } else { PASSWORDS[0] };
    }
    PASSWORDS.into_iter().min_by_key(|name| (password(name).is_some(), age(name))).unwrap_or(PASSWORDS[0])
}

#[cfg(test)]
mod tests;
