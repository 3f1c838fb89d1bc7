//! Certificates: when one expires, and what a signing request contains. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::{ParsedCriAttribute, X509CriAttribute};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Validity and subject of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// Its subject, as text.
    pub subject: String,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
}

/// Parses the validity of a certificate in DER; `None` if it is not one.
pub(crate) fn validity(der: &[u8]) -> Option<Validity> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let at = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some(Validity {
        subject: certificate.subject().to_string(),
        not_before: at(certificate.validity().not_before)?,
        not_after: at(certificate.validity().not_after)?,
    })
}

/// A server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    /// Validity and subject.
    pub validity: Validity,
    /// Its DNS names.
    pub dns_names: Vec<String>,
    /// The SHA-256 of its DER, in hex.
    pub fingerprint: String,
}

/// Parses a chain of certificates and the private key of the first one, both in PEM, and checks that they match. Errors quote
/// neither.
pub fn pair(certificates: &[u8], key: &[u8]) -> Result<ServerCertificate, &'static str> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.map_err(|_| "the certificate is not PEM")?;
    let first = chain.first().ok_or("there is no certificate in it")?;
    let leaf = leaf(first).ok_or("the certificate cannot be read")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "the private key is not PEM")?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key)
        .map_err(|_| "the private key is of an unsupported type")?;
    rustls::sign::CertifiedKey::new(chain, key)
        .keys_match()
        .map_err(|_| "the private key does not match the certificate")?;
    Ok(leaf)
}

/// The first certificate of a chain in PEM; none if there is none that can be read.
pub fn first_of_pem(certificates: &[u8]) -> Option<ServerCertificate> {
    leaf(&CertificateDer::pem_slice_iter(certificates).next()?.ok()?)
}

fn leaf(der: &[u8]) -> Option<ServerCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let names = certificate.subject_alternative_name().ok()?.map(|it| it.value.general_names.as_slice());
    let dns_names = names.unwrap_or_default().iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    let fingerprint = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
    Some(ServerCertificate { validity: validity(der)?, dns_names: dns_names.collect(), fingerprint })
}

/// Contents of a PKCS#10 request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SigningRequest {
    /// The common names of its subject.
    pub common_names: Vec<String>,
    /// The organizations of its subject.
    pub organizations: Vec<String>,
    /// The DNS names that it asks for.
    pub dns_names: Vec<String>,
    /// The addresses that it asks for.
    pub addresses: Vec<std::net::IpAddr>,
    /// Number of names of any other kind: mail addresses, URIs.
    pub other_names: usize,
}

/// Parses a request in PEM; `None` if it is not one, or if another parser could read another request in it: the approver and the signer
/// must see the same one.
pub fn parse_signing_request(pem: &[u8]) -> Option<SigningRequest> {
    let der = only_block(pem)?;
    let (rest, request) = X509CertificationRequest::from_der(&der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let is_extension_request =
        |it: &&X509CriAttribute<'_>| matches!(it.parsed_attribute(), ParsedCriAttribute::ExtensionRequest(_));
    if request.certification_request_info.iter_attributes().filter(is_extension_request).count() > 1 {
        return None;
    }
    let subject = &request.certification_request_info.subject;
    let mut found = SigningRequest::default();
    for name in subject.iter_common_name() {
        found.common_names.push(name.as_str().ok()?.to_owned());
    }
    for name in subject.iter_organization() {
        found.organizations.push(name.as_str().ok()?.to_owned());
    }
    for extension in request.requested_extensions().into_iter().flatten() {
        let names = match extension {
            ParsedExtension::SubjectAlternativeName(names) => names,
            ParsedExtension::ParseError { .. } => return None,
            _ => continue,
        };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => found.dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => found.addresses.push(address(bytes)?),
                _ => found.other_names += 1,
            }
        }
    }
    Some(found)
}

/// The content of a text that is one block of a request and nothing else. Parsers differ in what they skip before, between and after
/// blocks, so there must be nothing to skip.
fn only_block(pem: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(pem).ok()?.trim_ascii();
    let body = text
        .strip_prefix("-----BEGIN CERTIFICATE REQUEST-----")?
        .strip_suffix("-----END CERTIFICATE REQUEST-----")?;
    // Base64 has no hyphen: neither another boundary nor a header fits in.
    let encoded: String = body.chars().filter(|it| !it.is_ascii_whitespace()).collect();
    STANDARD.decode(encoded).ok()
}

fn address(bytes: &[u8]) -> Option<std::net::IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(Into::into),
        16 => <[u8; 16]>::try_from(bytes).ok().map(Into::into),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    #[test]
    fn the_validity_of_a_certificate_is_parsed() {
        let mut params = CertificateParams::new(vec!["api.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 2);
        params.not_after = rcgen::date_time_ymd(2027, 3, 4);
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        let found = validity(&der).unwrap();
        assert_eq!(found.not_before.to_string(), "2026-01-02T00:00:00Z");
        assert_eq!(found.not_after.to_string(), "2027-03-04T00:00:00Z");
        assert_eq!(validity(b"no certificate"), None);
    }

    /// A request for these names in PEM.
    fn request(names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    #[test]
    fn a_text_in_which_two_requests_could_be_read_is_none() {
        let (harmless, other) = (request(&["worker-1"]), request(&["master-0"]));
        assert_eq!(parse_signing_request(harmless.as_bytes()).unwrap().dns_names, ["worker-1"]);
        assert!(parse_signing_request(format!("\n{harmless}\n\n").as_bytes()).is_some());
        assert!(parse_signing_request(harmless.replace('\n', "\r\n").as_bytes()).is_some());
        // Go skips a block whose labels differ, and reads the next one.
        let disguised = harmless.replace("-----END CERTIFICATE REQUEST-----", "-----END X-----");
        let header = harmless.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1);
        for text in [
            format!("{disguised}{other}"),
            format!("{harmless}{other}"),
            format!("{other}{disguised}"),
            format!("note\n{harmless}"),
            format!("{harmless}note"),
            disguised,
            header,
            harmless.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
        ] {
            assert_eq!(parse_signing_request(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_certificate_must_match_its_key() {
        let made = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let certificate =
                CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let ((certificate, key), (_, other)) = (made("web.example"), made("web.example"));
        let leaf = pair(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(
            (leaf.dns_names.as_slice(), leaf.fingerprint.len()),
            (["web.example".to_owned()].as_slice(), 64)
        );
        let check = |certificate: &str, key: &str, expect| {
            assert_eq!(pair(certificate.as_bytes(), key.as_bytes()), Err(expect));
        };
        check(&certificate, &other, "the private key does not match the certificate");
        check("", &key, "there is no certificate in it");
        check(&certificate, "", "the private key is not PEM");
        check(&key, &key, "there is no certificate in it");
    }

    #[test]
    fn a_signing_request_is_parsed() {
        let mut params = CertificateParams::new(vec!["node-1".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress("10.0.0.7".parse().unwrap()));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:node-1");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let expect = SigningRequest {
            common_names: vec!["system:node:node-1".into()],
            organizations: vec!["system:nodes".into()],
            dns_names: vec!["node-1".into()],
            addresses: vec!["10.0.0.7".parse().unwrap()],
            other_names: 0,
        };
        assert_eq!(parse_signing_request(pem.as_bytes()), Some(expect));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = (validity(&bytes), parse_signing_request(&bytes));
        }
    }
}
