use std::os::unix::fs::PermissionsExt as _;

use client::Credential;
use tempfile::TempDir;

use super::*;

fn home() -> (TempDir, Environment) {
    let home = tempfile::tempdir().unwrap();
    let environment = Environment::from_iter([("HOME", home.path())]);
    (home, environment)
}

fn up_in(home: &TempDir, name: &str, environment: &Environment) -> String {
    let data = home.path().join(name);
    std::fs::create_dir_all(&data).unwrap();
    publish(&data, &ContextFile::open(format!("http://{}", name.replace('/', "-"))), environment)
        .unwrap()
        .name
}

#[test]
fn the_first_context_becomes_the_current_one_and_a_second_does_not_take_its_place() {
    let (home, environment) = home();
    assert_eq!(up_in(&home, "a", &environment), "a");
    assert_eq!(up_in(&home, "b", &environment), "b");
    assert_eq!(select(&ServerSelection::default(), &environment).unwrap().name, "a");
    Contexts::set_current("b", &environment).unwrap();
    assert_eq!(up_in(&home, "a", &environment), "a", "started again, it is the same");
    assert_eq!(select(&ServerSelection::default(), &environment).unwrap().name, "b");
}

#[test]
fn a_context_whose_directory_was_deleted_is_replaced() {
    let (home, environment) = home();
    up_in(&home, "a", &environment);
    std::fs::remove_dir_all(home.path().join("a")).unwrap();
    let error = format!("{:#}", select(&ServerSelection::default(), &environment).unwrap_err());
    assert!(
        error.starts_with("context a cannot be used; `shipshape context list` shows the others: "),
        "{error}"
    );
    assert_eq!(up_in(&home, "b", &environment), "b");
    assert_eq!(select(&ServerSelection::default(), &environment).unwrap().name, "b");
}

#[test]
fn two_directories_of_one_name_get_two_names() {
    let (home, environment) = home();
    assert_eq!(up_in(&home, "x/data", &environment), "data");
    assert_eq!(up_in(&home, "y/data", &environment), "data-2");
    assert_eq!(up_in(&home, "x/data", &environment), "data");
    assert_eq!(up_in(&home, "y/data", &environment), "data-2");
}

#[test]
fn the_flag_wins_over_the_variable_over_the_data_directory_over_the_current_one() {
    let (home, environment) = home();
    for name in ["a", "b", "c"] {
        up_in(&home, name, &environment);
    }
    let with = environment.iter().chain([("SHIPSHAPE_CONTEXT".as_ref(), "b".as_ref())]).collect();
    let mut selection =
        ServerSelection { data_dir: Some(home.path().join("c")), ..ServerSelection::default() };
    assert!(select(&selection, &environment).unwrap().name.ends_with("/c/context.toml"));
    assert_eq!(select(&selection, &with).unwrap().name, "b");
    selection.context = Some("a".to_owned());
    assert_eq!(select(&selection, &with).unwrap().name, "a");
    selection.context = Some(home.path().join("c/context.toml").display().to_string());
    assert_eq!(select(&selection, &with).unwrap().context.server, "http://c");
}

#[test]
fn an_unknown_context_is_reported_with_the_registered_ones() {
    let (home, environment) = home();
    let say = |selection: &ServerSelection| format!("{:#}", select(selection, &environment).unwrap_err());
    assert!(
        say(&ServerSelection::default())
            .starts_with("no context is selected; start a server with `shipshape up`")
    );
    let selection = ServerSelection { context: Some("x".to_owned()), ..ServerSelection::default() };
    assert!(say(&selection).contains("no context is registered"));
    up_in(&home, "a", &environment);
    assert_eq!(say(&selection), "context \"x\" not found; registered contexts: a");
    let selection =
        ServerSelection { data_dir: Some(home.path().join("nowhere")), ..ServerSelection::default() };
    assert!(say(&selection).contains("not found; run `shipshape up --data-dir"), "{}", say(&selection));
}

#[test]
fn a_credential_does_not_go_to_a_server_that_speaks_plainly() {
    let (home, environment) = home();
    let data = home.path().join("a");
    std::fs::create_dir_all(&data).unwrap();
    let file = ContextFile { token: Some("t".into()), ..ContextFile::open("https://a".into()) };
    publish(&data, &file, &environment).unwrap();
    for server in ["http://b", "HTTP://b", "hTTp://b:80/", "HTTP://127.0.0.1:1"] {
        let selection = ServerSelection { server: Some(server.to_owned()), ..ServerSelection::default() };
        let selected = select(&selection, &environment).unwrap();
        assert_eq!(selected.context.server, server);
        assert!(matches!(selected.context.credential, Credential::None), "{server}");
    }
    for server in ["https://b", "HTTPS://b"] {
        let selection = ServerSelection { server: Some(server.to_owned()), ..ServerSelection::default() };
        let selected = select(&selection, &environment).unwrap();
        assert!(matches!(selected.context.credential, Credential::Token(_)), "{server}");
    }
}

#[test]
fn a_context_with_plain_http_sends_no_credential_to_another_machine() {
    let (home, environment) = home();
    let data = home.path().join("a");
    std::fs::create_dir_all(&data).unwrap();
    for (server, is_rejected) in [
        ("http://shipshape.example", true),
        ("HTTP://shipshape.example:8443", true),
        ("http://127.0.0.1.example", true),
        ("http://127.0.0.1:8443", false),
        ("http://[::1]:8443", false),
        ("http://LOCALHOST:8443", false),
    ] {
        let file = ContextFile { token: Some("t".into()), ..ContextFile::open(server.into()) };
        publish(&data, &file, &environment).unwrap();
        let error =
            connect(&ServerSelection::default(), &environment).err().map(|error| format!("{error:#}"));
        let expected = format!("server {server} does not use TLS, so no token or certificate is sent to it");
        assert_eq!(error.is_some_and(|error| error.contains(&expected)), is_rejected, "{server}");
    }
}

#[test]
fn an_unreadable_token_is_an_error_and_no_request_is_sent_without_it() {
    let (home, environment) = home();
    let data = home.path().join("a");
    std::fs::create_dir_all(&data).unwrap();
    let file = ContextFile { token_file: Some("token".into()), ..ContextFile::open("https://a".into()) };
    publish(&data, &file, &environment).unwrap();
    let error = format!("{:#}", select(&ServerSelection::default(), &environment).unwrap_err());
    assert!(error.contains("a/token: the token cannot be read: "), "{error}");
    std::fs::write(data.join("token"), "t\n").unwrap();
    let selected = select(&ServerSelection::default(), &environment).unwrap();
    assert!(matches!(selected.context.credential, Credential::Token(token) if token.expose() == "t"));
}

#[test]
fn a_context_is_for_its_owner_only_and_a_broken_one_does_not_show_its_key() {
    let (home, environment) = home();
    let data = home.path().join("a");
    std::fs::create_dir_all(&data).unwrap();
    let file = ContextFile { key: Some("hunter2".into()), ..ContextFile::open("https://a".into()) };
    publish(&data, &file, &environment).unwrap();
    let path = data.join("context.toml");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(&path, "key = \"hunter2\nserver = ").unwrap();
    let error = format!("{:#}", select(&ServerSelection::default(), &environment).unwrap_err());
    assert!(error.contains("not a context file") && !error.contains("hunter2"), "{error}");
}
