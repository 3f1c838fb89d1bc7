//! `shipshape version list` and `set`: the versions of OpenShift that clusters can be installed with.

use anyhow::Context as _;
use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use client::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::print::{Output, Printable};
use super::table::{Column, View, Width};
use super::{Connect, Invocation, complete};

/// Commands of versions.
#[derive(Debug, Subcommand)]
pub enum VersionCommand {
    /// List the versions that clusters can be installed with, including disabled ones
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Add a version or change it
    Set {
        /// The version, such as 4.17.3
        #[arg(add = ArgValueCandidates::new(complete::versions))]
        version: String,
        /// The release image
        #[arg(long, value_name = "IMAGE")]
        pullspec: Option<String>,
        /// The installer's image
        #[arg(long, value_name = "IMAGE")]
        installer_pullspec: Option<String>,
        /// Offer it to customers
        #[arg(long, conflicts_with = "disable")]
        enable: bool,
        /// Do not offer it to customers
        #[arg(long)]
        disable: bool,
        /// Make it the default version
        #[arg(long, conflicts_with = "disable")]
        default: bool,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
}

/// A version, as operators see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct VersionResource {
    properties: Properties,
}

/// Properties of a version.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Properties {
    version: String,
    open_shift_pullspec: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    installer_pullspec: Option<String>,
    enabled: bool,
    #[serde(rename = "default")]
    is_default: bool,
}

/// Runs the command.
pub async fn run(command: &VersionCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        VersionCommand::List { output, connect } => {
            output.print_list(invocation, &versions(&invocation.client(connect)?).await?)
        }
        VersionCommand::Set {
            version,
            pullspec,
            installer_pullspec,
            enable,
            disable,
            default,
            output,
            connect,
        } => {
            let client = invocation.client(connect)?;
            let before = versions(&client).await?.into_iter().find(|it| it.properties.version == *version);
            let mut properties = before.map(|it| it.properties).unwrap_or_else(|| Properties {
                version: version.clone(),
                enabled: true,
                ..Properties::default()
            });
            if let Some(pullspec) = pullspec {
                properties.open_shift_pullspec.clone_from(pullspec);
            }
            if let Some(installer) = installer_pullspec {
                properties.installer_pullspec = Some(installer.clone());
            }
            properties.enabled = (properties.enabled || *enable || *default) && !disable;
            properties.is_default = properties.is_default || *default;
            let body = serde_json::to_value(VersionResource { properties })?;
            let stored = client.set_version(&body).await.with_context(|| format!("version {version}"))?;
            let did = if stored.is_created() { "created" } else { "changed" };
            output.print_change(invocation, &read(stored.value)?, did)
        }
    }
}

async fn versions(client: &Client) -> anyhow::Result<Vec<VersionResource>> {
    client.versions().all().await?.into_iter().map(read).collect()
}

fn read(value: Value) -> anyhow::Result<VersionResource> {
    serde_json::from_value(value)
        .context("the response of the server contains a version in an unknown format")
}

impl Printable for VersionResource {
    const KIND: &'static str = "version";
    const COLUMNS: &'static [Column] = &[
        Column("VERSION", Width::Always),
        Column("ENABLED", Width::Always),
        Column("DEFAULT", Width::Always),
        Column("RELEASE IMAGE", Width::Wide),
        Column("INSTALLER IMAGE", Width::Wide),
    ];

    fn name(&self) -> String {
        self.properties.version.clone()
    }

    fn cells(&self, _view: &View) -> Vec<String> {
        let yes_or_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let it = &self.properties;
        vec![
            it.version.clone(),
            yes_or_no(it.enabled),
            yes_or_no(it.is_default),
            it.open_shift_pullspec.clone(),
            it.installer_pullspec.clone().unwrap_or_default(),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let names = ["Version", "Enabled", "Default", "Release image", "Installer image"];
        names.into_iter().zip(self.cells(view)).collect()
    }
}
