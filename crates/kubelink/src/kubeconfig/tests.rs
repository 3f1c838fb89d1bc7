use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A certificate and its key in PEM, and both as base64.
fn identity() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["api.example".to_owned()]).unwrap().self_signed(&key).unwrap();
    (BASE64.encode(certificate.pem()), BASE64.encode(key.serialize_pem()))
}

fn sound() -> Value {
    let (certificate, key) = identity();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "prod",
        "contexts": [
            {"name": "prod", "context": {"cluster": "blue", "user": "admin"}},
            {"name": "other", "context": {"cluster": "blue", "user": "token", "namespace": "apps"}},
        ],
        "clusters": [{"name": "blue", "cluster": {"server": "https://api.example:6443", "certificate-authority-data": certificate}}],
        "users": [
            {"name": "admin", "user": {"client-certificate-data": certificate, "client-key-data": key}},
            {"name": "token", "user": {"token": "hunter2"}},
        ],
    })
}

fn parse(document: &Value) -> Result<Kubeconfig, KubeconfigError> {
    Kubeconfig::parse(&document.to_string(), None, &AllowedRisks::nothing())
}

/// The kubeconfig after one change is rejected with this sentence.
fn rejected(change: impl FnOnce(&mut Value), because: &str) {
    let mut document = sound();
    change(&mut document);
    let said = parse(&document).expect_err(because).to_string();
    assert_eq!(said, format!("the kubeconfig is rejected: {because}"));
}

#[test]
fn a_self_contained_kubeconfig_is_accepted() {
    let document = sound();
    let current = parse(&document).unwrap();
    assert_eq!(current.context(), "prod");
    assert_eq!(current.server().to_string(), "https://api.example:6443/");
    assert_eq!(current.namespace(), "default");
    let named = Kubeconfig::parse(&document.to_string(), Some("other"), &AllowedRisks::nothing()).unwrap();
    assert_eq!(named.namespace(), "apps");
    assert_ne!(named.digest(), current.digest());
}

#[test]
fn the_reduced_document_parses_to_the_same_and_contains_nothing_else() {
    let document = sound();
    let named = Kubeconfig::parse(&document.to_string(), Some("other"), &AllowedRisks::nothing()).unwrap();
    let kept = named.document().expose();
    assert!(!kept.contains("client-key-data"), "another user's key is kept");
    let again = Kubeconfig::parse(kept, None, &AllowedRisks::nothing()).unwrap();
    assert_eq!(again.digest(), named.digest());
}

#[test]
fn a_changed_credential_changes_the_digest() {
    let mut document = sound();
    document["current-context"] = json!("other");
    let before = parse(&document).unwrap();
    document["users"][1]["user"]["token"] = json!("hunter3");
    assert_ne!(parse(&document).unwrap().digest(), before.digest());
}

#[test]
fn each_risk_is_rejected_by_name_unless_it_is_allowed() {
    let user = |field: &'static str, value: Value| {
        move |document: &mut Value| document["users"][0]["user"][field] = value
    };
    let cluster = |field: &'static str, value: Value| {
        move |document: &mut Value| document["clusters"][0]["cluster"][field] = value
    };
    type Change = Box<dyn Fn(&mut Value)>;
    let cases: Vec<(Change, &str, KubeconfigRisk)> = vec![
        (
            Box::new(move |d| user("exec", json!({"command": "sh"}))(d)),
            "user \"admin\" uses exec",
            KubeconfigRisk::Exec,
        ),
        (
            Box::new(move |d| user("auth-provider", json!({"name": "gcp", "config": {}}))(d)),
            "user \"admin\" uses auth-provider",
            KubeconfigRisk::AuthProvider,
        ),
        (
            Box::new(move |d| user("tokenFile", json!("/etc/token"))(d)),
            "user \"admin\" uses tokenFile",
            KubeconfigRisk::TokenFile,
        ),
        (
            Box::new(move |d| user("client-certificate", json!("/etc/passwd"))(d)),
            "user \"admin\" uses client-certificate",
            KubeconfigRisk::FilePath,
        ),
        (
            Box::new(move |d| user("client-key", json!("/etc/passwd"))(d)),
            "user \"admin\" uses client-key",
            KubeconfigRisk::FilePath,
        ),
        (
            Box::new(move |d| cluster("certificate-authority", json!("/etc/passwd"))(d)),
            "cluster \"blue\" uses certificate-authority",
            KubeconfigRisk::FilePath,
        ),
        (
            Box::new(move |d| cluster("proxy-url", json!("http://proxy.example:3128"))(d)),
            "cluster \"blue\" uses proxy-url",
            KubeconfigRisk::ProxyUrl,
        ),
        (
            Box::new(move |d| cluster("insecure-skip-tls-verify", json!(true))(d)),
            "cluster \"blue\" uses insecure-skip-tls-verify",
            KubeconfigRisk::InsecureTls,
        ),
    ];
    for (change, because, risk) in cases {
        let mut document = sound();
        change(&mut document);
        let said = parse(&document).expect_err(because).to_string();
        assert!(
            said.contains(because) && said.contains("; accepted is ") && said.contains(risk.name()),
            "{said}"
        );
        let others = KubeconfigRisk::ALL.into_iter().filter(|other| *other != risk).collect();
        Kubeconfig::parse(&document.to_string(), None, &others).expect_err("allowed by another name");
        Kubeconfig::parse(&document.to_string(), None, &AllowedRisks::from_iter([risk])).expect(because);
    }
}

