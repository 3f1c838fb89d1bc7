//! Reads of the change feed. A sequence alone would lose rows: numbers are drawn in another order than transactions
//! commit. Rows are ordered by their transaction first, and visible once every transaction up to theirs has ended.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::Row;

use super::{Postgres, count, get};
use crate::feed::{Change, FeedError, FeedPage, Position, Subject};
use crate::{Etag, StoreError};

/// A page; every row also carries what the position must match. An empty page costs one probe of one index: these
/// values are only looked up when there is a row.
const PAGE: &str = "select tx, seq, kind, uuid, etag, deleted,
    (select value from meta where key = 'generation'), (select value from meta where key = 'feed_floor')
  from feed where (tx, seq) > ($1, $2) and tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
  order by tx, seq limit $3";

/// How long an empty page is trusted without checking that the store still has the position's generation. An empty
/// page moves no position, so nothing is missed meanwhile; and no page before the floor is empty, since trimming
/// always leaves the newest row.
const TRUSTED: Duration = Duration::from_secs(1);

/// Time and generation of the last check of an empty page.
#[derive(Debug, Default)]
pub(super) struct VerifiedPosition(Mutex<Option<(Instant, i64)>>);

impl Postgres {
    /// Every transaction below the oldest running one has ended: what is visible now is before this position, and the
    /// rest comes behind it.
    pub(crate) async fn feed_end(&self) -> Result<Position, StoreError> {
        let sql = "select (select value from meta where key = 'generation'), pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1";
        let row = self.row("read the feed's end", sql, &[]).await?;
        Ok(Position { generation: number(get(&row, 0)?)?, tx: get(&row, 1)?, seq: i64::MAX })
    }

    pub(crate) async fn feed_after(&self, position: Position, limit: usize) -> Result<FeedPage, FeedError> {
        let rows = self.rows("read the feed", PAGE, &[&position.tx, &position.seq, &count(limit)]).await?;
        let gone = FeedError::Gone { position };
        let Some(first) = rows.first() else {
            return match self.is_at_the_end(position).await? {
                true => Ok(FeedPage { changes: Vec::new(), next: position }),
                false => Err(gone),
            };
        };
        let generation = number(get(first, 6)?)?;
        let floor = get::<Option<&str>>(first, 7)?.and_then(|text| text.split_once('-'));
        let (tx, seq) = floor.ok_or_else(|| StoreError::broken("the feed has no floor"))?;
        if position.generation != generation
            || (position.tx, position.seq) < (number(Some(tx))?, number(Some(seq))?)
        {
            return Err(gone);
        }
        let changes = rows.iter().map(|row| change(generation, row)).collect::<Result<Vec<_>, _>>()?;
        let next = changes.last().map_or(position, |change| change.position);
        Ok(FeedPage { changes, next })
    }

    /// Whether a position without successors belongs to this store.
    async fn is_at_the_end(&self, position: Position) -> Result<bool, StoreError> {
        let verified = &self.shared.verified.0;
        let last = *verified.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|(at, generation)| at.elapsed() < TRUSTED && generation == position.generation) {
            return Ok(true);
        }
        let sql = "select (select value from meta where key = 'generation'), pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
        let row = self.row("read the feed", sql, &[]).await?;
        // A position of a transaction that has not started comes from a server with newer data: it was replaced by a
        // copy that lagged behind.
        let fits = number(get(&row, 0)?)? == position.generation && position.tx < get::<i64>(&row, 1)?;
        if fits {
            *verified.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((Instant::now(), position.generation));
        }
        Ok(fits)
    }

    pub(crate) async fn saved_position(&self, reader: &str) -> Result<Option<Position>, StoreError> {
        let rows = self
            .rows("read a position", "select position from positions where reader = $1", &[&reader])
            .await?;
        rows.first().map(|row| get::<&str>(row, 0)?.parse()).transpose()
    }
}

fn number(text: Option<&str>) -> Result<i64, StoreError> {
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| StoreError::broken("a number in meta is missing or invalid"))
}

fn change(generation: i64, row: &Row) -> Result<Change, StoreError> {
    let subject = match get::<i64>(row, 4)? {
        0 => Subject::Work,
        etag => Subject::Document { etag: Etag(etag), deleted: get(row, 5)? },
    };
    let position = Position { generation, tx: get(row, 0)?, seq: get(row, 1)? };
    Ok(Change { position, kind: get(row, 2)?, uuid: get(row, 3)?, subject })
}
