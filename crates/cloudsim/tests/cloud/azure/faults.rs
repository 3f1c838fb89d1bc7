//! Calls under faults: before and after their effect, in their operations, and in storms of all kinds.

use api::clock::{Clock as _, ManualClock, SystemClock};
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use futures_util::future::join_all;
use jiff::SignedDuration;

use super::*;

impl AzureEnvironment {
    pub(super) fn inject(&self, rule: FaultRule) {
        self.emulator.faults.inject(rule).unwrap();
    }

    /// A group with a network, whose faults come later.
    async fn prepared(&self) {
        for kind in [
            ResourceKind::ResourceGroup,
            ResourceKind::SecurityGroup,
            ResourceKind::RouteTable,
            ResourceKind::VirtualNetwork,
            ResourceKind::Subnet,
        ] {
            self.ready(&request_of(kind)).await;
        }
    }
}

impl AzureEnvironment {
    /// Creates and deletes every kind.
    async fn life(&self) {
        for stage in stages() {
            join_all(stage.iter().map(|it| self.ready(it))).await;
        }
        for stage in stages().iter().rev() {
            join_all(stage.iter().map(|it| self.gone(&it.id))).await;
        }
    }
}

/// Every kind that can be created, in stages of what does not depend on each other.
fn stages() -> Vec<Vec<ResourceRequest>> {
    let stage = |kind: ResourceKind| match kind {
        ResourceKind::ResourceGroup => 0,
        ResourceKind::Subnet => 2,
        ResourceKind::LoadBalancer
        | ResourceKind::StorageAccount
        | ResourceKind::DnsRecord
        | ResourceKind::PrivateDnsRecord
        | ResourceKind::PrivateDnsLink => 3,
        ResourceKind::PrivateLinkService | ResourceKind::NetworkInterface | ResourceKind::Machine => 4,
        ResourceKind::PrivateEndpoint => 5,
        ResourceKind::Lock => 6,
        _ => 1,
    };
    let mut stages = vec![Vec::new(); 7];
    for request in requests() {
        let kind = request.properties.kind();
        if kind != ResourceKind::DiskEncryptionSet {
            stages[stage(kind)].push(request);
        }
    }
    stages
}

/// Creates and deletes every kind while each write and each read fails once in this way. The client copes with it by itself.
async fn survives(fault: CloudFault) {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    let fail = |verb: &str, id: &ResourceId| {
        environment.inject(FaultRule::new(fault.clone()).on(verb).about(id.as_str()).times(1));
    };
    for stage in stages() {
        let create = async |request: &ResourceRequest| {
            fail("get", &request.id);
            fail("put", &request.id);
            azure.put(request.clone()).await.unwrap_or_else(|error| panic!("{}: {error}", request.id));
            environment.ready(request).await;
        };
        join_all(stage.iter().map(create)).await;
        environment.emulator.faults.clear();
    }
    // Nothing was made twice: there is what was requested, and the parts of the machine and of the endpoint.
    let all: Vec<ResourceRequest> = stages().concat();
    let listed = azure.list(&group()).await.unwrap();
    let parts = ["infra-master-0-nic", "infra-master-0_OSDisk", "rp-pe.nic"];
    let is_known = |id: &ResourceId| {
        all.iter().any(|it| it.id == *id) || parts.iter().any(|it| id.name().starts_with(it))
    };
    let unknown: Vec<&ResourceId> = listed.iter().map(|it| &it.id).filter(|id| !is_known(id)).collect();
    assert_eq!(unknown, [] as [&ResourceId; 0]);
    for stage in stages().iter().rev() {
        let delete = async |request: &ResourceRequest| {
            fail("delete", &request.id);
            azure.delete(&request.id).await.unwrap_or_else(|error| panic!("{}: {error}", request.id));
            environment.gone(&request.id).await;
        };
        join_all(stage.iter().map(delete)).await;
        environment.emulator.faults.clear();
    }
}

#[tokio::test]
async fn a_service_that_fails_before_the_effect_is_asked_again() {
    survives(CloudFault::Unavailable { when: FaultTiming::Before }).await;
}

