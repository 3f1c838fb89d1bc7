-- Work that has begun and is on its way to its end: somebody asked for that while it rested, or what it did is being taken
-- back. No budget holds it up.
alter table work add column to_end integer;
