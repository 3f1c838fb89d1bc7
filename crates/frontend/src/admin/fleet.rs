//! The fleet list: a line for each cluster, filtered, sorted and paged here, so that a page of a large fleet is as small as one of a
//! small fleet. The clusters are cached in memory and updated from the change feed by each request; the store stays authoritative.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::admin::{ClusterHealth, FleetForm, FleetHealth, FleetLine, NextWork, Reachability, RunningWork};
use api::doc::{Cluster, Document as _, Manifest, Operation};
use api::health::HealthStatus;
use api::work::WorkKind;
use axum::extract::State;
use jiff::Timestamp;
use steps::engine::Journal;
use store::{Change, FeedBatch, FeedFollower, HealthSample, LaneView, Reader, StoreError, Subject};
use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::params::MaybeVersion;
use super::{AdminState, forms};
use crate::cluster_form;
use crate::wire::{ApiError, ApiRequest, ApiResponse};

/// Default and maximum number of lines.
const LINES: usize = 50;
const LINES_MAX: usize = 200;

/// Maximum age of the cached health samples, which the feed does not report.
const HEALTH_AGE_MAX: Duration = Duration::from_secs(5);

/// More changes than this are read as a new list.
const CHANGES_MAX: usize = 2_000;

/// The cached fleet.
#[derive(Debug, Clone, Default)]
pub(super) struct FleetCache(Arc<Mutex<Option<FleetSnapshot>>>);

#[derive(Debug)]
struct FleetSnapshot {
    feed: FeedFollower,
    clusters: HashMap<Uuid, Row>,
    health_read: Instant,
}

#[derive(Debug)]
struct Row {
    line: Arc<FleetLine>,
    /// Whether this service installed it, so that its version is the installed one and not that of the API server.
    is_made: bool,
}

impl Row {
    fn new(uuid: Uuid, document: &Cluster, sample: Option<&HealthSample>) -> Row {
        let (line, is_made) = (line(uuid, document), document.provisioned.is_some());
        Row { line: Arc::new(with_health(line, is_made, sample)), is_made }
    }
}

impl FleetCache {
    /// All clusters as they are in the store now, without running and next work.
    async fn now(&self, reader: &Reader) -> Result<Vec<Arc<FleetLine>>, StoreError> {
        let mut known = self.0.lock().await;
        let known = known.get_or_insert_with(|| FleetSnapshot {
            feed: reader.follow_feed([Cluster::KIND]).batch_max(CHANGES_MAX),
            clusters: HashMap::new(),
            health_read: Instant::now(),
        });
        known.update(reader).await?;
        if known.health_read.elapsed() > HEALTH_AGE_MAX {
            known.read_health(reader).await?;
        }
        Ok(known.clusters.values().map(|row| row.line.clone()).collect())
    }
}

impl FleetSnapshot {
    /// Brings the clusters up to date with the feed.
    async fn update(&mut self, reader: &Reader) -> Result<(), StoreError> {
        loop {
            match self.feed.read().await? {
                FeedBatch::StartOver => self.list(reader).await?,
                FeedBatch::Changes(changes) if self.feed.is_caught_up() => {
                    self.apply(reader, changes).await?;
                }
                FeedBatch::Changes(_) => {
                    self.feed.start_over();
                    continue;
                }
            }
            self.feed.acknowledge();
            return Ok(());
        }
    }

    async fn list(&mut self, reader: &Reader) -> Result<(), StoreError> {
        self.clusters.clear();
        let clusters = reader.documents::<Cluster>();
        clusters
            .for_each(|read| drop(self.clusters.insert(read.uuid, Row::new(read.uuid, &read.document, None))))
            .await?;
        self.read_health(reader).await
    }

