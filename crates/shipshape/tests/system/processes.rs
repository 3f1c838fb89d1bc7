//! Starting, telling, and ending.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::executable::{CommandOutput, Home, get};

#[test]
fn up_starts_responds_and_shuts_down_cleanly() {
    for signal in ["TERM", "INT"] {
        let home = Home::new();
        let up = home.up(&["--log-level", "info"]);
        assert!(up.banner.contains(&format!("health   http://{}\n", up.address)), "{}", up.banner);
        assert_eq!(up.get("/readyz"), (200, "ready\n".to_owned()));
        assert_eq!(up.get("/livez").0, 200);
        let (status, metrics) = up.get("/metrics");
        assert_eq!(status, 200);
        assert!(metrics.contains("shipshape_build_info"), "{metrics}");
        assert!(up.get("/version").1.contains("\"rustc\":"));
        assert_eq!(up.get("/").0, 404);
        up.signal(signal);
        let answer = up.end();
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert!(answer.stderr.contains(&format!("SIG{signal} received")), "{answer:?}");
    }
}

#[test]
fn a_ready_process_listens_on_all_its_addresses() {
    let home = Home::new();
    // Ports that were free a moment ago, so that somebody can ask before the banner tells them.
    let held = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [health, api, portal] = held.each_ref().map(|it| it.local_addr().unwrap().to_string());
    drop(held);
    let command = home.shipshape(&["up", "--health", &health, "--api", &api, "--portal", &portal]);
    let (ended, is_over) = std::sync::mpsc::channel::<()>();
    let asking = std::thread::spawn(move || {
        // Polls the readiness of the process, then at once that of the processes that must be ready.
        while is_over.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
            if TcpStream::connect(&health).is_ok() && get(&health, "/readyz").0 == 200 {
                return Some([&api, &portal].map(|it| TcpStream::connect(it).is_ok()));
            }
        }
        None
    });
    let up = home.up_as(command);
    let listened = asking.join().unwrap();
    drop(ended);
    assert_eq!(listened, Some([true, true]));
    assert!(up.get("/metrics").1.contains("shipshape_process_ready{condition=\"startup\"} 1"));
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
}

#[test]
fn a_process_raises_its_limit_on_open_files_and_warns_when_it_is_too_low() {
    let home = Home::new();
    let up = home.up_with_limits("-S -n 512");
    let (soft, hard) = up.open_files();
    assert_ne!(soft, "512");
    assert_eq!(soft, hard);
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));

    let up = home.up_with_limits("-n 512");
    assert_eq!(up.open_files(), ("512".to_owned(), "512".to_owned()));
    up.signal("TERM");
    let answer = up.end();
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let sentence =
        "may open 512 files, but needs 2304: 256 and frontend.connections 1024, portal.connections 1024;";
    assert!(answer.stderr.contains(sentence), "{answer:?}");
}

#[test]
fn a_silent_client_does_not_delay_the_shutdown() {
    let home = Home::new();
    let up = home.up(&["--set", "shutdown_deadline=5s"]);
    let silent = TcpStream::connect(&up.address).unwrap();
    up.signal("TERM");
    let answer = up.end();
    assert_eq!(answer.code, Some(0), "{answer:?}");
    drop(silent);
}

#[test]
fn the_data_directory_is_created_for_its_owner_only() {
    let home = Home::new();
    let up = home.up(&["--data-dir", "a/b"]);
    let mode = std::fs::metadata(home.directory.path().join("a/b")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
}

#[test]
fn an_unwritable_directory_is_reported_in_one_sentence() {
    // Not by permissions, which do not bind root: /proc takes no files from anyone.
    let check = |directory: &str, why: &str| {
        let home = Home::new();
        let answer = home.failed_up(&["--data-dir", directory]);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(
            answer.stderr.starts_with(&format!("error: data_dir {directory}: the directory {why}: ")),
            "{answer:?}"
        );
        assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
    };
    check("/proc/nowhere/ship", "cannot be created");
    check("/proc/self", "cannot be written to");
    check("/dev/null/ship", "cannot be created");
}

#[test]
fn logs_are_json_when_configured() {
    let home = Home::new();
    let up = home.up(&["--log-format", "json", "--log-level", "info"]);
    up.signal("TERM");
    let answer = up.end();
    assert!(!answer.stderr.is_empty());
    for line in answer.stderr.lines() {
        assert!(line.starts_with("{\"timestamp\":") && line.ends_with('}'), "{line}");
    }
}

#[test]
fn logs_in_a_pipe_have_no_colour() {
    let home = Home::new();
    let up = home.up(&["--log-level", "info"]);
    up.signal("TERM");
    assert!(!up.end().stderr.contains('\u{1b}'));
}

#[test]
fn the_version_is_printed_for_people_and_programs() {
    let home = Home::new();
    let answer = home.run(&["version"]);
    assert_eq!(answer.code, Some(0));
    assert!(answer.stdout.starts_with(&format!("shipshape {}\n", env!("CARGO_PKG_VERSION"))), "{answer:?}");
    let answer = home.run(&["version", "-o", "json"]);
    assert!(
        answer.stdout.starts_with(&format!("{{\"version\":\"{}\"", env!("CARGO_PKG_VERSION"))),
        "{answer:?}"
    );
}

#[test]
fn every_shell_gets_its_completion() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let answer = Home::new().run(&["completion", shell]);
        assert_eq!(answer.code, Some(0));
        assert!(answer.stdout.contains("SHIPSHAPE_COMPLETE"), "{shell}");
    }
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    for arguments in [&["completion", "bash"][..], &["config", "show"], &["version"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let home = Home::new();
        let mut command = home.shipshape(arguments);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop(command); // with its copy of the pipe
        let answer = CommandOutput::new(child.wait_with_output().unwrap());
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn bad_usage_ends_with_2() {
    let home = Home::new();
    for arguments in [&["upp"][..], &["up", "--nonsense"], &["completion", "tcsh"], &[]] {
        let answer = home.run(arguments);
        assert_eq!(answer.code, Some(2), "{answer:?}");
    }
    let answer = home.run(&["up", "postgres://me:hunter2@db/x"]);
    assert_eq!(answer.code, Some(2));
    assert!(!answer.stderr.contains("hunter2"), "{answer:?}");
}
