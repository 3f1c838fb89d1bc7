//! `store check`: verifies the store's invariants on the data itself. It reports and repairs nothing.

use crate::store::Reader;
use crate::{PAGE_MAX, StoreError};

/// Examples reported for one invariant; more would repeat the same fault.
const EXAMPLES: usize = 20;

/// An invariant and its violations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The invariant, as a sentence.
    pub invariant: &'static str,
    /// Violations; empty when the invariant holds.
    pub faults: Vec<String>,
}

struct Invariant {
    statement: &'static str,
    /// Query that returns one text for each violation. `{text:x}` is the text of the uuid `x`, `{has:list:item}`
    /// whether a list of budgets contains an item: the engines have different syntax for both.
    query: &'static str,
}

const INVARIANTS: &[Invariant] = &[
    Invariant {
        // Retention removes rows in feed order, which differs from the order of their times by at most the duration
        // of a transaction; a minute is longer than any.
        statement: "the newest feed row of each existing document has its current version, and is missing only by retention",
        query: "select {text:d.uuid} from documents d left join
                  (select uuid, max(etag) as etag from feed where etag > 0 group by uuid) f on f.uuid = d.uuid
                where f.etag <> d.etag or (f.uuid is null and d.deleted_at is null
                  and d.changed > (select min(at) from feed) + 60000000)",
    },
    Invariant {
        statement: "no two feed rows have the same version of a document",
        query: "select {text:uuid} from feed where etag > 0 group by uuid, etag having count(*) > 1",
    },
    Invariant {
        statement: "unique keys belong to existing documents",
        query: "select k.key from unique_keys k where not exists
                  (select 1 from documents d where d.uuid = k.uuid and d.deleted_at is null)",
    },
    Invariant {
        statement: "secrets belong to existing documents or to the store",
        query: "select s.name from secrets s where {text:s.owner} not in ('00000000-0000-0000-0000-000000000000', '00000000000000000000000000000000')
                  and not exists (select 1 from documents d where d.uuid = s.owner and d.deleted_at is null)",
    },
    Invariant {
        statement: "secrets are sealed with the store's current key",
        query: "select s.name from secrets s where s.key_id <> (select value from meta where key = 'key_id')",
    },
    Invariant {
        statement: "live work is Pending or InProgress",
        query: "select {text:id} from work where state not in ('Pending', 'InProgress')",
    },
    Invariant {
        statement: "finished work is in a terminal state and only in the history",
        query: "select {text:h.id} from history h where h.state in ('Pending', 'InProgress') or exists (select 1 from work w where w.id = h.id)",
    },
    Invariant {
        statement: "work has a lane",
        query: "select {text:w.id} from work w where not exists (select 1 from lanes l where l.lane = w.lane)",
    },
    Invariant {
        statement: "running work matches the running work, fence and owner of its lane",
        query: "select {text:w.id} from work w left join lanes l on l.lane = w.lane
                where w.state = 'InProgress' and not coalesce(l.running = w.id and l.fence = w.fence and l.owner = w.owner and l.running_kind = w.kind, false)",
    },
    Invariant {
        statement: "an owned lane has a lease and running work, a free one has neither",
        query: "select {text:l.lane} from lanes l where
                  (l.owner is null) <> (l.running is null) or (l.owner is null) <> (l.lease_until is null)
                  or (l.owner is not null and not exists (select 1 from work w where w.id = l.running and w.state = 'InProgress'))",
    },
    Invariant {
        statement: "the head of a free lane is its first pending work that is in no closed side queue",
        query: "select {text:l.lane} from lanes l left join work f on f.id =
                  (select w.id from work w where w.lane = l.lane and w.state = 'Pending' and not exists
                     (select 1 from side_queues s where s.lane = w.lane and s.key = w.side_queue and s.closed)
                   order by case when w.class = 3 then 2 else w.class end, w.due_at, w.priority, w.id limit 1)
                where l.owner is null and (
                  (f.id is null) <> (l.head_kind is null) or f.kind <> l.head_kind
                  or case when f.class = 3 then 2 else f.class end <> l.head_class
                  or f.due_at <> l.head_at or f.priority <> l.head_priority)",
    },
    Invariant {
        statement: "parked work is pending, is in a side queue of its lane, and waits for a budget that counts it",
        query: "select {text:w.id} from work w where (w.class = 3) <> (w.side_queue is not null)
                  or (w.class = 3 and (w.state <> 'Pending' or not {has:w.budgets:w.side_queue} or not exists
                    (select 1 from side_queues s where s.lane = w.lane and s.key = w.side_queue)))",
    },
    Invariant {
        statement: "a closed side queue waits for an existing budget, its lane is free, and its head is its first work",
        query: "select {text:s.lane} from side_queues s left join work f on f.id =
                  (select w.id from work w where w.lane = s.lane and w.side_queue = s.key order by w.due_at, w.priority, w.id limit 1)
                where s.closed and (f.id is null or f.due_at <> s.head_at or f.priority <> s.head_priority
                  or not exists (select 1 from budgets b where b.key = s.key)
                  or not exists (select 1 from lanes l where l.lane = s.lane and l.owner is null))",
    },
    Invariant {
        statement: "a budget counts exactly the running work that holds it",
        query: "select b.key from budgets b where b.used <>
                  (select count(*) from work w where w.state = 'InProgress' and {has:w.held:b.key})",
    },
    Invariant {
        statement: "the count of a budget is not negative",
        query: "select b.key from budgets b where b.used < 0",
    },
    Invariant {
        statement: "a parked lane waits for an existing budget and is free",
        query: "select {text:l.lane} from lanes l left join budgets b on b.key = l.parked_on
                where l.parked_on is not null and (b.key is null or l.owner is not null)",
    },
    Invariant {
        statement: "entries belong to existing work, live or finished",
        query: "select distinct {text:e.work} from entries e where not exists (select 1 from work w where w.id = e.work)
                  and not exists (select 1 from history h where h.id = e.work)",
    },
    Invariant {
        statement: "audit numbers have no gaps",
        query: "select 'record ' || a.number from audit a where a.number is not null
                  and a.number > (select min(number) from audit)
                  and not exists (select 1 from audit b where b.number = a.number - 1)",
    },
];

