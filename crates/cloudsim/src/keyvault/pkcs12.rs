//! Writes PKCS#12 (RFC 7292) as the secret of a certificate has it: key and certificates without a password.
//!
//! The content is not encrypted, which an empty password would not change, and its MAC is keyed with the empty password, as readers expect.

use hmac::{Hmac, KeyInit as _, Mac as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, DERWriterSeq, Tag};

use crate::failure::Failure;

const DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 1];
const KEY_BAG: &[u64] = &[1, 2, 840, 113_549, 1, 12, 10, 1, 1];
const CERTIFICATE_BAG: &[u64] = &[1, 2, 840, 113_549, 1, 12, 10, 1, 3];
const X509_CERTIFICATE: &[u64] = &[1, 2, 840, 113_549, 1, 9, 22, 1];
const LOCAL_KEY_ID: &[u64] = &[1, 2, 840, 113_549, 1, 9, 21];
const SHA256: &[u64] = &[2, 16, 840, 1, 101, 3, 4, 2, 1];

const MAC_ITERATIONS: u32 = 2048;
/// The empty password as a BMPString with its end.
const PASSWORD: [u8; 2] = [0, 0];
/// The purpose of a derived key: a MAC.
const MAC_PURPOSE: u8 = 3;
/// The block of SHA-256.
const BLOCK_BYTES: usize = 64;

/// The archive of a chain in PEM, the certificate itself first, and of its key where it may be exported.
pub(super) fn archive(key_pem: Option<&str>, chain_pem: &str) -> Result<Vec<u8>, Failure> {
    let broken = |what: &str| Failure::Broken(format!("{what} of a vault cannot be parsed"));
    let key = key_pem
        .map(|it| PrivatePkcs8KeyDer::from_pem_slice(it.as_bytes()))
        .transpose()
        .map_err(|_| broken("a key"))?;
    let chain: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| broken("a certificate"))?;
    let leaf = chain.first().ok_or_else(|| broken("a certificate"))?;
    let key_id = Sha1::digest(leaf).to_vec();
    let safe = safe_contents(key.as_ref().map(PrivatePkcs8KeyDer::secret_pkcs8_der), &chain, &key_id);
    let authenticated = yasna::construct_der(|it| it.write_sequence(|it| write_data(it.next(), &safe)));
    // The same certificate gives the same archive.
    let salt = &key_id[..8];
    let mac = mac(&authenticated, salt)?;
    Ok(yasna::construct_der(|it| {
        it.write_sequence(|it| {
            it.next().write_u8(3);
            write_data(it.next(), &authenticated);
            it.next().write_sequence(|it| {
                it.next().write_sequence(|it| {
                    it.next().write_sequence(|it| {
                        write_oid(it, SHA256);
                        it.next().write_null();
                    });
                    it.next().write_bytes(&mac);
                });
                it.next().write_bytes(salt);
                it.next().write_u32(MAC_ITERATIONS);
            });
        });
    }))
}

fn write_oid(sequence: &mut DERWriterSeq<'_>, oid: &[u64]) {
    sequence.next().write_oid(&ObjectIdentifier::from_slice(oid));
}

/// A `ContentInfo` of plain data.
fn write_data(writer: DERWriter<'_>, content: &[u8]) {
    writer.write_sequence(|it| {
        write_oid(it, DATA);
        it.next().write_tagged(Tag::context(0), |it| it.write_bytes(content));
    });
}

fn safe_contents(key: Option<&[u8]>, chain: &[CertificateDer<'_>], key_id: &[u8]) -> Vec<u8> {
    yasna::construct_der(|it| {
        it.write_sequence(|it| {
            if let Some(key) = key {
                write_bag(it, KEY_BAG, Some(key_id), |it| it.write_der(key));
            }
            for (number, certificate) in chain.iter().enumerate() {
                let of_key = (number == 0 && key.is_some()).then_some(key_id);
                write_bag(it, CERTIFICATE_BAG, of_key, |it| {
                    it.write_sequence(|it| {
                        write_oid(it, X509_CERTIFICATE);
                        it.next().write_tagged(Tag::context(0), |it| it.write_bytes(certificate));
                    });
                });
            }
        });
    })
}

fn write_bag(
    bags: &mut DERWriterSeq<'_>,
    kind: &[u64],
    key_id: Option<&[u8]>,
    value: impl FnOnce(DERWriter<'_>),
) {
    bags.next().write_sequence(|it| {
        write_oid(it, kind);
        it.next().write_tagged(Tag::context(0), value);
        if let Some(key_id) = key_id {
            it.next().write_set_of(|it| {
                it.next().write_sequence(|it| {
                    write_oid(it, LOCAL_KEY_ID);
                    it.next().write_set_of(|it| it.next().write_bytes(key_id));
                });
            });
        }
    });
}

fn mac(content: &[u8], salt: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&mac_key(salt))
        .map_err(|_| Failure::Broken("a MAC key has no valid length".to_owned()))?;
    mac.update(content);
    Ok(mac.finalize().into_bytes().to_vec())
}

/// The key derivation of RFC 7292, appendix B.2, for one block of output.
fn mac_key(salt: &[u8]) -> Vec<u8> {
    let fill = |bytes: &[u8]| -> Vec<u8> { bytes.iter().copied().cycle().take(BLOCK_BYTES).collect() };
    let input = [vec![MAC_PURPOSE; BLOCK_BYTES], fill(salt), fill(&PASSWORD)].concat();
    let mut key = Sha256::digest(&input).to_vec();
    for _ in 1..MAC_ITERATIONS {
        key = Sha256::digest(&key).to_vec();
    }
    key
}
