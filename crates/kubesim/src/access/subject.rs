//! The subject of a certificate: its common name is the user, its organizations are the groups.

use super::user::{AUTHENTICATED, User};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xa0;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The user in the subject of a certificate, if it has one.
pub(super) fn user(certificate: &[u8]) -> Option<User> {
    let (mut name, mut groups) = (None, Vec::new());
    let (_, whole, _) = element(certificate)?;
    let (_, mut signed, _) = element(whole)?;
    let (tag, _, after) = element(signed)?;
    if tag == VERSION {
        signed = after;
    }
    // Serial number, algorithm, issuer, validity; then the subject.
    for _ in 0..4 {
        (_, _, signed) = element(signed)?;
    }
    let (SEQUENCE, mut subject, _) = element(signed)? else { return None };
    while !subject.is_empty() {
        let (SET, mut set, rest) = element(subject)? else { return None };
        while !set.is_empty() {
            let (SEQUENCE, pair, others) = element(set)? else { return None };
            let (OBJECT_IDENTIFIER, identifier, value) = element(pair)? else { return None };
            let (_, text, _) = element(value)?;
            let text = String::from_utf8_lossy(text).into_owned();
            match identifier {
                COMMON_NAME => name = Some(text),
                ORGANIZATION => groups.push(text),
                _ => {}
            }
            set = others;
        }
        subject = rest;
    }
    groups.push(AUTHENTICATED.to_owned());
    Some(User::new(&name?, groups))
}

/// The tag, the contents and the rest after the first element in DER.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if count > 4 {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(count)?;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::access::Access;

    #[test]
    fn the_administrators_certificate_authenticates_the_administrator() {
        let access = Access::open(None).unwrap();
        let certificate = CertificateDer::from_pem_slice(access.keys.admin.as_bytes()).unwrap();
        let user = access.authenticate_certificate(&[certificate]).unwrap();
        assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
        assert_eq!(User { extra: Default::default(), ..user }, User::admin());
    }

    #[test]
    fn a_certificate_of_another_cluster_is_rejected() {
        let (access, other) = (Access::open(None).unwrap(), Access::open(None).unwrap());
        let certificate = CertificateDer::from_pem_slice(other.keys.admin.as_bytes()).unwrap();
        assert_eq!(access.authenticate_certificate(&[certificate]), None);
        assert_eq!(access.authenticate_token(&other.keys.token), None);
    }

    proptest! {
        #[test]
        fn no_certificate_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = user(&bytes);
        }
    }
}
