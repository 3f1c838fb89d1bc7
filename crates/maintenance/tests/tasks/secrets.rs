//! `rotate-tls-secret` on a real cluster.

use api::work::WorkState;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use crate::effects::{create, deployment};
use crate::environment::{real, run_builtin};

/// A certificate and its key.
pub(crate) fn pair(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

pub(crate) async fn secret(api: &Api<Secret>, name: &str, (certificate, key): &(String, String)) {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = json!({"tls.crt": bytes(certificate), "tls.key": bytes(key)});
    create(api, json!({"metadata": {"name": name}, "type": "kubernetes.io/tls", "data": data})).await;
}

pub(crate) async fn certificate_in(api: &Api<Secret>, name: &str) -> String {
    let data = api.get(name).await.unwrap().data.unwrap();
    String::from_utf8(data["tls.crt"].0.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rotate_tls_secret_takes_the_new_pair_over_and_tells_nobody_the_key() {
    let Some(real) = real() else { return };
    let (link, namespace) = (real.link(), real.cluster.namespace("rotate").unwrap());
    let api: Api<Secret> = Api::namespaced(link.client(), &namespace);
    let (old, new) = (pair("web.example"), pair("web.example"));
    secret(&api, "web", &old).await;
    secret(&api, "incoming", &new).await;
    deployment(&link, &namespace, "web", 1, "host").await;
    let parameters = json!({"source": {"namespace": namespace, "name": "incoming"}, "target": {"namespace": namespace, "name": "web"},
        "dnsNames": ["web.example"], "restart": [{"kind": "Deployment", "namespace": namespace, "name": "web"}]});
    let end = run_builtin("rotate-tls-secret", &parameters, &link).await;
    assert_eq!(end.state, WorkState::Completed, "{}", end.messages());
    assert_eq!(certificate_in(&api, "web").await, new.0);
    assert!(api.get_opt("web-before-rotation").await.unwrap().is_none(), "what was kept is forgotten");
    let all = format!("{:?} {:?}", end.work, end.entries);
    let line = |pem: &str| pem.lines().nth(1).unwrap().to_owned();
    assert!(!all.contains(&line(&new.1)) && !all.contains(&line(&old.1)), "no key is in the store");

    // Refused: a key that is not that of the certificate, another name, another fingerprint; nothing is changed.
    secret(&api, "mixed", &(old.0.clone(), new.1.clone())).await;
    let refused = async |source: &str, more: serde_json::Value| {
        let mut given = parameters.clone();
        given["source"]["name"] = json!(source);
        given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let end = run_builtin("rotate-tls-secret", &given, &link).await;
        assert_eq!(end.state, WorkState::Failed);
        end.message()
    };
    assert!(refused("mixed", json!({})).await.contains("the private key does not match the certificate"));
    assert!(
        refused("incoming", json!({"dnsNames": ["other.example"]}))
            .await
            .contains("does not cover other.example")
    );
    assert!(
        refused("incoming", json!({"fingerprint": "ab".repeat(32)}))
            .await
            .contains("not the one in the parameters")
    );
    assert!(refused("absent", json!({})).await.contains("there is no Secret"));
    assert_eq!(certificate_in(&api, "web").await, new.0);
}
