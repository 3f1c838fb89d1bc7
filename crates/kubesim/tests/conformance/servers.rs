//! The two servers, each started on first use, and the run of a case on one of them.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::clock::SystemClock;
use futures_util::FutureExt as _;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use uuid::Uuid;

use crate::normalize::Names;
use crate::script::{Case, Script, Transcript};

/// Both servers, started on first use.
pub(crate) struct Servers {
    runtime: tokio::runtime::Runtime,
    real: OnceLock<Option<Clients>>,
    sim: OnceLock<Simulated>,
}

struct Simulated {
    clients: Clients,
    _cluster: kubesim::SimulatedCluster,
}

/// Clients of one server.
pub(crate) struct Clients {
    /// The administrator.
    admin: Client,
    /// Without credentials of its own; requests may have a token.
    anonymous: Client,
}

impl Default for Servers {
    fn default() -> Servers {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Servers { runtime: runtime.expect("a runtime"), real: OnceLock::new(), sim: OnceLock::new() }
    }
}

impl Servers {
    /// A client of the real server; `None` if this machine has none.
    pub(crate) fn real(&self) -> Option<&Clients> {
        let connect = || testkit::kube::shared().map(|it| self.runtime.block_on(connect(it.kubeconfig())));
        self.real.get_or_init(connect).as_ref()
    }

    /// A client of the simulated server, over its port like that of the real one.
    pub(crate) fn sim(&self) -> &Clients {
        let start = || {
            self.runtime.block_on(async {
                let options = kubesim::ClusterOptions {
                    directory: None,
                    clock: Arc::new(SystemClock),
                    seed: 1,
                    controllers: true,
                };
                let cluster =
                    kubesim::SimulatedCluster::start("conformance", options).await.expect("a cluster");
                Simulated { clients: connect(&cluster.kubeconfig()).await, _cluster: cluster }
            })
        };
        &self.sim.get_or_init(start).clients
    }

    /// Runs a case in a new namespace; returns the transcript, or the failed expectation.
    pub(crate) fn run(&self, case: &Case, clients: &Clients) -> Result<Transcript, String> {
        let result = AssertUnwindSafe(run_case(case, clients)).catch_unwind();
        self.runtime.block_on(result).map_err(|panic| {
            let message = panic.downcast_ref::<String>().cloned();
            message.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned())).unwrap_or_default()
        })
    }
}

async fn connect(kubeconfig: &str) -> Clients {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let mut nobody = kubeconfig.clone();
    for user in &mut nobody.auth_infos {
        user.auth_info = Some(AuthInfo::default());
    }
    Clients { admin: client(kubeconfig).await, anonymous: client(nobody).await }
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a kubeconfig with a context");
    config.read_timeout = Some(Duration::from_secs(120));
    // Cases check for errors that a client would retry.
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

async fn run_case(case: &Case, clients: &Clients) -> Transcript {
    let id = format!("c{}", &Uuid::new_v4().simple().to_string()[..10]);
    let namespace = format!("n{}", &Uuid::new_v4().simple().to_string()[..10]);
    let mut names = Names::default();
    names.add(&namespace, "{ns}");
    names.add(&id, "{id}");
    let (client, anonymous) = (clients.admin.clone(), clients.anonymous.clone());
    let mut script = Script { client, anonymous, names, transcript: Transcript::default() };
    let namespace_object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "{ns}" } });
    script.post("/api/v1/namespaces", namespace_object).only("/kind").await;
    // No pod is accepted without the service account, which controllers create.
    script
        .get("/api/v1/namespaces/{ns}/serviceaccounts/default")
        .until("/kind", "ServiceAccount".into())
        .only("/kind")
        .await;
    (case.run)(&mut script).await;
    script.transcript
}
