//! Tests that secrets and tokens are in no log, whatever a call ends in and however much is logged.

use std::io::Write;
use std::sync::{Arc, Mutex};

use cloud::{Credential, Identities as _, Infrastructure as _, Registry as _, ResourceId, Vault as _};
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::testing::{MemoryCloud, Reply, SECRET, ScriptedService, requests};

/// Everything that was logged.
#[derive(Debug, Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogBuffer {
    type Writer = LogBuffer;

    fn make_writer(&self) -> LogBuffer {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn no_log_holds_a_secret_or_a_token() {
    let buffer = LogBuffer::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(buffer.clone()).finish();
    // Beside one subscriber alone, a call site that the thread of another test reaches first would stay disabled for all.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let guard = tracing::subscriber::set_default(subscriber);
    // What succeeds.
    let service = MemoryCloud::default().service();
    let client = service.client();
    for request in requests() {
        client.put(request).await.unwrap();
    }
    client.ensure_token("t").await.unwrap();
    client.issue_password("t", None).await.unwrap();
    client.put_secret("x", SECRET, None).await.unwrap();
    client.secret("x").await.unwrap();
    // What is rejected, with texts that repeat what was sent.
    let id = ResourceId::group("s", "g");
    let leaky = format!("Authorization: Bearer token-1 client_secret={SECRET}");
    for status in [400, 401, 403, 409, 429, 500] {
        let body = json!({"error": {"code": "Odd", "message": leaky}});
        let service = ScriptedService::by(move |_| Reply::json(status, body.clone()));
        let error = service.client().get(&id).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    }
    let refused = json!({"error": "invalid_client", "error_description": leaky, "error_codes": [7_000_215]});
    let service = ScriptedService::new([]).with_token_replies([Reply::json(401, refused), Reply::Broken]);
    let client = service.client();
    for _ in 0..2 {
        let error = client.principal(&Credential::Service).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    }
    drop(guard);
    let logged = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    // The calls are there, and nothing that must not be.
    assert!(logged.contains("Azure rejected GET") && logged.contains("Azure answered PUT"));
    for secret in [SECRET, "token-1", "token-2", "issued-once"] {
        let line = logged.lines().find(|it| it.contains(secret));
        assert_eq!(line, None, "{secret} is logged");
    }
}
