//! The blobs role: every verb twice, under faults, without rights, and after a restart.

use api::clock::ManualClock;
use cloud::{BlobAddress, Blobs as _, Identities as _, RoleAssignment};
use cloudsim::settings::Rights;
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use jiff::SignedDuration;

use super::vault::repeated;
use super::*;

const CONTAINER: &str = "ignition";
const CONTENT_TYPE: &str = "application/json";

fn account() -> ResourceId {
    ResourceId::group(SUBSCRIPTION, "blobs").sibling("Microsoft.Storage", "storageAccounts", "clusterabc")
}

fn address(name: &str) -> BlobAddress {
    BlobAddress { account: account(), container: CONTAINER.to_owned(), name: name.to_owned() }
}

/// A group, and in it an account with a container.
fn prepared() -> [ResourceRequest; 2] {
    let request = |id: ResourceId, properties: Properties| ResourceRequest {
        id,
        location: LOCATION.to_owned(),
        tags: BTreeMap::new(),
        properties,
    };
    let properties =
        Properties::StorageAccount { containers: vec!["aro".to_owned()], allowed_subnets: Vec::new() };
    [
        request(ResourceId::group(SUBSCRIPTION, "blobs"), Properties::ResourceGroup { managed_by: None }),
        request(account(), properties),
    ]
}

impl AzureEnvironment {
    async fn with_account(options: Options) -> AzureEnvironment {
        let environment = AzureEnvironment::with(options).await;
        for request in prepared() {
            environment.ready(&request).await;
        }
        environment
    }

    async fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.azure.blob(&address(name)).await.unwrap()
    }
}

#[tokio::test]
async fn every_verb_of_blobs_may_be_called_twice() {
    let environment = AzureEnvironment::with_account(Options::default()).await;
    let azure = &environment.azure;
    for _ in 0..2 {
        azure.ensure_container(&account(), CONTAINER).await.unwrap();
    }
    let binary: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    for (name, content) in [
        ("plain", b"one".to_vec()),
        ("tenant/cluster/.well-known/openid-configuration", b"{}".to_vec()),
        ("name with spaces & signs #?%.json", b"x".to_vec()),
        ("empty", Vec::new()),
        ("binary", binary),
    ] {
        assert_eq!(environment.content(name).await, None, "{name}");
        for _ in 0..2 {
            azure.put_blob(&address(name), CONTENT_TYPE, content.clone()).await.unwrap();
            assert!(environment.content(name).await.as_ref() == Some(&content), "{name}");
        }
        azure.put_blob(&address(name), CONTENT_TYPE, b"other".to_vec()).await.unwrap();
        assert_eq!(environment.content(name).await.as_deref(), Some(&b"other"[..]), "{name}");
        for _ in 0..2 {
            azure.delete_blob(&address(name)).await.unwrap();
            assert_eq!(environment.content(name).await, None, "{name}");
        }
    }
    azure.put_blob(&address("left"), CONTENT_TYPE, b"x".to_vec()).await.unwrap();
    for _ in 0..2 {
        azure.delete_container(&account(), CONTAINER).await.unwrap();
    }
    azure.ensure_container(&account(), CONTAINER).await.unwrap();
    assert_eq!(environment.content("left").await, None);
    // The containers of an account are the same ones.
    let graph = BlobAddress { container: "aro".to_owned(), ..address("graph") };
    azure.put_blob(&graph, CONTENT_TYPE, b"{}".to_vec()).await.unwrap();
}

#[tokio::test]
async fn what_is_missing_is_absent_for_reads_and_deletions_and_an_error_for_writes() {
    let environment = AzureEnvironment::with_account(Options::default()).await;
    let azure = &environment.azure;
    let elsewhere = BlobAddress {
        account: account().sibling("Microsoft.Storage", "storageAccounts", "absent"),
        ..address("a")
    };
    for missing in [address("a"), elsewhere] {
        assert_eq!(azure.blob(&missing).await.unwrap(), None);
        azure.delete_blob(&missing).await.unwrap();
        azure.delete_container(&missing.account, &missing.container).await.unwrap();
        let error = azure.put_blob(&missing, CONTENT_TYPE, b"x".to_vec()).await.unwrap_err();
        assert!(error.is_not_found(), "{error}");
    }
}

