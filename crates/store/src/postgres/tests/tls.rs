//! Encrypted connections: accepted and rejected certificates.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testkit::postgres::{self, TestPostgres};

use super::options;
use crate::open::Options;
use crate::postgres::Postgres;

/// A private CA, as an operator would create one.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Gives the server a certificate for `127.0.0.1` and `localhost`, and requires TLS.
fn encrypt(server: &TestPostgres, authority: &CertifiedIssuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, authority).unwrap();
    let data = server.directory().join("data");
    let owner = std::fs::metadata(&data).unwrap();
    let put = |name: &str, text: &str| {
        let path = data.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    };
    put("server.crt", &certificate.pem());
    put("server.key", &key.serialize_pem());
    let rules = std::fs::read_to_string(data.join("pg_hba.conf")).unwrap();
    let encrypted: Vec<String> = rules.lines().map(|line| line.replacen("host ", "hostssl ", 1)).collect();
    server.psql("alter system set ssl = on").unwrap();
    server.psql("select pg_reload_conf()").unwrap();
    put("pg_hba.conf", &(encrypted.join("\n") + "\n"));
}

fn trusting(url: &str, directory: &Path, authority: &CertifiedIssuer<'static, KeyPair>) -> Options {
    let file = directory.join(uuid::Uuid::new_v4().to_string());
    std::fs::write(&file, authority.pem()).unwrap();
    Options { ca_file: Some(file), ..options(url) }
}

#[tokio::test]
async fn a_server_is_trusted_only_by_its_certificate() {
    let Some(server) = postgres::private(postgres::PostgresOptions::default()) else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    let (ours, theirs) = (authority(), authority());
    encrypt(&server, &ours);
    let directory = tempfile::tempdir().unwrap();
    let url = format!("{}?sslmode=require", server.url("postgres"));

    let store = Postgres::open(&trusting(&url, directory.path(), &ours)).await.unwrap();
    let sql = "select count(*)::int8 from pg_stat_ssl s join pg_stat_activity a using (pid)
               where a.application_name = 'shipshape' and a.backend_type = 'client backend' and not s.ssl";
    let unencrypted: i64 = store.row("count", sql, &[]).await.unwrap().get(0);
    assert_eq!(unencrypted, 0);
    store.close().await;

    let stranger = Postgres::open(&trusting(&url, directory.path(), &theirs)).await.unwrap_err().to_string();
    assert!(stranger.contains("certificate"), "{stranger}");
    let unknown = Postgres::open(&options(&url)).await.unwrap_err().to_string();
    assert!(unknown.contains("certificate"), "{unknown}");
    let missing = Options { ca_file: Some("/nowhere/ca.pem".into()), ..options(&url) };
    let missing = Postgres::open(&missing).await.unwrap_err().to_string();
    assert!(missing.contains("/nowhere/ca.pem"), "{missing}");
}

#[tokio::test]
async fn a_remote_server_is_not_used_in_plain_text() {
    // The name does not resolve; the error must come from TLS or from the name.
    let options = options("postgres://me@db.invalid/fleet");
    let route = crate::postgres::connect::ServerConfig::find(&options).unwrap();
    assert_eq!(route.config.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
    let by_name = super::options("postgres://me@db.invalid/fleet?sslmode=disable");
    let route = crate::postgres::connect::ServerConfig::find(&by_name).unwrap();
    assert_eq!(route.config.get_ssl_mode(), tokio_postgres::config::SslMode::Disable);
}
