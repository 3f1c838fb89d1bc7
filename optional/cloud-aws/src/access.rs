//! The way to AWS for one Machine: the credential of the cluster's Secret, or of the SDK's chain, and the clients that it makes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::secret::Secret;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use sha2::{Digest as _, Sha256};

use crate::settings::{AwsSettings, Endpoints};
use crate::transport::Transport;

/// Clients that are kept. A cluster has one region and one credential, and two while it changes.
const CLIENTS_MAX: usize = 8;
/// Longest time of one call with its response.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Keys of the Secret.
const ACCESS_KEY_ID: &str = "aws_access_key_id";
const SECRET_ACCESS_KEY: &str = "aws_secret_access_key";
const CREDENTIALS: &str = "credentials";

/// The clients of one credential in one region.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) ec2: aws_sdk_ec2::Client,
    /// Classic load balancers.
    pub(crate) classic: aws_sdk_elasticloadbalancing::Client,
    /// Network load balancers.
    pub(crate) network: aws_sdk_elasticloadbalancingv2::Client,
}

/// The clients by credential and region. They keep connections and credentials, so they are made once.
pub(crate) struct ClientCache {
    endpoints: Endpoints,
    transport: Transport,
    /// The latest first.
    present: Mutex<Vec<([u8; 32], Arc<Clients>)>>,
}

impl fmt::Debug for ClientCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCache").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// What a Secret gives.
enum Source {
    Keys {
        id: String,
        secret: Secret<String>,
    },
    /// A profile in the form of the SDK's configuration files.
    Profile(Secret<String>),
    /// The SDK's chain: environment, files, web identity, metadata of the container or the instance.
    Chain,
}

impl Source {
    /// Reads the Secret; without one it is the chain. The error is a sentence.
    fn read(secret: Option<&BTreeMap<String, Secret<Vec<u8>>>>) -> Result<Source, String> {
        let Some(members) = secret else { return Ok(Source::Chain) };
        // Values are trimmed, because files end in a newline.
        let text = |key: &str| {
            let value = std::str::from_utf8(members.get(key)?.expose()).ok()?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        if let Some(profile) = text(CREDENTIALS) {
            return Ok(Source::Profile(Secret::new(profile)));
        }
        match (text(ACCESS_KEY_ID), text(SECRET_ACCESS_KEY)) {
            (Some(id), Some(secret)) => Ok(Source::Keys { id, secret: Secret::new(secret) }),
            _ => Err(format!(
                "the Secret of credentialsSecret is incomplete; expected texts under {ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}, or a \
                 profile under {CREDENTIALS}"
            )),
        }
    }

    /// Distinguishes credentials without keeping them a second time.
    fn digest(&self, region: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(text);
        };
        add(region);
        match self {
            Source::Keys { id, secret } => {
                add(id);
                add(secret.expose());
            }
            Source::Profile(profile) => add(profile.expose()),
            Source::Chain => {}
        }
        hash.finalize().into()
    }

    async fn provider(&self, region: &str, transport: &Transport) -> SharedCredentialsProvider {
        let config = ProviderConfig::without_region()
            .with_region(Some(Region::new(region.to_owned())))
            .with_http_client(transport.clone());
        match self {
            Source::Keys { id, secret } => {
                let keys = Credentials::new(id, secret.expose(), None, None, "credentialsSecret");
                SharedCredentialsProvider::new(keys)
            }
            Source::Profile(profile) => {
                let files = EnvConfigFiles::builder()
                    .with_contents(EnvConfigFileKind::Config, profile.expose().clone())
                    .build();
                let provider = ProfileFileCredentialsProvider::builder()
                    .configure(&config)
                    .profile_files(files)
                    .profile_name("default")
                    .build();
                SharedCredentialsProvider::new(provider)
            }
            Source::Chain => {
                let chain = DefaultCredentialsChain::builder().configure(config);
                SharedCredentialsProvider::new(chain.region(Region::new(region.to_owned())).build().await)
            }
        }
    }
}

impl ClientCache {
    pub(crate) fn new(settings: &AwsSettings, transport: Transport) -> ClientCache {
        ClientCache { endpoints: settings.endpoints.clone(), transport, present: Mutex::default() }
    }

