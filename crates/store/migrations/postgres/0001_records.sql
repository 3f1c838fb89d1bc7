-- The verbs of documents, secrets, the audit log and retention. The order of locks goes on behind that of the queue:
-- documents (by uuid), new paths (by path), unique keys (by key), secrets, the rest.
--
-- Refusals: SH004 changed meanwhile (detail: uuid etag), SH005 gone (detail: uuid), SH006 exists (detail: uuid),
-- SH007 key taken (detail: key), SH008 stale key (detail: key id), SH009 named lease lost.

-- All changes of documents of one transaction. Deletions come first, so that a path and its keys can change hands.
-- `key_owners_` are those whose unique keys are set: to what `keyed_` and `keys_` list.
create function documents_v1(
  deleted_ uuid[], deleted_etags_ bigint[],
  updated_ uuid[], updated_etags_ bigint[], updated_bodies_ jsonb[], desired_ boolean[],
  created_ uuid[], ids_ text[], kinds_ text[], parents_ text[], created_bodies_ jsonb[],
  key_owners_ uuid[], keyed_ uuid[], keys_ text[]
) returns void language plpgsql as $$
declare
  now_  bigint;
  kind_ text;
  key_  text;
begin
  if cardinality(deleted_) + cardinality(updated_) > 1 then
    perform from documents where uuid = any (deleted_ || updated_) order by uuid for update;
  end if;
  now_ := micros_v1();
  for i in 1 .. cardinality(deleted_) loop
    update documents set etag = etag + 1, changed = now_, deleted_at = now_
    where uuid = deleted_[i] and etag = deleted_etags_[i] and deleted_at is null returning kind into kind_;
    if not found then
      perform refuse_document_v1(deleted_[i]);
    end if;
    insert into feed (kind, uuid, etag, deleted, at) values (kind_, deleted_[i], deleted_etags_[i] + 1, true, now_);
  end loop;
  if deleted_ <> '{}' then
    delete from secrets where owner = any (deleted_);
    delete from unique_keys where uuid = any (deleted_);
  end if;
  for i in 1 .. cardinality(updated_) loop
    update documents
    set etag = etag + 1, changed = now_, body = updated_bodies_[i],
        generation = generation + case when desired_[i] then 1 else 0 end
    where uuid = updated_[i] and etag = updated_etags_[i] and deleted_at is null returning kind into kind_;
    if not found then
      perform refuse_document_v1(updated_[i]);
    end if;
    insert into feed (kind, uuid, etag, deleted, at) values (kind_, updated_[i], updated_etags_[i] + 1, false, now_);
  end loop;
  for i in 1 .. cardinality(created_) loop
    insert into documents (uuid, id, kind, parent, etag, generation, body, created, changed)
    values (created_[i], ids_[i], kinds_[i], parents_[i], 1, 1, created_bodies_[i], now_, now_)
    on conflict do nothing;
    if not found then
      raise exception 'exists' using errcode = 'SH006', detail = created_[i];
    end if;
    insert into feed (kind, uuid, etag, deleted, at) values (kinds_[i], created_[i], 1, false, now_);
  end loop;
  if key_owners_ <> '{}' then
    delete from unique_keys u where u.uuid = any (key_owners_)
      and not exists (select from unnest(keyed_, keys_) as k (uuid, key) where k.uuid = u.uuid and k.key = u.key);
    insert into unique_keys (key, uuid) select k.key, k.uuid from unnest(keys_, keyed_) as k (key, uuid) order by k.key
    on conflict (key) do nothing;
    select k.key into key_ from unnest(keys_, keyed_) as k (key, uuid)
    join unique_keys u on u.key = k.key where u.uuid <> k.uuid limit 1;
    if found then
      raise exception 'key taken' using errcode = 'SH007', detail = key_;
    end if;
  end if;
end $$;

-- Says why a document is not at the version that a caller had read.
create function refuse_document_v1(uuid_ uuid) returns void language plpgsql as $$
declare
  etag_ bigint;
