//! Accepted values, precedence and error messages.

use cli::Environment;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use api::duration::TimeSpan;

use super::*;

/// A configuration under test: a file, variables and flags, on top of a home directory.
#[derive(Default)]
struct ConfigSources {
    file: Option<String>,
    variables: Vec<(&'static str, &'static str)>,
    flags: Vec<Flag>,
}

impl ConfigSources {
    fn file(text: &str) -> ConfigSources {
        ConfigSources { file: Some(text.to_owned()), ..ConfigSources::default() }
    }

    fn variable(mut self, name: &'static str, value: &'static str) -> ConfigSources {
        self.variables.push((name, value));
        self
    }

    fn set(mut self, text: &str) -> ConfigSources {
        self.flags.push(Flag::Set(text.to_owned()));
        self
    }

    fn flag(mut self, flag: &'static str, key: &'static str, value: &str) -> ConfigSources {
        self.flags.push(Flag::Named { flag, key, value: value.to_owned() });
        self
    }

    /// Loads it; the path of the file appears as `F` in sentences.
    fn load(&self) -> Result<Loaded, Vec<String>> {
        let directory = tempfile::tempdir().unwrap();
        let path: Option<PathBuf> = self.file.as_ref().map(|text| {
            let path = directory.path().join("config.toml");
            std::fs::write(&path, text).unwrap();
            path
        });
        let mut variables = vec![("HOME", "/home/me")];
        variables.extend(&self.variables);
        load(path.as_deref(), &Environment::from_iter(variables), &self.flags).map_err(|errors| {
            let shorten = |sentence: &String| match &path {
                Some(path) => sentence.replace(path.to_str().unwrap(), "F"),
                None => sentence.clone(),
            };
            errors.sentences().iter().map(shorten).collect()
        })
    }

    fn config(&self) -> Config {
        self.load().unwrap().config
    }

    fn sentences(&self) -> Vec<String> {
        self.load().map(|loaded| loaded.config).unwrap_err()
    }

    fn sentence(&self) -> String {
        let sentences = self.sentences();
        assert_eq!(sentences.len(), 1, "{sentences:#?}");
        sentences.into_iter().next().unwrap()
    }
}

#[test]
fn without_anything_the_defaults_hold() {
    let config = ConfigSources::default().config();
    assert_eq!(config.data_dir.to_string(), "/home/me/.local/share/shipshape");
    assert_eq!(config.store.url.to_string(), "sqlite:/home/me/.local/share/shipshape/shipshape.db");
    assert_eq!(config.store.key_file.to_string(), "/home/me/.local/share/shipshape/keys");
    assert_eq!((config.store.connections, config.store.migrate), (8, Migrate::Auto));
    assert_eq!(config.health.listen.to_string(), "127.0.0.1:8446");
    assert_eq!(config.shutdown_deadline, TimeSpan::seconds(30));
    assert_eq!(config.retention.audit, TimeSpan::days(400));
}

#[test]
fn paths_inside_the_data_directory_follow_it() {
    let sources = ConfigSources::default().variable("XDG_DATA_HOME", "/data");
    assert_eq!(sources.config().data_dir.to_string(), "/data/shipshape");
    let sources = sources.flag("--data-dir", "data_dir", "/srv/ship/").set("store.key_file=/etc/keys");
    let config = sources.config();
    assert_eq!(config.store.url.to_string(), "sqlite:/srv/ship/shipshape.db");
    assert_eq!(config.store.key_file.to_string(), "/etc/keys");
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let mut sources = ConfigSources::default();
    let connections = |sources: &ConfigSources| sources.config().store.connections;
    assert_eq!(connections(&sources), 8);
    sources.file = Some("[store]\nconnections = 3".to_owned());
    assert_eq!(connections(&sources), 3);
    let sources = sources.variable("SHIPSHAPE_STORE_CONNECTIONS", "4");
    assert_eq!(connections(&sources), 4);
    let sources = sources.set("store.connections=5").set("store.connections=6");
    assert_eq!(connections(&sources), 6);
    let sources = sources.flag("--connections", "store.connections", "7");
    assert_eq!(connections(&sources), 7);
}

