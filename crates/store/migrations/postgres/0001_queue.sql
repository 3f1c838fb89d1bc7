-- The verbs of the queue, one round trip each. They are volatile, so that under READ COMMITTED each of their
-- statements sees what was committed before it began: what is decided after a lock is decided on the truth.
--
-- Locks are taken in this order everywhere: the claims' gate, lanes (by lane), running work (by id), budgets (by
-- key), and behind these lanes again only with skip locked. Whoever writes a lane's head un-parks the lane: so an
-- un-parking that skips a locked lane misses nothing.
--
-- Answers called `woken` are sets of bits: 1 the feed, 2 operations, 4 manifests.
-- Refusals: SH001 lost lease (detail: work), SH002 exists (detail: work), SH003 wrong state (detail: work and state,
-- or the work alone when there is none; hint: the state it would have to be in).

-- Claims hold the gate shared, whoever sets a budget holds it alone: a budget is made when no claim is under way
-- that had looked before it was there.
create function enter_gate_v1() returns void language sql volatile as $$
  select pg_advisory_xact_lock_shared(5346213301)
$$;
create function close_gate_v1() returns void language sql volatile as $$
  select pg_advisory_xact_lock(5346213301)
$$;

create function woken_v1(kind_ text) returns integer language sql immutable as $$
  select case kind_ when 'operation' then 2 when 'manifest' then 4 else 0 end
$$;

-- Locks lanes in order, before a transaction of several verbs, and makes those of `fresh_` that are missing.
create function lock_lanes_v1(lanes_ uuid[], works_ uuid[], fresh_ uuid[]) returns void language plpgsql as $$
begin
  insert into lanes (lane)
  select x.lane from (
    select unnest(fresh_) as lane
    union select l.lane from lanes l where l.lane = any (lanes_)
    union select w.lane from work w where w.id = any (works_)) x
  order by x.lane
  on conflict (lane) do update set fence = 0 where false;  -- locks, changes nothing
end $$;

-- Moves work that never ran from the lanes' queues into history; the lanes are locked by the caller.
create function close_v1(works_ uuid[], state_ text, results_ jsonb[], now_ bigint) returns uuid[] language sql volatile as $$
  with ended as (
    delete from work w using unnest(works_, results_) as c (work, result)
    where w.id = c.work and w.state = 'Pending'
    returning w.*, c.result as result),
  kept as (
    insert into history (id, lane, kind, class, run_after, run_before, priority, state, attempt, step, checkpoint,
                         fence, owner, result, created, started, finished)
    select id, lane, kind, class, run_after, run_before, priority, state_, attempt, step, checkpoint,
           fence, owner, result, created, started, now_
    from ended),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind, id, 0, false, now_ from ended)
  select array_agg(id) from ended
$$;

-- Closes fresh work at the front of a locked lane whose time to begin has passed; the rest at the next touch.
create function close_expired_v1(lane_ uuid, now_ bigint) returns integer language plpgsql as $$
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
  perform close_v1(works_, 'TimedOut',
    array_fill('{"message": "its time to begin passed before its turn came"}'::jsonb, array[cardinality(works_)]), now_);
  return cardinality(works_);
end $$;

-- Gives locked lanes their true heads, un-parked: those that nobody holds; or, with `release_`, those that nobody
-- shall hold any more. An owned lane's head is written when it is released.
create function settle_v1(lanes_ uuid[], now_ bigint, release_ boolean) returns integer language plpgsql as $$
declare
  woken_ integer := 0;
  some_  integer;
  stale_ uuid[];
  one_   uuid;
