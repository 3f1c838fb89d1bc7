//! Managed identities and their federated credentials. The resource manager assigns their roles.

use cloud::ResourceId;
use serde_json::{Value, json};

use super::body::{Body, default, invalid, keep, properties, required, same};
use super::rows;
use crate::arm::{ArmError, ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{identities, seed};

pub(super) const IDENTITY: &str = "Microsoft.ManagedIdentity/userAssignedIdentities";
pub(super) const CREDENTIAL: &str =
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials";

/// The largest number of federated credentials of an identity.
const CREDENTIALS_MAX: usize = 20;

pub(super) struct Identities;

impl Behaviour for Identities {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(before, body, &["clientId", "principalId", "tenantId"]);
        let key = id.key();
        let assigned = |what: &str| json!(seed::uuid(cx.seed, &[what, &key]).to_string());
        let properties = properties(body);
        default(properties, "clientId", assigned("client"));
        default(properties, "principalId", assigned("principal"));
        default(properties, "tenantId", json!(identities::tenant(cx.seed)));
        Ok(())
    }
}

pub(super) struct FederatedCredentials;

impl Behaviour for FederatedCredentials {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let inner = properties(body).clone();
        let value = |name: &str| inner.get(name).and_then(Value::as_str).filter(|it| !it.is_empty());
        let issuer = value("issuer").ok_or_else(|| required("issuer", id))?;
        let subject = value("subject").ok_or_else(|| required("subject", id))?;
        if !issuer.starts_with("https://") {
            let message = format!("The issuer '{issuer}' of {id} is not a valid URL with the scheme https.");
            return Err(invalid("BadRequest", message));
        }
        let audiences = inner.get("audiences").and_then(Value::as_array).map_or(0, Vec::len);
        if audiences != 1 {
            let message = format!("A federated identity credential has one audience; {id} has {audiences}.");
            return Err(invalid("BadRequest", message));
        }
        let Some(identity) = id.parent() else { return Ok(()) };
        let others: Vec<ArmResource> =
            rows::children(cx, &identity, CREDENTIAL)?.into_iter().filter(|it| it.id != *id).collect();
        if others.iter().any(|it| cx.now < it.settles) {
            let message = "Too many Federated Identity Credentials are written concurrently for the managed identity. \
                           Concurrent Federated Identity Credentials writes under the same managed identity are not supported.";
            let code = "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity";
            return Err(ArmError::conflict(code, message).into());
        }
        let same_pair = |it: &&ArmResource| {
            let of = |name: &str| it.property(name).and_then(Value::as_str).unwrap_or_default();
            same(of("issuer"), issuer) && of("subject") == subject
        };
        if let Some(other) = others.iter().find(same_pair) {
            let message = format!(
                "Issuer and subject combination already exists for this Managed Identity: {}.",
                other.id.name()
            );
            return Err(ArmError::conflict("Conflict", message).into());
        }
        if before.is_none() && others.len() >= CREDENTIALS_MAX {
            let message = format!(
                "Too many Federated Identity Credentials: the identity {} has {CREDENTIALS_MAX} already.",
                identity.name()
            );
            return Err(invalid("BadRequest", message));
        }
        Ok(())
    }
}
