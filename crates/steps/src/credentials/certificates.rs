//! The certificates of a cluster's API server and default ingress: copied from the vault into the cluster, and configured there.

use cloud::IssuedCertificate;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use kubelink::link::FIELD_MANAGER;
use kubelink::patch::{Change, patch};
use kubelink::{Failure, Link, LinkError, Target};
use serde_json::{Value, json};
use store::WorkLease;

use super::{ManagedCluster, retryable};
use crate::engine::{StepError, StepErrorKind};

/// Namespace from which Shipshape's operator reads the certificates, in clusters that have it.
const OPERATOR_NAMESPACE: &str = "openshift-azure-operator";

/// Use of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CertificateUse {
    /// The API server.
    ApiServer,
    /// The default ingress.
    Ingress,
}

impl CertificateUse {
    /// Both uses.
    pub const ALL: [CertificateUse; 2] = [CertificateUse::ApiServer, CertificateUse::Ingress];

    /// Name of the certificate in the vault and of the Secret in the cluster.
    pub fn name(self, cluster: &ManagedCluster) -> String {
        match self {
            CertificateUse::ApiServer => format!("{}-apiserver", cluster.uuid()),
            CertificateUse::Ingress => format!("{}-ingress", cluster.uuid()),
        }
    }

    /// Namespace from which the cluster reads the Secret.
    fn namespace(self) -> &'static str {
        match self {
            CertificateUse::ApiServer => "openshift-config",
            CertificateUse::Ingress => "openshift-ingress",
        }
    }
}

/// Copies both certificates from the vault into the cluster, and records when they expire; returns the result as a sentence. Both
/// are copied even if the first fails. An expired one is copied too, since there is no better one, and is an error.
pub async fn carry_certificates(
    cluster: &ManagedCluster,
    link: &Link,
    hold: WorkLease,
    now: Timestamp,
) -> Result<String, StepError> {
    let (mut messages, mut failures) = (Vec::new(), Vec::new());
    let mut ends: [Option<Timestamp>; 2] = [None, None];
    for (end, what) in ends.iter_mut().zip(CertificateUse::ALL) {
        match carry(cluster, link, what).await {
            Ok((sentence, until)) => {
                messages.push(sentence);
                *end = until;
                failures.extend(over(&what.name(cluster), until, now));
            }
            Err(error) => failures.push(error),
        }
    }
    cluster
        .record(hold, |record| {
            record.api_certificate_expires = ends[0].or(record.api_certificate_expires);
            record.ingress_certificate_expires = ends[1].or(record.ingress_certificate_expires);
        })
        .await?;
    if !failures.is_empty() {
        let text = failures.iter().map(StepError::full_message).collect::<Vec<_>>().join("; ");
        // An unreachable cluster is no failure of the rotation: the work is parked.
        return Err(match failures.iter().any(|it| it.kind() == StepErrorKind::Unreachable) {
            true => StepError::new(StepErrorKind::Unreachable, "Unreachable", text),
            false => StepError::transient("Certificates", text),
        });
    }
    Ok(messages.join("; "))
}

/// The error of an expired certificate.
fn over(name: &str, end: Option<Timestamp>, now: Timestamp) -> Option<StepError> {
    let end = end.filter(|end| *end <= now)?;
    let message = format!("the newest certificate {name} of the vault expired at {end} and is not renewed");
    Some(StepError::transient("CertificateExpired", message))
}

async fn carry(
    cluster: &ManagedCluster,
    link: &Link,
    what: CertificateUse,
) -> Result<(String, Option<Timestamp>), StepError> {
    let (name, issued) = newest(cluster, what).await?;
    let mut changed = put_secret(link, what.namespace(), &name, &issued).await?;
    if has_namespace(link, OPERATOR_NAMESPACE).await? {
        changed |= put_secret(link, OPERATOR_NAMESPACE, &name, &issued).await?;
    }
    let how = if changed { "replaced" } else { "is up to date" };
    let end = issued.certificate.not_after;
    let until = end.map(|end| format!(", expires at {end}")).unwrap_or_default();
    Ok((format!("certificate {name} {how}{until}"), end))
}

/// The newest version of a certificate in the vault, with its name.
async fn newest(
    cluster: &ManagedCluster,
    what: CertificateUse,
) -> Result<(String, IssuedCertificate), StepError> {
    let name = what.name(cluster);
    let issued = cluster.vault.certificate(&name).await.map_err(retryable)?;
    match issued {
        Some(issued) => Ok((name, issued)),
        None => {
            let message = format!("the vault has no certificate {name} yet");
            Err(StepError::transient("NoCertificate", message))
        }
    }
}