#[test]
fn risks_of_other_contexts_are_ignored() {
    let mut document = sound();
    document["users"][1]["user"]["exec"] = json!({"command": "sh"});
    parse(&document).unwrap();
}

#[test]
fn each_error_is_one_sentence() {
    rejected(
        |d| d["current-context"] = json!(""),
        "it has no current-context, so name one of its contexts (prod, other)",
    );
    rejected(|d| d["current-context"] = json!("x"), "it has no context \"x\"; its contexts are: prod, other");
    rejected(
        |d| d["clusters"] = json!([]),
        "context \"prod\" names cluster \"blue\", which it does not have",
    );
    rejected(|d| d["users"] = json!([]), "context \"prod\" names user \"admin\", which it does not have");
    let server =
        |value: &'static str| move |d: &mut Value| d["clusters"][0]["cluster"]["server"] = json!(value);
    rejected(server(""), "cluster \"blue\" has no server; accepted is an https:// URL");
    rejected(
        server("http://api.example"),
        "the server of cluster \"blue\" is an http:// URL, which is not encrypted; accepted is https://",
    );
    rejected(server("not a url"), "the server of cluster \"blue\" is not a URL; accepted is an https:// URL");
    rejected(
        server("api.example:6443"),
        "the server of cluster \"blue\" is not a URL; accepted is an https:// URL",
    );
    rejected(
        server("https://me:secret@api.example"),
        "the server of cluster \"blue\" must be https://HOST[:PORT] and no more",
    );
    let authority = |value: String| {
        move |d: &mut Value| d["clusters"][0]["cluster"]["certificate-authority-data"] = json!(value)
    };
    rejected(authority("%%%".into()), "certificate-authority-data of cluster \"blue\" is not base64");
    rejected(
        authority(BASE64.encode("x")),
        "certificate-authority-data of cluster \"blue\" is not a certificate in PEM",
    );
    let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    rejected(
        authority(BASE64.encode(hollow)),
        "certificate-authority-data of cluster \"blue\" contains something that is not an X.509 certificate",
    );
    let user = |field: &'static str, value: Value| move |d: &mut Value| d["users"][0]["user"][field] = value;
    rejected(
        user("client-key-data", json!(BASE64.encode("x"))),
        "client-key-data of user \"admin\" is not a private key in PEM (PKCS#8, PKCS#1 or SEC1)",
    );
    rejected(
        user("client-key-data", Value::Null),
        "user \"admin\" has client-certificate-data but no client-key-data",
    );
    rejected(
        |d| d["users"][0]["user"] = json!({}),
        "user \"admin\" has no credential; accepted is a token, or client-certificate-data with client-key-data",
    );
}

#[test]
fn errors_and_debug_output_contain_no_secret() {
    let mut document = sound();
    document["current-context"] = json!("other");
    let parsed = parse(&document).unwrap();
    assert!(!format!("{parsed:?}").contains("hunter2"));
    for broken in ["users: [{name: a, user: {token: [hunter2]}}]", "token: hunter2: :", "hunter2"] {
        let error = Kubeconfig::parse(broken, None, &AllowedRisks::nothing()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[test]
fn a_huge_kubeconfig_is_not_parsed() {
    let error = Kubeconfig::parse(&"#".repeat(SIZE_MAX + 1), None, &AllowedRisks::nothing()).unwrap_err();
    assert!(error.to_string().contains("at most 1048576"), "{error}");
}

proptest! {
    #[test]
    fn garbage_never_panics(text in "\\PC{0,200}", tail in any::<Vec<u8>>()) {
        let _ = Kubeconfig::parse(&text, None, &AllowedRisks::nothing());
        let _ = Kubeconfig::parse(&String::from_utf8_lossy(&tail), Some("prod"), &AllowedRisks::nothing());
    }

    #[test]
    fn a_mangled_kubeconfig_never_panics(at in 0usize..2000, cut in 0usize..20, put in "\\PC{0,5}") {
        let text = json!({
            "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "https://a", "certificate-authority-data": "LS0t"}}],
            "users": [{"name": "a", "user": {"token": "t", "client-key-data": "LS0t", "client-certificate-data": "LS0t"}}],
        }).to_string();
        let chars: Vec<char> = text.chars().collect();
        let at = at % chars.len();
        let end = (at + cut).min(chars.len());
        let mangled: String = chars[..at].iter().copied().chain(put.chars()).chain(chars[end..].iter().copied()).collect();
        let _ = Kubeconfig::parse(&mangled, None, &AllowedRisks::nothing());
    }
}