    async fn apply(&mut self, reader: &Reader, changes: Vec<Change>) -> Result<(), StoreError> {
        let mut changed = HashSet::new();
        for change in changes {
            if matches!(change.subject, Subject::Document { deleted: true, .. }) {
                self.clusters.remove(&change.uuid);
                changed.remove(&change.uuid);
            } else {
                changed.insert(change.uuid);
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        let changed: Vec<Uuid> = changed.into_iter().collect();
        let health = cluster_form::health(reader, changed.clone()).await?;
        for stored in reader.get_many(changed).await? {
            if let Some(document) = forms::read::<Cluster>(&stored) {
                let row = Row::new(stored.uuid, &document, health.get(&stored.uuid));
                self.clusters.insert(stored.uuid, row);
            }
        }
        Ok(())
    }

    async fn read_health(&mut self, reader: &Reader) -> Result<(), StoreError> {
        let all: Vec<Uuid> = self.clusters.keys().copied().collect();
        for block in all.chunks(store::PAGE_MAX) {
            let health = cluster_form::health(reader, block.to_vec()).await?;
            for (uuid, sample) in &health {
                if let Some(row) = self.clusters.get_mut(uuid) {
                    row.line = Arc::new(with_health(FleetLine::clone(&row.line), row.is_made, Some(sample)));
                }
            }
        }
        self.health_read = Instant::now();
        Ok(())
    }
}

fn line(uuid: Uuid, document: &Cluster) -> FleetLine {
    FleetLine {
        id: document.id.clone(),
        name: document.name.clone(),
        uuid,
        location: document.location.clone(),
        provisioning_state: document.provisioning_state,
        failed_provisioning_state: document.failed_provisioning_state,
        version: document.installed_version().map(str::to_owned),
        reachability: None,
        health: None,
        labels: document.labels.clone(),
        running: None,
        next: None,
    }
}

fn with_health(mut line: FleetLine, is_made: bool, sample: Option<&HealthSample>) -> FleetLine {
    if let Some(sample) = sample {
        if !is_made {
            line.version = sample.details.version.clone();
        }
        line.reachability = Some(Reachability {
            reachable: sample.reachable,
            since: sample.since,
            checked_at: sample.at,
            message: sample.details.message.clone(),
        });
        let health = ClusterHealth::from(sample);
        line.health = Some(FleetHealth {
            status: health.status,
            cause: health.main_cause().map(str::to_owned),
            observed_at: health.observed_at,
        });
    }
    line
}

/// Shows the fleet: a line for each cluster with its running and next work.
#[utoipa::path(
    get, path = "/admin/fleet", operation_id = "showFleet", tag = "clusters",
    params(
        MaybeVersion,
        ("q" = Option<String>, Query, description = "Only clusters whose id or labels hold this text, in any case."),
        ("state" = Option<String>, Query, description = "Only clusters in this provisioning state."),
        ("location" = Option<String>, Query, description = "Only clusters there."),
        ("version" = Option<String>, Query, description = "Only clusters of this version."),
        ("reachability" = Option<String>, Query, description = "Only clusters that are `reachable`, `unreachable` or `unknown`."),
        ("health" = Option<String>, Query, description = "Only clusters that are `healthy`, `degraded`, `unreachable` or `unknown`."),
        ("label" = Option<String>, Query, description = "Only clusters with this label: `name` or `name=value`."),
        ("work" = Option<String>, Query, description = "Only clusters on which something is `running`, `waiting` or neither (`idle`)."),
        ("sort" = Option<String>, Query, description = "Sort by `name` (the default), `state`, `version`, `location`, `reachability`, `health` or `next`; a leading hyphen reverses the order."),
        ("skip" = Option<i64>, Query, description = "Number of lines to skip.", minimum = 0),
        ("limit" = Option<i64>, Query, description = "Maximum number of lines, up to 200; 50 when absent.", minimum = 1, maximum = 4_294_967_295_i64),
    ),
    responses((status = 200, description = "The fleet.", body = FleetForm))
)]
pub(super) async fn fleet(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let question = FleetQuery::read(&request)?;
    let all = state.fleet_cache.now(&state.store).await?;
    let mut form = FleetForm {
        of: all.len() as u64,
        matched: 0,
        states: BTreeMap::new(),
        locations: BTreeMap::new(),
        versions: BTreeMap::new(),
        reachability: BTreeMap::new(),
        health: BTreeMap::new(),
        value: Vec::new(),
    };
    for line in &all {
        *form.states.entry(format!("{:?}", line.provisioning_state)).or_default() += 1;
        *form.locations.entry(line.location.clone()).or_default() += 1;
        *form.versions.entry(line.version.clone().unwrap_or_default()).or_default() += 1;
        *form.reachability.entry(reach(line).to_owned()).or_default() += 1;
        *form.health.entry(health_of(line).as_str().to_owned()).or_default() += 1;
    }
    let mut found: Vec<Arc<FleetLine>> = all.into_iter().filter(|line| question.fits(line)).collect();
    let by_work = question.work.is_some() || question.sort == SortKey::Next;
    let mut lanes = HashMap::new();
    if by_work {
        lanes = lanes_of(&state.store, &found).await?;
        found.retain(|line| question.fits_work(lanes.get(&line.uuid)));
    }
    form.matched = found.len() as u64;
    found.sort_by(|a, b| question.order(a, b, &lanes));
    let page: Vec<Arc<FleetLine>> = found.into_iter().skip(question.skip).take(question.limit).collect();
    if !by_work {
        lanes = lanes_of(&state.store, &page).await?;
    }
    form.value = page.iter().map(|line| FleetLine::clone(line)).collect();
    add_work(&state, &mut form.value, &lanes).await?;
    Ok(ApiResponse::ok(&form))
}

