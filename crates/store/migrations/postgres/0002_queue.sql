-- The verbs of the queue, with entries, origins and checkpoints at a hand-back. Locks, answers and refusals as in
-- 0001_queue.sql; entries come behind all locks. A refusal's hint may also be: ended, Superseded, fresh.

create or replace function close_v1(works_ uuid[], state_ text, results_ jsonb[], now_ bigint) returns uuid[] language sql volatile as $$
  with ended as (
    delete from work w using unnest(works_, results_) as c (work, result)
    where w.id = c.work and w.state = 'Pending'
    returning w.*, c.result as result),
  kept as (
    insert into history (id, lane, kind, class, run_after, run_before, priority, state, attempt, step, checkpoint,
                         fence, owner, result, created, started, finished, origin, budgets)
    select id, lane, kind, class, run_after, run_before, priority, state_, attempt, step, checkpoint,
           fence, owner, result, created, started, now_, origin, budgets
    from ended),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind, id, 0, false, now_ from ended)
  select array_agg(id) from ended
$$;

create or replace function close_expired_v1(lane_ uuid, now_ bigint) returns integer language plpgsql as $$
declare
  works_ uuid[];
begin
  select array_agg(f.id) into works_ from (
    select q.id, bool_and((q.class = 2 and q.started is null and q.run_before <= now_) is true)
                   over (order by q.class, q.due_at, q.priority, q.id) as stale
    from (select * from work w where w.lane = lane_ and w.state = 'Pending'
          order by w.class, w.due_at, w.priority, w.id limit 100) q) f
  where f.stale;
  if works_ is null then
    return 0;
  end if;
  perform close_v1(works_, 'TimedOut', array_fill(timed_out_v2(now_), array[cardinality(works_)]), now_);
  perform tell_ends_v2(works_, now_);
  return cardinality(works_);
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
           (w.state = 'Pending' and w.class = 2 and w.started is null and w.run_before <= now_) is true as stale
    from work w where w.id > coalesce(after_, '00000000-0000-0000-0000-000000000000') order by w.id limit max_) q;
  if works_ is null then
    return;
  end if;
  perform from lanes l where l.lane = any (lanes_) order by l.lane for update;
  -- What was begun while we waited for its lane is not fresh any more.
  select array_agg(w.id) into works_ from work w
  where w.id = any (works_) and w.state = 'Pending' and w.class = 2 and w.started is null and w.run_before <= now_;
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

create or replace function withdraw_lanes_v1(lanes_ uuid[], results_ jsonb[]) returns integer language plpgsql as $$
declare
  now_     bigint;
  keys_    text[];
  works_   uuid[];
  reasons_ jsonb[];
  woken_   integer;
begin
  perform from lanes l where l.lane = any (lanes_) order by l.lane for update;
  now_ := micros_v1();
  select array_agg(w.id), array_agg(c.result) into works_, reasons_
  from unnest(lanes_, results_) as c (lane, result) join work w on w.lane = c.lane and w.state = 'Pending';
  select array_agg(distinct k) into keys_ from work w cross join unnest(w.budgets) as k where w.id = any (works_);
  if works_ is not null then
    perform close_v1(works_, 'Cancelled', reasons_, now_);
    perform tell_ends_v2(works_, now_);
  end if;
  with asked as (
    update lanes l set cancel = true where l.lane = any (lanes_) and l.owner is not null returning l.running_kind)
  select coalesce(bit_or(woken_v1(running_kind)), 0) | 1 into woken_ from asked;
  woken_ := woken_ | settle_v1(lanes_, now_, false);
  if keys_ is not null then
    woken_ := woken_ | nudge_v1(keys_);
  end if;
  return woken_;
end $$;

create or replace function complete_v1(
  works_ uuid[], lanes_ uuid[], owners_ uuid[], fences_ bigint[], states_ text[], results_ jsonb[], strict_ boolean,
  out done_ uuid[], out woken_ integer
) language plpgsql as $$
declare
  own_   bigint[] := own_v1(works_, lanes_, owners_, fences_);
  now_   bigint := micros_v1();
  freed_ uuid[];
  keys_  text[];
