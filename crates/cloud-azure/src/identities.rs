//! The identities role: principals by their tokens, permissions, roles, and certificates of managed identities.

use std::collections::HashMap;

use async_trait::async_trait;
use azure_core::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::{
    CloudError, Credential, Identities, IssuedCertificate, Permission, Principal, ResourceId, ResourceKind,
    RoleAssignment, RoleDefinition, VaultCertificate,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::arm::Call;
use crate::client::AzureClient;
use crate::credential::TokenClaims;
use crate::json::{items, optional_text, text, texts};
use crate::permissions::{ActionSet, allows_at, denied_sets, denies_at};
use crate::vault::split_pem;

const VERSION: &str = "2022-04-01";
const AUTHORIZATION: &str = "providers/Microsoft.Authorization";
/// The version of the identity service's protocol.
const IDENTITY_SERVICE_VERSION: &str = "2024-01-01";
/// The scope of its tokens.
const IDENTITY_SERVICE_SCOPE: &str = "https://serviceidentity.azure.net/.default";

#[async_trait]
impl Identities for AzureClient {
    async fn principal(&self, credential: &Credential) -> Result<Principal, CloudError> {
        if let Credential::Identity(id) = credential {
            return self.identity_principal(id).await;
        }
        let token = self.token_of(credential).await?;
        let claims = TokenClaims::read(&token).ok_or_else(|| CloudError::UnexpectedResponse {
            what: "the token request (the token is no JWT)".to_owned(),
            source: None,
        })?;
        let mut names: Vec<String> = claims.others.keys().cloned().collect();
        for (name, value) in [("oid", &claims.oid), ("tid", &claims.tid), ("appid", &claims.appid)] {
            if !value.is_empty() {
                names.push(name.to_owned());
            }
        }
        if !claims.roles.is_empty() {
            names.push("roles".to_owned());
        }
        names.sort();
        Ok(Principal {
            client_id: claims.appid,
            object_id: claims.oid,
            tenant_id: claims.tid,
            claims: names,
            directory_roles: claims.roles,
        })
    }

    async fn permissions(
        &self,
        credential: &Credential,
        id: &ResourceId,
        actions: &[&str],
    ) -> Result<Vec<Permission>, CloudError> {
        let granted = async {
            Ok(match credential {
                Credential::Identity(identity) => {
                    let principal = self.identity_principal(identity).await?;
                    let granted = self.assigned_sets(id.as_str(), &principal.object_id).await?;
                    (principal.object_id, granted)
                }
                Credential::Service | Credential::Client { .. } => {
                    let token = self.token_of(credential).await?;
                    let object_id = TokenClaims::read(&token).map(|it| it.oid).unwrap_or_default();
                    let path = format!("{id}/{AUTHORIZATION}/permissions");
                    // Without any right at the scope, not even the permissions can be read.
                    let granted =
                        unless_denied(self.inner.arm.list(&path, VERSION, &[], Some(&token)).await)?;
                    (object_id, granted.iter().map(ActionSet::read).collect())
                }
            })
        };
        let ((object_id, granted), denied): ((String, Vec<ActionSet>), Vec<Value>) =
            tokio::try_join!(granted, self.deny_assignments(id.as_str()))?;
        Ok(evaluate(actions, &granted, &denied, &object_id, id.as_str()))
    }

    async fn subscription_permissions(
        &self,
        subscription: &str,
        actions: &[&str],
    ) -> Result<Vec<Permission>, CloudError> {
        let scope = format!("/subscriptions/{subscription}");
        let object_id = self.principal(&Credential::Service).await?.object_id;
        // The permissions of the caller are listed for groups and resources only.
        let (granted, denied) =
            tokio::try_join!(self.assigned_sets(&scope, &object_id), self.deny_assignments(&scope))?;
        Ok(evaluate(actions, &granted, &denied, &object_id, &scope))
    }

    async fn assign_role(&self, assignment: &RoleAssignment) -> Result<(), CloudError> {
        let RoleAssignment { name, principal, role, scope } = assignment;
        let definition = self.role_id(scope, role).await?;
        let path = format!("{scope}/{AUTHORIZATION}/roleAssignments/{}", assignment_guid(name));
        let body = json!({"properties": {
            "roleDefinitionId": definition,
            "principalId": principal,
            // Saves the look-up in the directory, where a new identity is not visible yet.
            "principalType": "ServicePrincipal",
        }});
        match self.inner.arm.send(Call { body: Some(&body), ..Call::new(Method::Put, &path, VERSION) }).await
        {
            Ok(_) => Ok(()),
            // The same principal has the role at the scope under another name.
            Err(CloudError::Conflict { why, .. }) if why.starts_with("RoleAssignmentExists") => Ok(()),
            Err(CloudError::Invalid { code, .. }) if code == "RoleDefinitionDoesNotExist" => {
                self.inner.roles.forget(scope.subscription(), role);
                Err(CloudError::NotFound { what: format!("role {role}") })
            }
            Err(error) => Err(error),
        }
    }

    async fn role_assignments(&self, scope: &ResourceId) -> Result<Vec<RoleAssignment>, CloudError> {
        let path = format!("{scope}/{AUTHORIZATION}/roleAssignments");
        let listed = match self.inner.arm.list(&path, VERSION, &[], None).await {
            Err(CloudError::NotFound { .. }) => return Ok(Vec::new()),
            listed => listed?,
        };
        let prefix = scope.key();
        let below: Vec<&Value> = listed
            .iter()
            .filter(|it| {
                // Inherited assignments are listed too.
                let at = text(it, "/properties/scope").to_lowercase();
                at == prefix || at.starts_with(&format!("{prefix}/"))
            })
            .collect();
        if below.is_empty() {
            return Ok(Vec::new());
        }
        let definitions = self.role_definitions(scope).await?;
        let names: HashMap<String, String> =
            definitions.into_iter().map(|it| (it.id.to_lowercase(), it.name)).collect();
        let assignment = |it: &&Value| {
            let definition = text(it, "/properties/roleDefinitionId").rsplit('/').next().unwrap_or_default();
            let role =
                names.get(&definition.to_lowercase()).cloned().unwrap_or_else(|| definition.to_owned());
            Some(RoleAssignment {
                name: text(it, "/name").to_owned(),
                principal: text(it, "/properties/principalId").to_owned(),
                role,
                scope: text(it, "/properties/scope").parse().ok()?,
            })
        };
        Ok(below.iter().filter_map(assignment).collect())
    }

    async fn revoke_role(&self, scope: &ResourceId, name: &str) -> Result<(), CloudError> {
        let path = format!("{scope}/{AUTHORIZATION}/roleAssignments/{}", assignment_guid(name));
        absent_is_done(self.inner.arm.send(Call::new(Method::Delete, &path, VERSION)).await)
    }

    async fn identity_certificate(&self, identity: &ResourceId) -> Result<IssuedCertificate, CloudError> {
        let Some(service) = &self.inner.settings.identity_service else {
            return Err(CloudError::Configuration {
                setting: "identity_service".to_owned(),
                why: format!(
                    "it is not set, so there is no certificate of {identity}; expected the https URL of the identity service, which is open to first-party services only"
                ),
            });
        };
        let body = json!({ "identityIds": [identity] });
        let answer = self.identity_service(service, &body, identity).await?;
        let found = items(&answer, "/explicit_identities").iter().find(|it| {
            text(it, "/resource_id").is_empty()
                || text(it, "/resource_id").eq_ignore_ascii_case(identity.as_str())
        });
        let Some(found) = found else {
            return Err(CloudError::NotFound { what: format!("the certificate of {identity}") });
        };
        issued(identity, found)
    }

    async fn put_role_definition(&self, definition: &RoleDefinition) -> Result<(), CloudError> {
        let Some(scope) = definition.assignable_scopes.first() else {
            let why = format!("the role {} has no assignable scope", definition.name);
            return Err(CloudError::Invalid { code: "InvalidRoleDefinition".to_owned(), why });
        };
        let path =
            format!("{}/{AUTHORIZATION}/roleDefinitions/{}", scope.trim_end_matches('/'), definition.id);
        let body = json!({"properties": {
            "roleName": definition.name,
            "type": "CustomRole",
            "permissions": [{
                "actions": definition.actions,
                "notActions": definition.not_actions,
                "dataActions": definition.data_actions,
                "notDataActions": definition.not_data_actions,
            }],
            "assignableScopes": definition.assignable_scopes,
        }});
        self.inner
            .arm
            .send(Call { body: Some(&body), ..Call::new(Method::Put, &path, VERSION) })
            .await
            .map(drop)
    }

    async fn role_definitions(&self, scope: &ResourceId) -> Result<Vec<RoleDefinition>, CloudError> {
        let path = format!("{scope}/{AUTHORIZATION}/roleDefinitions");
        let listed = self.inner.arm.list(&path, VERSION, &[], None).await?;
        Ok(listed.iter().map(role_definition).collect())
    }

    async fn delete_role_definition(&self, scope: &ResourceId, id: &str) -> Result<(), CloudError> {
        let path = format!("{scope}/{AUTHORIZATION}/roleDefinitions/{id}");
        absent_is_done(self.inner.arm.send(Call::new(Method::Delete, &path, VERSION)).await)
    }
}

/// Which actions a principal may perform at a scope: what its roles allow there, less what deny assignments forbid.
fn evaluate(
    actions: &[&str],
    granted: &[ActionSet],
    deny_assignments: &[Value],
    object_id: &str,
    scope: &str,
) -> Vec<Permission> {
    let in_force = deny_assignments.iter().filter(|it| denies_at(it, scope));
    let denied: Vec<ActionSet> = in_force.flat_map(|it| denied_sets(it, object_id)).collect();
    let is_in = |sets: &[ActionSet], action: &str| sets.iter().any(|it| it.contains(action));
    let permission = |action: &&str| Permission {
        action: (*action).to_owned(),
        allowed: is_in(granted, action) && !is_in(&denied, action),
    };
    actions.iter().map(permission).collect()
}

/// A list, which is empty for a caller who may not read it.
fn unless_denied(listed: Result<Vec<Value>, CloudError>) -> Result<Vec<Value>, CloudError> {
    match listed {
        Err(CloudError::Denied { .. }) => Ok(Vec::new()),
        listed => listed,
    }
}

fn absent_is_done<T>(outcome: Result<T, CloudError>) -> Result<(), CloudError> {
    match outcome {
        Ok(_) | Err(CloudError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The name of an assignment in Azure, which must be a UUID.
fn assignment_guid(name: &str) -> Uuid {
    name.parse().unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()))
}

fn role_definition(body: &Value) -> RoleDefinition {
    let all = |member: &str| {
        items(body, "/properties/permissions").iter().flat_map(|it| texts(it, member)).collect()
    };
    RoleDefinition {
        id: text(body, "/name").to_owned(),
        name: text(body, "/properties/roleName").to_owned(),
        actions: all("/actions"),
        not_actions: all("/notActions"),
        data_actions: all("/dataActions"),
        not_data_actions: all("/notDataActions"),
        assignable_scopes: texts(body, "/properties/assignableScopes"),
        built_in: text(body, "/properties/type").eq_ignore_ascii_case("BuiltInRole"),
    }
}

impl AzureClient {
    async fn token_of(&self, credential: &Credential) -> Result<String, CloudError> {
        let scope = &self.inner.settings.scope;
        match credential {
            Credential::Service | Credential::Identity(_) => self.inner.credentials.token(scope).await,
            Credential::Client { client_id, secret } => {
                self.inner.credentials.client_token(client_id, secret, scope).await
            }
        }
    }

    /// The principal of a managed identity. Its tokens are not ours to have; the resource tells its ids.
    async fn identity_principal(&self, id: &ResourceId) -> Result<Principal, CloudError> {
        let found = self.read(id, ResourceKind::Identity).await?;
        let found = found.ok_or_else(|| CloudError::NotFound { what: id.to_string() })?;
        Ok(Principal {
            client_id: text(&found, "/properties/clientId").to_owned(),
            object_id: text(&found, "/properties/principalId").to_owned(),
            tenant_id: text(&found, "/properties/tenantId").to_owned(),
            claims: ["appid", "oid", "tid"].map(str::to_owned).to_vec(),
            directory_roles: Vec::new(),
        })
    }

    async fn deny_assignments(&self, scope: &str) -> Result<Vec<Value>, CloudError> {
        let path = format!("{scope}/{AUTHORIZATION}/denyAssignments");
        unless_denied(self.inner.arm.list(&path, VERSION, &[], None).await)
    }

    /// The actions that a principal's roles allow at a scope.
    async fn assigned_sets(&self, scope: &str, principal: &str) -> Result<Vec<ActionSet>, CloudError> {
        let path = format!("{scope}/{AUTHORIZATION}/roleAssignments");
        let filter = format!("assignedTo('{principal}')");
        let assignments = self.inner.arm.list(&path, VERSION, &[("$filter", &filter)], None).await?;
        let mut definitions: Vec<&str> = assignments
            .iter()
            .filter(|it| allows_at(it, scope))
            .map(|it| text(it, "/properties/roleDefinitionId"))
            .collect();
        definitions.sort_unstable();
        definitions.dedup();
        let mut sets = Vec::new();
        for definition in definitions.into_iter().filter(|it| it.starts_with('/')) {
            let Some(found) = self.inner.arm.find(definition, VERSION, &[]).await? else { continue };
            sets.extend(items(&found, "/properties/permissions").iter().map(ActionSet::read));
        }
        Ok(sets)
    }

    /// The full id of a role that is given by name, by UUID or by its id.
    async fn role_id(&self, scope: &ResourceId, role: &str) -> Result<String, CloudError> {
        if role.starts_with('/') {
            return Ok(role.to_owned());
        }
        let subscription = scope.subscription();
        if role.parse::<Uuid>().is_ok() {
            return Ok(format!("/subscriptions/{subscription}/{AUTHORIZATION}/roleDefinitions/{role}"));
        }
        if let Some(id) = self.inner.roles.id(subscription, role) {
            return Ok(id);
        }
        let path = format!("{scope}/{AUTHORIZATION}/roleDefinitions");
        let filter = format!("roleName eq '{}'", role.replace('\'', "''"));
        let listed = self.inner.arm.list(&path, VERSION, &[("$filter", &filter)], None).await?;
        let found = listed.iter().find(|it| text(it, "/properties/roleName").eq_ignore_ascii_case(role));
        let Some(id) = found.and_then(|it| optional_text(it, "/id")) else {
            return Err(CloudError::NotFound { what: format!("role {role}") });
        };
        self.inner.roles.remember(subscription, role, &id);
        Ok(id)
    }

    /// Calls the identity service, which is no part of the resource manager but answers like it.
    async fn identity_service(
        &self,
        service: &str,
        body: &Value,
        identity: &ResourceId,
    ) -> Result<Value, CloudError> {
        let url = azure_core::http::Url::parse(service).map_err(|error| CloudError::Configuration {
            setting: "identity_service".to_owned(),
            why: error.to_string(),
        })?;
        let token = self.inner.credentials.token(IDENTITY_SERVICE_SCOPE).await?;
        self.inner.arm.post_elsewhere(url, IDENTITY_SERVICE_VERSION, body, &token, identity.as_str()).await
    }
}

/// The certificate of a response: PEM in base64.
fn issued(identity: &ResourceId, found: &Value) -> Result<IssuedCertificate, CloudError> {
    let unexpected = |why: &str| CloudError::UnexpectedResponse {
        what: format!("the request for the certificate of {identity} ({why})"),
        source: None,
    };
    let secret = STANDARD
        .decode(text(found, "/client_secret"))
        .map_err(|_| unexpected("the certificate is no base64"))?;
    let pem = String::from_utf8(secret).map_err(|_| {
        unexpected("the certificate is PKCS#12, which this client does not read; expected PEM")
    })?;
    let (key, chain_pem) =
        split_pem(&pem).ok_or_else(|| unexpected("the certificate lacks its key or its chain"))?;
    let time = |pointer: &str| text(found, pointer).parse::<Timestamp>().ok();
    let certificate = VaultCertificate {
        name: identity.name().to_owned(),
        dns_names: Vec::new(),
        version: optional_text(found, "/not_before"),
        not_before: time("/not_before"),
        not_after: time("/not_after"),
        issuing: false,
    };
    Ok(IssuedCertificate { certificate, chain_pem, key_pem: api::secret::Secret::new(key) })
}

#[cfg(test)]
mod tests;