#[test]
fn text_is_converted_to_the_type_of_the_setting() {
    let sources = ConfigSources::default()
        .variable("SHIPSHAPE_TELEMETRY_SERVICE_NAME", "42")
        .variable("SHIPSHAPE_TELEMETRY_SAMPLE_RATIO", "0.25")
        .variable("SHIPSHAPE_RETENTION_FEED", "3d")
        .set("telemetry.otlp_endpoint=http://collector:4318/");
    let config = sources.config();
    assert_eq!(config.telemetry.service_name.as_str(), "42");
    assert_eq!(config.telemetry.sample_ratio, 0.25);
    assert_eq!(config.retention.feed, TimeSpan::days(3));
    assert_eq!(config.telemetry.otlp_endpoint.unwrap().traces_url(), "http://collector:4318/v1/traces");
}

#[test]
fn every_setting_rejects_nonsense_and_names_the_accepted_values() {
    let check = |key: &str, value: &str, accepted: &str| {
        let sentence = ConfigSources::default().set(&format!("{key}={value}")).sentence();
        assert!(sentence.starts_with(key), "{sentence}");
        assert!(sentence.contains("(flag --set): "), "{sentence}");
        assert!(sentence.contains(accepted), "{key}={value}: {sentence}");
    };
    check("data_dir", "", "expected a path, but it is empty");
    check("data_dir", "~/ship", "only a shell replaces the ~");
    check("shutdown_deadline", "0s", "from 1s to 1h");
    check("shutdown_deadline", "-5s", "must not be negative");
    check("store.url", "mysql://db", "expected sqlite:PATH or postgres://");
    check("store.url", "sqlite:", "it is empty");
    check("store.url", "sqlite::memory:", "lose its content");
    check("store.url", "sqlite:///x.db", "a plain path");
    check("store.url", "postgres://", "the host is missing");
    check("store.url", "postgres://db:port/x", "the port is not a number from 1 to 65535");
    check("store.url", "postgres://db:99999/x", "the port is not a number from 1 to 65535");
    check("store.url", "postgres://db /x", "must not contain spaces");
    check("store.connections", "1", "a whole number from 2 to 64");
    check("store.connections", "65", "a whole number from 2 to 64");
    check("store.connections", "8.5", "a whole number from 2 to 64");
    check("store.connections", "many", "a whole number from 2 to 64");
    check("store.migrate", "yes", "expected auto or never");
    check("health.listen", "8446", "an IP address and a port, such as 127.0.0.1:8446");
    check("health.listen", "127.0.0.1:70000", "an IP address and a port");
    check("log.format", "xml", "expected text or json");
    check("log.level", "inof", "expected off, error, warn, info, debug or trace");
    check("log.level", "", "expected off, error, warn, info, debug or trace");
    check("log.level", "store=loud", "expected off, error, warn, info, debug or trace");
    check("telemetry.otlp_endpoint", "collector:4317", "expected the http or https URL of a collector");
    check("telemetry.otlp_endpoint", "http://me@collector", "without user or password");
    check("telemetry.service_name", "", "a name of 1 to 255 printable characters");
    check("telemetry.sample_ratio", "1.5", "a number from 0 to 1");
    check("telemetry.sample_ratio", "nan", "a number from 0 to 1");
    check("retention.feed", "59m", "at least 1h");
    check("retention.feed", "forever", "such as 90s, 30m, 1h30m, 500ms or 7d");
}

#[test]
fn accepted_spellings_are_accepted() {
    let check = |text: &str| assert!(ConfigSources::default().set(text).load().is_ok(), "{text}");
    check("store.url=sqlite:relative.db");
    check("store.url=postgresql://db/x");
    check("store.url=postgres://u:p%40w@[::1]:5432/x?sslmode=require");
    check("store.url=postgres://a:1,b:2/x");
    check("store.url=postgres:///x?host=/run/postgresql");
    check("log.level=off");
    check("log.level=warn,store=debug,shipshape::admin=trace");
    check("health.listen=[::]:0");
    check("telemetry.sample_ratio=0");
}

