use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Controller, owner};
use crate::change::Change;
use crate::informer::Informer;
use crate::informer::tests::{informer, object};
use crate::key::ObjectKey;
use crate::pause::Pause;
use crate::queue::{Action, Backoff};

/// A controller whose reconciles begin when they are reported and end when the test lets them.
struct Running {
    objects: Arc<Informer<ConfigMap>>,
    begun: mpsc::UnboundedReceiver<String>,
    /// Each permit lets one reconcile end.
    may_end: Arc<Semaphore>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

type Outcome = fn(&str) -> Result<Action, io::Error>;

fn done(_: &str) -> Result<Action, io::Error> {
    Ok(Action::Done)
}

impl Running {
    fn start(
        objects: Arc<Informer<ConfigMap>>,
        configure: impl FnOnce(Controller<ConfigMap>) -> Controller<ConfigMap>,
        outcome: Outcome,
    ) -> Running {
        let (begin, begun) = mpsc::unbounded_channel();
        let (may_end, shutdown) = (Arc::new(Semaphore::new(0)), CancellationToken::new());
        let end = may_end.clone();
        let reconcile = move |key: ObjectKey| {
            let (begin, end) = (begin.clone(), end.clone());
            async move {
                begin.send(key.name.to_string()).unwrap();
                end.acquire().await.unwrap().forget();
                outcome(&key.name)
            }
        };
        let mut tasks = JoinSet::new();
        let controller = configure(Controller::new("test", objects.clone()));
        tasks.spawn(controller.run(reconcile, shutdown.clone()));
        Running { objects, begun, may_end, shutdown, tasks }
    }

    async fn next(&mut self) -> String {
        self.begun.recv().await.unwrap()
    }

    /// Whether no reconcile begins within `time`.
    async fn is_quiet_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.begun.recv()).await.is_err()
    }

    fn change(&self, name: &str, version: u64) {
        self.objects.remember(object(name, name, version));
    }

    fn finish_one(&self) {
        self.may_end.add_permits(1);
    }
}

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn an_object_that_changes_during_its_reconcile_is_reconciled_again_and_never_twice_at_once() {
    let mut running = Running::start(Arc::new(informer()), |it| it.workers(4), done);
    running.change("a", 1);
    assert_eq!(running.next().await, "a");
    running.change("a", 2);
    running.change("a", 3);
    assert!(running.is_quiet_for(LONG).await, "one at a time");
    running.finish_one();
    assert_eq!(running.next().await, "a");
    running.finish_one();
    assert!(running.is_quiet_for(LONG).await, "two changes, one reconcile");
}

#[tokio::test(start_paused = true)]
async fn as_many_objects_are_reconciled_at_once_as_there_are_workers() {
    let mut running = Running::start(Arc::new(informer()), |it| it.workers(2), done);
    for name in ["a", "b", "c"] {
        running.change(name, 1);
    }
    assert_eq!((running.next().await, running.next().await), ("a".to_owned(), "b".to_owned()));
    assert!(running.is_quiet_for(LONG).await);
    running.finish_one();
    assert_eq!(running.next().await, "c");
}

#[tokio::test(start_paused = true)]
async fn a_late_controller_reconciles_what_is_there() {
    let objects = Arc::new(informer());
    objects.remember(object("early", "1", 1));
    let mut running = Running::start(objects, |it| it, done);
    assert_eq!(running.next().await, "early");
}

#[tokio::test(start_paused = true)]
async fn a_panic_concerns_its_object_only_and_is_retried() {
    fn panics(name: &str) -> Result<Action, io::Error> {
        assert_ne!(name, "poison", "this object makes the code panic");
        Ok(Action::Done)
    }
    let backoff = Backoff { base: Duration::from_secs(10), max: Duration::from_secs(10) };
    let mut running = Running::start(Arc::new(informer()), |it| it.backoff(backoff), panics);
    running.may_end.add_permits(100);
    running.change("poison", 1);
    running.change("sound", 1);
    assert_eq!(running.next().await, "poison");
    assert_eq!(running.next().await, "sound");
    assert!(running.is_quiet_for(Duration::from_secs(9)).await);
    assert_eq!(running.next().await, "poison");
}

