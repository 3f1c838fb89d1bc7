-- Held lanes stand in one index with the free ones, in front of those whose turn comes next: a claim moves a lane within
-- one page, and an end takes it out of the same page. Two indexes cost four pages where this one costs two.

alter table lanes add column turn_kind text as (coalesce(running_kind, head_kind)) virtual;
alter table lanes add column turn_at integer as (case when owner is null then max(head_at, 0) else -1 end) virtual;  -- -1: it is held

create index lanes_turns on lanes (turn_kind, turn_at, head_priority, lane) where parked_on is null and turn_kind is not null;
