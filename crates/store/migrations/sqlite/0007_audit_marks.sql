-- Whoever writes an audit entry marks it with a keyed digest, and the sealer seals no other. It says when it sealed, which
-- the seal covers: by that, records are old.
alter table audit add column mac text;          -- of entries that were written before there were marks: none
alter table audit add column sealed_at integer; -- of records that were sealed before: none
alter table audit add column refused integer;   -- the sealer found no valid mark
create index audit_by_id on audit (id);
