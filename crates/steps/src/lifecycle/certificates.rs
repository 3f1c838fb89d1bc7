//! The serving certificates of a cluster: requested in the vault, copied into the cluster, renewed there.

use cloud::CertificateSpec;
use futures_util::future::try_join_all;
use kubelink::{Link, Target};
use serde_json::Value;
use store::WorkLease;

use super::Lifecycle;
use crate::credentials::{CertificateUse, carry_certificates, configure_api_server, configure_ingress};
use crate::engine::{PollStatus, StepError, StepOutcome};

/// The DNS name of a certificate.
fn dns_name(what: CertificateUse, domain: &str) -> String {
    match what {
        CertificateUse::ApiServer => format!("api.{domain}"),
        CertificateUse::Ingress => format!("*.apps.{domain}"),
    }
}

/// Requests both certificates and polls whether they are issued. A cluster with a domain of its customer's has none.
pub async fn ensure_issued(cx: &Lifecycle) -> Result<PollStatus, StepError> {
    let cluster = cx.snapshot().await?;
    if !cluster.is_domain_managed() {
        return Ok(PollStatus::Done(StepOutcome::with_message("the customer manages the cluster's domain")));
    }
    let managed = cx.managed().await?;
    let ensure = async |what: CertificateUse| {
        let name = what.name(&managed);
        let spec = CertificateSpec { name: name.clone(), dns_names: vec![dns_name(what, &cluster.domain)] };
        let found = cx.cloud.vault.ensure_certificate(&spec).await?;
        Ok::<_, StepError>(found.version.is_none().then_some(name))
    };
    let waits: Vec<String> =
        try_join_all(CertificateUse::ALL.map(ensure)).await?.into_iter().flatten().collect();
    match waits.as_slice() {
        [] => Ok(PollStatus::Done(StepOutcome::with_message("both certificates are issued"))),
        _ => Ok(PollStatus::Waiting(waiting_message(&waits))),
    }
}

/// Names the certificates that are not issued yet.
fn waiting_message(names: &[String]) -> String {
    match names {
        [name] => format!("certificate {name} is being issued"),
        _ => format!("certificates {} are being issued", names.join(" and ")),
    }
}

/// Copies the newest versions of both certificates into the cluster, and records when they expire.
pub async fn carry(cx: &Lifecycle, hold: WorkLease) -> Result<String, StepError> {
    carry_certificates(&cx.managed().await?, &cx.link().await?, hold, cx.clock.now()).await
}

/// Configures the API server or the default ingress to use its certificate.
pub async fn configure(cx: &Lifecycle, what: CertificateUse) -> Result<String, StepError> {
    let (managed, link) = (cx.managed().await?, cx.link().await?);
    match what {
        CertificateUse::ApiServer => configure_api_server(&managed, &link).await,
        CertificateUse::Ingress => configure_ingress(&managed, &link).await,
    }
}

/// An object of a kind that is resolved on the cluster.
pub async fn object(
    link: &Link,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Target, StepError> {
    let (resource, _) = link.resolve(api_version, kind).await?;
    Ok(Target { resource, namespace: namespace.map(str::to_owned), name: name.to_owned() })
}

/// The status of a condition of an object: `True`, `False` or `Unknown`; none if it has no such condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == kind)?["status"].as_str()
}

/// Deletes both certificates from the vault.
pub async fn remove(cx: &Lifecycle) -> Result<(), StepError> {
    let managed = cx.managed().await?;
    for what in CertificateUse::ALL {
        cx.cloud.vault.delete_certificate(&what.name(&managed)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_certificate_is_and_two_are_being_issued() {
        let message =
            |names: &[&str]| waiting_message(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        assert_eq!(message(&["a"]), "certificate a is being issued");
        assert_eq!(message(&["a", "b"]), "certificates a and b are being issued");
    }
}
