//! What people do. Each deed is said to the Admin API in the name of whoever does it, with their reason; what came of it is told
//! on the next page.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::admin::BudgetRequest;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use client::{Client, ClientError, PendingWork};
use futures_util::{StreamExt as _, stream};
use uuid::Uuid;

use crate::House;
use crate::fields::{Fields, escaped};
use crate::pages::{self, Desk, schedules, tasks};
use crate::session::{Told, Visitor};
use crate::view::{Eyes, cluster_path, resource_id, short_name};

/// So many clusters are asked at once.
const AT_ONCE: usize = 8;

/// What came of a deed: where to go, and what is told there.
struct Done {
    to: String,
    text: String,
}

/// Why a deed was not done.
enum NotDone {
    /// It is told on that page.
    Told { to: String, text: String },
    /// Another page is the answer.
    Shown(Box<Response>),
}

impl NotDone {
    fn told(to: &str, error: &ClientError) -> NotDone {
        NotDone::Told { to: to.to_owned(), text: format!("That was not done: {error}.") }
    }
}

/// Does what was asked.
pub(crate) async fn act(
    State(house): State<Arc<House>>,
    Extension(visitor): Extension<Visitor>,
    Extension(fields): Extension<Fields>,
    Path(what): Path<String>,
) -> Response {
    let admin = house.admin.speaking_for(&visitor.user);
    let segments: Vec<&str> = what.split('/').collect();
    let deed = Deed { house: &house, visitor: &visitor, admin, fields: &fields };
    let done = match segments.as_slice() {
        ["manifest", id, "cancel"] => deed.cancel(id).await,
        ["manifest", id, "expedite"] => deed.expedite(id).await,
        ["task", name, "run"] => deed.run(name).await,
        ["schedule"] => deed.store_schedule().await,
        ["schedule", id, verb @ ("enable" | "disable")] => deed.switch(id, verb).await,
        ["schedule", id, "delete"] => deed.delete_schedule(id).await,
        ["budget"] => deed.budget().await,
        ["cluster", subscription, group, name] => deed.label(subscription, group, name).await,
        _ => Err(NotDone::Told { to: "/fleet".to_owned(), text: "There is no such thing to do.".to_owned() }),
    };
    let (to, told) = match done {
        Ok(Done { to, text }) => (to, Told { is_bad: false, text }),
        Err(NotDone::Told { to, text }) => (to, Told { is_bad: true, text }),
        Err(NotDone::Shown(response)) => return *response,
    };
    house.sessions.tell(&visitor, told);
    Redirect::to(&to).into_response()
}

/// What is needed to do something.
struct Deed<'a> {
    house: &'a House,
    visitor: &'a Visitor,
    admin: Client,
    fields: &'a Fields,
}

