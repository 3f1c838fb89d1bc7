//! A file or server that is not a store, or is in use, is rejected at open with one clear sentence, and left
//! untouched.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use api::secret::Secret;
use store::{FeedError, Location, Migrate, Options, Reader, Store};
use testkit::postgres::{self, PostgresOptions};
use testkit::process::{ChildProcess, example_path};
use testkit::{prerequisites, tmpfs};
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on, options};
use crate::fixture::{Folder, Note, assert_sound, close, eventually, written};
use crate::load::Load;
use crate::raw::{self, RawDatabase};

/// Files of a folder, byte for byte, except for the lock file's content.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file() && !entry.path().to_string_lossy().ends_with(".lock"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

/// A folder with a closed store of a few hundred notes.
async fn written_folder() -> Folder {
    let folder = Folder::new();
    let store = folder.open().await;
    for number in 0..50 {
        written(&store, &Note::fresh().saying(format!("{number} ").repeat(400))).await;
    }
    close(store).await;
    folder
}

/// Opening fails with that sentence, for writers and for readers, and nothing in the folder changes.
async fn refused(folder: &Folder, what: &str) {
    let before = contents(folder.path().parent().unwrap());
    let path = folder.path().display().to_string();
    let sentence = what.replace("{path}", &path);
    for options in [folder.options.clone(), Options { migrate: Migrate::Never, ..folder.options.clone() }] {
        let rejection = Store::open(options).await.unwrap_err().to_string();
        assert!(rejection.starts_with(&sentence), "{rejection:?} does not begin with {sentence:?}");
        assert!(!rejection.contains('\n'), "{rejection:?} is more than a line");
    }
    let rejection = Reader::open(folder.options.clone()).await.unwrap_err().to_string();
    assert!(rejection.starts_with(&sentence), "{rejection:?} does not begin with {sentence:?}");
    // Reading a file may leave an empty WAL and its index beside it; everything else is unchanged.
    let mut after = contents(folder.path().parent().unwrap());
    assert!(after.get("store.db-wal").is_none_or(Vec::is_empty), "{what}: something was written");
    after.retain(|name, _| before.contains_key(name));
    assert!(after == before, "{what}: something in the folder changed");
}

#[test]
fn a_damaged_file_is_rejected_and_left_untouched() {
    block_on(async {
        let folder = written_folder().await;
        let whole = std::fs::read(folder.path()).unwrap();
        let pages = whole.len() / 4096;
        assert!(pages > 20);
        // The start of a page describes its rows; damage there is always detected.
        for page in [1, pages / 3, pages / 2, pages - 1] {
            let mut damaged = whole.clone();
            damaged[page * 4096..page * 4096 + 64].iter_mut().for_each(|byte| *byte = !*byte);
            std::fs::write(folder.path(), &damaged).unwrap();
            refused(&folder, "store {path}: is damaged").await;
        }
        let mut damaged = whole.clone();
        damaged[100..200].iter_mut().for_each(|byte| *byte = !*byte);
        std::fs::write(folder.path(), &damaged).unwrap();
        refused(&folder, "store {path}: is damaged").await;
        // Restored, it opens.
        std::fs::write(folder.path(), &whole).unwrap();
        assert_sound(&folder.open().await).await;
    });
}

#[test]
fn no_single_flipped_byte_is_worse_than_a_rejection() {
    block_on(async {
        let folder = written_folder().await;
        let whole = std::fs::read(folder.path()).unwrap();
        let step = whole.len() / crate::environment::short_or_long(40, 4000);
        for place in (0..whole.len()).step_by(step) {
            let mut damaged = whole.clone();
            damaged[place] = !damaged[place];
            std::fs::write(folder.path(), &damaged).unwrap();
            // Within a text damage cannot be detected; anywhere else it is rejected, or found by a check.
            match Store::open(folder.options.clone()).await {
                Ok(store) => {
                    let _ = store.check().await;
                    close(store).await;
                }
                Err(rejection) => {
                    assert!(!rejection.to_string().contains('\n'), "byte {place}: {rejection}");
                    assert!(std::fs::read(folder.path()).unwrap() == damaged, "byte {place}");
                }
            }
            for rest in ["-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{rest}", folder.path().display()));
            }
        }
    });
}

