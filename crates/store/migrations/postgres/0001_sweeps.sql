-- What goes over the whole queue: late work, wrong heads, limits. Locks and answers as in 0001_queue.sql.

-- The slow sweep for work that nobody touches.
create function expire_v1(
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
  done_ := close_v1(works_, 'TimedOut',
    array_fill('{"message": "its time to begin passed before its turn came"}'::jsonb, array[cardinality(works_)]), now_);
  changed_ := coalesce(cardinality(done_), 0);
  woken_ := 1 | settle_v1(lanes_, now_, false);
  if keys_ is not null then
    woken_ := woken_ | nudge_v1(keys_);
  end if;
end $$;

-- Whether a lane that nobody holds shows another head than its work has.
create function is_wrong_v1(lane_ uuid) returns boolean language sql volatile as $$
  select case
    when l.lane is null then f.kind is not null
    when l.owner is not null then false
    else (l.head_kind, l.head_class, l.head_at, l.head_priority)
           is distinct from (f.kind, f.class, f.due_at, f.priority)
  end
  from (select lane_ as lane) x
  left join lanes l on l.lane = x.lane
  left join lateral (
    select w.kind, w.class, w.due_at, w.priority from work w where w.lane = x.lane and w.state = 'Pending'
    order by w.class, w.due_at, w.priority, w.id limit 1) f on true
$$;

-- An alarm, not a mechanism: what it changes should not have been wrong.
create function repair_v1(
  after_ uuid, max_ integer, out last_ uuid, out changed_ integer, out woken_ integer
) language plpgsql as $$
declare
  at_    uuid := coalesce(after_, '00000000-0000-0000-0000-000000000000');
  wrong_ uuid[] := '{}';
begin
  changed_ := 0;
  woken_ := 0;
  for i in 1 .. max_ loop
    select least((select l.lane from lanes l where l.lane > at_ order by l.lane limit 1),
                 (select w.lane from work w where w.lane > at_ and w.state = 'Pending' order by w.lane limit 1)) into at_;
    exit when at_ is null;
    if is_wrong_v1(at_) then
      wrong_ := wrong_ || at_;
    end if;
  end loop;
  last_ := at_;
  if wrong_ <> '{}' then
    perform lock_lanes_v1('{}', '{}', wrong_);
    select array_agg(x) into wrong_ from unnest(wrong_) as x where is_wrong_v1(x);
    if wrong_ is not null then
      changed_ := cardinality(wrong_);
      woken_ := settle_v1(wrong_, micros_v1(), false);
    end if;
  end if;
  -- Not an error: room that nobody took, because the work that it was freed for went another way.
  woken_ := woken_ | (select coalesce(bit_or(unpark_v1(b.key, b.cap - b.used)), 0) from budgets b where b.used < b.cap);
end $$;

-- Sets a limit, or removes it (null).
create function set_budget_v1(key_ text, cap_ integer) returns integer language plpgsql as $$
declare
  room_  integer;
  woken_ integer;
begin
  perform close_gate_v1();
  perform from lanes where owner is not null or parked_on = key_ order by lane for update;
  if cap_ is null then
    delete from budgets where key = key_;
    update work w set held = nullif(array_remove(w.held, key_), '{}')
    from lanes l where l.owner is not null and w.id = l.running and key_ = any (w.held);
    with freed as (update lanes set parked_on = null where parked_on = key_ returning head_kind)
    select coalesce(bit_or(woken_v1(head_kind)), 0) into woken_ from freed;
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