begin
  for round_ in 1..2 loop
    with settled as (
      update lanes l
      set head_kind = h.kind, head_class = h.class, head_at = h.due_at, head_priority = h.priority, parked_on = null,
          owner = case when release_ then null else l.owner end,
          lease_until = case when release_ then null else l.lease_until end,
          running = case when release_ then null else l.running end,
          running_kind = case when release_ then null else l.running_kind end,
          preempt = l.preempt and not release_,
          cancel = l.cancel and not release_
      from (
        select x.lane, f.kind, f.class, f.due_at, f.priority,
               (f.class = 2 and f.started is null and f.run_before <= now_) is true as stale
        from unnest(lanes_) as x (lane)
        left join lateral (
          select w.kind, w.class, w.due_at, w.priority, w.started, w.run_before
          from work w where w.lane = x.lane and w.state = 'Pending'
          order by w.class, w.due_at, w.priority, w.id limit 1) f on true) h
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

-- Un-parks the first lanes that wait for a budget.
create function unpark_v1(key_ text, count_ integer) returns integer language sql volatile as $$
  with first as (
    select lane from lanes where parked_on = key_
    order by head_at, head_priority, lane limit greatest(count_, 0) for update skip locked),
  freed as (
    update lanes l set parked_on = null from first f where l.lane = f.lane returning l.head_kind)
  select coalesce(bit_or(woken_v1(head_kind)), 0) from freed
$$;

-- Un-parks what may fit, when work that a budget had been freed for went away without taking its place.
create function nudge_v1(keys_ text[]) returns integer language sql volatile as $$
  select coalesce(bit_or(unpark_v1(b.key, b.cap - b.used)), 0)
  from budgets b where b.key = any (keys_) and b.used < b.cap
$$;

-- Running work ended or rests: its budgets (a key for each piece of work) have room again.
create function lower_v1(keys_ text[]) returns integer language plpgsql as $$
declare
  woken_ integer;
begin
  perform from budgets where key = any (keys_) order by key for update;
  with freed as (
    update budgets b set used = greatest(b.used - n.count, 0)
    from (select k, count(*)::integer as count from unnest(keys_) as k group by k) n
    where b.key = n.k
    returning b.key, least(n.count, b.cap - b.used) as room)
  select coalesce(bit_or(unpark_v1(f.key, f.room)), 0) into woken_ from freed f;
  return woken_;
end $$;

create function enqueue_v1(
  ids_ uuid[], lanes_ uuid[], kinds_ text[], classes_ integer[], run_afters_ bigint[], run_befores_ bigint[],
  priorities_ integer[], budgets_ jsonb[]
) returns void language plpgsql as $$
declare
  now_ bigint := micros_v1();
  old_ uuid;
begin
  insert into work (id, lane, kind, class, run_after, due_at, run_before, priority, state, budgets, created, changed)
  select n.id, n.lane, n.kind, n.class, coalesce(n.run_after, now_), coalesce(n.run_after, now_), n.run_before,
         n.priority, 'Pending', (select array_agg(b) from jsonb_array_elements_text(n.budgets) as b), now_, now_
  from unnest(ids_, lanes_, kinds_, classes_, run_afters_, run_befores_, priorities_, budgets_)
    as n (id, lane, kind, class, run_after, run_before, priority, budgets);
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

create function claim_v1(kind_ text, max_ integer, owner_ uuid, lease_us_ bigint)
returns table (work_ uuid, lane_ uuid, fence_ bigint, attempt_ integer, step_ text, checkpoint_ jsonb,
               run_after_ bigint, woken_ integer)
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
    returning w.id, w.lane, w.fence, w.attempt, w.step, w.checkpoint, w.run_after, t.place),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind_, b.id, 0, false, now_ from begun b)
  select b.id, b.lane, b.fence, b.attempt, b.step, b.checkpoint, b.run_after, 1 from begun b order by b.place;
  if wake_ <> 0 then
    return query select null::uuid, null::uuid, null::bigint, null::integer, null::text, null::jsonb, null::bigint, wake_;
  end if;
end $$;

-- The places of those holds that are still good; their lanes are locked, in order.
create function own_v1(works_ uuid[], lanes_ uuid[], owners_ uuid[], fences_ bigint[]) returns bigint[]
language sql volatile as $$
  select array_agg(x.place) from (
    select c.place from unnest(works_, lanes_, owners_, fences_) with ordinality as c (work, lane, owner, fence, place)
    join lanes l on l.lane = c.lane
    where l.owner = c.owner and l.fence = c.fence and l.running = c.work
    order by l.lane for update of l) x
$$;

-- Ends running work; answers which pieces. With `strict_` all of them or none.
create function complete_v1(
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
                         fence, owner, result, created, started, finished)
    select id, lane, kind, class, run_after, run_before, priority, ending, attempt, step, checkpoint,
           fence, owner, result, created, started, now_
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

