//! Vaults as time passes: operations, renewals and deletions have no timers.

use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::error::VaultFailure;
use super::objects::{ObjectKind, VaultScope};
use super::{VaultRequest, VaultResponse, certificates, handle_deleted, secrets};
use crate::call_context::{CallContext, FaultEffects};
use crate::database;
use crate::endpoints::Endpoints;
use crate::entra::VerifiedTokens;

const DAY: i64 = 86_400;

struct Fixture {
    db: Connection,
    endpoints: Endpoints,
    now: Timestamp,
    effects: FaultEffects,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture {
            db: database::open(None).unwrap(),
            endpoints: Endpoints::default(),
            now: Timestamp::from_second(1_700_000_000).unwrap(),
            effects: FaultEffects::default(),
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// A request with every right: the body of its response, or status and inner code of its error.
    fn send(&self, method: Method, path: &str, body: Value) -> Result<Value, (StatusCode, String)> {
        let cx = CallContext {
            db: &self.db,
            now: self.now,
            seed: 1,
            pace: 1.0,
            effects: self.effects.clone(),
            endpoints: &self.endpoints,
            tokens: &VerifiedTokens::default(),
        };
        let vault =
            VaultScope { name: "v".to_owned(), url: "https://127.0.0.1:9".to_owned(), retention_days: 7 };
        let segments: Vec<String> = path.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        let request = VaultRequest { method: &method, segments: segments.clone(), query: Vec::new(), body };
        let allow = |_: &str| Ok(());
        let (first, rest) = (words[0], &words[1..]);
        let done = match first {
            "secrets" => secrets::handle(&cx, &vault, &request, rest, &allow),
            "certificates" => certificates::handle(&cx, &vault, &request, rest, &allow),
            "deletedsecrets" => handle_deleted(&cx, &vault, &request, ObjectKind::Secret, rest, &allow),
            "deletedcertificates" => {
                handle_deleted(&cx, &vault, &request, ObjectKind::Certificate, rest, &allow)
            }
            other => panic!("{other} is no path of a vault"),
        };
        match done {
            Ok(VaultResponse { body, .. }) => Ok(body.unwrap_or_default()),
            Err(VaultFailure::Rejected(error)) => {
                Err((error.status, error.inner.unwrap_or_default().to_owned()))
            }
            Err(VaultFailure::Failed(failure)) => panic!("the vault failed: {failure:?}"),
        }
    }

    fn get(&self, path: &str) -> Result<Value, (StatusCode, String)> {
        self.send(Method::GET, path, Value::Null)
    }

    fn create(&self, name: &str) -> Result<Value, (StatusCode, String)> {
        let policy = json!({
            "key_props": { "kty": "EC", "crv": "P-256" },
            "secret_props": { "contentType": "application/x-pem-file" },
            "x509_props": { "subject": "CN=a", "validity_months": 3 },
            "issuer": { "name": "Self" },
            "lifetime_actions": [
                { "trigger": { "days_before_expiry": 30 }, "action": { "action_type": "AutoRenew" } },
            ],
        });
        self.send(Method::POST, &format!("certificates/{name}/create"), json!({ "policy": policy }))
    }

    fn versions(&self, name: &str) -> usize {
        let found = self.get(&format!("certificates/{name}/versions")).unwrap();
        found["value"].as_array().unwrap().len()
    }
}

#[test]
fn a_certificate_is_there_when_its_operation_has_completed() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.create("a").unwrap()["status"], "inProgress");
    assert_eq!(fixture.get("certificates/a/pending").unwrap()["status"], "inProgress");
    assert_eq!(fixture.get("certificates/a").unwrap()["cer"], Value::Null);
    assert_eq!(fixture.get("secrets/a").unwrap_err().0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.create("a").unwrap_err().0, StatusCode::CONFLICT);
    fixture.pass(60);
    let operation = fixture.get("certificates/a/pending").unwrap();
    assert_eq!(operation["status"], "completed");
    assert_eq!(operation["target"], "https://127.0.0.1:9/certificates/a");
    assert!(fixture.get("certificates/a").unwrap()["cer"].is_string());
    assert!(fixture.get("secrets/a").unwrap()["value"].as_str().unwrap().contains("PRIVATE KEY"));
}

