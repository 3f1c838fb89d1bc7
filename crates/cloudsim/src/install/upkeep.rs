//! Keeps an installed cluster plausible: what somebody changes in it is rolled out by the operator concerned, and nodes follow their
//! machines. Watches and the cloud's bell wake it; an idle cluster costs nothing here.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cloud::ResourceId;
use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kubesim::kubelet::annotations;
use serde_json::{Value, json};

use super::machines::{self, PlannedMachine};
use super::operators::{self, OPERATORS, Phase};
use super::runner::{place, report, until};
use super::{StoredInstallation, payload, sim_name, update};
use super::{arm_machines, boot};
use crate::call_context::FaultEffects;
use crate::seed;
use crate::simulator::Simulator;

/// On an operator: what it last rolled out.
const ROLLED_OUT: &str = "sim.shipshape.dev/rolled-out";
/// About how long an operator takes to roll something out, and a cluster to update, at the pace of a real one.
const ROLL_OUT: Duration = Duration::from_secs(120);
const UPDATE: Duration = Duration::from_secs(40 * 60);

/// Where certificates of the API server and of the router are.
const API_SECRETS: &str = "openshift-config";
const ROUTER_SECRETS: &str = "openshift-ingress";

/// Keeps a cluster until something fails.
pub(super) async fn run(
    simulator: &Arc<Simulator>,
    kept: &StoredInstallation,
    client: kube::Client,
) -> anyhow::Result<()> {
    tokio::try_join!(roll_out(simulator, kept, &client), follow_machines(simulator, kept, &client)).map(drop)
}

/// Something that changed, whatever it was: the whole is looked at anyway.
type Changes = SelectAll<BoxStream<'static, Result<(), watcher::Error>>>;

/// The changes that a watch reports, without the objects.
pub(super) fn quiet<K>(
    stream: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static,
) -> BoxStream<'static, Result<(), watcher::Error>>
where
    K: Send + 'static,
{
    let of_note = |event: watcher::Event<K>| async move {
        let quiet = matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
        Ok((!quiet).then_some(()))
    };
    stream.default_backoff().try_filter_map(of_note).boxed()
}

fn changes(client: &kube::Client) -> anyhow::Result<Changes> {
    let config = watcher::Config::default;
    let mut all = Changes::new();
    for (api_version, kind, namespace) in [
        ("config.openshift.io/v1", "APIServer", None),
        ("config.openshift.io/v1", "ClusterVersion", None),
        ("operator.openshift.io/v1", "IngressController", Some("openshift-ingress-operator")),
    ] {
        all.push(quiet(watcher(place(client, api_version, kind, namespace)?, config())));
    }
    for namespace in [API_SECRETS, ROUTER_SECRETS] {
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
        all.push(quiet(watcher(secrets, config())));
    }
    Ok(all)
}

async fn roll_out(
    simulator: &Simulator,
    kept: &StoredInstallation,
    client: &kube::Client,
) -> anyhow::Result<()> {
    let mut changes = changes(client)?;
    loop {
        match changes.next().await {
            None => anyhow::bail!("the watches ended"),
            Some(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "A watch broke");
                continue;
            }
            Some(Ok(())) => {}
        }
        while roll_out_once(simulator, kept, client).await? {}
    }
}

/// Rolls out what is different from what was last rolled out; whether there was anything.
async fn roll_out_once(
    simulator: &Simulator,
    kept: &StoredInstallation,
    client: &kube::Client,
) -> anyhow::Result<bool> {
    let request = &kept.request;
    let config = |kind: &str| place(client, "config.openshift.io/v1", kind, None);
    let (operators, versions) = (config("ClusterOperator")?, config("ClusterVersion")?);
    let version = object(&versions, "version").await?;
    let running = version["status"]["desired"]["version"].as_str().unwrap_or(&request.version).to_owned();
    let wanted = [
        ("kube-apiserver", of_api_server(client).await?, "a serving certificate of the API server changed"),
        ("ingress", of_ingress(client).await?, "the default certificate of the router changed"),
    ];
    let mut rolling = Vec::new();
    for (name, wanted, why) in wanted {
        let operator = object(&operators, name).await?;
        let present = operator["metadata"]["annotations"][ROLLED_OUT].as_str().unwrap_or_default();
        if present != wanted {
            rolling.push((name, wanted, why));
        }
    }
    let now = || simulator.clock.now();
    let takes = |usual: Duration, what: &str| {
        let span = seed::span(simulator.seed, simulator.pace, usual, &[what, &request.infra_id]);
        now().saturating_add(span).unwrap_or(Timestamp::MAX)
    };
    for (name, _, why) in &rolling {
        report(&operators, name, &operators::status(name, Phase::Rolling, &running, why, now())).await?;
    }
    if !rolling.is_empty() {
        until(simulator, takes(ROLL_OUT, "roll-out")).await;
    }
    for (name, wanted, _) in &rolling {
        let noted = json!({ "metadata": { "annotations": { ROLLED_OUT: wanted } } });
        operators.patch(name, &PatchParams::default(), &Patch::Merge(&noted)).await?;
        report(&operators, name, &operators::status(name, Phase::Settled, &running, "", now())).await?;
    }
    let next = update::wanted(&version);
    if let Some(next) = &next {
        report(&versions, "version", &update::begun(&version["status"], next, now())).await?;
    }
    let under_way = next.is_some() || update::is_under_way(&version);
    if under_way {
        until(simulator, takes(UPDATE, "update")).await;
        let version = object(&versions, "version").await?;
        let target = version["status"]["desired"]["version"].as_str().unwrap_or_default();
        if kept.has_payload {
            payload::set_release(simulator, client, target).await?;
        }
        let is_written = |name: &&str| !kept.has_payload || !payload::has_operator(simulator, name);
        for name in OPERATORS.into_iter().filter(is_written) {
            report(&operators, name, &operators::status(name, Phase::Settled, target, "", now())).await?;
        }
        report(&versions, "version", &update::finished(&version["status"], now())).await?;
    }
    Ok(under_way || !rolling.is_empty())
}

