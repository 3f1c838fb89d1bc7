//! The registration of the webhooks: the objects that make the API server call them.
//!
//! Where the operator keeps the configurations, which it marks by an annotation, the process that serves the webhooks writes nothing but
//! their certificates; elsewhere it writes all.

use std::collections::BTreeMap;
use std::fmt;

use api::crd::machine::names;
use controller::{FieldManager, RequestError};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{Patch, PatchParams};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::certificates::{Authorities, TrustedCertificate};
use super::decide::WebhookKind;

/// The name of both configurations.
pub(crate) const NAME: &str = "machine-api";

/// Says that OpenShift's service CA operator writes `caBundle`.
const INJECT_BUNDLE: &str = "service.beta.openshift.io/inject-cabundle";

/// The time that the API server waits for a response, in seconds.
const TIMEOUT_SECONDS: i32 = 10;

/// Where the API server reaches the webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookEndpoint {
    /// A Service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// A base URL without a path, for a process outside the cluster.
    Url(String),
}

impl WebhookEndpoint {
    /// The Service of the payload.
    pub(crate) fn of_service(namespace: &str) -> WebhookEndpoint {
        WebhookEndpoint::Service {
            namespace: namespace.to_owned(),
            name: "machine-api-operator-webhook".to_owned(),
            port: 443,
        }
    }
}

/// What a webhook does with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookRole {
    /// Sets defaults.
    Mutating,
    /// Checks rules.
    Validating,
}

/// One webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Webhook {
    pub(crate) role: WebhookRole,
    pub(crate) kind: WebhookKind,
}

impl Webhook {
    pub(crate) const ALL: [Webhook; 5] = [
        Webhook { role: WebhookRole::Mutating, kind: WebhookKind::Machine },
        Webhook { role: WebhookRole::Mutating, kind: WebhookKind::MachineSet },
        Webhook { role: WebhookRole::Validating, kind: WebhookKind::Machine },
        Webhook { role: WebhookRole::Validating, kind: WebhookKind::MachineSet },
        Webhook { role: WebhookRole::Validating, kind: WebhookKind::MachineHealthCheck },
    ];

    /// The path of its requests.
    pub(crate) fn path(self) -> &'static str {
        match (self.role, self.kind) {
            (WebhookRole::Mutating, WebhookKind::Machine) => "/mutate-machine-openshift-io-v1beta1-machine",
            (WebhookRole::Mutating, WebhookKind::MachineSet) => {
                "/mutate-machine-openshift-io-v1beta1-machineset"
            }
            (WebhookRole::Validating, WebhookKind::Machine) => {
                "/validate-machine-openshift-io-v1beta1-machine"
            }
            (WebhookRole::Validating, WebhookKind::MachineSet) => {
                "/validate-machine-openshift-io-v1beta1-machineset"
            }
            (_, WebhookKind::MachineHealthCheck) => {
                "/validate-machine-openshift-io-v1beta1-machinehealthcheck"
            }
        }
    }

    /// Its name, which the API server puts before refusals.
    fn name(self) -> String {
        let role = match self.role {
            WebhookRole::Mutating => "default",
            WebhookRole::Validating => "validation",
        };
        format!("{role}.{}.machine.openshift.io", self.kind.as_str().to_ascii_lowercase())
    }

    /// The webhook as it is in a configuration, with the defaults of the API server, so that it can be compared.
    fn to_json(self, endpoint: &WebhookEndpoint, bundle: Option<Value>) -> Value {
        let mut client = match endpoint {
            WebhookEndpoint::Service { namespace, name, port } => json!({
                "service": { "namespace": namespace, "name": name, "port": port, "path": self.path() }
            }),
            WebhookEndpoint::Url(base) => json!({ "url": format!("{base}{}", self.path()) }),
        };
        if let Some(bundle) = bundle {
            client["caBundle"] = bundle;
        }
        let operations = match self.role {
            WebhookRole::Mutating => json!(["CREATE"]),
            WebhookRole::Validating => json!(["CREATE", "UPDATE"]),
        };
        let mut webhook = json!({
            "name": self.name(), "clientConfig": client, "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "sideEffects": "None", "matchPolicy": "Equivalent",
            "timeoutSeconds": TIMEOUT_SECONDS, "namespaceSelector": {}, "objectSelector": {},
            "rules": [{
                "apiGroups": ["machine.openshift.io"], "apiVersions": ["v1beta1"],
                "resources": [self.kind.resource()], "operations": operations, "scope": "*"
            }]
        });
        if self.role == WebhookRole::Mutating {
            webhook["reinvocationPolicy"] = json!("Never");
        }
        webhook
    }
}

