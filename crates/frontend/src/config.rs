//! The configuration of the HTTP API. [`Config::problems`] checks every field.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use kubelink::AllowedRisks;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serve::pki::{OPERATOR_NAME, PkiDirectory};
use uuid::Uuid;

/// The settings of the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port of the API. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The server's certificate and its intermediates, in PEM. `shipshape up` issues one when unset.
    pub certificate: Option<PathBuf>,
    /// The private key of that certificate, in PEM.
    pub key: Option<PathBuf>,
    /// The authorities (PEM) of client certificates; those of the system are never used.
    pub client_ca: Option<PathBuf>,
    /// Client certificates that may read and write: `name:COMMON-NAME`, or `sha256:FINGERPRINT` of one certificate.
    pub operators: Vec<ClientRule>,
    /// Client certificates that may only read, in the same form.
    pub readers: Vec<ClientRule>,
    /// Bearer tokens.
    pub oidc: Oidc,
    /// Callers of the resource manager's API besides operators.
    pub arm: ArmCallers,
    /// The subscription of imported clusters.
    pub imported_subscription: Uuid,
    /// The locations where clusters may be; the first is the default. Shared with other services: `clusters.locations`.
    #[serde(skip)]
    pub locations: Vec<String>,
    /// The DNS zone of this service; clusters of a location may have a label of `LOCATION.ZONE`. Unset: labels are named in
    /// `clusters.shipshape.test`, which is for local use. Shared with other services: `clusters.zone`.
    #[serde(skip)]
    pub zone: Option<String>,
    /// Whether workers must have the smallest sizes; for trial installations.
    pub small_workers: bool,
    /// Seconds after which a caller should poll an operation again (`Retry-After`), 1 to 600.
    pub retry_after_seconds: u32,
    /// The base of URLs in responses to callers that send no `Referer`. Unset: that of their connection, if its host is one of the
    /// API's names.
    pub public_url: Option<String>,
    /// Hosts by which callers reach the API, such as `management.example`; `*.` matches one label. `Referer` and `Host` are used in
    /// URLs only if they name one of these, the host of `public_url`, a name of the certificate, or the listen address.
    pub public_names: Vec<String>,
    /// Maximum number of connections, 1 to 65536.
    pub connections: usize,
    /// Maximum number of connections from one IPv4 address or one IPv6 network of 64 bits. A proxy before the API has one address.
    pub connections_per_address: usize,
    /// What imported kubeconfigs may use besides inline data: `exec`, `auth-provider`, `token-file`, `file-path`, `proxy-url`,
    /// `insecure-tls`. Nothing by default. Shared with other services: `clusters.allow_kubeconfig`.
    #[serde(skip)]
    pub allow_kubeconfig: AllowedRisks,
    /// Accepts every client on this machine without authentication; only on the loopback interface. Without a certificate it serves
    /// plain HTTP.
    pub insecure: bool,
}

/// Callers of the resource manager's API, who may use no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArmCallers {
    /// Certificates (PEM) of accepted callers, compared as a whole, each in its own validity. The file is read every hour.
    pub certificates: Option<PathBuf>,
    /// The metadata endpoint that lists the certificates of callers, such as
    /// `https://management.example/metadata/authentication?api-version=2015-01-01`. It is read every hour.
    pub metadata_url: Option<String>,
    /// The base URL of the service that validates bearer tokens (`POST /ValidateRequest`).
    pub token_service: Option<String>,
    /// Whether a token is required, so that a certificate is not enough.
    pub enforce_tokens: bool,
    /// Authorities (PEM) of the metadata endpoint and the token service, instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// Whether operators and readers of the Admin API may use the resource manager's API too.
    pub admit_operators: bool,
}

impl Default for ArmCallers {
    fn default() -> ArmCallers {
        ArmCallers {
            certificates: None,
            metadata_url: None,
            token_service: None,
            enforce_tokens: false,
            ca_file: None,
            admit_operators: true,
        }
    }
}