begin
  if own_ is null then
    own_ := '{}';
  end if;
  with ended as (
    delete from work w
    using unnest(works_, fences_, owners_, states_, results_) with ordinality as c (work, fence, owner, ending, result, place)
    where c.place = any (own_) and w.id = c.work and w.fence = c.fence and w.owner = c.owner and w.state = 'InProgress'
    returning w.*, c.ending, c.result),
  kept as (
    insert into history (id, lane, kind, class, run_after, run_before, priority, state, attempt, step, checkpoint,
                         fence, owner, result, created, started, finished, origin, budgets)
    select id, lane, kind, class, run_after, run_before, priority, ending, attempt, step, checkpoint,
           fence, owner, result, created, started, now_, origin, budgets
    from ended),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind, id, 0, false, now_ from ended)
  select array_agg(id), array_agg(lane),
         (select array_agg(k) from ended h cross join unnest(h.held) as k where h.held is not null)
  into done_, freed_, keys_ from ended;
  if strict_ and coalesce(cardinality(done_), 0) < cardinality(works_) then
    raise exception 'lease lost' using errcode = 'SH001',
      detail = coalesce((select c from unnest(works_) as c where c <> all (coalesce(done_, '{}')) limit 1), works_[1]);
  end if;
  woken_ := 0;
  if done_ is null then
    return;
  end if;
  if keys_ is not null then
    woken_ := lower_v1(keys_);
  end if;
  woken_ := woken_ | 1 | settle_v1(freed_, now_, true);
end $$;

-- The same for a batch, with what is told of each end: written for those that ended, in one statement for all.
create function complete_v2(
  works_ uuid[], lanes_ uuid[], owners_ uuid[], fences_ bigint[], states_ text[], results_ jsonb[],
  told_ uuid[], bodies_ jsonb[], of_steps_ boolean[], out done_ uuid[], out woken_ integer
) language plpgsql as $$
begin
  select c.done_, c.woken_ into done_, woken_
  from complete_v1(works_, lanes_, owners_, fences_, states_, results_, false) c;
  if done_ is not null then
    perform append_v2(array_agg(e.work order by e.place), array_agg(e.body order by e.place),
                      array_agg(e.of_step order by e.place), micros_v1())
    from unnest(told_, bodies_, of_steps_) with ordinality as e (work, body, of_step, place)
    where e.work = any (done_);
  end if;
end $$;

create function enqueue_v2(
  ids_ uuid[], lanes_ uuid[], kinds_ text[], classes_ integer[], run_afters_ bigint[], run_befores_ bigint[],
  priorities_ integer[], budgets_ jsonb[], origins_ text[]
) returns void language plpgsql as $$
declare
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
end $$;

-- Makes work pending again that its origin had withdrawn; what anybody else ended stays ended.
create function revive_v2(
  ids_ uuid[], lanes_ uuid[], kinds_ text[], classes_ integer[], run_afters_ bigint[], run_befores_ bigint[],
  priorities_ integer[], budgets_ jsonb[], origins_ text[]
) returns void language plpgsql as $$
declare
  gone_ uuid[];
  left_ uuid;
begin
  perform from history h where h.id = any (ids_) order by h.id for update;
  with gone as (
    delete from history h
    where h.id = any (ids_) and h.state = 'Cancelled' and h.result ->> 'code' = 'Superseded' returning h.id)
  select array_agg(id) into gone_ from gone;
  select x into left_ from unnest(ids_) as x where x <> all (coalesce(gone_, '{}')) limit 1;
  if found then
    perform refuse_v1(left_, 'Superseded');
  end if;
  perform enqueue_v2(ids_, lanes_, kinds_, classes_, run_afters_, run_befores_, priorities_, budgets_, origins_);
end $$;

-- As claim_v1, and when the work came into these hands, and whether it was never begun before.
create function claim_v2(kind_ text, max_ integer, owner_ uuid, lease_us_ bigint)
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
        select w.budgets into asked_ from work w where w.id = works_[i];
        select k into full_ from unnest(asked_) with ordinality as a (k, n)
        where room_[array_position(keys_, k)] <= 0 order by n limit 1;
        if full_ is not null then
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