impl fmt::Display for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Who provides the certificates that the API server trusts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trust<'a> {
    /// These authorities.
    Authorities(&'a Authorities, Timestamp),
    /// The service CA operator.
    Injected,
}

/// The registration of the webhooks in a cluster.
#[derive(Clone)]
pub(crate) struct Registration {
    client: Client,
    endpoint: WebhookEndpoint,
    manager: FieldManager,
}

impl Registration {
    pub(crate) fn new(client: Client, endpoint: WebhookEndpoint, manager: FieldManager) -> Registration {
        Registration { client, endpoint, manager }
    }

    /// Creates or repairs both configurations. Returns whether their bundles are those of `trust`.
    pub(crate) async fn apply(&self, trust: Trust<'_>) -> Result<bool, RequestError> {
        let mutating = self.apply_one::<MutatingWebhookConfiguration>(WebhookRole::Mutating, trust).await?;
        let validating =
            self.apply_one::<ValidatingWebhookConfiguration>(WebhookRole::Validating, trust).await?;
        Ok(mutating && validating)
    }

    async fn apply_one<K>(&self, role: WebhookRole, trust: Trust<'_>) -> Result<bool, RequestError>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
            + Clone
            + fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let failed = |verb| move |error| RequestError::new(verb, format!("{} {NAME}", K::kind(&())), error);
        let found = api.get_opt(NAME).await.map_err(failed("get"))?;
        let found = found.map(|it| serde_json::to_value(it).map_err(kube::Error::SerdeError)).transpose();
        let found = found.map_err(failed("read"))?;
        let plan = plan(role, &self.endpoint, found.as_ref(), trust);
        if let Some(mut object) = plan.object {
            object["apiVersion"] = K::api_version(&()).into();
            object["kind"] = K::kind(&()).into();
            let params = PatchParams::apply(self.manager.name()).force();
            let patch = Patch::Apply(object);
            let _: K = api.patch(NAME, &params, &patch).await.map_err(failed("apply"))?;
            tracing::info!("Applied {} {NAME}", K::kind(&()));
        }
        Ok(plan.has_own_bundles)
    }
}

/// What is to be done about a configuration.
#[derive(Debug, PartialEq)]
struct RegistrationPlan {
    /// The object to apply; none if it is as it shall be.
    object: Option<Value>,
    /// Whether the bundles are those that we trust.
    has_own_bundles: bool,
}

/// Compares a configuration with what it shall be.
fn plan(
    role: WebhookRole,
    endpoint: &WebhookEndpoint,
    found: Option<&Value>,
    trust: Trust<'_>,
) -> RegistrationPlan {
    let annotation =
        found.and_then(|it| it.get("metadata")?.get("annotations")?.get(INJECT_BUNDLE)?.as_str());
    let is_injected = annotation == Some("true");
    let present: Vec<&Value> =
        found.and_then(|it| it.get("webhooks")?.as_array()).into_iter().flatten().collect();
    if let (true, false, Trust::Authorities(authorities, now)) = (is_owned(found), is_injected, trust) {
        return plan_bundles(role, found, authorities, now);
    }
    let mut webhooks = Vec::new();
    for webhook in Webhook::ALL.iter().filter(|it| it.role == role) {
        let name = webhook.name();
        let bundle = present_bundle(found, &name);
        let bundle = match trust {
            // Applying the bundle that is there changes nothing for its owner.
            _ if is_injected => bundle.cloned(),
            Trust::Injected => bundle.cloned(),
            Trust::Authorities(authorities, now) => Some(own_bundle(authorities, bundle, now)),
        };
        webhooks.push(webhook.to_json(endpoint, bundle));
    }
    let is_annotated = is_injected || !matches!(trust, Trust::Injected);
    let is_complete = is_annotated && webhooks.iter().all(|webhook| present.contains(&webhook));
    let object = (!is_complete).then(|| {
        let mut metadata = json!({ "name": NAME });
        if matches!(trust, Trust::Injected) {
            metadata["annotations"] = json!({ INJECT_BUNDLE: "true" });
        }
        // Another replica may have added an authority since.
        if let Some(version) = found.and_then(|it| it.get("metadata")?.get("resourceVersion")) {
            metadata["resourceVersion"] = version.clone();
        }
        json!({ "metadata": metadata, "webhooks": webhooks })
    });
    RegistrationPlan { object, has_own_bundles: !is_injected && matches!(trust, Trust::Authorities(..)) }
}