impl ArmCallers {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, url) in [("metadata_url", &self.metadata_url), ("token_service", &self.token_service)] {
            if url.as_ref().is_some_and(|url| !crate::auth::is_protected(url)) {
                problems.push(format!(
                    "frontend.arm.{name} must be an https:// URL (http:// only on the loopback interface)"
                ));
            }
        }
        if self.enforce_tokens && self.token_service.is_none() {
            problems.push("frontend.arm.enforce_tokens needs frontend.arm.token_service".to_owned());
        }
        if self.certificates.is_some() && self.metadata_url.is_some() {
            problems.push(
                "frontend.arm.certificates and frontend.arm.metadata_url both list callers; set one of them"
                    .to_owned(),
            );
        }
        problems
    }
}

/// Bearer tokens: JWTs of an OpenID Connect issuer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Oidc {
    /// The issuer's URL, as in its tokens. Unset: no tokens are accepted.
    pub issuer: Option<String>,
    /// The audience that tokens must be for.
    pub audience: Option<String>,
    /// The claim that names the caller in logs, histories and the audit log.
    pub actor_claim: String,
    /// The claim that lists the caller's groups or roles.
    pub roles_claim: String,
    /// Values of that claim that may read and write.
    pub operators: Vec<String>,
    /// Values of that claim that may only read.
    pub readers: Vec<String>,
    /// Values of that claim that may use the resource manager's API only.
    pub callers: Vec<String>,
    /// Authorities (PEM) of the issuer's server, instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 8443)),
            certificate: None,
            key: None,
            client_ca: None,
            operators: Vec::new(),
            readers: Vec::new(),
            oidc: Oidc::default(),
            arm: ArmCallers::default(),
            zone: None,
            small_workers: false,
            retry_after_seconds: 10,
            public_url: None,
            public_names: Vec::new(),
            connections: 1024,
            connections_per_address: 512,
            imported_subscription: Uuid::nil(),
            locations: vec!["local".to_owned()],
            allow_kubeconfig: AllowedRisks::nothing(),
            insecure: false,
        }
    }
}

impl Default for Oidc {
    fn default() -> Oidc {
        Oidc {
            issuer: None,
            audience: None,
            actor_claim: "sub".to_owned(),
            roles_claim: "groups".to_owned(),
            operators: Vec::new(),
            readers: Vec::new(),
            callers: Vec::new(),
            ca_file: None,
        }
    }
}

impl Config {
    /// Fills in the settings that are open: the server's certificate, and the operator's certificate among the operators.
    pub fn complete_from(&mut self, pki: &PkiDirectory) {
        if self.certificate.is_none() && self.key.is_none() {
            self.certificate = Some(pki.server.clone());
            self.key = Some(pki.server_key.clone());
        }
        if self.client_ca.is_none() {
            self.client_ca = Some(pki.authority.clone());
            let operator = ClientRule::Name(OPERATOR_NAME.to_owned());
            if !self.operators.contains(&operator) {
                self.operators.push(operator);
            }
        }
    }

    /// All problems of the configuration, each in a sentence that names the setting.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut say = |wrong: bool, sentence: &str| {
            if wrong {
                problems.push(sentence.to_owned());
            }
        };
        let names_clients = !self.operators.is_empty() || !self.readers.is_empty();
        say(
            self.insecure && !self.listen.ip().is_loopback(),
            "frontend.insecure disables authentication, so frontend.listen must be a loopback address such as 127.0.0.1:8443",
        );
        say(
            !self.insecure && (self.certificate.is_none() || self.key.is_none()),
            "frontend.certificate and frontend.key must name the server's certificate and its private key",
        );
        say(
            self.insecure && self.certificate.is_some() != self.key.is_some(),
            "frontend.certificate and frontend.key belong together; set both or neither",
        );
        say(
            self.client_ca.is_some() && !names_clients,
            "frontend.client_ca is set, but frontend.operators and frontend.readers name no client certificate",
        );
        say(
            names_clients && self.client_ca.is_none(),
            "frontend.operators and frontend.readers name client certificates, but frontend.client_ca names no authority for them",
        );
        say(
            !self.insecure && self.client_ca.is_none() && self.oidc.issuer.is_none(),
            "neither frontend.client_ca nor frontend.oidc.issuer is set, so no client could authenticate",
        );
        say(self.locations.is_empty(), "clusters.locations must name at least one location");
        let is_word = |text: &String| {
            (1..=63).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        say(
            !self.locations.iter().all(is_word),
            "clusters.locations must consist of lowercase letters, digits and hyphens, at most 63 characters each",
        );
        say(
            !(1..=600).contains(&self.retry_after_seconds),
            "frontend.retry_after_seconds must be from 1 to 600",
        );
        say(
            self.public_url
                .as_ref()
                .is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://")),
            "frontend.public_url must be an absolute URL such as https://management.example",
        );
        let is_host = |name: &String| {
            let host = name.strip_prefix("*.").unwrap_or(name);
            let is_address = name.parse::<std::net::IpAddr>().is_ok();
            is_address || (!host.contains(['/', ':', '@', '*']) && serve::authority_host(host).is_some())
        };
        say(
            !self.public_names.iter().all(is_host),
            "frontend.public_names must be hosts without scheme and port, such as management.example or *.example",
        );
        say(
            !(1..=65_536).contains(&self.connections)
                || !(1..=self.connections).contains(&self.connections_per_address),
            "frontend.connections must be from 1 to 65536, and frontend.connections_per_address from 1 to that",
        );
        say(
            self.zone
                .as_ref()
                .is_some_and(|zone| zone.is_empty() || zone.starts_with('.') || zone.contains(' ')),
            "clusters.zone must be a DNS name such as clusters.example",
        );
        problems.extend(self.oidc.problems());
        problems.extend(self.arm.problems());
        problems
    }
}

