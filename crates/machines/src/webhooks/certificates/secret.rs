//! The Secret with the authorities that replicas share. A write compares the version that was read.

use std::collections::BTreeMap;

use api::secret::Secret as Private;
use controller::{FieldManager, RequestError};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::authorities::{Authorities, Authority, Successor, TrustedCertificate};

/// The name of the Secret.
pub(crate) const NAME: &str = "machine-api-webhooks-authority";

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const NEXT_CERTIFICATE: &str = "next-ca.crt";
const NEXT_KEY: &str = "next-ca.key";
const NEXT_PUBLISHED: &str = "next-published";
const PREVIOUS_CERTIFICATE: &str = "previous-ca.crt";

/// The Secret of a namespace.
#[derive(Clone)]
pub(crate) struct AuthoritySecret {
    secrets: Api<Secret>,
    namespace: String,
    manager: FieldManager,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct StoredAuthorities {
    /// None if there is no Secret or nothing usable in it.
    pub(crate) authorities: Option<Authorities>,
    /// The version of the Secret; none if there is none.
    version: Option<String>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// The authorities are stored.
    Stored,
    /// Another replica was first; nothing is written.
    Outrun,
}

impl AuthoritySecret {
    pub(crate) fn new(client: Client, namespace: &str, manager: FieldManager) -> AuthoritySecret {
        AuthoritySecret {
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            manager,
        }
    }

    pub(crate) async fn read(&self) -> Result<StoredAuthorities, RequestError> {
        let found = self.secrets.get_opt(NAME).await.map_err(|error| self.failed("get", error))?;
        let Some(secret) = found else { return Ok(StoredAuthorities { authorities: None, version: None }) };
        let authorities = decode(&secret);
        if authorities.is_none() {
            let namespace = &self.namespace;
            tracing::warn!("Secret {namespace}/{NAME} has no usable certificate authority, replacing it");
        }
        Ok(StoredAuthorities { authorities, version: secret.metadata.resource_version })
    }

    /// Writes the authorities in place of those that were read.
    pub(crate) async fn write(
        &self,
        authorities: &Authorities,
        read: &StoredAuthorities,
    ) -> Result<Written, RequestError> {
        let params =
            PostParams { field_manager: Some(self.manager.name().to_owned()), ..PostParams::default() };
        let mut secret = encode(authorities);
        secret.metadata.namespace = Some(self.namespace.clone());
        secret.metadata.resource_version.clone_from(&read.version);
        let (verb, result) = match read.version {
            None => ("create", self.secrets.create(&params, &secret).await),
            Some(_) => ("update", self.secrets.replace(NAME, &params, &secret).await),
        };
        match result {
            Ok(_) => Ok(Written::Stored),
            // Deleted or written since.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Outrun),
            Err(kube::Error::Api(status)) if status.code == 404 && read.version.is_some() => {
                Ok(Written::Outrun)
            }
            Err(error) => Err(self.failed(verb, error)),
        }
    }

    fn failed(&self, verb: &'static str, error: kube::Error) -> RequestError {
        RequestError::new(verb, format!("Secret {}/{NAME}", self.namespace), error)
    }
}

fn encode(authorities: &Authorities) -> Secret {
    let mut data = BTreeMap::new();
    let mut put = |field: &str, text: &str| data.insert(field.to_owned(), ByteString(text.into()));
    put(CERTIFICATE, &authorities.current.certificate.pem);
    put(KEY, authorities.current.key.expose());
    if let Some(next) = &authorities.next {
        put(NEXT_CERTIFICATE, &next.authority.certificate.pem);
        put(NEXT_KEY, next.authority.key.expose());
        if let Some(time) = next.published {
            put(NEXT_PUBLISHED, &time.to_string());
        }
    }
    if let Some(previous) = &authorities.previous {
        put(PREVIOUS_CERTIFICATE, &previous.pem);
    }
    Secret {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// The authorities of a Secret; none if the current one cannot be used. A successor that cannot be used is left out.
fn decode(secret: &Secret) -> Option<Authorities> {
    let data = secret.data.as_ref()?;
    let text = |field: &str| std::str::from_utf8(&data.get(field)?.0).ok();
    let private = |field: &str| text(field).map(|it| Private::new(it.to_owned()));
    let authority =
        |certificate: &str, key: &str| Authority::read(text(certificate)?, private(key)?.expose());
    let published = text(NEXT_PUBLISHED).and_then(|it| it.parse().ok());
    let previous = text(PREVIOUS_CERTIFICATE)
        .and_then(|it| TrustedCertificate::parse_bundle(it.as_bytes()).into_iter().next());
    Some(Authorities {
        current: authority(CERTIFICATE, KEY)?,
        next: authority(NEXT_CERTIFICATE, NEXT_KEY).map(|authority| Successor { authority, published }),
        previous,
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::authorities::{CertificatePolicy, Step};
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    #[test]
    fn authorities_survive_the_secret_at_every_step() {
        let policy = CertificatePolicy::default();
        let mut authorities = Authorities::generate(&policy, NOW).unwrap();
        for step in [Step::None, Step::AddNext, Step::RecordPublication, Step::Promote] {
            authorities = authorities.after(step, &policy, NOW).unwrap();
            assert_eq!(decode(&encode(&authorities)), Some(authorities.clone()), "{step:?}");
        }
    }

    #[test]
    fn a_broken_successor_is_left_out_and_a_broken_authority_is_none() {
        let policy = CertificatePolicy::default();
        let first = Authorities::generate(&policy, NOW).unwrap();
        let both = first.clone().after(Step::AddNext, &policy, NOW).unwrap();
        let broken = |field: &str| {
            let mut secret = encode(&both);
            secret.data.as_mut().unwrap().insert(field.to_owned(), ByteString(vec![0xff]));
            decode(&secret)
        };
        assert_eq!(broken(NEXT_CERTIFICATE), Some(first.clone()));
        assert_eq!(broken(NEXT_KEY), Some(first));
        assert_eq!(broken(CERTIFICATE), None);
        assert_eq!(broken(KEY), None);
        assert_eq!(decode(&Secret::default()), None);
    }
}