/// Whether the operator keeps a configuration.
fn is_owned(found: Option<&Value>) -> bool {
    found.and_then(|it| it.get("metadata")?.get("annotations")?.get(names::OWNED)).is_some()
}

fn webhooks_of(found: Option<&Value>) -> impl Iterator<Item = &Value> {
    found.and_then(|it| it.get("webhooks")?.as_array()).into_iter().flatten()
}

/// The bundle of a webhook that is there.
fn present_bundle<'a>(found: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    let webhook = webhooks_of(found).find(|it| it.get("name").and_then(Value::as_str) == Some(name));
    webhook.and_then(|it| it.get("clientConfig")?.get("caBundle"))
}

/// Compares the bundles of a configuration that the operator keeps. A webhook that it lacks is the operator's affair.
fn plan_bundles(
    role: WebhookRole,
    found: Option<&Value>,
    authorities: &Authorities,
    now: Timestamp,
) -> RegistrationPlan {
    let (mut changed, mut missing, mut webhooks) = (false, false, Vec::new());
    for webhook in Webhook::ALL.iter().filter(|it| it.role == role) {
        let name = webhook.name();
        if !webhooks_of(found).any(|it| it.get("name").and_then(Value::as_str) == Some(&name)) {
            missing = true;
            continue;
        }
        let present = present_bundle(found, &name);
        let wanted = own_bundle(authorities, present, now);
        changed |= present != Some(&wanted);
        webhooks.push(json!({ "name": name, "clientConfig": { "caBundle": wanted } }));
    }
    let version = found.and_then(|it| it.get("metadata")?.get("resourceVersion"));
    let object = changed
        .then(|| json!({ "metadata": { "name": NAME, "resourceVersion": version }, "webhooks": webhooks }));
    RegistrationPlan { object, has_own_bundles: !missing }
}

/// The bundles of a configuration by webhook.
pub(crate) fn bundles(found: Option<&Value>) -> BTreeMap<String, Value> {
    let bundle = |it: &Value| {
        let name = it.get("name")?.as_str()?.to_owned();
        Some((name, it.get("clientConfig")?.get("caBundle")?.clone()))
    };
    webhooks_of(found).filter_map(bundle).collect()
}

/// The configuration as the operator keeps it; none if it is so. The bundles stay as they are; a webhook without one gets that of
/// `bundles`, which it had before.
pub(crate) fn owned(
    role: WebhookRole,
    endpoint: &WebhookEndpoint,
    found: Option<&Value>,
    bundles: &BTreeMap<String, Value>,
) -> Option<Value> {
    let mut webhooks = Vec::new();
    for webhook in Webhook::ALL.iter().filter(|it| it.role == role) {
        let name = webhook.name();
        let bundle = present_bundle(found, &name).or_else(|| bundles.get(&name));
        webhooks.push(webhook.to_json(endpoint, bundle.cloned()));
    }
    let is_complete = webhooks.iter().all(|webhook| webhooks_of(found).any(|it| it == webhook));
    if is_complete && is_owned(found) {
        return None;
    }
    let mut metadata = json!({ "name": NAME, "annotations": { names::OWNED: "" } });
    // The certificates may have been renewed since.
    if let Some(version) = found.and_then(|it| it.get("metadata")?.get("resourceVersion")) {
        metadata["resourceVersion"] = version.clone();
    }
    Some(json!({ "metadata": metadata, "webhooks": webhooks }))
}

