//! The coming time, played through: lanes, budgets and slots as the queue and the actuators treat them, with every run as
//! long as is expected of it. Nothing here reads a clock or a store.
//!
//! A cluster's lane runs one piece at a time, in the order class, due time, priority, id. Of the free lanes whose head is
//! due, the longest due goes first. A lane whose head a budget holds up is parked on the first one that is full, and as many
//! lanes are let out as room becomes free. A budget of a task does not hold the lane: its fresh work is passed over, and
//! what comes next goes on. What could not begin before its `run_before` is a miss.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use uuid::Uuid;

/// Microseconds since 1970.
pub type Micros = i64;

/// A cluster's line of work.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    /// The cluster.
    pub id: Uuid,
    /// Whether the cluster does not answer: nothing begins in it, and nobody can say until when.
    pub unreachable: bool,
    /// What runs in it now.
    pub running: Option<Running>,
    /// What waits in it, now or later; in any order.
    pub queue: Vec<QueuedRun>,
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Running {
    /// When it will have ended.
    pub end: Micros,
    /// The budgets that count it.
    pub keys: BudgetKeys,
    /// Whether it is a customer's operation: the backend works it, and no slot of an actuator is taken.
    pub is_operation: bool,
}

/// What goes before what in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RunPhase {
    /// A customer's operation: it takes no slot of an actuator.
    Operation,
    /// It has begun and is on its way to its end: no budget holds it up.
    Ending,
    /// It has begun: no window holds it up.
    Started,
    /// It has taken no effect yet.
    #[default]
    Fresh,
}

impl RunPhase {
    /// Its class in the queue, where all that has begun goes by its due time.
    fn class(self) -> u8 {
        match self {
            RunPhase::Operation => 0,
            RunPhase::Ending | RunPhase::Started => 1,
            RunPhase::Fresh => 2,
        }
    }
}

/// Places in [`FleetModel::budgets`]; a piece counts in four at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetKeys {
    keys: [u16; 4],
    count: u8,
    /// Bit by bit, which of them hold up this work only.
    own: u8,
}

impl BudgetKeys {
    /// With one more; a fifth is passed over.
    #[must_use]
    pub fn with(mut self, key: u16) -> BudgetKeys {
        if let Some(place) = self.keys.get_mut(usize::from(self.count)) {
            *place = key;
            self.count += 1;
        }
        self
    }

    /// With one more that, when it is full, holds up this work and not its lane.
    #[must_use]
    pub fn with_own(mut self, key: u16) -> BudgetKeys {
        if usize::from(self.count) < self.keys.len() {
            self.own |= 1 << self.count;
        }
        self.with(key)
    }

    /// Whether it counts in that budget.
    pub fn has(&self, key: u16) -> bool {
        self.iter().any(|it| it == usize::from(key))
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.keys[..usize::from(self.count)].iter().map(|key| usize::from(*key))
    }

    /// Those that hold up the lane, or those that hold up this work only.
    fn that_hold(&self, work_only: bool) -> impl Iterator<Item = usize> + '_ {
        self.iter()
            .enumerate()
            .filter(move |(place, _)| (self.own & (1 << place) != 0) == work_only)
            .map(|it| it.1)
    }
}

/// Work that will be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedRun {
    /// The manifest's id, now or once it is made.
    pub id: Uuid,
    /// What it goes before.
    pub rank: RunPhase,
    /// When it can run.
    pub due: Micros,
    /// Never begun at or after.
    pub before: Micros,
    /// Among those due at the same time, lower goes first.
    pub priority: i32,
    /// How long it will take.
    pub duration: Micros,
    /// The budgets that count it.
    pub keys: BudgetKeys,
    /// What the caller wants to find again.
    pub tag: u32,
}

/// All that decides what happens.
#[derive(Debug, Clone, Default)]
pub struct FleetModel {
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// How much may run at once, of each budget. What runs already is counted by the lanes.
    pub budgets: Vec<u32>,
    /// How much all actuators together run at once.
    pub slots: usize,
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRun {
    /// Its lane, by its place.
    pub lane: u32,
    /// The piece.
    pub piece: QueuedRun,
    /// When it begins; when it is missed.
    pub start: Micros,
    /// When it ends.
    pub end: Micros,
    /// Whether it begins at all.
    pub runs: bool,
    /// What it waited for last.
    pub held: WaitCause,
}

/// What a piece waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitCause {
    /// Nothing but its time.
    #[default]
    Nothing,
    /// Other work of its cluster.
    Lane,
    /// Its cluster, which does not answer.
    Unreachable,
    /// Room in this budget.
    Budget(u16),
    /// A free slot of an actuator.
    Slots,
}

