//! Simulation of lanes, budgets and slots by the rules of the queue and the actuators, with the estimated duration of every
//! run. Nothing here reads a clock or a store.
//!
//! A lane runs one manifest or operation at a time, in the order class, due time, priority, id. Of the free lanes whose head is due, the
//! longest due goes first. A lane whose head is blocked by budgets is parked on the first full one; when runs end, as many lanes
//! are unparked as the budget has room for. The budget of a task does not block the lane: its fresh work is set aside, and the
//! next work of the lane runs. A run that cannot start before its `run_before` is missed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use uuid::Uuid;

/// Microseconds since 1970.
pub type Micros = i64;

/// Lane of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    /// Uuid of the cluster.
    pub id: Uuid,
    /// Whether the cluster is unreachable: no run starts, for an unknown time.
    pub unreachable: bool,
    /// Current run.
    pub running: Option<Running>,
    /// Pending and future runs, in any order.
    pub queue: Vec<QueuedRun>,
}

/// Current run of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Running {
    /// Expected end.
    pub end: Micros,
    /// Budgets that count it.
    pub keys: BudgetKeys,
    /// Whether it is an operation, which the backend runs without a slot of an actuator.
    pub is_operation: bool,
}

/// Phase of work, which determines its order in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RunPhase {
    /// An operation, which needs no slot of an actuator.
    Operation,
    /// Started work that is being undone or cancelled: no budget blocks it.
    Ending,
    /// Started work: its window no longer matters.
    Started,
    /// Work without any effect yet.
    #[default]
    Fresh,
}

impl RunPhase {
    /// Class in the queue; all started work is one class, ordered by due time.
    fn class(self) -> u8 {
        match self {
            RunPhase::Operation => 0,
            RunPhase::Ending | RunPhase::Started => 1,
            RunPhase::Fresh => 2,
        }
    }
}

/// Indexes into [`FleetModel::budgets`]; a run has at most four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetKeys {
    keys: [u16; 4],
    count: u8,
    /// Bit mask of the budgets that block only this work.
    own: u8,
}

impl BudgetKeys {
    /// Adds a budget; a fifth is ignored.
    #[must_use]
    pub fn with(mut self, key: u16) -> BudgetKeys {
        if let Some(place) = self.keys.get_mut(usize::from(self.count)) {
            *place = key;
            self.count += 1;
        }
        self
    }

    /// Adds a budget that, when full, blocks this work but not its lane.
    #[must_use]
    pub fn with_own(mut self, key: u16) -> BudgetKeys {
        if usize::from(self.count) < self.keys.len() {
            self.own |= 1 << self.count;
        }
        self.with(key)
    }

    /// Whether the budget is included.
    pub fn has(&self, key: u16) -> bool {
        self.iter().any(|it| it == usize::from(key))
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.keys[..usize::from(self.count)].iter().map(|key| usize::from(*key))
    }

    /// Budgets that block the lane, or those that block only this work.
    fn blocking(&self, work_only: bool) -> impl Iterator<Item = usize> + '_ {
        self.iter()
            .enumerate()
            .filter(move |(place, _)| (self.own & (1 << place) != 0) == work_only)
            .map(|it| it.1)
    }
}

/// Pending or future run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedRun {
    /// Id of the manifest, existing or future.
    pub id: Uuid,
    /// Phase.
    pub phase: RunPhase,
    /// Due time.
    pub due: Micros,
    /// End of the start window.
    pub before: Micros,
    /// Priority; lower goes first among equal due times.
    pub priority: i32,
    /// Estimated duration.
    pub duration: Micros,
    /// Budgets that count it.
    pub keys: BudgetKeys,
    /// Tag of the caller.
    pub tag: u32,
}

/// Input of the simulation.
#[derive(Debug, Clone, Default)]
pub struct FleetModel {
    /// Lanes.
    pub lanes: Vec<Lane>,
    /// Limit of each budget. Current runs are counted from the lanes.
    pub budgets: Vec<u32>,
    /// Slots of all actuators.
    pub slots: usize,
}

/// Simulated run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRun {
    /// Index of the lane.
    pub lane: u32,
    /// The run.
    pub run: QueuedRun,
    /// Start, or the time at which it is missed.
    pub start: Micros,
    /// End.
    pub end: Micros,
    /// Whether it starts.
    pub runs: bool,
    /// What it waited for last.
    pub cause: WaitCause,
}

/// What a run waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitCause {
    /// Only its due time.
    #[default]
    Nothing,
    /// Other work of its cluster.
    Lane,
    /// Its unreachable cluster.
    Unreachable,
    /// This budget.
    Budget(u16),
    /// A free slot of an actuator.
    Slots,
}

/// Order of a lane: due time and priority of its head, its id, its index.
type Head = (Micros, i32, Uuid, u32);
type Heads = BTreeSet<Head>;

