//! Rules of the networks of a cluster.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::super::convert::outbound;
use super::super::field_error::shown;
use super::super::{FieldError, FieldErrorCode, NetworkProfile};
use super::{Draft, DraftProperties, SWITCH, ValidationContext, given, one_of};
use crate::cidr::{self, CidrError};
use crate::doc::OutboundType;

/// Ranges that the platform uses inside every cluster.
const RESERVED: [Ipv4Net; 3] = [
    Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 169, 0), 29),
    Ipv4Net::new_assert(Ipv4Addr::new(100, 88, 0, 0), 16),
];

const IPS: std::ops::RangeInclusive<i64> = 1..=20;

type Range = fn(&NetworkProfile) -> Option<&str>;

/// The ranges, the longest accepted prefix of each, and its path.
const RANGES: [(Range, u8, &str); 2] = [
    (|it| it.pod_cidr.as_deref(), 18, "properties.networkProfile.podCidr"),
    (|it| it.service_cidr.as_deref(), 22, "properties.networkProfile.serviceCidr"),
];

pub(super) fn profile(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    let profile = properties.network.ok_or_else(|| FieldError::required("properties.networkProfile"))?;
    for (range, longest, target) in RANGES {
        let text = given(range(profile)).ok_or_else(|| FieldError::required(target))?;
        check_cidr(text, longest, target, context.is_create())?;
    }
    outbound_type(profile, properties)?;
    match given(profile.preconfigured_nsg.as_deref()) {
        None => Ok(()),
        found => one_of(found, &SWITCH, "properties.networkProfile.preconfiguredNSG"),
    }
}

fn check_cidr(text: &str, longest: u8, target: &str, is_create: bool) -> Result<(), FieldError> {
    let refused = |code, target: &str, why: String| {
        Err(FieldError::new(code, target, format!("The provided CIDR {} is invalid: {why}.", shown(text))))
    };
    let range = match cidr::parse(text) {
        Ok(range) => range,
        Err(CidrError::Malformed) => {
            return refused(
                FieldErrorCode::InvalidParameter,
                target,
                "it must look like 10.128.0.0/14".to_owned(),
            );
        }
        Err(CidrError::Ipv6) => {
            return refused(FieldErrorCode::InvalidParameter, target, "it must be of IPv4".to_owned());
        }
    };
    if is_create && let Some(reserved) = RESERVED.iter().find(|reserved| cidr::overlap(&range, reserved)) {
        let why = format!("it overlaps {reserved}, which the platform uses itself");
        return refused(FieldErrorCode::InvalidCIDRRange, "properties.networkProfile", why);
    }
    if range.prefix_len() > longest {
        return refused(
            FieldErrorCode::InvalidParameter,
            target,
            format!("it is too small, the prefix must be at most {longest}"),
        );
    }
    if range.trunc() != range {
        let why = format!("it must begin at its network address, {}", range.trunc());
        return refused(FieldErrorCode::InvalidNetworkAddress, target, why);
    }
    Ok(())
}

fn outbound_type(profile: &NetworkProfile, properties: &DraftProperties<'_>) -> Result<(), FieldError> {
    const TARGET: &str = "properties.networkProfile.outboundType";
    let Some(text) = given(profile.outbound_type.as_deref()) else { return Ok(()) };
    let Some(kind) = outbound(text) else {
        return one_of(Some(text), &["Loadbalancer", "UserDefinedRouting"], TARGET);
    };
    if kind == OutboundType::Loadbalancer {
        return Ok(());
    }
    let is_private = |visibility: Option<&String>| visibility.is_some_and(|it| it == "Private");
    let all_private = is_private(properties.apiserver.and_then(|it| it.visibility.as_ref()))
        && properties.ingresses.is_some_and(|all| all.iter().all(|it| is_private(it.visibility.as_ref())));
    if !all_private {
        let message = "The outbound type UserDefinedRouting is only possible when the API server and the ingress are \
                       Private.";
        return Err(FieldError::parameter(TARGET, message));
    }
    if profile.load_balancer_profile.is_some() {
        let message = "The outbound type UserDefinedRouting is not possible with a load balancer profile.";
        return Err(FieldError::parameter("properties.networkProfile.loadBalancerProfile", message));
    }
    Ok(())
}

pub(super) fn load_balancer(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    const TARGET: &str = "properties.networkProfile.loadBalancerProfile";
    let Some(profile) = properties.network.and_then(|it| it.load_balancer_profile.as_ref()) else {
        return Ok(());
    };
    if context.is_create() && profile.effective_outbound_ips.as_ref().is_some_and(|it| !it.is_empty()) {
        let message = "The effective outbound addresses are read-only.";
        return Err(FieldError::parameter(format!("{TARGET}.effectiveOutboundIps"), message));
    }
    match profile.managed_outbound_ips.as_ref().and_then(|it| it.count) {
        Some(count) if !IPS.contains(&count) => {
            let message = format!(
                "The provided count of managed outbound addresses {count} is invalid: it must be from {} to {}.",
                IPS.start(),
                IPS.end()
            );
            Err(FieldError::parameter(format!("{TARGET}.managedOutboundIps.count"), message))
        }
        _ => Ok(()),
    }
}
