use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::process::{ChildProcess, example_path};
use crate::tmpfs::SmallDisk;
use crate::{prerequisites, wait_until};

const SOON: Duration = Duration::from_secs(60);

const NO_BINARIES: &str = "no server binaries were found";

/// A private server, or `None` after a skip was recorded.
fn server(options: PostgresOptions) -> Option<TestPostgres> {
    let server = private(options);
    if server.is_none() {
        prerequisites::skip(prerequisites::POSTGRESQL, NO_BINARIES);
    }
    server
}

#[test]
fn tests_share_a_server_with_separate_databases() {
    let Some(server) = shared() else {
        return prerequisites::skip(prerequisites::POSTGRESQL, NO_BINARIES);
    };
    let (one, two) = (server.database().unwrap(), server.database().unwrap());
    one.psql("create table t as select 7 as n, 'x' as s").unwrap();
    assert_eq!(one.psql("select n, s from t").unwrap(), "7|x");
    assert!(two.psql("select n from t").unwrap_err().to_string().contains("does not exist"));
    let name = one.name().to_owned();
    drop(one);
    let left = server.psql(&format!("select count(*) from pg_database where datname = '{name}'")).unwrap();
    assert_eq!(left, "0");
    assert!(std::ptr::eq(server, shared().unwrap()));
}

#[test]
fn a_stopped_or_killed_server_restarts_with_all_commits() {
    let Some(server) = server(PostgresOptions::default()) else { return };
    let (url, first) = (server.url("x"), server.pid().unwrap());
    server.psql("create table t (n int)").unwrap();

    for (n, end) in [
        (1, Box::new(|| server.stop(StopMode::Fast)) as Box<dyn Fn() -> anyhow::Result<()>>),
        (2, Box::new(|| server.stop(StopMode::Immediate))),
        (3, Box::new(|| server.kill())),
    ] {
        server.psql(&format!("insert into t values ({n})")).unwrap();
        end().unwrap();
        assert_eq!(server.pid(), None);
        assert!(server.psql("select 1").is_err());
        assert!(end().is_err(), "it is not running");
        server.restart().unwrap();
        assert_eq!(server.psql("select max(n), count(*) from t").unwrap(), format!("{n}|{n}"));
    }
    assert_ne!(server.pid().unwrap(), first);
    assert_eq!(server.url("x"), url);
    assert!(server.restart().is_err(), "it runs already");
    assert_eq!(server.psql("show fsync").unwrap(), "on");
    assert_eq!(server.psql("show max_connections").unwrap(), "200");
    assert_eq!(server.psql("show listen_addresses").unwrap(), "127.0.0.1");

    let directory = server.directory().to_owned();
    assert!(directory.exists());
    drop(server);
    assert!(!directory.exists());
}

#[test]
fn a_kill_leaves_no_process_of_the_server() {
    let Some(server) = server(PostgresOptions::default()) else { return };
    let postmaster = server.pid().unwrap();
    let inside = || {
        let data = server.directory().join("data");
        let cwd = |entry: std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).ok();
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(cwd).filter(|cwd| *cwd == data).count()
    };
    assert!(inside() > 1, "the postmaster {postmaster} has children");
    server.kill().unwrap();
    assert_eq!(inside(), 0);
}

#[test]
fn a_promoted_standby_has_every_commit_that_its_primary_acknowledged() {
    let password = "sec ret'/@:%?";
    let Some(primary) = server(PostgresOptions::default().with_password(password)) else { return };
    primary.psql("create table t (n int)").unwrap();
    let standby = primary.standby().unwrap();
    assert_eq!(standby.psql("select pg_is_in_recovery()").unwrap(), "t");
    primary.psql("insert into t select generate_series(1, 1000)").unwrap();
    primary.kill().unwrap();
    standby.promote().unwrap();
    assert_eq!(standby.psql("select count(*) from t").unwrap(), "1000");
    standby.psql("insert into t values (0)").unwrap();

    // The new primary can have a standby too, and continue without it.
    let next = standby.standby().unwrap();
    drop(next);
    standby.remove_standbys().unwrap();
    standby.psql("insert into t values (0)").unwrap();

    let open = standby.url("postgres").replace("postgres:sec", "postgres:wrong");
    let error = Endpoint::new(&open, "psql".into()).unwrap().psql("select 1").unwrap_err().to_string();
    assert!(error.contains("password authentication failed"), "{error}");
}

#[test]
fn settings_reach_a_server_and_its_data_can_be_on_a_small_disk() {
    let Some(disk) = SmallDisk::new(256 << 20) else {
        return prerequisites::skip(prerequisites::SMALL_DISK, "this user may not mount a tmpfs");
    };
    let options = PostgresOptions::default()
        .in_directory(disk.path())
        .with("shared_buffers", "16MB")
        .with("work_mem", "5MB");
    let Some(server) = server(options) else { return };
    assert!(server.directory().starts_with(disk.path()));
    assert_eq!(server.psql("show work_mem; show shared_buffers").unwrap(), "5MB\n16MB");
    let full = server.psql("create table t as select repeat('x', 1000) from generate_series(1, 400000)");
    let error = full.unwrap_err().to_string();
    assert!(error.contains("No space left") || error.contains("server closed the connection"), "{error}");
}

#[test]
fn an_invalid_setting_of_postgresql_is_reported_with_its_log() {
    if !is_installed().unwrap() {
        return prerequisites::skip(prerequisites::POSTGRESQL, NO_BINARIES);
    }
    let error =
        TestPostgres::start(PostgresOptions::default().with("no_such_setting", "1")).unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
}

/// The guarantee of this crate, for a server, a standby and a disk.
#[test]
fn nothing_outlives_a_test_process_that_was_killed() {
    if !is_installed().unwrap() {
        return prerequisites::skip(prerequisites::POSTGRESQL, NO_BINARIES);
    }
    let mut child = ChildProcess::start(Command::new(example_path("hold").unwrap())).unwrap();
    let mut pids = Vec::new();
    let mut directories = Vec::new();
    loop {
        let line = child.line(SOON).unwrap();
        match line.split_once(' ') {
            Some(("pid", pid)) => pids.push(PathBuf::from("/proc").join(pid)),
            Some(("directory", directory)) => directories.push(PathBuf::from(directory)),
            _ => break,
        }
    }
    assert_eq!(pids.len(), 2, "a primary and a standby");
    assert!(directories.len() >= 2);
    assert!(pids.iter().chain(&directories).all(|path| path.exists()));

    child.kill9().unwrap();
    wait_until("the servers and their directories are gone", SOON, || {
        // A zombie stays in the process table until init collects it, but has no working directory.
        let ended = pids.iter().all(|pid| std::fs::read_link(pid.join("cwd")).is_err());
        (ended && !directories.iter().any(|directory| directory.exists())).then_some(())
    })
    .unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !directories.iter().any(|directory| mounts.contains(&directory.display().to_string())),
        "{mounts}"
    );
}