#[test]
fn an_error_names_key_value_and_origin() {
    let sources = ConfigSources::file("\n[store]\nconnections = 1\n");
    assert_eq!(sources.sentence(), "store.connections = 1 (F line 3): expected a whole number from 2 to 64");
    let sources = ConfigSources::default().variable("SHIPSHAPE_LOG_FORMAT", "xml");
    assert_eq!(
        sources.sentence(),
        "log.format = \"xml\" (environment variable SHIPSHAPE_LOG_FORMAT): expected text or json"
    );
    let sources = ConfigSources::default().flag("--log-format", "log.format", "xml");
    assert_eq!(sources.sentence(), "log.format = \"xml\" (flag --log-format): expected text or json");
}

#[test]
fn unknown_names_are_rejected_with_the_nearest_known() {
    assert_eq!(
        ConfigSources::file("[store]\n\nconections = 3").sentence(),
        "unknown key store.conections (F line 3); the nearest known key is store.connections"
    );
    assert_eq!(
        ConfigSources::default().variable("SHIPSHAPE_STORE_ULR", "x").sentence(),
        "unknown environment variable SHIPSHAPE_STORE_ULR; the nearest known one is SHIPSHAPE_STORE_URL"
    );
    assert_eq!(
        ConfigSources::default().set("heath.listen=x").sentence(),
        "unknown key heath.listen (flag --set); the nearest known key is health.listen"
    );
    assert_eq!(ConfigSources::file("store = 3").sentence(), "store (F line 1) is a section; write [store]");
    assert_eq!(
        ConfigSources::default().set("store=x").sentence(),
        "store (flag --set) is a section; name a setting in it"
    );
    assert!(ConfigSources::default().set("log.level").sentence().contains("expected KEY=VALUE"));
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let sources = ConfigSources::file(
        "shutdown_deadline = 30\nnonsense = 1\n[log]\nformat = \"xml\"\n[retention]\nfeed = \"1s\"\n",
    )
    .variable("SHIPSHAPE_STORE_CONNECTIONS", "0")
    .variable("SHIPSHAPE_TYPO", "0")
    .set("health.listen=here")
    .set("store.ca_file=/ca.pem");
    let sentences = sources.sentences();
    for part in [
        "unknown key nonsense (F line 2)",
        "unknown environment variable SHIPSHAPE_TYPO",
        "health.listen = \"here\"",
        "log.format = \"xml\" (F line 4)",
        "retention.feed = \"1s\" (F line 6)",
        "shutdown_deadline = 30 (F line 1): invalid type: integer `30`, expected a duration as text",
        "store.connections = \"0\"",
        "store.ca_file = \"/ca.pem\" (flag --set) is for PostgreSQL only",
    ] {
        assert!(sentences.iter().any(|sentence| sentence.starts_with(part)), "{part} in {sentences:#?}");
    }
    assert_eq!(sentences.len(), 8, "{sentences:#?}");
}

#[test]
fn a_broken_file_is_reported_by_line_and_without_its_text() {
    let sentences =
        ConfigSources::file("[store]\nurl = \"postgres://me:hunter2@db/x\n[log]\nformat = \"xml\"\n")
            .sentences();
    assert!(sentences[0].starts_with("F line 2 is not TOML: "), "{sentences:#?}");
    assert!(!sentences.join(" ").contains("hunter2"), "{sentences:#?}");
    let sentences = ConfigSources::file("[log]\nlevel = \"info\"\nlevel = \"warn\"\n").sentences();
    assert!(sentences[0].starts_with("F line 3 is not TOML: duplicate key"), "{sentences:#?}");
}