-- Gives running work back, all or none.
create function yield_v1(
  works_ uuid[], lanes_ uuid[], owners_ uuid[], fences_ bigint[], rests_us_ bigint[], spent_ boolean[]
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
  select array_agg(k) into keys_ from work w cross join unnest(w.held) as k where w.id = any (works_);
  with rested as (
    update work w
    set state = 'Pending', due_at = now_ + c.rest, attempt = w.attempt - case when c.spent then 0 else 1 end,
        owner = null, held = null, changed = now_
    from unnest(works_, rests_us_, spent_) as c (work, rest, spent)
    where w.id = c.work
    returning w.id, w.kind)
  insert into feed (kind, uuid, etag, deleted, at) select kind, id, 0, false, now_ from rested;
  if keys_ is not null then
    woken_ := woken_ | lower_v1(keys_);
  end if;
  return woken_ | settle_v1(lanes_, now_, true);
end $$;

-- Remembers a finished step; without a step it only makes sure that the hold is good, until the transaction ends.
create function checkpoint_v1(works_ uuid[], owners_ uuid[], fences_ bigint[], steps_ text[], datas_ jsonb[])
returns table (work_ uuid, preempt_ boolean, cancel_ boolean) language plpgsql as $$
declare
  now_  bigint := micros_v1();
  lane_ uuid;
  kind_ text;
begin
  for i in 1 .. cardinality(works_) loop
    if steps_[i] is null then
      select w.lane into lane_ from work w
      where w.id = works_[i] and w.fence = fences_[i] and w.owner = owners_[i] and w.state = 'InProgress' for update;
    else
      update work w
      set step = steps_[i], checkpoint = datas_[i], class = case w.class when 2 then 1 else w.class end, changed = now_
      where w.id = works_[i] and w.fence = fences_[i] and w.owner = owners_[i] and w.state = 'InProgress'
      returning w.lane, w.kind into lane_, kind_;
    end if;
    if not found then
      raise exception 'lease lost' using errcode = 'SH001', detail = works_[i];
    end if;
    if steps_[i] is not null then
      insert into feed (kind, uuid, etag, deleted, at) values (kind_, works_[i], 0, false, now_);
    end if;
    return query select works_[i], l.preempt, l.cancel from lanes l where l.lane = lane_;
  end loop;
end $$;

create function take_over_v1(kind_ text, max_ integer, owner_ uuid, lease_us_ bigint)
returns table (work_ uuid, lane_ uuid, fence_ bigint, attempt_ integer, step_ text, checkpoint_ jsonb,
               run_after_ bigint, woken_ integer)
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
    returning l.running, l.fence),
  moved as (
    update work w set fence = t.fence, owner = owner_, attempt = w.attempt + 1, changed = now_
    from taken t where w.id = t.running
    returning w.id, w.lane, w.fence, w.attempt, w.step, w.checkpoint, w.run_after),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind_, m.id, 0, false, now_ from moved m)
  select m.id, m.lane, m.fence, m.attempt, m.step, m.checkpoint, m.run_after, 1 from moved m order by m.lane;
end $$;

-- Says why work is not in the state that a verb needs.
create function refuse_v1(work_ uuid, wanted_ text) returns void language plpgsql as $$
declare
  state_ text;
begin
  select state into state_ from work where id = work_;
  if not found then
    select state into state_ from history where id = work_;
  end if;
  raise exception 'wrong state' using errcode = 'SH003', detail = concat_ws(' ', work_, state_),
    hint = wanted_;
end $$;

-- Locks the lanes of that work, in order.
create function lock_of_v1(works_ uuid[]) returns uuid[] language sql volatile as $$
  select array_agg(x.lane) from (
    select l.lane from lanes l where l.lane in (select w.lane from work w where w.id = any (works_))
    order by l.lane for update) x
$$;

create function withdraw_v1(works_ uuid[], results_ jsonb[]) returns integer language plpgsql as $$
declare
  lanes_ uuid[] := lock_of_v1(works_);
  now_   bigint := micros_v1();
  keys_  text[];
  done_  uuid[];
  one_   uuid;
  woken_ integer := 1;
begin
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

create function withdraw_lanes_v1(lanes_ uuid[], results_ jsonb[]) returns integer language plpgsql as $$
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

create function expedite_v1(works_ uuid[]) returns integer language plpgsql as $$
declare
  lanes_ uuid[] := lock_of_v1(works_);
  now_   bigint := micros_v1();
  one_   uuid;
  kind_  text;
begin
  foreach one_ in array works_ loop
    update work set run_after = 0, due_at = 0, changed = now_ where id = one_ and state = 'Pending'
    returning kind into kind_;
    if not found then
      perform refuse_v1(one_, 'Pending');
    end if;
    insert into feed (kind, uuid, etag, deleted, at) values (kind_, one_, 0, false, now_);
  end loop;
  return 1 | settle_v1(lanes_, now_, false);
end $$;

create function request_cancel_v1(works_ uuid[]) returns integer language plpgsql as $$
declare
  one_   uuid;
  kind_  text;
  woken_ integer := 0;
begin
  perform lock_of_v1(works_);
  foreach one_ in array works_ loop
    update lanes l set cancel = true from work w
    where w.id = one_ and w.state = 'InProgress' and l.lane = w.lane and l.running = w.id
    returning l.running_kind into kind_;
    if not found then
      perform refuse_v1(one_, 'InProgress');
    end if;
    insert into feed (kind, uuid, etag, deleted, at) values (kind_, one_, 0, false, micros_v1());
    woken_ := woken_ | 1 | woken_v1(kind_);
  end loop;
  return woken_;
end $$;