impl Oidc {
    fn problems(&self) -> Vec<String> {
        let Some(issuer) = &self.issuer else { return Vec::new() };
        let mut problems = Vec::new();
        if !crate::auth::is_protected(issuer) {
            problems.push(
                "frontend.oidc.issuer must be an https:// URL (http:// only on the loopback interface)"
                    .to_owned(),
            );
        }
        if self.audience.as_ref().is_none_or(String::is_empty) {
            problems.push("frontend.oidc.audience must name the audience of the tokens".to_owned());
        }
        if self.operators.is_empty() && self.readers.is_empty() && self.callers.is_empty() {
            problems.push(
                "frontend.oidc.operators, frontend.oidc.readers and frontend.oidc.callers name no group or role, so no token would be accepted"
                    .to_owned(),
            );
        }
        problems
    }
}

/// Selects client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRule {
    /// Certificates whose subject has this common name.
    Name(String),
    /// The certificate whose DER has this SHA-256 digest.
    Fingerprint([u8; 32]),
}

impl FromStr for ClientRule {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientRule, String> {
        match text.split_once(':') {
            Some(("name", name)) if !name.is_empty() => Ok(ClientRule::Name(name.to_owned())),
            Some(("sha256", digest)) => {
                let hex: Vec<u8> = digest.bytes().filter(|byte| *byte != b':').collect();
                let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                let bytes: Option<Vec<u8>> = hex.chunks(2).map(byte).collect();
                let bytes = bytes.filter(|_| hex.iter().all(u8::is_ascii_hexdigit));
                bytes
                    .and_then(|bytes| bytes.try_into().ok())
                    .map(ClientRule::Fingerprint)
                    .ok_or_else(|| "expected 64 hexadecimal digits after sha256:".to_owned())
            }
            _ => Err("expected name:COMMON-NAME or sha256:FINGERPRINT".to_owned()),
        }
    }
}

