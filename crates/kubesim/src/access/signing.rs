//! Certificates for approved signing requests, with the rules of the real signers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SignatureAlgorithm,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;

/// The signer of certificates with which kubelets authenticate to the API server.
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of certificates of kubelets' own servers.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signer of certificates of other clients.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
/// How long a certificate is valid unless the request says so.
const VALID: SignedDuration = SignedDuration::from_hours(24 * 365);
/// For clients whose clock is slow.
const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// Whether this server signs requests to a signer.
pub(crate) fn is_served(signer: &str) -> bool {
    matches!(signer, KUBELET_CLIENT | KUBELET_SERVING | CLIENT)
}

/// An approved request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApprovedRequest<'a> {
    /// The name of the signer.
    pub(crate) signer: &'a str,
    /// The request, in PEM.
    pub(crate) pem: &'a [u8],
    /// The usages.
    pub(crate) usages: &'a [&'a str],
    /// The requested duration, if there is one.
    pub(crate) duration: Option<SignedDuration>,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subject {
    common_name: String,
    organizations: Vec<String>,
    dns_names: Vec<String>,
    addresses: Vec<IpAddr>,
    emails: usize,
    uris: usize,
    key: PublicKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PublicKey {
    bits: Vec<u8>,
    algorithm: KeyAlgorithm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAlgorithm {
    P256,
    P384,
    Ed25519,
    Rsa,
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.algorithm {
            KeyAlgorithm::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyAlgorithm::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            KeyAlgorithm::Ed25519 => &rcgen::PKCS_ED25519,
            KeyAlgorithm::Rsa => &rcgen::PKCS_RSA_SHA256,
        }
    }
}

/// Signs a request with the authority of this name and key. The error is the message of the condition `Failed`.
pub(super) fn sign(
    authority: &str,
    key: &str,
    request: &ApprovedRequest<'_>,
    now: Timestamp,
) -> Result<String, String> {
    let subject = parse(request.pem)?;
    validate(request, &subject)?;
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    if let Some(organization) = subject.organizations.first() {
        name.push(DnType::OrganizationName, organization.as_str());
    }
    name.push(DnType::CommonName, subject.common_name.as_str());
    params.distinguished_name = name;
    for dns_name in &subject.dns_names {
        let dns_name = dns_name.as_str().try_into().map_err(|_| format!("invalid DNS name {dns_name:?}"))?;
        params.subject_alt_names.push(SanType::DnsName(dns_name));
    }
    params.subject_alt_names.extend(subject.addresses.iter().copied().map(SanType::IpAddress));
    for usage in request.usages {
        match *usage {
            "digital signature" => params.key_usages.push(KeyUsagePurpose::DigitalSignature),
            "key encipherment" => params.key_usages.push(KeyUsagePurpose::KeyEncipherment),
            "client auth" => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth),
            "server auth" => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth),
            other => return Err(format!("invalid usage for this signer: {other}")),
        }
    }
    params.use_authority_key_identifier_extension = true;
    let end = now.saturating_add(request.duration.unwrap_or(VALID).min(VALID)).unwrap_or(Timestamp::MAX);
    // No clock here shows a time before the epoch.
    let moment = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = moment(now.saturating_sub(BACKDATED).unwrap_or(now));
    params.not_after = moment(end);
    let failed = |error: rcgen::Error| error.to_string();
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name = DistinguishedName::new();
    issuer.distinguished_name.push(DnType::CommonName, authority);
    let issuer = Issuer::new(issuer, KeyPair::from_pem(key).map_err(failed)?);
    Ok(params.signed_by(&subject.key, &issuer).map_err(failed)?.pem())
}

fn parse(pem: &[u8]) -> Result<Subject, String> {
    let malformed = || "unable to parse csr".to_owned();
    let (_, pem) = parse_x509_pem(pem).map_err(|_| malformed())?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|_| malformed())?;
    let info = &request.certification_request_info;
    let algorithm = &info.subject_pki.algorithm;
    let curve = algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    let algorithm = match (&algorithm.algorithm, curve) {
        (kind, Some(curve)) if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == OID_EC_P256 => {
            KeyAlgorithm::P256
        }
        (kind, Some(curve)) if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == OID_NIST_EC_P384 => {
            KeyAlgorithm::P384
        }
        (kind, _) if *kind == OID_SIG_ED25519 => KeyAlgorithm::Ed25519,
        (kind, _) if *kind == OID_PKCS1_RSAENCRYPTION => KeyAlgorithm::Rsa,
        _ => return Err("the type of the key is not supported by this simulated signer".to_owned()),
    };
    let mut subject = Subject {
        common_name: info
            .subject
            .iter_common_name()
            .next()
            .and_then(|name| name.as_str().ok())
            .unwrap_or_default()
            .to_owned(),
        organizations: info
            .subject
            .iter_organization()
            .filter_map(|name| name.as_str().ok())
            .map(str::to_owned)
            .collect(),
        dns_names: Vec::new(),
        addresses: Vec::new(),
        emails: 0,
        uris: 0,
        key: PublicKey { bits: info.subject_pki.subject_public_key.data.to_vec(), algorithm },
    };
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => subject.dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => subject.addresses.extend(address(bytes)),
                GeneralName::RFC822Name(_) => subject.emails += 1,
                GeneralName::URI(_) => subject.uris += 1,
                _ => {}
            }
        }
    }
    Ok(subject)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// The rules of the signer, with the texts of the real one.