begin
  select etag into etag_ from documents where uuid = uuid_ and deleted_at is null;
  if found then
    raise exception 'changed meanwhile' using errcode = 'SH004', detail = uuid_ || ' ' || etag_;
  end if;
  raise exception 'gone' using errcode = 'SH005', detail = uuid_;
end $$;

-- A secret must be sealed with the store's current key; the lock on its row holds off a change of it until then.
create function put_secrets_v1(owners_ uuid[], names_ text[], sealed_ bytea[], key_ids_ text[]) returns void
language plpgsql as $$
declare
  current_ text;
begin
  select value into current_ from meta where key = 'key_id' for share;
  if current_ is null or current_ <> any (key_ids_) then
    raise exception 'stale key' using errcode = 'SH008', detail = coalesce(current_, '');
  end if;
  insert into secrets (owner, name, sealed, key_id, changed)
  select s.owner, s.name, s.sealed, s.key_id, micros_v1()
  from unnest(owners_, names_, sealed_, key_ids_) as s (owner, name, sealed, key_id) order by s.owner, s.name
  on conflict (owner, name) do update
  set sealed = excluded.sealed, key_id = excluded.key_id, changed = excluded.changed;
end $$;

create function set_meta_v1(keys_ text[], values_ text[]) returns void language sql volatile as $$
  insert into meta (key, value) select m.key, m.value from unnest(keys_, values_) as m (key, value) order by m.key
  on conflict (key) do update set value = excluded.value
$$;

-- The sealer's numbers and seals, if the sealer still is the sealer.
create function seal_audit_v1(
  name_ text, fence_ bigint, txs_ bigint[], seqs_ bigint[], numbers_ bigint[], seals_ text[],
  meta_keys_ text[], meta_values_ text[]
) returns void language plpgsql as $$
declare
  count_ integer;
begin
  perform from leases where name = name_ and fence = fence_ and owner is not null for share;
  if not found then
    raise exception 'lease lost' using errcode = 'SH009', detail = name_;
  end if;
  update audit a set number = s.number, seal = s.seal
  from unnest(txs_, seqs_, numbers_, seals_) as s (tx, seq, number, seal)
  where a.tx = s.tx and a.seq = s.seq and a.number is null;
  get diagnostics count_ = row_count;
  if count_ <> cardinality(txs_) then
    raise exception '% of % audit records could be sealed', count_, cardinality(txs_);
  end if;
  perform set_meta_v1(meta_keys_, meta_values_);
end $$;

-- Whether this is the instance that the feed's positions are of, and further on than when it was last seen; otherwise
-- they mean nothing any more, and all readers must list everything: the generation is raised.
create function recognise_v1(system_ text) returns boolean language plpgsql as $$
declare
  now_tx_  bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  before_  text;
  high_    bigint;
  raised_  boolean;
begin
  perform from meta where key = 'generation' for update;
  select value into before_ from meta where key = 'system_identifier';
  select value::bigint into high_ from meta where key = 'high_water_tx';
  raised_ := (before_ is distinct from system_ and before_ is not null) or now_tx_ < high_;
  if raised_ then
    update meta set value = (value::bigint + 1)::text where key = 'generation';
  end if;
  perform set_meta_v1(array['system_identifier', 'high_water_tx'], array[system_, now_tx_::text]);
  return coalesce(raised_, false);
end $$;

-- Retention. Each removes at most `max_` rows older than `age_us_`, oldest first, and sets meta values if it did.

create function trim_feed_v1(age_us_ bigint, max_ integer, meta_keys_ text[], meta_values_ text[]) returns integer
language plpgsql as $$
declare
  cutoff_ bigint := micros_v1() - age_us_;
  tx_     bigint;
  seq_    bigint;
  count_  integer;
