//! `shipshape termination-handler`: watches the metadata of the instance on which it runs, and reports the notice of its end in the
//! condition of its Node.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::clock::SystemClock;
use cli::{Environment, output};
use controller::connect;
use machines::termination::{self, TerminationSettings, TerminationState};

use crate::arguments::TerminationHandlerFlags;
use crate::process::Process;
#[cfg(feature = "sim")]
use crate::roles::SimulatedPod;
use crate::supervisor::Stage;
use crate::version::Version;

/// Variable with the name of the Node, which the DaemonSet sets.
const NODE_NAME: &str = "NODE_NAME";

/// Runs until a signal, or until the metadata cannot be read.
pub(crate) async fn run(
    mut process: Process,
    flags: &TerminationHandlerFlags,
    environment: &Environment,
) -> anyhow::Result<()> {
    let settings = settings(flags, environment.text(NODE_NAME))?;
    let health = process.open_health().await?;
    let client = connect(flags.kubeconfig.as_deref(), Some(&flags.namespace)).await?.client;
    let metadata = process.readiness.condition("metadata");
    let (node, address) = (settings.node.clone(), settings.address.to_string());
    process.tasks.spawn(Stage::Workers, "termination-handler", move |shutdown| async move {
        let observe = move |state| match state {
            TerminationState::Watching | TerminationState::Reported => metadata.ready(),
        };
        termination::run(client, settings, Arc::new(SystemClock), observe, shutdown).await?;
        Ok(())
    });
    process.started();
    let version = Version::current().version;
    output::show(&format!(
        "Shipshape {version} termination handler is up\n  node     {node}\n  metadata {address}\n  health   {health}\n"
    ))?;
    Ok(process.tasks.run().await?)
}

/// Runs in a pod of a simulated cluster until the pod stops, and reads the metadata of its node's machine.
#[cfg(feature = "sim")]
pub(crate) async fn run_in_simulated_pod(
    flags: TerminationHandlerFlags,
    pod: SimulatedPod,
) -> anyhow::Result<()> {
    let node = pod.variable(NODE_NAME).unwrap_or_else(|| pod.node()).to_owned();
    let metadata = pod.metadata_service()?;
    let settings = TerminationSettings {
        address: metadata
            .parse()
            .map_err(|error| anyhow::anyhow!("the metadata service {metadata}: {error}"))?,
        ..settings(&flags, Some(node))?
    };
    pod.log(&format!(
        "Shipshape {} termination handler is up on node {}",
        Version::current().version,
        settings.node
    ));
    // In place of the kubeconfig of the node's kubelet, which is a file.
    let client = if flags.kubeconfig.is_some() { pod.client_of_node() } else { pod.client() };
    termination::run(client, settings, pod.clock(), |_| {}, pod.stopping()).await?;
    Ok(())
}

fn settings(
    flags: &TerminationHandlerFlags,
    node_name: Option<String>,
) -> anyhow::Result<TerminationSettings> {
    let node = flags.node_name.clone().or(node_name).filter(|name| !name.is_empty());
    Ok(TerminationSettings {
        node: node.context("the Node is unknown; set NODE_NAME, or give --node-name NAME")?,
        provider: flags.cloud_provider,
        address: flags.metadata_address.clone(),
        poll_interval: Duration::from_secs(flags.poll_interval_seconds.into()),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::{Cli, Command};

    fn parsed(arguments: &str) -> Result<TerminationHandlerFlags, String> {
        let words = ["shipshape", "termination-handler"].into_iter().chain(arguments.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::TerminationHandler(flags) => Ok(flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_node_is_that_of_the_flag_or_of_the_environment() {
        let flags = parsed("").unwrap();
        let found = settings(&flags, Some("worker-1".to_owned())).unwrap();
        assert_eq!((found.node.as_str(), found.provider), ("worker-1", None));
        assert_eq!(
            (found.poll_interval, found.address.to_string()),
            (Duration::from_secs(5), "http://169.254.169.254".to_owned())
        );
        let flags = parsed("--node-name=worker-2 --cloud-provider=aws --poll-interval-seconds=1").unwrap();
        let found = settings(&flags, Some("worker-1".to_owned())).unwrap();
        assert_eq!((found.node.as_str(), found.poll_interval), ("worker-2", Duration::from_secs(1)));
        for nothing in [None, Some(String::new())] {
            let error = settings(&parsed("").unwrap(), nothing).unwrap_err().to_string();
            assert_eq!(error, "the Node is unknown; set NODE_NAME, or give --node-name NAME");
        }
    }

    #[test]
    fn wrong_flags_are_named_with_what_is_accepted() {
        let check = |arguments: &str, expect: &str| {
            let error = parsed(arguments).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        check(
            "--cloud-provider=vsphere",
            "\"vsphere\" is no cloud with termination notices; accepted: aws, azure, gcp",
        );
        check("--metadata-address=https://h", "must be an address such as http://169.254.169.254");
        check("--poll-interval-seconds=0", "0 is not in 1..=3600");
    }
}