/// How a lane stands among others: its head's due time and priority, its id, its place.
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
    /// So many operations have not begun; they are few.
    operations: usize,
    placed: Vec<PlannedRun>,
}

struct Queue {
    id: Uuid,
    pieces: Vec<QueuedRun>,
    next: usize,
    held: WaitCause,
    unreachable: bool,
    /// What a budget of its own holds up, by the budget.
    aside: BTreeMap<usize, SideQueue>,
    /// Where its head stands: among the free lanes, or parked on a budget.
    shown: Option<(Option<usize>, Head)>,
}

#[derive(Default)]
struct SideQueue {
    pieces: BTreeMap<(Micros, i32, Uuid), QueuedRun>,
    /// What it shows while its budget is full.
    closed: Option<Head>,
}

/// Plays the world from `now` to `until`; what would begin later is not told. In the order of the starts.
pub fn simulate(world: FleetModel, now: Micros, until: Micros) -> Vec<PlannedRun> {
    simulate_unless(world, now, until, || false).unwrap_or_default()
}

/// The same, given up as soon as `is_stopped` says so: then there is no plan.
pub fn simulate_unless(
    world: FleetModel,
    now: Micros,
    until: Micros,
    is_stopped: impl Fn() -> bool,
) -> Option<Vec<PlannedRun>> {
    let mut state = State::new(world, now, until);
    while let Some(time) = state.next_event() {
        if time > until {
            break;
        }
        if is_stopped() {
            return None;
        }
        state.now = state.now.max(time);
        state.end_what_is_over();
        state.start_what_is_due();
    }
    state.miss_the_rest();
    let mut placed = state.placed;
    placed.sort_by_key(|it| (it.start, it.lane, it.piece.due, it.piece.id));
    Some(placed)
}

