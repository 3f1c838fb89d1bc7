//! Buckets: which one a cluster is in, and which worker owns which, with as few moves as possible.

use std::collections::BTreeMap;

use store::BUCKETS;
use uuid::Uuid;

/// The bucket of a cluster: a hash of its uuid, so that every cluster has one, however it was made.
pub fn bucket(cluster: Uuid) -> usize {
    // FNV-1a; the halves are folded, because the low byte alone mixes worst.
    let hash = cluster.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let folded = (hash >> 32) ^ hash;
    usize::try_from(((folded >> 16) ^ folded) & 0xff).unwrap_or(0) % BUCKETS
}

/// Assigns every bucket to a living worker. A bucket stays where it is if its owner lives and has room below the target (the number
/// of buckets divided by that of workers, rounded up); all others go to the worker with the fewest. Without workers nobody owns
/// anything.
pub fn balance(current: &[Option<Uuid>], workers: &[Uuid]) -> Vec<Option<Uuid>> {
    let mut load: BTreeMap<Uuid, usize> = workers.iter().map(|worker| (*worker, 0)).collect();
    if load.is_empty() {
        return vec![None; BUCKETS];
    }
    let target = BUCKETS.div_ceil(load.len());
    let mut owners = vec![None; BUCKETS];
    for (owner, before) in owners.iter_mut().zip(current) {
        let Some((worker, count)) = before.and_then(|it| load.get_mut(&it).map(|count| (it, count))) else {
            continue;
        };
        if *count < target {
            *count += 1;
            *owner = Some(worker);
        }
    }
    for owner in owners.iter_mut().filter(|it| it.is_none()) {
        if let Some((worker, count)) = load.iter_mut().min_by_key(|(worker, count)| (**count, **worker)) {
            *count += 1;
            *owner = Some(*worker);
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn loads(owners: &[Option<Uuid>]) -> BTreeMap<Uuid, usize> {
        let mut loads = BTreeMap::new();
        owners.iter().flatten().for_each(|it| *loads.entry(*it).or_default() += 1);
        loads
    }

    fn moved(before: &[Option<Uuid>], after: &[Option<Uuid>]) -> usize {
        before.iter().zip(after).filter(|(before, after)| before != after).count()
    }

    fn worker(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[test]
    fn a_worker_that_joins_takes_only_what_is_above_the_new_target() {
        let two = balance(&[], &[worker(1), worker(2)]);
        assert_eq!(loads(&two), BTreeMap::from([(worker(1), 128), (worker(2), 128)]));
        let three = balance(&two, &[worker(1), worker(2), worker(3)]);
        // 86 is the target: 42 buckets leave each of the two.
        assert_eq!(loads(&three), BTreeMap::from([(worker(1), 86), (worker(2), 86), (worker(3), 84)]));
        assert_eq!(moved(&two, &three), 84);
    }

    #[test]
    fn the_buckets_of_a_dead_worker_are_spread_and_no_other_moves() {
        let three = balance(&[], &[worker(1), worker(2), worker(3)]);
        let two = balance(&three, &[worker(1), worker(3)]);
        assert_eq!(moved(&three, &two), loads(&three)[&worker(2)]);
        assert_eq!(loads(&two), BTreeMap::from([(worker(1), 128), (worker(3), 128)]));
    }

    #[test]
    fn clusters_spread_evenly_over_buckets_whatever_their_ids_are_made_from() {
        let random = (0..25_600).map(|_| Uuid::new_v4());
        let in_order = (0..25_600_u128).map(Uuid::from_u128);
        let timed = (0..25_600).map(|_| Uuid::now_v7());
        let kinds: [Vec<Uuid>; 3] = [random.collect(), in_order.collect(), timed.collect()];
        for clusters in kinds {
            let mut counts = [0_u32; BUCKETS];
            clusters.iter().for_each(|it| counts[bucket(*it)] += 1);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least >= 50 && *most <= 160, "{least} to {most} of 100");
        }
    }

    proptest! {
        #[test]
        fn every_bucket_has_one_living_owner_and_none_has_more_than_the_target(
            current in prop::collection::vec(prop::option::of(0_u128..12), BUCKETS),
            living in prop::collection::btree_set(0_u128..12, 0..12),
        ) {
            let current: Vec<Option<Uuid>> = current.into_iter().map(|it| it.map(worker)).collect();
            let living: BTreeSet<Uuid> = living.into_iter().map(worker).collect();
            let workers: Vec<Uuid> = living.iter().copied().collect();
            let after = balance(&current, &workers);
            prop_assert_eq!(after.len(), BUCKETS);
            if workers.is_empty() {
                prop_assert!(after.iter().all(Option::is_none));
                return Ok(());
            }
            let target = BUCKETS.div_ceil(workers.len());
            prop_assert!(after.iter().all(|it| it.is_some_and(|it| living.contains(&it))));
            prop_assert!(loads(&after).values().all(|load| *load <= target));
            // What could stay has stayed.
            let before = loads(&current);
            let must_move: usize = before
                .iter()
                .map(|(it, load)| if living.contains(it) { load.saturating_sub(target) } else { *load })
                .sum::<usize>() + current.iter().filter(|it| it.is_none()).count();
            prop_assert_eq!(moved(&current, &after), must_move);
            // The same input again moves nothing, in any order of the workers.
            let reversed: Vec<Uuid> = workers.iter().rev().copied().collect();
            prop_assert_eq!(&balance(&after, &workers), &after);
            prop_assert_eq!(balance(&current, &reversed), after);
        }
    }
}
