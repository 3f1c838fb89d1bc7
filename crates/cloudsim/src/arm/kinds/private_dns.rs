//! Private DNS zones, their links to networks, and their record sets, whose members are spelled in lower case.

use cloud::ResourceId;
use serde_json::json;

use super::body::{Body, default, keep, properties, reference, required};
use super::{dns, rows};
use crate::arm::{ArmError, ArmResource, Behaviour, Change, store};
use crate::call_context::CallContext;
use crate::failure::Failure;

pub(super) const LINK: &str = "Microsoft.Network/privateDnsZones/virtualNetworkLinks";

/// The types of record sets in private zones.
pub(super) const RECORD_TYPES: [&str; 4] = [
    "Microsoft.Network/privateDnsZones/A",
    "Microsoft.Network/privateDnsZones/AAAA",
    "Microsoft.Network/privateDnsZones/CNAME",
    "Microsoft.Network/privateDnsZones/TXT",
];

const COUNTS: [&str; 3] =
    ["numberOfRecordSets", "numberOfVirtualNetworkLinks", "numberOfVirtualNetworkLinksWithRegistration"];

pub(super) struct Zones;

impl Behaviour for Zones {
    fn prepare(
        &self,
        _cx: &CallContext<'_>,
        _id: &ResourceId,
        _before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(None, body, &COUNTS);
        let properties = properties(body);
        default(properties, "maxNumberOfRecordSets", json!(25_000));
        default(properties, "maxNumberOfVirtualNetworkLinks", json!(1_000));
        default(properties, "maxNumberOfVirtualNetworkLinksWithRegistration", json!(100));
        Ok(())
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let below = store::below(cx.db, &resource.id)?;
        let links: Vec<&ArmResource> = below.iter().filter(|it| it.type_name == LINK).collect();
        let registering =
            links.iter().filter(|it| it.property("registrationEnabled") == Some(&json!(true))).count();
        // Each zone has the record SOA besides its own.
        let counts = [below.len() - links.len() + 1, links.len(), registering];
        for (name, count) in COUNTS.iter().zip(counts) {
            properties(body).insert((*name).to_owned(), json!(count));
        }
        Ok(())
    }

    fn may_delete(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        let links = rows::children(cx, &resource.id, LINK)?;
        match links.iter().find(|it| it.change != Change::Deleting || cx.now < it.settles) {
            Some(link) => {
                let message = format!(
                    "Can not delete resource before nested resources are deleted. The private DNS zone {} has the virtual \
                     network link {}.",
                    resource.id.name(),
                    link.id.name()
                );
                Err(ArmError::conflict("CannotDeleteResource", message).into())
            }
            None => Ok(()),
        }
    }
}

pub(super) struct Links;

impl Behaviour for Links {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        default(properties(body), "registrationEnabled", json!(false));
        properties(body).insert("virtualNetworkLinkState".to_owned(), json!("Completed"));
        let Some(network) = reference(properties(body).get("virtualNetwork")) else {
            return Err(required("virtualNetwork", id));
        };
        if before.is_some() {
            return Ok(());
        }
        let Some(zone) = id.parent() else { return Ok(()) };
        for other in rows::children(cx, &zone, LINK)? {
            if other.id != *id && reference(other.property("virtualNetwork")).as_ref() == Some(&network) {
                let message = format!(
                    "A virtual network cannot be linked to multiple zones with overlapping namespaces: {network} is linked to \
                     {} by {}.",
                    zone.name(),
                    other.id.name()
                );
                return Err(ArmError::conflict("Conflict", message).into());
            }
        }
        Ok(())
    }

    /// A network does not wait for its links.
    fn references(&self, _id: &ResourceId, _body: &Body) -> Vec<ResourceId> {
        Vec::new()
    }
}

pub(super) struct Records;

impl Behaviour for Records {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        _before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(None, body, &["fqdn", "isAutoRegistered"]);
        dns::check_record(id, properties(body), "ttl", "aRecords", "aaaaRecords")?;
        dns::check_alias(cx, id)
    }

    fn show(
        &self,
        _cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        dns::show_name(resource, body);
        properties(body).insert("isAutoRegistered".to_owned(), json!(false));
        Ok(())
    }
}
