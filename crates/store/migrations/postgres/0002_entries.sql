-- What was told of each piece of work, and what asked for it. The verbs that carry them are in 0002_queue.sql, part of
-- the same migration. Functions of the first migration that move work into the history are replaced by ones that take
-- the new columns along: the release before calls them and does not notice.

alter table work add column origin text collate "C";       -- the schedule that asked for it
alter table history add column origin text collate "C";
alter table history add column budgets text[];

create table entries (
  work   uuid   not null,
  number bigint not null,                      -- from 1 on; at 0 stands how many were left out
  at     bigint not null,
  body   jsonb  not null,
  primary key (work, number)
);

-- Whoever tells of work holds its row, live or ended: so entries are numbered in the order of commits, a reader that
-- goes on behind a number misses none, and no entry outlives its work. Most verbs hold it anyway; this is for the others.
create function lock_told_v2(works_ uuid[]) returns void language plpgsql as $$
begin
  perform from work w where w.id = any (works_) order by w.id for no key update;
  -- A new statement: what ended while we waited for it is here by now.
  perform from history h where h.id = any (works_) order by h.id for no key update;
end $$;

-- Puts entries behind those that are there; of a log that is full, what steps say is only counted.
create function append_v2(works_ uuid[], bodies_ jsonb[], of_steps_ boolean[], now_ bigint) returns void
language sql volatile as $$
  with given as (
    select e.work, e.body, e.of_step,
           coalesce((select n.number from entries n where n.work = e.work order by n.number desc limit 1), 0)
             + row_number() over (partition by e.work order by e.place) as number
    from unnest(works_, bodies_, of_steps_) with ordinality as e (work, body, of_step, place)),
  dropped as (
    insert into entries as n (work, number, at, body)
    select g.work, 0, now_, jsonb_build_object('dropped', count(*)) from given g
    where g.of_step and g.number > 5000 group by g.work order by g.work
    on conflict (work, number) do update
    set at = excluded.at,
        body = jsonb_build_object('dropped', (n.body ->> 'dropped')::bigint + (excluded.body ->> 'dropped')::bigint))
  insert into entries (work, number, at, body)
  select g.work, g.number, now_, g.body from given g where not (g.of_step and g.number > 5000) order by g.work, g.number
$$;

-- The same, of work that is there, live or ended.
create function record_v2(works_ uuid[], bodies_ jsonb[], of_steps_ boolean[]) returns void language plpgsql as $$
declare
  gone_ uuid;
begin
  select x.id into gone_ from unnest(works_) as x (id)
  where not exists (select from work w where w.id = x.id) and not exists (select from history h where h.id = x.id) limit 1;
  if found then
    raise exception 'no such work' using errcode = 'SH003', detail = gone_;
  end if;
  perform append_v2(works_, bodies_, of_steps_, micros_v1());
end $$;

-- Tells of ends that no holder tells of.
create function tell_ends_v2(works_ uuid[], now_ bigint) returns void language sql volatile as $$
  select append_v2(array_agg(h.id), array_agg(jsonb_strip_nulls(jsonb_build_object(
      'time', to_char(timestamp 'epoch' + now_ * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
      'event', 'finished', 'actor', 'service:store', 'attempt', h.attempt, 'from', 'Pending', 'to', h.state,
      'message', h.result ->> 'message'))), array_agg(false), now_)
  from history h where h.id = any (works_)
$$;

-- What is remembered of work whose time to begin passed.
create function timed_out_v2(now_ bigint) returns jsonb language sql immutable as $$
  select jsonb_build_object('code', 'TimedOut', 'message', 'timed out at '
    || to_char(timestamp 'epoch' + now_ / 1000000 * interval '1 second', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
$$;

create or replace function trim_history_v1(kind_ text, age_us_ bigint, max_ integer, meta_keys_ text[], meta_values_ text[])
returns integer language plpgsql as $$
declare
  now_   bigint := micros_v1();
  old_   uuid[];
  etags_ bigint[];
  still_ uuid[];
  dead_  uuid[];
begin
  -- The versions are read before this transaction writes, and so before it has a number: a document that another
  -- transaction changes from here on is left for the next round. Else its end, told under our older number, would
  -- stand in the feed before that change.
  select array_agg(h.id), array_agg(d.etag) into old_, etags_ from (
    -- A schedule's slot that was cancelled long before its time is remembered until then: it must not be made again.
    select id from history
    where kind = kind_ and finished < now_ - age_us_ and (origin is null or coalesce(run_before, 0) < now_)
    order by finished, id limit max_) h
  left join documents d on d.uuid = h.id and d.deleted_at is null;
  if old_ is null then
    return 0;
  end if;
  select array_agg(l.uuid) into still_ from (
    select d.uuid from documents d join unnest(old_, etags_) as x (uuid, etag) on x.uuid = d.uuid and x.etag = d.etag
    where d.deleted_at is null order by d.uuid for update of d skip locked) l;
  select array_agg(x.uuid) into old_ from unnest(old_, etags_) as x (uuid, etag)
  where x.etag is null or x.uuid = any (still_);
  if old_ is null then
    return 0;
  end if;
  delete from history where id = any (old_);
  delete from entries where work = any (old_);
  with gone as (
    update documents set etag = etag + 1, changed = now_, deleted_at = now_
    where uuid = any (still_) and deleted_at is null returning uuid, kind, etag),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind, uuid, etag, true, now_ from gone)
  select array_agg(uuid) into dead_ from gone;
  delete from secrets where owner = any (dead_);
  delete from unique_keys where uuid = any (dead_);
  perform set_meta_v1(meta_keys_, meta_values_);
  return cardinality(old_);
end $$;

-- As put_secrets_v1, where there is no such secret yet; another one stays as it is.
create function ensure_secrets_v2(owners_ uuid[], names_ text[], sealed_ bytea[], key_ids_ text[]) returns void
language plpgsql as $$
declare
  current_ text;
begin
  select value into current_ from meta where key = 'key_id' for share;
  if current_ is null or current_ <> any (key_ids_) then
    raise exception 'stale key' using errcode = 'SH008', detail = coalesce(current_, '');
  end if;
  insert into secrets (owner, name, sealed, key_id, changed)
  select s.owner, s.name, s.sealed, s.key_id, micros_v1()
  from unnest(owners_, names_, sealed_, key_ids_) as s (owner, name, sealed, key_id) order by s.owner, s.name
  on conflict (owner, name) do nothing;
end $$;
