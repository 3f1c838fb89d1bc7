//! Two clusters with simulated kubelets, and kubectl for each.

use std::ffi::OsStr;
use std::io::BufRead as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use api::clock::SystemClock;
use kubesim::kubelet::{KubeletOptions, Kubelets, NodeTemplate};
use testkit::kube::{self, PrivateTestCluster};
use uuid::Uuid;

use crate::normalize::normalized;

/// Longer than any command takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The servers of this process, started once.
pub(crate) struct Servers {
    _runtime: tokio::runtime::Runtime,
    _lives: [Kubelets; 2],
    real: PrivateTestCluster,
    _sim: kubesim::SimulatedCluster,
    kubeconfig: tempfile::NamedTempFile,
}

impl Servers {
    /// `None` if this machine has no real server.
    pub(crate) fn shared() -> Option<&'static Servers> {
        static SERVERS: OnceLock<Option<Servers>> = OnceLock::new();
        SERVERS.get_or_init(start).as_ref()
    }

    pub(crate) fn real(&self) -> Kubectl {
        Kubectl::new(self.real.kubectl())
    }

    pub(crate) fn sim(&self) -> Kubectl {
        let mut command = self.real.kubectl();
        command.env("KUBECONFIG", self.kubeconfig.path());
        // kubectl caches discovery by the address of the server.
        Kubectl::new(command)
    }
}

fn start() -> Option<Servers> {
    let real = kube::private(kube::TestClusterOptions::default().with_controllers())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (lives, sim) = runtime.block_on(async {
        let options = kubesim::ClusterOptions {
            directory: None,
            clock: Arc::new(SystemClock),
            seed: 5,
            controllers: true,
        };
        let sim = kubesim::SimulatedCluster::start("kubectl", options).await.unwrap();
        let config = ::kube::config::Kubeconfig::from_yaml(real.kubeconfig()).unwrap();
        let config = ::kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        let client = ::kube::Client::try_from(config).unwrap();
        let nodes: Vec<NodeTemplate> =
            (1..=6).map(|number| NodeTemplate::worker(format!("worker-{number}"))).collect();
        let of_sim = Kubelets::for_cluster(&sim, nodes.clone());
        ([Kubelets::start(client, KubeletOptions { nodes, ..KubeletOptions::default() }), of_sim], sim)
    });
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), sim.kubeconfig()).unwrap();
    Some(Servers { _runtime: runtime, _lives: lives, real, _sim: sim, kubeconfig })
}

/// One scenario on one server.
pub(crate) struct Kubectl {
    command: Command,
    namespace: String,
    pub(crate) said: Vec<String>,
}

impl Kubectl {
    fn new(command: Command) -> Kubectl {
        let namespace = format!("k{}", &Uuid::new_v4().simple().to_string()[..10]);
        let mut kubectl = Kubectl { command, namespace, said: Vec::new() };
        let (code, text) = kubectl.call(&["create", "namespace", &kubectl.namespace], "");
        assert_eq!(code, 0, "{text}");
        kubectl.until(&["get", "serviceaccount", "default"], "default");
        kubectl.said.clear();
        kubectl
    }

    /// Runs a command line and records its output and exit status.
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.feed(line, "")
    }

    /// The same with standard input. `{ns}` stands for the scenario's namespace.
    pub(crate) fn feed(&mut self, line: &str, input: &str) -> String {
        let (code, text) = self.call(&self.words(line), &input.replace("{ns}", &self.namespace));
        self.note(line, &text, &format!("exit {code}"));
        text
    }

    /// The same with an editor: a command that gets the name of a file.
    pub(crate) fn edit(&mut self, line: &str, editor: &str) {
        self.command.env("KUBE_EDITOR", editor);
        self.run(line);
        self.command.env_remove("KUBE_EDITOR");
    }

    /// Runs a command that does not exit. After `first` lines `meanwhile` is called; after `then` more the command is
    /// killed. Records the lines.
    pub(crate) fn watch(&mut self, line: &str, first: usize, then: usize, meanwhile: impl Fn(&mut Kubectl)) {
        let mut child = self.prepared(&self.words(line)).stdin(Stdio::null()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in std::io::BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut printed = Vec::new();
        let mut read = |count: usize| {
            for _ in 0..count {
                match lines.recv_timeout(TIMEOUT) {
                    Ok(next) => printed.push(next),
                    Err(error) => panic!("{line}: {error} after {printed:#?}"),
                }
            }
        };
        read(first);
        meanwhile(self);
        read(then);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(lines);
        reader.join().unwrap();
        self.note(line, &printed.join("\n"), "ended");
    }

    fn note(&mut self, line: &str, text: &str, end: &str) {
        self.said.push(format!("$ kubectl {line}\n{}\n{end}", normalized(text, &self.namespace)));
    }

    fn words(&self, line: &str) -> Vec<String> {
        line.split_whitespace().map(|word| word.replace("{ns}", &self.namespace)).collect()
    }

    /// Runs a command line whose output differs with each run; returns its output.
    pub(crate) fn quiet(&mut self, line: &str) -> String {
        let (code, text) = self.call(&self.words(line), "");
        self.said.push(format!("$ kubectl {line}\nexit {code}"));
        text
    }

    /// Repeats a command until its output contains a text, without recording it.
    pub(crate) fn until(&mut self, arguments: &[&str], expected: &str) {
        let begun = Instant::now();
        loop {
            let (_, text) = self.call(arguments, "");
            if text.contains(expected) {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "{arguments:?} never printed {expected:?}, but {text}");
            std::thread::yield_now();
        }
    }

    fn prepared(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(self.command.get_program());
        command.args(self.command.get_args()).args(["--namespace", &self.namespace]).args(arguments);
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = self.command.get_current_dir() {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn call(&self, arguments: &[impl AsRef<OsStr>], input: &str) -> (i32, String) {
        let mut child = self.prepared(arguments).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), text)
    }
}
