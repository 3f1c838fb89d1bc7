-- What was told of each piece of work, and what asked for it.

alter table work add column origin text;       -- the schedule that asked for it
alter table history add column origin text;
alter table history add column budgets text;

create table entries (
  work   blob    not null,
  number integer not null,                     -- from 1 on; at 0 stands how many were left out
  at     integer not null,
  body   text    not null,
  primary key (work, number)
) without rowid;

-- Of the running rows too: a claim then leaves the index as it is.
create index work_by_origin on work (origin, id) where origin is not null;

-- To the one writer a changed page costs more than rows that are read in vain, by another thread and seldom: old history
-- is looked for by a walk.
-- contract: no statement of the release before names it
drop index history_finished;

-- Entries leave with the work's history, whichever release removes it; work that is wanted again keeps them.
create trigger entries_leave after delete on history when not exists (select 1 from work where id = old.id)
begin
  delete from entries where work = old.id;
end;
