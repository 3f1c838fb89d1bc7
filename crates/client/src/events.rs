//! Event stream that reconnects and resumes after the last event.

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

use crate::error::{ClientError, ErrorResponse};
use crate::exchange::{Client, read_body};
use crate::path::ApiPath;
use crate::transport::Body;

/// The server sends a comment every 15 s; after three missing ones the connection counts as broken.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Timeout of the response head.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Backoff between attempts to reconnect.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Largest event; bounds the memory that a faulty server can use.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// Topic of events.
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
    /// Operations of the ARM API.
    Operations,
}

impl Topic {
    /// All topics.
    pub const ALL: [Topic; 5] =
        [Topic::Manifests, Topic::Schedules, Topic::Tasks, Topic::Clusters, Topic::Operations];

    /// Name in the query of a request.
    pub fn plural(self) -> &'static str {
        match self {
            Topic::Manifests => "manifests",
            Topic::Schedules => "schedules",
            Topic::Tasks => "tasks",
            Topic::Clusters => "clusters",
            Topic::Operations => "operations",
        }
    }

    /// Name in an event.
    pub fn singular(self) -> &'static str {
        self.plural().trim_end_matches('s')
    }
}

/// Event of the stream.
#[derive(Debug, Clone)]
pub struct Event {
    /// Position in the feed; a new stream can start after it.
    pub id: String,
    /// The change.
    pub change: Change,
    /// Unparsed data.
    pub data: Value,
}

/// Change that an event reports.
#[derive(Debug, Clone)]
pub enum Change {
    /// Created or changed manifest.
    Manifest(Box<ManifestForm>),
    /// Created or changed schedule.
    Schedule(Box<ScheduleForm>),
    /// Created or changed task.
    Task(Box<TaskForm>),
    /// Created or changed cluster.
    Cluster(Box<AdminCluster>),
    /// Created or changed resource of a kind without a type in this client.
    Other(String),
    /// Deleted resource.
    Deleted {
        /// Kind, in the singular.
        topic: String,
        /// Id of the resource.
        id: String,
    },
    /// Events were missed: a reader with a cache lists again.
    Relist,
    /// The connection broke. The stream reconnects, and no event is missed.
    Interrupted {
        /// Cause of the interruption.
        cause: String,
    },
}

impl Client {
    /// Streams events of these topics (of all if empty), from now on or after the event `after`.
    ///
    /// The first connection must succeed; later ones are retried. The stream ends with an error only when the
    /// server rejects the request or sends invalid data.
    pub fn events(
        &self,
        topics: &[Topic],
        after: Option<String>,
    ) -> BoxStream<'static, Result<Event, ClientError>> {
        let topics: Vec<&str> = topics.iter().map(|topic| topic.plural()).collect();
        let topics = (!topics.is_empty()).then(|| topics.join(","));
        let path = ApiPath::new("/admin/events").optional_query("topics", topics).to_uri();
        let event_stream = EventStream {
            client: self.clone(),
            path,
            after,
            connection: None,
            ready: VecDeque::new(),
            backoff: BACKOFF_MIN,
            connected: false,
            interrupted: false,
            finished: false,
        };
        stream::unfold(event_stream, |mut event_stream| async move {
            let event = event_stream.next().await?;
            Some((event, event_stream))
        })
        .boxed()
    }
}

struct EventStream {
    client: Client,
    path: String,
    after: Option<String>,
    connection: Option<(Body, Parser)>,
    ready: VecDeque<Event>,
    backoff: Duration,
    connected: bool,
    interrupted: bool,
    finished: bool,
}

