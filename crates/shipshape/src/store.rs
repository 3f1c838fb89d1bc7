//! `shipshape store`: maintenance of the store.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use store::AuditContext;

use crate::config::{Config, Migrate};
use crate::open_store;
use cli::output;

/// Commands of the store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Verify all invariants of the store without repairing anything; may run beside a running process
    Check {
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: Form,
    },
    /// Migrate the schema to the newest version
    Migrate,
    /// Copy an SQLite store into a new file while it is in use
    Backup {
        /// The new file
        target: PathBuf,
    },
    /// Write everything as lines of JSON for an import; no other process may use the store meanwhile
    Export {
        /// The new file; - for standard output
        target: PathBuf,
    },
    /// Read an export into an empty store (give its URL with --store)
    Import {
        /// The file that export wrote; - for standard input
        source: PathBuf,
    },
    /// Reseal every secret with another key
    RotateKey {
        /// A key of the key file; a new one is created when absent
        #[arg(long, value_name = "KEY")]
        to: Option<String>,
        /// Keep the old keys in the key file
        #[arg(long)]
        keep_old: bool,
    },
}

/// For people, or for programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people
    #[default]
    Text,
    /// JSON
    Json,
}

/// Carries out what was asked.
pub(crate) async fn run(command: &StoreCommand, config: &Config) -> anyhow::Result<()> {
    match command {
        StoreCommand::Check { output } => check(*output, config).await,
        StoreCommand::Migrate => migrate(config).await,
        StoreCommand::Backup { target } => backup(target, config).await,
        StoreCommand::Export { target } => export(target, config).await,
        StoreCommand::Import { source } => import(source, config).await,
        StoreCommand::RotateKey { to, keep_old } => rotate_key(to.as_deref(), *keep_old, config).await,
    }
}

async fn check(form: Form, config: &Config) -> anyhow::Result<()> {
    let reader = open_store::open_reader(&config.store).await?;
    let findings = reader.check().await;
    let place = reader.location();
    reader.close().await;
    let findings = findings?;
    let broken = findings.iter().filter(|finding| !finding.faults.is_empty()).count();
    let text = match form {
        Form::Json => {
            let promises: Vec<_> = findings
                .iter()
                .map(|it| json!({ "promise": it.invariant, "kept": it.faults.is_empty(), "faults": it.faults }))
                .collect();
            format!("{:#}\n", json!({ "store": place, "broken": broken, "promises": promises }))
        }
        Form::Text => {
            let mut text = format!("{place}\n");
            for finding in &findings {
                let mark = if finding.faults.is_empty() { "ok    " } else { "BROKEN" };
                text += &format!("  {mark}  {}\n", finding.invariant);
                for fault in &finding.faults {
                    text += &format!("            {fault}\n");
                }
            }
            text
        }
    };
    output::show(&text)?;
    match broken {
        0 => Ok(()),
        broken => bail!("store check: {broken} of {} promises are broken", findings.len()),
    }
}

async fn migrate(config: &Config) -> anyhow::Result<()> {
    open_store::ensure_directories(config)?;
    let before = open_store::schema(&config.store).await?;
    let mut migrating = config.store.clone();
    migrating.migrate = Migrate::Auto;
    let store = open_store::open_store(&migrating).await?;
    let place = store.location();
    store.close().await;
    output::show(&match before.found {
        found if found >= before.known => format!("{place}: schema {found} is up to date\n"),
        found => format!("{place}: schema migrated from {found} to {}\n", before.known),
    })
}

async fn backup(target: &Path, config: &Config) -> anyhow::Result<()> {
    if target.exists() {
        bail!("backup {}: already exists; pass another name", target.display());
    }
    let reader = open_store::open_reader(&config.store).await?;
    let written = reader.backup(target).await;
    reader.close().await;
    written?;
    let bytes = std::fs::metadata(target).map_or(0, |it| it.len());
    output::show(&format!(
        "{}: {bytes} bytes; keep a copy of the key file {} too, in another place\n",
        target.display(),
        config.store.key_file
    ))
}

