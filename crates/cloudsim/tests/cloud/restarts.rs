//! What a service keeps when it is stopped or killed.

use std::sync::Arc;

use api::install::{InstallStage, Installer as _};
use cloud::{
    CertificateSpec, CloudError, Credential, Identities as _, Infrastructure as _, Properties, ResourceState,
    Vault as _,
};
use cloudsim::settings::Rights;

use crate::environment::{Environment, eventually, group, network_id};

#[tokio::test]
async fn a_killed_service_goes_on_where_it_was() {
    let place = tempfile::tempdir().unwrap();
    let environment = Environment::at(place.path()).await;
    environment.network().await;
    let made = environment.cloud.create_principal("customer", Rights::Everywhere).await.unwrap();
    let name = "one-apiserver".to_owned();
    environment
        .cloud
        .azure()
        .ensure_certificate(&CertificateSpec { name: name.clone(), dns_names: vec!["a.test".to_owned()] })
        .await
        .unwrap();
    let certificate = environment.cloud.azure().certificate(&name).await.unwrap().unwrap();
    let old = environment.cloud.clone();
    environment.kill().await;
    assert!(matches!(old.azure().get(&network_id()).await, Err(CloudError::Unavailable { .. })));

    let environment = Environment::at(place.path()).await;
    assert_eq!(environment.get(&network_id()).await.unwrap().state, ResourceState::Succeeded);
    let credential = Credential::Client { client_id: made.principal.client_id, secret: made.secret };
    environment.cloud.azure().principal(&credential).await.unwrap();
    let found = environment.cloud.azure().certificate(&name).await.unwrap().unwrap();
    assert_eq!(found.key_pem, certificate.key_pem);
    environment.stop().await;
}

#[tokio::test]
async fn a_directory_belongs_to_one_service_at_a_time() {
    let place = tempfile::tempdir().unwrap();
    let environment = Environment::at(place.path()).await;
    let options = cloudsim::Options { directory: Some(place.path().to_owned()), ..Default::default() };
    let refused = cloudsim::Service::open(options).await.unwrap_err();
    assert!(refused.to_string().contains("another simulated cloud runs there"), "{refused}");
    environment.stop().await;
}

#[tokio::test]
async fn what_is_on_its_way_when_the_service_is_killed_arrives() {
    use api::clock::ManualClock;
    use jiff::{SignedDuration, Timestamp};

    let place = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
    let options = || cloudsim::Options {
        directory: Some(place.path().to_owned()),
        clock: clock.clone(),
        pace: 1.0,
        ..Default::default()
    };
    let environment = Environment::with(options()).await;
    environment.put(group("one"), Properties::ResourceGroup { managed_by: None }).await;
    let table = group("one").sibling("Microsoft.Network", "routeTables", "routes");
    let put = environment.put(table.clone(), Properties::RouteTable { routes: [].into() }).await;
    assert_eq!(put.state, ResourceState::Creating);
    environment.kill().await;
    let environment = Environment::with(options()).await;
    assert_eq!(environment.get(&table).await.unwrap().state, ResourceState::Creating);
    clock.advance(SignedDuration::from_secs(10));
    assert_eq!(environment.get(&table).await.unwrap().state, ResourceState::Succeeded);
}

#[tokio::test]
async fn an_installation_survives_a_kill_in_each_of_its_stages() {
    let place = tempfile::tempdir().unwrap();
    // Slow enough that stages can be seen, quick enough that nobody waits.
    let options = || cloudsim::Options {
        directory: Some(place.path().to_owned()),
        clock: Arc::new(api::clock::SystemClock),
        pace: 0.001,
        ..Default::default()
    };
    let environment = Environment::with(options()).await;
    let request = environment.prepared("one").await;
    environment.cloud.installer().install(&request).await.unwrap();
    let mut environment = environment;
    for stage in [
        InstallStage::Bootstrap,
        InstallStage::ControlPlane,
        InstallStage::ApiServer,
        InstallStage::Workers,
        InstallStage::Operators,
    ] {
        eventually("the stage is reached", async || {
            let found = environment.cloud.installer().installation(request.cluster).await.ok()??;
            assert_eq!(found.failure, None);
            (found.stage >= stage).then_some(())
        })
        .await;
        environment.kill().await;
        environment = Environment::with(options()).await;
    }
    let done = environment.ended(request.cluster).await;
    assert_eq!((done.stage, done.percent, done.failure), (InstallStage::Complete, 100, None));
    let machines = environment.cloud.azure().list(&request.group).await.unwrap();
    let count = machines.iter().filter(|it| it.properties.kind() == cloud::ResourceKind::Machine).count();
    assert_eq!(count, 7, "nothing is made twice");

    // And so does the cluster that came of it. Killed before it could tell the password of its kubeadmin, the stage is begun
    // again, and tells the one that is in the cluster.
    let url = done.api_url;
    let password =
        environment.cloud.installer().credentials(request.cluster).await.unwrap().kubeadmin_password;
    environment.stop().await;
    let db = rusqlite::Connection::open(place.path().join("cloud.db")).unwrap();
    let changed = db.execute(
        "update record set doc = json_remove(json_set(doc, '$.stage', 'apiServer'), '$.access') where kind = 'installation'",
        [],
    );
    assert_eq!(changed.unwrap(), 1);
    db.close().unwrap();
    let environment = Environment::with(options()).await;
    assert_eq!(environment.ended(request.cluster).await.failure, None);
    let again = environment.cloud.installer().credentials(request.cluster).await.unwrap().kubeadmin_password;
    assert_eq!(again.expose(), password.expose());
    environment.stop().await;
    let environment = Environment::with(options()).await;
    let client = eventually("the cluster answers again", async || {
        let credentials = environment.cloud.installer().credentials(request.cluster).await.ok()?;
        let client = crate::installing::client(credentials.kubeconfig.expose()).await;
        client.apiserver_version().await.ok().map(|_| client)
    })
    .await;
    assert_eq!(
        environment.cloud.installer().installation(request.cluster).await.unwrap().unwrap().api_url,
        url
    );
    crate::installing::ready_nodes(&client, 6).await;
    environment.stop().await;
}