struct State {
    now: Micros,
    until: Micros,
    queues: Vec<Queue>,
    /// Free, unparked lanes.
    heads: Heads,
    /// Lanes that wait for a budget, and those with a side queue that does.
    parked: Vec<Heads>,
    closed: Vec<Heads>,
    used: Vec<u32>,
    limits: Vec<u32>,
    ends: BinaryHeap<Reverse<(Micros, u32)>>,
    running: Vec<Running>,
    free: usize,
    /// Number of operations that have not started; usually few.
    operations: usize,
    planned: Vec<PlannedRun>,
}

struct Queue {
    id: Uuid,
    runs: Vec<QueuedRun>,
    next: usize,
    cause: WaitCause,
    unreachable: bool,
    /// Runs blocked by a budget of their own, by budget.
    aside: BTreeMap<usize, SideQueue>,
    /// Location of its head: among the free lanes, or parked on a budget.
    listed: Option<(Option<usize>, Head)>,
}

#[derive(Default)]
struct SideQueue {
    runs: BTreeMap<(Micros, i32, Uuid), QueuedRun>,
    /// Its head in `State::closed` while its budget is full.
    closed: Option<Head>,
}

/// Simulates from `now` to `until`; returns the runs that start or are missed by then, ordered by start.
pub fn simulate(fleet: FleetModel, now: Micros, until: Micros) -> Vec<PlannedRun> {
    simulate_unless(fleet, now, until, || false).unwrap_or_default()
}

/// Like [`simulate`], but returns none as soon as `is_stopped` returns true.
pub fn simulate_unless(
    fleet: FleetModel,
    now: Micros,
    until: Micros,
    is_stopped: impl Fn() -> bool,
) -> Option<Vec<PlannedRun>> {
    let mut state = State::new(fleet, now, until);
    while let Some(time) = state.next_event() {
        if time > until {
            break;
        }
        if is_stopped() {
            return None;
        }
        state.now = state.now.max(time);
        state.finish_runs();
        state.start_due_runs();
    }
    state.miss_remaining_runs();
    let mut planned = state.planned;
    planned.sort_by_key(|it| (it.start, it.lane, it.run.due, it.run.id));
    Some(planned)
}

impl State {
    fn new(fleet: FleetModel, now: Micros, until: Micros) -> State {
        let lanes = fleet.lanes.len();
        let mut state = State {
            now,
            until,
            queues: Vec::with_capacity(lanes),
            heads: Heads::new(),
            parked: vec![Heads::new(); fleet.budgets.len()],
            closed: vec![Heads::new(); fleet.budgets.len()],
            used: vec![0; fleet.budgets.len()],
            limits: fleet.budgets,
            ends: BinaryHeap::new(),
            running: vec![Running::default(); lanes],
            free: fleet.slots,
            operations: 0,
            planned: Vec::new(),
        };
        for (number, mut lane) in (0_u32..).zip(fleet.lanes) {
            lane.queue.sort_unstable_by_key(|it| (it.phase.class(), it.due, it.priority, it.id));
            state.operations += lane.queue.iter().filter(|it| it.phase == RunPhase::Operation).count();
            state.queues.push(Queue {
                id: lane.id,
                runs: lane.queue,
                next: 0,
                cause: if lane.unreachable { WaitCause::Unreachable } else { WaitCause::Nothing },
                unreachable: lane.unreachable,
                aside: BTreeMap::new(),
                listed: None,
            });
            match lane.running {
                Some(running) => state.occupy(number, Running { end: running.end.max(now), ..running }),
                None => state.list(number),
            }
        }
        state
    }

    fn next_event(&self) -> Option<Micros> {
        let end = self.ends.peek().map(|Reverse((end, _))| *end);
        let head = self.next_head().map(|(due, ..)| due);
        match (end, head) {
            (Some(end), Some(head)) => Some(end.min(head)),
            (end, head) => end.or(head),
        }
    }

    /// First free lane that can start: without a free slot, only one whose head is an operation.
    fn next_head(&self) -> Option<Head> {
        match self.free {
            0 if self.operations == 0 => None,
            0 => self.heads.iter().find(|head| self.is_operation(head.3)).copied(),
            _ => self.heads.first().copied(),
        }
    }

    fn is_operation(&self, lane: u32) -> bool {
        let queue = &self.queues[lane as usize];
        queue.runs.get(queue.next).is_some_and(|run| run.phase == RunPhase::Operation)
    }

