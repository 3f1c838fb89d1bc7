//! Requests on secrets. The newest version of a certificate is a secret too, which holds its key.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::error::{VaultError, VaultFailure};
use super::objects::{
    self, Attributes, CertificateVersion, Numbered, ObjectKind, SecretVersion, VaultObject, VaultScope,
};
use super::{
    VaultRequest, VaultResponse, add_deletion, certificates, check_not_deleted, issuance, missing, page,
    unsupported,
};
use crate::call_context::CallContext;
use crate::seed;

const KIND: ObjectKind = ObjectKind::Secret;
const VALUE_CHARS_MAX: usize = 25_600;

/// A version of a secret of either origin.
struct Secret {
    name: String,
    version: String,
    content_type: Option<String>,
    attributes: Attributes,
    value: SecretValue,
}

enum SecretValue {
    Plain(String),
    /// Key and chain of a certificate.
    Certificate(Box<CertificateVersion>),
}

impl Secret {
    fn plain(name: &str, version: SecretVersion) -> Secret {
        let SecretVersion { version, value, content_type, attributes } = version;
        let value = SecretValue::Plain(value);
        Secret { name: name.to_owned(), version, content_type, attributes, value }
    }

    fn of_certificate(name: &str, version: CertificateVersion) -> Secret {
        Secret {
            name: name.to_owned(),
            version: version.version.clone(),
            content_type: Some(version.content_type.clone()),
            attributes: version.attributes.clone(),
            value: SecretValue::Certificate(Box::new(version)),
        }
    }

    fn properties(&self, vault: &VaultScope, with_version: bool) -> Value {
        let Secret { name, version, content_type, attributes, value } = self;
        let end = if with_version { format!("/{version}") } else { String::new() };
        let mut shown = json!({
            "id": format!("{}/secrets/{name}{end}", vault.url),
            "attributes": attributes.shown(vault),
            "tags": attributes.tags,
        });
        if let Some(content_type) = content_type {
            shown["contentType"] = json!(content_type);
        }
        if matches!(value, SecretValue::Certificate(_)) {
            shown["managed"] = json!(true);
            shown["kid"] = json!(format!("{}/keys/{name}/{version}", vault.url));
        }
        shown
    }

    fn bundle(&self, vault: &VaultScope) -> Result<Value, VaultFailure> {
        let mut shown = self.properties(vault, true);
        shown["value"] = json!(match &self.value {
            SecretValue::Plain(value) => value.clone(),
            SecretValue::Certificate(version) => certificates::secret_value(version)?,
        });
        Ok(shown)
    }
}

/// The versions of a secret, oldest first.
fn versions(cx: &CallContext<'_>, vault: &VaultScope, name: &str) -> Result<Vec<Secret>, VaultFailure> {
    if let Some(object) = objects::present(cx, vault, KIND, name)? {
        let found: Vec<Numbered<SecretVersion>> = objects::versions(cx, vault, KIND, name)?;
        return Ok(found.into_iter().map(|it| Secret::plain(&object.name, it.version)).collect());
    }
    let Some(object) = issuance::current(cx, vault, name)? else { return Ok(Vec::new()) };
    let issued = issuance::issued(cx, vault, &object.name)?;
    Ok(issued.into_iter().map(|it| Secret::of_certificate(&object.name, it.version)).collect())
}

pub(super) fn handle(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    request: &VaultRequest<'_>,
    rest: &[&str],
    authorize: &dyn Fn(&str) -> Result<(), VaultFailure>,
) -> Result<VaultResponse, VaultFailure> {
    match (request.method, rest) {
        (&Method::GET, []) => {
            authorize("readMetadata")?;
            list(cx, vault, request)
        }
        (&Method::GET, [name, "versions"]) => {
            authorize("readMetadata")?;
            let found = versions(cx, vault, name)?;
            page(vault, request, found.iter().map(|it| it.properties(vault, true)).collect())
        }
        (&Method::GET, [name, version @ ..]) if version.len() < 2 => {
            authorize("getSecret")?;
            let found = versions(cx, vault, name)?;
            let found = match version {
                [version] => found.into_iter().find(|it| it.version.eq_ignore_ascii_case(version)),
                _ => found.into_iter().next_back(),
            };
            let found = found.ok_or_else(|| missing(KIND, name))?;
            if !found.attributes.enabled {
                let message = "Operation get is not allowed on a disabled secret.";
                let error = VaultError::new(StatusCode::FORBIDDEN, "Forbidden", message);
                return Err(error.with_inner("SecretDisabled").into());
            }
            Ok(VaultResponse::ok(found.bundle(vault)?))
        }
        (&Method::PUT, [name]) => {
            authorize("setSecret")?;
            set(cx, vault, name, &request.body)
        }
        (&Method::PATCH, [name, version @ ..]) if version.len() < 2 => {
            authorize("update")?;
            update(cx, vault, name, version.first().copied(), &request.body)
        }
        (&Method::DELETE, [name]) => {
            authorize("delete")?;
            delete(cx, vault, name)
        }
        _ => Err(unsupported(request)),
    }
}

