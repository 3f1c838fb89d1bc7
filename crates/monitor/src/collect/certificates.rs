//! Certificates of the connection to the API server: that which it presents and that which we present.

use api::health::CERTIFICATE_DAYS_MIN;
use jiff::Timestamp;
use kubelink::facts::{self, CertificateFacts};

use super::{Collector, Fact, Findings, Profile};
use crate::series::{Metric, Series};

pub(super) const EXPIRATION: Metric =
    Metric { name: "certificate_expirationdate", help: "Days until a certificate expires" };

/// Every ten minutes: it takes a TLS handshake of its own.
pub(super) const COLLECTOR: Collector = Collector {
    name: "certificates",
    profile: Profile::Any,
    every: 10,
    run: |visit| {
        Box::pin(async move {
            let read = facts::certificates(visit.fetcher.link()).await?;
            Ok(decide(&read, visit.now))
        })
    },
};

/// Whole days from `now` to `end`, rounded down; bounded, because a certificate may end in any year.
pub(crate) fn days_until(end: Timestamp, now: Timestamp) -> i64 {
    end.duration_since(now).as_secs().div_euclid(24 * 60 * 60)
}

fn decide(certificates: &CertificateFacts, now: Timestamp) -> Findings {
    let mut findings = Findings::default();
    let all = [("apiserver", &certificates.serving), ("client", &certificates.client)];
    for (name, certificate) in all {
        let Some(certificate) = certificate else { continue };
        let days = days_until(certificate.not_after, now);
        findings.add(Series::new(EXPIRATION, days as f64).label("namespace", "").label("name", name));
        findings.facts.push(Fact::CertificateDays(days));
        if days < 0 {
            findings.cause("certificates", format!("the {name} certificate has expired"), false);
        } else if days < CERTIFICATE_DAYS_MIN {
            findings.cause("certificates", format!("the {name} certificate expires in {days} days"), false);
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
    fn certificates_of_any_year_have_days() {
        let now: Timestamp = "2026-11-19T04:00:00Z".parse().unwrap();
        let until = |end: &str| {
            Some(Validity { subject: String::new(), not_before: now, not_after: end.parse().unwrap() })
        };
        let given = CertificateFacts {
            serving: until("0001-01-01T00:00:00Z"),
            client: until("4096-01-01T00:00:00Z"),
        };
        let findings = decide(&given, now);
        assert_eq!(
            lines(&findings),
            [
                "certificate_expirationdate{namespace=,name=apiserver} -739939",
                "certificate_expirationdate{namespace=,name=client} 755729"
            ]
        );
        assert_eq!(causes(&findings), ["the apiserver certificate has expired"]);
        let given = CertificateFacts { serving: until("2026-11-20T03:00:00Z"), client: None };
        assert_eq!(causes(&decide(&given, now)), ["the apiserver certificate expires in 0 days"]);
    }
}
