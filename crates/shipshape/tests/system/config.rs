//! The configuration as a user meets it.

use super::executable::{CommandOutput, Home};

/// Writes the configuration file of this home.
fn write(home: &Home, text: &str) -> String {
    let path = home.directory.path().join("ship.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn errors(answer: &CommandOutput) -> Vec<&str> {
    assert_eq!(answer.code, Some(2), "{answer:?}");
    answer.stderr.lines().map(|line| line.strip_prefix("error: ").expect(line)).collect()
}

#[test]
fn a_valid_configuration_is_reported_with_its_file() {
    let home = Home::new();
    let answer = home.run(&["config", "check"]);
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
    assert!(answer.stdout.starts_with("configuration is valid (no file;"), "{answer:?}");
    let file = write(&home, "[log]\nlevel = \"debug\"\n");
    let answer = home.run(&["config", "check", "--config", &file]);
    assert_eq!(answer.stdout, format!("configuration is valid (file {file})\n"));
}

#[test]
fn all_errors_come_at_once_each_on_its_line() {
    let home = Home::new();
    let file = write(&home, "[store]\nconections = 3\n[log]\nformat = \"xml\"\n");
    for command in [&["config", "check"][..], &["config", "show"], &["up"]] {
        let mut command = home.shipshape(command);
        command.args(["--config", &file, "--set", "retention.audit=1m"]);
        let answer = CommandOutput::new(command.env("SHIPSHAPE_HEALTH_LISTEN", "nowhere").output().unwrap());
        let errors = errors(&answer);
        assert_eq!(errors.len(), 4, "{errors:#?}");
        let near = format!(
            "unknown key store.conections ({file} line 2); the nearest known key is store.connections"
        );
        assert_eq!(errors[0], near);
        assert!(
            errors[1]
                .starts_with("health.listen = \"nowhere\" (environment variable SHIPSHAPE_HEALTH_LISTEN)")
        );
        assert_eq!(errors[2], format!("log.format = \"xml\" ({file} line 4): expected text or json"));
        assert_eq!(errors[3], "retention.audit = \"1m\" (flag --set): expected a duration of at least 1h");
    }
}

#[test]
fn flags_win_over_the_environment_over_the_file() {
    let home = Home::new();
    let file = write(&home, "[log]\nlevel = \"error\"\nformat = \"json\"\n[store]\nconnections = 3\n");
    let mut command = home.shipshape(&["config", "show", "--origin", "--log-level", "debug"]);
    command.env("SHIPSHAPE_CONFIG", &file).env("SHIPSHAPE_LOG_LEVEL", "warn");
    command.env("SHIPSHAPE_STORE_CONNECTIONS", "4");
    let answer = CommandOutput::new(command.output().unwrap());
    let shows =
        |line: &str| assert!(answer.stdout.lines().any(|shown| shown == line), "{line} in {}", answer.stdout);
    shows("level = \"debug\"  # flag --log-level");
    shows("connections = 4  # environment variable SHIPSHAPE_STORE_CONNECTIONS");
    shows(&format!("format = \"json\"  # {file} line 3"));
    shows("migrate = \"auto\"  # default");
}

#[test]
fn unknown_variables_are_rejected_except_those_of_kubernetes() {
    let home = Home::new();
    let answer = CommandOutput::new(
        home.shipshape(&["config", "check"]).env("SHIPSHAPE_LOG_LEVLE", "x").output().unwrap(),
    );
    let expected =
        "unknown environment variable SHIPSHAPE_LOG_LEVLE; the nearest known one is SHIPSHAPE_LOG_LEVEL";
    assert_eq!(errors(&answer), [expected]);

    let mut command = home.shipshape(&["config", "check"]);
    command.env("SHIPSHAPE_SERVICE_HOST", "10.0.0.1").env("SHIPSHAPE_PORT", "tcp://10.0.0.1:8443");
    command.env("SHIPSHAPE_PORT_8443_TCP_ADDR", "10.0.0.1").env("SHIPSHAPE_TEST_POSTGRES", "x");
    assert_eq!(command.output().unwrap().status.code(), Some(0));
}

#[test]
fn passwords_are_masked_wherever_the_configuration_is_shown() {
    let home = Home::new();
    let url = "postgres://me:hunter2@db/x";
    for arguments in [&["config", "show"][..], &["config", "show", "-o", "json", "--origin"]] {
        let mut command = home.shipshape(arguments);
        let answer = CommandOutput::new(command.args(["--store", url]).output().unwrap());
        assert!(answer.stdout.contains("postgres://me:***@db/x"), "{answer:?}");
        assert!(!answer.stdout.contains("hunter2"), "{answer:?}");
    }
    let answer = home.run(&["config", "check", "--store", "postgres:/me:hunter2@db/x"]);
    assert_eq!(errors(&answer).len(), 1);
    assert!(!answer.stderr.contains("hunter2"), "{answer:?}");
}

#[test]
fn other_commands_do_not_mind_a_broken_configuration() {
    let home = Home::new();
    let mut command = home.shipshape(&["version"]);
    assert_eq!(command.env("SHIPSHAPE_NONSENSE", "1").output().unwrap().status.code(), Some(0));
}
