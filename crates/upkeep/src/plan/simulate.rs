//! The coming time, played through: lanes, budgets and slots as the queue and the actuators treat them, with every run as
//! long as is expected of it. Nothing here reads a clock or a store.
//!
//! A cluster's lane runs one piece at a time, in the order class, due time, priority, id. Of the free lanes whose head is
//! due, the longest due goes first. A lane whose head a budget holds up is parked on the first one that is full, and as many
//! lanes are let out as room becomes free. A budget of a task does not hold the lane: its fresh work is passed over, and
//! what comes next goes on. What could not begin before its `run_before` is a miss.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use uuid::Uuid;

/// Microseconds since 1970.
pub type Micros = i64;

/// A cluster's line of work.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    /// The cluster.
    pub id: Uuid,
    /// What runs in it now.
    pub running: Option<Running>,
    /// What waits in it, now or later; in any order.
    pub queue: Vec<Piece>,
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Running {
    /// When it will have ended.
    pub end: Micros,
    /// The budgets that count it.
    pub keys: Keys,
    /// Whether it is a customer's operation: the backend works it, and no slot of an actuator is taken.
    pub is_operation: bool,
}

/// What goes before what in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Rank {
    /// A customer's operation: it takes no slot of an actuator.
    Operation,
    /// It has begun and is on its way to its end: no budget holds it up.
    Ending,
    /// It has begun: no window holds it up.
    Begun,
    /// It has taken no effect yet.
    #[default]
    Fresh,
}

impl Rank {
    /// Its class in the queue, where all that has begun goes by its due time.
    fn class(self) -> u8 {
        match self {
            Rank::Operation => 0,
            Rank::Ending | Rank::Begun => 1,
            Rank::Fresh => 2,
        }
    }
}

/// Places in [`World::budgets`]; a piece counts in four at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keys {
    keys: [u16; 4],
    count: u8,
}

impl Keys {
    /// With one more; a fifth is passed over.
    #[must_use]
    pub fn with(mut self, key: u16) -> Keys {
        if let Some(place) = self.keys.get_mut(usize::from(self.count)) {
            *place = key;
            self.count += 1;
        }
        self
    }

    /// Whether it counts in that budget.
    pub fn has(&self, key: u16) -> bool {
        self.iter().any(|it| it == usize::from(key))
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.keys[..usize::from(self.count)].iter().map(|key| usize::from(*key))
    }
}

/// Work that will be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The manifest's id, now or once it is made.
    pub id: Uuid,
    /// What it goes before.
    pub rank: Rank,
    /// When it can run.
    pub due: Micros,
    /// Never begun at or after.
    pub before: Micros,
    /// Among those due at the same time, lower goes first.
    pub priority: i32,
    /// How long it will take.
    pub duration: Micros,
    /// The budgets that count it.
    pub keys: Keys,
    /// What the caller wants to find again.
    pub tag: u32,
}

/// All that decides what happens.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// The lanes.
    pub lanes: Vec<Lane>,
    /// How much may run at once, of each budget. What runs already is counted by the lanes.
    pub budgets: Vec<u32>,
    /// How much all actuators together run at once.
    pub slots: usize,
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its lane, by its place.
    pub lane: u32,
    /// The piece.
    pub piece: Piece,
    /// When it begins; when it is missed.
    pub start: Micros,
    /// When it ends.
    pub end: Micros,
    /// Whether it begins at all.
    pub runs: bool,
    /// What it waited for last.
    pub held: Held,
}

/// What a piece waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Held {
    /// Nothing but its time.
    #[default]
    Nothing,
    /// Other work of its cluster.
    Lane,
    /// Room in this budget.
    Budget(u16),
    /// A free slot of an actuator.
    Slots,
}

/// Free, unparked lanes by their heads: due time, priority, lane's id, lane.
type Heads = BTreeSet<(Micros, i32, Uuid, u32)>;

struct State {
    now: Micros,
    until: Micros,
    queues: Vec<Queue>,
    heads: Heads,
    parked: Vec<Heads>,
    used: Vec<u32>,
    limits: Vec<u32>,
    ends: BinaryHeap<Reverse<(Micros, u32)>>,
    running: Vec<Running>,
    free: usize,
    /// So many operations have not begun; they are few.
    operations: usize,
    placed: Vec<Placed>,
}

struct Queue {
    id: Uuid,
    pieces: Vec<Piece>,
    next: usize,
    held: Held,
}

/// Plays the world from `now` to `until`; what would begin later is not told. In the order of the starts.
pub fn simulate(world: World, now: Micros, until: Micros) -> Vec<Placed> {
    let mut state = State::new(world, now, until);
    while let Some(time) = state.next_event() {
        if time > until {
            break;
        }
        state.now = state.now.max(time);
        state.end_what_is_over();
        state.start_what_is_due();
    }
    state.miss_the_rest();
    let mut placed = state.placed;
    placed.sort_by_key(|it| (it.start, it.lane, it.piece.due, it.piece.id));
    placed
}