-- As take_over_v1, and what the lost holder was asked to do.
create function take_over_v2(kind_ text, max_ integer, owner_ uuid, lease_us_ bigint)
returns table (work_ uuid, lane_ uuid, fence_ bigint, attempt_ integer, step_ text, checkpoint_ jsonb,
               run_after_ bigint, woken_ integer, at_ bigint, preempt_ boolean, cancel_ boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  now_   bigint := micros_v1();
  lanes_ uuid[];
begin
  select array_agg(l.lane) into lanes_ from (
    select lane from lanes where owner is not null and lease_until < now_ and running_kind = kind_
    order by lane limit max_ for update skip locked) l;
  if lanes_ is null then
    return;
  end if;
  return query
  with taken as (
    update lanes l set owner = owner_, lease_until = now_ + lease_us_, fence = l.fence + 1
    from unnest(lanes_) as c (lane) where l.lane = c.lane
    returning l.running, l.fence, l.preempt, l.cancel),
  moved as (
    update work w set fence = t.fence, owner = owner_, attempt = w.attempt + 1, changed = now_
    from taken t where w.id = t.running
    returning w.id, w.lane, w.fence, w.attempt, w.step, w.checkpoint, w.run_after, t.preempt, t.cancel),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind_, m.id, 0, false, now_ from moved m)
  select m.id, m.lane, m.fence, m.attempt, m.step, m.checkpoint, m.run_after, 1, now_, m.preempt, m.cancel
  from moved m order by m.lane;
end $$;

-- As yield_v1, with what is left for the next holder; null leaves what was checkpointed. What took no effect may still be
-- too late to begin. Where a wish for the work's end must not be lost it is refused.
create function yield_v2(
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
        class = case when c.begun then least(w.class, 1) else w.class end
    from unnest(works_, rests_us_, spent_, steps_, datas_, begun_) as c (work, rest, spent, step, data, begun)
    where w.id = c.work
    returning w.id, w.kind)
  insert into feed (kind, uuid, etag, deleted, at) select kind, id, 0, false, now_ from rested;
  if keys_ is not null then
    woken_ := woken_ | lower_v1(keys_);
  end if;
  return woken_ | settle_v1(lanes_, now_, true);
end $$;

-- Work that has taken some effect is not withdrawn: it is asked to end, and undoes what it did.
create or replace function withdraw_v1(works_ uuid[], results_ jsonb[]) returns integer language plpgsql as $$
declare
  lanes_ uuid[] := lock_of_v1(works_);
  now_   bigint := micros_v1();
  keys_  text[];
  done_  uuid[];
  one_   uuid;
  woken_ integer := 1;
begin
  select w.id into one_ from work w where w.id = any (works_) and w.state = 'Pending' and w.class = 1 limit 1;
  if found then
    perform refuse_v1(one_, 'fresh');
  end if;
  select array_agg(distinct k) into keys_ from work w cross join unnest(w.budgets) as k where w.id = any (works_);
  done_ := close_v1(works_, 'Cancelled', results_, now_);
  foreach one_ in array works_ loop
    if done_ is null or one_ <> all (done_) then
      perform refuse_v1(one_, 'Pending');
    end if;
  end loop;
  woken_ := woken_ | settle_v1(lanes_, now_, false);
  if keys_ is not null then
    woken_ := woken_ | nudge_v1(keys_);
  end if;
  return woken_;
end $$;

-- As request_cancel_v1, also of begun work that rests: it is due at once, and whoever takes it up next finds that it was
-- asked to end in what is told of it.
create function request_cancel_v2(works_ uuid[]) returns integer language plpgsql as $$
declare
  lanes_ uuid[] := lock_of_v1(works_);
  now_   bigint := micros_v1();
  one_   uuid;
  kind_  text;
  woken_ integer := 0;
begin
  foreach one_ in array works_ loop
    update work set due_at = 0, changed = now_ where id = one_ and state = 'Pending' and class = 1 returning kind into kind_;
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

-- Forgets work that does not run, with all that was told of it.
create function discard_v2(works_ uuid[]) returns integer language plpgsql as $$
declare
  lanes_   uuid[] := lock_of_v1(works_);
  running_ uuid;
  keys_    text[];
  woken_   integer := 0;
begin
  select w.id into running_ from work w where w.id = any (works_) and w.state = 'InProgress' limit 1;
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

-- Makes sure that nothing runs in these lanes, until the transaction ends.
create function expect_idle_v2(lanes_ uuid[]) returns void language plpgsql as $$
declare
  running_ uuid;
begin
  perform from lanes l where l.lane = any (lanes_) order by l.lane for update;
  select l.running into running_ from lanes l where l.lane = any (lanes_) and l.running is not null limit 1;
  if found then
    perform refuse_v1(running_, 'ended');
  end if;
end $$;

-- Not of the running rows: here a claim writes the row anew, and would have to write the index too.
-- concurrently
create index concurrently if not exists work_by_origin on work (origin, id) where origin is not null and state = 'Pending';