fn validate(request: &ApprovedRequest<'_>, subject: &Subject) -> Result<(), String> {
    let is_serving = match request.signer {
        KUBELET_CLIENT => false,
        KUBELET_SERVING => true,
        _ => return validate_client(request, subject),
    };
    if subject.organizations != [NODES] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    let (has_names, has_addresses) = (!subject.dns_names.is_empty(), !subject.addresses.is_empty());
    if is_serving && !has_names && !has_addresses {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    for (is_refused, kind) in [
        (has_names && !is_serving, "DNS"),
        (subject.emails > 0, "Email"),
        (has_addresses && !is_serving, "IP"),
        (subject.uris > 0, "URI"),
    ] {
        if is_refused {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    if !subject.common_name.starts_with(NODE_PREFIX) {
        return Err("subject common name does not begin with system:node:".to_owned());
    }
    let purpose = if is_serving { "server auth" } else { "client auth" };
    let usages: BTreeSet<&str> =
        request.usages.iter().copied().filter(|usage| *usage != "key encipherment").collect();
    if usages != BTreeSet::from(["digital signature", purpose]) {
        let mut wanted = ["digital signature", "key encipherment", purpose];
        wanted.sort_unstable();
        return Err(format!("usages did not match [{}]", wanted.join(" ")));
    }
    Ok(())
}

fn validate_client(request: &ApprovedRequest<'_>, subject: &Subject) -> Result<(), String> {
    if !request.usages.contains(&"client auth") || request.usages.contains(&"server auth") {
        return Err("usages must include \"client auth\" and none of a server".to_owned());
    }
    // The certificate would have another meaning than the request.
    if subject.organizations.len() > 1 {
        return Err("a request with several organizations is not signed by this simulated signer".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(common_name: &str, organization: &str, names: &[&str]) -> String {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    fn signed(signer: &str, pem: &str, usages: &[&str]) -> Result<String, String> {
        let key = KeyPair::generate().unwrap().serialize_pem();
        let request = ApprovedRequest { signer, pem: pem.as_bytes(), usages, duration: None };
        sign("kubernetes", &key, &request, Timestamp::from_second(1_800_000_000).unwrap())
    }

    #[test]
    fn the_requests_of_kubelets_are_checked_by_the_rules_of_their_signers() {
        const AS_CLIENT: [&str; 2] = ["digital signature", "client auth"];
        const AS_SERVER: [&str; 3] = ["key encipherment", "digital signature", "server auth"];
        let (plain, named) =
            (request("system:node:a", NODES, &[]), request("system:node:a", NODES, &["a", "192.0.2.1"]));
        assert!(signed(KUBELET_CLIENT, &plain, &AS_CLIENT).unwrap().contains("BEGIN CERTIFICATE"));
        assert!(signed(KUBELET_SERVING, &named, &AS_SERVER).unwrap().contains("BEGIN CERTIFICATE"));
        let check = |signer: &str, pem: &str, usages: &[&str], expect: &str| {
            assert_eq!(signed(signer, pem, usages), Err(expect.to_owned()));
        };
        check(KUBELET_CLIENT, &named, &AS_CLIENT, "DNS subjectAltNames are not allowed");
        check(KUBELET_SERVING, &plain, &AS_SERVER, "DNS or IP subjectAltName is required");
        let other = request("system:node:a", "other", &[]);
        check(KUBELET_CLIENT, &other, &AS_CLIENT, "subject organization is not system:nodes");
        let person = request("ann", NODES, &[]);
        check(KUBELET_CLIENT, &person, &AS_CLIENT, "subject common name does not begin with system:node:");
        let usages = "usages did not match [client auth digital signature key encipherment]";
        check(KUBELET_CLIENT, &plain, &AS_SERVER, usages);
        check(CLIENT, "nonsense", &AS_CLIENT, "unable to parse csr");
    }
}