begin
  -- One trimmer at a time, so that the floor only rises.
  perform from meta where key = 'feed_floor' for update;
  -- The rows before the first one that stays: too young, the newest of all, or of a transaction that others which
  -- still run could come before.
  select q.tx, q.seq into tx_, seq_ from (
    select f.tx, f.seq, bool_and(f.at < cutoff_) over (order by f.tx, f.seq) as old
    from (select * from feed where tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
          order by tx, seq limit max_) f) q
  where q.old and exists (select from feed n where (n.tx, n.seq) > (q.tx, q.seq))
  order by q.tx desc, q.seq desc limit 1;
  if not found then
    return 0;
  end if;
  delete from feed where (tx, seq) <= (tx_, seq_);
  get diagnostics count_ = row_count;
  perform set_meta_v1(array['feed_floor'] || meta_keys_, array[tx_ || '-' || seq_] || meta_values_);
  perform set_meta_v1(array['high_water_tx'], array[pg_snapshot_xmax(pg_current_snapshot())::text]);
  return count_;
end $$;

create function trim_tombstones_v1(age_us_ bigint, max_ integer, meta_keys_ text[], meta_values_ text[]) returns integer
language plpgsql as $$
declare
  cutoff_ bigint := micros_v1() - age_us_;
  count_  integer;
begin
  -- While a tombstone's feed row is there, a reader may still ask for it.
  cutoff_ := least(cutoff_, (select f.at from feed f order by f.tx, f.seq limit 1));
  delete from documents where uuid in (
    select d.uuid from documents d where d.deleted_at < cutoff_ order by d.deleted_at limit max_ for update skip locked);
  get diagnostics count_ = row_count;
  if count_ > 0 then
    perform set_meta_v1(meta_keys_, meta_values_);
  end if;
  return count_;
end $$;

create function trim_history_v1(kind_ text, age_us_ bigint, max_ integer, meta_keys_ text[], meta_values_ text[])
returns integer language plpgsql as $$
declare
  now_   bigint := micros_v1();
  old_   uuid[];
  etags_ bigint[];
  still_ uuid[];
  dead_  uuid[];
begin
  -- The versions are read before this transaction writes, and so before it has a number: a document that another
  -- transaction changes from here on is left for the next round. Else its end, told under our older number, would
  -- stand in the feed before that change.
  select array_agg(h.id), array_agg(d.etag) into old_, etags_ from (
    select id from history where kind = kind_ and finished < now_ - age_us_ order by finished, id limit max_) h
  left join documents d on d.uuid = h.id and d.deleted_at is null;
  if old_ is null then
    return 0;
  end if;
  select array_agg(l.uuid) into still_ from (
    select d.uuid from documents d join unnest(old_, etags_) as x (uuid, etag) on x.uuid = d.uuid and x.etag = d.etag
    where d.deleted_at is null order by d.uuid for update of d skip locked) l;
  select array_agg(x.uuid) into old_ from unnest(old_, etags_) as x (uuid, etag)
  where x.etag is null or x.uuid = any (still_);
  if old_ is null then
    return 0;
  end if;
  delete from history where id = any (old_);
  with gone as (
    update documents set etag = etag + 1, changed = now_, deleted_at = now_
    where uuid = any (still_) and deleted_at is null returning uuid, kind, etag),
  told as (
    insert into feed (kind, uuid, etag, deleted, at) select kind, uuid, etag, true, now_ from gone)
  select array_agg(uuid) into dead_ from gone;
  delete from secrets where owner = any (dead_);
  delete from unique_keys where uuid = any (dead_);
  perform set_meta_v1(meta_keys_, meta_values_);
  return cardinality(old_);
end $$;

create function trim_audit_v1(up_to_ bigint, meta_keys_ text[], meta_values_ text[]) returns integer
language plpgsql as $$
declare
  count_ integer;
begin
  delete from audit where number <= up_to_ and number < (select max(number) from audit where number is not null);
  get diagnostics count_ = row_count;
  if count_ > 0 then
    perform set_meta_v1(meta_keys_, meta_values_);
  end if;
  return count_;
end $$;
