//! Rules of console, API server and ingresses.

use std::net::Ipv4Addr;

use super::super::FieldError;
use super::super::field_error::shown;
use super::{Draft, DraftProperties, VISIBILITY, ValidationContext, given, one_of};

pub(super) fn console(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    _: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    url(properties.console.and_then(|it| it.url.as_deref()), "properties.consoleProfile.url")
}

pub(super) fn apiserver(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    _: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    let profile = properties.apiserver.ok_or_else(|| FieldError::required("properties.apiserverProfile"))?;
    one_of(profile.visibility.as_deref(), &VISIBILITY, "properties.apiserverProfile.visibility")?;
    url(profile.url.as_deref(), "properties.apiserverProfile.url")?;
    address(profile.ip.as_deref(), "properties.apiserverProfile.ip")
}

pub(super) fn ingresses(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    const TARGET: &str = "properties.ingressProfiles";
    let profiles = properties.ingresses.ok_or_else(|| FieldError::required(TARGET))?;
    if context.is_create() && profiles.len() != 1 {
        return Err(FieldError::parameter(TARGET, "There should be exactly one ingress profile."));
    }
    for profile in profiles {
        let name = profile.name.as_deref().unwrap_or_default();
        let target = |member: &str| format!("{TARGET}['{name}'].{member}");
        if name != "default" {
            let message =
                format!("The provided ingress name {} is invalid: it must be default.", shown(name));
            return Err(FieldError::parameter(target("name"), message));
        }
        one_of(profile.visibility.as_deref(), &VISIBILITY, &target("visibility"))?;
        address(profile.ip.as_deref(), &target("ip"))?;
    }
    Ok(())
}

fn url(text: Option<&str>, target: &str) -> Result<(), FieldError> {
    let Some(text) = given(text) else { return Ok(()) };
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if host.is_some_and(|host| !host.is_empty() && !host.starts_with('/') && !host.contains(' ')) {
        return Ok(());
    }
    Err(FieldError::parameter(target, format!("The provided URL {} is invalid.", shown(text))))
}

fn address(text: Option<&str>, target: &str) -> Result<(), FieldError> {
    match given(text) {
        Some(text) if text.parse::<Ipv4Addr>().is_err() => {
            let message = format!("The provided address {} is invalid: it must be one of IPv4.", shown(text));
            Err(FieldError::parameter(target, message))
        }
        _ => Ok(()),
    }
}