#[tokio::test]
async fn a_service_that_fails_after_the_effect_does_nothing_twice() {
    survives(CloudFault::Unavailable { when: FaultTiming::After }).await;
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_effect_is_made_again() {
    survives(CloudFault::Reset { when: FaultTiming::Before }).await;
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_effect_does_nothing_twice() {
    survives(CloudFault::Reset { when: FaultTiming::After }).await;
}

#[tokio::test]
async fn a_handshake_that_fails_is_reported_as_one_and_repeated() {
    use cloud::Machines as _;
    let environment = AzureEnvironment::new().await;
    environment.prepared().await;
    let machine = request_of(ResourceKind::Machine);
    environment.ready(&machine).await;
    environment.inject(FaultRule::new(CloudFault::HandshakeFails {}).times(100));
    let unconnected = environment.client(|_| {});
    let error = unconnected.get(&machine.id).await.unwrap_err();
    assert!(matches!(error, CloudError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("no connection to https://127.0.0.1"), "{error}");
    environment.emulator.faults.clear();
    // With a token already, a call that could not be sent is sent again, also one that may not be repeated.
    unconnected.get(&machine.id).await.unwrap();
    for times in [1, 2] {
        let reset = CloudFault::Reset { when: FaultTiming::Before };
        environment.inject(FaultRule::new(reset).on("get").times(1));
        environment.inject(FaultRule::new(CloudFault::HandshakeFails {}).times(times));
        // The connection breaks, and the next ones cannot be made.
        eventually("a connection is made", async || unconnected.get(&machine.id).await.ok()).await;
        unconnected.stop_machine(&machine.id).await.unwrap();
        environment.emulator.faults.clear();
    }
}

#[tokio::test]
async fn a_token_that_expires_in_the_middle_is_renewed() {
    survives(CloudFault::TokenExpires {}).await;
}

#[tokio::test]
async fn a_token_that_lacks_claims_is_renewed_with_them() {
    survives(CloudFault::Claims {}).await;
}

#[tokio::test]
async fn a_throttled_subscription_tells_how_long_and_is_left_alone() {
    let environment = AzureEnvironment::new().await;
    let azure = &environment.azure;
    let group = request_of(ResourceKind::ResourceGroup);
    environment.inject(FaultRule::new(CloudFault::Throttled { after_seconds: 600 }).on("put").times(1));
    let error = azure.put(group.clone()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(600)), "{error}");
    // The rule is used up, and still nothing is sent before its time.
    assert!(matches!(azure.get(&group.id).await, Err(CloudError::Throttled { .. })));
    // Another subscription is not concerned.
    azure.get(&ResourceId::group("22222222-2222-2222-2222-222222222222", "g")).await.unwrap();
    // A client that does not know of it finds that the service answers again.
    let created = environment.client(|_| {}).put(group).await.unwrap();
    assert_eq!(created.state, ResourceState::Succeeded);
}

#[tokio::test]
async fn another_operation_in_progress_is_waited_for() {
    let environment = AzureEnvironment::new().await;
    environment.prepared().await;
    let subnet = request_of(ResourceKind::Subnet);
    environment.inject(FaultRule::new(CloudFault::Conflict { after_seconds: 7 }).on("delete").times(1));
    let error = environment.azure.delete(&subnet.id).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Busy { code, .. } if code == "AnotherOperationInProgress"),
        "{error}"
    );
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    environment.gone(&subnet.id).await;
}