async fn export(target: &Path, config: &Config) -> anyhow::Result<()> {
    let to_stdout = target == Path::new("-");
    if !to_stdout && target.exists() {
        bail!("export {}: already exists; pass another name", target.display());
    }
    if open_store::schema(&config.store).await?.found == 0 {
        bail!("export: no store at {}", config.store.url);
    }
    let store = open_store::open_store(&config.store).await?;
    let counts = if to_stdout {
        store.export(&mut std::io::stdout()).await.map_err(anyhow::Error::from)
    } else {
        export_to_file(target, &store).await
    };
    store.close().await;
    let summary = counts_text(&counts?);
    if to_stdout { Ok(()) } else { output::show(&format!("{}: {summary}\n", target.display())) }
}

/// The file appears when it is complete.
async fn export_to_file(target: &Path, store: &store::Store) -> anyhow::Result<store::TransferCounts> {
    let mut part = target.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let unwritten = || format!("export {}: cannot be written", target.display());
    // Readable by its owner only, since it contains the whole store. A file left by an interrupted export may belong to anybody.
    let _ = std::fs::remove_file(&part);
    let file = File::options().write(true).create_new(true).mode(0o600).open(&part);
    let mut file = BufWriter::new(file.with_context(unwritten)?);
    let counts = store.export(&mut file).await;
    let finished = file.flush().and_then(|()| file.get_ref().sync_all());
    let counts = match (counts, finished) {
        (Ok(counts), Ok(())) => counts,
        (counts, finished) => {
            let _ = std::fs::remove_file(&part);
            counts?;
            return Err(finished.err().unwrap_or_else(|| std::io::Error::other("unfinished")))
                .with_context(unwritten);
        }
    };
    std::fs::rename(&part, target).with_context(unwritten)?;
    Ok(counts)
}

async fn import(source: &Path, config: &Config) -> anyhow::Result<()> {
    // An export is sealed with the keys of its store; a new key could not open it.
    if !config.store.key_file.as_ref().exists() {
        bail!(
            "import: the key file {} does not exist; copy the key file of the exported store there, or pass it with --set store.key_file=FILE",
            config.store.key_file
        );
    }
    let store = open_store::open_store(&config.store).await?;
    let counts = if source == Path::new("-") {
        store.import(&mut BufReader::new(std::io::stdin())).await
    } else {
        let opened =
            File::open(source).with_context(|| format!("import {}: cannot be read", source.display()));
        match opened {
            Ok(file) => store.import(&mut BufReader::new(file)).await,
            Err(error) => {
                store.close().await;
                return Err(error);
            }
        }
    };
    let place = store.location();
    store.close().await;
    output::show(&format!("{place}: {}\n", counts_text(&counts?)))
}

fn counts_text(counts: &store::TransferCounts) -> String {
    let parts: Vec<String> = counts.iter().map(|(table, count)| format!("{count} {table}")).collect();
    parts.join(", ")
}

async fn rotate_key(to: Option<&str>, keep_old: bool, config: &Config) -> anyhow::Result<()> {
    if open_store::schema(&config.store).await?.found == 0 {
        bail!("rotate-key: no store at {}", config.store.url);
    }
    let store = open_store::open_store(&config.store).await?;
    let rotated = async {
        let rotation = store.rotate_key(to, &AuditContext::service("rotate-key")).await?;
        if !keep_old {
            store.remove_old_keys().await?;
        }
        Ok::<_, store::StoreError>(rotation)
    };
    let rotated = rotated.await;
    store.close().await;
    let rotation = rotated?;
    let old = if keep_old { "the old keys are kept in" } else { "the old keys were removed from" };
    output::show(&format!(
        "key {} is current ({} secrets sealed again); {old} {}\n",
        rotation.key_id, rotation.resealed, config.store.key_file
    ))
}
