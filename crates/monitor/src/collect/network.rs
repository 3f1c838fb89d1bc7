//! The network of an OpenShift cluster: its MTU, and whether the cluster-wide proxy leaves out what it must.

use serde::Deserialize;

use super::{Collector, Findings, Profile, as_label, some_names};
use crate::series::{Metric, Series};

const MTU: Metric = Metric { name: "network_mtu", help: "MTU and type of the network" };
const PROXY: Metric = Metric {
    name: "clusterWideProxy_status",
    help: "1 with status=\"true\" if the cluster-wide proxy is misconfigured; the record says how",
};

pub(super) const COLLECTOR: Collector = Collector {
    name: "network",
    profile: Profile::OpenShift,
    every: 5,
    run: |visit| {
        Box::pin(async move {
            let config = |kind: &str| format!("/apis/config.openshift.io/v1/{kind}/cluster");
            let network: Option<Network> = visit.fetcher.object(&config("networks")).await?;
            let proxy: Option<Proxy> = visit.fetcher.object(&config("proxies")).await?;
            let dns: Option<Dns> = visit.fetcher.object(&config("dnses")).await?;
            Ok(decide(network.as_ref(), proxy.as_ref(), &dns.unwrap_or_default().spec.base_domain))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Network {
    status: NetworkStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NetworkStatus {
    #[serde(rename = "clusterNetworkMTU")]
    mtu: Option<u32>,
    network_type: String,
    cluster_network: Vec<ClusterNetwork>,
    service_network: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClusterNetwork {
    cidr: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Proxy {
    spec: ProxySpec,
    status: ProxySpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProxySpec {
    http_proxy: String,
    https_proxy: String,
    no_proxy: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Dns {
    spec: DnsSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DnsSpec {
    base_domain: String,
}

/// Destinations that every cluster must reach without the proxy.
const ALWAYS: [&str; 5] = ["localhost", "127.0.0.1", ".svc", ".cluster.local", "169.254.169.254"];

fn decide(network: Option<&Network>, proxy: Option<&Proxy>, domain: &str) -> Findings {
    let mut findings = Findings::default();
    if let Some(NetworkStatus { mtu: Some(mtu), network_type, .. }) = network.map(|it| &it.status) {
        findings.add(
            Series::new(MTU, 1.0).label("mtu", mtu.to_string()).label("network_type", network_type.clone()),
        );
    }
    if let Some(proxy) = proxy {
        let missing = missing_exceptions(network, proxy, domain);
        findings.add(Series::new(PROXY, 1.0).label("status", as_label(!missing.is_empty())));
        if !missing.is_empty() {
            findings.cause(
                "proxy",
                format!("the cluster-wide proxy's noProxy lacks {}", some_names(&missing)),
                false,
            );
        }
    }
    findings
}

/// What the proxy should leave out and does not; nothing without a proxy.
fn missing_exceptions(network: Option<&Network>, proxy: &Proxy, domain: &str) -> Vec<String> {
    if proxy.spec.http_proxy.is_empty() && proxy.spec.https_proxy.is_empty() {
        return Vec::new();
    }
    let written = [&proxy.spec.no_proxy, &proxy.status.no_proxy];
    let exceptions: Vec<&str> = written.iter().flat_map(|it| it.split(',')).map(str::trim).collect();
    let has = |wanted: &str| exceptions.contains(&wanted);
    let mut missing: Vec<String> = ALWAYS.iter().filter(|it| !has(it)).map(|it| (*it).to_owned()).collect();
    let networks = network.map(|it| &it.status).into_iter().flat_map(|it| {
        it.cluster_network.iter().map(|it| it.cidr.clone()).chain(it.service_network.iter().cloned())
    });
    missing.extend(networks.filter(|it| !has(it)));
    // The domain itself, with or without a dot, or each of the names in it that the cluster uses.
    let covers = |name: &str| {
        exceptions.iter().any(|it| {
            let suffix = it.trim_start_matches('.');
            !suffix.is_empty() && (name == suffix || name.ends_with(&format!(".{suffix}")))
        })
    };
    if !domain.is_empty() {
        let names = ["api", "api-int", "apps"].map(|it| format!("{it}.{domain}"));
        missing.extend(names.into_iter().filter(|it| !covers(it)));
    }
    missing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{causes, lines};

    #[test]
    fn a_proxy_must_leave_out_what_the_cluster_needs_directly() {
        let network: Network = serde_json::from_value(
            json!({"status": {"clusterNetworkMTU": 1400, "networkType": "OVNKubernetes",
            "clusterNetwork": [{"cidr": "10.128.0.0/14"}], "serviceNetwork": ["172.30.0.0/16"]}}),
        )
        .unwrap();
        let check = |no_proxy: &str, status: &str, cause: &[&str]| {
            let proxy = json!({"spec": {"httpProxy": "http://p:3128", "noProxy": no_proxy}});
            let findings =
                decide(Some(&network), Some(&serde_json::from_value(proxy).unwrap()), "c.example.com");
            let expect = [
                format!("clusterWideProxy_status{{status={status}}} 1"),
                "network_mtu{mtu=1400,network_type=OVNKubernetes} 1".to_owned(),
            ];
            assert_eq!(lines(&findings), expect, "{no_proxy}");
            assert_eq!(causes(&findings), cause, "{no_proxy}");
        };
        let base = "localhost, 127.0.0.1,.svc,.cluster.local,169.254.169.254,10.128.0.0/14,172.30.0.0/16";
        check(&format!("{base},.example.com"), "false", &[]);
        check(&format!("{base},api.c.example.com,api-int.c.example.com,.apps.c.example.com"), "false", &[]);
        check(
            base,
            "true",
            &[
                "the cluster-wide proxy's noProxy lacks api.c.example.com, api-int.c.example.com, apps.c.example.com",
            ],
        );
        check(
            "",
            "true",
            &[
                "the cluster-wide proxy's noProxy lacks localhost, 127.0.0.1, .svc, .cluster.local, 169.254.169.254 and 5 more",
            ],
        );
        // Off is healthy.
        let off = decide(None, Some(&Proxy::default()), "c.example.com");
        assert_eq!(lines(&off), ["clusterWideProxy_status{status=false} 1"]);
    }
}