#[tokio::test]
async fn refusals_have_the_code_of_azure_and_say_who_or_what_refuses() {
    let environment = AzureEnvironment::new().await;
    environment.prepared().await;
    let address = request_of(ResourceKind::PublicIp);
    let refused = async |fault: CloudFault| {
        environment.inject(FaultRule::new(fault).on("put").times(1));
        environment.azure.put(address.clone()).await.unwrap_err()
    };
    let error = refused(CloudFault::Policy { name: "no-public-addresses".to_owned() }).await;
    assert!(
        matches!(&error, CloudError::Policy { policy, .. } if policy == "no-public-addresses"),
        "{error}"
    );
    assert!(error.to_string().contains("RequestDisallowedByPolicy"), "{error}");
    let error = refused(CloudFault::Denied {}).await;
    assert!(
        matches!(&error, CloudError::Denied { action, .. } if action.contains("AuthorizationFailed")),
        "{error}"
    );
    let error = refused(CloudFault::Quota { quota: "cores".to_owned() }).await;
    assert!(matches!(&error, CloudError::Quota { wanted: 1, .. }), "{error}");
    // Nothing of it was made.
    assert_eq!(environment.azure.get(&address.id).await.unwrap(), None);
    // A lock of the customer.
    environment.ready(&address).await;
    let lock = request_of(ResourceKind::Lock);
    environment.ready(&lock).await;
    let error = environment.azure.delete(&address.id).await.unwrap_err();
    assert!(matches!(error, CloudError::Locked { .. }), "{error}");
    environment.gone(&lock.id).await;
    environment.gone(&address.id).await;
}

#[tokio::test]
async fn an_operation_that_fails_tells_why_and_is_tried_again() {
    let environment = AzureEnvironment::new().await;
    environment.prepared().await;
    let azure = &environment.azure;
    let fault = || CloudFault::ProvisioningFails {
        code: "AllocationFailed".to_owned(),
        message: "There is no \"room\".".to_owned(),
    };
    for kind in [
        ResourceKind::PublicIp,
        ResourceKind::Disk,
        ResourceKind::PrivateDnsZone,
        ResourceKind::StorageAccount,
    ] {
        let request = request_of(kind);
        environment.inject(FaultRule::new(fault()).on("put").about(request.id.name()).times(1));
        azure.put(request.clone()).await.unwrap();
        let failure = eventually("the failure is reported", async || {
            match azure.get(&request.id).await.unwrap().map(|it| it.state) {
                Some(ResourceState::Failed { failure }) => Some(failure),
                _ => None,
            }
        })
        .await;
        assert_eq!(
            (failure.code.as_str(), failure.message.as_str()),
            ("AllocationFailed", "There is no \"room\".")
        );
        environment.ready(&request).await;
    }
    // A deletion that fails is reported once; the next attempt may succeed.
    let address = request_of(ResourceKind::PublicIp);
    environment.inject(FaultRule::new(fault()).on("delete").about(address.id.name()).times(1));
    azure.delete(&address.id).await.unwrap();
    let error = eventually("the failure is reported", async || azure.delete(&address.id).await.err()).await;
    assert!(error.to_string().contains("room"), "{error}");
    environment.gone(&address.id).await;
}

#[tokio::test]
async fn an_operation_that_vanishes_leaves_the_decision_to_the_resource() {
    let environment = AzureEnvironment::new().await;
    environment.inject(FaultRule::new(CloudFault::OperationLost {}));
    environment.life().await;
}

#[tokio::test]
async fn an_operation_that_never_ends_is_in_progress() {
    let environment = AzureEnvironment::new().await;
    environment.prepared().await;
    let azure = &environment.azure;
    let address = request_of(ResourceKind::PublicIp);
    environment.inject(FaultRule::new(CloudFault::OperationHangs {}).about(address.id.name()));
    let put = azure.put(address.clone()).await.unwrap();
    assert!(matches!(put.state, ResourceState::Creating | ResourceState::Updating), "{put:?}");
    for _ in 0..3 {
        let found = azure.get(&address.id).await.unwrap().unwrap();
        assert!(matches!(found.state, ResourceState::Creating | ResourceState::Updating), "{found:?}");
    }
    azure.delete(&address.id).await.unwrap();
    azure.delete(&address.id).await.unwrap();
    let found = azure.get(&address.id).await.unwrap().unwrap();
    assert_eq!(found.state, ResourceState::Deleting);
}

#[tokio::test]
async fn what_is_not_visible_yet_is_created_once() {
    let environment = AzureEnvironment::new().await;
    environment.prepared().await;
    let azure = &environment.azure;
    let account = request_of(ResourceKind::StorageAccount);
    let machine = request_of(ResourceKind::Machine);
    for request in [request_of(ResourceKind::PublicIp), account, machine] {
        let fault = CloudFault::DelayedVisibility { millis: 300 };
        environment.inject(FaultRule::new(fault).on("put").about(request.id.name()).times(2));
        environment.ready(&request).await;
        eventually("it is visible", async || azure.get(&request.id).await.unwrap()).await;
        environment.ready(&request).await;
    }
    let machines = azure.list(&group()).await.unwrap();
    let machines = machines.iter().filter(|it| it.properties.kind() == ResourceKind::Machine).count();
    assert_eq!(machines, 1);
}

