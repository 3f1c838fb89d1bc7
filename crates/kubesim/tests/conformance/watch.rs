//! Watches of a script.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use crate::script::Script;

/// Longer than an event takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An open watch.
pub(crate) struct Watch {
    pub(crate) path: String,
    body: Body,
    pending: Vec<u8>,
    ended: bool,
}

impl Watch {
    pub(crate) async fn open(script: &mut Script, path: &str) -> Watch {
        let uri = script.names.expand(path);
        let request = http::Request::get(&uri).body(Body::empty()).expect("a request that can be sent");
        let answer = tokio::time::timeout(TIMEOUT, script.client.send(request)).await;
        let response = answer.expect("an answer in time").expect("an answer");
        let (parts, body) = response.into_parts();
        if parts.status != 200 {
            let body = body.collect().await.expect("a whole answer").to_bytes();
            panic!("{path}: expected a watch, got {}: {}", parts.status, String::from_utf8_lossy(&body));
        }
        Watch { path: path.to_owned(), body, pending: Vec::new(), ended: false }
    }

    /// The next events; fails if they do not arrive.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            match tokio::time::timeout(TIMEOUT, self.next()).await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => panic!("the watch of {} ended after {events:?}", self.path),
                Err(_) => panic!("the watch of {} sent no more than {events:?}", self.path),
            }
        }
        events
    }

    /// Whether the server ends the watch now.
    pub(crate) async fn ends(&mut self) -> bool {
        matches!(tokio::time::timeout(TIMEOUT, self.next()).await, Ok(None))
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Some(serde_json::from_slice(&line).expect("an event is JSON"));
            }
            if self.ended {
                return None;
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
                Some(Err(_)) | None => {
                    self.ended = true;
                    if !self.pending.trim_ascii().is_empty() {
                        self.pending.push(b'\n');
                    }
                }
            }
        }
    }
}