impl Reader {
    /// Verifies every invariant of the store.
    pub async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let queries = INVARIANTS.iter().map(|invariant| self.to_dialect(invariant.query)).collect();
        let found = self.engine.violations(queries, EXAMPLES).await?;
        let mut findings: Vec<Finding> = INVARIANTS
            .iter()
            .zip(found)
            .map(|(invariant, faults)| Finding { invariant: invariant.statement, faults })
            .collect();
        findings.push(Finding {
            invariant: "the database passes its integrity check",
            faults: self.engine.soundness().await?,
        });
        findings.push(Finding {
            invariant: "every secret can be opened",
            faults: self.unreadable_secrets().await?,
        });
        findings.push(Finding {
            invariant: "the audit chain is intact",
            faults: self.verify_audit(None).await?.faults,
        });
        Ok(findings)
    }

    async fn unreadable_secrets(&self) -> Result<Vec<String>, StoreError> {
        let (mut faults, mut after) = (Vec::new(), None);
        loop {
            let page = self.engine.secrets(None, after, PAGE_MAX).await?;
            let Some(last) = page.last() else { return Ok(faults) };
            after = Some((last.owner, last.name.clone()));
            faults.extend(
                page.iter()
                    .filter_map(|sealed| self.keyring.open(sealed).err())
                    .map(|error| error.to_string()),
            );
            if faults.len() > EXAMPLES {
                return Ok(faults);
            }
        }
    }

    fn to_dialect(&self, query: &str) -> String {
        let sqlite = matches!(self.engine, crate::engine::Engine::Sqlite(_));
        let mut sql = String::new();
        let mut rest = query;
        while let Some((before, behind)) = rest.split_once('{') {
            let (placeholder, after) = behind.split_once('}').expect("the queries above close their braces");
            let parts: Vec<&str> = placeholder.split(':').collect();
            sql += before;
            sql += &match (parts.as_slice(), sqlite) {
                (["text", column], true) => format!("lower(hex({column}))"),
                (["text", column], false) => format!("{column}::text"),
                (["has", list, item], true) => format!("{item} in (select value from json_each({list}))"),
                (["has", list, item], false) => format!("{item} = any({list})"),
                _ => unreachable!("the queries above use these two placeholders"),
            };
            rest = after;
        }
        sql + rest
    }
}
