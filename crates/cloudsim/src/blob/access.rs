//! Who calls, and what the caller may do: by a token and roles, a key of the account, a shared access signature, or public access.

use http::StatusCode;
use http::header::AUTHORIZATION;
use serde_json::Value;

use super::error::{BlobError, BlobFailure};
use super::signature::{self, Sas, SasKind};
use super::{BlobCall, BlobRequest};
use crate::arm::kinds::storage;
use crate::arm::{ArmResource, access};
use crate::call_context::CallContext;
use crate::endpoints::Endpoints;
use crate::entra::{self, Caller};
use crate::failure::Failure;

/// The audience of tokens for storage, in every cloud.
const AUDIENCE: &str = "https://storage.azure.com";
/// The container of static websites, which everybody may read.
const WEBSITE: &str = "$web";

/// How a request is authenticated.
#[derive(Debug)]
pub(super) enum Access {
    Principal(Caller),
    SharedKey,
    Sas(Sas),
    Anonymous,
}

/// What a request does, as far as rights tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlobAction {
    ReadBlob,
    /// Writes a blob that does not exist yet.
    CreateBlob,
    WriteBlob,
    DeleteBlob,
    ListBlobs,
    ReadContainer,
    WriteContainer,
    DeleteContainer,
    ListContainers,
    ReadAccount,
    DelegationKey,
}

impl BlobAction {
    /// The action of roles below `Microsoft.Storage/storageAccounts/blobServices/`, and whether it is one on data.
    fn role_action(self) -> (&'static str, bool) {
        match self {
            BlobAction::ReadBlob | BlobAction::ListBlobs => ("containers/blobs/read", true),
            BlobAction::CreateBlob | BlobAction::WriteBlob => ("containers/blobs/write", true),
            BlobAction::DeleteBlob => ("containers/blobs/delete", true),
            BlobAction::ReadContainer | BlobAction::ListContainers | BlobAction::ReadAccount => {
                ("containers/read", false)
            }
            BlobAction::WriteContainer => ("containers/write", false),
            BlobAction::DeleteContainer => ("containers/delete", false),
            BlobAction::DelegationKey => ("generateUserDelegationKey/action", false),
        }
    }

    /// The permissions of a signature of which one suffices.
    fn permissions(self) -> &'static str {
        match self {
            BlobAction::ReadBlob | BlobAction::ReadContainer => "r",
            BlobAction::CreateBlob | BlobAction::WriteContainer => "cw",
            BlobAction::WriteBlob => "w",
            BlobAction::DeleteBlob | BlobAction::DeleteContainer => "d",
            BlobAction::ListBlobs | BlobAction::ListContainers => "l",
            BlobAction::ReadAccount => "rwdlacup",
            BlobAction::DelegationKey => "",
        }
    }

    /// The type of resource in a signature for the account: service, container or object.
    fn resource_type(self) -> char {
        match self {
            BlobAction::ReadBlob
            | BlobAction::CreateBlob
            | BlobAction::WriteBlob
            | BlobAction::DeleteBlob => 'o',
            BlobAction::ListBlobs
            | BlobAction::ReadContainer
            | BlobAction::WriteContainer
            | BlobAction::DeleteContainer => 'c',
            BlobAction::ListContainers | BlobAction::ReadAccount | BlobAction::DelegationKey => 's',
        }
    }

    fn is_read(self) -> bool {
        matches!(self, BlobAction::ReadBlob | BlobAction::ListBlobs | BlobAction::ReadContainer)
    }
}

/// The error of a right that is missing.
pub(super) fn mismatch() -> BlobError {
    let message = "This request is not authorized to perform this operation using this permission.";
    BlobError::forbidden("AuthorizationPermissionMismatch", message)
}

/// 401 with the challenge that names the authority.
pub(super) fn challenge(endpoints: &Endpoints, code: &str, message: &str) -> BlobError {
    let authority = format!("{}/{}", endpoints.authority, endpoints.tenant_id);
    let challenge = format!("Bearer authorization_uri={authority}/oauth2/authorize resource_id={AUDIENCE}");
    BlobError::new(StatusCode::UNAUTHORIZED, code, message).with_header("www-authenticate", challenge)
}

/// Tells how a request is authenticated, and verifies it.
pub(super) fn authenticate(
    cx: &CallContext<'_>,
    request: &BlobRequest<'_>,
    account: &ArmResource,
) -> Result<Access, BlobFailure> {
    let Some(header) = request.header(AUTHORIZATION.as_str()) else {
        return match request.parameter("sig") {
            Some(_) => signature::verify_sas(cx, request, account).map(Access::Sas),
            None => Ok(Access::Anonymous),
        };
    };
    check_version(request)?;
    match header.split_once(' ') {
        Some((scheme, signed)) if scheme.eq_ignore_ascii_case("SharedKey") => {
            check_shared_keys(account)?;
            signature::verify_shared_key(cx, request, account, signed)?;
            Ok(Access::SharedKey)
        }
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("Bearer") => {
            let own = format!("https://{}.blob.core.windows.net", request.account);
            match entra::authenticate(cx, request.headers, &[AUDIENCE, &own]) {
                Ok(caller) => Ok(Access::Principal(caller)),
                Err(Failure::Arm(error)) => {
                    let code = "InvalidAuthenticationInfo";
                    Err(challenge(cx.endpoints, code, &error.message).into())
                }
                Err(failure) => Err(BlobFailure::Failed(failure)),
            }
        }
        _ => {
            let message = "Authentication information is not given in the correct format. Check the value of Authorization header.";
            Err(BlobError::bad_request("InvalidAuthenticationInfo", message).into())
        }
    }
}

