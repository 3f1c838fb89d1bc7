-- Transitions of the health of clusters: a row where a facet (status, reachability, version, ...) got another value.
create table health_events (
  cluster  uuid    not null,
  at       bigint  not null,
  facet    text    not null,
  previous text,                             -- none: the first value that was seen
  value    text    not null,
  expected boolean not null,                 -- maintenance was running that explains it
  primary key (cluster, facet, at)
);
create index health_events_by_age on health_events (at);

-- The buckets of each pool of workers, as its leader assigned them.
create table pools (
  name    text   not null primary key,
  fence   bigint not null,                   -- of the leader's lease
  buckets jsonb  not null,
  changed bigint not null
);

-- Writes samples, given in the order of their clusters, and the transitions that they show. The row of a cluster is locked before
-- its last transition is read, so that of two writers the second sees what the first has written.
create function put_health_v9(
  clusters_ uuid[], reachable_ boolean[], samples_ jsonb[],
  event_clusters_ uuid[], facets_ text[], values_ text[], expected_ boolean[]
) returns void language plpgsql as $$
declare
  now_ bigint;
begin
  now_ := micros_v1();
  insert into health as h (cluster, at, reachable, since, sample)
  select s.cluster, now_, s.reachable, now_, s.sample
  from unnest(clusters_, reachable_, samples_) as s (cluster, reachable, sample)
  order by s.cluster
  on conflict (cluster) do update set at = excluded.at, reachable = excluded.reachable, sample = excluded.sample,
    since = case when h.reachable = excluded.reachable then h.since else excluded.at end;
  insert into health_events (cluster, at, facet, previous, value, expected)
  select e.cluster, greatest(now_, coalesce(l.at, 0) + 1), e.facet, l.value, e.value, e.expected
  from unnest(event_clusters_, facets_, values_, expected_) as e (cluster, facet, value, expected)
  left join lateral (
    select h.at, h.value from health_events h where h.cluster = e.cluster and h.facet = e.facet order by h.at desc limit 1) l on true
  where l.value is distinct from e.value;
end $$;