#[test]
fn a_certificate_is_renewed_before_its_end_without_being_read() {
    let mut fixture = Fixture::new();
    fixture.create("a").unwrap();
    fixture.pass(60);
    let first = fixture.get("certificates/a").unwrap();
    fixture.pass(55 * DAY);
    assert_eq!(fixture.versions("a"), 1);
    fixture.pass(10 * DAY);
    let second = fixture.get("secrets/a").unwrap();
    assert_ne!(second["id"], first["sid"]);
    // A year later: each renewal was as of its time, and the newest is good now.
    fixture.pass(365 * DAY);
    let newest = fixture.get("certificates/a").unwrap();
    assert!(newest["attributes"]["exp"].as_i64().unwrap() > fixture.now.as_second() + 29 * DAY);
    assert!(newest["attributes"]["nbf"].as_i64().unwrap() <= fixture.now.as_second());
    assert_eq!(fixture.versions("a"), 7);
}

#[test]
fn a_certificate_without_renewal_expires() {
    let mut fixture = Fixture::new();
    fixture.create("a").unwrap();
    fixture.pass(60);
    let emails = json!({ "lifetime_actions": [
        { "trigger": { "days_before_expiry": 30 }, "action": { "action_type": "EmailContacts" } },
    ] });
    fixture.send(Method::PATCH, "certificates/a/policy", emails).unwrap();
    fixture.pass(400 * DAY);
    assert_eq!(fixture.versions("a"), 1);
    // Turned on late, it renews from then on.
    let renew = json!({ "lifetime_actions": [
        { "trigger": { "days_before_expiry": 30 }, "action": { "action_type": "AutoRenew" } },
    ] });
    fixture.send(Method::PATCH, "certificates/a/policy", renew).unwrap();
    fixture.pass(60);
    assert_eq!(fixture.versions("a"), 2);
    let newest = fixture.get("certificates/a").unwrap();
    assert!(newest["attributes"]["nbf"].as_i64().unwrap() >= fixture.now.as_second() - 60);
}

#[test]
fn a_deleted_object_is_shown_after_a_while_and_purged_at_the_end() {
    let mut fixture = Fixture::new();
    fixture.send(Method::PUT, "secrets/s", json!({ "value": "x" })).unwrap();
    fixture.create("c").unwrap();
    fixture.pass(60);
    for (path, deleted) in [("secrets/s", "deletedsecrets/s"), ("certificates/c", "deletedcertificates/c")] {
        fixture.send(Method::DELETE, path, Value::Null).unwrap();
        assert_eq!(fixture.get(path).unwrap_err().0, StatusCode::NOT_FOUND);
        assert_eq!(fixture.get(deleted).unwrap_err().0, StatusCode::NOT_FOUND);
    }
    let taken = |fixture: &Fixture| {
        [fixture.send(Method::PUT, "secrets/s", json!({ "value": "y" })), fixture.create("c")]
            .map(|it| it.unwrap_err().1)
    };
    assert_eq!(taken(&fixture), ["ObjectIsBeingDeleted"; 2]);
    fixture.pass(10);
    assert!(fixture.get("deletedsecrets/s").is_ok() && fixture.get("deletedcertificates/c").is_ok());
    assert_eq!(taken(&fixture), ["ObjectIsDeletedButRecoverable"; 2]);
    fixture.pass(7 * DAY);
    assert_eq!(fixture.get("deletedsecrets/s").unwrap_err().0, StatusCode::NOT_FOUND);
    fixture.send(Method::PUT, "secrets/s", json!({ "value": "y" })).unwrap();
    fixture.create("c").unwrap();
}

#[test]
fn a_deleted_certificate_is_not_renewed_until_it_is_recovered() {
    let mut fixture = Fixture::new();
    fixture.create("a").unwrap();
    fixture.pass(58 * DAY);
    fixture.send(Method::DELETE, "certificates/a", Value::Null).unwrap();
    fixture.pass(6 * DAY);
    assert!(fixture.get("deletedcertificates/a").is_ok());
    fixture.send(Method::POST, "deletedcertificates/a/recover", Value::Null).unwrap();
    assert_eq!(fixture.versions("a"), 2);
}

#[test]
fn an_operation_that_fails_makes_no_version() {
    let mut fixture = Fixture::new();
    let failure = cloud::ResourceFailure { code: "X".to_owned(), message: "why".to_owned() };
    fixture.effects.fails_later = Some(failure);
    fixture.create("a").unwrap();
    fixture.effects = FaultEffects::default();
    fixture.pass(60);
    let operation = fixture.get("certificates/a/pending").unwrap();
    assert_eq!((&operation["status"], &operation["error"]["code"]), (&json!("failed"), &json!("X")));
    assert_eq!(fixture.versions("a"), 0);
    fixture.create("a").unwrap();
}
