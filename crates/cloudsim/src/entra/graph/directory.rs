//! Applications and service principals of the directory, as principals and managed identities become them.

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::principals::{IDENTITY_TYPE, property};
use crate::arm::{ArmError, store};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::settings::{PrincipalInfo, Rights};
use crate::{database, identities, seed};

/// The application of Azure Red Hat OpenShift's resource provider in the public cloud, which `az aro` looks up. Shipshape is that provider
/// here.
const RESOURCE_PROVIDER_APP: &str = "f1dd0a37-89c6-4e07-bcd1-ffd3d43d8875";
const RESOURCE_PROVIDER_NAME: &str = "Azure Red Hat OpenShift RP";

/// Client ids of applications that were created by Graph and have no service principal yet.
const WITHOUT_PRINCIPAL: &str = "application-without-principal";

/// Days for which a new secret is shown as valid.
const SECRET_DAYS: u64 = 365;

/// A principal or a managed identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirectoryObject {
    pub(super) app_id: String,
    pub(super) object_id: String,
    pub(super) name: String,
    kind: ObjectKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectKind {
    Application,
    /// The principal of this service.
    ResourceProvider,
    ManagedIdentity,
}

impl DirectoryObject {
    fn of_principal(known: PrincipalInfo) -> DirectoryObject {
        let PrincipalInfo { client_id, object_id, name, .. } = known;
        DirectoryObject { app_id: client_id, object_id, name, kind: ObjectKind::Application }
    }

    /// Every name of the service principal: its client ids.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let well_known = (self.kind == ObjectKind::ResourceProvider).then_some(RESOURCE_PROVIDER_APP);
        std::iter::once(self.app_id.as_str()).chain(well_known)
    }

    pub(super) fn has_object_id(&self, id: &str) -> bool {
        self.object_id.eq_ignore_ascii_case(id)
    }

    /// Whether this is the object id of its application, which is another than that of its service principal.
    pub(super) fn has_application_id(&self, seed: u64, id: &str) -> bool {
        self.application_id(seed).to_string().eq_ignore_ascii_case(id)
    }

    fn application_id(&self, seed: u64) -> Uuid {
        seed::uuid(seed, &["application", &self.app_id])
    }

    /// The service principal.
    pub(super) fn service_principal(&self) -> Value {
        let (kind, app_id, name) = match self.kind {
            ObjectKind::Application => ("Application", self.app_id.as_str(), self.name.as_str()),
            ObjectKind::ResourceProvider => ("Application", RESOURCE_PROVIDER_APP, RESOURCE_PROVIDER_NAME),
            ObjectKind::ManagedIdentity => ("ManagedIdentity", self.app_id.as_str(), self.name.as_str()),
        };
        json!({
            "id": self.object_id,
            "appId": app_id,
            "displayName": name,
            "appDisplayName": name,
            "servicePrincipalType": kind,
            "servicePrincipalNames": self.names().collect::<Vec<_>>(),
            "accountEnabled": true,
        })
    }

    /// The application.
    pub(super) fn application(&self, seed: u64) -> Value {
        json!({
            "id": self.application_id(seed),
            "appId": self.app_id,
            "displayName": self.name,
            "signInAudience": "AzureADMyOrg",
            "identifierUris": [],
            "passwordCredentials": [],
            "keyCredentials": [],
        })
    }
}

/// The principals that have an application.
pub(super) fn applications(cx: &CallContext<'_>) -> Result<Vec<DirectoryObject>, Failure> {
    Ok(identities::principals(cx)?.into_iter().map(DirectoryObject::of_principal).collect())
}

/// Every service principal: that of this service, those of applications, and managed identities.
pub(super) fn service_principals(cx: &CallContext<'_>) -> Result<Vec<DirectoryObject>, Failure> {
    let own = DirectoryObject {
        kind: ObjectKind::ResourceProvider,
        ..DirectoryObject::of_principal(identities::service_principal(cx.db)?.principal)
    };
    let mut all = vec![own];
    for application in applications(cx)? {
        if !lacks_principal(cx, &application.app_id)? {
            all.push(application);
        }
    }
    let identities = store::of_type_anywhere(cx.db, IDENTITY_TYPE)?;
    all.extend(identities.iter().filter(|it| it.is_visible(cx.now)).map(|it| DirectoryObject {
        app_id: property(it, "clientId").to_owned(),
        object_id: property(it, "principalId").to_owned(),
        name: it.id.name().to_owned(),
        kind: ObjectKind::ManagedIdentity,
    }));
    Ok(all)
}

fn lacks_principal(cx: &CallContext<'_>, app_id: &str) -> Result<bool, Failure> {
    Ok(database::record::<bool>(cx.db, WITHOUT_PRINCIPAL, &app_id.to_lowercase())?.unwrap_or_default())
}

/// Creates an application. It has no rights, and no service principal before [`create_service_principal`].
pub(super) fn create_application(cx: &CallContext<'_>, name: &str) -> Result<Value, Failure> {
    let created = identities::create_principal(cx, name, Rights::ByRoles)?.principal;
    database::write(cx.db, WITHOUT_PRINCIPAL, &created.client_id.to_lowercase(), &true)?;
    Ok(DirectoryObject::of_principal(created).application(cx.seed))
}

/// Creates the service principal of an application.
pub(super) fn create_service_principal(cx: &CallContext<'_>, app_id: &str) -> Result<Value, Failure> {
    let found = applications(cx)?.into_iter().find(|it| it.app_id.eq_ignore_ascii_case(app_id));
    let Some(application) = found else {
        let message = format!(
            "The appId '{app_id}' of the service principal does not reference a valid application object."
        );
        return Err(ArmError::bad_request("Request_BadRequest", message).into());
    };
    if !lacks_principal(cx, app_id)? {
        let message = format!(
            "The service principal cannot be created, updated, or restored because the service principal name {app_id} is already in use."
        );
        return Err(ArmError::conflict("Request_MultipleObjectsWithSameKeyValue", message).into());
    }
    database::delete(cx.db, WITHOUT_PRINCIPAL, &app_id.to_lowercase())?;
    Ok(application.service_principal())
}

/// Deletes the service principal of an application, which stays.
pub(super) fn delete_service_principal(
    cx: &CallContext<'_>,
    object: &DirectoryObject,
) -> Result<Value, Failure> {
    if object.kind != ObjectKind::Application {
        let message = "The service principal is managed by its owner and cannot be deleted.";
        return Err(ArmError::bad_request("Request_BadRequest", message).into());
    }
    database::write(cx.db, WITHOUT_PRINCIPAL, &object.app_id.to_lowercase(), &true)?;
    Ok(Value::Null)
}

/// Replaces the secret of an application. The response is the only place where it is shown.
pub(super) fn add_password(
    cx: &CallContext<'_>,
    object: &DirectoryObject,
    wanted: &Value,
) -> Result<Value, Failure> {
    let secret = identities::change_secret(cx, &object.app_id)?.secret;
    let end = cx.later(std::time::Duration::from_secs(SECRET_DAYS * 24 * 60 * 60));
    Ok(json!({
        "keyId": Uuid::new_v4(),
        "displayName": wanted["displayName"],
        "hint": secret.chars().take(3).collect::<String>(),
        "secretText": secret,
        "startDateTime": cx.now.to_string(),
        "endDateTime": end.to_string(),
    }))
}
