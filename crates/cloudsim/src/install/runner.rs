//! Looking after one cluster: through the stages of its installation, then for as long as it is there.

use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::install::{InstallFailure, InstallRequest, InstallStage};
use cloud::ResourceFailure;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kubesim::kubelet::{KubeletOptions, Kubelets};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::arm_machines::{self, MachineProgress};
use super::machines::{self, PlannedMachine};
use super::operators::{self, OPERATORS, Phase};
use super::{Access, StoredInstallation, failure_at, objects, payload, sim_name, update, upkeep};
use crate::call_context::FaultEffects;
use crate::failure::Failure;
use crate::simulator::Simulator;
use crate::{secrets, seed};

/// What failed on our side is tried again after this.
const AGAIN: Duration = Duration::from_millis(500);
/// A clock that is set by hand tells nobody; so it is looked at this often while something is installed.
const LOOK: Duration = Duration::from_millis(500);

/// Why a stage did not come to its end.
pub(super) enum StageError {
    /// The cloud said no: the installation has failed.
    Failed(InstallFailure),
    /// Something on our side: try again.
    Again(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for StageError {
    fn from(error: E) -> StageError {
        StageError::Again(error.into())
    }
}

/// An error of the cloud, as the installer reports it. What is in progress, throttled or unavailable is tried again.
fn stage_error(failure: Failure) -> StageError {
    match failure {
        Failure::Arm(error) => {
            let passes = error.status.is_server_error()
                || error.status == StatusCode::TOO_MANY_REQUESTS
                || error.code == "AnotherOperationInProgress";
            match passes {
                true => StageError::Again(Failure::Arm(error).into()),
                false => {
                    StageError::Failed(InstallFailure { code: error.code.clone(), message: error.message })
                }
            }
        }
        failure => StageError::Again(failure.into()),
    }
}

/// A cluster that is up.
struct Up {
    client: kube::Client,
    /// Its nodes and pods live for as long as this does.
    _kubelets: Kubelets,
}

/// Looks after a cluster until it is removed or the service ends.
pub(crate) async fn run(simulator: Arc<Simulator>, cluster: Uuid, ending: CancellationToken) {
    let end = ending.child_token();
    {
        let mut stops = simulator.stops.lock().unwrap_or_else(PoisonError::into_inner);
        // An request that was repeated: somebody is there already.
        if stops.contains_key(&cluster) {
            return;
        }
        stops.insert(cluster, end.clone());
    }
    loop {
        let parted = tokio::select! {
            () = end.cancelled() => true,
            parted = company(&simulator, cluster) => parted,
        };
        let kept = simulator.within(FaultEffects::default(), |cx| super::kept(cx, cluster));
        match kept {
            Ok(Some(kept)) if kept.removing => {
                if let Err(error) = clear_away(&simulator, &kept.request).await {
                    warn(cluster, &error);
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                return;
            }
            Err(error) => warn(cluster, &error.into()),
            Ok(_) => {}
        }
        if parted || ending.is_cancelled() {
            simulator.stops.lock().unwrap_or_else(PoisonError::into_inner).remove(&cluster);
            return;
        }
    }
}

fn warn(cluster: Uuid, error: &anyhow::Error) {
    let error: &(dyn std::error::Error + 'static) = error.as_ref();
    tracing::warn!(error, "The simulated cluster {cluster} is tried again");
}

/// Ends a cluster that is to be removed, and forgets it.
async fn clear_away(simulator: &Simulator, request: &InstallRequest) -> anyhow::Result<()> {
    simulator.clusters.remove(&sim_name(request)).await;
    if let Some(directory) = directory(simulator, request.cluster) {
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    simulator.remove_notifier(&request.group);
    // In this request: an request of the same cluster is refused until it is forgotten, and then finds nobody in its way.
    simulator.stops.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.cluster);
    Ok(simulator.within(FaultEffects::default(), |cx| {
        payload::remove_principal(cx, request)?;
        super::forget(cx, request.cluster)
    })?)
}

fn directory(simulator: &Simulator, cluster: Uuid) -> Option<PathBuf> {
    simulator.directory.as_ref().map(|it| it.join("clusters").join(cluster.to_string()))
}

/// Carries an installation through its stages, then keeps the cluster. Returns when there is nothing to look after.
async fn company(simulator: &Arc<Simulator>, cluster: Uuid) -> bool {
    let mut up: Option<Up> = None;
    loop {
        let kept = match simulator.within(FaultEffects::default(), |cx| super::kept(cx, cluster)) {
            Ok(Some(kept)) if !kept.removing => kept,
            Ok(_) => return true,
            Err(error) => {
                warn(cluster, &error.into());
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let done = step(simulator, &kept, &mut up).await;
        let noted = match done {
            Ok(()) => Ok(()),
            Err(StageError::Again(error)) => Err(error),
            Err(StageError::Failed(failure)) => {
                tracing::info!(cluster.id = %cluster, "The installation of {cluster} failed: {}", failure.message);
                change(simulator, cluster, |kept| kept.failure = Some(failure)).map_err(Into::into)
            }
        };
        if let Err(error) = noted {
            warn(cluster, &error);
            tokio::time::sleep(AGAIN).await;
        }
    }
}

fn change(
    simulator: &Simulator,
    cluster: Uuid,
    change: impl FnOnce(&mut StoredInstallation),
) -> Result<(), Failure> {
    simulator.within(FaultEffects::default(), |cx| match super::kept(cx, cluster)? {
        Some(mut kept) if !kept.removing => {
            change(&mut kept);
            super::keep(cx, &kept)
        }
        _ => Ok(()),
    })
}

/// Does what is next: ends the stage that is under way, or keeps the cluster that is complete.
async fn step(
    simulator: &Arc<Simulator>,
    kept: &StoredInstallation,
    up: &mut Option<Up>,
) -> Result<(), StageError> {
    let request = &kept.request;
    if kept.access.is_some() && up.is_none() {
        *up = Some(start(simulator, request).await?);
    }
    if kept.failure.is_some() {
        // It stays as it is until it is removed.
        return pending().await;
    }
    if kept.stage == InstallStage::Complete {
        let client = up.as_ref().map(|it| it.client.clone());
        let client = client.ok_or_else(|| anyhow::anyhow!("a complete cluster is not up"))?;
        return Ok(upkeep::run(simulator, kept, client).await?);
    }
    let due = kept.due(simulator.seed, simulator.pace);
    if kept.fails_at == Some(kept.stage) {
        until(simulator, due).await;
        return Err(StageError::Failed(failure_at(kept.stage, request)));
    }
    match kept.stage {
        InstallStage::Accepted | InstallStage::Complete => {}
        InstallStage::Bootstrap => make_machines(simulator, request, &[machines::bootstrap(request)]).await?,
        InstallStage::ControlPlane => {
            make_machines(simulator, request, &machines::masters(request)).await?;
        }
        InstallStage::ApiServer => {
            until(simulator, due).await;
            let id = seed::uuid(simulator.seed, &[&request.cluster.to_string()]);
            let started = start(simulator, request).await?;
            // A stage that is begun again keeps the password that it put into the cluster the first time.
            let password = match known_password(&started.client).await? {
                Some(password) => password,
                None => kubeadmin_password()?,
            };
            furnish(simulator, kept, &started.client, &password, &id.to_string()).await?;
            let running =
                simulator.clusters.get(&sim_name(request)).ok_or_else(|| anyhow::anyhow!("it is not up"))?;
            let (url, kubeconfig) = (running.url(), running.kubeconfig());
            let customer_kubeconfig = Some(running.customer_kubeconfig());
            *up = Some(started);
            change(simulator, request.cluster, |kept| {
                kept.access =
                    Some(Access { url, kubeconfig, customer_kubeconfig, kubeadmin_password: password });
            })?;
        }
        InstallStage::Workers if kept.has_payload => {
            if let Some(up) = up {
                // The machines boot into the cluster meanwhile.
                tokio::select! {
                    ready = payload::workers_ready(&up.client) => ready?,
                    failed = upkeep::follow_machines(simulator, kept, &up.client) => return Ok(failed?),
                }
            }
        }
        InstallStage::Workers => {
            let workers = machines::workers(request, simulator.seed);
            make_machines(simulator, request, &workers).await?;
            if let Some(up) = up {
                join(request, &up.client, &workers).await?;
            }
        }
        InstallStage::Operators => {
            if let Some(up) = up {
                tokio::select! {
                    done = bring_up_operators(simulator, kept, &up.client, due) => done?,
                    failed = follow_if_owned(simulator, kept, &up.client) => return Ok(failed?),
                }
            }
        }
    }
    until(simulator, due).await;
    let Some(next) = kept.stage.next() else { return Ok(()) };
    if next == InstallStage::Complete && kept.fails_at == Some(InstallStage::Complete) {
        return Err(StageError::Failed(failure_at(InstallStage::Complete, request)));
    }
    let now = simulator.clock.now();
    change(simulator, request.cluster, |kept| (kept.stage, kept.since) = (next, now))?;
    Ok(())
}

/// Waits until the clock that was handed in shows that time.
pub(super) async fn until(simulator: &Simulator, due: Timestamp) {
    loop {
        let rest = due.duration_since(simulator.clock.now());
        let Ok(rest) = Duration::try_from(rest) else { return };
        if rest.is_zero() {
            return;
        }
        tokio::time::sleep(rest.clamp(Duration::from_millis(1), LOOK)).await;
    }
}

/// Creates machines in the cloud and waits until they run.
async fn make_machines(
    simulator: &Simulator,
    request: &InstallRequest,
    wanted: &[PlannedMachine],
) -> Result<(), StageError> {
    for machine in wanted {
        let effects = simulator.effects_on_machine(&machine.id(request)).map_err(stage_error)?;
        simulator.within(effects, |cx| arm_machines::ensure(cx, request, machine)).map_err(stage_error)?;
    }
    for machine in wanted {
        let id = machine.id(request);
        loop {
            let progress = simulator
                .within(FaultEffects::default(), |cx| arm_machines::progress(cx, &id))
                .map_err(stage_error)?;
            match progress {
                MachineProgress::Ready => break,
                MachineProgress::Pending(settles) => until(simulator, settles).await,
                MachineProgress::Failed(ResourceFailure { code, message }) => {
                    return Err(StageError::Failed(InstallFailure { code, message }));
                }
                MachineProgress::Missing => {
                    let message = format!("{id} was removed while the cluster was installed");
                    let code = "ResourceNotFound".to_owned();
                    return Err(StageError::Failed(InstallFailure { code, message }));
                }
            }
        }
    }
    Ok(())
}

/// Starts the simulated cluster, with what it was when it was last up.
async fn start(simulator: &Simulator, request: &InstallRequest) -> Result<Up, StageError> {
    let name = sim_name(request);
    let cluster = match simulator.clusters.get(&name) {
        Some(cluster) => cluster,
        None => {
            let options = kubesim::ClusterOptions {
                directory: directory(simulator, request.cluster),
                clock: simulator.clock.clone(),
                seed: seed::draw(simulator.seed, &[&name]),
                controllers: true,
            };
            simulator.clusters.start(&name, options).await?
        }
    };
    // Its port may have been taken meanwhile.
    let (url, kubeconfig) = (cluster.url(), cluster.kubeconfig());
    let customer_kubeconfig = Some(cluster.customer_kubeconfig());
    change(simulator, request.cluster, |kept| {
        if let Some(access) = kept.access.as_mut().filter(|it| it.url != url) {
            (access.url, access.kubeconfig) = (url, kubeconfig);
            access.customer_kubeconfig = customer_kubeconfig;
        }
    })?;
    let runtime = simulator.runtimes.as_ref().map(|runtime_of| runtime_of(&cluster));
    let options = KubeletOptions { runtime, ..KubeletOptions::default() };
    Ok(Up { client: cluster.client(), _kubelets: Kubelets::with_options(&cluster, options) })
}

fn kubeadmin_password() -> Result<String, Failure> {
    let parts: Result<Vec<String>, Failure> = (0..4).map(|_| secrets::text(5)).collect();
    Ok(parts?.join("-"))
}

/// The password of `kubeadmin` that a cluster has already, if it has one.
async fn known_password(client: &kube::Client) -> anyhow::Result<Option<String>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let found = secrets.get_opt("kubeadmin").await?;
    let text = found.and_then(|it| it.data?.remove("kubeadmin"));
    Ok(text.map(|it| String::from_utf8(it.0)).transpose()?)
}

/// Where objects of a kind are.
pub(super) fn place(
    client: &kube::Client,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> anyhow::Result<Api<DynamicObject>> {
    let types = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    Ok(match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// Lets machines boot into a cluster whose controllers create them, while it is installed.
async fn follow_if_owned(
    simulator: &Arc<Simulator>,
    kept: &StoredInstallation,
    client: &kube::Client,
) -> anyhow::Result<()> {
    match kept.has_payload {
        true => upkeep::follow_machines(simulator, kept, client).await,
        false => pending().await,
    }
}

/// Makes an object, unless it is there.
pub(super) async fn ensure(client: &kube::Client, object: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = object["metadata"]["namespace"].as_str();
    let place = place(client, &text(&object["apiVersion"]), &text(&object["kind"]), namespace)?;
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    match place.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

/// Says how an object is.
pub(super) async fn report(place: &Api<DynamicObject>, name: &str, status: &Value) -> anyhow::Result<()> {
    place.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// What stands as soon as the API server answers.
async fn furnish(
    simulator: &Simulator,
    kept: &StoredInstallation,
    client: &kube::Client,
    password: &str,
    id: &str,
) -> anyhow::Result<()> {
    let StoredInstallation { request, has_payload, .. } = kept;
    let of_payload = |kind: &str, name: &str| *has_payload && payload::has(simulator, kind, name);
    for definition in objects::definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        if !of_payload("CustomResourceDefinition", name) {
            ensure(client, &definition).await?;
        }
    }
    for namespace in objects::NAMESPACES {
        if !of_payload("Namespace", namespace) {
            ensure(client, &objects::namespace(namespace)).await?;
        }
    }
    for object in objects::first(request, password, id) {
        ensure(client, &object).await?;
    }
    let now = simulator.clock.now();
    for (api_version, kind, namespace, name, status) in objects::statuses(request) {
        report(&place(client, &api_version, kind, namespace)?, name, &status).await?;
    }
    let versions = place(client, "config.openshift.io/v1", "ClusterVersion", None)?;
    report(&versions, "version", &update::installing(&request.version, false, now)).await?;
    let operators = place(client, "config.openshift.io/v1", "ClusterOperator", None)?;
    for name in OPERATORS.into_iter().filter(|it| !of_payload("ClusterOperator", it)) {
        let object = serde_json::json!({
            "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": { "name": name }, "spec": {}
        });
        ensure(client, &object).await?;
        // What controls the API server is there first: without it nothing would answer.
        let phase = if matches!(name, "etcd" | "kube-apiserver") { Phase::Settled } else { Phase::Coming };
        report(&operators, name, &operators::status(name, phase, &request.version, "", now)).await?;
    }
    let masters = machines::masters(request);
    match has_payload {
        true => {
            payload::apply(simulator, request, client).await?;
            for machine in &masters {
                ensure(client, &objects::node(request, machine, None)).await?;
            }
        }
        false => join(request, client, &masters).await?,
    }
    for deployment in objects::deployments(request) {
        // Its own are in the payload, and what looks like them would only mislead.
        let is_of_payload = *has_payload && deployment["metadata"]["namespace"] == "openshift-machine-api";
        if !is_of_payload {
            ensure(client, &deployment).await?;
        }
    }
    Ok(())
}

/// Lets machines join as nodes, with the objects that stand for them.
async fn join(
    request: &InstallRequest,
    client: &kube::Client,
    joining: &[PlannedMachine],
) -> anyhow::Result<()> {
    let namespace = Some("openshift-machine-api");
    let machines = place(client, "machine.openshift.io/v1beta1", "Machine", namespace)?;
    let sets = place(client, "machine.openshift.io/v1beta1", "MachineSet", namespace)?;
    for (set, status) in objects::machine_sets(request, joining) {
        ensure(client, &set).await?;
        report(&sets, set["metadata"]["name"].as_str().unwrap_or_default(), &status).await?;
    }
    for machine in joining {
        ensure(client, &objects::machine(request, machine)).await?;
        report(&machines, &machine.name, &objects::machine_status(machine)).await?;
        let linked = format!("openshift-machine-api/{}", machine.name);
        ensure(client, &objects::node(request, machine, Some(&linked))).await?;
    }
    Ok(())
}

/// Lets the operators come up one after the other, so that the last is up when the stage is due.
async fn bring_up_operators(
    simulator: &Simulator,
    kept: &StoredInstallation,
    client: &kube::Client,
    due: Timestamp,
) -> anyhow::Result<()> {
    let place_of = |kind: &str| place(client, "config.openshift.io/v1", kind, None);
    let (operators, versions) = (place_of("ClusterOperator")?, place_of("ClusterVersion")?);
    let whole = Duration::try_from(due.duration_since(kept.since)).unwrap_or_default();
    let count = u32::try_from(OPERATORS.len()).unwrap_or(u32::MAX);
    for (number, name) in (1..).zip(OPERATORS) {
        let at = kept.since.saturating_add(whole * number / count).unwrap_or(due);
        until(simulator, at).await;
        if kept.has_payload && payload::has_operator(simulator, name) {
            continue;
        }
        let version = &kept.request.version;
        report(
            &operators,
            name,
            &operators::status(name, Phase::Settled, version, "", simulator.clock.now()),
        )
        .await?;
    }
    report(&versions, "version", &update::installing(&kept.request.version, true, simulator.clock.now()))
        .await
}
