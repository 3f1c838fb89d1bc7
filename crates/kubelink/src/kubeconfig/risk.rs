//! What an operator may allow kubeconfigs to do, each by name.

use std::collections::BTreeSet;
use std::str::FromStr;

/// What a kubeconfig may do only where the configuration says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
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
    /// `insecure-skip-tls-verify`: talks to whoever answers.
    InsecureTls,
}

impl Risk {
    pub(super) const ALL: [Risk; 6] =
        [Risk::Exec, Risk::AuthProvider, Risk::TokenFile, Risk::FilePath, Risk::ProxyUrl, Risk::InsecureTls];

    /// The name by which a configuration allows it.
    pub fn name(self) -> &'static str {
        match self {
            Risk::Exec => "exec",
            Risk::AuthProvider => "auth-provider",
            Risk::TokenFile => "token-file",
            Risk::FilePath => "file-path",
            Risk::ProxyUrl => "proxy-url",
            Risk::InsecureTls => "insecure-tls",
        }
    }

    /// What would be accepted in its place.
    pub(super) fn instead(self) -> &'static str {
        match self {
            Risk::Exec | Risk::AuthProvider | Risk::TokenFile => {
                "a token, or client-certificate-data with client-key-data"
            }
            Risk::FilePath => "the same as base64 in the field ending in -data",
            Risk::ProxyUrl => "a server that can be reached directly",
            Risk::InsecureTls => "certificate-authority-data",
        }
    }
}

impl FromStr for Risk {
    type Err = String;

    fn from_str(text: &str) -> Result<Risk, String> {
        Risk::ALL.into_iter().find(|risk| risk.name() == text).ok_or_else(|| {
            let known: Vec<_> = Risk::ALL.iter().map(|risk| risk.name()).collect();
            format!("{text:?} is not one of {}", known.join(", "))
        })
    }
}

/// The risks that the configuration allows; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub struct Allow(BTreeSet<Risk>);

impl Allow {
    /// Allows nothing.
    pub fn nothing() -> Allow {
        Allow::default()
    }

    /// Whether it allows `risk`.
    pub fn allows(&self, risk: Risk) -> bool {
        self.0.contains(&risk)
    }
}

impl FromIterator<Risk> for Allow {
    fn from_iter<I: IntoIterator<Item = Risk>>(risks: I) -> Allow {
        Allow(risks.into_iter().collect())
    }
}
