//! The fleet of a demonstration: which clusters, where, whose, and what becomes of the first of them. All of it follows from a
//! cluster's number, so that a second start means the same clusters.

use std::collections::BTreeMap;

use cli::commands::ClusterTarget;

/// Where clusters may be made by hand beside those of the demonstration, and where these are.
pub(super) const LOCATIONS: [&str; 4] = ["local", "eastus", "westeurope", "japaneast"];

/// Whose they are: a team's subscription, and what its resource groups are called after.
pub(super) const TEAMS: [(&str, &str); 3] = [
    ("5ea0c0de-0000-4000-8000-000000000001", "shop"),
    ("5ea0c0de-0000-4000-8000-000000000002", "bank"),
    ("5ea0c0de-0000-4000-8000-000000000003", "media"),
];

/// So many are asked for at once, to have something to look at; the others follow one by one.
pub(super) const FIRST: usize = 5;

const NAMES: [&str; 20] = [
    "anchor",
    "beacon",
    "capstan",
    "davit",
    "ensign",
    "fender",
    "galley",
    "halyard",
    "inlet",
    "jetty",
    "keelson",
    "lantern",
    "mainsail",
    "narrows",
    "outrigger",
    "pennant",
    "quay",
    "rudder",
    "sextant",
    "tiller",
];

/// What becomes of a cluster once it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    /// Work is done on it, and some is called off.
    Worked,
    /// One of its workers is switched off.
    SickNode,
    /// A node cannot be drained: a disruption budget does not allow it.
    BlockedDrain,
    /// Its control plane is switched off.
    Unreachable,
    /// Work is done on it, and more is to come.
    Planned,
    /// Nothing but what the schedules want.
    Quiet,
}

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) number: usize,
    pub(super) place: ClusterTarget,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) scene: Scene,
}

/// The clusters of a demonstration, in the order in which they are asked for.
pub(super) fn fleet(count: u16) -> Vec<Member> {
    (0..usize::from(count)).map(member).collect()
}

fn member(number: usize) -> Member {
    let (round, word) = (number / NAMES.len(), NAMES[number % NAMES.len()]);
    let name = if round == 0 { word.to_owned() } else { format!("{word}-{}", round + 1) };
    let (subscription, team) = TEAMS[number % TEAMS.len()];
    // The first location is for those who make their own; and teams are not all in one place each.
    let elsewhere = &LOCATIONS[1..];
    let location = elsewhere[(number + number / TEAMS.len()) % elsewhere.len()];
    let env = ["prod", "prod", "test"][number % 3];
    let ring = if number < FIRST { "canary" } else { ["early", "late"][number % 2] };
    let labels = [("fleet", "demo"), ("env", env), ("ring", ring), ("team", team)];
    Member {
        number,
        place: ClusterTarget {
            subscription: subscription.to_owned(),
            group: format!("{team}-{location}"),
            location: location.to_owned(),
            name,
        },
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        scene: match number {
            0 => Scene::Worked,
            1 => Scene::SickNode,
            2 => Scene::BlockedDrain,
            3 => Scene::Unreachable,
            4 => Scene::Planned,
            _ => Scene::Quiet,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cluster_has_a_name_of_its_own_and_teams_and_locations_are_mixed() {
        let fleet = fleet(100);
        let names: BTreeSet<&str> = fleet.iter().map(|it| it.place.name.as_str()).collect();
        assert_eq!(names.len(), 100);
        assert!(names.contains("anchor") && names.contains("anchor-5"), "{names:?}");
        let places: BTreeSet<(&str, &str)> =
            fleet.iter().map(|it| (it.place.group.as_str(), it.place.location.as_str())).collect();
        assert_eq!(places.len(), 9, "{places:?}");
        assert!(fleet.iter().all(|it| it.place.location != "local"));
    }

    #[test]
    fn a_larger_fleet_begins_as_a_smaller_one() {
        assert_eq!(fleet(100)[..12], fleet(12)[..]);
        let canaries = fleet(50).iter().filter(|it| it.labels["ring"] == "canary").count();
        assert_eq!(canaries, FIRST);
    }
}