impl EventStream {
    async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.finished {
                return None;
            }
            let Some((body, parser)) = &mut self.connection else {
                // A server that is shutting down ends each stream at once; without a delay this would be a busy loop.
                if std::mem::take(&mut self.interrupted) {
                    tokio::time::sleep(self.backoff).await;
                }
                match self.connect().await {
                    Ok(body) => {
                        self.connection = Some((body, Parser::default()));
                        self.connected = true;
                    }
                    Err(error) if self.connected && error.is_transient() => {
                        tokio::time::sleep(self.backoff).await;
                        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
                    }
                    Err(error) => {
                        self.finished = true;
                        return Some(Err(error));
                    }
                }
                continue;
            };
            let cause = match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    self.backoff = BACKOFF_MIN;
                    let Ok(data) = frame.into_data() else { continue };
                    let parsed = parser.push(&data);
                    match parsed {
                        Ok(messages) => match self.enqueue(messages) {
                            Ok(()) => continue,
                            Err(error) => {
                                self.finished = true;
                                return Some(Err(error));
                            }
                        },
                        Err(error) => error.to_owned(),
                    }
                }
                Ok(Some(Err(error))) => error.to_string(),
                Ok(None) => "the server ended the stream".to_owned(),
                Err(_) => format!("the server sent nothing for {SILENCE_MAX:?}"),
            };
            self.connection = None;
            self.interrupted = true;
            let id = self.after.clone().unwrap_or_default();
            return Some(Ok(Event { id, change: Change::Interrupted { cause }, data: Value::Null }));
        }
    }

    async fn connect(&mut self) -> Result<Body, ClientError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(after) = self.after.as_deref().and_then(|after| HeaderValue::from_str(after).ok()) {
            headers.insert("last-event-id", after);
        }
        let request = self.client.send(Method::GET, &self.path, Bytes::new(), None, headers);
        let response = tokio::time::timeout(CONNECT_TIMEOUT, request).await.map_err(|_| {
            ClientError::TimedOut { server: self.client.server().to_owned(), timeout: CONNECT_TIMEOUT }
        })??;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let content = tokio::time::timeout(CONNECT_TIMEOUT, read_body(body)).await;
        let content = content.ok().and_then(Result::ok).unwrap_or_default();
        Err(ClientError::Response(ErrorResponse::parse(head.status, &content)))
    }

    fn enqueue(&mut self, messages: Vec<Message>) -> Result<(), ClientError> {
        for message in messages {
            if let Some(id) = &message.id {
                self.after = Some(id.clone());
            }
            let id = self.after.clone().unwrap_or_default();
            let data: Value = match message.data.is_empty() {
                true => Value::Null,
                false => serde_json::from_str(&message.data)
                    .map_err(|error| self.client.invalid_response(&self.path, &error))?,
            };
            let change = parse_change(&message.event, &data).map_err(|error| {
                self.client.invalid_response(&format!("an event of kind {}", message.event), &error)
            })?;
            self.ready.push_back(Event { id, change, data });
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct DeletedResource {
    id: String,
    deleted: bool,
}

fn parse_change(event: &str, data: &Value) -> Result<Change, serde_json::Error> {
    fn read<T: DeserializeOwned>(data: &Value) -> Result<Box<T>, serde_json::Error> {
        T::deserialize(data).map(Box::new)
    }
    if event == "relist" {
        return Ok(Change::Relist);
    }
    if let Ok(DeletedResource { id, deleted: true }) = DeletedResource::deserialize(data) {
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

/// Server-sent event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Message {
    id: Option<String>,
    event: String,
    data: String,
}

/// Parser of server-sent events; a chunk may end anywhere in a line.
#[derive(Debug, Default)]
struct Parser {
    pending: Vec<u8>,
    message: Message,
    has_data: bool,
}

impl Parser {
    fn push(&mut self, chunk: &[u8]) -> Result<Vec<Message>, &'static str> {
        self.pending.extend_from_slice(chunk);
        let mut messages = Vec::new();
        let mut start = 0;
        while let Some(length) = self.pending[start..].iter().position(|byte| *byte == b'\n') {
            let line = &self.pending[start..start + length];
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
            start += length + 1;
            messages.extend(self.push_line(&line));
        }
        self.pending.drain(..start);
        if self.pending.len() + self.message.data.len() > EVENT_BYTES_MAX {
            return Err("an event exceeds the size limit");
        }
        Ok(messages)
    }

    fn push_line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            let is_complete = std::mem::take(&mut self.has_data) || !message.event.is_empty();
            return is_complete.then_some(message);
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
            _ => {} // a comment or an unknown field
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_complete_wherever_chunks_end() {
        let text =
            ": hello\n\nid: 7\nevent: manifest\ndata: {\"a\":\ndata: 1}\n\nevent: relist\r\n\r\nid: 9\n";
        let expected = [
            Message { id: Some("7".into()), event: "manifest".into(), data: "{\"a\":\n1}".into() },
            Message { id: None, event: "relist".into(), data: String::new() },
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let messages = text.as_bytes().chunks(size).flat_map(|chunk| parser.push(chunk).unwrap());
            assert_eq!(messages.collect::<Vec<_>>(), expected, "chunk size {size}");
        }
    }

    #[test]
    fn a_deleted_resource_has_its_kind_and_id() {
        let deleted =
            parse_change("schedule", &serde_json::json!({"id": "weekly", "deleted": true})).unwrap();
        assert!(matches!(deleted, Change::Deleted { topic, id } if topic == "schedule" && id == "weekly"));
        assert!(matches!(parse_change("operation", &Value::Null).unwrap(), Change::Other(_)));
        assert!(parse_change("manifest", &Value::Null).is_err());
    }
}
