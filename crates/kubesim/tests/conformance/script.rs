//! A case, its conversation with one server, and what was heard.

use futures_util::future::BoxFuture;
use kube::Client;
use serde_json::Value;

use crate::normal::Names;
pub(crate) use crate::request::Request;
use crate::watch::Watch;

/// One conversation, by its name.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a mut Script) -> BoxFuture<'a, ()>,
}

/// Cases as functions, in the room of that name. `{ns}` in what they send is a namespace of their own, `{id}` a name that
/// nobody else uses.
macro_rules! cases {
    ($room:literal; $($(#[$meta:meta])* async fn $name:ident($script:ident) $body:block)*) => {
        $($(#[$meta])* async fn $name($script: &mut crate::script::Script) $body)*

        pub(crate) fn all() -> Vec<crate::script::Case> {
            vec![$(crate::script::Case {
                name: concat!($room, "::", stringify!($name)),
                run: |script| Box::pin($name(script)),
            }),*]
        }
    };
}
pub(crate) use cases;

/// What one server answered to one request, or what it told a watcher.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heard {
    /// What was asked.
    pub(crate) asked: String,
    /// The status code, and headers that clients read.
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// A conversation, as it was heard.
#[derive(Debug, Default)]
pub(crate) struct Transcript(Vec<Heard>);

/// The conversation of one case with one server.
pub(crate) struct Script {
    pub(crate) client: Client,
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

    /// A server-side apply; the path says as whom.
    pub(crate) fn apply(&mut self, path: &str, body: Value) -> Request<'_> {
        Request::new(self, "PATCH", path, body).content_type("application/apply-patch+yaml")
    }

    /// From now on `found`, which the server made up, is shown as `shown`.
    pub(crate) fn call(&mut self, found: &str, shown: &str) {
        self.names.add(found, shown);
    }

    /// Begins to watch.
    pub(crate) async fn watch(&mut self, path: &str) -> Watch {
        Watch::open(self, path).await
    }

    /// Notes what a watcher was told next: so many events.
    pub(crate) async fn told(&mut self, watch: &mut Watch, count: usize) -> Vec<Value> {
        let events = watch.take(count).await;
        let mut body = Value::Array(events.clone());
        self.names.value(&mut body);
        let asked = format!("the next {count} events of {}", watch.path);
        self.transcript.0.push(Heard { asked, status: 200, headers: Vec::new(), body });
        events
    }

    pub(crate) fn note(&mut self, heard: Heard) {
        self.transcript.0.push(heard);
    }
}
