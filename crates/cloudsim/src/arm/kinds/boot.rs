//! Machines that boot into a cluster: their user data names where the rest of their configuration is, and they ask for it once they run.
//!
//! Of the user data only that address is kept: the rest is a secret, and nobody here needs it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::ResourceId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::{Body, items, reference, text};
use super::machines::{MACHINE, interfaces_of, is_running};
use super::rows;
use crate::arm::{ArmResource, Change, store};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// The private member about the boot of a machine.
const BOOT: &str = "$boot";
/// How long a machine boots at the pace of a real cloud, from the request that creates it.
const BOOT_SPAN: std::time::Duration = std::time::Duration::from_secs(150);

/// How far a machine is on its way into its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum BootStage {
    /// It has to ask for a certificate with which it may join.
    New,
    /// Its node is there; it has to ask for a certificate to serve with.
    Joined,
    /// It has all that it needs.
    Complete,
}

/// The boot of a machine as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredBoot {
    /// The URL of the configuration.
    source: String,
    at: Timestamp,
    stage: BootStage,
}

/// A machine that boots into a cluster.
#[derive(Debug, Clone)]
pub(crate) struct BootingMachine {
    pub(crate) id: ResourceId,
    /// The name of the computer, which its node has too.
    pub(crate) name: String,
    pub(crate) vm_id: String,
    pub(crate) source: String,
    pub(crate) stage: BootStage,
    /// When its boot is complete, if it runs.
    pub(crate) due: Timestamp,
    pub(crate) is_running: bool,
    pub(crate) size: String,
    pub(crate) location: String,
    pub(crate) zone: Option<String>,
    pub(crate) addresses: Vec<String>,
}

/// The URL of the configuration that user data refers to: an Ignition config that replaces itself or merges another one.
fn config_source(user_data: &str) -> Option<String> {
    let bytes = STANDARD.decode(user_data.trim()).ok()?;
    let data: Value = serde_json::from_slice(&bytes).ok()?;
    let config = data.get("ignition")?.get("config")?;
    let sources = items(config, "merge").chain(items(config, "append")).chain(config.get("replace"));
    sources.filter_map(|it| text(it, "source")).find(|it| it.starts_with("https://")).map(str::to_owned)
}

/// Notes what the user data of a new machine says.
pub(super) fn note_user_data(cx: &CallContext<'_>, id: &ResourceId, body: &mut Body) {
    let profile = body.get("properties").and_then(|it| it.get("osProfile"));
    let Some(source) = profile.and_then(|it| text(it, "customData")).and_then(config_source) else { return };
    let boot = StoredBoot { source, at: cx.done_at(BOOT_SPAN, &["boot", &id.key()]), stage: BootStage::New };
    body.insert(BOOT.to_owned(), json!(boot));
}

fn stored(resource: &ArmResource) -> Option<StoredBoot> {
    serde_json::from_value(resource.body.get(BOOT)?.clone()).ok()
}

/// The machines of a group that boot into some cluster, without those that have all that they need.
pub(crate) fn booting_in_group(
    cx: &CallContext<'_>,
    group: &ResourceId,
) -> Result<Vec<BootingMachine>, Failure> {
    let mut found = Vec::new();
    for machine in store::of_type_in_group(cx.db, group, MACHINE)? {
        let boot = stored(&machine).filter(|it| it.stage != BootStage::Complete);
        let (Some(boot), true) = (boot, machine.change != Change::Deleting) else { continue };
        let property = |path: &[&str]| {
            let mut at = machine.property(path.first()?)?;
            for name in &path[1..] {
                at = at.get(*name)?;
            }
            at.as_str().map(str::to_owned)
        };
        let is_made = !matches!(machine.provisioning_state(cx.now), "Creating" | "Failed");
        found.push(BootingMachine {
            name: property(&["osProfile", "computerName"]).unwrap_or_else(|| machine.id.name().to_owned()),
            vm_id: property(&["vmId"]).unwrap_or_default(),
            source: boot.source,
            stage: boot.stage,
            due: if is_made { boot.at } else { boot.at.max(machine.settles) },
            is_running: is_running(&machine, cx.now) || machine.provisioning_state(cx.now) == "Creating",
            size: property(&["hardwareProfile", "vmSize"]).unwrap_or_default(),
            location: machine.location().to_owned(),
            zone: machine.body.get("zones").and_then(|it| it.get(0)?.as_str()).map(str::to_owned),
            addresses: addresses(cx, &machine)?,
            id: machine.id,
        });
    }
    Ok(found)
}

/// The private addresses of a machine.
fn addresses(cx: &CallContext<'_>, machine: &ArmResource) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for (interface, _) in interfaces_of(&machine.body) {
        let Some(interface) = rows::present(cx, &interface)? else { continue };
        let properties = interface.body.get("properties").cloned().unwrap_or_default();
        for configuration in items(&properties, "ipConfigurations") {
            let inner = configuration.get("properties").cloned().unwrap_or_default();
            if reference(inner.get("subnet")).is_some() {
                found.extend(text(&inner, "privateIPAddress").map(str::to_owned));
            }
        }
    }
    Ok(found)
}

/// Notes how far a machine is.
pub(crate) fn note_stage(cx: &CallContext<'_>, id: &ResourceId, stage: BootStage) -> Result<(), Failure> {
    let Some(mut machine) = rows::present(cx, id)? else { return Ok(()) };
    let Some(boot) = stored(&machine) else { return Ok(()) };
    machine.body.insert(BOOT.to_owned(), json!(StoredBoot { stage, ..boot }));
    rows::replace(cx, &machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_names_the_configuration_in_each_form_of_ignition() {
        let source = "https://api-int.one.example.test:22623/config/worker";
        let check = |config: Value, expect: Option<&str>| {
            let text = json!({ "ignition": { "config": config, "version": "3.2.0" } }).to_string();
            assert_eq!(config_source(&STANDARD.encode(text)).as_deref(), expect);
        };
        check(json!({ "merge": [{ "source": source }] }), Some(source));
        check(json!({ "append": [{ "source": "data:,x" }, { "source": source }] }), Some(source));
        check(json!({ "replace": { "source": source } }), Some(source));
        check(json!({ "merge": [{ "source": "http://a/config" }] }), None);
        check(json!({}), None);
        assert_eq!(config_source("no base64!"), None);
        assert_eq!(config_source(&STANDARD.encode("#!/bin/sh")), None);
    }
}