#[tokio::test]
async fn a_security_group_that_a_subnet_does_not_see_yet_is_waited_for() {
    let clock = ManualClock::at(SystemClock.now());
    let options = Options { clock: clock.clone(), ..Options::default() };
    let environment = AzureEnvironment::with(options).await;
    environment.prepared().await;
    let azure = &environment.azure;
    let late = ResourceRequest {
        id: network("networkSecurityGroups", "late"),
        ..request_of(ResourceKind::SecurityGroup)
    };
    let fault = CloudFault::DelayedVisibility { millis: 500 };
    environment.inject(FaultRule::new(fault).on("put").about("late").times(1));
    azure.put(late.clone()).await.unwrap();
    let mut subnet = request_of(ResourceKind::Subnet);
    if let Properties::Subnet { security_group, .. } = &mut subnet.properties {
        *security_group = Some(late.id);
    }
    let error = azure.put(subnet.clone()).await.unwrap_err();
    assert!(matches!(&error, CloudError::Busy { code, .. } if code == "InvalidResourceReference"), "{error}");
    clock.advance(SignedDuration::from_millis(500));
    environment.ready(&subnet).await;
}

#[tokio::test]
async fn power_is_changed_once_however_the_calls_fail() {
    use cloud::Machines as _;
    let environment = AzureEnvironment::new().await;
    environment.prepared().await;
    let azure = &environment.azure;
    let machine = request_of(ResourceKind::Machine);
    environment.ready(&machine).await;
    for (is_started, when) in [
        (false, FaultTiming::After),
        (true, FaultTiming::Before),
        (false, FaultTiming::Before),
        (true, FaultTiming::After),
    ] {
        environment
            .inject(FaultRule::new(CloudFault::Reset { when }).on("put").about("infra-master-0").times(1));
        let change = async || match is_started {
            true => azure.start_machine(&machine.id).await,
            false => azure.stop_machine(&machine.id).await,
        };
        // The call may have been carried out, so that it is not repeated before the state was read.
        assert!(matches!(change().await, Err(CloudError::Unavailable { .. })));
        eventually("the machine changes its power", async || {
            change().await.unwrap();
            let machines = azure.machines(&group()).await.unwrap();
            assert_eq!(machines.len(), 1);
            (machines[0].running == is_started && machines[0].state == ResourceState::Succeeded).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_storm_of_faults_leaves_what_was_asked_for() {
    let environment = AzureEnvironment::with(Options { seed: 7, ..Options::default() }).await;
    let share = |fault: CloudFault, share: f64| environment.inject(FaultRule::new(fault).share(share));
    share(CloudFault::Unavailable { when: FaultTiming::Before }, 0.1);
    share(CloudFault::Unavailable { when: FaultTiming::After }, 0.1);
    share(CloudFault::Reset { when: FaultTiming::Before }, 0.05);
    share(CloudFault::Reset { when: FaultTiming::After }, 0.05);
    share(CloudFault::HandshakeFails {}, 0.3);
    share(CloudFault::Conflict { after_seconds: 1 }, 0.1);
    share(CloudFault::TokenExpires {}, 0.05);
    share(CloudFault::Claims {}, 0.05);
    share(CloudFault::OperationLost {}, 0.1);
    share(CloudFault::DelayedVisibility { millis: 50 }, 0.1);
    // A right that is missing for a moment; a denied token request would be a wrong secret.
    for verb in ["put", "delete"] {
        environment.inject(FaultRule::new(CloudFault::Denied {}).on(verb).share(0.05));
    }
    share(CloudFault::Throttled { after_seconds: 1 }, 0.005);
    environment.life().await;
    environment.emulator.faults.clear();
    within("the wait of a throttled subscription", async {
        while environment.azure.list(&group()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(environment.azure.list(&group()).await.unwrap(), []);
}
