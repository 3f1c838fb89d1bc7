//! The certificates of one cluster, generated for each.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its private key, as PEM.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// The certificate authority of one cluster. All keys are P-256.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> anyhow::Result<Authority> {
        let mut parameters = named("shipshape-test-ca", None)?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)
            .context("failed to create the certificate authority")?;
        Ok(Authority { issuer })
    }

    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The API server's certificate, for loopback and for its names inside the cluster.
    pub(super) fn server(&self) -> anyhow::Result<Identity> {
        let names = ["127.0.0.1", "localhost", "10.0.0.1", "kubernetes.default.svc"];
        let mut parameters = CertificateParams::new(names.map(str::to_owned))?;
        parameters.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        self.sign(parameters, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client certificate. Kubernetes reads the user from the common name and the groups from the organizations.
    pub(super) fn client(&self, user: &str, group: Option<&str>) -> anyhow::Result<Identity> {
        self.sign(named(user, group)?, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        mut parameters: CertificateParams,
        purpose: ExtendedKeyUsagePurpose,
    ) -> anyhow::Result<Identity> {
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![purpose];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate =
            parameters.signed_by(&key, &self.issuer).context("failed to sign the certificate")?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// The key that signs tokens of service accounts, as PEM.
pub(super) struct SigningKey {
    pub(super) private: String,
    pub(super) public: String,
}

impl SigningKey {
    pub(super) fn new() -> anyhow::Result<SigningKey> {
        let key = KeyPair::generate()?;
        Ok(SigningKey { private: key.serialize_pem(), public: key.public_key_pem() })
    }
}

fn named(name: &str, group: Option<&str>) -> anyhow::Result<CertificateParams> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        parameters.distinguished_name.push(DnType::OrganizationName, group);
    }
    Ok(parameters)
}

/// A kubeconfig with everything inline.
pub(super) fn kubeconfig(url: &str, authority: &str, identity: &Identity) -> String {
    let authority = STANDARD.encode(authority);
    let certificate = STANDARD.encode(&identity.certificate);
    let key = STANDARD.encode(&identity.key);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: {url}
    certificate-authority-data: {authority}
users:
- name: admin
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: test
  context:
    cluster: test
    user: admin
current-context: test
"
    )
}