#[tokio::test(start_paused = true)]
async fn a_paused_controller_starts_nothing_and_misses_nothing() {
    let pause = Pause::default();
    pause.set(true);
    let mut running = Running::start(Arc::new(informer()), |it| it.pause(&pause), done);
    running.may_end.add_permits(100);
    running.change("a", 1);
    assert!(running.is_quiet_for(LONG).await);
    pause.set(false);
    assert_eq!(running.next().await, "a");
    pause.set(true);
    running.change("b", 1);
    assert!(running.is_quiet_for(LONG).await);
    assert!(pause.is_set());
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_hangs_makes_the_process_unhealthy() {
    let limit = Duration::from_secs(60);
    let mut running = Running::start(Arc::new(informer()), |it| it.reconcile_limit(limit), done);
    let health = running.objects.observability().health.clone();
    running.change("a", 1);
    running.next().await;
    assert!(running.is_quiet_for(Duration::from_secs(59)).await);
    assert_eq!(health.check(), Ok(()));
    assert!(running.is_quiet_for(Duration::from_secs(10)).await);
    let unhealthy = health.check().unwrap_err().to_string();
    assert_eq!(unhealthy, "controller test: reconcile of ns/a has made no progress for 69 s");
    running.finish_one();
    assert!(running.is_quiet_for(LONG).await);
    assert_eq!(health.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drops_the_reconciles_in_progress() {
    let mut running = Running::start(Arc::new(informer()), |it| it, done);
    running.change("a", 1);
    running.next().await;
    running.shutdown.cancel();
    running.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(running.begun.recv().await, None, "nothing holds the sender any more");
    assert_eq!(running.objects.observability().health.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn only_relevant_changes_wake_a_controller() {
    let relevant = |change: &Change<ConfigMap>| !change.is_deleted();
    let mut running = Running::start(Arc::new(informer()), |it| it.only(relevant), done);
    running.may_end.add_permits(100);
    running.change("a", 1);
    assert_eq!(running.next().await, "a");
    running.objects.forget(&object("a", "a", 1));
    assert!(running.is_quiet_for(LONG).await);
}

#[tokio::test(start_paused = true)]
async fn a_mapping_of_another_kind_wakes_every_key_that_it_returns() {
    let (calls, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(informer()));
    let (count, watched) = (calls.clone(), others.clone());
    let keys = move |change: &Change<ConfigMap>| {
        count.fetch_add(1, Ordering::SeqCst);
        let version = change.object().metadata.resource_version.clone().unwrap();
        vec![ObjectKey::cluster(&format!("{version}-x")), ObjectKey::cluster(&format!("{version}-y"))]
    };
    let mut running = Running::start(Arc::new(informer()), |it| it.watches(watched, keys), done);
    running.may_end.add_permits(100);
    others.remember(object("other", "1", 1));
    assert_eq!((running.next().await, running.next().await), ("1-x".to_owned(), "1-y".to_owned()));
    // Each version is mapped, whatever the reader does meanwhile.
    others.remember(object("other", "1", 2));
    others.forget(&object("other", "1", 2));
    assert_eq!((running.next().await, running.next().await), ("2-x".to_owned(), "2-y".to_owned()));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[test]
fn the_owner_of_a_child_is_its_controller_of_the_right_kind() {
    let mut child = object("child", "2", 2);
    let mut owners = vec![object("friend", "3", 3).owner_ref(&()).unwrap()];
    child.metadata.owner_references = Some(owners.clone());
    assert_eq!(owner::<ConfigMap, ConfigMap>(&child), None, "an owner that does not control it");
    owners.push(object("parent", "1", 1).controller_owner_ref(&()).unwrap());
    child.metadata.owner_references = Some(owners);
    assert_eq!(owner::<ConfigMap, ConfigMap>(&child), Some(ObjectKey::namespaced("ns", "parent")));
    assert_eq!(owner::<Secret, ConfigMap>(&child), None);
}
