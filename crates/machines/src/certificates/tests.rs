//! Which certificate requests are approved.

use std::sync::Arc;

use api::crd::machine::Machine;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use super::decide::{
    CLIENT_SIGNER, Cluster, Decision, SERVING_SIGNER, decide, is_recently_pending, too_many_pending,
};
use crate::merge::merge_over;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn pem(common_name: &str, organization: &str, names: &[&str], addresses: &[&str]) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let names = names.iter().map(|name| SanType::DnsName((*name).try_into().unwrap()));
    let addresses = addresses.iter().map(|address| SanType::IpAddress(address.parse().unwrap()));
    params.subject_alt_names = names.chain(addresses).collect();
    let key = KeyPair::generate().unwrap();
    params.serialize_request(&key).unwrap().pem().unwrap().into_bytes()
}

fn request(signer: &str, pem: Vec<u8>, over: Value) -> CertificateSigningRequest {
    let bootstrap = signer == CLIENT_SIGNER;
    let (user, groups) = if bootstrap {
        (
            "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
            json!([
                "system:serviceaccounts",
                "system:serviceaccounts:openshift-machine-config-operator",
                "system:authenticated"
            ]),
        )
    } else {
        ("system:node:worker-0", json!(["system:nodes", "system:authenticated"]))
    };
    let usage = if bootstrap { "client auth" } else { "server auth" };
    let mut value = json!({
        "metadata": {"name": "csr-1", "creationTimestamp": "2026-03-01T11:59:00Z"},
        "spec": {"signerName": signer, "username": user, "groups": groups, "request": ByteString(pem),
            "usages": ["digital signature", usage]},
    });
    merge_over(&mut value, &over);
    serde_json::from_value(value).unwrap()
}

fn client(over: Value) -> CertificateSigningRequest {
    request(CLIENT_SIGNER, pem("system:node:worker-0", "system:nodes", &[], &[]), over)
}

fn serving(names: &[&str], addresses: &[&str], over: Value) -> CertificateSigningRequest {
    request(SERVING_SIGNER, pem("system:node:worker-0", "system:nodes", names, addresses), over)
}

