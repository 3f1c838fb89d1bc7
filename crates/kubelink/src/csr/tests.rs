use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use super::*;

/// A request that may be approved; tests change one part of it.
struct RequestFixture {
    signer: &'static str,
    username: &'static str,
    groups: Vec<&'static str>,
    usages: Vec<&'static str>,
    common_name: &'static str,
    organization: &'static str,
    names: Vec<SanType>,
}

fn serving() -> RequestFixture {
    RequestFixture {
        signer: SERVING_SIGNER,
        username: "system:node:node-1",
        groups: vec!["system:nodes", "system:authenticated"],
        usages: vec!["digital signature", "server auth"],
        common_name: "system:node:node-1",
        organization: "system:nodes",
        names: vec![dns("node-1"), SanType::IpAddress("10.0.0.1".parse().unwrap())],
    }
}

fn renewal() -> RequestFixture {
    RequestFixture {
        signer: CLIENT_SIGNER,
        usages: vec!["digital signature", "client auth"],
        names: Vec::new(),
        ..serving()
    }
}

fn first() -> RequestFixture {
    RequestFixture {
        username: "system:bootstrap:abcdef",
        groups: vec!["system:bootstrappers"],
        common_name: "system:node:node-2",
        ..renewal()
    }
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

fn verdict(given: &RequestFixture) -> Result<String, String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, given.common_name);
    params.distinguished_name.push(DnType::OrganizationName, given.organization);
    params.subject_alt_names = given.names.clone();
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let spec = CertificateSigningRequestSpec {
        signer_name: given.signer.into(),
        username: Some(given.username.into()),
        groups: Some(given.groups.iter().map(ToString::to_string).collect()),
        usages: Some(given.usages.iter().map(ToString::to_string).collect()),
        request: ByteString(pem.into_bytes()),
        ..CertificateSigningRequestSpec::default()
    };
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node-1"}, "status": {"addresses": [
        {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "node-1.example"}]}}))
    .unwrap();
    let policy = CsrPolicy {
        expected_nodes: BTreeSet::from(["node-2".to_owned()]),
        bootstrap_groups: BTreeSet::from(["system:bootstrappers".to_owned()]),
        ..CsrPolicy::default()
    };
    let nodes = BTreeMap::from([("node-1".to_owned(), known(&node))]);
    decide(&CertificateSigningRequest { spec, ..CertificateSigningRequest::default() }, &nodes, &policy)
}

fn rejected(given: RequestFixture, because: &str) {
    assert_eq!(verdict(&given), Err(because.to_owned()));
}

#[test]
fn requests_of_known_nodes_are_approved() {
    assert_eq!(verdict(&serving()), Ok("serving certificate of node node-1, with its own names".into()));
    assert_eq!(verdict(&renewal()), Ok("renewed client certificate of node node-1".into()));
    assert_eq!(verdict(&first()), Ok("first client certificate of the expected node node-2".into()));
}

#[test]
fn other_requests_are_left_with_the_reason() {
    rejected(
        RequestFixture { signer: "kubernetes.io/kube-apiserver-client", ..renewal() },
        "signer kubernetes.io/kube-apiserver-client is not one of a node's",
    );
    rejected(
        RequestFixture { common_name: "system:admin", ..renewal() },
        "its common name \"system:admin\" is not that of a node",
    );
    rejected(
        RequestFixture { organization: "system:masters", ..renewal() },
        "its organization is \"system:masters\" instead of system:nodes",
    );
    rejected(
        RequestFixture { usages: vec!["client auth", "cert sign"], ..renewal() },
        "usage \"cert sign\" is more than a node needs",
    );
    rejected(
        RequestFixture { usages: vec!["digital signature"], ..renewal() },
        "usage \"client auth\" is missing",
    );
    rejected(
        RequestFixture { usages: vec!["client auth", "server auth"], ..renewal() },
        "usage \"server auth\" is more than a node needs",
    );
    rejected(
        RequestFixture { names: vec![dns("api")], ..renewal() },
        "a client certificate needs no names or addresses, but it requests some",
    );
    rejected(
        RequestFixture { username: "system:node:node-9", ..renewal() },
        "\"system:node:node-9\" may not request a client certificate of node node-1",
    );
    rejected(
        RequestFixture { groups: vec![], ..renewal() },
        "\"system:node:node-1\" may not request a client certificate of node node-1",
    );
    rejected(RequestFixture { common_name: "system:node:node-3", ..first() }, "node node-3 is not expected");
    rejected(
        RequestFixture { groups: vec!["system:authenticated"], ..first() },
        "\"system:bootstrap:abcdef\" may not request a client certificate of node node-2",
    );
    let other = "\"alice\" requests a serving certificate of node node-1, which only the node itself may";
    rejected(RequestFixture { username: "alice", ..serving() }, other);
    rejected(
        RequestFixture { names: vec![dns("kubernetes")], ..serving() },
        "DNS name kubernetes is not one of node node-1",
    );
    let address = SanType::IpAddress("10.0.0.2".parse().unwrap());
    rejected(
        RequestFixture { names: vec![address], ..serving() },
        "address 10.0.0.2 is not one of node node-1",
    );
    rejected(RequestFixture { names: vec![], ..serving() }, "it requests no name and no address");
    let mail = SanType::Rfc822Name("a@example".try_into().unwrap());
    rejected(
        RequestFixture { names: vec![dns("node-1"), mail], ..serving() },
        "it requests names other than DNS names and addresses",
    );
}

#[test]
fn an_unreadable_request_is_left() {
    let spec = CertificateSigningRequestSpec {
        signer_name: CLIENT_SIGNER.into(),
        request: ByteString(b"x".to_vec()),
        ..Default::default()
    };
    let request = CertificateSigningRequest { spec, ..CertificateSigningRequest::default() };
    let said = decide(&request, &BTreeMap::new(), &CsrPolicy::default());
    assert_eq!(said, Err("it contains no readable PEM request".to_owned()));
}
