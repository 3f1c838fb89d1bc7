//! The fleet at a glance: its lines, its operations, its past, its audit log, and objects of its clusters.

use api::admin::{AuditChainForm, AuditForm, Entry, FleetForm, OperationForm, Page, TimelineForm};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::error::ClientError;
use crate::exchange::Client;
use crate::pages::Pages;
use crate::path::Path;

/// The longest page that a server gives.
const PAGE_MAX: &str = "1000";

/// Which objects of a cluster are wanted.
#[derive(Debug, Clone, Default)]
pub struct ObjectQuery {
    /// Their kind: `Node`, `Deployment.apps`.
    pub kind: String,
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only this one.
    pub name: Option<String>,
    /// Also what is not the platform's own.
    pub unrestricted: bool,
}

/// Which part of the audit log is wanted.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only of this actor.
    pub actor: Option<String>,
    /// Only of actions that begin with this.
    pub action: Option<String>,
    /// Only of targets that begin with this.
    pub target: Option<String>,
    /// Behind this place, toward older entries: from the page before.
    pub from: Option<String>,
    /// At most so many.
    pub limit: u32,
}

impl Client {
    /// A page of the fleet; `query` holds the parameters of the route by their names.
    pub async fn fleet(&self, query: &[(&str, String)]) -> Result<FleetForm, ClientError> {
        let mut path = Path::of("/admin/fleet");
        for (name, value) in query.iter().filter(|(_, value)| !value.is_empty()) {
            path = path.query(name, value);
        }
        Ok(self.get(&path).await?.value)
    }

    /// The operations of a cluster, oldest first.
    pub fn operations(&self, cluster: &str) -> Pages<OperationForm> {
        Pages::of(self, &Path::of_cluster("/admin", cluster).segment("operations"))
    }

    /// The operations of a cluster in one request, oldest first: all of them, unless the page says where it goes on. They are
    /// removed some time after their end, so it hardly ever does.
    pub async fn operations_page(&self, cluster: &str) -> Result<Page<OperationForm>, ClientError> {
        let path = Path::of_cluster("/admin", cluster).segment("operations").query("limit", PAGE_MAX);
        Ok(self.get(&path).await?.value)
    }

    /// What happened to an operation, oldest first.
    pub fn operation_history(&self, cluster: &str, operation: Uuid) -> Pages<Entry> {
        let path = Path::of_cluster("/admin", cluster).segment("operations").segment(&operation.to_string());
        Pages::of(self, &path.segment("history"))
    }

    /// Kubernetes objects of a cluster: one when it is named, else a list.
    pub async fn objects(&self, cluster: &str, query: &ObjectQuery) -> Result<Value, ClientError> {
        let path = Path::of_cluster("/admin", cluster)
            .segment("kubernetesobjects")
            .query("kind", &query.kind)
            .maybe("namespace", query.namespace.as_deref())
            .maybe("name", query.name.as_deref())
            .maybe("unrestricted", query.unrestricted.then_some("true"));
        Ok(self.get(&path).await?.value)
    }

    /// A page of the audit log, newest first, and the place behind it; none at the end.
    pub async fn audit(&self, query: &AuditQuery) -> Result<(Vec<AuditForm>, Option<String>), ClientError> {
        let path = Path::of("/admin/audit")
            .maybe("actor", query.actor.as_deref())
            .maybe("action", query.action.as_deref())
            .maybe("target", query.target.as_deref())
            .maybe("$skipToken", query.from.as_deref())
            .query("limit", query.limit.max(1).to_string());
        let page: Page<AuditForm> = self.get(&path).await?.value;
        let next = page.next_link.split_once("skipToken=").map(|(_, token)| token.to_owned());
        Ok((page.value, next.map(|token| token.split('&').next().unwrap_or_default().to_owned())))
    }

    /// Whether the audit log is whole.
    pub async fn audit_chain(&self) -> Result<AuditChainForm, ClientError> {
        Ok(self.get(&Path::of("/admin/audit/chain")).await?.value)
    }

    /// What ran and runs between two times.
    pub async fn timeline(
        &self,
        from: Timestamp,
        to: Timestamp,
        limit: u32,
    ) -> Result<TimelineForm, ClientError> {
        let path = Path::of("/admin/maintenancetimeline")
            .query("from", from.to_string())
            .query("to", to.to_string())
            .query("limit", limit.max(1).to_string());
        Ok(self.get(&path).await?.value)
    }
}