#[test]
fn a_file_that_is_truncated_or_empty_or_not_a_database_is_rejected() {
    block_on(async {
        let folder = written_folder().await;
        let whole = std::fs::read(folder.path()).unwrap();
        let cut = |bytes: usize| std::fs::write(folder.path(), &whole[..bytes]).unwrap();
        cut(whole.len() - 1);
        let sentence = format!(
            "store {{path}}: is truncated: it has {} of its {} bytes; it was left untouched, restore it from a backup",
            whole.len() - 1,
            whole.len()
        );
        refused(&folder, &sentence).await;
        cut(whole.len() / 2);
        refused(&folder, "store {path}: is truncated: it has").await;
        cut(50);
        refused(
            &folder,
            "store {path}: is truncated: 50 bytes are too few for a database; it was left untouched",
        )
        .await;
        cut(0);
        refused(&folder, "store {path}: is truncated: 0 bytes are too few for a database").await;
        std::fs::write(folder.path(), "This is a letter, not a database. ".repeat(200)).unwrap();
        refused(&folder, "store {path}: is not a database; it was left untouched, restore it from a backup")
            .await;
        std::fs::remove_file(folder.path()).unwrap();
        std::fs::create_dir(folder.path()).unwrap();
        refused(&folder, "store {path}: is not a file").await;
    });
}

#[test]
fn a_file_of_another_program_or_a_newer_release_is_rejected() {
    block_on(async {
        let folder = Folder::new();
        let foreign = raw::open(&folder.path());
        foreign.execute_batch("create table letters (text); insert into letters values ('Dear')").unwrap();
        drop(foreign);
        refused(&folder, "store sqlite:{path}: contains tables of another program; use a separate database")
            .await;

        let folder = written_folder().await;
        let file = raw::open(&folder.path());
        file.execute_batch("insert into schema select number + 1, 'next', 'x', 0 from schema where number = (select max(number) from schema)").unwrap();
        // One version is tolerated: the next release may already have migrated.
        close(folder.open().await).await;
        file.execute_batch("insert into schema select number + 1, 'next', 'x', 0 from schema where number = (select max(number) from schema)").unwrap();
        let known: i64 = file.query_row("select max(number) - 2 from schema", [], |row| row.get(0)).unwrap();
        drop(file);
        let sentence = format!(
            "store sqlite:{{path}}: its schema is {}, this release supports up to {known}; run a newer release",
            known + 2
        );
        refused(&folder, &sentence).await;
        let file = raw::open(&folder.path());
        file.execute_batch(
            "delete from schema where number > 1; update schema set checksum = 'other' where number = 1",
        )
        .unwrap();
        drop(file);
        refused(&folder, "store sqlite:{path}: the applied migration 1 differs from the one in this release")
            .await;
    });
}

#[test]
fn a_log_without_its_file_is_not_written_into_a_new_one() {
    block_on(async {
        let folder = written_folder().await;
        let log = folder.file("store.db-wal");
        // As after a crash, after which the file was moved away by hand.
        let store = folder.open().await;
        let note = written(&store, &Note::fresh()).await;
        let (file, left) = (folder.file("copy.db"), std::fs::read(&log).unwrap());
        close(store).await;
        std::fs::rename(folder.path(), &file).unwrap();
        std::fs::write(&log, &left).unwrap();
        let rejection = Store::open(folder.options.clone()).await.unwrap_err().to_string();
        assert_eq!(
            rejection,
            format!(
                "store {}: is missing, but its write-ahead log {} exists; restore the file, or move the log away to create a new store",
                folder.path().display(),
                log.display()
            )
        );
        assert!(!folder.path().exists() && std::fs::read(&log).unwrap() == left);
        // With the WAL moved away, a new store is created; moved back, it is the old one.
        std::fs::rename(&log, folder.file("log")).unwrap();
        let store = folder.open().await;
        assert!(store.get(note.uuid).await.unwrap().is_none());
        close(store).await;
        std::fs::rename(&file, folder.path()).unwrap();
        assert!(folder.open().await.get(note.uuid).await.unwrap().is_some());
    });
}

