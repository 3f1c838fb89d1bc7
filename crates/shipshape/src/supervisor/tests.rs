//! Tests of the supervisor in paused time: a minute of waiting takes no time.

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

fn supervisor() -> (Supervisor, UnboundedSender<Signal>) {
    let (sender, receiver) = unbounded_channel();
    (Supervisor::with_signals(DEADLINE, Signals::Sent(receiver)), sender)
}

/// A task that runs until it is stopped.
async fn obedient(shutdown: CancellationToken) -> anyhow::Result<()> {
    shutdown.cancelled().await;
    Ok(())
}

/// A task that ignores its token.
async fn deaf(_shutdown: CancellationToken) -> anyhow::Result<()> {
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_signal_ends_obedient_tasks_in_peace() {
    for signal in [Signal::Terminate, Signal::Interrupt] {
        let (mut tasks, signals) = supervisor();
        tasks.spawn(Stage::Listeners, "listener", obedient);
        tasks.spawn(Stage::Infrastructure, "infrastructure", obedient);
        signals.send(signal).unwrap();
        tasks.run().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_without_tasks_waits_for_its_signal() {
    let (tasks, signals) = supervisor();
    signals.send(Signal::Terminate).unwrap();
    tasks.run().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn listeners_and_workers_stop_together_and_the_infrastructure_afterwards() {
    for slow in ["listener", "worker"] {
        let (mut tasks, signals) = supervisor();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let begun = Instant::now();
        for (stage, name) in [
            (Stage::Infrastructure, "infrastructure"),
            (Stage::Workers, "worker"),
            (Stage::Listeners, "listener"),
        ] {
            let asked = asked.clone();
            tasks.spawn(stage, name, move |shutdown| async move {
                shutdown.cancelled().await;
                asked.lock().unwrap().push((name, begun.elapsed().as_secs()));
                tokio::time::sleep(Duration::from_secs(if name == slow { 10 } else { 1 })).await;
                Ok(())
            });
        }
        signals.send(Signal::Terminate).unwrap();
        tasks.run().await.unwrap();
        asked.lock().unwrap().sort_unstable();
        assert_eq!(*asked.lock().unwrap(), [("infrastructure", 10), ("listener", 0), ("worker", 0)]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_start_of_a_shutdown_is_reported_before_any_task_ends() {
    let (mut tasks, signals) = supervisor();
    let stopping = tasks.stopping();
    assert!(!stopping.is_cancelled());
    let seen = stopping.clone();
    tasks.spawn(Stage::Listeners, "listener", |shutdown| async move {
        shutdown.cancelled().await;
        anyhow::ensure!(seen.is_cancelled(), "asked to end before the process said that it is stopping");
        Ok(())
    });
    signals.send(Signal::Terminate).unwrap();
    tasks.run().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_returns_unexpectedly_is_named_and_stops_the_others() {
    let (mut tasks, _signals) = supervisor();
    let (done, asked) = tokio::sync::oneshot::channel();
    tasks.spawn(Stage::Workers, "quitter", |_| async { Ok(()) });
    tasks.spawn(Stage::Infrastructure, "infrastructure", |shutdown| async move {
        shutdown.cancelled().await;
        let _ = done.send(());
        Ok(())
    });
    let fault = tasks.run().await.unwrap_err();
    assert_eq!(fault.to_string(), "task quitter stopped unexpectedly");
    asked.await.expect("the other task was asked to end");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_is_named_with_its_cause() {
    let (mut tasks, _signals) = supervisor();
    tasks.spawn(Stage::Workers, "unlucky", |_| async { anyhow::bail!("the disk is full") });
    tasks.spawn(Stage::Infrastructure, "infrastructure", obedient);
    let fault = tasks.run().await.unwrap_err();
    assert_eq!(Chain(&fault).to_string(), "task unlucky failed: the disk is full");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_named_with_its_message() {
    let (mut tasks, _signals) = supervisor();
    tasks.spawn(Stage::Workers, "clumsy", |_| async { panic!("slipped on step {}", 3) });
    tasks.spawn(Stage::Infrastructure, "infrastructure", obedient);
    let fault = tasks.run().await.unwrap_err();
    assert_eq!(fault.to_string(), "task clumsy panicked: slipped on step 3");
}

#[tokio::test(start_paused = true)]
async fn tasks_that_run_at_the_deadline_are_aborted_and_named() {
    let (mut tasks, signals) = supervisor();
    tasks.spawn(Stage::Listeners, "listener", obedient);
    tasks.spawn(Stage::Workers, "stubborn", deaf);
    tasks.spawn(Stage::Infrastructure, "infrastructure", obedient);
    signals.send(Signal::Terminate).unwrap();
    let begun = Instant::now();
    let fault = tasks.run().await.unwrap_err();
    assert_eq!(begun.elapsed(), DEADLINE);
    assert_eq!(
        fault.to_string(),
        "the shutdown took longer than 30s; aborted tasks: infrastructure, stubborn"
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_for_all_stages_together() {
    let (mut tasks, signals) = supervisor();
    for (stage, name) in [
        (Stage::Listeners, "listener"),
        (Stage::Workers, "worker"),
        (Stage::Infrastructure, "infrastructure"),
    ] {
        tasks.spawn(stage, name, |shutdown| async move {
            shutdown.cancelled().await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok(())
        });
    }
    signals.send(Signal::Terminate).unwrap();
    let begun = Instant::now();
    let fault = tasks.run().await.unwrap_err();
    assert_eq!(begun.elapsed(), DEADLINE);
    assert_eq!(fault.to_string(), "the shutdown took longer than 30s; aborted tasks: infrastructure");
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_ends_at_once() {
    let (mut tasks, signals) = supervisor();
    tasks.spawn(Stage::Workers, "stubborn", deaf);
    signals.send(Signal::Terminate).unwrap();
    signals.send(Signal::Interrupt).unwrap();
    let begun = Instant::now();
    let fault = tasks.run().await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(matches!(fault, Fault::Interrupted { signal: Signal::Interrupt, .. }), "{fault}");
    assert_eq!(fault.to_string(), "a second SIGINT aborted the shutdown; aborted tasks: stubborn");
}

#[tokio::test(start_paused = true)]
async fn a_failure_during_the_shutdown_is_an_error_too_and_stops_nothing() {
    let (mut tasks, signals) = supervisor();
    tasks.spawn(Stage::Listeners, "listener", |shutdown| async move {
        shutdown.cancelled().await;
        anyhow::bail!("a request was lost")
    });
    let (done, asked) = tokio::sync::oneshot::channel();
    tasks.spawn(Stage::Infrastructure, "infrastructure", |shutdown| async move {
        shutdown.cancelled().await;
        let _ = done.send(());
        Ok(())
    });
    signals.send(Signal::Terminate).unwrap();
    let fault = tasks.run().await.unwrap_err();
    assert_eq!(Chain(&fault).to_string(), "task listener failed: a request was lost");
    asked.await.expect("the infrastructure was still asked to end");
}

#[tokio::test(start_paused = true)]
async fn the_first_fault_is_the_one_reported() {
    let (mut tasks, _signals) = supervisor();
    tasks.spawn(Stage::Workers, "culprit", |_| async { anyhow::bail!("broken") });
    tasks.spawn(Stage::Infrastructure, "stubborn", deaf);
    let fault = tasks.run().await.unwrap_err();
    assert_eq!(Chain(&fault).to_string(), "task culprit failed: broken");
}

#[tokio::test(start_paused = true)]
async fn one_signal_does_not_hurry_a_shutdown_that_a_fault_began() {
    let (mut tasks, signals) = supervisor();
    tasks.spawn(Stage::Workers, "culprit", |_| async { anyhow::bail!("broken") });
    let (done, ended) = tokio::sync::oneshot::channel();
    tasks.spawn(Stage::Infrastructure, "infrastructure", move |shutdown| async move {
        shutdown.cancelled().await;
        signals.send(Signal::Terminate)?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let _ = done.send(());
        Ok(())
    });
    tasks.run().await.unwrap_err();
    ended.await.expect("the infrastructure ended in its own time");
}
