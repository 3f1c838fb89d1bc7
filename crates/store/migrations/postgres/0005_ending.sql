-- Work that has begun and is on its way to its end: somebody asked for that while it rested, or what it did is being taken
-- back. No budget holds it up; it counts while it runs. The functions are those of 0002_queue.sql with this in them: the
-- release before calls them and does not notice.
alter table work add column to_end boolean;

-- What is on its way to its end takes its place in a budget that is full, too.
create or replace function claim_v2(kind_ text, max_ integer, owner_ uuid, lease_us_ bigint)
returns table (work_ uuid, lane_ uuid, fence_ bigint, attempt_ integer, step_ text, checkpoint_ jsonb,
               run_after_ bigint, woken_ integer, at_ bigint, first_ boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  now_    bigint;
  lanes_  uuid[];
  works_  uuid[];
  all_    uuid[];
  idle_   uuid[];
  stale_  uuid[];
  one_    uuid;
  wake_   integer := 0;
  -- Budgets: the configured ones that candidates need, how much room each has, and what becomes of each candidate.
  keys_   text[];
  room_   integer[];
  before_ integer[];
  asked_  text[];
  full_   text;
  place_  integer;
  ending_ boolean;
  fit_lanes_   uuid[] := '{}';
  fit_works_   uuid[] := '{}';
  parked_      uuid[] := '{}';
  parked_on_   text[] := '{}';
begin
  perform enter_gate_v1();
  select array_agg(l.lane order by l.head_at, l.head_priority, l.lane) into all_ from (
    select lane, head_at, head_priority from lanes
    where head_kind = kind_ and head_at <= statement_micros_v1() and owner is null and parked_on is null
    order by head_at, head_priority, lane
    limit max_ for update skip locked) l;
  if all_ is null then
    return;
  end if;
  now_ := micros_v1();

  -- The first row of each lane: to be run, or too late to be begun, or not what the head had promised.
  for round_ in 1..2 loop
    select array_agg(x.lane order by x.place) filter (where f.ready),
           array_agg(f.id order by x.place) filter (where f.ready),
           array_agg(x.lane) filter (where f.ready is not true),
           array_agg(x.lane) filter (where f.stale)
    into lanes_, works_, idle_, stale_
    from unnest(all_) with ordinality as x (lane, place)
    left join lateral (
      select w.id, (w.class = 2 and w.started is null and w.run_before <= now_) is true as stale,
             w.kind = kind_ and w.due_at <= now_
               and (w.class = 2 and w.started is null and w.run_before <= now_) is not true as ready
      from work w where w.lane = x.lane and w.state = 'Pending'
      order by w.class, w.due_at, w.priority, w.id limit 1) f on true;
    exit when stale_ is null or round_ = 2;
    foreach one_ in array stale_ loop
      perform close_expired_v1(one_, now_);
    end loop;
    wake_ := wake_ | 1;
  end loop;
  if idle_ is not null then
    wake_ := wake_ | settle_v1(idle_, now_, false);
  end if;

  if works_ is not null and exists (select from budgets) then
    select array_agg(b.key), array_agg(b.cap - b.used) into keys_, room_ from (
      select key, cap, used from budgets
      where key = any (array(select distinct unnest(w.budgets) from work w where w.id = any (works_)))
      order by key for update) b;
    if keys_ is not null then
      before_ := room_;
      for i in 1 .. cardinality(works_) loop
        select w.budgets, w.to_end is true into asked_, ending_ from work w where w.id = works_[i];
        select k into full_ from unnest(asked_) with ordinality as a (k, n)
        where room_[array_position(keys_, k)] <= 0 order by n limit 1;
        if full_ is not null and not ending_ then
          parked_ := parked_ || lanes_[i];
          parked_on_ := parked_on_ || full_;
          continue;
        end if;
        foreach full_ in array coalesce(asked_, '{}') loop
          place_ := array_position(keys_, full_);
          if place_ is not null then
            room_[place_] := room_[place_] - 1;
          end if;
        end loop;
        fit_lanes_ := fit_lanes_ || lanes_[i];
        fit_works_ := fit_works_ || works_[i];
      end loop;
      lanes_ := fit_lanes_;
      works_ := fit_works_;
      update budgets b set used = b.used + t.before - t.room
      from unnest(keys_, before_, room_) as t (key, before, room)
      where b.key = t.key and t.before <> t.room;
      update lanes l set parked_on = p.key from unnest(parked_, parked_on_) as p (lane, key) where l.lane = p.lane;
      -- A lane that was un-parked for room which it did not take (another of its budgets is full) passes it on.
      for i in 1 .. cardinality(keys_) loop
        if room_[i] > 0 then
          wake_ := wake_ | unpark_v1(keys_[i], room_[i]);
        end if;
      end loop;
    end if;
  end if;

  return query
  with taken as (
    update lanes l
    set owner = owner_, lease_until = now_ + lease_us_, fence = l.fence + 1, running = c.work, running_kind = kind_,
        preempt = false, cancel = false, parked_on = null,
        head_kind = null, head_class = null, head_at = null, head_priority = null
    from unnest(lanes_, works_) with ordinality as c (lane, work, place)
    where l.lane = c.lane
    returning l.fence, c.work, c.place),
  begun as (
    update work w
    set state = 'InProgress', fence = t.fence, owner = owner_, attempt = w.attempt + 1,
        started = coalesce(w.started, now_), changed = now_,
        held = case when keys_ is not null and w.budgets && keys_
                    then array(select b from unnest(w.budgets) as b where b = any (keys_)) end
    from taken t
    where w.id = t.work
    returning w.id, w.lane, w.fence, w.attempt, w.step, w.checkpoint, w.run_after, w.started = now_ as first, t.place),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind_, b.id, 0, false, now_ from begun b)
  select b.id, b.lane, b.fence, b.attempt, b.step, b.checkpoint, b.run_after, 1, now_, b.first
  from begun b order by b.place;
  if wake_ <> 0 then
    return query select null::uuid, null::uuid, null::bigint, null::integer, null::text, null::jsonb, null::bigint, wake_,
                        null::bigint, null::boolean;
  end if;