#[test]
fn a_configured_file_must_exist() {
    let environment = Environment::from_iter([("HOME", "/home/me"), ("SHIPSHAPE_CONFIG", "/nowhere.toml")]);
    let errors = load(None, &environment, &[]).unwrap_err();
    let expected =
        "the configuration file /nowhere.toml (SHIPSHAPE_CONFIG) cannot be read: it does not exist";
    assert_eq!(errors.sentences(), [expected]);
    let errors = load(Some("/".as_ref()), &environment, &[]).unwrap_err();
    assert!(
        errors.to_string().starts_with("the configuration file / (--config) cannot be read: "),
        "{errors}"
    );
}

#[test]
fn the_usual_file_is_read_if_it_exists() {
    let home = tempfile::tempdir().unwrap();
    let environment = Environment::from_iter([("HOME", home.path())]);
    assert_eq!(load(None, &environment, &[]).unwrap().file, None);
    let directory = home.path().join(".config/shipshape");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("config.toml"), "log.level = \"debug\"").unwrap();
    let loaded = load(None, &environment, &[]).unwrap();
    assert_eq!(loaded.file, Some(directory.join("config.toml")));
    assert!(loaded.to_toml(true).unwrap().contains("level = \"debug\"  # "), "{loaded:?}");
}

#[test]
fn without_a_home_directory_the_data_directory_must_be_set() {
    let errors = load(None, &Environment::default(), &[]).unwrap_err();
    assert!(errors.to_string().starts_with("data_dir is not set"), "{errors}");
    let flag = Flag::Set("data_dir=/srv".to_owned());
    assert!(load(None, &Environment::default(), &[flag]).is_ok());
}

#[test]
fn a_value_that_is_not_text_is_rejected() {
    let log_level = OsStr::from_bytes(b"\xff");
    let environment =
        Environment::from_iter([("HOME", OsStr::new("/home/me")), ("SHIPSHAPE_LOG_LEVEL", log_level)]);
    let errors = load(None, &environment, &[]).unwrap_err();
    let expected = "log.level (environment variable SHIPSHAPE_LOG_LEVEL): the value is not UTF-8 text";
    assert_eq!(errors.sentences(), [expected]);
}

#[test]
fn an_old_key_is_accepted_and_the_new_one_is_named() {
    let new = ConfigSources::file("[clusters]\nlocations = [\"eastus\"]\nzone = \"clusters.example\"\n")
        .load()
        .unwrap();
    assert_eq!(new.config.frontend().locations, ["eastus"]);
    assert_eq!(new.config.frontend().zone.as_deref(), Some("clusters.example"));
    assert!(new.renamed().is_empty());

    let old = ConfigSources::file("[frontend]\nlocations = [\"eastus\"]\nallow_kubeconfig = [\"exec\"]\n")
        .variable("SHIPSHAPE_FRONTEND_ZONE", "clusters.example")
        .load()
        .unwrap();
    assert_eq!(old.config.clusters.locations, ["eastus"]);
    assert_eq!(old.config.clusters.zone.as_deref(), Some("clusters.example"));
    assert_ne!(old.config.clusters.allow_kubeconfig, ClustersConfig::default().allow_kubeconfig);
    let summary = old.summary();
    assert!(summary.contains("line 2) is now called clusters.locations\n"), "{summary}");
    assert!(summary.contains("line 3) is now called clusters.allow_kubeconfig\n"), "{summary}");
    assert!(
        summary.contains(
            "frontend.zone (environment variable SHIPSHAPE_FRONTEND_ZONE) is now called clusters.zone\n"
        ),
        "{summary}"
    );
    let set = ConfigSources::default().set("frontend.zone=a.example").config();
    assert_eq!(set.clusters.zone.as_deref(), Some("a.example"));
}

#[test]
fn a_setting_under_its_old_and_its_new_key_is_rejected_in_one_layer_only() {
    let both = "[clusters]\nzone = \"a.example\"\n[frontend]\nzone = \"b.example\"\n";
    let sentence = ConfigSources::file(both).sentence();
    assert!(sentence.starts_with("clusters.zone is set twice, by its old and its new name ("), "{sentence}");
    let sources = ConfigSources::file("[clusters]\nzone = \"a.example\"\n")
        .variable("SHIPSHAPE_FRONTEND_ZONE", "b.example");
    assert_eq!(sources.config().clusters.zone.as_deref(), Some("b.example"), "a variable wins over the file");
}

