-- A fresh manifest that a budget of its own (its task's, by the name `task/…`) holds up is set aside: its class is 3, which
-- stands behind all others in work_pending, and `side_queue` names the budget. The lane's other work goes on. A side queue
-- is closed while its budget was found full; what stands in an open one has its place in the lane's order as before.
--
-- A side queue belongs to its lane: it is changed under the lane's lock. Whoever claims from a lane opens its side queues
-- and closes those whose budgets it holds locked and finds full; whoever else locks a lane and writes its head opens them.
-- So an opening that skips a locked lane misses nothing. The functions are those of before with this in them: the release
-- before calls them and does not notice.

alter table work add column side_queue text collate "C";
create table side_queues (
  lane          uuid    not null,
  key           text    collate "C" not null,
  closed        boolean not null,
  head_at       bigint  not null,              -- of its first work, while it is closed
  head_priority integer not null,
  primary key (lane, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index side_queues_closed on side_queues (key, head_at, head_priority, lane) where closed;

-- The first pending row of a lane, in its queue or in an open side queue.
create function first_v6(lane_ uuid) returns setof work language sql stable rows 1 as $$
  select f.* from (
    (select w.* from work w where w.lane = lane_ and w.state = 'Pending' and w.class < 3
     order by w.class, w.due_at, w.priority, w.id limit 1)
    union all
    (select a.* from side_queues s cross join lateral (
       select w.* from work w where w.lane = s.lane and w.side_queue = s.key and w.state = 'Pending'
       order by w.due_at, w.priority, w.id limit 1) a
     where s.lane = lane_ and not s.closed)) f
  order by least(f.class, 2), f.due_at, f.priority, f.id limit 1
$$;

-- Opens all side queues of locked lanes, and forgets the empty ones; the budgets that they wait for.
create function open_side_queues_v6(lanes_ uuid[]) returns text[] language plpgsql as $$
declare
  keys_ text[];
begin
  select array_agg(distinct s.key) into keys_ from side_queues s where s.lane = any (lanes_);
  if keys_ is not null then
    delete from side_queues s where s.lane = any (lanes_)
      and not exists (select from work w where w.lane = s.lane and w.side_queue = s.key);
    update side_queues s set closed = false where s.lane = any (lanes_) and s.closed;
  end if;
  return keys_;
end $$;

-- Gives locked lanes that nobody holds the heads that they have, un-parked; side queues stay as they are.
create function show_heads_v6(lanes_ uuid[]) returns integer language sql volatile as $$
  with shown as (
    update lanes l
    set head_kind = h.kind, head_class = least(h.class, 2), head_at = h.due_at, head_priority = h.priority, parked_on = null
    from (select x.lane, f.kind, f.class, f.due_at, f.priority
          from unnest(lanes_) as x (lane) left join lateral first_v6(x.lane) f on true) h
    where l.lane = h.lane and l.owner is null
    returning h.kind)
  select coalesce(bit_or(woken_v1(s.kind)), 0) from shown s
$$;

-- Sets the first of a locked lane aside until that budget, which is full, has room; with it what else it holds up among
-- those that come next. How many rows were moved.
create function set_aside_v6(lane_ uuid, work_ uuid, key_ text, now_ bigint) returns integer language plpgsql as $$
declare
  before_   text;
  due_      bigint;
  priority_ integer;
  moved_    integer := 0;
begin
  select w.side_queue, w.due_at, w.priority into before_, due_, priority_ from work w where w.id = work_;
  if before_ is null then
    update work w set class = 3, side_queue = key_
    from (select q.id, q.budgets from work q
          where q.lane = lane_ and q.state = 'Pending' and q.class = 2 and q.due_at <= now_
          order by q.class, q.due_at, q.priority, q.id limit 100) n
    where w.id = n.id and key_ = any (n.budgets);
    get diagnostics moved_ = row_count;
  elsif before_ <> key_ then
    update work w set side_queue = key_ where w.id = work_;
    moved_ := 1;
  end if;
  -- One that is closed already has an older head.
  insert into side_queues as s (lane, key, closed, head_at, head_priority) values (lane_, key_, true, due_, priority_)
  on conflict (lane, key) do update
  set closed = true, head_at = excluded.head_at, head_priority = excluded.head_priority where not s.closed;
  return moved_;
end $$;

create or replace function close_expired_v1(lane_ uuid, now_ bigint) returns integer language plpgsql as $$
declare
  works_ uuid[];
begin
  select array_agg(f.id) into works_ from (
    select q.id, bool_and((q.class = 2 and q.started is null and q.run_before <= now_) is true)
                   over (order by q.class, q.due_at, q.priority, q.id) as stale
    from (select * from work w where w.lane = lane_ and w.state = 'Pending' and w.class < 3
          order by w.class, w.due_at, w.priority, w.id limit 100) q
    union all
    select q.id, bool_and((q.started is null and q.run_before <= now_) is true)
                   over (partition by q.side_queue order by q.due_at, q.priority, q.id) as stale
    from side_queues s cross join lateral (
      select * from work w where w.lane = s.lane and w.side_queue = s.key and w.state = 'Pending'
      order by w.due_at, w.priority, w.id limit 100) q
    where s.lane = lane_ and not s.closed) f
  where f.stale;
  if works_ is null then
    return 0;
  end if;
  perform close_v1(works_, 'TimedOut', array_fill(timed_out_v2(now_), array[cardinality(works_)]), now_);
  perform tell_ends_v2(works_, now_);
  return cardinality(works_);
end $$;

create or replace function settle_v1(lanes_ uuid[], now_ bigint, release_ boolean) returns integer language plpgsql as $$
declare
  woken_ integer := 0;
  some_  integer;
  stale_ uuid[];
  one_   uuid;
begin
  perform open_side_queues_v6(lanes_);
  for round_ in 1..2 loop
    with settled as (
      update lanes l
      set head_kind = h.kind, head_class = least(h.class, 2), head_at = h.due_at, head_priority = h.priority, parked_on = null,
          owner = case when release_ then null else l.owner end,
          lease_until = case when release_ then null else l.lease_until end,
          running = case when release_ then null else l.running end,
          running_kind = case when release_ then null else l.running_kind end,
          preempt = l.preempt and not release_,
          cancel = l.cancel and not release_
      from (
        select x.lane, f.kind, f.class, f.due_at, f.priority,
               (f.class >= 2 and f.started is null and f.run_before <= now_) is true as stale
        from unnest(lanes_) as x (lane) left join lateral first_v6(x.lane) f on true) h
      where l.lane = h.lane and (release_ or l.owner is null)
      returning l.lane, h.kind, h.stale)
    select coalesce(bit_or(woken_v1(s.kind)), 0), array_agg(s.lane) filter (where s.stale) into some_, stale_
    from settled s;
    woken_ := woken_ | some_;
    exit when stale_ is null or round_ = 2;
    foreach one_ in array stale_ loop
      perform close_expired_v1(one_, now_);
    end loop;
    woken_ := woken_ | 1;
    lanes_ := stale_;
  end loop;
  return woken_;
end $$;

-- Lets the first lanes that wait for a budget try again: those that it holds up as a whole, then those that have side
-- queues for it.
create or replace function unpark_v1(key_ text, count_ integer) returns integer language plpgsql as $$
declare
  woken_ integer;
  freed_ integer;
  lanes_ uuid[];
begin
  if coalesce(count_, 0) <= 0 then
    return 0;
  end if;
  with first as (
    select lane from lanes where parked_on = key_
    order by head_at, head_priority, lane limit count_ for update skip locked),
  freed as (
    update lanes l set parked_on = null from first f where l.lane = f.lane returning l.head_kind)
  select coalesce(bit_or(woken_v1(head_kind)), 0), count(*) into woken_, freed_ from freed;
  if freed_ >= count_ or key_ not like 'task/%' then
    return woken_;
  end if;
  select array_agg(q.lane) into lanes_ from (
    select s.lane from side_queues s join lanes l on l.lane = s.lane where s.key = key_ and s.closed
    order by s.head_at, s.head_priority, s.lane limit count_ - freed_ for update of l skip locked) q;
  if lanes_ is not null then
    perform open_side_queues_v6(lanes_);
    woken_ := woken_ | show_heads_v6(lanes_);
  end if;
  return woken_;
end $$;

create or replace function enqueue_v2(
  ids_ uuid[], lanes_ uuid[], kinds_ text[], classes_ integer[], run_afters_ bigint[], run_befores_ bigint[],
  priorities_ integer[], budgets_ jsonb[], origins_ text[]
) returns void language plpgsql as $$
declare
  aside_ uuid[];
  now_ bigint := micros_v1();
  old_ uuid;
begin
  insert into work (id, lane, kind, class, run_after, due_at, run_before, priority, state, budgets, created, changed,
                    origin)
  select n.id, n.lane, n.kind, n.class, coalesce(n.run_after, now_), coalesce(n.run_after, now_), n.run_before,
         n.priority, 'Pending', (select array_agg(b) from jsonb_array_elements_text(n.budgets) as b), now_, now_,
         n.origin
  from unnest(ids_, lanes_, kinds_, classes_, run_afters_, run_befores_, priorities_, budgets_, origins_)
    as n (id, lane, kind, class, run_after, run_before, priority, budgets, origin);
  select h.id into old_ from unnest(ids_) as n (id) join history h on h.id = n.id limit 1;
  if found then
    raise exception 'work exists' using errcode = 'SH002', detail = old_;
  end if;

  -- A lane's head becomes the better of the old one and the best of the new.
  insert into lanes as l (lane, head_kind, head_class, head_at, head_priority)
  select distinct on (n.lane) n.lane, n.kind, n.class, coalesce(n.run_after, now_), n.priority
  from unnest(lanes_, kinds_, classes_, run_afters_, priorities_) as n (lane, kind, class, run_after, priority)
  order by n.lane, n.class, coalesce(n.run_after, now_), n.priority
  on conflict (lane) do update
  set (head_kind, head_class, head_at, head_priority) = (
        select case when better then excluded.head_kind else l.head_kind end,
               case when better then excluded.head_class else l.head_class end,
               case when better then excluded.head_at else l.head_at end,
               case when better then excluded.head_priority else l.head_priority end
        from (select l.head_kind is null or (excluded.head_class, excluded.head_at, excluded.head_priority)
                                              < (l.head_class, l.head_at, l.head_priority) as better) is_),
      parked_on = null,
      preempt = l.preempt or (l.running_kind is not distinct from 'manifest' and excluded.head_class = 0)
  where l.head_kind is null or l.parked_on is not null
     or (excluded.head_class, excluded.head_at, excluded.head_priority) < (l.head_class, l.head_at, l.head_priority)
     or (excluded.head_class = 0 and l.running_kind is not distinct from 'manifest' and not l.preempt);
  -- Whoever holds a lane's lock may have been passed over by somebody who opens its side queues.
  select array_agg(distinct s.lane) into aside_ from side_queues s where s.lane = any (lanes_) and s.closed;
  if aside_ is not null then
    perform settle_v1(aside_, now_, false);
  end if;
end $$;

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
  aside_  text[];
  asked_  text[];
  full_   text;
  place_  integer;
  free_   boolean;                             -- no budget holds it up
  class_  integer;
  moved_  integer;
  fit_lanes_   uuid[] := '{}';
  fit_works_   uuid[] := '{}';
  parked_      uuid[] := '{}';
  parked_on_   text[] := '{}';
  left_        uuid[] := '{}';                 -- lanes whose heads are to be shown anew
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
  aside_ := open_side_queues_v6(all_);

  -- The first row of each lane: to be run, or too late to be begun, or not what the head had promised.
  for round_ in 1..2 loop
    select array_agg(x.lane order by x.place) filter (where f.ready),
           array_agg(f.id order by x.place) filter (where f.ready),
           array_agg(x.lane) filter (where f.ready is not true),
           array_agg(x.lane) filter (where f.stale)
    into lanes_, works_, idle_, stale_
    from unnest(all_) with ordinality as x (lane, place)
    left join lateral (
      select w.id, (w.class >= 2 and w.started is null and w.run_before <= now_) is true as stale,
             w.kind = kind_ and w.due_at <= now_
               and (w.class >= 2 and w.started is null and w.run_before <= now_) is not true as ready
      from first_v6(x.lane) w) f on true;
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
      where key = any (aside_ || array(select distinct unnest(w.budgets) from work w where w.id = any (works_)))
      order by key for update) b;
    if keys_ is not null then
      before_ := room_;
      for i in 1 .. cardinality(works_) loop
        one_ := works_[i];
        moved_ := 0;
        loop
          select w.budgets, w.to_end is true, w.class into asked_, free_, class_ from work w where w.id = one_;
          -- What holds up the whole lane goes before what holds up this work only.
          select k into full_ from unnest(asked_) with ordinality as a (k, n)
          where room_[array_position(keys_, k)] <= 0 order by k like 'task/%', n limit 1;
          exit when full_ is null or free_;
          if full_ not like 'task/%' or class_ < 2 then
            parked_ := parked_ || lanes_[i];
            parked_on_ := parked_on_ || full_;
            left_ := left_ || lanes_[i];
            one_ := null;
            exit;
          end if;
          moved_ := moved_ + set_aside_v6(lanes_[i], one_, full_, now_);
          -- What comes next in the lane, if it can begin too. What is moved at one touch is bounded: the next claim goes on.
          select w.id, w.budgets into one_, asked_ from first_v6(lanes_[i]) w
          where w.kind = kind_ and w.due_at <= now_ and moved_ < 100
            and (w.class >= 2 and w.started is null and w.run_before <= now_) is not true;
          if one_ is not null then
            -- Behind those that are locked already, so nobody is waited for; what is not to be had is left for the next claim.
            for full_, place_ in
              select b.key, b.cap - b.used from budgets b where b.key = any (asked_) and b.key <> all (keys_)
              order by b.key for update skip locked
            loop
              keys_ := keys_ || full_;
              room_ := room_ || place_;
              before_ := before_ || place_;
            end loop;
            if exists (select from budgets b where b.key = any (asked_) and b.key <> all (keys_)) then
              one_ := null;
            end if;
          end if;
          if one_ is null then
            left_ := left_ || lanes_[i];
            exit;
          end if;
        end loop;
        continue when one_ is null;
        foreach full_ in array coalesce(asked_, '{}') loop
          place_ := array_position(keys_, full_);
          if place_ is not null then
            room_[place_] := room_[place_] - 1;
          end if;
        end loop;
        fit_lanes_ := fit_lanes_ || lanes_[i];
        fit_works_ := fit_works_ || one_;
      end loop;
      lanes_ := fit_lanes_;
      works_ := fit_works_;
      update budgets b set used = b.used + t.before - t.room
      from unnest(keys_, before_, room_) as t (key, before, room)
      where b.key = t.key and t.before <> t.room;
      if left_ <> '{}' then
        wake_ := wake_ | show_heads_v6(left_);
      end if;
      update lanes l set parked_on = p.key from unnest(parked_, parked_on_) as p (lane, key) where l.lane = p.lane;
      -- A lane that was un-parked for room which it did not take (another of its budgets is full) passes it on.
      for i in 1 .. cardinality(keys_) loop
        if room_[i] > 0 then
          wake_ := wake_ | unpark_v1(keys_[i], room_[i]);
        end if;
      end loop;
    end if;
  end if;
  if aside_ is not null or left_ <> '{}' then
    perform open_side_queues_v6(lanes_);
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
        started = coalesce(w.started, now_), changed = now_, class = least(w.class, 2), side_queue = null,
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

create or replace function claim_v1(kind_ text, max_ integer, owner_ uuid, lease_us_ bigint)
returns table (work_ uuid, lane_ uuid, fence_ bigint, attempt_ integer, step_ text, checkpoint_ jsonb,
               run_after_ bigint, woken_ integer)
language plpgsql as $$
#variable_conflict use_column
begin
  return query select c.work_, c.lane_, c.fence_, c.attempt_, c.step_, c.checkpoint_, c.run_after_, c.woken_
               from claim_v2(kind_, max_, owner_, lease_us_) c;
end $$;

create or replace function expire_v1(
  after_ uuid, max_ integer, out seen_ integer, out last_ uuid, out changed_ integer, out woken_ integer
) language plpgsql as $$
declare
  now_   bigint := micros_v1();
  lanes_ uuid[];
  works_ uuid[];
  done_  uuid[];
  keys_  text[];
begin
  woken_ := 0;
  changed_ := 0;
  select count(*), (array_agg(q.id order by q.id desc))[1],
         array_agg(q.id) filter (where q.stale), array_agg(distinct q.lane) filter (where q.stale)
  into seen_, last_, works_, lanes_ from (
    select w.id, w.lane,
           (w.state = 'Pending' and w.class >= 2 and w.started is null and w.run_before <= now_) is true as stale
    from work w where w.id > coalesce(after_, '00000000-0000-0000-0000-000000000000') order by w.id limit max_) q;
  if works_ is null then
    return;
  end if;
  perform from lanes l where l.lane = any (lanes_) order by l.lane for update;
  -- What was begun while we waited for its lane is not fresh any more.
  select array_agg(w.id) into works_ from work w
  where w.id = any (works_) and w.state = 'Pending' and w.class >= 2 and w.started is null and w.run_before <= now_;
  if works_ is null then
    return;
  end if;
  select array_agg(distinct k) into keys_ from work w cross join unnest(w.budgets) as k where w.id = any (works_);
  done_ := close_v1(works_, 'TimedOut', array_fill(timed_out_v2(now_), array[cardinality(works_)]), now_);
  perform tell_ends_v2(done_, now_);
  -- What is late behind them is closed when their lanes are settled; it is closed here, to be counted.
  changed_ := coalesce(cardinality(done_), 0) + (select sum(close_expired_v1(x, now_)) from unnest(lanes_) as x);
  woken_ := 1 | settle_v1(lanes_, now_, false);
  if keys_ is not null then
    woken_ := woken_ | nudge_v1(keys_);
  end if;
end $$;

create or replace function expedite_v1(works_ uuid[]) returns integer language plpgsql as $$
declare
  lanes_ uuid[] := lock_of_v1(works_);
  now_   bigint := micros_v1();
  one_   uuid;
  kind_  text;
begin
  foreach one_ in array works_ loop
    perform from work w
    where w.id = one_ and w.state = 'Pending' and w.class >= 2 and w.started is null and w.run_before <= now_;
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

create or replace function is_wrong_v1(lane_ uuid) returns boolean language sql volatile as $$
  select case
    when l.lane is null then f.kind is not null
    when l.owner is not null then false
    else (l.head_kind, l.head_class, l.head_at, l.head_priority)
           is distinct from (f.kind, least(f.class, 2), f.due_at, f.priority)
  end
  from (select lane_ as lane) x
  left join lanes l on l.lane = x.lane
  left join lateral first_v6(x.lane) f on true
$$;

-- Sets a limit, or removes it (null).
create or replace function set_budget_v1(key_ text, cap_ integer) returns integer language plpgsql as $$
declare
  room_  integer;
  woken_ integer;
  lanes_ uuid[];
begin
  perform close_gate_v1();
  perform from lanes where owner is not null or parked_on = key_
    or lane in (select s.lane from side_queues s where s.key = key_) order by lane for update;
  if cap_ is null then
    delete from budgets where key = key_;
    update work w set held = nullif(array_remove(w.held, key_), '{}')
    from lanes l where l.owner is not null and w.id = l.running and key_ = any (w.held);
    with freed as (update lanes set parked_on = null where parked_on = key_ returning head_kind)
    select coalesce(bit_or(woken_v1(head_kind)), 0) into woken_ from freed;
    select array_agg(s.lane) into lanes_ from side_queues s where s.key = key_;
    if lanes_ is not null then
      woken_ := woken_ | settle_v1(lanes_, micros_v1(), false);
    end if;
    return woken_;
  end if;
  update budgets set cap = cap_ where key = key_ returning cap - used into room_;
  if not found then
    -- What runs already counts from now on.
    with counted as (
      update work w set held = array_append(w.held, key_)
      from lanes l where l.owner is not null and w.id = l.running and key_ = any (w.budgets)
      returning w.id)
    insert into budgets (key, cap, used) select key_, cap_, count(*) from counted;
    return 0;
  end if;
  return unpark_v1(key_, room_);
end $$;

-- The next claim sets aside what these wait for.
update lanes set parked_on = null where parked_on like 'task/%';

-- concurrently
create index concurrently if not exists work_set_aside on work (lane, side_queue, due_at, priority, id) where side_queue is not null;