async fn has_namespace(link: &Link, name: &str) -> Result<bool, StepError> {
    let found = Api::<Namespace>::all(link.client()).get_opt(name).await;
    Ok(found.map_err(|error| link.failed("read", format!("Namespace {name}"), error))?.is_some())
}

/// Ensures that a TLS Secret contains a certificate; returns whether it was changed.
async fn put_secret(
    link: &Link,
    namespace: &str,
    name: &str,
    issued: &IssuedCertificate,
) -> Result<bool, StepError> {
    let label = format!("Secret {namespace}/{name}");
    let api: Api<Secret> = Api::namespaced(link.client(), namespace);
    let found = api.get_opt(name).await.map_err(|error| link.failed("read", &label, error))?;
    let data = [("tls.crt", issued.chain_pem.as_str()), ("tls.key", issued.key_pem.expose())];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
    let wanted = Some(data.into());
    if found.as_ref().is_some_and(|found| found.data == wanted) {
        return Ok(false);
    }
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    };
    let type_ = Some("kubernetes.io/tls".to_owned());
    let secret = Secret { metadata, data: wanted, type_, ..Secret::default() };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api.patch(name, &params, &Patch::Apply(&secret)).await;
    applied.map_err(|error| unquoted(link.failed("apply", label, error)))?;
    Ok(true)
}

/// Removes the API server's message about an invalid Secret, which may quote it.
fn unquoted(mut error: LinkError) -> StepError {
    if let Failure::Invalid { message, .. } = &mut error.failure {
        "the message is hidden because it may quote the Secret".clone_into(message);
    }
    error.into()
}

/// Configures the API server to use its certificate for its public name; returns before that is rolled out.
pub async fn configure_api_server(cluster: &ManagedCluster, link: &Link) -> Result<String, StepError> {
    // The certificate is for `api.` of the cluster's domain, which the vault knows.
    let (name, issued) = newest(cluster, CertificateUse::ApiServer).await?;
    let names = issued.certificate.dns_names;
    let named = json!([{"names": names, "servingCertificate": {"name": name}}]);
    let target = Target {
        resource: resource("config.openshift.io", "APIServer", "apiservers"),
        namespace: None,
        name: "cluster".to_owned(),
    };
    configure(link, &target, json!({"spec": {"servingCerts": {"namedCertificates": named}}})).await
}

/// Configures the default ingress to use its certificate; returns before that is rolled out.
pub async fn configure_ingress(cluster: &ManagedCluster, link: &Link) -> Result<String, StepError> {
    let target = Target {
        resource: resource("operator.openshift.io", "IngressController", "ingresscontrollers"),
        namespace: Some("openshift-ingress-operator".to_owned()),
        name: "default".to_owned(),
    };
    let name = CertificateUse::Ingress.name(cluster);
    configure(link, &target, json!({"spec": {"defaultCertificate": {"name": name}}})).await
}

async fn configure(link: &Link, target: &Target, wanted: Value) -> Result<String, StepError> {
    match patch(link, target, &Change::Merge(wanted), None).await {
        // The operator of the component rolls it out, which takes minutes and is not waited for.
        Ok(true) => Ok(format!("{target} patched to use its certificate; its operator rolls it out")),
        Ok(false) => Ok(format!("{target} uses its certificate already")),
        // The object to configure does not exist: this is not a cluster that Shipshape provisioned.
        Err(error) if matches!(error.failure, Failure::NotFound { .. } | Failure::UnknownKind { .. }) => {
            Err(StepError::terminal("NotFound", format!("there is no {target}")).with_source(error))
        }
        Err(error) => {
            let error = StepError::from(error);
            match error.kind() {
                StepErrorKind::Terminal => Err(StepError::transient("Configuration", error.full_message())),
                StepErrorKind::Transient | StepErrorKind::Unreachable | StepErrorKind::Precondition => {
                    Err(error)
                }
            }
        }
    }
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expired_certificate_is_an_error() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let check = |end: Option<&str>| over("one-apiserver", end.map(|it| it.parse().unwrap()), now);
        assert!(check(None).is_none() && check(Some("2026-06-01T00:00:01Z")).is_none());
        let error = check(Some("2026-06-01T00:00:00Z")).unwrap();
        assert_eq!((error.kind(), error.code().as_str()), (StepErrorKind::Transient, "CertificateExpired"));
        assert!(error.to_string().contains("one-apiserver"), "{error}");
    }
}