async fn lanes_of(reader: &Reader, lines: &[Arc<FleetLine>]) -> Result<HashMap<Uuid, LaneView>, StoreError> {
    let mut lanes = HashMap::with_capacity(lines.len());
    for block in lines.chunks(store::PAGE_MAX) {
        let found = reader.lanes(block.iter().map(|line| line.uuid).collect()).await?;
        lanes.extend(found.into_iter().map(|lane| (lane.lane, lane)));
    }
    Ok(lanes)
}

/// Adds running and next work to these clusters, with two queries for all of them.
async fn add_work(
    state: &AdminState,
    lines: &mut [FleetLine],
    lanes: &HashMap<Uuid, LaneView>,
) -> Result<(), ApiError> {
    let lane = |line: &FleetLine| lanes.get(&line.uuid);
    let running: Vec<Uuid> = lines.iter().filter_map(|line| lane(line)?.running).collect();
    let mut running_work = HashMap::new();
    if !running.is_empty() {
        let works = state.store.works(running.clone()).await?;
        let documents = state.store.get_many(running).await?;
        let catalogue = state.catalogue().await?;
        let title = |id: Uuid| {
            let stored = documents.iter().find(|stored| stored.uuid == id)?;
            let task = forms::read::<Manifest>(stored)
                .and_then(|manifest| catalogue.get(manifest.task_id).map(|task| task.name().to_owned()));
            task.or_else(|| Some(format!("{:?}", forms::read::<Operation>(stored)?.verb)))
        };
        for work in works {
            let step = Journal::read(work.checkpoint.as_ref()).step;
            let kind = work.kind.as_str().to_owned();
            running_work.insert(
                work.lane,
                RunningWork { id: work.id, kind, title: title(work.id).unwrap_or_default(), step },
            );
        }
    }
    for line in lines {
        line.running = running_work.remove(&line.uuid);
        line.next = lanes.get(&line.uuid).and_then(next);
    }
    Ok(())
}

fn next(lane: &LaneView) -> Option<NextWork> {
    let kind: WorkKind = lane.head_kind?;
    let due = lane.head_at.filter(|at| *at > Timestamp::UNIX_EPOCH);
    Some(NextWork { kind: kind.as_str().to_owned(), due, waits_for: lane.parked_on.clone() })
}

fn reach(line: &FleetLine) -> &'static str {
    match &line.reachability {
        None => "unknown",
        Some(it) if it.reachable => "reachable",
        Some(_) => "unreachable",
    }
}

fn health_of(line: &FleetLine) -> HealthStatus {
    line.health.as_ref().map_or(HealthStatus::Unknown, |it| it.status)
}

fn severity(line: &FleetLine) -> u8 {
    match health_of(line) {
        HealthStatus::Unreachable => 3,
        HealthStatus::Degraded => 2,
        HealthStatus::Unknown => 1,
        HealthStatus::Healthy => 0,
    }
}

