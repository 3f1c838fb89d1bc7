//! The token issuer of a cluster with managed identities: the cloud's directory accepts tokens with the cluster's key, and no others.

use api::doc::{Identity, Verb, secrets};
use api::secret::Secret;
use cloud::{CloudError, Credential, Identities as _};
use cloud_azure::{AzureClient, ServiceCredential};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

use crate::environment::TestEnvironment;

const ACCOUNT: &str = "system:serviceaccount:openshift-machine-api:machine-api-controllers";

/// An identity of an operator, as a pod in the cluster uses it.
struct OperatorIdentity<'a> {
    environment: &'a TestEnvironment,
    client_id: String,
    issuer: String,
}

impl OperatorIdentity<'_> {
    /// The object id to which a token of the service account is exchanged.
    async fn exchange(&self, signing_key: &[u8]) -> Result<String, CloudError> {
        let expires = self.environment.clock.now().as_second() + 600;
        let claims = json!({"iss": self.issuer, "sub": ACCOUNT, "aud": ["openshift"], "exp": expires});
        let key = EncodingKey::from_rsa_pem(signing_key).unwrap();
        let token = jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &key).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let token_file = directory.path().join("token");
        std::fs::write(&token_file, token).unwrap();
        let endpoints = self.environment.cloud.endpoints();
        let ca = std::fs::read_to_string(&endpoints.ca_file).unwrap();
        let mut settings = endpoints.settings(Secret::new("none".to_owned()), ca).unwrap();
        let client_id = self.client_id.clone();
        settings.credential = ServiceCredential::WorkloadIdentity { client_id, token_file };
        let client = AzureClient::new(settings).unwrap();
        client.principal(&Credential::Service).await.map(|it| it.object_id)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_cluster_are_verified_with_its_published_keys_until_it_is_deleted() {
    let environment = TestEnvironment::new().await;
    let (_stop, _backend) = environment.backend();
    let (id, made) = environment.create_workload("issuing").await;
    environment.succeeds(made).await;
    let provisioned = environment.cluster(id).await.unwrap().document.provisioned.unwrap();
    let issuer = provisioned.record.oidc_issuer.unwrap();
    assert_eq!(issuer, format!("{}/{id}", environment.cloud.endpoints().issuer_url));
    let Identity::Workload { platform, .. } = provisioned.spec.identity else {
        panic!("the cluster uses managed identities")
    };
    let identity = &platform["machine-api"];
    let client_id = identity.client_id.clone().unwrap();
    let operator = OperatorIdentity { environment: &environment, client_id, issuer };

    let key = environment.store.secret(id, secrets::BOUND_SIGNING_KEY).await.unwrap().unwrap();
    assert_eq!(operator.exchange(key.expose()).await.unwrap(), identity.object_id.clone().unwrap());
    // The key of another cluster.
    let (other, made) = environment.create_workload("other").await;
    environment.succeeds(made).await;
    let foreign = environment.store.secret(other, secrets::BOUND_SIGNING_KEY).await.unwrap().unwrap();
    let error = operator.exchange(foreign.expose()).await.unwrap_err();
    assert!(matches!(&error, CloudError::Credential { why, .. } if why.contains("700027")), "{error}");

    // The federated credentials outlive the documents, if their deletion fails: still no token is accepted.
    let issuers = environment.cloud.cloud().issuers.unwrap();
    issuers.withdraw(&id.to_string()).await.unwrap();
    let error = operator.exchange(key.expose()).await.unwrap_err();
    assert!(matches!(&error, CloudError::Busy { code, .. } if code == "AADSTS90061"), "{error}");

    let removed = environment.change(other, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    assert!(!issuers.is_published(&other.to_string()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_storage_for_issuers_names_the_setting_and_deletes_what_it_made() {
    let environment = TestEnvironment::new().await;
    let mut deps = environment.deps();
    deps.cloud.issuers = None;
    let (_stop, _backend) = environment.backend_with(deps);
    let (id, made) = environment.create_workload("homeless").await;
    let ended = environment.finished(made).await;
    // It is no fault of the customer, who reads of an internal error; the operator reads the setting.
    assert_eq!(ended.error.unwrap().code, "InternalServerError");
    let result = environment.store.work(made).await.unwrap().unwrap().result.unwrap();
    assert!(format!("{result:?}").contains("setting issuer_account"), "{result:?}");
    let removed = environment.change(id, Verb::Delete, |_| ()).await;
    environment.succeeds(removed).await;
    let left = environment.remaining_resources("homeless", id, crate::environment::SUBSCRIPTION).await;
    assert_eq!(left, Vec::<String>::new());
}