impl Deed<'_> {
    fn reason(&self) -> Option<&str> {
        self.fields.one("reason")
    }

    /// A manifest's page, its id and its cluster.
    async fn manifest(&self, id: &str) -> Result<(String, Uuid, String), NotDone> {
        let found = self.admin.find_manifest(id).await.map_err(|error| NotDone::told("/work", &error))?.value;
        Ok((format!("/manifest/{}", found.id), found.id, found.cluster_resource_id.unwrap_or_default()))
    }

    async fn cancel(&self, id: &str) -> Result<Done, NotDone> {
        let (to, id, cluster) = self.manifest(id).await?;
        let answer = self.admin.cancel_manifest(&cluster, id, self.reason()).await;
        let answer = answer.map_err(|error| NotDone::told(&to, &error))?;
        let text = if answer.status == http::StatusCode::ACCEPTED {
            "It was asked to end: it does so at its next safe point and takes back what it did."
        } else {
            "It is cancelled."
        };
        Ok(Done { to, text: text.to_owned() })
    }

    async fn expedite(&self, id: &str) -> Result<Done, NotDone> {
        let (to, id, cluster) = self.manifest(id).await?;
        let answer = self.admin.expedite_manifest(&cluster, id, self.reason()).await;
        answer.map_err(|error| NotDone::told(&to, &error))?;
        Ok(Done { to, text: "It is the next of its cluster.".to_owned() })
    }

    async fn run(&self, name: &str) -> Result<Done, NotDone> {
        let page = format!("/task/{}", escaped(name));
        let task = self.admin.task(name).await.map_err(|error| NotDone::told("/tasks", &error))?.value;
        let wrong = |text: String| NotDone::Told { to: page.clone(), text };
        let (clusters, request) = tasks::request(&task, self.fields).map_err(wrong)?;
        let is_look = self.fields.text("mode") == "preview";
        let asked = stream::iter(clusters).map(|cluster| {
            let (admin, request) = (self.admin.clone(), request.clone());
            async move {
                let answer = admin.create_manifest(&cluster, &request, is_look).await;
                (cluster, answer)
            }
        });
        let answers: Vec<_> = asked.buffered(AT_ONCE).collect().await;
        if is_look {
            let outcomes: Vec<tasks::Outcome> = answers
                .into_iter()
                .map(|(cluster, answer)| tasks::Outcome {
                    cluster,
                    answer: answer.map(drop).map_err(|error| error.to_string()),
                })
                .collect();
            let (eyes, query) = (self.eyes(), Fields::default());
            let desk = Desk { admin: &self.admin, eyes, query: &query };
            let made = tasks::one(desk, name, Some((self.fields, &outcomes))).await;
            return Err(NotDone::Shown(Box::new(pages::framed(self.house, self.visitor, &page, made))));
        }
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        for (cluster, answer) in answers {
            match answer {
                Ok(answer) => made.push(answer.value.id),
                Err(error) => refused.push(format!("{}: {error}", short_name(&cluster))),
            }
        }
        let to = match made.as_slice() {
            [] => page,
            [only] => format!("/manifest/{only}"),
            _ => "/work".to_owned(),
        };
        if refused.is_empty() {
            let text = match made.len() {
                1 => format!("{name} was asked for."),
                count => format!("{name} was asked for on {count} clusters."),
            };
            return Ok(Done { to, text });
        }
        let asked = made.len();
        let text =
            format!("Asked for on {asked} clusters; refused on {}: {}.", refused.len(), refused.join("; "));
        Err(NotDone::Told { to, text })
    }

    async fn store_schedule(&self) -> Result<Done, NotDone> {
        let fields = self.fields;
        let is_new = fields.one("etag").is_none();
        let shown = async |wrong: Option<&str>| {
            let (eyes, query) = (self.eyes(), Fields::default());
            let desk = Desk { admin: &self.admin, eyes, query: &query };
            let id = fields.one("id").filter(|_| !is_new);
            let made = schedules::editor(desk, id, Some((fields, wrong))).await;
            let page =
                id.map_or_else(|| "/schedules/new".to_owned(), |id| format!("/schedule/{}", escaped(id)));
            NotDone::Shown(Box::new(pages::framed(self.house, self.visitor, &page, made)))
        };
        let form = match schedules::read(fields) {
            Ok(form) => form,
            Err(wrong) => return Err(shown(Some(&wrong)).await),
        };
        if fields.text("mode") == "preview" {
            return Err(shown(None).await);
        }
        // A new one must not take the place of one that is there by the same name.
        if is_new && !form.id.is_empty() && self.admin.schedule(&form.id).await.is_ok() {
            return Err(shown(Some("There is a schedule of that name already; choose another.")).await);
        }
        match self.admin.put_schedule(&form, fields.one("etag")).await {
            Ok(answer) => Ok(Done {
                to: format!("/schedule/{}", escaped(&answer.value.id)),
                text: "It is stored. What it makes is on the plan.".to_owned(),
            }),
            Err(error) => Err(shown(Some(&format!("It was not stored: {error}."))).await),
        }
    }

    async fn switch(&self, id: &str, verb: &str) -> Result<Done, NotDone> {
        let to = format!("/schedule/{}", escaped(id));
        let failed = |error: ClientError| NotDone::told(&to, &error);
        let stored = self.admin.schedule(id).await.map_err(failed)?;
        let (etag, mut form) = (stored.etag, stored.value);
        form.state = if verb == "enable" { "Enabled" } else { "Disabled" }.to_owned();
        form.status = None;
        form.reason = self.reason().map(str::to_owned);
        self.admin.put_schedule(&form, etag.as_deref()).await.map_err(failed)?;
        Ok(Done { to, text: format!("The schedule {id} is {}.", form.state.to_lowercase()) })
    }

    async fn delete_schedule(&self, id: &str) -> Result<Done, NotDone> {
        let to = format!("/schedule/{}", escaped(id));
        if self.fields.text("confirm") != id {
            let text = format!("Type {id} to delete it; nothing was done.");
            return Err(NotDone::Told { to, text });
        }
        let pending =
            if self.fields.text("pending") == "keep" { PendingWork::Keep } else { PendingWork::Cancel };
        let deleted = self.admin.delete_schedule(id, pending, self.reason()).await;
        deleted.map_err(|error| NotDone::told(&to, &error))?;
        Ok(Done { to: "/schedules".to_owned(), text: format!("The schedule {id} is deleted.") })
    }

    async fn budget(&self) -> Result<Done, NotDone> {
        let to = "/budgets".to_owned();
        let key = self.fields.text("key").to_lowercase();
        let limit = match self.fields.text("limit") {
            "none" => None,
            text => match text.parse::<u32>() {
                Ok(limit) => Some(limit),
                Err(_) => {
                    let text =
                        format!("The limit must be a whole number or none, not {text:?}; nothing was done.");
                    return Err(NotDone::Told { to, text });
                }
            },
        };
        let request = BudgetRequest { limit, reason: self.reason().map(str::to_owned) };
        self.admin.set_budget(&key, &request).await.map_err(|error| NotDone::told(&to, &error))?;
        let text = match limit {
            None => format!("The limit of {key} is removed."),
            Some(0) => format!("New starts under {key} are stopped. What runs goes on to its end."),
            Some(limit) => format!("At most {limit} run at once under {key}."),
        };
        Ok(Done { to, text })
    }

    async fn label(&self, subscription: &str, group: &str, name: &str) -> Result<Done, NotDone> {
        let id = resource_id(subscription, group, name);
        let to = format!("{}?tab=labels", cluster_path(&id));
        let mut labels = BTreeMap::new();
        for line in self.fields.text("labels").lines().map(str::trim).filter(|line| !line.is_empty()) {
            let Some((name, value)) = line.split_once('=') else {
                let text = format!("{line:?} is no label: write name=value. Nothing was done.");
                return Err(NotDone::Told { to, text });
            };
            labels.insert(name.trim().to_owned(), value.trim().to_owned());
        }
        let labelled = self.admin.label_cluster(&id, &labels, self.reason()).await;
        labelled.map_err(|error| NotDone::told(&to, &error))?;
        Ok(Done { to, text: format!("The cluster has {} labels now.", labels.len()) })
    }

    fn eyes(&self) -> Eyes<'_> {
        Eyes { role: self.visitor.role, now: self.house.clock.now(), mark: &self.house.mark }
    }
}