end $$;

-- Whoever gives begun work back, whatever was asked of it, leaves it on its way to its end.
create or replace function yield_v2(
  works_ uuid[], lanes_ uuid[], owners_ uuid[], fences_ bigint[], rests_us_ bigint[], spent_ boolean[],
  steps_ text[], datas_ jsonb[], uncancelled_ boolean[], begun_ boolean[]
) returns integer language plpgsql as $$
declare
  own_   bigint[] := own_v1(works_, lanes_, owners_, fences_);
  now_   bigint := micros_v1();
  keys_  text[];
  woken_ integer := 1;
  lost_  uuid;
begin
  select c.work into lost_ from unnest(works_) with ordinality as c (work, place)
  where c.place <> all (coalesce(own_, '{}')) limit 1;
  if found then
    raise exception 'lease lost' using errcode = 'SH001', detail = lost_;
  end if;
  select c.work into lost_ from unnest(works_, lanes_, uncancelled_) as c (work, lane, uncancelled)
  join lanes l on l.lane = c.lane where c.uncancelled and l.cancel limit 1;
  if found then
    perform refuse_v1(lost_, 'uncancelled');
  end if;
  select array_agg(k) into keys_ from work w cross join unnest(w.held) as k where w.id = any (works_);
  with rested as (
    update work w
    set state = 'Pending', due_at = now_ + c.rest, attempt = w.attempt - case when c.spent then 0 else 1 end,
        owner = null, held = null, changed = now_,
        started = case when w.class = 2 and not c.begun and not c.spent then null else w.started end,
        step = coalesce(c.step, w.step), checkpoint = coalesce(c.data, w.checkpoint),
        class = case when c.begun then least(w.class, 1) else w.class end,
        to_end = (w.to_end or (c.begun and not c.uncancelled)) is true
    from unnest(works_, rests_us_, spent_, steps_, datas_, begun_, uncancelled_)
      as c (work, rest, spent, step, data, begun, uncancelled)
    where w.id = c.work
    returning w.id, w.kind)
  insert into feed (kind, uuid, etag, deleted, at) select kind, id, 0, false, now_ from rested;
  if keys_ is not null then
    woken_ := woken_ | lower_v1(keys_);
  end if;
  return woken_ | settle_v1(lanes_, now_, true);