    /// The clients of a Secret in a region, or the reason in a sentence. Nothing is sent.
    pub(crate) async fn get(
        &self,
        secret: Option<&BTreeMap<String, Secret<Vec<u8>>>>,
        region: &str,
    ) -> Result<Arc<Clients>, String> {
        let source = Source::read(secret)?;
        let key = source.digest(region);
        if let Some(clients) = self.present(&key) {
            return Ok(clients);
        }
        let provider = source.provider(region, &self.transport).await;
        let clients = Arc::new(self.clients(region, provider));
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.insert(0, (key, clients.clone()));
        present.truncate(CLIENTS_MAX);
        Ok(clients)
    }

    fn present(&self, key: &[u8; 32]) -> Option<Arc<Clients>> {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let at = present.iter().position(|(it, _)| it == key)?;
        present[..=at].rotate_right(1);
        Some(present[0].1.clone())
    }

    /// Clients that send each request once: the controller repeats, with backoff and between them all.
    fn clients(&self, region: &str, provider: SharedCredentialsProvider) -> Clients {
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .credentials_provider(provider)
            .http_client(self.transport.clone())
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().operation_timeout(CALL_TIME_MAX).build());
        let config = match AppName::new("shipshape") {
            Ok(name) => config.app_name(name),
            Err(_) => config,
        };
        let config = config.build();
        let (ec2, balancing) = (self.endpoints.ec2.clone(), self.endpoints.load_balancing.clone());
        let mut of_ec2 = aws_sdk_ec2::config::Builder::from(&config);
        of_ec2.set_endpoint_url(ec2);
        let mut of_classic = aws_sdk_elasticloadbalancing::config::Builder::from(&config);
        of_classic.set_endpoint_url(balancing.clone());
        let mut of_network = aws_sdk_elasticloadbalancingv2::config::Builder::from(&config);
        of_network.set_endpoint_url(balancing);
        Clients {
            ec2: aws_sdk_ec2::Client::from_conf(of_ec2.build()),
            classic: aws_sdk_elasticloadbalancing::Client::from_conf(of_classic.build()),
            network: aws_sdk_elasticloadbalancingv2::Client::from_conf(of_network.build()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn secret(members: &[(&str, &str)]) -> BTreeMap<String, Secret<Vec<u8>>> {
        let all =
            members.iter().map(|(key, value)| ((*key).to_owned(), Secret::new(value.as_bytes().to_vec())));
        all.collect()
    }

    fn cache() -> ClientCache {
        ClientCache::new(&AwsSettings::default(), Transport::new(None).unwrap())
    }

    #[tokio::test]
    async fn clients_are_made_once_for_each_credential_and_region() {
        let cache = cache();
        let one = secret(&[(ACCESS_KEY_ID, "AKIA1\n"), (SECRET_ACCESS_KEY, "s1")]);
        let two = secret(&[(ACCESS_KEY_ID, "AKIA1"), (SECRET_ACCESS_KEY, "s2")]);
        let first = cache.get(Some(&one), "eu-west-1").await.unwrap();
        let again = cache.get(Some(&one), "eu-west-1").await.unwrap();
        assert!(ptr::eq(&*first, &*again));
        for (secret, region) in [(Some(&one), "eu-west-2"), (Some(&two), "eu-west-1"), (None, "eu-west-1")] {
            assert!(!ptr::eq(&*first, &*cache.get(secret, region).await.unwrap()));
        }
    }

    #[tokio::test]
    async fn an_incomplete_secret_is_refused_without_its_content() {
        let check = async |members: &[(&str, &str)]| {
            let error = cache().get(Some(&secret(members)), "eu-west-1").await.unwrap_err();
            assert!(error.contains("expected texts under aws_access_key_id"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        };
        check(&[]).await;
        check(&[(SECRET_ACCESS_KEY, "hunter2")]).await;
        check(&[(ACCESS_KEY_ID, " "), (SECRET_ACCESS_KEY, "hunter2")]).await;
    }

    #[tokio::test]
    async fn a_credential_appears_in_no_debug_output() {
        let cache = cache();
        let keys = secret(&[(ACCESS_KEY_ID, "AKIA1"), (SECRET_ACCESS_KEY, "hunter2")]);
        let profile = "[default]\naws_access_key_id = AKIA1\naws_secret_access_key = hunter2\n";
        for members in [keys, secret(&[(CREDENTIALS, profile)])] {
            let clients = cache.get(Some(&members), "eu-west-1").await.unwrap();
            let text = format!("{clients:?} {cache:?}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