/// The parameters of the request.
#[derive(Debug)]
struct FleetQuery {
    text: Option<String>,
    state: Option<String>,
    location: Option<String>,
    version: Option<String>,
    reachability: Option<String>,
    health: Option<String>,
    label: Option<(String, Option<String>)>,
    work: Option<WorkFilter>,
    sort: SortKey,
    is_reversed: bool,
    skip: usize,
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkFilter {
    Running,
    Waiting,
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SortKey {
    Name,
    State,
    Version,
    Location,
    Reachability,
    Health,
    Next,
}

impl FleetQuery {
    fn read(request: &ApiRequest) -> Result<FleetQuery, ApiError> {
        let word = |name: &'static str| Ok::<_, ApiError>(request.query.get(name)?.map(str::to_lowercase));
        let number = |name: &'static str, fallback: usize| match request.query.get(name)? {
            None => Ok(fallback),
            Some(text) => text
                .parse::<u32>()
                .map(|number| number as usize)
                .map_err(|_| ApiError::invalid_parameter(name, "It must be a whole number.")),
        };
        let sort = word("sort")?.unwrap_or_default();
        let (is_reversed, sort) = match sort.strip_prefix('-') {
            Some(sort) => (true, sort),
            None => (false, sort.as_str()),
        };
        let sort = match sort {
            "" | "name" => SortKey::Name,
            "state" => SortKey::State,
            "version" => SortKey::Version,
            "location" => SortKey::Location,
            "reachability" => SortKey::Reachability,
            "health" => SortKey::Health,
            "next" => SortKey::Next,
            _ => {
                let message =
                    "Clusters are sorted by name, state, version, location, reachability, health or next.";
                return Err(ApiError::invalid_parameter("sort", message));
            }
        };
        let work = match word("work")?.as_deref() {
            None => None,
            Some("running") => Some(WorkFilter::Running),
            Some("waiting") => Some(WorkFilter::Waiting),
            Some("idle") => Some(WorkFilter::Idle),
            Some(_) => {
                return Err(ApiError::invalid_parameter("work", "WorkFilter is running, waiting or idle."));
            }
        };
        let label = request.query.get("label")?.map(|text| match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        });
        let limit = number("limit", LINES)?;
        if limit == 0 {
            return Err(ApiError::invalid_parameter("limit", "The limit must be a positive whole number."));
        }
        Ok(FleetQuery {
            text: word("q")?,
            state: word("state")?,
            location: word("location")?,
            version: word("version")?,
            reachability: word("reachability")?,
            health: word("health")?,
            label,
            work,
            sort,
            is_reversed,
            skip: number("skip", 0)?,
            limit: limit.min(LINES_MAX),
        })
    }

    fn fits(&self, line: &FleetLine) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(found))
        };
        let holds = |text: &String| {
            let in_labels = || {
                line.labels
                    .iter()
                    .any(|(name, value)| format!("{name}={value}").to_lowercase().contains(text))
            };
            line.id.to_lowercase().contains(text) || in_labels()
        };
        let labelled = |(name, value): &(String, Option<String>)| {
            line.labels.get(name).is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
        };
        self.text.as_ref().is_none_or(holds)
            && is(&self.state, &format!("{:?}", line.provisioning_state))
            && is(&self.location, &line.location)
            && is(&self.version, line.version.as_deref().unwrap_or_default())
            && is(&self.reachability, reach(line))
            && is(&self.health, health_of(line).as_str())
            && self.label.as_ref().is_none_or(labelled)
    }

    fn fits_work(&self, lane: Option<&LaneView>) -> bool {
        let is_running = lane.is_some_and(|lane| lane.running.is_some());
        let is_waiting = lane.is_some_and(|lane| lane.head_kind.is_some());
        match self.work {
            None => true,
            Some(WorkFilter::Running) => is_running,
            Some(WorkFilter::Waiting) => is_waiting,
            Some(WorkFilter::Idle) => !is_running && !is_waiting,
        }
    }

    fn order(&self, a: &FleetLine, b: &FleetLine, lanes: &HashMap<Uuid, LaneView>) -> Ordering {
        // Absent values come last in both directions.
        fn last<T: Ord>(a: Option<T>, b: Option<T>, is_reversed: bool) -> Ordering {
            match (a, b) {
                (Some(a), Some(b)) if is_reversed => b.cmp(&a),
                (Some(a), Some(b)) => a.cmp(&b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => Ordering::Equal,
            }
        }
        let word = |line: &FleetLine| format!("{:?}", line.provisioning_state);
        let turned = |order: Ordering| if self.is_reversed { order.reverse() } else { order };
        let by = match self.sort {
            SortKey::Name => turned(a.name.to_lowercase().cmp(&b.name.to_lowercase())),
            SortKey::State => turned(word(a).cmp(&word(b))),
            SortKey::Version => last(a.version.as_ref(), b.version.as_ref(), self.is_reversed),
            SortKey::Location => turned(a.location.cmp(&b.location)),
            SortKey::Reachability => turned(reach(b).cmp(reach(a))),
            // The worst first.
            SortKey::Health => turned(severity(b).cmp(&severity(a))),
            SortKey::Next => {
                let due = |line: &FleetLine| lanes.get(&line.uuid).and_then(|lane| lane.head_at);
                last(due(a), due(b), self.is_reversed)
            }
        };
        by.then_with(|| a.name.to_lowercase().cmp(&b.name.to_lowercase())).then_with(|| a.id.cmp(&b.id))
    }
}