impl fmt::Display for ClientRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientRule::Name(name) => write!(f, "name:{name}"),
            ClientRule::Fingerprint(digest) => {
                f.write_str("sha256:")?;
                digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl Serialize for ClientRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClientRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClientRule, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded() -> Config {
        Config {
            certificate: Some("server.crt".into()),
            key: Some("server.key".into()),
            client_ca: Some("ca.crt".into()),
            operators: vec![ClientRule::Name("operator".to_owned())],
            ..Config::default()
        }
    }

    #[test]
    fn each_invalid_setting_is_reported_by_name() {
        assert_eq!(guarded().problems(), Vec::<String>::new());
        let check = |config: Config, expect: &[&str]| {
            let problems = config.problems();
            assert_eq!(problems.len(), expect.len(), "{problems:?}");
            for (problem, word) in problems.iter().zip(expect) {
                assert!(problem.contains(word), "{problem:?} should name {word:?}");
            }
        };
        check(Config::default(), &["frontend.certificate", "no client could authenticate"]);
        check(Config { insecure: true, ..Config::default() }, &[]);
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 8443));
        check(Config { insecure: true, listen: everywhere, ..Config::default() }, &["loopback"]);
        check(Config { operators: Vec::new(), ..guarded() }, &["name no client certificate"]);
        check(Config { client_ca: None, ..guarded() }, &["client_ca", "no client could authenticate"]);
        check(Config { locations: Vec::new(), ..guarded() }, &["at least one location"]);
        check(Config { locations: vec!["West Europe".to_owned()], ..guarded() }, &["lowercase letters"]);
        let issuer = |issuer: &str| Oidc {
            issuer: Some(issuer.to_owned()),
            audience: Some("shipshape".to_owned()),
            operators: vec!["fleet".to_owned()],
            ..Oidc::default()
        };
        check(Config { oidc: issuer("https://id.example"), ..guarded() }, &[]);
        check(Config { oidc: issuer("http://127.0.0.1:9000"), ..guarded() }, &[]);
        check(Config { oidc: issuer("http://id.example"), ..guarded() }, &["https://"]);
        let aimless = Oidc { issuer: Some("https://id.example".to_owned()), ..Oidc::default() };
        check(Config { oidc: aimless, ..guarded() }, &["audience", "no group or role"]);
        check(Config { retry_after_seconds: 0, ..guarded() }, &["retry_after_seconds"]);
        check(Config { public_url: Some("management.example".to_owned()), ..guarded() }, &["public_url"]);
        for name in ["https://x", "x:1", "", "a/b", "a@b", "*", "a*.b"] {
            check(Config { public_names: vec![name.to_owned()], ..guarded() }, &["public_names"]);
        }
        let names = ["management.example", "*.example", "192.0.2.7", "::1"].map(str::to_owned).to_vec();
        check(Config { public_names: names, ..guarded() }, &[]);
        check(Config { connections: 0, ..guarded() }, &["frontend.connections"]);
        check(Config { connections_per_address: 2000, ..guarded() }, &["connections_per_address"]);
        check(Config { zone: Some(".example".to_owned()), ..guarded() }, &["zone"]);
        let arm = |arm: ArmCallers| Config { arm, ..guarded() };
        let service = |url: &str| Some(url.to_owned());
        check(
            arm(ArmCallers { token_service: service("http://id.example"), ..ArmCallers::default() }),
            &["token_service"],
        );
        check(arm(ArmCallers { enforce_tokens: true, ..ArmCallers::default() }), &["enforce_tokens"]);
        let both = ArmCallers {
            certificates: Some("arm.crt".into()),
            metadata_url: service("https://management.example/metadata"),
            ..ArmCallers::default()
        };
        check(arm(both), &["set one of them"]);
    }

    #[test]
    fn a_private_authority_fills_in_everything_that_is_required() {
        let directory = tempfile::tempdir().unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let pki = PkiDirectory::ensure(directory.path(), &[], now).unwrap();
        let mut config = Config::default();
        config.complete_from(&pki);
        assert_eq!(config.problems(), Vec::<String>::new());
        assert_eq!(config.operators, [ClientRule::Name("shipshape-operator".to_owned())]);
    }

    #[test]
    fn a_client_rule_is_read_back_as_written() {
        let digest = "ab".repeat(32);
        for text in ["name:operator", &format!("sha256:{digest}")] {
            assert_eq!(text.parse::<ClientRule>().unwrap().to_string(), text);
        }
        let spaced: Vec<_> = (0..32).map(|_| "AB").collect();
        let spelled = format!("sha256:{}", spaced.join(":")).parse::<ClientRule>().unwrap();
        assert_eq!(spelled.to_string(), format!("sha256:{digest}"));
        for nonsense in
            ["", "operator", "name:", "sha256:ab", "sha256:é", &format!("sha256:+{}", &digest[1..])]
        {
            assert!(nonsense.parse::<ClientRule>().is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn an_unknown_setting_is_rejected() {
        assert!(serde_json::from_str::<Config>(r#"{"listne": "127.0.0.1:1"}"#).is_err());
        let set: Config =
            serde_json::from_str(r#"{"operators": ["name:a"], "small_workers": true}"#).unwrap();
        assert_eq!(set.operators, [ClientRule::Name("a".to_owned())]);
    }
}