/// Requires the version of the protocol, which is a date.
fn check_version(request: &BlobRequest<'_>) -> Result<(), BlobError> {
    let Some(version) = request.header("x-ms-version") else {
        let message = "An HTTP header that's mandatory for this request is not specified: x-ms-version.";
        return Err(BlobError::bad_request("MissingRequiredHeader", message));
    };
    match version.parse::<jiff::civil::Date>() {
        Ok(_) => Ok(()),
        Err(_) => {
            let message = format!(
                "The value for one of the HTTP headers is not in the correct format: x-ms-version {version}."
            );
            Err(BlobError::bad_request("InvalidHeaderValue", message))
        }
    }
}

/// Requires that the account accepts its keys, and signatures that are made with them.
pub(super) fn check_shared_keys(account: &ArmResource) -> Result<(), BlobError> {
    match storage::allows_shared_keys(account) {
        true => Ok(()),
        false => {
            let message = "Key based authentication is not permitted on this storage account.";
            Err(BlobError::forbidden("KeyBasedAuthenticationNotPermitted", message))
        }
    }
}

impl BlobCall<'_> {
    /// Requires that the caller may do something. `container` is absent for the account itself.
    pub(super) fn authorize(
        &self,
        action: BlobAction,
        container: Option<&ArmResource>,
    ) -> Result<(), BlobFailure> {
        match self.access {
            Access::SharedKey if action == BlobAction::DelegationKey => {
                Err(BlobError::authentication("Only a principal can have a user delegation key.").into())
            }
            Access::SharedKey => Ok(()),
            Access::Principal(caller) => self.check_roles(caller, action),
            Access::Sas(sas) => self.check_sas(sas, action),
            Access::Anonymous => self.check_public(action, container),
        }
    }

    /// The scope of roles: the container, even when it does not exist yet, or the account.
    fn scope(&self) -> String {
        match &self.request.container {
            Some(name) => storage::container_id(&self.account.id, name).to_string(),
            None => self.account.id.to_string(),
        }
    }

    fn check_roles(&self, caller: &Caller, action: BlobAction) -> Result<(), BlobFailure> {
        let (name, is_data) = action.role_action();
        let name = format!("Microsoft.Storage/storageAccounts/blobServices/{name}");
        let is_allowed = match is_data {
            true => access::allows_data(self.cx, caller, &name, &self.scope())?,
            false => match access::check(self.cx, caller, &name, &self.scope()) {
                Ok(()) => true,
                Err(Failure::Arm(_)) => false,
                Err(failure) => return Err(BlobFailure::Failed(failure)),
            },
        };
        if is_allowed { Ok(()) } else { Err(mismatch().into()) }
    }

    fn check_sas(&self, sas: &Sas, action: BlobAction) -> Result<(), BlobFailure> {
        let kind = action.resource_type();
        match &sas.kind {
            SasKind::Account { resource_types } if !resource_types.contains(kind) => {
                let message =
                    "This request is not authorized to perform this operation using this resource type.";
                return Err(BlobError::forbidden("AuthorizationResourceTypeMismatch", message).into());
            }
            SasKind::Account { .. } => {}
            // A signature for a container or a blob covers blobs, and the list of them.
            _ if kind != 'o' && action != BlobAction::ListBlobs => return Err(mismatch().into()),
            SasKind::Service => {}
            SasKind::Delegation { caller } => self.check_roles(caller, action)?,
        }
        match sas.permissions.contains(|it| action.permissions().contains(it)) {
            true => Ok(()),
            false => Err(mismatch().into()),
        }
    }

    fn check_public(&self, action: BlobAction, container: Option<&ArmResource>) -> Result<(), BlobFailure> {
        if !action.is_read() {
            let message = "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.";
            return Err(challenge(self.cx.endpoints, "NoAuthenticationInformation", message).into());
        }
        let is_website = self.request.container.as_deref() == Some(WEBSITE);
        if is_website && action == BlobAction::ReadBlob {
            return Ok(());
        }
        if !permits_public_access(self.account) {
            return Err(public_access_not_permitted().into());
        }
        let level = container.and_then(|it| it.property("publicAccess")).and_then(Value::as_str);
        let is_allowed = match level.map(str::to_lowercase).as_deref() {
            Some("container") => true,
            Some("blob") => action == BlobAction::ReadBlob,
            _ => false,
        };
        match is_allowed {
            true => Ok(()),
            false => {
                let message = "The specified resource does not exist.";
                Err(BlobError::not_found("ResourceNotFound", message).into())
            }
        }
    }
}

pub(super) fn permits_public_access(account: &ArmResource) -> bool {
    account.property("allowBlobPublicAccess").and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn public_access_not_permitted() -> BlobError {
    let message = "Public access is not permitted on this storage account.";
    BlobError::conflict("PublicAccessNotPermitted", message)
}
