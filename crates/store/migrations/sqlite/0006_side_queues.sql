-- A fresh manifest that a budget of its own (its task's) holds up is set aside: its class is 3, which stands behind all
-- others in work_in_order, and `side_queue` names the budget. The lane's other work goes on. A side queue is closed while
-- its budget was found full; what stands in an open one has its place in the lane's order as before.

alter table work add column side_queue text;
create index work_set_aside on work (lane, side_queue, due_at, priority, id) where side_queue is not null;

create table side_queues (
  lane          blob    not null,
  key           text    not null,
  closed        integer not null,
  head_at       integer not null,              -- of its first work, while it is closed
  head_priority integer not null,
  primary key (lane, key)
) without rowid;
create index side_queues_closed on side_queues (key, head_at, head_priority, lane) where closed;

-- The next claim sets aside what these wait for.
update lanes set parked_on = null where parked_on like 'task/%';
