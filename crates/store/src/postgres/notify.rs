//! Notifications across processes. A NOTIFY inside a writing transaction would serialise all commits of the instance;
//! so one task with a dedicated connection sends them afterwards, at most every few milliseconds, one for all commits
//! since, and receives those of other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::time::Duration;

use api::work::WorkKind;
use tokio::sync::Notify;
use tokio_postgres::tls::TlsStream;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::connect::{ServerConfig, ServerConnection};
use crate::notify::{Notifications, Notifier, Topic, Topics};

/// Interval between rounds of NOTIFY.
const SPACING: Duration = Duration::from_millis(5);
/// First and longest pause between attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Notifier of this process, and the connection to other processes.
#[derive(Debug)]
pub(super) struct NotificationChannel {
    notifier: Notifier,
    pending: Arc<PendingNotifications>,
    tasks: TaskTracker,
    end: CancellationToken,
    /// Stops the task when the store is dropped without being closed.
    _guard: DropGuard,
}

/// Topics not yet sent to other processes, one bit each.
#[derive(Debug, Default)]
struct PendingNotifications {
    topics: AtomicU8,
    filled: Notify,
}

impl NotificationChannel {
    pub(super) fn open(route: ServerConfig) -> NotificationChannel {
        let (notifier, pending, end, tasks) = (
            Notifier::default(),
            Arc::<PendingNotifications>::default(),
            CancellationToken::new(),
            TaskTracker::new(),
        );
        let carrier = NotificationTask { route, notifier: notifier.clone(), pending: pending.clone() };
        let ended = end.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = carrier.run() => {}
            }
        });
        tasks.close();
        NotificationChannel { notifier, pending, tasks, _guard: end.clone().drop_guard(), end }
    }

    pub(super) fn subscribe(&self, topic: Topic) -> Notifications {
        self.notifier.subscribe(topic)
    }

    /// Notifies the waiters of this process now, and those of other processes shortly after.
    pub(super) fn send(&self, topics: Topics) {
        if topics.is_empty() {
            return;
        }
        self.notifier.notify(topics);
        let bits = topics.iter().fold(0, |bits, topic| bits | 1 << topic.index());
        if self.pending.topics.fetch_or(bits, Ordering::AcqRel) == 0 {
            self.pending.filled.notify_one();
        }
    }

    pub(super) async fn close(&self) {
        self.end.cancel();
        self.tasks.wait().await;
    }
}

struct NotificationTask {
    route: ServerConfig,
    notifier: Notifier,
    pending: Arc<PendingNotifications>,
}

impl NotificationTask {
    async fn run(&self) {
        let mut backoff = BACKOFF.0;
        loop {
            match tokio::time::timeout(BACKOFF.1, self.route.connect()).await {
                Ok(Ok((client, link))) => {
                    backoff = BACKOFF.0;
                    match link {
                        ServerConnection::Plain(connection) => self.serve(client, *connection).await,
                        ServerConnection::Encrypted(connection) => self.serve(client, *connection).await,
                    }
                    tracing::info!(
                        "Lost the connection for notifications from {}; polling until it is restored",
                        self.route.place
                    );
                }
                Ok(Err(error)) => tracing::debug!("No connection for notifications: {error}"),
                Err(_) => tracing::debug!("No connection for notifications: the server does not respond"),
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    /// Sends and receives until the connection ends.
    async fn serve<T: TlsStream + Unpin>(&self, client: Client, mut connection: Connection<Socket, T>) {
        let own = AtomicI32::new(0);
        let hear = async {
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    // The waiters of this process were notified at the commit.
                    Some(Ok(AsyncMessage::Notification(note)))
                        if note.process_id() != own.load(Ordering::Relaxed) =>
                    {
                        self.notify(note.channel());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        };
        tokio::select! {
            () = hear => {}
            _ = self.send_notifications(&client, &own) => {}
        }
    }

    fn notify(&self, channel: &str) {
        let mut topics = Topics::default();
        Topic::ALL.into_iter().filter(|topic| name(*topic) == channel).for_each(|topic| topics.add(topic));
        self.notifier.notify(topics);
    }

    async fn send_notifications(
        &self,
        client: &Client,
        own: &AtomicI32,
    ) -> Result<(), tokio_postgres::Error> {
        let listen: Vec<String> =
            Topic::ALL.into_iter().map(|topic| format!("listen {}", name(topic))).collect();
        own.store(client.query_one("select pg_backend_pid()", &[]).await?.get(0), Ordering::Relaxed);
        client.batch_execute(&listen.join(";")).await?;
        // Notifications sent before the listener started are lost: everybody reads once.
        let mut all = Topics::default();
        Topic::ALL.into_iter().for_each(|topic| all.add(topic));
        self.notifier.notify(all);
        loop {
            let bits = self.pending.topics.swap(0, Ordering::AcqRel);
            if bits == 0 {
                self.pending.filled.notified().await;
                continue;
            }
            let notes: Vec<String> = Topic::ALL
                .into_iter()
                .filter(|topic| bits & (1 << topic.index()) != 0)
                .map(|topic| format!("notify {}", name(topic)))
                .collect();
            client.batch_execute(&notes.join(";")).await?;
            tokio::time::sleep(SPACING).await;
        }
    }
}

fn name(topic: Topic) -> &'static str {
    match topic {
        Topic::Feed => "shipshape_feed",
        Topic::Work(WorkKind::Operation) => "shipshape_operation",
        Topic::Work(WorkKind::Manifest) => "shipshape_manifest",
    }
}