impl State {
    fn new(world: FleetModel, now: Micros, until: Micros) -> State {
        let lanes = world.lanes.len();
        let mut state = State {
            now,
            until,
            queues: Vec::with_capacity(lanes),
            heads: Heads::new(),
            parked: vec![Heads::new(); world.budgets.len()],
            closed: vec![Heads::new(); world.budgets.len()],
            used: vec![0; world.budgets.len()],
            limits: world.budgets,
            ends: BinaryHeap::new(),
            running: vec![Running::default(); lanes],
            free: world.slots,
            operations: 0,
            placed: Vec::new(),
        };
        for (number, mut lane) in (0_u32..).zip(world.lanes) {
            lane.queue.sort_unstable_by_key(|it| (it.rank.class(), it.due, it.priority, it.id));
            state.operations += lane.queue.iter().filter(|it| it.rank == RunPhase::Operation).count();
            state.queues.push(Queue {
                id: lane.id,
                pieces: lane.queue,
                next: 0,
                held: if lane.unreachable { WaitCause::Unreachable } else { WaitCause::Nothing },
                unreachable: lane.unreachable,
                aside: BTreeMap::new(),
                shown: None,
            });
            match lane.running {
                Some(running) => state.occupy(number, Running { end: running.end.max(now), ..running }),
                None => state.show(number),
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

    /// The first free lane that can be taken: without a free slot, only one whose head is an operation.
    fn next_head(&self) -> Option<Head> {
        match self.free {
            0 if self.operations == 0 => None,
            0 => self.heads.iter().find(|head| self.is_operation(head.3)).copied(),
            _ => self.heads.first().copied(),
        }
    }

    fn is_operation(&self, lane: u32) -> bool {
        let queue = &self.queues[lane as usize];
        queue.pieces.get(queue.next).is_some_and(|piece| piece.rank == RunPhase::Operation)
    }

    fn end_what_is_over(&mut self) {
        while let Some(Reverse((end, lane))) = self.ends.peek().copied() {
            if end > self.now {
                break;
            }
            self.ends.pop();
            let ended = self.running[lane as usize];
            self.free += usize::from(!ended.is_operation);
            for key in ended.keys.iter() {
                self.used[key] -= 1;
                self.let_one_out(key);
            }
            let queue = &mut self.queues[lane as usize];
            if !queue.unreachable && queue.pieces.get(queue.next).is_some_and(|it| it.due < self.now) {
                queue.held = WaitCause::Lane;
            }
            self.miss_what_is_late(lane);
            self.show(lane);
        }
    }

    fn start_what_is_due(&mut self) {
        loop {
            while let Some(head) = self.next_head().filter(|head| head.0 <= self.now) {
                self.take(head.3);
            }
            if self.free == 0 || !self.let_out() {
                return;
            }
        }
    }

    /// A lane that was let out for room which it did not take passes it on: others are let out in its place. Whether any
    /// was; each either begins, is missed, or parks on another budget that is full.
    fn let_out(&mut self) -> bool {
        let mut any = false;
        for key in 0..self.parked.len() {
            for _ in self.used[key]..self.limits[key] {
                if !self.let_one_out(key) {
                    break;
                }
                any = true;
            }
        }
        any
    }

    /// Lets the longest due lane that waits for a budget try again: one that is parked on it, else one with a side queue for
    /// it. Whether there was one.
    fn let_one_out(&mut self, key: usize) -> bool {
        // What became too late while it was parked has been swept away.
        while let Some(parked) = self.parked[key].first().copied() {
            self.hide(parked.3);
            self.miss_what_is_late(parked.3);
            match self.head(parked.3) {
                Some(head) if head != parked && head.0 <= self.now => self.park(parked.3, key),
                head => {
                    self.show(parked.3);
                    if head == Some(parked) {
                        return true;
                    }
                }
            }
        }
        while let Some(closed) = self.closed[key].first().copied() {
            let lane = closed.3;
            self.miss_what_is_late(lane);
            let queue = &mut self.queues[lane as usize];
            let id = queue.id;
            let Some(side) = queue.aside.get_mut(&key) else { break };
            let first = side.pieces.values().next().map(|it| (it.due, it.priority, id, lane));
            if first == Some(closed) {
                self.open_side_queues(lane);
                self.show(lane);
                return true;
            }
            side.closed = first;
            self.closed[key].remove(&closed);
            self.closed[key].extend(first);
        }
        false
    }

    /// The first piece of a lane whose head is due: misses what is late, then starts, parks, or leaves for later. What a
    /// budget of its own holds up is set aside.
    fn take(&mut self, lane: u32) {
        let now = self.now;
        self.hide(lane);
        self.open_side_queues(lane);
        loop {
            self.miss_what_is_late(lane);
            let Some((from, piece)) = self.first(lane) else { return };
            if piece.due > now {
                return self.show(lane);
            }
            let is_full =
                |key: &usize| self.used[*key] >= self.limits[*key] && piece.rank != RunPhase::Ending;
            let lane_wide = piece.keys.that_hold(false).find(is_full);
            let of_its_own = piece.keys.that_hold(true).find(is_full);
            match (lane_wide, of_its_own) {
                (None, Some(key)) if piece.rank == RunPhase::Fresh => self.set_aside(lane, from, piece, key),
                (None, None) => {
                    let end = now.saturating_add(piece.duration);
                    self.place(lane, from, piece, now, Some(end));
                    self.open_side_queues(lane);
                    let is_operation = piece.rank == RunPhase::Operation;
                    self.operations -= usize::from(is_operation);
                    return self.occupy(lane, Running { end, keys: piece.keys, is_operation });
                }
                (Some(key), _) | (None, Some(key)) => {
                    self.queues[lane as usize].held =
                        WaitCause::Budget(u16::try_from(key).unwrap_or(u16::MAX));
                    return self.park(lane, key);
                }
            }
        }
    }

    fn set_aside(&mut self, lane: u32, from: Option<usize>, piece: QueuedRun, key: usize) {
        self.remove(lane, from, &piece);
        let queue = &mut self.queues[lane as usize];
        let side = queue.aside.entry(key).or_default();
        side.pieces.insert((piece.due, piece.priority, piece.id), piece);
        if side.closed.is_none() {
            let head = (piece.due, piece.priority, queue.id, lane);
            side.closed = Some(head);
            self.closed[key].insert(head);
        }
    }

    fn open_side_queues(&mut self, lane: u32) {
        let queue = &mut self.queues[lane as usize];
        queue.aside.retain(|_, side| !side.pieces.is_empty() || side.closed.is_some());
        for (key, side) in &mut queue.aside {
            if let Some(head) = side.closed.take() {
                self.closed[*key].remove(&head);
            }
        }
    }

    /// Whoever touches a lane closes what may no longer begin at its front.
    fn miss_what_is_late(&mut self, lane: u32) {
        let is_late = |piece: &QueuedRun, now| piece.rank == RunPhase::Fresh && now >= piece.before;
        loop {
            let queue = &self.queues[lane as usize];
            let front = queue.pieces.get(queue.next).map(|piece| (None, *piece));
            let aside = queue
                .aside
                .iter()
                .filter_map(|(key, side)| Some((Some(*key), *side.pieces.values().next()?)));
            let Some((from, piece)) = front.into_iter().chain(aside).find(|it| is_late(&it.1, self.now))
            else {
                return;
            };
            self.place(lane, from, piece, piece.before.max(piece.due), None);
        }
    }

    /// The first piece of a lane, and the side queue that it stands in.
    fn first(&self, lane: u32) -> Option<(Option<usize>, QueuedRun)> {
        let queue = &self.queues[lane as usize];
        let front = queue.pieces.get(queue.next).map(|piece| (None, *piece));
        if queue.aside.is_empty() {
            return front;
        }
        let open = queue.aside.iter().filter(|(_, side)| side.closed.is_none());
        let aside = open.filter_map(|(key, side)| Some((Some(*key), *side.pieces.values().next()?)));
        front.into_iter().chain(aside).min_by_key(|(_, it)| (it.rank.class(), it.due, it.priority, it.id))
    }

    /// Takes a piece out of its lane's queue, or out of a side queue.
    fn remove(&mut self, lane: u32, from: Option<usize>, piece: &QueuedRun) {
        let queue = &mut self.queues[lane as usize];
        match from.and_then(|key| queue.aside.get_mut(&key)) {
            Some(side) => drop(side.pieces.remove(&(piece.due, piece.priority, piece.id))),
            None => queue.next += 1,
        }
    }

    fn place(
        &mut self,
        lane: u32,
        from: Option<usize>,
        piece: QueuedRun,
        start: Micros,
        end: Option<Micros>,
    ) {
        self.remove(lane, from, &piece);
        let queue = &mut self.queues[lane as usize];
        // Whoever was held neither by its lane nor by a budget has waited for a slot.
        let held = match (from, queue.held) {
            _ if start <= piece.due => WaitCause::Nothing,
            (Some(key), _) => WaitCause::Budget(u16::try_from(key).unwrap_or(u16::MAX)),
            (None, WaitCause::Nothing) => WaitCause::Slots,
            (None, held) => held,
        };
        self.placed.push(PlannedRun {
            lane,
            piece,
            start,
            end: end.unwrap_or(start),
            runs: end.is_some(),
            held,
        });
        if end.is_some() {
            queue.held = WaitCause::Nothing;
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
        self.first(lane).map(|(_, piece)| (piece.due, piece.priority, id, lane))
    }

    /// Shows a free lane's head among the others; nobody takes that of a cluster that does not answer.
    fn show(&mut self, lane: u32) {
        self.hide(lane);
        if self.queues[lane as usize].unreachable {
            return;
        }
        let head = self.head(lane);
        self.heads.extend(head);
        self.queues[lane as usize].shown = head.map(|head| (None, head));
    }

    fn park(&mut self, lane: u32, key: usize) {
        self.hide(lane);
        let head = self.head(lane);
        self.parked[key].extend(head);
        self.queues[lane as usize].shown = head.map(|head| (Some(key), head));
    }

    fn hide(&mut self, lane: u32) {
        match self.queues[lane as usize].shown.take() {
            Some((Some(key), head)) => self.parked[key].remove(&head),
            Some((None, head)) => self.heads.remove(&head),
            None => false,
        };
    }

    /// At the end of the time: what still waits and would have had to begin by then.
    fn miss_the_rest(&mut self) {
        // What is behind a run that is still under way then waits for that.
        for Reverse((_, lane)) in &self.ends {
            let held = &mut self.queues[*lane as usize].held;
            *held = if *held == WaitCause::Nothing { WaitCause::Lane } else { *held };
        }
        for lane in 0..u32::try_from(self.queues.len()).unwrap_or(u32::MAX) {
            let queue = &self.queues[lane as usize];
            let aside =
                queue.aside.iter().flat_map(|(key, side)| side.pieces.values().map(|it| (Some(*key), *it)));
            let rest = queue.pieces[queue.next..].iter().map(|it| (None, *it));
            let late: Vec<(Option<usize>, QueuedRun)> = rest
                .chain(aside)
                .filter(|(_, it)| it.rank == RunPhase::Fresh && it.before <= self.until)
                .collect();
            for (from, piece) in late {
                self.place(lane, from, piece, piece.before.max(piece.due), None);
            }
        }
    }
}
