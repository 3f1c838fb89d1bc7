//! The executable under test, in a directory of its own and with none of our variables in its
//! environment, so that nothing on the developer's machine leaks in.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Far longer than anything here takes; a test that meets it has found a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// `up` on ports that the system chooses.
const UP: [&str; 7] = ["up", "--health", "127.0.0.1:0", "--api", "127.0.0.1:0", "--portal", "127.0.0.1:0"];

/// A place for the executable to run in: an empty home directory.
pub(crate) struct Home {
    pub(crate) directory: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home { directory: tempfile::tempdir().unwrap() }
    }

    /// `shipshape` with these arguments.
    pub(crate) fn shipshape(&self, arguments: &[&str]) -> Command {
        let mut command = self.isolated(env!("CARGO_BIN_EXE_shipshape"));
        command.args(arguments);
        command
    }

    fn isolated(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if ["SHIPSHAPE_", "XDG_", "OTEL_"].iter().any(|prefix| name_text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env("HOME", self.directory.path()).current_dir(self.directory.path());
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::new(self.shipshape(arguments).output().unwrap())
    }

    /// Starts `shipshape up` on ports that the system chooses, and waits for its banner.
    pub(crate) fn up(&self, arguments: &[&str]) -> RunningProcess {
        self.up_as(self.shipshape(&[&UP, arguments].concat()))
    }

    /// Starts `shipshape up` with limits of its own, as arguments of the shell's `ulimit`.
    pub(crate) fn up_with_limits(&self, limits: &str) -> RunningProcess {
        let mut command = self.isolated("sh");
        let script = format!("ulimit {limits} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_shipshape")]).args(UP);
        self.up_as(command)
    }

    /// Runs `shipshape up` on ports that the system chooses, unless the arguments name one, without logs; it is expected to fail.
    pub(crate) fn failed_up(&self, arguments: &[&str]) -> CommandOutput {
        let mut all = vec!["up", "--log-level", "off"];
        for pair in UP[1..].chunks(2).filter(|pair| !arguments.contains(&pair[0])) {
            all.extend(pair);
        }
        all.extend(arguments);
        self.run(&all)
    }

    pub(crate) fn up_as(&self, command: Command) -> RunningProcess {
        self.started(command, "shipshape plan")
    }

    /// Starts one service alone on ports that the system chooses, and waits for its banner.
    pub(crate) fn alone(&self, service: &str, arguments: &[&str]) -> RunningProcess {
        self.started(self.shipshape(&[&[service, "--health", "127.0.0.1:0"], arguments].concat()), "  store ")
    }

    /// Starts the portal alone on ports that the system chooses, and waits for its banner.
    pub(crate) fn portal(&self, arguments: &[&str]) -> RunningProcess {
        let ports = ["portal", "--health", "127.0.0.1:0", "--portal", "127.0.0.1:0"];
        self.started(self.shipshape(&[&ports, arguments].concat()), "  api ")
    }

    /// Starts `shipshape sim`, and waits for its banner.
    pub(crate) fn sim(&self, arguments: &[&str]) -> RunningProcess {
        self.started(self.shipshape(&[&["sim"], arguments].concat()), "sim fault")
    }

    /// Starts `shipshape termination-handler`, and waits for its banner.
    pub(crate) fn termination_handler(&self, node: &str, arguments: &[&str]) -> RunningProcess {
        let fixed = ["termination-handler", "--health", "127.0.0.1:0", "--poll-interval-seconds", "1"];
        let mut command = self.shipshape(&[&fixed, arguments].concat());
        command.env("NODE_NAME", node);
        self.started(command, "  health ")
    }

    /// Starts `shipshape machines controllers` for a cluster whose machines are in a simulated cloud, and waits for its banner.
    pub(crate) fn machine_controllers(&self, kubeconfig: &Path, endpoints: &Path) -> RunningProcess {
        let mut command = self.shipshape(&["machines", "controllers", "--health", "127.0.0.1:0"]);
        command.arg("--kubeconfig").arg(kubeconfig).arg("--cloud-endpoints").arg(endpoints);
        command.args(["--webhooks", "loopback"]);
        self.started(command, "  health ")
    }

    /// Starts a command that serves; its banner ends with the line that contains `end`.
    fn started(&self, mut command: Command, end: &str) -> RunningProcess {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut banner = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !banner.contains(end) {
            if stdout.read_line(&mut banner).unwrap() == 0 {
                let answer = CommandOutput::new(child.wait_with_output().unwrap());
                panic!("no banner; {answer:?}");
            }
        }
        // Of several, the health endpoint's is the one that tests ask.
        let health = banner.split_once("health ").map_or(banner.as_str(), |(_, rest)| rest);
        let address = health.split("://").nth(1).and_then(|rest| rest.split_whitespace().next());
        // Read as it comes: a process whose pipe is full stands still.
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let output = Arc::new(Mutex::new(String::new()));
        let heard = output.clone();
        let address = address.expect(&banner).to_owned();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let mut heard = heard.lock().unwrap();
                heard.push_str(&line);
                heard.push('\n');
            }
        });
        RunningProcess { address, banner, output, child, log: Some(log) }
    }
}

/// A finished command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    pub(crate) fn new(output: Output) -> CommandOutput {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{stderr}");
        CommandOutput {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr,
        }
    }
}

/// Status and body of a GET over plain HTTP.
pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A running `shipshape up`; killed when the test lets go of it.
pub(crate) struct RunningProcess {
    pub(crate) address: String,
    pub(crate) banner: String,
    output: Arc<Mutex<String>>,
    child: Child,
    log: Option<JoinHandle<String>>,
}

impl RunningProcess {
    /// Status and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(&self.address, path)
    }

    /// The address that the banner gives under a name, without its scheme.
    pub(crate) fn at(&self, name: &str) -> String {
        let line =
            self.banner.lines().find_map(|line| line.trim_start().strip_prefix(name)).expect(&self.banner);
        line.split("://").nth(1).and_then(|rest| rest.split_whitespace().next()).expect(line).to_owned()
    }

    /// What it has said on standard output since its banner.
    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Its soft and its hard limit on open files.
    pub(crate) fn open_files(&self) -> (String, String) {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap();
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect(&limits);
        let mut words = limit.split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    }

    /// Sends a signal by name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> CommandOutput {
        let status = self.wait();
        let stderr = self.log.take().unwrap().join().unwrap();
        assert!(!stderr.contains("panicked"), "{stderr}");
        CommandOutput { code: status.code(), stdout: String::new(), stderr }
    }

    fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        let (_nobody, pause) = mpsc::channel::<()>();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            let _ = pause.recv_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
