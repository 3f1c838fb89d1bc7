//! The certificates of a provisioned cluster's API server and default ingress, as they are in its secrets. Only of clusters whose
//! names are in the service's own zones; the others' customers renew theirs.

use std::collections::BTreeMap;

use api::health::CERTIFICATE_DAYS_MIN;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kubelink::certificate::{self, ServerCertificate};
use serde::Deserialize;

use super::certificates::{EXPIRATION, days_until};
use super::{Collector, Fact, Findings, Profile};
use crate::series::{Metric, Series};

const NOT_FOUND: Metric = Metric {
    name: "certificate_secretnotfound",
    help: "1 for each secret of a certificate that does not exist",
};

pub(super) const COLLECTOR: Collector = Collector {
    name: "cluster-certificates",
    profile: Profile::OpenShift,
    every: 10,
    run: |visit| {
        Box::pin(async move {
            if !visit.cluster.provisioned.as_ref().is_some_and(|it| it.is_domain_managed) {
                return Ok(Findings::default());
            }
            let path = "/apis/operator.openshift.io/v1/namespaces/openshift-ingress-operator/ingresscontrollers/default";
            let controller: Option<IngressController> = visit.fetcher.object(path).await?;
            let name = controller.unwrap_or_default().spec.default_certificate.name;
            let mut found = Vec::new();
            for secret in secrets(&name) {
                let path = format!("/api/v1/namespaces/{}/secrets/{}", secret.namespace, secret.name);
                let read: Option<Secret> = visit.fetcher.object(&path).await?;
                found.push((secret, read.map(|it| certificate_of(&it))));
            }
            Ok(decide(&found, visit.now))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct IngressController {
    spec: IngressSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IngressSpec {
    default_certificate: Reference,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Reference {
    name: String,
}

/// A secret of a certificate. Its key is not read into anything.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Secret {
    data: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SecretName {
    namespace: &'static str,
    name: String,
}

/// The secrets of both certificates, of which the ingress names one.
fn secrets(ingress: &str) -> Vec<SecretName> {
    let is_name = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    // A cluster may have any name there; only ours is one of a pair.
    if !ingress.ends_with("-ingress") || ingress.len() > 253 || !ingress.chars().all(is_name) {
        return Vec::new();
    }
    let of_api_server = format!("{}-apiserver", ingress.trim_end_matches("-ingress"));
    vec![
        SecretName { namespace: "openshift-ingress", name: ingress.to_owned() },
        SecretName { namespace: "openshift-config", name: of_api_server },
    ]
}

fn certificate_of(secret: &Secret) -> Option<ServerCertificate> {
    let encoded = secret.data.get("tls.crt")?;
    certificate::first_of_pem(&STANDARD.decode(encoded).ok()?)
}

fn decide(found: &[(SecretName, Option<Option<ServerCertificate>>)], now: Timestamp) -> Findings {
    let mut findings = Findings::default();
    for (SecretName { namespace, name }, certificate) in found {
        let placed = |metric, value| {
            Series::new(metric, value).label("namespace", *namespace).label("name", name.clone())
        };
        match certificate {
            None => {
                findings.add(placed(NOT_FOUND, 1.0));
                findings.cause("certificates", format!("secret {namespace}/{name} does not exist"), false);
            }
            Some(None) => findings.unreadable += 1,
            Some(Some(certificate)) => {
                let days = days_until(certificate.validity.not_after, now);
                findings.add(
                    placed(EXPIRATION, days as f64)
                        .label("subject", certificate.validity.subject.clone())
                        .label("thumbprint", certificate.fingerprint.clone()),
                );
                findings.facts.push(Fact::CertificateDays(days));
                if days < CERTIFICATE_DAYS_MIN {
                    let text = match days {
                        ..0 => format!("certificate {namespace}/{name} has expired"),
                        _ => format!("certificate {namespace}/{name} expires in {days} days"),
                    };
                    findings.cause("certificates", text, false);
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use kubelink::certificate::Validity;

    use super::*;
    use crate::collect::testing::{causes, lines};

    #[test]
    fn the_secret_of_the_api_server_is_named_after_that_of_the_ingress() {
        let names: Vec<String> = secrets("abc-ingress").into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["abc-ingress", "abc-apiserver"]);
        for other in ["", "mine", "../x-ingress", "A-ingress"] {
            assert!(secrets(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn a_missing_secret_and_a_certificate_that_ends_soon_are_causes() {
        let now: Timestamp = "2026-11-19T04:00:00Z".parse().unwrap();
        let certificate = ServerCertificate {
            validity: Validity {
                subject: "CN=x".to_owned(),
                not_before: now,
                not_after: "2026-12-01T04:00:00Z".parse().unwrap(),
            },
            dns_names: Vec::new(),
            fingerprint: "ab".to_owned(),
        };
        let [ingress, api_server] = &secrets("abc-ingress")[..] else { panic!("two") };
        let findings = decide(&[(ingress.clone(), Some(Some(certificate))), (api_server.clone(), None)], now);
        assert_eq!(
            lines(&findings),
            [
                "certificate_expirationdate{namespace=openshift-ingress,name=abc-ingress,subject=CN=x,thumbprint=ab} 12",
                "certificate_secretnotfound{namespace=openshift-config,name=abc-apiserver} 1",
            ]
        );
        assert_eq!(
            causes(&findings),
            [
                "certificate openshift-ingress/abc-ingress expires in 12 days",
                "secret openshift-config/abc-apiserver does not exist"
            ]
        );
        assert_eq!(decide(&[(ingress.clone(), Some(None))], now).unreadable, 1);
    }
}