async fn object(place: &Api<DynamicObject>, name: &str) -> anyhow::Result<Value> {
    let found = place.get_opt(name).await?;
    serde_json::to_value(found).context("an object of a simulated cluster")
}

/// The certificates that the API server is to serve, as they are now.
async fn of_api_server(client: &kube::Client) -> anyhow::Result<String> {
    let server = object(&place(client, "config.openshift.io/v1", "APIServer", None)?, "cluster").await?;
    let certificates = server["spec"]["servingCerts"]["namedCertificates"].as_array();
    let names: Vec<&str> = certificates
        .into_iter()
        .flatten()
        .filter_map(|it| it["servingCertificate"]["name"].as_str())
        .collect();
    versions_of(client, API_SECRETS, &names).await
}

/// The certificate that the router is to serve, as it is now.
async fn of_ingress(client: &kube::Client) -> anyhow::Result<String> {
    let place =
        place(client, "operator.openshift.io/v1", "IngressController", Some("openshift-ingress-operator"))?;
    let controller = object(&place, "default").await?;
    let name = controller["spec"]["defaultCertificate"]["name"].as_str();
    versions_of(client, ROUTER_SECRETS, &name.into_iter().collect::<Vec<_>>()).await
}

async fn versions_of(client: &kube::Client, namespace: &str, names: &[&str]) -> anyhow::Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut versions = Vec::new();
    for name in names {
        let found = secrets.get_metadata_opt(name).await?;
        let version = found.and_then(|it| it.metadata.resource_version).unwrap_or_default();
        versions.push(format!("{name}@{version}"));
    }
    Ok(versions.join(","))
}

/// Nodes are as their machines are: gone, stopped, running. While no machine of the control plane runs, nobody is let in. Machines that
/// were made for this cluster join it.
pub(super) async fn follow_machines(
    simulator: &Arc<Simulator>,
    kept: &StoredInstallation,
    client: &kube::Client,
) -> anyhow::Result<()> {
    let request = &kept.request;
    let notifier = simulator.notifier(&request.group);
    let requests: Api<PartialObjectMeta<CertificateSigningRequest>> = Api::all(client.clone());
    let mut requests = quiet(watcher(requests, watcher::Config::default()));
    loop {
        let changes = follow_once(simulator, kept, client).await?;
        let boots = match simulator.clusters.get(&sim_name(request)) {
            Some(cluster) => boot::advance(simulator, request, &cluster).await?,
            None => None,
        };
        let due = [changes, boots].into_iter().flatten().min();
        let in_time = async {
            match due {
                Some(due) => until(simulator, due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = notifier.notified() => {}
            () = in_time => {}
            Some(_) = requests.next() => {}
        }
    }
}

/// Brings the nodes up to date, and returns when a machine changes by itself.
async fn follow_once(
    simulator: &Simulator,
    kept: &StoredInstallation,
    client: &kube::Client,
) -> anyhow::Result<Option<Timestamp>> {
    let request = &kept.request;
    let (running, next) = simulator.within(FaultEffects::default(), |cx| {
        Ok((arm_machines::running(cx, &request.group)?, arm_machines::next_change(cx, &request.group)?))
    })?;
    let runs = |it: &PlannedMachine| running.get(&it.id(request).key()) == Some(&true);
    if let Some(cluster) = simulator.clusters.get(&sim_name(request)) {
        cluster.set_reachable(machines::masters(request).iter().any(runs));
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let place = place(client, "machine.openshift.io/v1beta1", "Machine", Some("openshift-machine-api"))?;
    for node in nodes.list(&ListParams::default()).await? {
        let provider = node.spec.and_then(|it| it.provider_id).unwrap_or_default();
        let Some(id) = provider.strip_prefix("azure://").and_then(|it| it.parse::<ResourceId>().ok()) else {
            continue;
        };
        let (name, annotations) = (node.metadata.name.unwrap_or_default(), node.metadata.annotations);
        let present = annotations.as_ref().and_then(|it| it.get(annotations::STATE)).map(String::as_str);
        // The node of a machine that booted stays until it is deleted in the cluster.
        let has_booted = annotations.as_ref().is_some_and(|it| it.contains_key(boot::BOOTED));
        let wanted = match running.get(&id.key()) {
            None if !has_booted => "Gone",
            None | Some(false) => "NotReady",
            Some(true) => "Ready",
        };
        if present.unwrap_or("Ready") != wanted {
            let mark = json!({ "metadata": { "annotations": { annotations::STATE: wanted } } });
            nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&mark)).await?;
        }
        if wanted == "Gone" && !kept.has_payload && place.get_metadata_opt(&name).await?.is_some() {
            let status = json!({ "status": {
                "phase": "Failed", "errorReason": "InstanceMissing", "errorMessage": "Can't find created instance."
            } });
            report(&place, &name, &status).await?;
        }
    }
    Ok(next)
}