fn list(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    request: &VaultRequest<'_>,
) -> Result<VaultResponse, VaultFailure> {
    let mut names: Vec<String> = Vec::new();
    for kind in [KIND, ObjectKind::Certificate] {
        names.extend(objects::all(cx, vault, kind, false)?.into_iter().map(|it| it.name));
    }
    names.sort_by_key(|it| it.to_lowercase());
    let mut shown = Vec::new();
    for name in names {
        if let Some(newest) = versions(cx, vault, &name)?.last() {
            shown.push(newest.properties(vault, false));
        }
    }
    page(vault, request, shown)
}

fn set(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
    body: &Value,
) -> Result<VaultResponse, VaultFailure> {
    let Some(value) = body["value"].as_str() else {
        return Err(VaultError::bad_parameter("Property value has an invalid value: it is required.").into());
    };
    if value.chars().count() > VALUE_CHARS_MAX {
        let message = format!("Property value is longer than {VALUE_CHARS_MAX} characters.");
        return Err(VaultError::bad_parameter(message).into());
    }
    check_not_deleted(cx, vault, KIND, name)?;
    check_not_deleted(cx, vault, ObjectKind::Certificate, name)?;
    if objects::present(cx, vault, ObjectKind::Certificate, name)?.is_some() {
        let message = format!("The secret {name} belongs to a certificate and cannot be set.");
        return Err(VaultError::conflict(message).into());
    }
    let object = objects::present(cx, vault, KIND, name)?.unwrap_or_else(|| VaultObject::new(name));
    objects::keep(cx, vault, KIND, &object)?;
    let number = objects::next_number(cx)?;
    let version = SecretVersion {
        version: seed::uuid(cx.seed, &["secret", &vault.name, &number.to_string()]).simple().to_string(),
        value: value.to_owned(),
        content_type: body["contentType"].as_str().map(str::to_owned),
        attributes: Attributes::new(cx, body),
    };
    objects::keep_version(cx, vault, KIND, name, number, (&version.version, &version))?;
    Ok(VaultResponse::ok(Secret::plain(&object.name, version).bundle(vault)?))
}

fn update(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    name: &str,
    wanted: Option<&str>,
    body: &Value,
) -> Result<VaultResponse, VaultFailure> {
    let object = objects::present(cx, vault, KIND, name)?.ok_or_else(|| missing(KIND, name))?;
    let found: Vec<Numbered<SecretVersion>> = objects::versions(cx, vault, KIND, name)?;
    let found = match wanted {
        Some(wanted) => found.into_iter().find(|it| it.version.version.eq_ignore_ascii_case(wanted)),
        None => found.into_iter().next_back(),
    };
    let Numbered { number, mut version } = found.ok_or_else(|| missing(KIND, name))?;
    version.attributes.update(cx, body);
    if let Some(content_type) = body["contentType"].as_str() {
        version.content_type = Some(content_type.to_owned());
    }
    objects::keep_version(cx, vault, KIND, name, number, (&version.version, &version))?;
    Ok(VaultResponse::ok(Secret::plain(&object.name, version).properties(vault, true)))
}

fn delete(cx: &CallContext<'_>, vault: &VaultScope, name: &str) -> Result<VaultResponse, VaultFailure> {
    let Some(mut object) = objects::present(cx, vault, KIND, name)? else {
        if objects::present(cx, vault, ObjectKind::Certificate, name)?.is_some() {
            let message = format!("The secret {name} belongs to a certificate and goes with it.");
            let error = VaultError::new(StatusCode::FORBIDDEN, "Forbidden", message);
            return Err(error.into());
        }
        return Err(missing(KIND, name));
    };
    object.deletion = Some(objects::deletion(cx, vault, &["delete secret", name]));
    objects::keep(cx, vault, KIND, &object)?;
    Ok(VaultResponse::ok(shown_deleted(cx, vault, &object)?))
}

/// A deleted secret: everything but its value.
pub(super) fn shown_deleted(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    object: &VaultObject,
) -> Result<Value, VaultFailure> {
    let mut shown = newest_properties(cx, vault, object)?;
    add_deletion(vault, KIND, object, &mut shown);
    Ok(shown)
}

/// The newest version of a secret without its value.
pub(super) fn newest_properties(
    cx: &CallContext<'_>,
    vault: &VaultScope,
    object: &VaultObject,
) -> Result<Value, VaultFailure> {
    let found: Vec<Numbered<SecretVersion>> = objects::versions(cx, vault, KIND, &object.name)?;
    let Some(Numbered { version, .. }) = found.into_iter().next_back() else {
        return Err(missing(KIND, &object.name));
    };
    Ok(Secret::plain(&object.name, version).properties(vault, true))
}