end $$;

-- Begun work that rests is on its way to its end from now on.
create or replace function request_cancel_v2(works_ uuid[]) returns integer language plpgsql as $$
declare
  lanes_ uuid[] := lock_of_v1(works_);
  now_   bigint := micros_v1();
  one_   uuid;
  kind_  text;
  woken_ integer := 0;
begin
  foreach one_ in array works_ loop
    update work set due_at = 0, to_end = true, changed = now_ where id = one_ and state = 'Pending' and class = 1 returning kind into kind_;
    if not found then
      update lanes l set cancel = true from work w
      where w.id = one_ and w.state = 'InProgress' and l.lane = w.lane and l.running = w.id
      returning l.running_kind into kind_;
      if not found then
        perform refuse_v1(one_, 'InProgress');
      end if;
    end if;
    insert into feed (kind, uuid, etag, deleted, at) values (kind_, one_, 0, false, now_);
    woken_ := woken_ | 1 | woken_v1(kind_);
  end loop;
  return woken_ | settle_v1(lanes_, now_, false);
end $$;

-- Forgets work that neither runs nor has begun: what it did would never be taken back.
create or replace function discard_v2(works_ uuid[]) returns integer language plpgsql as $$
declare
  lanes_   uuid[] := lock_of_v1(works_);
  running_ uuid;
  keys_    text[];
  woken_   integer := 0;
begin
  select w.id into running_ from work w where w.id = any (works_) and (w.state = 'InProgress' or w.class = 1) limit 1;
  if found then
    perform refuse_v1(running_, 'ended');
  end if;
  select array_agg(distinct k) into keys_ from work w cross join unnest(w.budgets) as k where w.id = any (works_);
  delete from work where id = any (works_);
  delete from history where id = any (works_);
  delete from entries where work = any (works_);
  if lanes_ is not null then
    woken_ := settle_v1(lanes_, micros_v1(), false);
  end if;
  if keys_ is not null then
    woken_ := woken_ | nudge_v1(keys_);
  end if;
  return woken_;
end $$;

-- Makes sure that nothing runs in these lanes and nothing that has begun rests in them, until the transaction ends.
create or replace function expect_idle_v2(lanes_ uuid[]) returns void language plpgsql as $$
declare
  running_ uuid;
begin
  perform from lanes l where l.lane = any (lanes_) order by l.lane for update;
  select l.running into running_ from lanes l where l.lane = any (lanes_) and l.running is not null limit 1;
  if not found then
    select w.id into running_ from work w where w.lane = any (lanes_) and w.state = 'Pending' and w.class = 1 limit 1;
  end if;
  if found then
    perform refuse_v1(running_, 'ended');
  end if;
end $$;

-- As before, but what is too late is not let go first: whoever touches its lane closes it, and nothing is told behind its end.
create or replace function expedite_v1(works_ uuid[]) returns integer language plpgsql as $$
declare
  lanes_ uuid[] := lock_of_v1(works_);
  now_   bigint := micros_v1();
  one_   uuid;
  kind_  text;
begin
  foreach one_ in array works_ loop
    perform from work w
    where w.id = one_ and w.state = 'Pending' and w.class = 2 and w.started is null and w.run_before <= now_;
    if found then
      raise exception 'wrong state' using errcode = 'SH003', detail = concat_ws(' ', one_, 'TimedOut'), hint = 'Pending';
    end if;
    update work set run_after = 0, due_at = 0, changed = now_ where id = one_ and state = 'Pending'
    returning kind into kind_;
    if not found then
      perform refuse_v1(one_, 'Pending');
    end if;
    insert into feed (kind, uuid, etag, deleted, at) values (kind_, one_, 0, false, now_);
  end loop;
  return 1 | settle_v1(lanes_, now_, false);
end $$;