fn machine(over: Value) -> Arc<Machine> {
    let mut value = json!({
        "metadata": {"name": "w0", "namespace": "m", "creationTimestamp": "2026-03-01T11:50:00Z"},
        "spec": {},
        "status": {"addresses": [
            {"type": "InternalDNS", "address": "worker-0"}, {"type": "InternalIP", "address": "10.0.0.4"},
            {"type": "ExternalDNS", "address": "worker-0.example.com"},
        ]},
    });
    merge_over(&mut value, &over);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn decided(request: &CertificateSigningRequest, machine: Arc<Machine>, nodes: &[&str]) -> Decision {
    let machines = [machine];
    decide(request, &Cluster { machines: &machines, has_node: &|name| nodes.contains(&name) }, now())
}

fn rejects(decision: Decision, expect: &str) {
    assert!(matches!(&decision, Decision::Reject(why) if why.contains(expect)), "{decision:?}");
}

#[test]
fn the_first_certificate_of_a_machine_without_a_node_is_approved() {
    assert!(matches!(decided(&client(json!({})), machine(json!({})), &[]), Decision::Approve(_)));
    let hostname = json!({"status": {"addresses": [{"type": "Hostname", "address": "worker-0"}]}});
    assert!(matches!(decided(&client(json!({})), machine(hostname), &[]), Decision::Approve(_)));
}

#[test]
fn a_first_certificate_waits_for_its_machine() {
    let other = json!({"status": {"addresses": [{"type": "InternalDNS", "address": "worker-1"}]}});
    assert!(matches!(decided(&client(json!({})), machine(other), &[]), Decision::Wait(_)));
    let external = json!({"status": {"addresses": [{"type": "ExternalDNS", "address": "worker-0"}]}});
    assert!(matches!(decided(&client(json!({})), machine(external), &[]), Decision::Wait(_)));
    let linked = json!({"status": {"nodeRef": {"name": "worker-0"}}});
    assert!(matches!(decided(&client(json!({})), machine(linked), &[]), Decision::Wait(_)));
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-03-01T11:59:00Z"}});
    assert!(matches!(decided(&client(json!({})), machine(deleted), &[]), Decision::Wait(_)));
}

#[test]
fn a_first_certificate_of_an_existing_node_is_rejected() {
    rejects(decided(&client(json!({})), machine(json!({})), &["worker-0"]), "exists");
}

#[test]
fn a_first_certificate_is_approved_only_soon_after_the_creation_of_its_machine() {
    let created = |time: &str| machine(json!({"metadata": {"creationTimestamp": time}}));
    let of = |time: &str| decided(&client(json!({})), created(time), &[]);
    rejects(of("2026-03-01T09:58:59Z"), "within 2 hours");
    rejects(of("2026-03-01T11:59:11Z"), "within 2 hours");
    assert!(matches!(of("2026-03-01T11:59:09Z"), Decision::Approve(_)));
    assert!(matches!(of("2026-03-01T09:59:01Z"), Decision::Approve(_)));
}

#[test]
fn a_first_certificate_contains_only_what_a_node_needs() {
    let of = |request: &CertificateSigningRequest| decided(request, machine(json!({})), &[]);
    let with = |pem: Vec<u8>| request(CLIENT_SIGNER, pem, json!({}));
    rejects(of(&with(pem("system:node:worker-0", "system:masters", &[], &[]))), "system:masters");
    rejects(of(&with(pem("system:admin", "system:nodes", &[], &[]))), "not that of a node");
    rejects(of(&with(pem("system:node:worker-0", "system:nodes", &["x.example.com"], &[]))), "no names");
    rejects(of(&with(b"nonsense".to_vec())), "no readable PEM");
    let usages = |usages: Value| client(json!({"spec": {"usages": usages}}));
    rejects(of(&usages(json!(["client auth", "cert sign"]))), "cert sign");
    rejects(of(&usages(json!(["digital signature"]))), "missing");
    rejects(of(&client(json!({"spec": {"groups": ["system:authenticated"]}}))), "not in group");
}

#[test]
fn requests_of_others_and_decided_ones_are_left_alone() {
    let of = |request: &CertificateSigningRequest| decided(request, machine(json!({})), &[]);
    assert_eq!(of(&client(json!({"spec": {"username": "mallory"}}))), Decision::Ignore);
    assert_eq!(of(&client(json!({"spec": {"signerName": "example.com/other"}}))), Decision::Ignore);
    for decided in ["Approved", "Denied", "Failed"] {
        let status = json!({"status": {"conditions": [{"type": decided, "status": "True"}]}});
        assert_eq!(of(&client(status)), Decision::Ignore);
    }
}

#[test]
fn a_serving_certificate_has_the_names_and_addresses_of_its_machine() {
    let linked = || machine(json!({"status": {"nodeRef": {"name": "worker-0"}}}));
    let of = |request: &CertificateSigningRequest| decided(request, linked(), &["worker-0"]);
    let all = serving(&["worker-0", "worker-0.example.com"], &["10.0.0.4"], json!({}));
    assert!(matches!(of(&all), Decision::Approve(_)));
    assert!(matches!(of(&serving(&["other"], &[], json!({}))), Decision::Wait(_)));
    assert!(matches!(of(&serving(&[], &["10.0.0.5"], json!({}))), Decision::Wait(_)));
    rejects(of(&serving(&[], &[], json!({}))), "no name");
    let author = |user: &str| serving(&["worker-0"], &[], json!({"spec": {"username": user}}));
    rejects(of(&author("system:node:worker-1")), "only the node itself");
    assert!(matches!(decided(&all, machine(json!({})), &["worker-0"]), Decision::Wait(_)));
}

#[test]
fn a_flood_of_requests_stops_approval() {
    assert!(is_recently_pending(&client(json!({})), now()));
    assert!(!is_recently_pending(
        &client(json!({"metadata": {"creationTimestamp": "2026-03-01T10:59:00Z"}})),
        now()
    ));
    assert_eq!(too_many_pending(105, 5, 3), None);
    assert!(too_many_pending(106, 5, 3).unwrap().contains("106"));
}
