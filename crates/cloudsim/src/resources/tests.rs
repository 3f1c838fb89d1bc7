//! Random puts and deletes against a model that knows only ids and who uses whom.

use std::collections::{BTreeMap, BTreeSet};

use cloud::{Properties, ResourceId, ResourceRequest};
use jiff::Timestamp;
use proptest::prelude::*;
use uuid::Uuid;

use super::{delete, find, get, list, put, references_of, sweep};
use crate::call_context::{CallContext, FaultEffects};
use crate::database;
use crate::endpoints::Endpoints;
use crate::failure::Failure;
use crate::protocol::CallError;

/// Something of a small world: two groups; a network with two subnets in the first; security groups and machines in either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestResource {
    Group(u8),
    Network,
    Subnet(u8),
    Guard(u8),
    Machine(u8),
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Put it, a subnet with or without a guard, perhaps with a token.
    Put(TestResource, Option<u8>, Option<u8>),
    Delete(TestResource),
}

impl TestResource {
    fn id(self) -> ResourceId {
        let group = |number: u8| ResourceId::group("s", &format!("g{number}"));
        let network = || group(0).sibling("Microsoft.Network", "virtualNetworks", "v");
        match self {
            TestResource::Group(number) => group(number),
            TestResource::Network => network(),
            TestResource::Subnet(number) => network().child("subnets", &format!("s{number}")),
            TestResource::Guard(number) => {
                group(number).sibling("Microsoft.Network", "networkSecurityGroups", "n")
            }
            TestResource::Machine(number) => {
                group(number % 2).sibling("Microsoft.Compute", "virtualMachines", &format!("m{number}"))
            }
        }
    }

    fn properties(self, guard: Option<u8>) -> Properties {
        match self {
            TestResource::Group(_) => Properties::ResourceGroup { managed_by: None },
            TestResource::Network => {
                Properties::VirtualNetwork { address_space: vec!["10.0.0.0/16".to_owned()] }
            }
            TestResource::Subnet(number) => Properties::Subnet {
                address_prefix: format!("10.0.{number}.0/29"),
                security_group: guard.map(|it| TestResource::Guard(it).id()),
                route_table: None,
                nat_gateway: None,
                service_endpoints: Vec::new(),
                private_link_policies: false,
            },
            TestResource::Guard(_) => Properties::SecurityGroup { rules: Vec::new() },
            TestResource::Machine(number) => Properties::Machine {
                size: "Standard_D4s_v5".to_owned(),
                subnet: TestResource::Subnet(number / 4 % 2).id(),
                zone: None,
                disk_size_gb: 64,
                address: None,
                running: true,
            },
        }
    }
}

fn thing() -> impl Strategy<Value = TestResource> {
    prop_oneof![
        (0_u8..2).prop_map(TestResource::Group),
        Just(TestResource::Network),
        (0_u8..2).prop_map(TestResource::Subnet),
        (0_u8..2).prop_map(TestResource::Guard),
        // Three of the four on a subnet fill it.
        (0_u8..8).prop_map(TestResource::Machine),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let guard = proptest::option::weighted(0.5, 0_u8..2);
    let token = proptest::option::weighted(0.2, 0_u8..6);
    prop_oneof![
        3 => (thing(), guard, token).prop_map(|(thing, guard, token)| Operation::Put(thing, guard, token)),
        1 => thing().prop_map(Operation::Delete),
    ]
}

/// What is there, by key: what each uses. And what tokens stand for.
#[derive(Debug, Default)]
struct Model {
    there: BTreeMap<String, BTreeSet<String>>,
    tokens: BTreeMap<u8, Properties>,
    token_keys: BTreeMap<u8, String>,
}

impl Model {
    /// Whether a put is accepted, as far as ids, references and tokens decide it.
    fn may_put(&self, id: &ResourceId, properties: &Properties, token: Option<u8>) -> bool {
        let key = id.key();
        if let Some(before) = token.and_then(|it| self.tokens.get(&it).zip(self.token_keys.get(&it)))
            && (before != (properties, &key) || !self.there.contains_key(&key))
        {
            return false;
        }
        let group = ResourceId::group(id.subscription(), id.resource_group()).key();
        let needs = id.parent().map(|it| it.key()).into_iter().chain([group]).filter(|it| *it != key);
        let uses = references_of(properties).into_iter().map(ResourceId::key);
        needs.chain(uses).all(|it| self.there.contains_key(&it))
    }

    fn going(&self, key: &str) -> BTreeSet<String> {
        self.there.keys().filter(|it| *it == key || it.starts_with(&format!("{key}/"))).cloned().collect()
    }

    fn may_delete(&self, going: &BTreeSet<String>) -> bool {
        let stays = self.there.iter().filter(|(key, _)| !going.contains(*key));
        stays.into_iter().all(|(_, uses)| uses.is_disjoint(going))
    }
}

fn is_full(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(CallError::Invalid { reason, .. }) if reason == "SubnetIsFull")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn references_hold_addresses_are_unique_and_repetition_changes_nothing(
        operations in proptest::collection::vec(operation(), 1..60)
    ) {
        let db = database::open(None).unwrap();
        let cx = CallContext { db: &db, now: Timestamp::UNIX_EPOCH, seed: 1, pace: 0.0, effects: FaultEffects::default(), endpoints: &Endpoints::default() };
        let mut model = Model::default();
        for operation in operations {
            match operation {
                Operation::Put(thing, guard, token) => {
                    let (id, properties) = (thing.id(), thing.properties(guard));
                    let request = ResourceRequest {
                        id: id.clone(),
                        location: "here".to_owned(),
                        tags: BTreeMap::new(),
                        properties: properties.clone(),
                        token: token.map(|it| Uuid::from_u128(it.into())),
                    };
                    let expected = model.may_put(&id, &properties, token);
                    match put(&cx, &request) {
                        Ok(made) => {
                            prop_assert!(expected, "{operation:?} was accepted: {model:?}");
                            prop_assert_eq!(&put(&cx, &request).unwrap(), &made);
                            prop_assert_eq!(get(&cx, &id).unwrap(), Some(made));
                            let uses = references_of(&properties).into_iter().map(ResourceId::key).collect();
                            model.there.insert(id.key(), uses);
                            if let Some(token) = token {
                                model.tokens.insert(token, properties);
                                model.token_keys.insert(token, id.key());
                            }
                        }
                        Err(failure) => prop_assert!(!expected || is_full(&failure), "{operation:?}: {failure:?}"),
                    }
                }
                Operation::Delete(thing) => {
                    let going = model.going(&thing.id().key());
                    let done = delete(&cx, &thing.id());
                    prop_assert_eq!(done.is_ok(), model.may_delete(&going), "{:?}: {:?}", operation, done);
                    if done.is_ok() {
                        delete(&cx, &thing.id()).unwrap();
                        model.there.retain(|key, _| !going.contains(key));
                    }
                }
            }
            sweep(&db, cx.now).unwrap();
            let mut addresses = BTreeSet::new();
            for key in model.there.keys() {
                let found = find(&db, key).unwrap();
                prop_assert!(found.is_some(), "{key} is missing");
                if let Some(Properties::Machine { subnet, address, .. }) = found.map(|it| it.properties) {
                    let address = address.expect("a machine has an address");
                    prop_assert!(addresses.insert((subnet.key(), address)), "an address was given twice");
                }
            }
            for number in 0..2 {
                for held in list(&cx, &TestResource::Group(number).id()).unwrap() {
                    prop_assert!(model.there.contains_key(&held.id.key()), "{} should be gone", held.id);
                }
            }
        }
    }
}
