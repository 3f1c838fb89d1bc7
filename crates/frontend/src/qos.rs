//! Quality of service: for every request about a cluster, the operation and whether it failed by the user or by the server. The access
//! log has it for service level objectives.

use http::Method;

/// Operation and result of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestQuality {
    /// The requested operation.
    pub(crate) operation: &'static str,
    /// The result class.
    pub(crate) result: &'static str,
}

/// Classifies a request by its route, or by its path in lower case if it has no route; none when it concerns no cluster.
pub(crate) fn classify(method: &Method, route: &str, status: u16) -> Option<RequestQuality> {
    let (_, rest) = route.strip_prefix("/subscriptions/")?.split_once("/openshiftclusters")?;
    let is_one = rest.starts_with('/');
    let operation = match (method, rest.rsplit_once('/').map(|(_, last)| last)) {
        (&Method::PUT, _) => "PutCluster",
        (&Method::PATCH, _) => "PatchCluster",
        (&Method::DELETE, _) => "DeleteCluster",
        (&Method::GET | &Method::HEAD, _) if is_one => "GetCluster",
        (&Method::GET | &Method::HEAD, _) => "ListClusters",
        (&Method::POST, Some("listcredentials")) => "ListCredentials",
        (&Method::POST, Some("listadmincredentials")) => "ListAdminCredentials",
        _ => return None,
    };
    let result = match status {
        ..400 => "Success",
        400..500 => "UserError",
        500.. => "ServerError",
    };
    Some(RequestQuality { operation, result })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_about_clusters_are_classified_by_operation_and_result() {
        let all = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/openshiftclusters";
        let one = format!("{all}/{{resourceName}}");
        let quality = |method: Method, route: &str, status: u16| {
            classify(&method, route, status).map(|it| (it.operation, it.result))
        };
        assert_eq!(quality(Method::GET, all, 200), Some(("ListClusters", "Success")));
        assert_eq!(quality(Method::GET, &one, 404), Some(("GetCluster", "UserError")));
        assert_eq!(quality(Method::PUT, &one, 201), Some(("PutCluster", "Success")));
        assert_eq!(quality(Method::PATCH, &one, 400), Some(("PatchCluster", "UserError")));
        assert_eq!(quality(Method::DELETE, &one, 500), Some(("DeleteCluster", "ServerError")));
        let action = format!("{one}/listcredentials");
        assert_eq!(quality(Method::POST, &action, 403), Some(("ListCredentials", "UserError")));
        assert_eq!(quality(Method::GET, "/admin/clusters", 200), None);
        assert_eq!(quality(Method::GET, "none", 404), None);
        assert_eq!(quality(Method::POST, &one, 405), None);
    }
}
