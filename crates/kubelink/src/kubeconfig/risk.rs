//! Risks of kubeconfigs that an operator may allow, each by name.

use std::collections::BTreeSet;
use std::str::FromStr;

/// What a kubeconfig may do only if the configuration allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KubeconfigRisk {
    /// `exec`: runs a program on this host.
    Exec,
    /// `auth-provider`: runs a program or calls a third party.
    AuthProvider,
    /// `tokenFile`: reads a file of this host.
    TokenFile,
    /// `certificate-authority`, `client-certificate`, `client-key`: read files of this host.
    FilePath,
    /// `proxy-url`: sends everything through a third party.
    ProxyUrl,
    /// `insecure-skip-tls-verify`: accepts any server.
    InsecureTls,
}

impl KubeconfigRisk {
    pub(super) const ALL: [KubeconfigRisk; 6] = [
        KubeconfigRisk::Exec,
        KubeconfigRisk::AuthProvider,
        KubeconfigRisk::TokenFile,
        KubeconfigRisk::FilePath,
        KubeconfigRisk::ProxyUrl,
        KubeconfigRisk::InsecureTls,
    ];

    /// The name by which a configuration allows it.
    pub fn name(self) -> &'static str {
        match self {
            KubeconfigRisk::Exec => "exec",
            KubeconfigRisk::AuthProvider => "auth-provider",
            KubeconfigRisk::TokenFile => "token-file",
            KubeconfigRisk::FilePath => "file-path",
            KubeconfigRisk::ProxyUrl => "proxy-url",
            KubeconfigRisk::InsecureTls => "insecure-tls",
        }
    }

    /// What is accepted instead.
    pub(super) fn instead(self) -> &'static str {
        match self {
            KubeconfigRisk::Exec | KubeconfigRisk::AuthProvider | KubeconfigRisk::TokenFile => {
                "a token, or client-certificate-data with client-key-data"
            }
            KubeconfigRisk::FilePath => "the same as base64 in the field ending in -data",
            KubeconfigRisk::ProxyUrl => "a server that can be reached directly",
            KubeconfigRisk::InsecureTls => "certificate-authority-data",
        }
    }
}

impl FromStr for KubeconfigRisk {
    type Err = String;

    fn from_str(text: &str) -> Result<KubeconfigRisk, String> {
        KubeconfigRisk::ALL.into_iter().find(|risk| risk.name() == text).ok_or_else(|| {
            let known: Vec<_> = KubeconfigRisk::ALL.iter().map(|risk| risk.name()).collect();
            format!("{text:?} is not one of {}", known.join(", "))
        })
    }
}

/// The risks that the configuration allows; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub struct AllowedRisks(BTreeSet<KubeconfigRisk>);

impl AllowedRisks {
    /// Allows nothing.
    pub fn nothing() -> AllowedRisks {
        AllowedRisks::default()
    }

    /// Whether it allows `risk`.
    pub fn allows(&self, risk: KubeconfigRisk) -> bool {
        self.0.contains(&risk)
    }
}

impl FromIterator<KubeconfigRisk> for AllowedRisks {
    fn from_iter<I: IntoIterator<Item = KubeconfigRisk>>(risks: I) -> AllowedRisks {
        AllowedRisks(risks.into_iter().collect())
    }
}
