//! Events as they happen: a stream that takes itself up again where it broke.

use std::collections::VecDeque;
use std::time::Duration;

use api::admin::{AdminCluster, ManifestForm, ScheduleForm, TaskForm};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{ClientError, Refusal};
use crate::exchange::{Client, read_all};
use crate::path::Path;
use crate::transport::Body;

/// The server sends a comment every 15 s; after three that did not come the connection counts as broken.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// How long the server may take to begin.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(30);

/// The pauses between attempts to take a broken stream up again.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// No event is longer; a server that sends more without an end is not ours.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// What can be listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// Manifests.
    Manifests,
    /// Schedules.
    Schedules,
    /// Tasks.
    Tasks,
    /// Clusters.
    Clusters,
    /// Operations of customers.
    Operations,
}

impl Topic {
    /// All of them.
    pub const ALL: [Topic; 5] =
        [Topic::Manifests, Topic::Schedules, Topic::Tasks, Topic::Clusters, Topic::Operations];

    /// As it is asked for.
    pub fn plural(self) -> &'static str {
        match self {
            Topic::Manifests => "manifests",
            Topic::Schedules => "schedules",
            Topic::Tasks => "tasks",
            Topic::Clusters => "clusters",
            Topic::Operations => "operations",
        }
    }

    /// As events are called.
    pub fn singular(self) -> &'static str {
        self.plural().trim_end_matches('s')
    }
}

/// Something that happened.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its place in the feed; the stream is taken up after it.
    pub id: String,
    /// What happened.
    pub change: Change,
    /// The data as it came.
    pub data: Value,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Change {
    /// A manifest is new or changed.
    Manifest(Box<ManifestForm>),
    /// A schedule is new or changed.
    Schedule(Box<ScheduleForm>),
    /// A task is new or changed.
    Task(Box<TaskForm>),
    /// A cluster is new or changed.
    Cluster(Box<AdminCluster>),
    /// Something of this kind is new or changed, of which this client knows no more.
    Other(String),
    /// Something is gone.
    Deleted {
        /// Its kind, in the singular.
        topic: String,
        /// Its id.
        id: String,
    },
    /// Events were missed: whoever keeps a copy reads it anew.
    Relist,
    /// The connection broke; it is taken up again, and nothing is missed.
    Interrupted {
        /// What happened.
        why: String,
    },
}

impl Client {
    /// Events of these topics (all when there are none), from now on or after the event `after`.
    ///
    /// The first connection must succeed; later ones are tried until they do. The stream ends with an error only when the
    /// server refuses.
    pub fn events(
        &self,
        topics: &[Topic],
        after: Option<String>,
    ) -> BoxStream<'static, Result<Event, ClientError>> {
        let topics: Vec<&str> = topics.iter().map(|topic| topic.plural()).collect();
        let topics = (!topics.is_empty()).then(|| topics.join(","));
        let path = Path::of("/admin/events").maybe("topics", topics).text();
        let listening = Listening {
            client: self.clone(),
            path,
            after,
            connection: None,
            ready: VecDeque::new(),
            pause: PAUSE_FIRST,
            begun: false,
            broken: false,
            refused: false,
        };
        stream::unfold(listening, |mut listening| async move {
            let event = listening.next().await?;
            Some((event, listening))
        })
        .boxed()
    }
}

struct Listening {
    client: Client,
    path: String,
    after: Option<String>,
    connection: Option<(Body, Parser)>,
    ready: VecDeque<Event>,
    pause: Duration,
    begun: bool,
    broken: bool,
    refused: bool,
}

