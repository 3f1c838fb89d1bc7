-- Documents, secrets, the queue, budgets, the change feed, the audit log: the tables.
-- The verbs that change them in one round trip are in 0001_queue.sql, 0001_sweeps.sql and 0001_records.sql, parts of
-- the same migration.
--
-- Times are whole microseconds since 1970 in UTC. Texts that are keys compare byte by byte, as in SQLite.

-- The engine's time: that of the server, plus an offset that only tests set.
-- For comparisons with what is in a row, after any wait for a lock.
create function micros_v1() returns bigint language sql volatile as $$
  select (extract(epoch from clock_timestamp()) * 1000000)::bigint
       + coalesce(nullif(current_setting('shipshape.clock_offset_us', true), '')::bigint, 0)
$$;

-- The same as of the beginning of the statement: a stable value, which can be an index condition.
create function statement_micros_v1() returns bigint language sql stable as $$
  select (extract(epoch from statement_timestamp()) * 1000000)::bigint
       + coalesce(nullif(current_setting('shipshape.clock_offset_us', true), '')::bigint, 0)
$$;

create table documents (
  uuid       uuid   not null primary key,
  id         text   collate "C" not null,      -- canonical path, lower case
  kind       text   collate "C" not null,
  parent     text   collate "C" not null,      -- the scope it is listed under
  etag       bigint not null,
  generation bigint not null,
  body       jsonb  not null,
  created    bigint not null,
  changed    bigint not null,
  deleted_at bigint
) with (fillfactor = 70);
create unique index documents_by_id on documents (id) where deleted_at is null;
create index documents_by_scope on documents (kind, parent, id) where deleted_at is null;
create index documents_deleted on documents (deleted_at) where deleted_at is not null;

create table unique_keys (
  key  text collate "C" not null primary key,
  uuid uuid not null
);
create index unique_keys_by_document on unique_keys (uuid);

create table secrets (
  owner   uuid   not null,
  name    text   collate "C" not null,
  sealed  bytea  not null,
  key_id  text   not null,
  changed bigint not null,
  primary key (owner, name)
);

-- What is pending or running. What has ended moves to `history` in the transaction that ends it.
create table work (
  id         uuid    not null primary key,
  lane       uuid    not null,
  kind       text    not null,
  class      integer not null,                 -- 0 operation, 1 begun manifest, 2 fresh manifest
  run_after  bigint  not null,                 -- as asked; only expedite changes it
  due_at     bigint  not null,
  run_before bigint,
  priority   integer not null,
  state      text    not null,
  attempt    integer not null default 0,
  step       text,
  checkpoint jsonb,
  fence      bigint  not null default 0,
  owner      uuid,
  budgets    text[],                           -- the budgets that count it
  held       text[],                           -- the budgets that do count it now
  created    bigint  not null,
  changed    bigint  not null,
  started    bigint
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000);
create index work_pending on work (lane, class, due_at, priority, id) where state = 'Pending';

-- Rewritten at each claim, renewal and release: half of each page is left free so that renewals stay in their page.
-- No index contains lease_until, for the same reason.
create table lanes (
  lane          uuid    not null primary key,
  head_kind     text,
  head_class    integer,
  head_at       bigint,
  head_priority integer,
  parked_on     text    collate "C",
  owner         uuid,
  lease_until   bigint,
  fence         bigint  not null default 0,
  preempt       boolean not null default false,
  cancel        boolean not null default false,
  running       uuid,
  running_kind  text
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
create index lanes_due on lanes (head_kind, head_at, head_priority, lane) where owner is null and parked_on is null;
create index lanes_owned on lanes (lane) where owner is not null;
create index lanes_parked on lanes (parked_on, head_at, head_priority, lane) where parked_on is not null;

create table history (
  id         uuid    not null primary key,
  lane       uuid    not null,
  kind       text    not null,
  class      integer not null,
  run_after  bigint  not null,
  run_before bigint,
  priority   integer not null,
  state      text    not null,
  attempt    integer not null,
  step       text,
  checkpoint jsonb,
  fence      bigint  not null,
  owner      uuid,
  result     jsonb,
  created    bigint  not null,
  started    bigint,
  finished   bigint  not null
);
-- By kind first: operations are kept for days, manifests for months, and neither must be waded through for the other.
create index history_finished on history (kind, finished, id);

create table budgets (
  key  text    collate "C" not null primary key,
  cap  integer not null,
  used integer not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- A sequence alone is not a feed: numbers are drawn in another order than transactions commit. (tx, seq) is, for
-- those rows whose tx is below the oldest transaction that still runs. A session draws numbers in blocks, which
-- keeps the order within each transaction, and that is all that seq is for.
create sequence feed_seq cache 32;
create table feed (
  tx      bigint  not null default pg_current_xact_id()::text::bigint,
  seq     bigint  not null default nextval('feed_seq'),
  kind    text    not null,
  uuid    uuid    not null,
  etag    bigint  not null,                    -- 0: its work moved, the document did not change
  deleted boolean not null,
  at      bigint  not null,
  primary key (tx, seq)
);
alter sequence feed_seq owned by feed.seq;

create table positions (
  reader   text   collate "C" not null primary key,
  position text   not null,
  changed  bigint not null
);

create table leases (
  name        text   collate "C" not null primary key,
  owner       uuid,
  lease_until bigint not null,
  fence       bigint not null
);

create table health (
  cluster   uuid    not null primary key,
  at        bigint  not null,
  reachable boolean not null,
  since     bigint  not null,                  -- reachable, or not, since then
  sample    jsonb   not null
) with (fillfactor = 70);

create sequence audit_seq cache 32;
create table audit (
  tx          bigint not null default pg_current_xact_id()::text::bigint,
  seq         bigint not null default nextval('audit_seq'),
  id          uuid   not null,
  at          bigint not null,
  actor       text   collate "C" not null,
  action      text   collate "C" not null,
  target      text   collate "C" not null,
  reason      text   not null,
  correlation uuid,
  before      text,
  after       text,
  number      bigint,
  seal        text,
  primary key (tx, seq)
);
alter sequence audit_seq owned by audit.seq;
create unique index audit_by_number on audit (number) where number is not null;
create index audit_unsealed on audit (tx, seq) where number is null;

create table meta (
  key   text collate "C" not null primary key,
  value text not null
);
