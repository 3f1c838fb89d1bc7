-- The last request to cancel a piece of work, so that a claim delivers it with the work. Requests of the release before are in
-- the history only and are copied here.
alter table work add column cancel_by text;
alter table work add column cancel_reason text;
alter table work add column cancel_at integer;

update work set (cancel_by, cancel_reason, cancel_at) = (
  select e.value ->> 'actor', nullif(e.value ->> 'message', ''), n.at
  from entries n, json_each(case json_type(n.body) when 'array' then n.body else json_array(json(n.body)) end) e
  where n.work = work.id and n.number > 0 and e.value ->> 'event' = 'cancelRequested'
  order by n.number desc, e.key desc limit 1)
where id in (select work from entries where body like '%"cancelRequested"%');
