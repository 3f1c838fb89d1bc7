-- Documents, secrets, the queue, budgets, the change feed, the audit log.
-- Times are whole microseconds since 1970 in UTC. Uuids are blobs of 16 bytes.

create table documents (
  uuid       blob    not null primary key,
  id         text    not null,                 -- canonical path, lower case
  kind       text    not null,
  parent     text    not null,                 -- the scope it is listed under
  etag       integer not null,
  generation integer not null,
  body       text    not null,
  created    integer not null,
  changed    integer not null,
  deleted_at integer
);
create unique index documents_by_id on documents (id) where deleted_at is null;
create index documents_by_scope on documents (kind, parent, id) where deleted_at is null;
create index documents_deleted on documents (deleted_at) where deleted_at is not null;

create table unique_keys (
  key  text not null primary key,
  uuid blob not null
) without rowid;
create index unique_keys_by_document on unique_keys (uuid);

create table secrets (
  owner   blob    not null,
  name    text    not null,
  sealed  blob    not null,
  key_id  text    not null,
  changed integer not null,
  primary key (owner, name)
) without rowid;

-- What is pending or running. What has ended moves to `history` in the transaction that ends it.
create table work (
  id         blob    not null primary key,
  lane       blob    not null,
  kind       text    not null,
  class      integer not null,                 -- 0 operation, 1 begun manifest, 2 fresh manifest
  run_after  integer not null,                 -- as asked, never changed by us
  due_at     integer not null,
  run_before integer,
  priority   integer not null,
  state      text    not null,
  attempt    integer not null default 0,
  step       text,
  checkpoint text,
  fence      integer not null default 0,
  owner      blob,
  budgets    text,                             -- JSON list of the budgets that count it
  held       text,                             -- JSON list of the budgets that do count it now
  created    integer not null,
  changed    integer not null,
  started    integer
) without rowid;
-- Of all rows, the running ones included: a claim then leaves the index as it is, and there is one running row a lane at most.
create index work_in_order on work (lane, class, due_at, priority, id);

create table lanes (
  lane          blob    not null primary key,
  head_kind     text,
  head_class    integer,
  head_at       integer,
  head_priority integer,
  parked_on     text,
  owner         blob,
  lease_until   integer,
  fence         integer not null default 0,
  preempt       integer not null default 0,
  cancel        integer not null default 0,
  running       blob,
  running_kind  text
) without rowid;
create index lanes_due on lanes (head_kind, head_at, head_priority, lane) where owner is null and parked_on is null;
create index lanes_owned on lanes (lane) where owner is not null;
create index lanes_parked on lanes (parked_on, head_at, head_priority, lane) where parked_on is not null;

create table history (
  id         blob    not null primary key,
  lane       blob    not null,
  kind       text    not null,
  class      integer not null,
  run_after  integer not null,
  run_before integer,
  priority   integer not null,
  state      text    not null,
  attempt    integer not null,
  step       text,
  checkpoint text,
  fence      integer not null,
  owner      blob,
  result     text,
  created    integer not null,
  started    integer,
  finished   integer not null
) without rowid;
create index history_finished on history (finished, id);

create table budgets (
  key  text    not null primary key,
  cap  integer not null,
  used integer not null
) without rowid;

-- seq is never used twice: trimming always leaves the newest row.
create table feed (
  seq     integer not null primary key,
  kind    text    not null,
  uuid    blob    not null,
  etag    integer not null,                    -- 0: its work moved, the document did not change
  deleted integer not null,
  at      integer not null
);

create table positions (
  reader   text    not null primary key,
  position text    not null,
  changed  integer not null
) without rowid;

create table leases (
  name        text    not null primary key,
  owner       blob,
  lease_until integer not null,
  fence       integer not null
) without rowid;

create table health (
  cluster   blob    not null primary key,
  at        integer not null,
  reachable integer not null,
  since     integer not null,                  -- reachable, or not, since then
  sample    text    not null
) without rowid;

create table audit (
  seq         integer not null primary key,
  id          blob    not null,
  at          integer not null,
  actor       text    not null,
  action      text    not null,
  target      text    not null,
  reason      text    not null,
  correlation blob,
  before      text,
  after       text,
  number      integer,
  seal        text
);
create unique index audit_by_number on audit (number) where number is not null;

create table meta (
  key   text not null primary key,
  value text not null
) without rowid;
