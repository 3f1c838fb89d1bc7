//! The certificates that a cluster shows to its customer: asked for in the vault, put into the cluster, renewed there.

use cloud::CertificateWish;
use kubelink::{Link, Target};
use serde_json::Value;
use store::WorkLease;

use super::Lifecycle;
use crate::credentials::{CertificateUse, carry_certificates, configure_api_server, configure_ingress};
use crate::engine::{Look, Outcome, StepError};

/// The name that a certificate is for.
fn dns_name(what: CertificateUse, domain: &str) -> String {
    match what {
        CertificateUse::ApiServer => format!("api.{domain}"),
        CertificateUse::Ingress => format!("*.apps.{domain}"),
    }
}

/// Asks for both certificates and looks whether they are issued. A cluster whose customer keeps its names has none of ours.
pub async fn ensure_issued(cx: &Lifecycle) -> Result<Look, StepError> {
    let ours = cx.ours().await?;
    if !ours.is_domain_managed() {
        return Ok(Look::Done(Outcome::said("the customer keeps the cluster's names")));
    }
    let credentials = cx.credentials().await?;
    let mut waits = Vec::new();
    for what in CertificateUse::ALL {
        let name = what.name(&credentials);
        let wish = CertificateWish { name: name.clone(), dns_names: vec![dns_name(what, &ours.domain)] };
        if cx.cloud.vault.ensure_certificate(&wish).await?.version.is_none() {
            waits.push(name);
        }
    }
    match waits.as_slice() {
        [] => Ok(Look::Done(Outcome::said("both certificates are issued"))),
        _ => Ok(Look::Waiting(format!("certificate {} is being issued", waits.join(" and ")))),
    }
}

/// Puts the newest versions of both certificates into the cluster, and records until when they are good.
pub async fn carry(cx: &Lifecycle, hold: WorkLease) -> Result<String, StepError> {
    carry_certificates(&cx.credentials().await?, &cx.link().await?, hold, cx.clock.now()).await
}

/// Makes the API server or the default ingress show its certificate.
pub async fn configure(cx: &Lifecycle, what: CertificateUse) -> Result<String, StepError> {
    let (ours, link) = (cx.credentials().await?, cx.link().await?);
    match what {
        CertificateUse::ApiServer => configure_api_server(&ours, &link).await,
        CertificateUse::Ingress => configure_ingress(&ours, &link).await,
    }
}

/// An object of a kind that only the cluster knows.
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

/// The status of a condition of an object: `True`, `False` or `Unknown`; none when it has no such condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == kind)?["status"].as_str()
}

/// Removes both certificates from the vault.
pub async fn remove(cx: &Lifecycle) -> Result<(), StepError> {
    let credentials = cx.credentials().await?;
    for what in CertificateUse::ALL {
        cx.cloud.vault.delete_certificate(&what.name(&credentials)).await?;
    }
    Ok(())
}