    fn finish_runs(&mut self) {
        while let Some(Reverse((end, lane))) = self.ends.peek().copied() {
            if end > self.now {
                break;
            }
            self.ends.pop();
            let finished = self.running[lane as usize];
            self.free += usize::from(!finished.is_operation);
            for key in finished.keys.iter() {
                self.used[key] -= 1;
                self.unpark_first(key);
            }
            let queue = &mut self.queues[lane as usize];
            if !queue.unreachable && queue.runs.get(queue.next).is_some_and(|it| it.due < self.now) {
                queue.cause = WaitCause::Lane;
            }
            self.miss_late_runs(lane);
            self.list(lane);
        }
    }

    fn start_due_runs(&mut self) {
        loop {
            while let Some(head) = self.next_head().filter(|head| head.0 <= self.now) {
                self.start_or_park(head.3);
            }
            if self.free == 0 || !self.unpark_all() {
                return;
            }
        }
    }

    /// Unparks lanes while budgets have room, since an unparked lane may not use it. Returns whether any was unparked; each
    /// either starts, is missed, or parks on another full budget.
    fn unpark_all(&mut self) -> bool {
        let mut any = false;
        for key in 0..self.parked.len() {
            for _ in self.used[key]..self.limits[key] {
                if !self.unpark_first(key) {
                    break;
                }
                any = true;
            }
        }
        any
    }

    /// Unparks the longest due lane of a budget: one that is parked on it, else one with a side queue for it. Returns whether
    /// there was one.
    fn unpark_first(&mut self, key: usize) -> bool {
        // Runs that became too late while the lane was parked are missed.
        while let Some(parked) = self.parked[key].first().copied() {
            self.unlist(parked.3);
            self.miss_late_runs(parked.3);
            match self.head(parked.3) {
                Some(head) if head != parked && head.0 <= self.now => self.park(parked.3, key),
                head => {
                    self.list(parked.3);
                    if head == Some(parked) {
                        return true;
                    }
                }
            }
        }
        while let Some(closed) = self.closed[key].first().copied() {
            let lane = closed.3;
            self.miss_late_runs(lane);
            let queue = &mut self.queues[lane as usize];
            let id = queue.id;
            let Some(side) = queue.aside.get_mut(&key) else { break };
            let first = side.runs.values().next().map(|it| (it.due, it.priority, id, lane));
            if first == Some(closed) {
                self.open_side_queues(lane);
                self.list(lane);
                return true;
            }
            side.closed = first;
            self.closed[key].remove(&closed);
            self.closed[key].extend(first);
        }
        false
    }

    /// Handles the first run of a lane whose head is due: misses late runs, then starts, parks or postpones it. A run that a
    /// budget of its own blocks is set aside.
    fn start_or_park(&mut self, lane: u32) {
        let now = self.now;
        self.unlist(lane);
        self.open_side_queues(lane);
        loop {
            self.miss_late_runs(lane);
            let Some((from, run)) = self.first(lane) else { return };
            if run.due > now {
                return self.list(lane);
            }
            let is_full = |key: &usize| self.used[*key] >= self.limits[*key] && run.phase != RunPhase::Ending;
            let lane_wide = run.keys.blocking(false).find(is_full);
            let own = run.keys.blocking(true).find(is_full);
            match (lane_wide, own) {
                (None, Some(key)) if run.phase == RunPhase::Fresh => self.set_aside(lane, from, run, key),
                (None, None) => {
                    let end = now.saturating_add(run.duration);
                    self.place(lane, from, run, now, Some(end));
                    self.open_side_queues(lane);
                    let is_operation = run.phase == RunPhase::Operation;
                    self.operations -= usize::from(is_operation);
                    return self.occupy(lane, Running { end, keys: run.keys, is_operation });
                }
                (Some(key), _) | (None, Some(key)) => {
                    self.queues[lane as usize].cause =
                        WaitCause::Budget(u16::try_from(key).unwrap_or(u16::MAX));
                    return self.park(lane, key);
                }
            }
        }
    }

    fn set_aside(&mut self, lane: u32, from: Option<usize>, run: QueuedRun, key: usize) {
        self.remove(lane, from, &run);
        let queue = &mut self.queues[lane as usize];
        let side = queue.aside.entry(key).or_default();
        side.runs.insert((run.due, run.priority, run.id), run);
        if side.closed.is_none() {
            let head = (run.due, run.priority, queue.id, lane);
            side.closed = Some(head);
            self.closed[key].insert(head);
        }
    }

    fn open_side_queues(&mut self, lane: u32) {
        let queue = &mut self.queues[lane as usize];
        queue.aside.retain(|_, side| !side.runs.is_empty() || side.closed.is_some());
        for (key, side) in &mut queue.aside {
            if let Some(head) = side.closed.take() {
                self.closed[*key].remove(&head);
            }
        }
    }

