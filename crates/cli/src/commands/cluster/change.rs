//! `shipshape cluster update` and `delete`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use serde_json::{Map, Value, json};

use super::super::confirm::Confirm;
use super::super::find;
use super::super::input;
use super::super::labels::LabelChange;
use super::super::operation::{self, Wait};
use super::super::print::Output;
use super::super::{Connect, Invocation, complete};
use super::create::{read_secret, with_remedy};
use super::{import, require_created_here};

/// Flags of `shipshape cluster update`.
#[derive(Debug, Args)]
pub struct UpdateFlags {
    /// The cluster, by its name or resource id
    #[arg(add = ArgValueCandidates::new(complete::clusters))]
    cluster: String,
    /// KEY=VALUE sets a tag, KEY- removes it; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE|KEY-")]
    tags: Vec<LabelChange>,
    /// Number of public IP addresses for outbound traffic
    #[arg(long, value_name = "N")]
    managed_outbound_ips: Option<u32>,
    /// A new principal, by its client id
    #[arg(long, value_name = "ID", requires = "client_secret_file")]
    client_id: Option<String>,
    /// A file with the principal's secret; - for standard input
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
    /// Change nothing, only reconcile the cluster
    #[arg(long)]
    reconcile: bool,
    /// A file with the body of the request, as JSON or YAML; - for standard input
    #[arg(
        short = 'f', long = "filename", value_name = "FILE",
        conflicts_with_all = ["tags", "managed_outbound_ips", "client_id", "client_secret_file", "reconcile"]
    )]
    file: Option<PathBuf>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Flags of `shipshape cluster delete`.
#[derive(Debug, Args)]
pub struct DeleteFlags {
    /// The cluster, by its name or resource id
    #[arg(add = ArgValueCandidates::new(complete::clusters))]
    cluster: String,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Updates a cluster.
pub(super) async fn update(flags: &UpdateFlags, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let client = invocation.client(&flags.connect)?;
    let cluster = find::cluster(&client, &flags.cluster).await?;
    let cluster =
        require_created_here(cluster, "only its labels can be changed: run `shipshape cluster label`")?;
    let name = cluster.name.clone();
    let patch = match &flags.file {
        Some(file) => input::read_file(file)?.value,
        None => {
            let tags = match flags.tags.is_empty() {
                true => None,
                // An update replaces all tags, so the current ones are read first.
                false => {
                    let resource =
                        client.resource(&cluster.id).await.map_err(|error| with_remedy(error, &name))?;
                    Some(import::changed(read_tags(&resource.value), &flags.tags))
                }
            };
            flags.patch(tags)?
        }
    };
    let accepted =
        client.patch_resource(&cluster.id, &patch).await.map_err(|error| with_remedy(error, &name))?;
    operation::report_started(&client, invocation, &accepted.operation, &name, "update", &flags.wait).await?;
    let cluster = client.cluster(&cluster.id).await?.value;
    flags.output.print_change(
        invocation,
        &cluster,
        if flags.wait.is_set() { "updated" } else { "is being updated" },
    )
}

impl UpdateFlags {
    fn patch(&self, tags: Option<BTreeMap<String, String>>) -> anyhow::Result<Value> {
        let mut patch = Map::new();
        if let Some(tags) = tags {
            patch.insert("tags".to_owned(), json!(tags));
        }
        let mut properties = Map::new();
        if let Some(count) = self.managed_outbound_ips {
            let network = json!({ "loadBalancerProfile": { "managedOutboundIps": { "count": count } } });
            properties.insert("networkProfile".to_owned(), network);
        }
        if let Some(file) = &self.client_secret_file {
            let mut principal = Map::new();
            if let Some(id) = &self.client_id {
                principal.insert("clientId".to_owned(), json!(id));
            }
            principal.insert("clientSecret".to_owned(), json!(read_secret(file)?.expose()));
            properties.insert("servicePrincipalProfile".to_owned(), principal.into());
        }
        if !properties.is_empty() {
            patch.insert("properties".to_owned(), properties.into());
        }
        if patch.is_empty() && !self.reconcile {
            bail!(
                "nothing to update; pass --tag, --managed-outbound-ips, --client-id with --client-secret-file, -f FILE, or --reconcile to reconcile the cluster without changes"
            );
        }
        Ok(patch.into())
    }
}

fn read_tags(resource: &Value) -> BTreeMap<String, String> {
    let tags = resource["tags"].as_object().into_iter().flatten();
    tags.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// Deletes a cluster.
pub(super) async fn delete(flags: &DeleteFlags, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let client = invocation.client(&flags.connect)?;
    let cluster = find::cluster(&client, &flags.cluster).await?;
    let forget = format!("run `shipshape cluster forget {}` to remove it from Shipshape", cluster.name);
    let cluster = require_created_here(cluster, &forget)?;
    let name = &cluster.name;
    flags.confirm.ask(&format!("Delete cluster {name} and its resources"))?;
    let accepted = client.delete_resource(&cluster.id).await.map_err(|error| with_remedy(error, name))?;
    let did = match accepted {
        None => "not found; nothing to delete",
        Some(accepted) => {
            operation::report_started(&client, invocation, &accepted.operation, name, "delete", &flags.wait)
                .await?;
            if flags.wait.is_set() { "deleted" } else { "is being deleted" }
        }
    };
    let last_seen = match flags.output.is_structured() {
        false => cluster,
        // The deletion was accepted; the cluster may already be gone.
        true => client.cluster(&cluster.id).await.map_or(cluster, |answer| answer.value),
    };
    flags.output.print_change(invocation, &last_seen, did)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        update: UpdateFlags,
    }

    fn patch(arguments: &[&str], tags: Option<&[(&str, &str)]>) -> anyhow::Result<Value> {
        let line = Line::try_parse_from([&["update", "harbour"], arguments].concat()).unwrap();
        let tags =
            tags.map(|tags| tags.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
        line.update.patch(tags)
    }

    #[test]
    fn a_patch_has_only_the_named_properties() {
        assert_eq!(
            patch(&["--managed-outbound-ips", "3"], None).unwrap(),
            json!({ "properties": { "networkProfile": { "loadBalancerProfile": { "managedOutboundIps": { "count": 3 } } } } })
        );
        assert_eq!(patch(&["--tag", "a=b"], Some(&[("a", "b")])).unwrap(), json!({ "tags": { "a": "b" } }));
        assert_eq!(
            patch(&["--tag", "a-"], Some(&[])).unwrap(),
            json!({ "tags": {} }),
            "the last tag is removed too"
        );
        assert_eq!(patch(&["--reconcile"], None).unwrap(), json!({}));
        assert!(patch(&[], None).unwrap_err().to_string().starts_with("nothing to update; pass --tag"));
    }
}
