//! VM sizes that clusters may have: one row for each series, from which the sizes are generated.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Semver;

/// Role of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolRole {
    /// The control plane.
    Master,
    /// Workers.
    Worker,
}

impl PoolRole {
    /// Name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            PoolRole::Master => "master",
            PoolRole::Worker => "worker",
        }
    }
}

/// A VM size that clusters may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSize {
    /// Its name, as `Standard_D8s_v5`.
    pub name: String,
    /// Family of its quota.
    pub family: &'static str,
    /// Its cores.
    pub cores: u32,
    /// Whether control planes may have it.
    pub for_masters: bool,
    /// Whether workers may have it.
    pub for_workers: bool,
    /// Minimum version; none when all versions support it.
    pub least_version: Option<Semver>,
}

impl VmSize {
    /// Whether machines of that role may have it.
    pub fn fits(&self, role: PoolRole) -> bool {
        match role {
            PoolRole::Master => self.for_masters,
            PoolRole::Worker => self.for_workers,
        }
    }
}

/// A series of sizes: `Standard_` + letter + cores + rest.
struct Series {
    letter: &'static str,
    rest: &'static str,
    family: &'static str,
    masters: &'static [u32],
    workers: &'static [u32],
    /// Minimum minor version of OpenShift 4.
    least_minor: Option<u32>,
}

const fn series(
    letter: &'static str,
    rest: &'static str,
    family: &'static str,
    masters: &'static [u32],
    workers: &'static [u32],
) -> Series {
    Series { letter, rest, family, masters, workers, least_minor: None }
}

const D_MASTERS: &[u32] = &[8, 16, 32];
const D_WORKERS: &[u32] = &[4, 8, 16, 32, 64, 96];
const E_MASTERS: &[u32] = &[8, 16, 20, 32, 48, 64];
const E_WORKERS: &[u32] = &[2, 4, 8, 16, 20, 32, 48, 64];
const D_V6: &[u32] = &[4, 8, 16, 32, 48, 64, 96];
const NONE: &[u32] = &[];

const SERIES: [Series; 14] = [
    series("D", "s_v3", "standardDSv3Family", D_MASTERS, &[4, 8, 16, 32, 64]),
    series("D", "s_v4", "standardDSv4Family", D_MASTERS, &[4, 8, 16, 32, 64]),
    series("D", "s_v5", "standardDSv5Family", D_MASTERS, D_WORKERS),
    series("D", "as_v4", "standardDASv4Family", D_MASTERS, D_WORKERS),
    series("D", "as_v5", "standardDASv5Family", D_MASTERS, D_WORKERS),
    series("D", "ds_v5", "standardDDSv5Family", D_MASTERS, D_WORKERS),
    series("E", "s_v3", "standardESv3Family", D_MASTERS, &[2, 4, 8, 16, 32]),
    series("E", "s_v4", "standardESv4Family", E_MASTERS, E_WORKERS),
    series("E", "s_v5", "standardESv5Family", E_MASTERS, E_WORKERS),
    series("F", "s_v2", "standardFSv2Family", NONE, &[4, 8, 16, 32, 72]),
    series("L", "s_v3", "standardLSv3Family", NONE, &[8, 16, 32, 48, 64]),
    Series { least_minor: Some(19), ..series("D", "s_v6", "standardDSv6Family", D_V6, D_V6) },
    Series { least_minor: Some(19), ..series("D", "ds_v6", "standardDDSv6Family", D_V6, D_V6) },
    Series { least_minor: Some(19), ..series("D", "ls_v6", "standardDLSv6Family", NONE, D_V6) },
];

/// Sizes of workers where small ones are required.
pub(super) const SMALL: [&str; 3] = ["Standard_D2s_v3", "Standard_D2s_v4", "Standard_D2s_v5"];

static SIZES: LazyLock<Vec<VmSize>> = LazyLock::new(|| {
    let mut sizes = Vec::new();
    for series in &SERIES {
        let mut cores: Vec<u32> = series.masters.iter().chain(series.workers).copied().collect();
        cores.sort_unstable();
        cores.dedup();
        sizes.extend(cores.into_iter().map(|cores| VmSize {
            name: format!("Standard_{}{cores}{}", series.letter, series.rest),
            family: series.family,
            cores,
            for_masters: series.masters.contains(&cores),
            for_workers: series.workers.contains(&cores),
            least_version: series.least_minor.map(|minor| Semver::of_minor(4, minor)),
        }));
    }
    let families = ["standardDSv3Family", "standardDSv4Family", "standardDSv5Family"];
    sizes.extend(SMALL.into_iter().zip(families).map(|(name, family)| VmSize {
        name: name.to_owned(),
        family,
        cores: 2,
        for_masters: false,
        for_workers: false,
        least_version: None,
    }));
    sizes
});

static BY_NAME: LazyLock<HashMap<&'static str, &'static VmSize>> =
    LazyLock::new(|| SIZES.iter().map(|size| (size.name.as_str(), size)).collect());

/// All supported sizes.
pub fn vm_sizes() -> &'static [VmSize] {
    &SIZES
}

/// The size of that name.
pub fn find_size(name: &str) -> Option<&'static VmSize> {
    BY_NAME.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_known_by_name_and_role() {
        let check = |name: &str, masters: bool, workers: bool| {
            let size = find_size(name).unwrap();
            assert_eq!((size.for_masters, size.for_workers), (masters, workers), "{name}");
        };
        check("Standard_D8s_v3", true, true);
        check("Standard_D4s_v3", false, true);
        check("Standard_D96as_v5", false, true);
        check("Standard_E20s_v5", true, true);
        check("Standard_E2s_v4", false, true);
        check("Standard_F72s_v2", false, true);
        check("Standard_L64s_v3", false, true);
        check("Standard_D2s_v5", false, false);
        check("Standard_D4s_v6", true, true);
        assert!(find_size("Standard_D8s_v9").is_none() && find_size("standard_d8s_v3").is_none());
        assert_eq!(BY_NAME.len(), SIZES.len(), "names are unique");
        for small in SMALL {
            assert_eq!(find_size(small).unwrap().cores, 2);
        }
        assert!(vm_sizes().iter().filter(|size| size.for_masters).all(|size| size.cores >= 4));
    }
}
