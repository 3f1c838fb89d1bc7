//! What service level objectives are measured by: of every request about a cluster of ours, what was wanted and whose fault it
//! was that it did not happen. It is told in the line of the log that each request has.

use http::Method;

/// One request, as objectives see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestQuality {
    /// What was wanted.
    pub(crate) operation: &'static str,
    /// How it ended.
    pub(crate) result: &'static str,
}

/// What is told of a request by its route, or its path in lower case where it came to none; nothing when it is about no cluster.
pub(crate) fn of(method: &Method, route: &str, status: u16) -> Option<RequestQuality> {
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
    fn requests_about_clusters_are_told_by_what_was_wanted_and_whose_fault_it_was() {
        let all = "/subscriptions/{subscriptionId}/providers/microsoft.redhatopenshift/openshiftclusters";
        let one = format!("{all}/{{resourceName}}");
        let told = |method: Method, route: &str, status: u16| {
            of(&method, route, status).map(|it| (it.operation, it.result))
        };
        assert_eq!(told(Method::GET, all, 200), Some(("ListClusters", "Success")));
        assert_eq!(told(Method::GET, &one, 404), Some(("GetCluster", "UserError")));
        assert_eq!(told(Method::PUT, &one, 201), Some(("PutCluster", "Success")));
        assert_eq!(told(Method::PATCH, &one, 400), Some(("PatchCluster", "UserError")));
        assert_eq!(told(Method::DELETE, &one, 500), Some(("DeleteCluster", "ServerError")));
        let action = format!("{one}/listcredentials");
        assert_eq!(told(Method::POST, &action, 403), Some(("ListCredentials", "UserError")));
        assert_eq!(told(Method::GET, "/admin/clusters", 200), None);
        assert_eq!(told(Method::GET, "none", 404), None);
        assert_eq!(told(Method::POST, &one, 405), None);
    }
}