impl State {
    fn new(world: World, now: Micros, until: Micros) -> State {
        let lanes = world.lanes.len();
        let mut state = State {
            now,
            until,
            queues: Vec::with_capacity(lanes),
            heads: Heads::new(),
            parked: vec![Heads::new(); world.budgets.len()],
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
            state.operations += lane.queue.iter().filter(|it| it.rank == Rank::Operation).count();
            state.queues.push(Queue { id: lane.id, pieces: lane.queue, next: 0, held: Held::Nothing });
            match lane.running {
                Some(running) => state.occupy(number, Running { end: running.end.max(now), ..running }),
                None => state.show_head(number),
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
    fn next_head(&self) -> Option<(Micros, i32, Uuid, u32)> {
        match self.free {
            0 if self.operations == 0 => None,
            0 => self.heads.iter().find(|head| self.is_operation(head.3)).copied(),
            _ => self.heads.first().copied(),
        }
    }

    fn is_operation(&self, lane: u32) -> bool {
        let queue = &self.queues[lane as usize];
        queue.pieces.get(queue.next).is_some_and(|piece| piece.rank == Rank::Operation)
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
                let head = self.first_parked(key);
                self.heads.extend(head);
            }
            let queue = &mut self.queues[lane as usize];
            if queue.pieces.get(queue.next).is_some_and(|it| it.due < self.now) {
                queue.held = Held::Lane;
            }
            self.miss_what_is_late(lane);
            self.show_head(lane);
        }
    }

    fn start_what_is_due(&mut self) {
        loop {
            while let Some(head) = self.next_head().filter(|head| head.0 <= self.now) {
                self.heads.remove(&head);
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
                let Some(head) = self.first_parked(key) else { break };
                self.heads.insert(head);
                any = true;
            }
        }
        any
    }

    /// Takes the longest due lane that is parked on a budget. What became too late while it was parked has been swept away.
    fn first_parked(&mut self, key: usize) -> Option<(Micros, i32, Uuid, u32)> {
        while let Some(parked) = self.parked[key].pop_first() {
            self.miss_what_is_late(parked.3);
            match self.head(parked.3) {
                Some(head) if head == parked => return Some(head),
                Some(head) if head.0 <= self.now => drop(self.parked[key].insert(head)),
                later => self.heads.extend(later),
            }
        }
        None
    }

    /// The first piece of a lane whose head is due: misses what is late, then starts, parks, or leaves for later.
    fn take(&mut self, lane: u32) {
        let now = self.now;
        self.miss_what_is_late(lane);
        let queue = &self.queues[lane as usize];
        let Some(piece) = queue.pieces.get(queue.next).copied() else { return };
        if piece.due > now {
            self.show_head(lane);
            return;
        }
        let full = piece.keys.iter().find(|key| self.used[*key] >= self.limits[*key]);
        let full = full.filter(|_| piece.rank != Rank::Ending);
        match full {
            Some(key) => {
                self.queues[lane as usize].held = Held::Budget(u16::try_from(key).unwrap_or(u16::MAX));
                let head = self.head(lane);
                self.parked[key].extend(head);
            }
            None => {
                let end = now.saturating_add(piece.duration);
                self.place(lane, piece, now, Some(end));
                let is_operation = piece.rank == Rank::Operation;
                self.operations -= usize::from(is_operation);
                self.occupy(lane, Running { end, keys: piece.keys, is_operation });
            }
        }
    }

    /// Whoever touches a lane closes what may no longer begin at its front.
    fn miss_what_is_late(&mut self, lane: u32) {
        loop {
            let queue = &self.queues[lane as usize];
            match queue.pieces.get(queue.next).copied() {
                Some(piece) if piece.rank == Rank::Fresh && self.now >= piece.before => {
                    self.place(lane, piece, piece.before.max(piece.due), None);
                }
                _ => return,
            }
        }
    }

    fn place(&mut self, lane: u32, piece: Piece, start: Micros, end: Option<Micros>) {
        let queue = &mut self.queues[lane as usize];
        queue.next += 1;
        // Whoever was held neither by its lane nor by a budget has waited for a slot.
        let held = match queue.held {
            _ if start <= piece.due => Held::Nothing,
            Held::Nothing => Held::Slots,
            held => held,
        };
        self.placed.push(Placed { lane, piece, start, end: end.unwrap_or(start), runs: end.is_some(), held });
        if end.is_some() {
            queue.held = Held::Nothing;
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

    fn head(&self, lane: u32) -> Option<(Micros, i32, Uuid, u32)> {
        let queue = &self.queues[lane as usize];
        queue.pieces.get(queue.next).map(|piece| (piece.due, piece.priority, queue.id, lane))
    }

    fn show_head(&mut self, lane: u32) {
        let head = self.head(lane);
        self.heads.extend(head);
    }

    /// At the end of the time: what still waits and would have had to begin by then.
    fn miss_the_rest(&mut self) {
        for lane in 0..u32::try_from(self.queues.len()).unwrap_or(u32::MAX) {
            let queue = &self.queues[lane as usize];
            let late: Vec<Piece> = queue.pieces[queue.next..]
                .iter()
                .filter(|it| it.rank == Rank::Fresh && it.before <= self.until)
                .copied()
                .collect();
            for piece in late {
                self.place(lane, piece, piece.before.max(piece.due), None);
            }
        }
    }
}
