//! Azure's scheduled events, of which `Preempt` is the eviction of a spot machine.
//!
//! An event is not acknowledged: that would start it before the time that it leaves to drain the Node.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;

use super::decide::Notice;
use super::metadata::{MetadataAddress, MetadataClient, MetadataError, MetadataResponse};

const INSTANCE: &str = "/metadata/instance?api-version=2021-02-01";
const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
/// Without this header the service refuses, so that a page in a browser cannot ask.
const METADATA: (HeaderName, HeaderValue) =
    (HeaderName::from_static("metadata"), HeaderValue::from_static("true"));
const PREEMPT: &str = "Preempt";

/// Longest time of a request.
const LIMIT: Duration = Duration::from_secs(10);
/// As [`LIMIT`], of the first request for events: it enables them for this machine, which takes up to two minutes.
const FIRST_LIMIT: Duration = Duration::from_secs(150);

/// The events of this machine and of those that share its availability set.
pub(super) struct ScheduledEvents {
    metadata: MetadataClient,
    /// The name under which events mean this machine; that of its Node may be another.
    machine: Option<String>,
    limit: Duration,
}

#[derive(Deserialize)]
struct InstanceDocument {
    compute: Compute,
}

#[derive(Deserialize)]
struct Compute {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EventsDocument {
    events: Vec<Event>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    event_type: String,
    #[serde(default)]
    resources: Vec<String>,
}

impl ScheduledEvents {
    pub(super) fn new(address: MetadataAddress) -> ScheduledEvents {
        ScheduledEvents { metadata: MetadataClient::new(address), machine: None, limit: FIRST_LIMIT }
    }

    pub(super) async fn look(&mut self) -> Result<Notice, MetadataError> {
        let machine = match &self.machine {
            Some(machine) => machine.clone(),
            None => self.machine.insert(self.machine_name().await?).clone(),
        };
        let response = self.get(EVENTS, self.limit).await?;
        self.limit = LIMIT;
        match serde_json::from_slice::<EventsDocument>(&response.body) {
            Ok(document) => Ok(notice(&document, &machine)),
            Err(_) => Err(response.unintelligible("a document of scheduled events")),
        }
    }

    async fn machine_name(&self) -> Result<String, MetadataError> {
        let response = self.get(INSTANCE, LIMIT).await?;
        match serde_json::from_slice::<InstanceDocument>(&response.body) {
            Ok(document) if !document.compute.name.is_empty() => Ok(document.compute.name),
            _ => Err(response.unintelligible("a document with the machine's name in compute.name")),
        }
    }

    async fn get(&self, path: &str, limit: Duration) -> Result<MetadataResponse, MetadataError> {
        let headers = HeaderMap::from_iter([METADATA]);
        let response = self.metadata.send(&Method::GET, path, &headers, limit).await?;
        match response.status {
            StatusCode::OK => Ok(response),
            _ => Err(response.refused("200 with a document")),
        }
    }
}

/// Whether this machine is to be evicted, whatever the state of the event.
fn notice(document: &EventsDocument, machine: &str) -> Notice {
    let names = |event: &Event| event.resources.iter().any(|it| it.eq_ignore_ascii_case(machine));
    match document.events.iter().any(|event| event.event_type == PREEMPT && names(event)) {
        true => Notice::Termination,
        false => Notice::None,
    }
}
