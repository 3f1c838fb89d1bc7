//! Resources of the simulated cloud in tables and descriptions.

use std::path::PathBuf;

use cloud::{LockLevel, Properties, PullToken, Resource, ResourceState, VaultCertificate};
use cloudsim::settings::{PrincipalInfo, Rights};
use serde::Serialize;

use super::super::print::Printable;
use super::super::table::{Column, View, Width, wire_name, with_age};

fn state(resource: &Resource) -> String {
    match &resource.state {
        ResourceState::Creating => "Creating".to_owned(),
        ResourceState::Updating => "Updating".to_owned(),
        ResourceState::Deleting => "Deleting".to_owned(),
        ResourceState::Succeeded => "Succeeded".to_owned(),
        ResourceState::Failed { failure } => format!("Failed: {} ({})", failure.message, failure.code),
    }
}

/// Summary of a resource for the table.
fn detail(properties: &Properties) -> String {
    let id = |id: &Option<cloud::ResourceId>| id.as_ref().map(|it| it.name().to_owned());
    match properties {
        Properties::ResourceGroup { managed_by } => {
            managed_by.as_ref().map(|by| format!("managed by {by}")).unwrap_or_default()
        }
        Properties::VirtualNetwork { address_space } => address_space.join(","),
        Properties::Subnet { address_prefix, security_group, .. } => {
            let filter =
                id(security_group).map(|name| format!(", security group {name}")).unwrap_or_default();
            format!("{address_prefix}{filter}")
        }
        Properties::PublicIp { address } | Properties::PrivateEndpoint { address, .. } => {
            address.clone().unwrap_or_default()
        }
        Properties::LoadBalancer { frontends, backends, .. } => {
            format!("{} frontends, {} backends", frontends.len(), backends.len())
        }
        Properties::DnsRecord { addresses, .. } | Properties::PrivateDnsRecord { addresses, .. } => {
            addresses.join(",")
        }
        Properties::PrivateLinkService { connections, .. } => format!("{} connections", connections.len()),
        Properties::NetworkInterface { address, .. } => address.clone().unwrap_or_default(),
        Properties::PrivateDnsLink { network, .. } => network.name().to_owned(),
        Properties::Lock { level, .. } => match level {
            LockLevel::CanNotDelete => "prevents deletion".to_owned(),
            LockLevel::ReadOnly => "prevents changes".to_owned(),
        },
        Properties::StorageAccount { containers, .. } => containers.join(","),
        Properties::Machine { size, running, .. } => {
            format!("{size}, {}", if *running { "running" } else { "stopped" })
        }
        Properties::Disk { size_gb } => format!("{size_gb} GB"),
        Properties::SecurityGroup { rules } => format!("{} rules", rules.len()),
        Properties::RouteTable { routes } => format!("{} routes", routes.len()),
        Properties::Identity { client_id, .. } => client_id.clone().unwrap_or_default(),
        Properties::DnsZone {}
        | Properties::PrivateDnsZone {}
        | Properties::NatGateway {}
        | Properties::DiskEncryptionSet {} => String::new(),
    }
}

impl Printable for Resource {
    const KIND: &'static str = "resource";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("KIND", Width::Always),
        Column("STATE", Width::Always),
        Column("DETAIL", Width::Always),
        Column("LOCATION", Width::Wide),
        Column("ID", Width::Wide),
    ];

    fn name(&self) -> String {
        self.id.name().to_owned()
    }

    fn cells(&self, _view: &View) -> Vec<String> {
        vec![
            self.id.name().to_owned(),
            wire_name(self.properties.kind()),
            state(self),
            detail(&self.properties),
            self.location.clone(),
            self.id.to_string(),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let mut details: Vec<_> =
            ["Name", "Kind", "State", "Detail", "Location", "ID"].into_iter().zip(self.cells(view)).collect();
        let tags: Vec<String> = self.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        details.push(("Tags", tags.join("\n")));
        details
    }
}

impl Printable for PrincipalInfo {
    const KIND: &'static str = "principal";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("CLIENT ID", Width::Always),
        Column("RIGHTS", Width::Always),
        Column("OBJECT ID", Width::Wide),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _view: &View) -> Vec<String> {
        let rights = match self.rights {
            Rights::Everywhere => "everywhere",
            Rights::ByRoles => "by roles",
        };
        vec![self.name.clone(), self.client_id.clone(), rights.to_owned(), self.object_id.clone()]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        ["Name", "Client ID", "Rights", "Object ID"].into_iter().zip(self.cells(view)).collect()
    }
}

/// A principal that was just created, with the file of its secret.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreatedPrincipal {
    #[serde(flatten)]
    pub(super) principal: PrincipalInfo,
    pub(super) client_secret_file: PathBuf,
}

impl Printable for CreatedPrincipal {
    const KIND: &'static str = PrincipalInfo::KIND;
    const COLUMNS: &'static [Column] = PrincipalInfo::COLUMNS;

    fn name(&self) -> String {
        self.principal.name()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        self.principal.cells(view)
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let mut details = self.principal.details(view);
        details.push(("Secret file", self.client_secret_file.display().to_string()));
        details
    }
}

impl Printable for VaultCertificate {
    const KIND: &'static str = "certificate";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("DNS NAMES", Width::Always),
        Column("ISSUING", Width::Wide),
        Column("EXPIRES", Width::Always),
        Column("VERSION", Width::Always),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        vec![
            self.name.clone(),
            self.dns_names.join(","),
            if self.issuing { "yes" } else { "no" }.to_owned(),
            view.optional_time(self.not_after),
            self.version.clone().unwrap_or_default(),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let time = |time: Option<jiff::Timestamp>| time.map(|it| with_age(it, view.now)).unwrap_or_default();
        vec![
            ("Name", self.name.clone()),
            ("DNS names", self.dns_names.join("\n")),
            ("Version", self.version.clone().unwrap_or_default()),
            ("Valid from", time(self.not_before)),
            ("Valid until", time(self.not_after)),
            ("Issuing", if self.issuing { "yes" } else { "no" }.to_owned()),
        ]
    }
}

impl Printable for PullToken {
    const KIND: &'static str = "token";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("REGISTRY", Width::Always),
        Column("ISSUED", Width::Always),
        Column("EXPIRES", Width::Always),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        vec![
            self.name.clone(),
            self.registry.clone(),
            view.optional_time(self.issued),
            view.optional_time(self.expires),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        ["Name", "Registry", "Issued", "Expires"].into_iter().zip(self.cells(view)).collect()
    }
}
