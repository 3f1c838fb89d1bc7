//! The clusters of a demonstration: names, locations, teams and scenes. All of it is derived from the
//! number of a cluster, so that a second start has the same clusters.

use std::collections::BTreeMap;

use cli::commands::ClusterTarget;

/// Locations: the first for clusters of the user, the others for those of the demonstration.
pub(super) const LOCATIONS: [&str; 4] = ["local", "eastus", "westeurope", "japaneast"];

/// Teams: subscription and prefix of the resource groups.
pub(super) const TEAMS: [(&str, &str); 3] = [
    ("5ea0c0de-0000-4000-8000-000000000001", "shop"),
    ("5ea0c0de-0000-4000-8000-000000000002", "bank"),
    ("5ea0c0de-0000-4000-8000-000000000003", "media"),
];

/// Number of clusters that are created at once; the others follow one by one.
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

/// Actions of the demonstration on a ready cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    /// Runs tasks and cancels one.
    RunTasks,
    /// Stops a worker machine.
    StoppedNode,
    /// Drains a node that a PodDisruptionBudget protects.
    BlockedDrain,
    /// Stops the machines of the control plane.
    Unreachable,
    /// Runs tasks and plans another.
    Planned,
    /// Only schedules.
    Quiet,
}

/// One cluster of the demonstration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) number: usize,
    pub(super) place: ClusterTarget,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) scene: Scene,
}

/// The clusters of a demonstration, in the order of their creation.
pub(super) fn fleet(count: u16) -> Vec<Member> {
    (0..usize::from(count)).map(member).collect()
}

fn member(number: usize) -> Member {
    let (round, base) = (number / NAMES.len(), NAMES[number % NAMES.len()]);
    let name = if round == 0 { base.to_owned() } else { format!("{base}-{}", round + 1) };
    let (subscription, team) = TEAMS[number % TEAMS.len()];
    // The first location is for clusters of the user; each team has clusters in several locations.
    let demo_locations = &LOCATIONS[1..];
    let location = demo_locations[(number + number / TEAMS.len()) % demo_locations.len()];
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
            0 => Scene::RunTasks,
            1 => Scene::StoppedNode,
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
    fn a_larger_fleet_starts_with_the_smaller_one() {
        assert_eq!(fleet(100)[..12], fleet(12)[..]);
        let canaries = fleet(50).iter().filter(|it| it.labels["ring"] == "canary").count();
        assert_eq!(canaries, FIRST);
    }
}