#[tokio::test]
async fn a_lost_response_about_a_blob_is_repeated() {
    let environment = AzureEnvironment::with_account(Options::default()).await;
    let azure = &environment.azure;
    let [before, after] = [FaultTiming::Before, FaultTiming::After];
    for (fault, is_done) in [
        (CloudFault::Reset { when: after }, true),
        (CloudFault::Unavailable { when: after }, true),
        (CloudFault::Reset { when: before }, false),
        (CloudFault::Unavailable { when: before }, false),
    ] {
        let lose = |verb: &str| environment.inject(FaultRule::new(fault.clone()).on(verb).times(1));
        let transient = |error: CloudError| assert_eq!(error.class(), Class::Transient, "{fault}: {error}");
        lose("ensureContainer");
        transient(azure.ensure_container(&account(), CONTAINER).await.unwrap_err());
        repeated(async || azure.ensure_container(&account(), CONTAINER).await).await;
        lose("putBlob");
        transient(azure.put_blob(&address("a"), CONTENT_TYPE, b"x".to_vec()).await.unwrap_err());
        assert_eq!(environment.content("a").await.is_some(), is_done, "{fault}");
        repeated(async || azure.put_blob(&address("a"), CONTENT_TYPE, b"x".to_vec()).await).await;
        lose("blob");
        transient(azure.blob(&address("a")).await.unwrap_err());
        assert_eq!(environment.content("a").await.as_deref(), Some(&b"x"[..]));
        lose("deleteBlob");
        transient(azure.delete_blob(&address("a")).await.unwrap_err());
        assert_eq!(environment.content("a").await.is_none(), is_done, "{fault}");
        repeated(async || azure.delete_blob(&address("a")).await).await;
        lose("deleteContainer");
        transient(azure.delete_container(&account(), CONTAINER).await.unwrap_err());
        repeated(async || azure.delete_container(&account(), CONTAINER).await).await;
        assert_eq!(environment.content("a").await, None);
    }
}

#[tokio::test]
async fn a_rejected_token_is_renewed_for_blobs() {
    let environment = AzureEnvironment::with_account(Options::default()).await;
    let azure = &environment.azure;
    azure.ensure_container(&account(), CONTAINER).await.unwrap();
    for verb in ["putBlob", "blob", "deleteBlob"] {
        environment.inject(FaultRule::new(CloudFault::TokenExpires {}).on(verb).times(1));
    }
    azure.put_blob(&address("a"), CONTENT_TYPE, b"x".to_vec()).await.unwrap();
    assert_eq!(environment.content("a").await.as_deref(), Some(&b"x"[..]));
    azure.delete_blob(&address("a")).await.unwrap();
    assert_eq!(environment.emulator.faults.present(), [], "every rule was met");
    // One that is rejected again is not accepted at all.
    environment.inject(FaultRule::new(CloudFault::TokenExpires {}).on("blob").times(2));
    let error = azure.blob(&address("a")).await.unwrap_err();
    assert!(matches!(error, CloudError::Credential { .. }), "{error}");
}

#[tokio::test]
async fn refusals_of_blobs_say_what_and_why() {
    let environment = AzureEnvironment::with_account(Options::default()).await;
    let azure = &environment.azure;
    azure.ensure_container(&account(), CONTAINER).await.unwrap();
    environment.inject(FaultRule::new(CloudFault::Throttled { after_seconds: 7 }).on("blob").times(1));
    let error = azure.blob(&address("a")).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{error}");
    let error = azure.ensure_container(&account(), "Not_Valid").await.unwrap_err();
    assert!(matches!(&error, CloudError::Invalid { code, .. } if code == "InvalidResourceName"), "{error}");
    let principal = environment.emulator.cloud.create_principal("nobody", Rights::ByRoles).await.unwrap();
    let other = environment.client_of(&principal.principal.client_id, &principal.secret);
    let put = async || other.put_blob(&address("a"), CONTENT_TYPE, b"x".to_vec()).await;
    let error = put().await.unwrap_err();
    assert!(matches!(error, CloudError::Denied { .. }), "{error}");
    let assignment = RoleAssignment {
        scope: account(),
        name: "5b2ab0a4-6d9b-4a47-8a3b-6d3f2c1e0f00".to_owned(),
        role: "Storage Blob Data Contributor".to_owned(),
        principal: principal.principal.object_id.clone(),
    };
    azure.assign_role(&assignment).await.unwrap();
    put().await.unwrap();
}

#[tokio::test]
async fn the_name_of_a_deleted_container_is_waited_for() {
    let clock = ManualClock::at("2026-03-01T12:00:00Z".parse().unwrap());
    let options = Options { clock: clock.clone(), pace: 1.0, ..Options::default() };
    let environment = AzureEnvironment::with(options).await;
    let azure = &environment.azure;
    for request in prepared() {
        eventually("it is ready", async || {
            clock.advance(SignedDuration::from_mins(1));
            let state = azure.put(request.clone()).await.unwrap().state;
            (state == ResourceState::Succeeded).then_some(())
        })
        .await;
    }
    azure.ensure_container(&account(), CONTAINER).await.unwrap();
    azure.delete_container(&account(), CONTAINER).await.unwrap();
    let error = azure.ensure_container(&account(), CONTAINER).await.unwrap_err();
    assert!(matches!(&error, CloudError::Busy { code, .. } if code == "ContainerBeingDeleted"), "{error}");
    // By then the token has expired too.
    clock.advance(SignedDuration::from_hours(48));
    azure.ensure_container(&account(), CONTAINER).await.unwrap();
}

#[tokio::test]
async fn blobs_outlive_a_killed_emulator() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { directory: Some(directory.path().to_owned()), ..Options::default() };
    let environment = AzureEnvironment::with_account(options.clone()).await;
    environment.azure.ensure_container(&account(), CONTAINER).await.unwrap();
    environment.azure.put_blob(&address("a"), CONTENT_TYPE, b"x".to_vec()).await.unwrap();
    environment.emulator.kill().await;
    let environment = AzureEnvironment::with(options).await;
    assert_eq!(environment.content("a").await.as_deref(), Some(&b"x"[..]));
}
