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

impl Transcript {
    /// The first place where the other one differs, in words.
    pub(crate) fn first_difference(&self, other: &Transcript) -> Option<String> {
        for (number, (ours, theirs)) in self.0.iter().zip(&other.0).enumerate() {
            if ours == theirs {
                continue;
            }
            let mut what = format!("answer {} differs: {}\n", number + 1, ours.asked);
            if ours.status != theirs.status {
                what +=
                    &format!("  status: {} on kube-apiserver, {} on kubesim\n", ours.status, theirs.status);
            }
            if ours.headers != theirs.headers {
                what += &format!(
                    "  headers: {:?} on kube-apiserver, {:?} on kubesim\n",
                    ours.headers, theirs.headers
                );
            }
            let mut places = Vec::new();
            differences("", &ours.body, &theirs.body, &mut places);
            for place in places.iter().take(20) {
                what += &format!("  {place}\n");
            }
            return Some(what);
        }
        (self.0.len() != other.0.len())
            .then(|| format!("{} answers on kube-apiserver, {} on kubesim", self.0.len(), other.0.len()))
    }
}

fn differences(path: &str, ours: &Value, theirs: &Value, places: &mut Vec<String>) {
    match (ours, theirs) {
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
        _ if ours == theirs => {}
        _ => places.push(format!("{path}: {ours} on kube-apiserver, {theirs} on kubesim")),
    }
}

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