/// The bundle of our authorities in place of the present one.
fn own_bundle(authorities: &Authorities, present: Option<&Value>, now: Timestamp) -> Value {
    let present: Option<ByteString> = present.and_then(|it| serde_json::from_value(it.clone()).ok());
    let present = present.map(|it| TrustedCertificate::parse_bundle(&it.0)).unwrap_or_default();
    let bundle: String = authorities.trusted(&present, now).into_iter().map(|it| it.pem).collect();
    json!(ByteString(bundle.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::certificates::CertificatePolicy;
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn service() -> WebhookEndpoint {
        let (namespace, name) =
            ("openshift-machine-api".to_owned(), "machine-api-operator-webhook".to_owned());
        WebhookEndpoint::Service { namespace, name, port: 443 }
    }

    fn authorities() -> Authorities {
        Authorities::generate(&CertificatePolicy::default(), NOW).unwrap()
    }

    fn bundle_of(authorities: &Authorities) -> Value {
        json!(ByteString(authorities.current.certificate.pem.clone().into_bytes()))
    }

    #[test]
    fn the_configurations_are_those_of_the_reference_and_health_checks_beside_them() {
        let (url, authorities) = (WebhookEndpoint::Url("https://127.0.0.1:8443".to_owned()), authorities());
        let trust = Trust::Authorities(&authorities, NOW);
        let webhook = |name: &str, resource: &str, path: &str, operations: Value| {
            json!({
                "name": name, "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "sideEffects": "None",
                "matchPolicy": "Equivalent", "timeoutSeconds": 10, "namespaceSelector": {}, "objectSelector": {},
                "clientConfig": {"url": format!("https://127.0.0.1:8443{path}"), "caBundle": bundle_of(&authorities)},
                "rules": [{
                    "apiGroups": ["machine.openshift.io"], "apiVersions": ["v1beta1"], "resources": [resource],
                    "operations": operations, "scope": "*"
                }]
            })
        };
        let create_and_update = json!(["CREATE", "UPDATE"]);
        let expected = json!({"metadata": {"name": "machine-api"}, "webhooks": [
            webhook(
                "validation.machine.machine.openshift.io", "machines",
                "/validate-machine-openshift-io-v1beta1-machine", create_and_update.clone(),
            ),
            webhook(
                "validation.machineset.machine.openshift.io", "machinesets",
                "/validate-machine-openshift-io-v1beta1-machineset", create_and_update.clone(),
            ),
            webhook(
                "validation.machinehealthcheck.machine.openshift.io", "machinehealthchecks",
                "/validate-machine-openshift-io-v1beta1-machinehealthcheck", create_and_update,
            ),
        ]});
        assert_eq!(plan(WebhookRole::Validating, &url, None, trust).object, Some(expected));
        let object = plan(WebhookRole::Mutating, &service(), None, trust).object.unwrap();
        let mut expected = webhook("default.machine.machine.openshift.io", "machines", "", json!(["CREATE"]));
        expected["clientConfig"] = json!({
            "caBundle": bundle_of(&authorities),
            "service": {
                "namespace": "openshift-machine-api", "name": "machine-api-operator-webhook", "port": 443,
                "path": "/mutate-machine-openshift-io-v1beta1-machine"
            }
        });
        expected["reinvocationPolicy"] = json!("Never");
        assert_eq!(object["webhooks"][0], expected);
        assert_eq!(object["webhooks"][1]["name"], "default.machineset.machine.openshift.io");
    }

    #[test]
    fn a_complete_configuration_is_not_written_and_a_changed_one_is_repaired() {
        let authorities = authorities();
        let trust = Trust::Authorities(&authorities, NOW);
        let mut found = plan(WebhookRole::Validating, &service(), None, trust).object.unwrap();
        found["metadata"]["resourceVersion"] = json!("7");
        // A webhook of somebody else in the same object.
        found["webhooks"].as_array_mut().unwrap().push(json!({"name": "other.example"}));
        let again = plan(WebhookRole::Validating, &service(), Some(&found), trust);
        assert_eq!(again, RegistrationPlan { object: None, has_own_bundles: true });
        for (pointer, value) in [
            ("/webhooks/0/clientConfig/caBundle", json!("YWJj")),
            ("/webhooks/1/failurePolicy", json!("Fail")),
            ("/webhooks/0/rules", json!([])),
            ("/webhooks", json!([])),
        ] {
            let mut changed = found.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            let repaired = plan(WebhookRole::Validating, &service(), Some(&changed), trust).object.unwrap();
            assert_eq!(repaired["metadata"]["resourceVersion"], "7");
            assert_eq!(
                repaired["webhooks"].as_array().unwrap()[..],
                found["webhooks"].as_array().unwrap()[..3]
            );
        }
    }

    #[test]
    fn the_operator_keeps_everything_but_the_bundles() {
        let none = BTreeMap::new();
        let mut found = owned(WebhookRole::Validating, &service(), None, &none).unwrap();
        assert_eq!(found["metadata"]["annotations"], json!({"machine.openshift.io/owned": ""}));
        assert_eq!(found["webhooks"][0]["clientConfig"].get("caBundle"), None);
        found["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(owned(WebhookRole::Validating, &service(), Some(&found), &none), None);
        found["webhooks"][0]["clientConfig"]["caBundle"] = json!("YWJj");
        assert_eq!(owned(WebhookRole::Validating, &service(), Some(&found), &none), None);
        let known = bundles(Some(&found));
        found["webhooks"][0]["failurePolicy"] = json!("Fail");
        let repaired = owned(WebhookRole::Validating, &service(), Some(&found), &none).unwrap();
        assert_eq!(repaired["metadata"]["resourceVersion"], "7");
        assert_eq!(repaired["webhooks"][0]["failurePolicy"], "Ignore");
        assert_eq!(repaired["webhooks"][0]["clientConfig"]["caBundle"], "YWJj");
        // One that was deleted keeps its certificates.
        let again = owned(WebhookRole::Validating, &service(), None, &known).unwrap();
        assert_eq!(again["webhooks"][0]["clientConfig"]["caBundle"], "YWJj");
    }

    #[test]
    fn where_the_operator_keeps_a_configuration_only_its_bundles_are_written() {
        let authorities = authorities();
        let trust = Trust::Authorities(&authorities, NOW);
        let mut found = owned(WebhookRole::Mutating, &service(), None, &BTreeMap::new()).unwrap();
        found["metadata"]["resourceVersion"] = json!("7");
        found["webhooks"][0]["failurePolicy"] = json!("Fail");
        let changes = plan(WebhookRole::Mutating, &service(), Some(&found), trust);
        assert!(changes.has_own_bundles);
        let object = changes.object.unwrap();
        let bundle = bundle_of(&authorities);
        let webhook = |name: &str| json!({"name": name, "clientConfig": {"caBundle": bundle}});
        let expected = json!({
            "metadata": {"name": "machine-api", "resourceVersion": "7"},
            "webhooks": [webhook("default.machine.machine.openshift.io"), webhook("default.machineset.machine.openshift.io")]
        });
        assert_eq!(object, expected);
        for index in [0, 1] {
            found["webhooks"][index]["clientConfig"]["caBundle"] = bundle.clone();
        }
        let complete = plan(WebhookRole::Mutating, &service(), Some(&found), trust);
        assert_eq!(complete, RegistrationPlan { object: None, has_own_bundles: true });
        found["webhooks"].as_array_mut().unwrap().pop();
        let incomplete = plan(WebhookRole::Mutating, &service(), Some(&found), trust);
        assert_eq!(incomplete, RegistrationPlan { object: None, has_own_bundles: false });
    }

    #[test]
    fn an_injected_bundle_is_left_alone() {
        let authorities = authorities();
        let mut found = plan(WebhookRole::Mutating, &service(), None, Trust::Authorities(&authorities, NOW));
        let found = found.object.as_mut().unwrap();
        found["metadata"]["annotations"] = json!({INJECT_BUNDLE: "true"});
        found["webhooks"][0]["clientConfig"]["caBundle"] = json!("YWJj");
        for trust in [Trust::Authorities(&authorities, NOW), Trust::Injected] {
            let unchanged = plan(WebhookRole::Mutating, &service(), Some(found), trust);
            assert_eq!(unchanged, RegistrationPlan { object: None, has_own_bundles: false });
        }
        // Another field is repaired without it.
        found["webhooks"][0]["timeoutSeconds"] = json!(1);
        let repaired = plan(WebhookRole::Mutating, &service(), Some(found), Trust::Injected).object.unwrap();
        assert_eq!(repaired["webhooks"][0]["clientConfig"]["caBundle"], "YWJj");
    }

    #[test]
    fn with_a_certificate_of_the_service_ca_the_injection_is_requested() {
        let object = plan(WebhookRole::Mutating, &service(), None, Trust::Injected).object.unwrap();
        assert_eq!(object["metadata"]["annotations"], json!({INJECT_BUNDLE: "true"}));
        assert_eq!(object["webhooks"][0]["clientConfig"].get("caBundle"), None);
        let again = plan(WebhookRole::Mutating, &service(), Some(&object), Trust::Injected);
        assert_eq!(again.object, None);
    }
}
