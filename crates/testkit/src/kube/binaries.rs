//! The location of the Kubernetes programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::ensure;

use crate::environment;

/// The programs that every cluster needs; some builds lack the others.
const NEEDED: [&str; 3] = ["etcd", "kube-apiserver", "kubectl"];

/// The directory with `etcd`, `kube-apiserver` and `kubectl`, and in some builds the controllers.
#[derive(Clone, Debug)]
pub(super) struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// The directory that `SHIPSHAPE_TEST_KUBE_BIN` names, else that of `KUBEBUILDER_ASSETS`, else the one that `make
    /// kube` built. Nothing is built here: that takes minutes, and cargo shows no progress.
    pub(super) fn find() -> anyhow::Result<Option<Binaries>> {
        for name in ["SHIPSHAPE_TEST_KUBE_BIN", "KUBEBUILDER_ASSETS"] {
            let Some(directory) = environment::get(name).map(PathBuf::from) else { continue };
            for program in NEEDED {
                ensure!(
                    directory.join(program).is_file(),
                    "{name} is {}, where there is no {program}",
                    directory.display()
                );
            }
            return Ok(Some(Binaries { directory }));
        }
        static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
        Ok(BUILT.get_or_init(built).clone().map(|directory| Binaries { directory }))
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn has_controllers(&self) -> bool {
        ["kube-controller-manager", "kube-scheduler"].iter().all(|name| self.program(name).is_file())
    }
}

/// The build script knows the directory of the pinned version.
fn built() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/kube/build");
    let output = Command::new(script).arg("--where").output().ok()?;
    let directory = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(directory.trim()))
}