#[test]
fn settings_that_exclude_each_other_are_rejected() {
    let sentence = ConfigSources::default()
        .set("store.url=postgres://me:hunter2@db/x")
        .variable("SHIPSHAPE_STORE_PASSWORD_FILE", "/run/password")
        .sentence();
    assert!(
        sentence.starts_with("store.url (flag --set) contains a password, and store.password_file"),
        "{sentence}"
    );
    assert!(!sentence.contains("hunter2"), "{sentence}");
}

#[test]
fn a_password_is_never_printed() {
    let check = |url: &str, shown: &str| {
        let loaded = ConfigSources::default().set(&format!("store.url={url}")).load().unwrap();
        assert_eq!(loaded.config.store.url.to_string(), shown);
        for text in [loaded.to_toml(true), loaded.to_json(true), Ok(format!("{:?}", loaded.config))] {
            assert!(!text.as_ref().unwrap().contains("hunter2"), "{text:?}");
        }
    };
    check("postgres://me:hunter2@db/x", "postgres://me:***@db/x");
    check("postgres://me:a@hunter2@db/x", "postgres://me:***@db/x");
    check("postgres://me@db/x?password=hunter2", "postgres://me@db/x?password=***");
    check("postgres://me@db/x?a=b&sslpassword=hunter2&c=d", "postgres://me@db/x?a=b&sslpassword=***&c=d");
    for value in ["hunter2==", "=hunter2", "a=b=hunter2", "hunter2?password", "password=hunter2"] {
        check(&format!("postgres://me@db/x?password={value}"), "postgres://me@db/x?password=***");
        check(
            &format!("postgres://me@db/x?a=b&PassWord={value}&c=d"),
            "postgres://me@db/x?a=b&PassWord=***&c=d",
        );
    }
    check("postgres://me:hunter2==@db/x", "postgres://me:***@db/x");
    check("postgres://me@db:5432/x?password=a@hunter2", "postgres://me@db:5432/x?password=***");
    check("postgres://me:hunter2password=x@db/x", "postgres://me:***@db/x");
    check("postgres://me@db/x", "postgres://me@db/x");

    let rejected = |text: &str| {
        let sentence = ConfigSources::default().set(text).sentence();
        assert!(!sentence.contains("hunter2"), "{sentence}");
    };
    rejected("store.url=postgres//me:hunter2@db/x");
    rejected("store.url=hunter2");
    rejected("store.url=postgres://me:hunter2/more@db/x");
    rejected("store.url=postgres://me:hunter2 @db/x");
    rejected("store.url=postgres://me:a?hunter2@db/x");
    rejected("store.ulr=postgres://me:a?hunter2@db/x");
    rejected("store.url=mysql:hunter2");
    rejected("store.ulr=postgres://me:hunter2@db/x");
    rejected("store.url:postgres://me:hunter2@db/x");
    rejected("telemetry.otlp_endpoint=https://me:hunter2@collector");
    let sentence = ConfigSources::file("store = \"postgres://me:hunter2@db/x\"").sentence();
    assert!(!sentence.contains("hunter2"), "{sentence}");
}

#[test]
fn shown_settings_load_to_the_same_configuration() {
    let sources = ConfigSources::default()
        .set("log.level=info,store=debug")
        .set("telemetry.otlp_endpoint=https://c:4318");
    let shown = sources.load().unwrap().to_toml(true).unwrap();
    assert_eq!(ConfigSources::file(&shown).config(), sources.config(), "{shown}");
}

#[test]
fn every_setting_has_a_variable_of_its_own() {
    let keys = keys::Keys::for_type::<Config>();
    let names: std::collections::BTreeSet<String> = keys.settings().map(layers::variable).collect();
    assert_eq!(names.len(), keys.settings().count());
}