impl Listening {
    async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.refused {
                return None;
            }
            let Some((body, parser)) = &mut self.connection else {
                // A server that ends each stream at once, as one does that is ending, must not be asked without a pause.
                if std::mem::take(&mut self.broken) {
                    tokio::time::sleep(self.pause).await;
                }
                match self.connect().await {
                    Ok(body) => {
                        self.connection = Some((body, Parser::default()));
                        self.begun = true;
                    }
                    Err(error) if self.begun && error.may_pass() => {
                        tokio::time::sleep(self.pause).await;
                        self.pause = (self.pause * 2).min(PAUSE_MAX);
                    }
                    Err(error) => {
                        self.refused = true;
                        return Some(Err(error));
                    }
                }
                continue;
            };
            let broken = match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    self.pause = PAUSE_FIRST;
                    let Ok(data) = frame.into_data() else { continue };
                    let parsed = parser.push(&data);
                    match parsed {
                        Ok(messages) => match self.take(messages) {
                            Ok(()) => continue,
                            Err(error) => {
                                self.refused = true;
                                return Some(Err(error));
                            }
                        },
                        Err(why) => why.to_owned(),
                    }
                }
                Ok(Some(Err(error))) => error.to_string(),
                Ok(None) => "the server ended the stream".to_owned(),
                Err(_) => format!("nothing came for {SILENCE_MAX:?}"),
            };
            self.connection = None;
            self.broken = true;
            let id = self.after.clone().unwrap_or_default();
            return Some(Ok(Event { id, change: Change::Interrupted { why: broken }, data: Value::Null }));
        }
    }

    async fn connect(&mut self) -> Result<Body, ClientError> {
        let mut more = HeaderMap::new();
        more.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(after) = self.after.as_deref().and_then(|after| HeaderValue::from_str(after).ok()) {
            more.insert("last-event-id", after);
        }
        let begin = self.client.send(Method::GET, &self.path, Bytes::new(), None, more);
        let answer = tokio::time::timeout(BEGIN_TIME_MAX, begin).await.map_err(|_| {
            ClientError::TooSlow { server: self.client.server().to_owned(), limit: BEGIN_TIME_MAX }
        })??;
        let (head, body) = answer.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let text = tokio::time::timeout(BEGIN_TIME_MAX, read_all(body)).await;
        let text = text.ok().and_then(Result::ok).unwrap_or_default();
        Err(ClientError::Refused(Refusal::read(head.status, &text)))
    }

    fn take(&mut self, messages: Vec<Message>) -> Result<(), ClientError> {
        for message in messages {
            if let Some(id) = &message.id {
                self.after = Some(id.clone());
            }
            let id = self.after.clone().unwrap_or_default();
            let data: Value = match message.data.is_empty() {
                true => Value::Null,
                false => serde_json::from_str(&message.data)
                    .map_err(|error| self.client.garbled(&self.path, &error))?,
            };
            let change = change(&message.event, &data).map_err(|error| {
                self.client.garbled(&format!("an event of kind {}", message.event), &error)
            })?;
            self.ready.push_back(Event { id, change, data });
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Gone {
    id: String,
    deleted: bool,
}

fn change(event: &str, data: &Value) -> Result<Change, serde_json::Error> {
    fn read<T: DeserializeOwned>(data: &Value) -> Result<Box<T>, serde_json::Error> {
        T::deserialize(data).map(Box::new)
    }
    if event == "relist" {
        return Ok(Change::Relist);
    }
    if let Ok(Gone { id, deleted: true }) = Gone::deserialize(data) {
        return Ok(Change::Deleted { topic: event.to_owned(), id });
    }
    match event {
        "manifest" => read(data).map(Change::Manifest),
        "schedule" => read(data).map(Change::Schedule),
        "task" => read(data).map(Change::Task),
        "cluster" => read(data).map(Change::Cluster),
        other => Ok(Change::Other(other.to_owned())),
    }
}

/// One event as the protocol of server-sent events frames it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Message {
    id: Option<String>,
    event: String,
    data: String,
}

/// Gathers lines into messages; lines may be cut anywhere between two pieces.
#[derive(Debug, Default)]
struct Parser {
    pending: Vec<u8>,
    message: Message,
    has_data: bool,
}

impl Parser {
    fn push(&mut self, piece: &[u8]) -> Result<Vec<Message>, &'static str> {
        self.pending.extend_from_slice(piece);
        let mut messages = Vec::new();
        let mut begin = 0;
        while let Some(length) = self.pending[begin..].iter().position(|byte| *byte == b'\n') {
            let line = &self.pending[begin..begin + length];
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
            begin += length + 1;
            messages.extend(self.line(&line));
        }
        self.pending.drain(..begin);
        if self.pending.len() + self.message.data.len() > EVENT_BYTES_MAX {
            return Err("an event is larger than any of ours");
        }
        Ok(messages)
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            let whole = std::mem::take(&mut self.has_data) || !message.event.is_empty();
            return whole.then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.message.id = Some(value.to_owned()),
            "event" => self.message.event = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.message.data += value;
                self.has_data = true;
            }
            _ => {} // a comment, or a field that this client does not know
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_wherever_the_pieces_were_cut() {
        let text =
            ": hello\n\nid: 7\nevent: manifest\ndata: {\"a\":\ndata: 1}\n\nevent: relist\r\n\r\nid: 9\n";
        let whole = [
            Message { id: Some("7".into()), event: "manifest".into(), data: "{\"a\":\n1}".into() },
            Message { id: None, event: "relist".into(), data: String::new() },
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let pieces = text.as_bytes().chunks(size).flat_map(|piece| parser.push(piece).unwrap());
            assert_eq!(pieces.collect::<Vec<_>>(), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_gone_is_told_by_its_id() {
        let gone = change("schedule", &serde_json::json!({"id": "weekly", "deleted": true})).unwrap();
        assert!(matches!(gone, Change::Deleted { topic, id } if topic == "schedule" && id == "weekly"));
        assert!(matches!(change("operation", &Value::Null).unwrap(), Change::Other(_)));
        assert!(change("manifest", &Value::Null).is_err());
    }
}
