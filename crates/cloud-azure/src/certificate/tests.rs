//! Tests of assertions, with certificates that are made here.

use std::sync::LazyLock;

use jsonwebtoken::{Validation, decode, decode_header};
use rcgen::{CertificateParams, KeyPair};
use rsa::pkcs8::{EncodePrivateKey as _, LineEnding};
use serde_json::Value;

use super::*;

static KEYS: LazyLock<[String; 2]> = LazyLock::new(|| {
    [(); 2].map(|()| {
        let key = rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048).unwrap();
        key.to_pkcs8_pem(LineEnding::LF).unwrap().to_string()
    })
});

fn keys() -> (&'static str, &'static str) {
    (&KEYS[0], &KEYS[1])
}

fn certificate(key: &str, from: (i32, u8, u8), until: (i32, u8, u8)) -> String {
    let mut params = CertificateParams::new(vec!["app".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
    params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
    params.self_signed(&KeyPair::from_pem(key).unwrap()).unwrap().pem()
}

fn valid(key: &str) -> String {
    certificate(key, (2020, 1, 1), (2999, 1, 1))
}

fn assertion(pem: &str) -> Result<CertificateAssertion, SettingsError> {
    CertificateAssertion::new(
        &Secret::new(pem.to_owned()),
        "app",
        "https://login.example/t/oauth2/v2.0/token",
    )
}

#[test]
fn an_assertion_is_signed_by_the_key_of_its_certificate() {
    let (key, other_key) = keys();
    let (leaf, issuer) = (valid(key), valid(other_key));
    // In every order, with the line ends of any system.
    for pem in [
        format!("{leaf}{issuer}{key}"),
        format!("{key}{leaf}{issuer}"),
        format!("{leaf}{key}{issuer}").replace('\n', "\r\n"),
    ] {
        let token = assertion(&pem).unwrap().sign().unwrap();
        let header = decode_header(&token).unwrap();
        let der: Vec<CertificateDer<'_>> =
            CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(header.alg, Algorithm::RS256);
        assert_eq!(header.x5t.unwrap(), URL_SAFE_NO_PAD.encode(sha1::Sha1::digest(&der[0])));
        assert_eq!(header.x5c.unwrap(), der.iter().map(|it| STANDARD.encode(it)).collect::<Vec<_>>());
        let (_, parsed) = X509Certificate::from_der(&der[0]).unwrap();
        let Ok(PublicKey::RSA(public)) = parsed.public_key().parsed() else { panic!("RSA") };
        let public = DecodingKey::from_rsa_raw_components(strip_zeros(public.modulus), public.exponent);
        let mut validation = Validation::new(Algorithm::RS256);
        validation.set_audience(&["https://login.example/t/oauth2/v2.0/token"]);
        validation.set_issuer(&["app"]);
        let claims = decode::<Value>(&token, &public, &validation).unwrap().claims;
        assert_eq!((&claims["sub"], claims["jti"].as_str().unwrap().len()), (&Value::from("app"), 36));
        assert!(claims["exp"].as_u64().unwrap() > claims["iat"].as_u64().unwrap());
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_one_sentence() {
    let check = |pem: String, expect: &str| {
        let error = assertion(&pem).unwrap_err().to_string();
        assert!(
            error.starts_with("setting client_certificate_file: holds ") && error.contains(expect),
            "{error}"
        );
        // Neither key nor certificate is repeated.
        assert!(!error.contains("-----") && error.len() < 150, "{error}");
    };
    let (key, other_key) = keys();
    check(key.to_owned(), "no certificate");
    check(String::new(), "no certificate");
    check(valid(key), "no private key");
    check(format!("{}{other_key}", valid(key)), "a private key of another certificate");
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    check(format!("{}{encrypted}", valid(key)), "an encrypted private key");
    check(
        format!("{}{key}", certificate(key, (2020, 1, 1), (2021, 1, 1))),
        "expired at 2021-01-01T00:00:00Z",
    );
    check(format!("{}{key}", certificate(key, (2990, 1, 1), (2999, 1, 1))), "is valid from 2990");
    let elliptic = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&elliptic).unwrap().pem();
    check(format!("{own}{}", elliptic.serialize_pem()), "not RSA");
}

#[test]
fn keys_do_not_show() {
    let (key, _) = keys();
    let assertion = assertion(&format!("{}{key}", valid(key))).unwrap();
    let secret = key.lines().nth(3).unwrap();
    assert!(!format!("{assertion:?}").contains(secret));
}
