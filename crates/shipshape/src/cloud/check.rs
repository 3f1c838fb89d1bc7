//! `shipshape config check --cloud`: whether the cloud offers what the first cluster needs, before its PUT. Every check only reads.

use std::fmt::Write as _;

use api::error::{Class, Classify as _};
use cloud::capacity::{self, Pool};
use cloud::{Cloud, CloudError, Credential};
use steps::lifecycle;

/// The size that the examples of the documentation use.
const MASTER_SIZE: &str = "Standard_D8s_v5";
const WORKER_SIZE: &str = "Standard_D4s_v5";
const WORKERS: u64 = 3;

/// The name that no certificate, secret or token has; reading it proves access without changing anything.
const ABSENT: &str = "shipshape-config-check";

/// What the checks need to know.
pub(crate) struct CloudCheck<'a> {
    pub(crate) cloud: &'a Cloud,
    pub(crate) service: &'a lifecycle::Service,
    /// The locations of clusters.
    pub(crate) locations: &'a [String],
    /// The actions that the service needs in its own group.
    pub(crate) actions: &'a [&'a str],
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The subject, such as `credentials`.
    pub(crate) subject: String,
    /// What was found, or what is missing and how to provide it.
    pub(crate) result: Result<String, String>,
}

/// The report: one line for each subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CloudReport(Vec<Finding>);

impl CloudReport {
    fn add(&mut self, subject: impl Into<String>, result: Result<String, String>) {
        self.0.push(Finding { subject: subject.into(), result });
    }

    /// The number of missing pieces.
    pub(crate) fn missing(&self) -> usize {
        self.0.iter().filter(|it| it.result.is_err()).count()
    }

    /// For people: `ok` or `MISSING`, the subject, the sentence.
    pub(crate) fn to_text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, finding| {
            let (state, sentence) = match &finding.result {
                Ok(sentence) => ("ok", sentence),
                Err(sentence) => ("MISSING", sentence),
            };
            let _ = writeln!(text, "{state:<8}{:<28}{sentence}", finding.subject);
            text
        })
    }
}

impl CloudCheck<'_> {
    /// Runs every check; without a token, none of the others can succeed, so they are not tried.
    pub(crate) async fn run(&self) -> CloudReport {
        let mut report = CloudReport::default();
        let principal = self.cloud.identities.principal(&Credential::Service).await;
        let is_known = principal.is_ok();
        report.add(
            "credentials",
            principal
                .map(|it| {
                    format!("client {} in tenant {}, object {}", it.client_id, it.tenant_id, it.object_id)
                })
                .map_err(|error| sentence(&error)),
        );
        if !is_known {
            return report;
        }
        self.check_rights(&mut report).await;
        self.check_subscription(&mut report).await;
        self.check_zones(&mut report).await;
        let vault = self.cloud.vault.secret(ABSENT).await;
        report.add("vault", vault.map(|_| "secrets can be read".to_owned()).map_err(|it| sentence(&it)));
        let registry = self.cloud.registry.token(ABSENT).await;
        report.add("registry", registry.map(|_| "tokens can be read".to_owned()).map_err(|it| sentence(&it)));
        report
    }

    async fn check_rights(&self, report: &mut CloudReport) {
        let group = self.service.group_id();
        let checked = match self.cloud.infrastructure.get(&group).await {
            Ok(Some(_)) => {
                self.cloud.identities.permissions(&Credential::Service, &group, self.actions).await
            }
            Ok(None) => {
                report.add(
                    "resource group",
                    Err(format!("{group} does not exist; create it in {}", self.service.location)),
                );
                return;
            }
            Err(error) => Err(error),
        };
        let result = match checked {
            Ok(all) => {
                let denied: Vec<String> =
                    all.into_iter().filter(|it| !it.allowed).map(|it| it.action).collect();
                match denied.as_slice() {
                    [] => Ok(format!("all {} actions are allowed in {group}", self.actions.len())),
                    denied => Err(format!(
                        "{} of {} actions are not allowed in {group}: {}; assign the role that `shipshape cloud role` prints",
                        denied.len(),
                        self.actions.len(),
                        denied.join(", ")
                    )),
                }
            }
            Err(error) => Err(sentence(&error)),
        };
        report.add("rights", result);
    }

    async fn check_subscription(&self, report: &mut CloudReport) {
        let subscription = self.service.subscription.as_str();
        let providers = self.cloud.infrastructure.providers(subscription).await;
        report.add(
            "providers",
            providers.map_err(|error| sentence(&error)).and_then(
                |all| match capacity::unregistered_provider(&all) {
                    None => Ok("all required resource providers are registered".to_owned()),
                    Some(problem) => Err(problem.message),
                },
            ),
        );
        let pools = [Pool::masters(MASTER_SIZE, false), Pool::workers(0, WORKER_SIZE, false, WORKERS)];
        for location in self.locations {
            let sizes = self.cloud.infrastructure.sizes(subscription, location).await;
            let usages = self.cloud.infrastructure.usages(subscription, location).await;
            let result = match (sizes, usages) {
                (Ok(sizes), Ok(usages)) => {
                    let problem = capacity::unavailable_size(&sizes, &pools, location)
                        .or_else(|| capacity::exceeded_quota(&usages, &pools, 1));
                    problem.map_or(Ok("a cluster of six machines fits".to_owned()), |it| Err(it.message))
                }
                (Err(error), _) | (_, Err(error)) => Err(sentence(&error)),
            };
            report.add(format!("quotas in {location}"), result);
        }
    }

    async fn check_zones(&self, report: &mut CloudReport) {
        let mut zones: Vec<String> = self.locations.iter().map(|it| self.service.domain_in(it)).collect();
        zones.sort();
        zones.dedup();
        for zone in zones {
            let id = self.service.zone_id(&zone);
            let result = match self.cloud.infrastructure.get(&id).await {
                Ok(Some(_)) => Ok("exists".to_owned()),
                Ok(None) => Err(format!(
                    "{id} does not exist; the first cluster creates it, and its parent zone must delegate to it"
                )),
                Err(error) => Err(sentence(&error)),
            };
            report.add(format!("DNS zone {zone}"), result);
        }
    }
}

/// The whole chain of an error in one sentence, and whether a later attempt may succeed.
fn sentence(error: &CloudError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    match error.class() {
        Class::Transient => format!("{text}; it may succeed later"),
        Class::Terminal => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_each_missing_piece_in_a_line() {
        let mut report = CloudReport::default();
        report.add("credentials", Ok("client c".to_owned()));
        report.add("vault", Err("the vault was not found".to_owned()));
        assert_eq!(report.missing(), 1);
        let text = report.to_text();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("MISSING vault"), "{text}");
    }

    #[test]
    fn an_error_is_shown_with_its_causes() {
        let cause: Box<dyn std::error::Error + Send + Sync> = "connection refused".into();
        let error = CloudError::Unavailable { what: "the token request".to_owned(), source: Some(cause) };
        assert_eq!(
            sentence(&error),
            "the cloud did not respond to the token request: connection refused; it may succeed later"
        );
    }
}
