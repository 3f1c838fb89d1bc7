//! The roles of the simulated cloud: each method is one call of its protocol.

use async_trait::async_trait;
use cloud::{
    CertificateSpec, CloudError, Credential, Identities, Infrastructure, IssuedCertificate, IssuedPullToken,
    Machine, Machines, Permission, Principal, Properties, ProviderRegistration, PullToken, Registry,
    Resource, ResourceId, ResourceRequest, RoleAssignment, Size, Usage, Vault, VaultCertificate, VaultSecret,
};
use jiff::Timestamp;

use super::SimClient;
use crate::protocol::{self, Call, CallCredential};

#[async_trait]
impl Infrastructure for SimClient {
    async fn put(&self, put: ResourceRequest) -> Result<Resource, CloudError> {
        self.call(&Call::Put { put }).await
    }

    async fn get(&self, id: &ResourceId) -> Result<Option<Resource>, CloudError> {
        self.call(&Call::Get { id: id.clone() }).await
    }

    async fn list(&self, group: &ResourceId) -> Result<Vec<Resource>, CloudError> {
        self.call(&Call::List { group: group.clone() }).await
    }

    async fn delete(&self, id: &ResourceId) -> Result<(), CloudError> {
        self.call(&Call::Delete { id: id.clone() }).await
    }

    async fn sizes(&self, subscription: &str, location: &str) -> Result<Vec<Size>, CloudError> {
        let (subscription, location) = (subscription.to_owned(), location.to_owned());
        self.call(&Call::Sizes { subscription, location }).await
    }

    async fn usages(&self, subscription: &str, location: &str) -> Result<Vec<Usage>, CloudError> {
        let (subscription, location) = (subscription.to_owned(), location.to_owned());
        self.call(&Call::Usages { subscription, location }).await
    }

    async fn providers(&self, subscription: &str) -> Result<Vec<ProviderRegistration>, CloudError> {
        self.call(&Call::Providers { subscription: subscription.to_owned() }).await
    }

    async fn feature(&self, subscription: &str, feature: &str) -> Result<Option<bool>, CloudError> {
        let (subscription, feature) = (subscription.to_owned(), feature.to_owned());
        self.call(&Call::Feature { subscription, feature }).await
    }
}

#[async_trait]
impl Identities for SimClient {
    async fn principal(&self, credential: &Credential) -> Result<Principal, CloudError> {
        self.call(&Call::Principal { credential: CallCredential::from(credential) }).await
    }

    async fn permissions(
        &self,
        credential: &Credential,
        id: &ResourceId,
        actions: &[&str],
    ) -> Result<Vec<Permission>, CloudError> {
        let actions = actions.iter().map(|&it| it.to_owned()).collect();
        self.call(&Call::Permissions {
            credential: CallCredential::from(credential),
            id: id.clone(),
            actions,
        })
        .await
    }

    async fn assign_role(&self, assignment: &RoleAssignment) -> Result<(), CloudError> {
        self.call(&Call::AssignRole { assignment: assignment.clone() }).await
    }

    async fn role_assignments(&self, scope: &ResourceId) -> Result<Vec<RoleAssignment>, CloudError> {
        self.call(&Call::RoleAssignments { scope: scope.clone() }).await
    }

    async fn revoke_role(&self, scope: &ResourceId, name: &str) -> Result<(), CloudError> {
        self.call(&Call::RevokeRole { scope: scope.clone(), name: name.to_owned() }).await
    }

    async fn identity_certificate(&self, identity: &ResourceId) -> Result<IssuedCertificate, CloudError> {
        let call = Call::IdentityCertificate { identity: identity.clone() };
        self.call::<protocol::IssuedCertificate>(&call).await.map(Into::into)
    }
}

#[async_trait]
impl Vault for SimClient {
    async fn ensure_certificate(&self, spec: &CertificateSpec) -> Result<VaultCertificate, CloudError> {
        self.call(&Call::EnsureCertificate { spec: spec.clone() }).await
    }

    async fn renew_certificate(
        &self,
        name: &str,
        newer_than: Option<&str>,
    ) -> Result<VaultCertificate, CloudError> {
        let newer_than = newer_than.map(str::to_owned);
        self.call(&Call::RenewCertificate { name: name.to_owned(), newer_than }).await
    }

    async fn certificate(&self, name: &str) -> Result<Option<IssuedCertificate>, CloudError> {
        let found: Option<protocol::IssuedCertificate> =
            self.call(&Call::Certificate { name: name.to_owned() }).await?;
        Ok(found.map(Into::into))
    }

    async fn delete_certificate(&self, name: &str) -> Result<(), CloudError> {
        self.call(&Call::DeleteCertificate { name: name.to_owned() }).await
    }

    async fn put_secret(
        &self,
        name: &str,
        value: &str,
        expires: Option<Timestamp>,
    ) -> Result<VaultSecret, CloudError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.call::<protocol::VaultSecret>(&Call::PutSecret { name, value, expires }).await.map(Into::into)
    }

    async fn secret(&self, name: &str) -> Result<Option<VaultSecret>, CloudError> {
        let found: Option<protocol::VaultSecret> = self.call(&Call::Secret { name: name.to_owned() }).await?;
        Ok(found.map(Into::into))
    }

    async fn delete_secret(&self, name: &str) -> Result<(), CloudError> {
        self.call(&Call::DeleteSecret { name: name.to_owned() }).await
    }
}

#[async_trait]
impl Registry for SimClient {
    async fn ensure_token(&self, name: &str) -> Result<PullToken, CloudError> {
        self.call(&Call::EnsureToken { name: name.to_owned() }).await
    }

    async fn token(&self, name: &str) -> Result<Option<PullToken>, CloudError> {
        self.call(&Call::Token { name: name.to_owned() }).await
    }

    async fn issue_password(&self, name: &str) -> Result<IssuedPullToken, CloudError> {
        let call = Call::IssuePassword { name: name.to_owned() };
        self.call::<protocol::IssuedPullToken>(&call).await.map(Into::into)
    }

    async fn delete_token(&self, name: &str) -> Result<(), CloudError> {
        self.call(&Call::DeleteToken { name: name.to_owned() }).await
    }
}

#[async_trait]
impl Machines for SimClient {
    async fn machines(&self, group: &ResourceId) -> Result<Vec<Machine>, CloudError> {
        Ok(self.list(group).await?.into_iter().filter_map(machine).collect())
    }

    async fn start_machine(&self, id: &ResourceId) -> Result<(), CloudError> {
        self.set_running(id, true).await
    }

    async fn stop_machine(&self, id: &ResourceId) -> Result<(), CloudError> {
        self.set_running(id, false).await
    }
}

fn machine(resource: Resource) -> Option<Machine> {
    let Properties::Machine { size, zone, address, running, .. } = resource.properties else { return None };
    Some(Machine { id: resource.id, size, zone, address, running, state: resource.state })
}

impl SimClient {
    async fn set_running(&self, id: &ResourceId, wanted: bool) -> Result<(), CloudError> {
        let not_found = || CloudError::NotFound { what: id.to_string() };
        let Resource { id, location, tags, mut properties, .. } =
            self.get(id).await?.ok_or_else(not_found)?;
        let Properties::Machine { running, address, .. } = &mut properties else { return Err(not_found()) };
        // The cloud keeps the address that it has assigned.
        (*running, *address) = (wanted, None);
        self.put(ResourceRequest { id, location, tags, properties, token: None }).await.map(drop)
    }
}
