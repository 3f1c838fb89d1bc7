//! The fleet: overview, operations, timeline, audit log and objects of clusters.

use api::admin::{AuditChainForm, Entry, FleetForm, OperationForm, Page, TimelineForm};
use api::audit::AuditRecord;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::error::ClientError;
use crate::exchange::Client;
use crate::pages::Pages;
use crate::path::ApiPath;

/// Largest page size that a server accepts.
const PAGE_MAX: &str = "1000";

/// Selection of Kubernetes objects of a cluster.
#[derive(Debug, Clone, Default)]
pub struct ObjectQuery {
    /// Kind: `Node`, `Deployment.apps`.
    pub kind: String,
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only the object with this name.
    pub name: Option<String>,
    /// Also namespaces that do not belong to the platform.
    pub unrestricted: bool,
}

/// Filters and page of the audit log.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only this actor.
    pub actor: Option<String>,
    /// Only actions with this prefix.
    pub action: Option<String>,
    /// Only targets with this prefix.
    pub target: Option<String>,
    /// Cursor of the previous page; older entries follow.
    pub from: Option<String>,
    /// Page size.
    pub limit: u32,
}

impl Client {
    /// Gets a page of the fleet; `query` has the query parameters of the route.
    pub async fn fleet(&self, query: &[(&str, String)]) -> Result<FleetForm, ClientError> {
        let mut path = ApiPath::new("/admin/fleet");
        for (name, value) in query.iter().filter(|(_, value)| !value.is_empty()) {
            path = path.query(name, value);
        }
        Ok(self.get(&path).await?.value)
    }

    /// Lists the operations of a cluster, oldest first.
    pub fn operations(&self, cluster: &str) -> Pages<OperationForm> {
        Pages::new(self, &ApiPath::from_resource_id("/admin", cluster).segment("operations"))
    }

    /// Gets the operations of a cluster in one request, oldest first. The server removes operations some time after their end,
    /// so a second page is rare.
    pub async fn operations_page(&self, cluster: &str) -> Result<Page<OperationForm>, ClientError> {
        let path =
            ApiPath::from_resource_id("/admin", cluster).segment("operations").query("limit", PAGE_MAX);
        Ok(self.get(&path).await?.value)
    }

    /// Lists the history of an operation, oldest first.
    pub fn operation_history(&self, cluster: &str, operation: Uuid) -> Pages<Entry> {
        let path = ApiPath::from_resource_id("/admin", cluster)
            .segment("operations")
            .segment(&operation.to_string());
        Pages::new(self, &path.segment("history"))
    }

    /// Gets one Kubernetes object of a cluster if the query has a name, else a list.
    pub async fn objects(&self, cluster: &str, query: &ObjectQuery) -> Result<Value, ClientError> {
        let path = ApiPath::from_resource_id("/admin", cluster)
            .segment("kubernetesobjects")
            .query("kind", &query.kind)
            .optional_query("namespace", query.namespace.as_deref())
            .optional_query("name", query.name.as_deref())
            .optional_query("unrestricted", query.unrestricted.then_some("true"));
        Ok(self.get(&path).await?.value)
    }

    /// Gets a page of the audit log, newest first, and the cursor of the next page; none at the end.
    pub async fn audit(&self, query: &AuditQuery) -> Result<(Vec<AuditRecord>, Option<String>), ClientError> {
        let path = ApiPath::new("/admin/audit")
            .optional_query("actor", query.actor.as_deref())
            .optional_query("action", query.action.as_deref())
            .optional_query("target", query.target.as_deref())
            .optional_query("$skipToken", query.from.as_deref())
            .query("limit", query.limit.max(1).to_string());
        let page: Page<AuditRecord> = self.get(&path).await?.value;
        let next = page.next_link.split_once("skipToken=").map(|(_, token)| token.to_owned());
        Ok((page.value, next.map(|token| token.split('&').next().unwrap_or_default().to_owned())))
    }

    /// Verifies the hash chain of the audit log.
    pub async fn audit_chain(&self) -> Result<AuditChainForm, ClientError> {
        Ok(self.get(&ApiPath::new("/admin/audit/chain")).await?.value)
    }

    /// Gets the manifests that ran or run between two times.
    pub async fn timeline(
        &self,
        from: Timestamp,
        to: Timestamp,
        limit: u32,
    ) -> Result<TimelineForm, ClientError> {
        let path = ApiPath::new("/admin/maintenancetimeline")
            .query("from", from.to_string())
            .query("to", to.to_string())
            .query("limit", limit.max(1).to_string());
        Ok(self.get(&path).await?.value)
    }
}
