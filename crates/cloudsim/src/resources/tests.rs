//! Random puts and deletes against a model that knows only ids and who uses whom.

use std::collections::{BTreeMap, BTreeSet};

use cloud::{Put, ResourceId, Shape};
use jiff::Timestamp;
use proptest::prelude::*;
use uuid::Uuid;

use super::{delete, find, get, list, put, references_of, sweep};
use crate::database;
use crate::failure::Failure;
use crate::protocol::Refusal;
use crate::room::{Bent, Room};

/// Something of a small world: two groups; a network with two subnets in the first; security groups and machines in either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    Group(u8),
    Network,
    Subnet(u8),
    Guard(u8),
    Machine(u8),
}

#[derive(Debug, Clone, Copy)]
enum Deed {
    /// Put it, a subnet with or without a guard, perhaps with a token.
    Put(Thing, Option<u8>, Option<u8>),
    Delete(Thing),
}

impl Thing {
    fn id(self) -> ResourceId {
        let group = |number: u8| ResourceId::group("s", &format!("g{number}"));
        let network = || group(0).sibling("Microsoft.Network", "virtualNetworks", "v");
        match self {
            Thing::Group(number) => group(number),
            Thing::Network => network(),
            Thing::Subnet(number) => network().child("subnets", &format!("s{number}")),
            Thing::Guard(number) => group(number).sibling("Microsoft.Network", "networkSecurityGroups", "n"),
            Thing::Machine(number) => {
                group(number % 2).sibling("Microsoft.Compute", "virtualMachines", &format!("m{number}"))
            }
        }
    }

    fn shape(self, guard: Option<u8>) -> Shape {
        match self {
            Thing::Group(_) => Shape::ResourceGroup { managed_by: None },
            Thing::Network => Shape::VirtualNetwork { address_space: vec!["10.0.0.0/16".to_owned()] },
            Thing::Subnet(number) => Shape::Subnet {
                address_prefix: format!("10.0.{number}.0/29"),
                security_group: guard.map(|it| Thing::Guard(it).id()),
                route_table: None,
                nat_gateway: None,
                service_endpoints: Vec::new(),
                private_link_policies: false,
            },
            Thing::Guard(_) => Shape::SecurityGroup { rules: Vec::new() },
            Thing::Machine(number) => Shape::Machine {
                size: "Standard_D4s_v5".to_owned(),
                subnet: Thing::Subnet(number / 4 % 2).id(),
                zone: None,
                disk_size_gb: 64,
                address: None,
                running: true,
            },
        }
    }
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        (0_u8..2).prop_map(Thing::Group),
        Just(Thing::Network),
        (0_u8..2).prop_map(Thing::Subnet),
        (0_u8..2).prop_map(Thing::Guard),
        // Three of the four on a subnet fill it.
        (0_u8..8).prop_map(Thing::Machine),
    ]
}

fn deed() -> impl Strategy<Value = Deed> {
    let guard = proptest::option::weighted(0.5, 0_u8..2);
    let token = proptest::option::weighted(0.2, 0_u8..6);
    prop_oneof![
        3 => (thing(), guard, token).prop_map(|(thing, guard, token)| Deed::Put(thing, guard, token)),
        1 => thing().prop_map(Deed::Delete),
    ]
}

/// What is there, by key: what each uses. And what tokens stand for.
#[derive(Debug, Default)]
struct Model {
    there: BTreeMap<String, BTreeSet<String>>,
    tokens: BTreeMap<u8, Shape>,
    token_keys: BTreeMap<u8, String>,
}

impl Model {
    /// Whether a put is accepted, as far as ids, references and tokens decide it.
    fn may_put(&self, id: &ResourceId, shape: &Shape, token: Option<u8>) -> bool {
        let key = id.key();
        if let Some(before) = token.and_then(|it| self.tokens.get(&it).zip(self.token_keys.get(&it)))
            && (before != (shape, &key) || !self.there.contains_key(&key))
        {
            return false;
        }
        let group = ResourceId::group(id.subscription(), id.resource_group()).key();
        let needs = id.parent().map(|it| it.key()).into_iter().chain([group]).filter(|it| *it != key);
        let uses = references_of(shape).into_iter().map(ResourceId::key);
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
    matches!(failure, Failure::Refused(Refusal::Invalid { reason, .. }) if reason == "SubnetIsFull")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn references_hold_addresses_are_unique_and_repetition_changes_nothing(
        deeds in proptest::collection::vec(deed(), 1..60)
    ) {
        let db = database::open(None).unwrap();
        let room = Room { db: &db, now: Timestamp::UNIX_EPOCH, seed: 1, pace: 0.0, bent: Bent::default() };
        let mut model = Model::default();
        for deed in deeds {
            match deed {
                Deed::Put(thing, guard, token) => {
                    let (id, shape) = (thing.id(), thing.shape(guard));
                    let wish = Put {
                        id: id.clone(),
                        location: "here".to_owned(),
                        tags: BTreeMap::new(),
                        shape: shape.clone(),
                        token: token.map(|it| Uuid::from_u128(it.into())),
                    };
                    let expected = model.may_put(&id, &shape, token);
                    match put(&room, &wish) {
                        Ok(made) => {
                            prop_assert!(expected, "{deed:?} was accepted: {model:?}");
                            prop_assert_eq!(&put(&room, &wish).unwrap(), &made);
                            prop_assert_eq!(get(&room, &id).unwrap(), Some(made));
                            let uses = references_of(&shape).into_iter().map(ResourceId::key).collect();
                            model.there.insert(id.key(), uses);
                            if let Some(token) = token {
                                model.tokens.insert(token, shape);
                                model.token_keys.insert(token, id.key());
                            }
                        }
                        Err(failure) => prop_assert!(!expected || is_full(&failure), "{deed:?}: {failure:?}"),
                    }
                }
                Deed::Delete(thing) => {
                    let going = model.going(&thing.id().key());
                    let done = delete(&room, &thing.id());
                    prop_assert_eq!(done.is_ok(), model.may_delete(&going), "{:?}: {:?}", deed, done);
                    if done.is_ok() {
                        delete(&room, &thing.id()).unwrap();
                        model.there.retain(|key, _| !going.contains(key));
                    }
                }
            }
            sweep(&db, room.now).unwrap();
            let mut addresses = BTreeSet::new();
            for key in model.there.keys() {
                let found = find(&db, key).unwrap();
                prop_assert!(found.is_some(), "{key} is missing");
                if let Some(Shape::Machine { subnet, address, .. }) = found.map(|it| it.shape) {
                    let address = address.expect("a machine has an address");
                    prop_assert!(addresses.insert((subnet.key(), address)), "an address was given twice");
                }
            }
            for number in 0..2 {
                for held in list(&room, &Thing::Group(number).id()).unwrap() {
                    prop_assert!(model.there.contains_key(&held.id.key()), "{} should be gone", held.id);
                }
            }
        }
    }
}
