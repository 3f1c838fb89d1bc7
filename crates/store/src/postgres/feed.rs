//! Reading the change feed. A sequence alone would lose rows: numbers are drawn in another order than transactions
//! commit. Rows are ordered by their transaction first, and shown once every transaction up to theirs has ended.

use tokio_postgres::Row;

use super::{Postgres, count, get};
use crate::feed::{Change, FeedError, FeedPage, Position, Subject};
use crate::{Etag, StoreError};

/// A page, and in every row of it what the position must fit; one row without a change when the page is empty.
const PAGE: &str = "select (select value from meta where key = 'generation'),
    (select value from meta where key = 'feed_floor'),
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
    f.tx, f.seq, f.kind, f.uuid, f.etag, f.deleted
  from (select) as always left join lateral (
    select tx, seq, kind, uuid, etag, deleted from feed
    where (tx, seq) > ($1, $2) and tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    order by tx, seq limit $3) f on true";

impl Postgres {
    /// Every transaction below the oldest that still runs has ended: what is visible now is before this place, and
    /// what is not yet comes behind it.
    pub(crate) async fn feed_now(&self) -> Result<Position, StoreError> {
        let sql = "select (select value from meta where key = 'generation'), pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1";
        let row = self.row("read the feed's end", sql, &[]).await?;
        Ok(Position { generation: number(get(&row, 0)?)?, tx: get(&row, 1)?, seq: i64::MAX })
    }

    pub(crate) async fn feed_after(&self, position: Position, limit: usize) -> Result<FeedPage, FeedError> {
        let rows = self.rows("read the feed", PAGE, &[&position.tx, &position.seq, &count(limit)]).await?;
        let Some(first) = rows.first() else { return Err(StoreError::broken("the feed's page has no row").into()) };
        let generation = number(get(first, 0)?)?;
        let floor: Option<&str> = get(first, 1)?;
        let (floor_tx, floor_seq) = floor.and_then(|text| text.split_once('-')).ok_or_else(|| StoreError::broken("the feed has no floor"))?;
        let floor = (number(Some(floor_tx))?, number(Some(floor_seq))?);
        // A position of a transaction that has not begun is of a server that knew more than this one does: it was
        // replaced by a copy that lagged behind.
        let is_ahead = position.tx >= get::<i64>(first, 2)?;
        if position.generation != generation || (position.tx, position.seq) < floor || is_ahead {
            return Err(FeedError::Gone { position });
        }
        let mut changes = Vec::with_capacity(rows.len());
        for row in &rows {
            changes.extend(change(generation, row)?);
        }
        let next = changes.last().map_or(position, |change| change.position);
        Ok(FeedPage { changes, next })
    }

    pub(crate) async fn position(&self, reader: &str) -> Result<Option<Position>, StoreError> {
        let rows = self.rows("read a position", "select position from positions where reader = $1", &[&reader]).await?;
        rows.first().map(|row| get::<&str>(row, 0)?.parse()).transpose()
    }
}

fn number(text: Option<&str>) -> Result<i64, StoreError> {
    text.and_then(|text| text.parse().ok()).ok_or_else(|| StoreError::broken("a number in meta is missing or is none"))
}

fn change(generation: i64, row: &Row) -> Result<Option<Change>, StoreError> {
    let Some(tx) = get::<Option<i64>>(row, 3)? else { return Ok(None) };
    let etag: i64 = get(row, 7)?;
    let subject = match etag {
        0 => Subject::Work,
        etag => Subject::Document { etag: Etag(etag), deleted: get(row, 8)? },
    };
    let position = Position { generation, tx, seq: get(row, 4)? };
    Ok(Some(Change { position, kind: get(row, 5)?, uuid: get(row, 6)?, subject }))
}
