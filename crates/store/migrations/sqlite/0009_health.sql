-- Transitions of the health of clusters: a row where a facet (status, reachability, version, ...) got another value.
create table health_events (
  cluster  blob    not null,
  at       integer not null,
  facet    text    not null,
  previous text,                             -- none: the first value that was seen
  value    text    not null,
  expected integer not null,                 -- maintenance was running that explains it
  primary key (cluster, facet, at)
) without rowid;
create index health_events_by_age on health_events (at);

-- The buckets of each pool of workers, as its leader assigned them.
create table pools (
  name    text    not null primary key,
  fence   integer not null,                  -- of the leader's lease
  buckets text    not null,
  changed integer not null
) without rowid;
