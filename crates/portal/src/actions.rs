//! Actions of users. Each is a request to the Admin API in the name of the user, with their reason; the next page shows its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::admin::BudgetRequest;
use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::post;
use client::{Client, ClientError, PendingWork};
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use http::request::Parts;
use uuid::Uuid;

use crate::PortalState;
use crate::fields::{Fields, escaped};
use crate::pages::{self, PageContext, schedules, tasks};
use crate::session::{FlashMessage, SessionUser};
use crate::view::{Viewer, cluster_path, resource_id, short_name};

/// Concurrent requests of an action on several clusters.
const CONCURRENT_REQUESTS: usize = 8;

/// A successful action: the page to redirect to, and the message to show there.
struct ActionDone {
    to: String,
    text: String,
}

/// A failed action.
enum ActionError {
    /// Redirect to a page and show a message there.
    Message { to: String, text: String },
    /// Respond with a page.
    Page(Box<Response>),
}

impl ActionError {
    fn message(to: &str, error: &ClientError) -> ActionError {
        ActionError::Message { to: to.to_owned(), text: format!("The request failed: {error}.") }
    }
}

/// Every action, below `/act`.
pub(crate) fn router() -> Router<Arc<PortalState>> {
    Router::new()
        .route(
            "/manifest/{id}/cancel",
            post(async |action: Action, Path(id): Path<String>| {
                action.finish(action.context().cancel(&id).await)
            }),
        )
        .route(
            "/manifest/{id}/expedite",
            post(async |action: Action, Path(id): Path<String>| {
                action.finish(action.context().expedite(&id).await)
            }),
        )
        .route(
            "/task/{name}/run",
            post(async |action: Action, Path(name): Path<String>| {
                action.finish(action.context().run(&name).await)
            }),
        )
        .route(
            "/schedule",
            post(async |action: Action| action.finish(action.context().store_schedule().await)),
        )
        .route("/schedule/{id}/enable", post(enable))
        .route("/schedule/{id}/disable", post(disable))
        .route(
            "/schedule/{id}/delete",
            post(async |action: Action, Path(id): Path<String>| {
                action.finish(action.context().delete_schedule(&id).await)
            }),
        )
        .route("/budget", post(async |action: Action| action.finish(action.context().budget().await)))
        .route("/cluster/{subscription}/{group}/{name}", post(label))
        .fallback(async |action: Action| {
            let text = "The action does not exist.".to_owned();
            action.finish(Err(ActionError::Message { to: "/fleet".to_owned(), text }))
        })
}

async fn enable(action: Action, Path(id): Path<String>) -> Response {
    action.finish(action.context().set_state(&id, "Enabled").await)
}

async fn disable(action: Action, Path(id): Path<String>) -> Response {
    action.finish(action.context().set_state(&id, "Disabled").await)
}

async fn label(
    action: Action,
    Path((subscription, group, name)): Path<(String, String, String)>,
) -> Response {
    action.finish(action.context().label(&subscription, &group, &name).await)
}

/// A request for an action, with the signed-in user and the form that the middleware has checked.
struct Action {
    state: Arc<PortalState>,
    user: SessionUser,
    fields: Fields,
}

impl FromRequestParts<Arc<PortalState>> for Action {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<PortalState>) -> Result<Action, StatusCode> {
        // The middleware sets both before it forwards a request that changes something.
        let user = parts.extensions.get::<SessionUser>().cloned();
        let fields = parts.extensions.get::<Fields>().cloned();
        match (user, fields) {
            (Some(user), Some(fields)) => Ok(Action { state: state.clone(), user, fields }),
            _ => Err(StatusCode::FORBIDDEN),
        }
    }
}

impl Action {
    fn context(&self) -> ActionContext<'_> {
        let admin = self.state.admin.on_behalf_of(&self.user.user);
        ActionContext { state: &self.state, user: &self.user, admin, fields: &self.fields }
    }

    /// Leaves a message for the next page and redirects to it, or responds with the page itself.
    fn finish(&self, done: Result<ActionDone, ActionError>) -> Response {
        let (to, message) = match done {
            Ok(ActionDone { to, text }) => (to, FlashMessage { is_error: false, text }),
            Err(ActionError::Message { to, text }) => (to, FlashMessage { is_error: true, text }),
            Err(ActionError::Page(response)) => return *response,
        };
        self.state.sessions.set_flash(&self.user, message);
        Redirect::to(&to).into_response()
    }
}

