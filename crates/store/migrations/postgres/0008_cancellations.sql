-- The last request to cancel a piece of work, so that a claim delivers it with the work. Requests of the release before are in
-- the history only and are copied here; `record_v2` copies those that it writes from now on.
alter table work add column cancel_by text;
alter table work add column cancel_reason text;
alter table work add column cancel_at bigint;

update work w set cancel_by = e.body ->> 'actor', cancel_reason = nullif(e.body ->> 'message', ''), cancel_at = e.at
from (
  select distinct on (n.work) n.work, n.at, b.body
  from work x join entries n on n.work = x.id
  cross join lateral jsonb_array_elements(case jsonb_typeof(n.body) when 'array' then n.body else jsonb_build_array(n.body) end)
    with ordinality as b (body, place)
  where b.body ->> 'event' = 'cancelRequested'
  order by n.work, n.number desc, b.place desc) e
where w.id = e.work;

-- As before, and an entry of a request to cancel is copied to the work.
create or replace function record_v2(works_ uuid[], bodies_ jsonb[], of_steps_ boolean[]) returns void language plpgsql as $$
declare
  gone_ uuid;
  now_  bigint;
begin
  select x.id into gone_ from unnest(works_) as x (id)
  where not exists (select from work w where w.id = x.id) and not exists (select from history h where h.id = x.id) limit 1;
  if found then
    raise exception 'no such work' using errcode = 'SH003', detail = gone_;
  end if;
  now_ := micros_v1();
  perform append_v2(works_, bodies_, of_steps_, now_);
  update work w
  set cancel_by = c.body ->> 'actor', cancel_reason = nullif(c.body ->> 'message', ''), cancel_at = now_
  from (
    select distinct on (e.work) e.work, e.body from unnest(works_, bodies_) with ordinality as e (work, body, place)
    where e.body ->> 'event' = 'cancelRequested' order by e.work, e.place desc) c
  where w.id = c.work;
end $$;

-- claim_v2 with the request to cancel. The rows are read by statements after the claim: a request that was committed before the
-- claim locked the lane is seen, and none can be committed until the claim is.
create function claim_v8(kind_ text, max_ integer, owner_ uuid, lease_us_ bigint)
returns table (work_ uuid, lane_ uuid, fence_ bigint, attempt_ integer, step_ text, checkpoint_ jsonb,
               run_after_ bigint, woken_ integer, at_ bigint, first_ boolean,
               cancel_by_ text, cancel_reason_ text, cancel_at_ bigint)
language plpgsql as $$
#variable_conflict use_column
begin
  for work_, lane_, fence_, attempt_, step_, checkpoint_, run_after_, woken_, at_, first_ in
    select c.work_, c.lane_, c.fence_, c.attempt_, c.step_, c.checkpoint_, c.run_after_, c.woken_, c.at_, c.first_
    from claim_v2(kind_, max_, owner_, lease_us_) c
  loop
    select w.cancel_by, w.cancel_reason, w.cancel_at into cancel_by_, cancel_reason_, cancel_at_
    from work w where w.id = work_;
    return next;
  end loop;
end $$;

-- take_over_v2 in the same way.
create function take_over_v8(kind_ text, max_ integer, owner_ uuid, lease_us_ bigint)
returns table (work_ uuid, lane_ uuid, fence_ bigint, attempt_ integer, step_ text, checkpoint_ jsonb,
               run_after_ bigint, woken_ integer, at_ bigint, preempt_ boolean, cancel_ boolean,
               cancel_by_ text, cancel_reason_ text, cancel_at_ bigint)
language plpgsql as $$
#variable_conflict use_column
begin
  for work_, lane_, fence_, attempt_, step_, checkpoint_, run_after_, woken_, at_, preempt_, cancel_ in
    select c.work_, c.lane_, c.fence_, c.attempt_, c.step_, c.checkpoint_, c.run_after_, c.woken_, c.at_, c.preempt_, c.cancel_
    from take_over_v2(kind_, max_, owner_, lease_us_) c
  loop
    select w.cancel_by, w.cancel_reason, w.cancel_at into cancel_by_, cancel_reason_, cancel_at_
    from work w where w.id = work_;
    return next;
  end loop;
end $$;
