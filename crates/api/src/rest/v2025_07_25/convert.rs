//! Conversion to and from the internal type.

use super::types::{ClusterProfile, OpenShiftCluster, OpenShiftClusterProperties};
use crate::doc::Cluster;
use crate::rest::show;
use crate::rest::{Draft, DraftProperties};

impl OpenShiftCluster {
    /// The resource of a cluster, without secrets.
    pub fn of(cluster: &Cluster) -> OpenShiftCluster {
        let provisioned = cluster.provisioned.as_deref();
        OpenShiftCluster {
            id: Some(cluster.id.clone()),
            name: Some(cluster.name.clone()),
            kind: Some(show::kind(cluster)),
            location: Some(cluster.location.clone()),
            tags: provisioned.and_then(show::tags),
            identity: provisioned.and_then(|it| show::identity(&it.spec.identity)),
            system_data: provisioned.and_then(show::system_data),
            properties: Some(OpenShiftClusterProperties::of(cluster)),
        }
    }

    /// The cluster that the request describes.
    pub fn draft(&self) -> Draft<'_> {
        Draft {
            knows_identities: true,
            id: self.id.as_deref(),
            name: self.name.as_deref(),
            kind: self.kind.as_deref(),
            location: self.location.as_deref(),
            tags: self.tags.as_ref(),
            identity: self.identity.as_ref(),
            properties: self.properties.as_ref().map(OpenShiftClusterProperties::draft),
        }
    }

    /// Remove read-only members, so that they are present only when a request has them.
    pub fn strip_read_only(&mut self) {
        self.system_data = None;
        if let Some(identity) = &mut self.identity {
            show::strip_identity(identity);
        }
        let Some(properties) = &mut self.properties else { return };
        properties.console_profile = None;
        properties.worker_profiles_status = None;
        if let Some(profile) = &mut properties.cluster_profile {
            profile.oidc_issuer = None;
        }
        if let Some(platform) = &mut properties.platform_workload_identity_profile {
            show::strip_platform(platform);
        }
        if let Some(network) = &mut properties.network_profile {
            show::strip_network(network);
        }
        if let Some(apiserver) = &mut properties.apiserver_profile {
            (apiserver.url, apiserver.ip) = (None, None);
        }
        for ingress in properties.ingress_profiles.iter_mut().flatten() {
            ingress.ip = None;
        }
    }
}

impl OpenShiftClusterProperties {
    fn of(cluster: &Cluster) -> OpenShiftClusterProperties {
        let state = Some(show::state(cluster.provisioning_state).to_owned());
        let Some(provisioned) = cluster.provisioned.as_deref() else {
            return OpenShiftClusterProperties {
                provisioning_state: state,
                ..OpenShiftClusterProperties::default()
            };
        };
        let (spec, record) = (&provisioned.spec, &provisioned.record);
        OpenShiftClusterProperties {
            provisioning_state: state,
            cluster_profile: Some(ClusterProfile {
                pull_secret: None,
                domain: Some(spec.domain.clone()),
                version: Some(show::version(provisioned).to_owned()),
                resource_group_id: Some(spec.resource_group_id.clone()),
                fips_validated_modules: Some(show::switch(spec.fips)),
                oidc_issuer: record.oidc_issuer.clone(),
            }),
            console_profile: show::console(record),
            service_principal_profile: show::service_principal(&spec.identity),
            platform_workload_identity_profile: show::platform(&spec.identity),
            network_profile: Some(show::network(&spec.network, record)),
            master_profile: Some(show::master(&spec.master)),
            worker_profiles: Some(spec.workers.iter().map(show::worker).collect()),
            worker_profiles_status: show::workers_status(record),
            apiserver_profile: Some(show::apiserver(spec, record)),
            ingress_profiles: Some(show::ingresses(spec, record)),
        }
    }

    fn draft(&self) -> DraftProperties<'_> {
        let profile = self.cluster_profile.as_ref();
        DraftProperties {
            provisioning_state: self.provisioning_state.as_deref(),
            has_cluster_profile: profile.is_some(),
            pull_secret: profile.and_then(|it| it.pull_secret.as_ref()),
            domain: profile.and_then(|it| it.domain.as_deref()),
            version: profile.and_then(|it| it.version.as_deref()),
            resource_group_id: profile.and_then(|it| it.resource_group_id.as_deref()),
            fips: profile.and_then(|it| it.fips_validated_modules.as_deref()),
            console: self.console_profile.as_ref(),
            service_principal: self.service_principal_profile.as_ref(),
            platform: self.platform_workload_identity_profile.as_ref(),
            network: self.network_profile.as_ref(),
            master: self.master_profile.as_ref(),
            workers: self.worker_profiles.as_deref(),
            workers_status: self.worker_profiles_status.as_deref(),
            apiserver: self.apiserver_profile.as_ref(),
            ingresses: self.ingress_profiles.as_deref(),
        }
    }
}