#[test]
fn a_read_only_file_is_rejected_even_for_root() {
    block_on(async {
        let folder = written_folder().await;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o444)).unwrap();
        let before = contents(folder.path().parent().unwrap());
        let rejection = Store::open(folder.options.clone()).await.unwrap_err().to_string();
        let path = folder.path().display().to_string();
        assert_eq!(
            rejection,
            format!("store {path}: is read-only; it and its directory must be writable by this user")
        );
        assert!(contents(folder.path().parent().unwrap()) == before);
    });
}

#[test]
fn a_place_that_is_not_there_is_named() {
    block_on(async {
        let folder = Folder::new();
        let missing = folder.file("no/such/place");
        let rejection =
            Store::open(options(Location::Sqlite(missing.join("store.db")))).await.unwrap_err().to_string();
        assert_eq!(
            rejection,
            format!("store {}: is not a directory; create it or choose another location", missing.display())
        );
        let rejection = Reader::open(folder.options.clone()).await.unwrap_err().to_string();
        assert_eq!(
            rejection,
            format!("store {}: does not exist; `shipshape up` creates one", folder.path().display())
        );
        assert!(!folder.path().exists());
    });
}

#[test]
fn a_store_is_opened_by_one_process_and_once() {
    block_on(async {
        let folder = Folder::new();
        let store = folder.open().await;
        let rejection = Store::open(folder.options.clone()).await.unwrap_err().to_string();
        let path = folder.path().display().to_string();
        let sentence = |pid: u32| {
            format!(
                "store {path}: is in use by another process (process {pid}); several processes need PostgreSQL"
            )
        };
        assert_eq!(rejection, sentence(std::process::id()));
        // A reader may open it, and sees what is written meanwhile.
        let reader = Reader::open(folder.options.clone()).await.unwrap();
        let note = written(&store, &Note::fresh()).await;
        assert_eq!(reader.get(note.uuid).await.unwrap().unwrap().etag, note.etag);
        reader.close().await;
        close(store).await;

        // Held by another process until that exits, in any way.
        let mut command = std::process::Command::new(example_path("note_writer").unwrap());
        command.arg(folder.path()).arg(folder.file("keys"));
        let mut writer = ChildProcess::start(command).unwrap();
        writer.line(Duration::from_secs(30)).unwrap();
        assert_eq!(
            Store::open(folder.options.clone()).await.unwrap_err().to_string(),
            sentence(writer.pid())
        );
        writer.kill9().unwrap();
        assert_sound(&folder.open().await).await;
    });
}

/// A checkpoint has written the first page, and the process is killed: the header states a greater length than the
/// file has, and everything missing is still in the WAL.
#[test]
fn a_file_whose_folding_of_the_log_was_interrupted_is_whole() {
    block_on(async {
        let folder = Folder::new();
        close(folder.open().await).await;
        let short = std::fs::read(folder.path()).unwrap();
        let store = folder.open().await;
        let mut notes = Vec::new();
        for number in 0..60 {
            notes.push(written(&store, &Note::fresh().saying(format!("{number} ").repeat(400))).await);
        }
        let name = |rest: &str| format!("{}{rest}", folder.path().display());
        let log = std::fs::read(name("-wal")).unwrap();
        close(store).await;
        let long = std::fs::read(folder.path()).unwrap();
        assert!(long.len() > short.len() && !log.is_empty());

        let mut interrupted = short.clone();
        interrupted[..4096].copy_from_slice(&long[..4096]);
        std::fs::write(folder.path(), &interrupted).unwrap();
        std::fs::write(name("-wal"), &log).unwrap();
        let _ = std::fs::remove_file(name("-shm"));
        let store = folder.open().await;
        for note in &notes {
            assert_eq!(store.get(note.uuid).await.unwrap().unwrap().etag, note.etag);
        }
        assert_sound(&store).await;
    });
}

