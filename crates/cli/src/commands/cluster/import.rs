//! `shipshape cluster import` and labels.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use api::admin::ImportRequest;
use clap::Args;

use super::super::labels::{KeyValue, LabelChange};
use super::super::print::Output;
use super::super::{Connect, Invocation};

/// Largest kubeconfig.
const KUBECONFIG_BYTES_MAX: u64 = 1 << 20;

/// Parent of imported clusters that are given by name.
const IMPORTED: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/imported/providers/Microsoft.RedHatOpenShift/openShiftClusters";

/// Flags of `shipshape cluster import`.
#[derive(Debug, Args)]
pub struct ImportFlags {
    /// Its name or a resource id
    name: String,
    /// Its kubeconfig, with all data inline; - for standard input
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// A label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<KeyValue>,
    /// Its location [default: the server's first location]
    #[arg(long)]
    location: Option<String>,
    /// The subscription under which it is listed
    #[arg(long, value_name = "ID", default_value = "00000000-0000-0000-0000-000000000000")]
    subscription: String,
    /// Reason for the audit log
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    output: Output,
    /// URL of the server, instead of the context's; SHIPSHAPE_CONTEXT names the context
    #[arg(long, value_name = "URL", help_heading = "Server")]
    server: Option<String>,
}

/// Imports a cluster.
pub(super) async fn import(flags: &ImportFlags, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let ImportFlags { name, context, location, reason, .. } = flags;
    let request = ImportRequest {
        kubeconfig: read_kubeconfig(&flags.kubeconfig)?,
        context: context.clone(),
        location: location.clone(),
        labels: flags.labels.iter().map(|label| (label.key.clone(), label.value.clone())).collect(),
        reason: reason.clone(),
    };
    let client = invocation.client(&Connect { context: None, server: flags.server.clone() })?;
    let id = resource_id(name, &flags.subscription)?;
    let stored = client.import_cluster(&id, &request).await.with_context(|| format!("cluster {name}"))?;
    let did = if stored.is_created() { "imported" } else { "imported again" };
    flags.output.print_change(invocation, &stored.value, did)
}

fn read_kubeconfig(file: &std::path::Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let name = file.display();
    let mut text = String::new();
    let read = match file == std::path::Path::new("-") {
        true => std::io::stdin().lock().take(KUBECONFIG_BYTES_MAX + 1).read_to_string(&mut text),
        false => std::fs::File::open(file)
            .and_then(|file| file.take(KUBECONFIG_BYTES_MAX + 1).read_to_string(&mut text)),
    };
    read.with_context(|| format!("kubeconfig {name}: cannot be read"))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > KUBECONFIG_BYTES_MAX {
        bail!("kubeconfig {name}: is larger than 1 MiB");
    }
    Ok(text)
}

/// Converts a name to a resource id; keeps a resource id.
fn resource_id(name: &str, subscription: &str) -> anyhow::Result<String> {
    if name.starts_with('/') {
        return Ok(name.to_owned());
    }
    if name.is_empty() || name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
        bail!("{name:?} is no name for a cluster; use letters, digits and dashes, such as harbour-1");
    }
    Ok(format!("{}/{name}", IMPORTED.replace("00000000-0000-0000-0000-000000000000", subscription)))
}

/// The labels after these changes.
pub(super) fn changed(
    mut labels: BTreeMap<String, String>,
    changes: &[LabelChange],
) -> BTreeMap<String, String> {
    for change in changes {
        match change {
            LabelChange::Set(label) => labels.insert(label.key.clone(), label.value.clone()),
            LabelChange::Remove(key) => labels.remove(key),
        };
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_resource_id_and_a_resource_id_stays() {
        let zero = "00000000-0000-0000-0000-000000000000";
        assert!(resource_id("harbour", zero).unwrap().ends_with(
            "/resourcegroups/imported/providers/Microsoft.RedHatOpenShift/openShiftClusters/harbour"
        ));
        assert!(
            resource_id("harbour", "s1").unwrap().starts_with("/subscriptions/s1/resourcegroups/imported/")
        );
        assert_eq!(resource_id("/subscriptions/x", zero).unwrap(), "/subscriptions/x");
        for wrong in ["", "a/b", "a b", "a\n"] {
            assert!(resource_id(wrong, zero).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn labels_are_changed_one_by_one() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let changes = ["a-", "c=3", "b=4"].map(|text| text.parse().unwrap());
        assert_eq!(super::super::show::labels_text(&changed(labels, &changes), ","), "b=4,c=3");
    }
}