/// Context of an action.
struct ActionContext<'a> {
    state: &'a PortalState,
    user: &'a SessionUser,
    admin: Client,
    fields: &'a Fields,
}

impl ActionContext<'_> {
    fn reason(&self) -> Option<&str> {
        self.fields.get("reason")
    }

    /// A manifest's page, its id and its cluster.
    async fn manifest(&self, id: &str) -> Result<(String, Uuid, String), ActionError> {
        let found =
            self.admin.find_manifest(id).await.map_err(|error| ActionError::message("/work", &error))?.value;
        Ok((format!("/manifest/{}", found.id), found.id, found.cluster_resource_id.unwrap_or_default()))
    }

    async fn cancel(&self, id: &str) -> Result<ActionDone, ActionError> {
        let (to, id, cluster) = self.manifest(id).await?;
        let response = self.admin.cancel_manifest(&cluster, id, self.reason()).await;
        let response = response.map_err(|error| ActionError::message(&to, &error))?;
        let text = if response.status == StatusCode::ACCEPTED {
            "Cancellation requested. The work stops at its next safe point and undoes its completed steps."
        } else {
            "Manifest cancelled."
        };
        Ok(ActionDone { to, text: text.to_owned() })
    }

    async fn expedite(&self, id: &str) -> Result<ActionDone, ActionError> {
        let (to, id, cluster) = self.manifest(id).await?;
        let response = self.admin.expedite_manifest(&cluster, id, self.reason()).await;
        response.map_err(|error| ActionError::message(&to, &error))?;
        Ok(ActionDone { to, text: "Expedited: it is next on its cluster.".to_owned() })
    }

    async fn run(&self, name: &str) -> Result<ActionDone, ActionError> {
        let path = format!("/task/{}", escaped(name));
        let task = self.admin.task(name).await.map_err(|error| ActionError::message("/tasks", &error))?.value;
        let invalid = |text: String| ActionError::Message { to: path.clone(), text };
        let (clusters, request) = tasks::request(&task, self.fields).map_err(invalid)?;
        let is_preview = self.fields.text("mode") == "preview";
        let requests = stream::iter(clusters).map(|cluster| {
            let (admin, request) = (self.admin.clone(), request.clone());
            async move {
                let response = admin.create_manifest(&cluster, &request, is_preview).await;
                (cluster, response)
            }
        });
        let responses: Vec<_> = requests.buffered(CONCURRENT_REQUESTS).collect().await;
        if is_preview {
            let outcomes: Vec<tasks::PreviewOutcome> = responses
                .into_iter()
                .map(|(cluster, response)| tasks::PreviewOutcome {
                    cluster,
                    result: response.map(drop).map_err(|error| error.to_string()),
                })
                .collect();
            let (viewer, query) = (self.viewer(), Fields::default());
            let page = PageContext { admin: &self.admin, viewer, query: &query };
            let view = tasks::details(page, name, Some((self.fields, &outcomes))).await;
            return Err(ActionError::Page(Box::new(pages::render(self.state, self.user, &path, view))));
        }
        let (mut created, mut rejected) = (Vec::new(), Vec::new());
        for (cluster, response) in responses {
            match response {
                Ok(response) => created.push(response.value.id),
                Err(error) => rejected.push(format!("{}: {error}", short_name(&cluster))),
            }
        }
        let to = match created.as_slice() {
            [] => path,
            [only] => format!("/manifest/{only}"),
            _ => "/work".to_owned(),
        };
        if rejected.is_empty() {
            let text = match created.len() {
                1 => format!("Requested {name}."),
                count => format!("Requested {name} on {count} clusters."),
            };
            return Ok(ActionDone { to, text });
        }
        let text = format!(
            "Requested on {} clusters; rejected on {}: {}.",
            created.len(),
            rejected.len(),
            rejected.join("; ")
        );
        Err(ActionError::Message { to, text })
    }

    async fn store_schedule(&self) -> Result<ActionDone, ActionError> {
        let fields = self.fields;
        let is_new = fields.get("etag").is_none();
        let editor = async |error: Option<&str>| {
            let (viewer, query) = (self.viewer(), Fields::default());
            let page = PageContext { admin: &self.admin, viewer, query: &query };
            let id = fields.get("id").filter(|_| !is_new);
            let view = schedules::editor(page, id, Some((fields, error))).await;
            let path =
                id.map_or_else(|| "/schedules/new".to_owned(), |id| format!("/schedule/{}", escaped(id)));
            ActionError::Page(Box::new(pages::render(self.state, self.user, &path, view)))
        };
        let form = match schedules::read(fields) {
            Ok(form) => form,
            Err(error) => return Err(editor(Some(&error)).await),
        };
        if fields.text("mode") == "preview" {
            return Err(editor(None).await);
        }
        // A new schedule must not replace an existing one with the same name.
        if is_new && !form.id.is_empty() && self.admin.schedule(&form.id).await.is_ok() {
            return Err(editor(Some("A schedule with this name already exists; choose another name.")).await);
        }
        match self.admin.put_schedule(&form, fields.get("etag")).await {
            Ok(response) => Ok(ActionDone {
                to: format!("/schedule/{}", escaped(&response.value.id)),
                text: "Schedule saved. The plan shows its manifests.".to_owned(),
            }),
            Err(error) => Err(editor(Some(&format!("The schedule was not saved: {error}."))).await),
        }
    }

    async fn set_state(&self, id: &str, state: &str) -> Result<ActionDone, ActionError> {
        let to = format!("/schedule/{}", escaped(id));
        let failed = |error: ClientError| ActionError::message(&to, &error);
        let stored = self.admin.schedule(id).await.map_err(failed)?;
        let (etag, mut form) = (stored.etag, stored.value);
        form.state = state.to_owned();
        form.status = None;
        form.reason = self.reason().map(str::to_owned);
        self.admin.put_schedule(&form, etag.as_deref()).await.map_err(failed)?;
        Ok(ActionDone { to, text: format!("Schedule {id} is {}.", form.state.to_lowercase()) })
    }

    async fn delete_schedule(&self, id: &str) -> Result<ActionDone, ActionError> {
        let to = format!("/schedule/{}", escaped(id));
        if self.fields.text("confirm") != id {
            let text = format!("Type {id} to confirm the deletion; nothing was deleted.");
            return Err(ActionError::Message { to, text });
        }
        let pending =
            if self.fields.text("pending") == "keep" { PendingWork::Keep } else { PendingWork::Cancel };
        let deleted = self.admin.delete_schedule(id, pending, self.reason()).await;
        deleted.map_err(|error| ActionError::message(&to, &error))?;
        Ok(ActionDone { to: "/schedules".to_owned(), text: format!("Schedule {id} is deleted.") })
    }

    async fn budget(&self) -> Result<ActionDone, ActionError> {
        let to = "/budgets".to_owned();
        let key = self.fields.text("key").to_lowercase();
        let limit = match self.fields.text("limit") {
            "none" => None,
            text => match text.parse::<u32>() {
                Ok(limit) => Some(limit),
                Err(_) => {
                    let text = format!(
                        "The limit must be a whole number or none, not {text:?}; nothing was changed."
                    );
                    return Err(ActionError::Message { to, text });
                }
            },
        };
        let request = BudgetRequest { limit, reason: self.reason().map(str::to_owned) };
        self.admin.set_budget(&key, &request).await.map_err(|error| ActionError::message(&to, &error))?;
        let text = match limit {
            None => format!("The limit of {key} is removed."),
            Some(0) => format!("New starts under {key} are stopped. Running work continues."),
            Some(limit) => format!("At most {limit} manifests run at once under {key}."),
        };
        Ok(ActionDone { to, text })
    }

    async fn label(&self, subscription: &str, group: &str, name: &str) -> Result<ActionDone, ActionError> {
        let id = resource_id(subscription, group, name);
        let to = format!("{}?tab=labels", cluster_path(&id));
        let mut labels = BTreeMap::new();
        for line in self.fields.text("labels").lines().map(str::trim).filter(|line| !line.is_empty()) {
            let Some((name, value)) = line.split_once('=') else {
                let text = format!("{line:?} is not a label: write name=value. Nothing was changed.");
                return Err(ActionError::Message { to, text });
            };
            labels.insert(name.trim().to_owned(), value.trim().to_owned());
        }
        let labelled = self.admin.label_cluster(&id, &labels, self.reason()).await;
        labelled.map_err(|error| ActionError::message(&to, &error))?;
        Ok(ActionDone { to, text: format!("Labels replaced: the cluster has {} labels.", labels.len()) })
    }

    fn viewer(&self) -> Viewer<'_> {
        Viewer {
            role: self.user.role,
            now: self.state.clock.now(),
            csrf_placeholder: &self.state.csrf_placeholder,
        }
    }
}