/// The sentence with which a server is rejected; it never contains a password.
async fn server_refusal(url: &str, password: Option<&str>) -> String {
    let password = password.map(|text| Secret::new(text.to_owned()));
    let given = Options { password, ..options(url.parse().unwrap()) };
    assert!(!format!("{given:?}").contains("hunter2"));
    let rejection = Store::open(given.clone()).await.unwrap_err();
    let chain = format!("{rejection} {rejection:?}");
    assert!(!chain.contains("hunter2"), "{chain}");
    assert!(!rejection.to_string().contains('\n'), "{rejection}");
    assert_eq!(Reader::open(given).await.unwrap_err().to_string(), rejection.to_string());
    rejection.to_string()
}

#[test]
fn a_server_that_rejects_or_is_unreachable_is_reported_in_one_sentence() {
    block_on(async {
        let Some(server) = postgres::private(PostgresOptions::default().with_password("hunter2right")) else {
            return prerequisites::skip(prerequisites::POSTGRESQL, "no server binaries were found");
        };
        let port = server.port();
        let url = |user: &str, database: &str| format!("postgres://{user}@127.0.0.1:{port}/{database}");
        let place = format!("store postgres://postgres@127.0.0.1:{port}");
        let error = server_refusal(&url("postgres:hunter2wrong", "postgres"), None).await;
        assert_eq!(error, format!("{place}/postgres: the password of user postgres is wrong"));
        let error = server_refusal(&url("postgres", "postgres"), Some("hunter2wrong")).await;
        assert_eq!(error, format!("{place}/postgres: the password of user postgres is wrong"));
        let error = server_refusal(&url("postgres", "postgres"), None).await;
        assert_eq!(
            error,
            format!("{place}/postgres: user postgres needs a password, but none is configured")
        );
        let error = server_refusal(&url("postgres", "nowhere"), Some("hunter2right")).await;
        assert_eq!(error, format!("{place}/nowhere: there is no database nowhere; create it"));
        let error = server_refusal(&url("postgres:hunter2right", "postgres?sslmode=require"), None).await;
        assert!(error.starts_with(&format!("{place}/postgres: ")), "{error}");

        // A database of another program is rejected, and nothing is added to it.
        let database = server.database().unwrap();
        database.psql("create table letters (text text)").unwrap();
        let error = server_refusal(database.url(), None).await;
        assert_eq!(
            error,
            format!(
                "{place}/{}: contains tables of another program; use a separate database",
                database.name()
            )
        );
        assert_eq!(
            database
                .psql("select count(*) from pg_class where relnamespace = 'public'::regnamespace")
                .unwrap(),
            "1"
        );

        // Read-only: the role may not create tables.
        database.psql("drop table letters; create role reader login password 'hunter2reader'").unwrap();
        let error = Store::open(options(url("reader:hunter2reader", database.name()).parse().unwrap()))
            .await
            .unwrap_err()
            .to_string();
        let place = format!("store postgres://reader@127.0.0.1:{port}/{}", database.name());
        assert_eq!(
            error,
            format!("{place}: migration 1 failed and was rolled back: permission denied for schema public")
        );

        let standby = server.standby().unwrap();
        let error = server_refusal(&standby.url("postgres"), None).await;
        assert!(error.ends_with("is a read-only standby; use the primary"), "{error}");

        // Nothing at that port; no such host.
        drop(standby);
        drop(server);
        let error = server_refusal(&format!("postgres://u:hunter2@127.0.0.1:{port}/d"), None).await;
        assert!(
            error.starts_with(&format!("store postgres://u@127.0.0.1:{port}/d: cannot be reached (")),
            "{error}"
        );
        let error = server_refusal("postgres://u:hunter2@no-such-host.invalid/d", None).await;
        assert!(
            error.starts_with("store postgres://u@no-such-host.invalid/d: cannot be reached ("),
            "{error}"
        );
    });
}

