-- Whoever writes an audit entry marks it with a keyed digest, and the sealer seals no other. It says when it sealed, which
-- the seal covers: by that, records are old.
alter table audit add column mac text;          -- of entries that were written before there were marks: none
alter table audit add column sealed_at bigint;  -- of records that were sealed before: none
alter table audit add column refused boolean;   -- the sealer found no valid mark

-- As seal_audit_v1, and when that was.
create function seal_audit_v7(
  name_ text, fence_ bigint, txs_ bigint[], seqs_ bigint[], numbers_ bigint[], seals_ text[], sealed_at_ bigint,
  meta_keys_ text[], meta_values_ text[]
) returns void language plpgsql as $$
declare
  count_ integer;
begin
  perform from leases where name = name_ and fence = fence_ and owner is not null for share;
  if not found then
    raise exception 'lease lost' using errcode = 'SH009', detail = name_;
  end if;
  update audit a set number = s.number, seal = s.seal, sealed_at = sealed_at_
  from unnest(txs_, seqs_, numbers_, seals_) as s (tx, seq, number, seal)
  where a.tx = s.tx and a.seq = s.seq and a.number is null;
  get diagnostics count_ = row_count;
  if count_ <> cardinality(txs_) then
    raise exception '% of % audit records could be sealed', count_, cardinality(txs_);
  end if;
  perform set_meta_v1(meta_keys_, meta_values_);
end $$;

-- Removes the records behind one number up to another, and nothing else that stands there.
create function trim_audit_v7(from_ bigint, up_to_ bigint, meta_keys_ text[], meta_values_ text[]) returns integer
language plpgsql as $$
declare
  count_ integer;
begin
  delete from audit where number > from_ and number <= up_to_
    and number < (select max(number) from audit where number is not null);
  get diagnostics count_ = row_count;
  if count_ > 0 then
    perform set_meta_v1(meta_keys_, meta_values_);
  end if;
  return count_;
end $$;

-- concurrently
create index concurrently if not exists audit_by_id on audit (id);
