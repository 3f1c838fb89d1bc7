//! `shipshape config check --cloud`: whether the cloud offers what the first cluster needs, before its PUT. Every check only reads.

use std::fmt::Write as _;

use api::error::{Class, Classify as _};
use cloud::capacity::{self, Pool};
use cloud::{Cloud, CloudError, Credential, Permission, ProviderRegistration};
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
    /// The actions that the service needs in the subscription, and in its own group.
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
        let width = self.0.iter().map(|it| it.subject.len()).max().unwrap_or_default();
        self.0.iter().fold(String::new(), |mut text, finding| {
            let (state, sentence) = match &finding.result {
                Ok(sentence) => ("ok", sentence),
                Err(sentence) => ("MISSING", sentence),
            };
            let _ = writeln!(text, "{state:<8}{:<width$}  {sentence}", finding.subject);
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
        let secret = self.cloud.vault.secret(ABSENT).await;
        report.add(
            "secrets",
            secret.map(|_| "can be read in the vault".to_owned()).map_err(|it| sentence(&it)),
        );
        let certificate = self.cloud.vault.certificate(ABSENT).await;
        let certificate = certificate.map(|_| "can be read in the vault".to_owned());
        report.add("certificates", certificate.map_err(|it| sentence(&it)));
        let registry = self.cloud.registry.token(ABSENT).await;
        report.add("registry", registry.map(|_| "tokens can be read".to_owned()).map_err(|it| sentence(&it)));
        self.check_issuers(&mut report).await;
        report
    }

    async fn check_issuers(&self, report: &mut CloudReport) {
        let Some(issuers) = &self.cloud.issuers else {
            let none = "none, so that clusters with managed identities are rejected; cloud.azure.issuer_account is not set";
            return report.add("token issuers", Ok(none.to_owned()));
        };
        let account = issuers.account();
        let result = match self.cloud.infrastructure.get(account).await {
            Ok(Some(_)) => {
                let read = issuers.is_published(ABSENT).await;
                read.map(|_| format!("can be read in {account}")).map_err(|it| sentence(&it))
            }
            Ok(None) => Err(format!("{account} does not exist; create it with a website")),
            Err(error) => Err(sentence(&error)),
        };
        report.add("token issuers", result);
    }

    async fn check_rights(&self, report: &mut CloudReport) {
        let identities = &self.cloud.identities;
        let subscription = self.service.subscription.as_str();
        // A cluster's group is created for it, so that only rights on the whole subscription count there.
        let granted = identities.subscription_permissions(subscription, self.actions).await;
        report.add("rights", self.rights(&format!("subscription {subscription}"), granted));

        let group = self.service.group_id();
        let own = match self.cloud.infrastructure.get(&group).await {
            Ok(Some(_)) => {
                let granted = identities.permissions(&Credential::Service, &group, self.actions).await;
                self.rights(group.as_str(), granted)
            }
            Ok(None) => Err(format!("{group} does not exist; create it in {}", self.service.location)),
            Err(error) => Err(sentence(&error)),
        };
        report.add("resource group", own);
    }

    fn rights(&self, scope: &str, granted: Result<Vec<Permission>, CloudError>) -> Result<String, String> {
        let granted = granted.map_err(|error| sentence(&error))?;
        let denied: Vec<String> = granted.into_iter().filter(|it| !it.allowed).map(|it| it.action).collect();
        let count = self.actions.len();
        if denied.is_empty() {
            return Ok(format!("all {count} actions are allowed in {scope}"));
        }
        Err(format!(
            "{} of {count} actions are not allowed in {scope}: {}; assign the role that `shipshape cloud role` prints",
            denied.len(),
            denied.join(", ")
        ))
    }

    async fn check_subscription(&self, report: &mut CloudReport) {
        let subscription = self.service.subscription.as_str();
        let providers = self.cloud.infrastructure.providers(subscription).await;
        report.add("providers", providers.map_err(|error| sentence(&error)).and_then(|it| registered(&it)));
        let pools = [Pool::masters(MASTER_SIZE, false), Pool::workers(0, WORKER_SIZE, false, WORKERS)];
        for location in self.locations {
            let sizes = self.cloud.infrastructure.sizes(subscription, location).await;
            let usages = self.cloud.infrastructure.usages(subscription, location).await;
            let result = match (sizes, usages) {
                (Ok(sizes), Ok(usages)) => {
                    let mut problems = capacity::unavailable_sizes(&sizes, &pools, location);
                    problems.extend(capacity::exceeded_quotas(&usages, &pools, 1));
                    let messages: Vec<String> = problems.into_iter().map(|it| it.message).collect();
                    match messages.is_empty() {
                        true => Ok("a cluster of six machines fits".to_owned()),
                        false => Err(messages.join(" ")),
                    }
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

/// Whether the providers of clusters and of the service's own resources are registered.
fn registered(providers: &[ProviderRegistration]) -> Result<String, String> {
    let required = capacity::CLUSTER_PROVIDERS.into_iter().chain(capacity::SERVICE_PROVIDERS);
    let missing = capacity::unregistered(providers, required);
    if missing.is_empty() {
        return Ok("all required resource providers are registered".to_owned());
    }
    let commands: Vec<String> =
        missing.iter().map(|it| format!("az provider register --namespace {it}")).collect();
    Err(format!("{} are not registered; run `{}`", missing.join(", "), commands.join("`, `")))
}

/// The chain of an error in one sentence, without causes that it has already, and whether a later attempt may succeed.
fn sentence(error: &CloudError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            let _ = write!(text, ": {said}");
        }
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
        // Sentences begin in one column, also after a long subject.
        report.add("DNS zone westeurope.clusters.example.com", Ok("exists".to_owned()));
        let text = report.to_text();
        let columns: Vec<Option<usize>> = ["client c", "the vault", "exists"]
            .iter()
            .zip(text.lines())
            .map(|(sentence, line)| line.find(sentence))
            .collect();
        assert!(columns.iter().all(|it| it.is_some() && *it == columns[0]), "{text}");
        assert!(text.contains("example.com  exists"), "{text}");
    }

    #[test]
    fn every_provider_that_is_not_registered_is_named_with_its_command() {
        let all = capacity::CLUSTER_PROVIDERS.into_iter().chain(capacity::SERVICE_PROVIDERS);
        let mut providers: Vec<ProviderRegistration> =
            all.map(|it| ProviderRegistration { namespace: it.to_owned(), registered: true }).collect();
        assert!(registered(&providers).is_ok());
        for provider in &mut providers {
            provider.registered =
                !["Microsoft.Network", "Microsoft.KeyVault"].contains(&provider.namespace.as_str());
        }
        assert_eq!(
            registered(&providers).unwrap_err(),
            "Microsoft.Network, Microsoft.KeyVault are not registered; run `az provider register --namespace \
             Microsoft.Network`, `az provider register --namespace Microsoft.KeyVault`"
        );
    }

    #[test]
    fn an_error_is_shown_with_its_causes() {
        let cause: Box<dyn std::error::Error + Send + Sync> = "connection refused".into();
        let error = CloudError::Unavailable { what: "the token request".to_owned(), source: Some(cause) };
        assert_eq!(
            sentence(&error),
            "the cloud did not respond to the token request: connection refused; it may succeed later"
        );
        let cause: Box<dyn std::error::Error + Send + Sync> = "the response is too large".into();
        let what = "GET /x (the response is too large)".to_owned();
        let error = CloudError::UnexpectedResponse { what, source: Some(cause) };
        assert_eq!(sentence(&error).matches("too large").count(), 1, "{}", sentence(&error));
    }
}
