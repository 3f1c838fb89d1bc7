//! Cases, their scripts, and the transcripts of their runs.

use futures_util::future::BoxFuture;
use kube::Client;
use serde_json::Value;

use crate::normalize::Names;
pub(crate) use crate::request::Request;
use crate::watch::Watch;

/// One case.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a mut Script) -> BoxFuture<'a, ()>,
}

/// Defines cases of a group as functions. `{ns}` in a request is a namespace of the case, `{id}` a unique name.
macro_rules! cases {
    ($group:literal; $($(#[$meta:meta])* async fn $name:ident($script:ident) $body:block)*) => {
        $($(#[$meta])* async fn $name($script: &mut crate::script::Script) $body)*

        pub(crate) fn all() -> Vec<crate::script::Case> {
            vec![$(crate::script::Case {
                name: concat!($group, "::", stringify!($name)),
                run: |script| Box::pin($name(script)),
            }),*]
        }
    };
}
pub(crate) use cases;

/// The response to one request, or an event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exchange {
    /// The method and path of the request.
    pub(crate) request: String,
    /// The status code, and the headers that are compared.
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// The responses of one run.
#[derive(Debug, Default)]
pub(crate) struct Transcript(Vec<Exchange>);

impl Transcript {
    /// Describes the first difference.
    pub(crate) fn first_difference(&self, other: &Transcript) -> Option<String> {
        for (number, (real, simulated)) in self.0.iter().zip(&other.0).enumerate() {
            if real == simulated {
                continue;
            }
            let mut message = format!("response {} differs: {}\n", number + 1, real.request);
            if real.status != simulated.status {
                message += &format!(
                    "  status: {} on kube-apiserver, {} on kubesim\n",
                    real.status, simulated.status
                );
            }
            if real.headers != simulated.headers {
                message += &format!(
                    "  headers: {:?} on kube-apiserver, {:?} on kubesim\n",
                    real.headers, simulated.headers
                );
            }
            let mut places = Vec::new();
            differences("", &real.body, &simulated.body, &mut places);
            for place in places.iter().take(20) {
                message += &format!("  {place}\n");
            }
            return Some(message);
        }
        (self.0.len() != other.0.len())
            .then(|| format!("{} responses on kube-apiserver, {} on kubesim", self.0.len(), other.0.len()))
    }
}

fn differences(path: &str, real: &Value, simulated: &Value, places: &mut Vec<String>) {
    match (real, simulated) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let null = Value::Null;
                let absent = |it: Option<&Value>| it.is_none();
                if absent(a.get(key)) != absent(b.get(key)) {
                    let show = |it: Option<&Value>| it.map_or("absent".to_owned(), Value::to_string);
                    places.push(format!(
                        "{path}/{key}: {} on kube-apiserver, {} on kubesim",
                        show(a.get(key)),
                        show(b.get(key))
                    ));
                } else {
                    differences(
                        &format!("{path}/{key}"),
                        a.get(key).unwrap_or(&null),
                        b.get(key).unwrap_or(&null),
                        places,
                    );
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (place, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}/{place}"), a, b, places);
            }
        }
        _ if real == simulated => {}
        _ => places.push(format!("{path}: {real} on kube-apiserver, {simulated} on kubesim")),
    }
}

/// The run of one case on one server.
pub(crate) struct Script {
    pub(crate) client: Client,
    pub(crate) anonymous: Client,
    pub(crate) names: Names,
    pub(crate) transcript: Transcript,
}

impl Script {
    pub(crate) fn get(&mut self, path: &str) -> Request<'_> {
        Request::new(self, "GET", path, Value::Null)
    }

    pub(crate) fn post(&mut self, path: &str, body: Value) -> Request<'_> {
        Request::new(self, "POST", path, body)
    }

    pub(crate) fn put(&mut self, path: &str, body: Value) -> Request<'_> {
        Request::new(self, "PUT", path, body)
    }

    pub(crate) fn delete(&mut self, path: &str) -> Request<'_> {
        Request::new(self, "DELETE", path, Value::Null)
    }

    /// A merge patch.
    pub(crate) fn merge(&mut self, path: &str, body: Value) -> Request<'_> {
        Request::new(self, "PATCH", path, body).content_type("application/merge-patch+json")
    }

    /// A strategic merge patch.
    pub(crate) fn strategic(&mut self, path: &str, body: Value) -> Request<'_> {
        Request::new(self, "PATCH", path, body).content_type("application/strategic-merge-patch+json")
    }

    /// A JSON patch.
    pub(crate) fn json_patch(&mut self, path: &str, body: Value) -> Request<'_> {
        Request::new(self, "PATCH", path, body).content_type("application/json-patch+json")
    }

    /// A server-side apply; the path contains the field manager.
    pub(crate) fn apply(&mut self, path: &str, body: Value) -> Request<'_> {
        Request::new(self, "PATCH", path, body).content_type("application/apply-patch+yaml")
    }

    /// Replaces `found`, which the server generated, by `shown` from now on.
    pub(crate) fn alias(&mut self, found: &str, shown: &str) {
        self.names.add(found, shown);
    }

    /// Starts a watch.
    pub(crate) async fn watch(&mut self, path: &str) -> Watch {
        Watch::open(self, path).await
    }

    /// Records the next `count` events of a watch.
    pub(crate) async fn events(&mut self, watch: &mut Watch, count: usize) -> Vec<Value> {
        let events = watch.take(count).await;
        let mut body = Value::Array(events.clone());
        self.names.value(&mut body);
        let description = format!("the next {count} events of {}", watch.path);
        self.transcript.0.push(Exchange { request: description, status: 200, headers: Vec::new(), body });
        events
    }

    pub(crate) fn note(&mut self, exchange: Exchange) {
        self.transcript.0.push(exchange);
    }
}
