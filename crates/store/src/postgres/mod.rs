//! PostgreSQL: many hosts, many processes. Every queue operation is one function on the server, so one round trip;
//! every transaction of documents is one statement or one pipeline. Time is the server's, never the host's.

mod audit;
mod commit;
mod connect;
mod documents;
mod error;
mod feed;
mod migrate;
mod notify;
mod queue;
mod records;
mod statements;
#[cfg(test)]
mod tests;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::StoreError;
use crate::instant::{micros, time};
use crate::notify::{Notifications, Topic, Topics};
use crate::open::{OpenError, Options};

pub(crate) use transfer::Import;

use connect::ServerConfig;
use error::FailureAction;
use notify::NotificationChannel;

/// No statement takes this long (the server cancels them earlier): the server hangs, or the network is cut.
const DEADLINE: Duration = Duration::from_secs(12);
/// Attempts of a transaction that loses against another.
const TRIES: u32 = 6;

/// An open PostgreSQL store.
#[derive(Debug, Clone)]
pub(crate) struct Postgres {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    route: ServerConfig,
    pool: Pool,
    post: NotificationChannel,
    verified: feed::VerifiedPosition,
}

impl Postgres {
    /// Connects, migrates as the options allow, and starts listening.
    pub(crate) async fn open(options: &Options) -> Result<Postgres, OpenError> {
        let route = ServerConfig::find(options)?;
        migrate::migrate(&route, options.migrate).await?;
        Postgres::connect(route, options)
    }

    /// Connects and writes nothing, so that a read-only user can.
    pub(crate) async fn open_to_read(options: &Options) -> Result<Postgres, OpenError> {
        let route = ServerConfig::find(options)?;
        migrate::check_schema(&route).await?;
        Postgres::connect(route, options)
    }

    fn connect(route: ServerConfig, options: &Options) -> Result<Postgres, OpenError> {
        let pool = route.pool(options.connections)?;
        let post = NotificationChannel::open(route.clone());
        Ok(Postgres {
            shared: Arc::new(Shared { route, pool, post, verified: feed::VerifiedPosition::default() }),
        })
    }

    /// Time for which the oldest writing transaction of the server has delayed the feed.
    pub(crate) async fn feed_delay(&self) -> Result<Duration, StoreError> {
        let sql = "select (extract(epoch from coalesce(max(clock_timestamp() - xact_start), '0')) * 1000000)::bigint
                   from pg_stat_activity where backend_xid is not null";
        let row = self.row("read long transactions", sql, &[]).await?;
        Ok(Duration::from_micros(u64::try_from(get::<i64>(&row, 0)?).unwrap_or(0)))
    }

    pub(crate) fn location(&self) -> String {
        self.shared.route.place.clone()
    }

    pub(crate) fn notifications(&self, topic: Topic) -> Notifications {
        self.shared.post.subscribe(topic)
    }

    pub(crate) async fn close(&self) {
        self.shared.post.close().await;
        self.shared.pool.close();
    }

    fn wake(&self, topics: Topics) {
        self.shared.post.send(topics);
    }

    /// One statement, a transaction of its own; retried when it loses against another.
    async fn rows(
        &self,
        what: &'static str,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        for attempt in 1.. {
            let client = self.shared.pool.get().await.map_err(|error| error::pool_error(what, error))?;
            let rows = tokio::time::timeout(DEADLINE, async {
                let statement = client.prepare_cached(sql).await?;
                client.query(&statement, values).await
            });
            match rows.await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(failure)) => prepare_retry(what, client, failure, attempt).await?,
                Err(_) => {
                    discard(client);
                    return Err(error::late(what));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// As [`Postgres::rows`], for statements that return one row.
    async fn row(
        &self,
        what: &'static str,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, StoreError> {
        self.rows(what, sql, values).await?.into_iter().next().ok_or_else(|| StoreError::broken(what))
    }
}

/// After a failed attempt: pauses or discards the connection if another attempt may succeed, else returns the error.
async fn prepare_retry(
    what: &'static str,
    client: Object,
    failure: Error,
    attempt: u32,
) -> Result<(), StoreError> {
    let is_last = attempt >= TRIES;
    match error::failure_action(&failure) {
        FailureAction::Retry if !is_last => pause(attempt).await,
        FailureAction::RetryElsewhere if !is_last => discard(client),
        FailureAction::Retry | FailureAction::Fail => return Err(error::store_error(what, failure)),
        FailureAction::Discard | FailureAction::RetryElsewhere => {
            discard(client);
            return Err(error::store_error(what, failure));
        }
    }
    Ok(())
}

/// Removes a connection from the pool.
fn discard(client: Object) {
    drop(Object::take(client));
}

/// Random pause, so that two conflicting transactions do not meet again.
async fn pause(attempt: u32) {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    tokio::time::sleep(Duration::from_millis(u64::from(attempt) * (2 + u64::from(byte[0]) / 16))).await;
}

/// Value of a column; an error if the store is not what this release wrote.
fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(|error| StoreError::Broken {
        what: "unexpected value in a row".to_owned(),
        source: Some(Box::new(error)),
    })
}

/// Number of rows as the server counts them.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The same for functions with 32-bit parameters.
fn count32(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