    /// Misses the runs at the front of a lane whose start window has passed, as the queue does.
    fn miss_late_runs(&mut self, lane: u32) {
        let is_late = |run: &QueuedRun, now| run.phase == RunPhase::Fresh && now >= run.before;
        loop {
            let queue = &self.queues[lane as usize];
            let front = queue.runs.get(queue.next).map(|run| (None, *run));
            let aside =
                queue.aside.iter().filter_map(|(key, side)| Some((Some(*key), *side.runs.values().next()?)));
            let Some((from, run)) = front.into_iter().chain(aside).find(|it| is_late(&it.1, self.now)) else {
                return;
            };
            self.place(lane, from, run, run.before.max(run.due), None);
        }
    }

    /// First run of a lane, and its side queue.
    fn first(&self, lane: u32) -> Option<(Option<usize>, QueuedRun)> {
        let queue = &self.queues[lane as usize];
        let front = queue.runs.get(queue.next).map(|run| (None, *run));
        if queue.aside.is_empty() {
            return front;
        }
        let open = queue.aside.iter().filter(|(_, side)| side.closed.is_none());
        let aside = open.filter_map(|(key, side)| Some((Some(*key), *side.runs.values().next()?)));
        front.into_iter().chain(aside).min_by_key(|(_, it)| (it.phase.class(), it.due, it.priority, it.id))
    }

    /// Removes a run from the queue of its lane, or from a side queue.
    fn remove(&mut self, lane: u32, from: Option<usize>, run: &QueuedRun) {
        let queue = &mut self.queues[lane as usize];
        match from.and_then(|key| queue.aside.get_mut(&key)) {
            Some(side) => drop(side.runs.remove(&(run.due, run.priority, run.id))),
            None => queue.next += 1,
        }
    }

    fn place(&mut self, lane: u32, from: Option<usize>, run: QueuedRun, start: Micros, end: Option<Micros>) {
        self.remove(lane, from, &run);
        let queue = &mut self.queues[lane as usize];
        // A late run that neither its lane nor a budget blocked has waited for a slot.
        let cause = match (from, queue.cause) {
            _ if start <= run.due => WaitCause::Nothing,
            (Some(key), _) => WaitCause::Budget(u16::try_from(key).unwrap_or(u16::MAX)),
            (None, WaitCause::Nothing) => WaitCause::Slots,
            (None, cause) => cause,
        };
        self.planned.push(PlannedRun {
            lane,
            run,
            start,
            end: end.unwrap_or(start),
            runs: end.is_some(),
            cause,
        });
        if end.is_some() {
            queue.cause = WaitCause::Nothing;
        }
    }

    fn occupy(&mut self, lane: u32, running: Running) {
        for key in running.keys.iter() {
            self.used[key] += 1;
        }
        self.running[lane as usize] = running;
        self.free = self.free.saturating_sub(usize::from(!running.is_operation));
        self.ends.push(Reverse((running.end, lane)));
    }

    fn head(&self, lane: u32) -> Option<Head> {
        let id = self.queues[lane as usize].id;
        self.first(lane).map(|(_, run)| (run.due, run.priority, id, lane))
    }

    /// Lists a free lane by its head, unless its cluster is unreachable.
    fn list(&mut self, lane: u32) {
        self.unlist(lane);
        if self.queues[lane as usize].unreachable {
            return;
        }
        let head = self.head(lane);
        self.heads.extend(head);
        self.queues[lane as usize].listed = head.map(|head| (None, head));
    }

    fn park(&mut self, lane: u32, key: usize) {
        self.unlist(lane);
        let head = self.head(lane);
        self.parked[key].extend(head);
        self.queues[lane as usize].listed = head.map(|head| (Some(key), head));
    }

    fn unlist(&mut self, lane: u32) {
        match self.queues[lane as usize].listed.take() {
            Some((Some(key), head)) => self.parked[key].remove(&head),
            Some((None, head)) => self.heads.remove(&head),
            None => false,
        };
    }

    /// At the end of the simulated time: misses the pending runs whose window has passed.
    fn miss_remaining_runs(&mut self) {
        // Runs behind a current run wait for it.
        for Reverse((_, lane)) in &self.ends {
            let cause = &mut self.queues[*lane as usize].cause;
            *cause = if *cause == WaitCause::Nothing { WaitCause::Lane } else { *cause };
        }
        for lane in 0..u32::try_from(self.queues.len()).unwrap_or(u32::MAX) {
            let queue = &self.queues[lane as usize];
            let aside =
                queue.aside.iter().flat_map(|(key, side)| side.runs.values().map(|it| (Some(*key), *it)));
            let rest = queue.runs[queue.next..].iter().map(|it| (None, *it));
            let late: Vec<(Option<usize>, QueuedRun)> = rest
                .chain(aside)
                .filter(|(_, it)| it.phase == RunPhase::Fresh && it.before <= self.until)
                .collect();
            for (from, run) in late {
                self.place(lane, from, run, run.before.max(run.due), None);
            }
        }
    }
}