#[test]
fn a_database_of_a_newer_release_is_rejected_and_left_untouched() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let raw = RawDatabase::connect(&env).await;
        raw.execute("insert into schema (number, name, checksum, applied) values (10, 'next', 'x', 0), (11, 'after', 'y', 0)").await;
        let Location::Postgres(url) = &env.options.location else { panic!("it is PostgreSQL") };
        let before = raw.rows("select key, value from meta order by key").await;
        let error = server_refusal(url.expose(), None).await;
        assert!(
            error.ends_with(": its schema is 11, this release supports up to 9; run a newer release"),
            "{error}"
        );
        raw.execute("delete from schema where number > 9; update schema set checksum = 'other'").await;
        let error = server_refusal(url.expose(), None).await;
        assert!(error.ends_with(": the applied migration 1 differs from the one in this release"), "{error}");
        assert_eq!(raw.rows("select key, value from meta order by key").await, before);
    });
}

#[test]
fn a_new_store_on_a_full_disk_fails_and_can_be_created_later() {
    block_on(async {
        let Some(disk) = tmpfs::SmallDisk::new(4 << 20) else {
            return prerequisites::skip(prerequisites::SMALL_DISK, "this user may not mount a tmpfs");
        };
        let filler = disk.path().join("filler");
        let mut left = 4 << 20;
        while left > 0 && std::fs::write(&filler, vec![1; left]).is_err() {
            left -= 4096;
        }
        let place = options(Location::Sqlite(disk.path().join("store.db")));
        let rejection = Store::open(place.clone()).await.unwrap_err().to_string();
        assert!(!rejection.contains('\n'), "{rejection}");
        std::fs::remove_file(&filler).unwrap();
        let store = Store::open(place).await.unwrap();
        written(&store, &Note::at(&Uuid::new_v4().to_string())).await;
        assert_sound(&store).await;
    });
}

#[test]
fn a_position_of_a_later_time_is_gone_after_an_older_copy_was_put_in_place() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let place = options(Location::Sqlite(directory.path().join("store.db")));
        let copy = directory.path().join("copy.db");
        let store = Store::open(place.clone()).await.unwrap();
        written(&store, &Note::at("before")).await;
        store.backup(&copy).await.unwrap();
        written(&store, &Note::at("after")).await;
        let position = store.feed_end().await.unwrap();
        assert!(store.feed_after(position, 10).await.unwrap().changes.is_empty());
        store.close().await;
        std::fs::rename(&copy, directory.path().join("store.db")).unwrap();
        let store = Store::open(place).await.unwrap();
        assert!(matches!(store.feed_after(position, 10).await, Err(FeedError::Gone { .. })));
    });
}

#[test]
fn the_wal_is_checkpointed_during_writes() {
    block_on(async {
        let env = TestEnvironment::sqlite().await;
        let Location::Sqlite(path) = &env.options.location else { unreachable!("a file") };
        let load = Load::start(&env.store, 8, 30_000).await;
        let mut longest = 0;
        // Some 150 MB of WAL, were it never checkpointed.
        for _ in 0..10 {
            load.answers(500).await;
            longest = longest.max(std::fs::metadata(path.with_extension("db-wal")).unwrap().len());
        }
        load.settle(&env.store, Duration::from_secs(30)).await;
        assert!(longest > 4 << 20, "there was no log to fold: {longest} bytes");
        assert!(longest < 100 << 20, "the log grew to {longest} bytes");
    });
}

#[test]
fn an_idle_store_has_everything_in_its_file() {
    block_on(async {
        let env = TestEnvironment::sqlite().await;
        let last = written(&env.store, &Note::fresh()).await;
        let alone = tempfile::tempdir().unwrap();
        let copy = alone.path().join("store.db");
        eventually("the log is folded", async || {
            // By another process: closing the file in this one releases its locks.
            let copied = std::process::Command::new("cp").args([env.path(), copy.clone()]).status().unwrap();
            assert!(copied.success());
            let file = rusqlite::Connection::open(&copy).unwrap();
            let found = "select count(*) from documents where uuid = ?1";
            file.query_row(found, [last.uuid], |row| row.get::<_, i64>(0)).ok().filter(|count| *count == 1)
        })
        .await;
    });
}
