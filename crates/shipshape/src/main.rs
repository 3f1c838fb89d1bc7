//! Shipshape: one executable for all services and for the command line.

#[cfg(feature = "agent")]
mod agent;
mod arguments;
#[cfg(feature = "services")]
mod audit;
#[cfg(feature = "services")]
mod cloud;
mod config;
#[cfg(feature = "services")]
mod data_dir;
#[cfg(feature = "sim")]
mod demo;
#[cfg(feature = "services")]
mod event_log;
mod health;
mod listening;
#[cfg(feature = "agent")]
mod machine_controllers;
#[cfg(feature = "agent")]
mod machine_operator;
#[cfg(feature = "agent")]
mod machine_provider;
mod metrics;
mod open_files;
#[cfg(feature = "services")]
mod open_store;
#[cfg(feature = "services")]
mod portal;
mod process;
#[cfg(feature = "agent")]
mod protected_metrics;
mod readiness;
#[cfg(all(feature = "agent", feature = "sim"))]
mod roles;
#[cfg(feature = "services")]
mod services;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "services")]
mod store;
mod supervisor;
#[cfg(feature = "sim")]
mod task_test;
mod telemetry;
#[cfg(feature = "agent")]
mod termination_handler;
#[cfg(feature = "services")]
mod up;
mod version;

use std::future::Future;
use std::io::IsTerminal as _;
#[cfg(feature = "services")]
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use clap_complete::env::{CompleteEnv, Shells};

use anyhow::Context as _;
#[cfg(feature = "services")]
use arguments::UpFlags;
use arguments::{Cli, Command, ConfigCommand, ConfigOutput, TaskCommand, VersionOutput};
use clap_complete::Shell;
use cli::commands::{self, Interrupted, Invocation, complete};
use cli::{Environment, output};
#[cfg(feature = "services")]
use config::Flag;
use config::{ConfigErrors, Loaded};
use process::Process;
use supervisor::Fault;
use telemetry::Telemetry;
#[cfg(feature = "services")]
use up::Service;
use version::Version;

/// Exit code for wrong usage.
const BAD_USAGE: u8 = 2;

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Longest wait for blocking calls at the end of the process.
const BLOCKING_CALLS_MAX: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // A shell requests completions by an environment variable; this is checked first.
    let directory = std::env::current_dir().ok();
    let completion = CompleteEnv::with_factory(Cli::command).var(complete::VARIABLE);
    match completion.try_complete(std::env::args_os(), directory.as_deref()) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => return usage(&error),
    }
    let environment = Environment::from_process();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match run(&cli, &environment) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

fn run(cli: &Cli, environment: &Environment) -> anyhow::Result<()> {
    let load = || config::load(cli.settings.config.as_deref(), environment, &cli.flags());
    let invocation = Invocation::new(environment, cli.settings.data_dir.as_ref().map(PathBuf::from));
    match &cli.command {
        #[cfg(feature = "services")]
        Command::Up(up) => {
            let loaded = load_for_up(cli, up, environment)?;
            serve(loaded, environment, |process| up::run(process, environment, up.demo()))
        }
        #[cfg(feature = "services")]
        Command::Frontend(_) => {
            serve(load()?, environment, |process| up::run_service(process, Service::Frontend))
        }
        #[cfg(feature = "services")]
        Command::Portal(flags) => {
            serve(load()?, environment, |process| up::run_portal(process, invocation.client(&flags.connect)))
        }
        #[cfg(feature = "services")]
        Command::Actuator(_) => {
            serve(load()?, environment, |process| up::run_service(process, Service::Actuator))
        }
        #[cfg(feature = "services")]
        Command::Scheduler(_) => {
            serve(load()?, environment, |process| up::run_service(process, Service::Scheduler))
        }
        #[cfg(feature = "services")]
        Command::Backend(_) => {
            serve(load()?, environment, |process| up::run_service(process, Service::Backend))
        }
        #[cfg(feature = "services")]
        Command::Monitor(_) => {
            serve(load()?, environment, |process| up::run_service(process, Service::Monitor))
        }
        #[cfg(feature = "sim")]
        Command::Sim(command) if command.runs() => {
            serve(load()?, environment, |process| sim::run(process, command))
        }
        #[cfg(feature = "sim")]
        Command::Sim(command) => run_client(sim::send_command(command, &load()?.config)),
        #[cfg(feature = "services")]
        Command::Store(command) => run_client(store::run(command, &load()?.config)),
        #[cfg(feature = "services")]
        Command::Audit(command) => run_client(audit::run(command, &load()?.config)),
        #[cfg(feature = "agent")]
        Command::Agent(_) => serve(load()?, environment, agent::run),
        #[cfg(feature = "agent")]
        Command::Machines(arguments::MachinesCommand::Controllers(flags)) => {
            serve(load()?, environment, |process| machine_controllers::run(process, flags))
        }
        #[cfg(feature = "agent")]
        Command::Machines(arguments::MachinesCommand::Operator(flags)) => {
            serve(load()?, environment, |process| machine_operator::run(process, flags, environment))
        }
        #[cfg(feature = "agent")]
        Command::TerminationHandler(flags) => {
            serve(load()?, environment, |process| termination_handler::run(process, flags, environment))
        }
        #[cfg(feature = "services")]
        Command::Config(ConfigCommand::Check { cloud: true }) => {
            let loaded = load()?;
            cloud::validate(&loaded.config)?;
            output::show(&loaded.summary())?;
            run_client(cloud::print_check(&loaded.config))
        }
        Command::Config(ConfigCommand::Check { .. }) => {
            let loaded = load()?;
            #[cfg(feature = "services")]
            cloud::validate(&loaded.config)?;
            output::show(&loaded.summary())
        }
        Command::Config(ConfigCommand::Show { output: ConfigOutput::Toml, origin }) => {
            output::show(&load()?.to_toml(*origin)?)
        }
        Command::Config(ConfigCommand::Show { output: ConfigOutput::Json, origin }) => {
            output::show(&load()?.to_json(*origin)?)
        }
        Command::Version { command: Some(command), .. } => {
            run_client(commands::version(command, &invocation))
        }
        Command::Version { output: VersionOutput::Text, .. } => output::show(&Version::current().to_text()),
        Command::Version { output: VersionOutput::Json, .. } => output::show(&Version::current().to_json()?),
        Command::Task(TaskCommand::Client(command)) => run_client(commands::task(command, &invocation)),
        #[cfg(feature = "sim")]
        Command::Task(TaskCommand::Test(flags)) => run_client(task_test::test(flags)),
        Command::Manifest(command) => run_client(commands::manifest(command, &invocation)),
        Command::Schedule(command) => run_client(commands::schedule(command, &invocation)),
        Command::Cluster(command) => run_client(commands::cluster(command, &invocation)),
        Command::Operation(command) => run_client(commands::operation(command, &invocation)),
        #[cfg(feature = "sim")]
        Command::Cloud(command) => {
            let azure = match command.needs_azure() {
                true => Some(cloud::azure_client(&load()?.config)?),
                false => None,
            };
            run_client(commands::cloud(command, &invocation, azure))
        }
        Command::Machine(command) => run_client(commands::machine(command, &invocation)),
        Command::MachineSet(command) => run_client(commands::machine_set(command, &invocation)),
        Command::Health(flags) => run_client(commands::health(flags, &invocation)),
        Command::Budget(command) => run_client(commands::budget(command, &invocation)),
        Command::Plan(command) => run_client(commands::plan(command, &invocation)),
        Command::Why(command) => run_client(commands::why(command, &invocation)),
        Command::Events(command) => run_client(commands::events(command, &invocation)),
        Command::Context(command) => commands::context(command, &invocation),
        Command::Completion { shell } => output::show(&completion(*shell)?),
    }
}

/// The settings of `up`, which has more defaults than services alone.
#[cfg(feature = "services")]
fn load_for_up(cli: &Cli, up: &UpFlags, environment: &Environment) -> Result<Loaded, ConfigErrors> {
    let load = |flags: &[Flag]| config::load(cli.settings.config.as_deref(), environment, flags);
    // Events, including unreachable clusters, are shown on standard output; the log is for faults.
    let quiet = Flag::Default { key: "log.level", value: "warn,kube_client=off".to_owned() };
    let mut flags = [cli.flags(), vec![quiet]].concat();
    let loaded = load(&flags)?;
    // The clusters of a demonstration keep their settings, whether or not the demonstration continues.
    let defaults = demo_defaults(up, loaded.config.data_dir.as_ref());
    if defaults.is_empty() {
        return Ok(loaded);
    }
    flags.extend(defaults);
    load(&flags)
}

/// Defaults for a data directory with a demonstration, or in which one is about to start.
#[cfg(feature = "sim")]
fn demo_defaults(up: &UpFlags, data_dir: &Path) -> Vec<Flag> {
    match up.demo().is_some() || demo::was_started_in(data_dir) {
        true => demo::defaults(),
        false => Vec::new(),
    }
}

#[cfg(all(feature = "services", not(feature = "sim")))]
fn demo_defaults(_: &UpFlags, _: &Path) -> Vec<Flag> {
    Vec::new()
}

/// The completion script of a shell, which calls this executable for names on the server.
fn completion(shell: Shell) -> anyhow::Result<String> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).context("the shell is not supported")?;
    let executable = std::env::current_exe().context("the path of this executable is unknown")?;
    let mut script = Vec::new();
    let executable = executable.to_string_lossy();
    completer.write_registration(complete::VARIABLE, "shipshape", "shipshape", &executable, &mut script)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Runs a client command.
fn run_client(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(command);
    runtime.shutdown_timeout(BLOCKING_CALLS_MAX);
    result
}

/// Runs services in a runtime, with logs and traces.
fn serve<F>(
    loaded: Loaded,
    environment: &Environment,
    services: impl FnOnce(Process) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let colour = environment.allows_colour() && std::io::stderr().is_terminal();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let telemetry = Telemetry::start(&loaded.config, colour)?;
        for sentence in loaded.renamed() {
            tracing::warn!("Setting {sentence}");
        }
        let result = match Process::new(loaded.config) {
            Ok(process) => services(process).await,
            Err(error) => Err(error),
        };
        telemetry.finish().await;
        result
    });
    runtime.shutdown_timeout(BLOCKING_CALLS_MAX);
    result
}

/// Prints usage errors or help.
fn usage(error: &clap::Error) -> ExitCode {
    // In colour where enabled; a closed output is no error.
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let masked = config::redacted(&text);
    if masked == text {
        let _ = error.print();
    } else {
        output::error(masked.trim_start_matches("error: "));
    }
    ExitCode::from(BAD_USAGE)
}

/// Prints errors, one line each, and chooses the exit code.
fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(errors) = error.downcast_ref::<ConfigErrors>() {
        errors.sentences().iter().for_each(|sentence| output::error(sentence));
        return ExitCode::from(BAD_USAGE);
    }
    #[cfg(feature = "services")]
    if let Some(errors) = error.downcast_ref::<cloud::AzureConfigErrors>() {
        errors.sentences().iter().for_each(|sentence| output::error(sentence));
        return ExitCode::from(BAD_USAGE);
    }
    if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
        output::note(&interrupted.to_string());
        return ExitCode::from(INTERRUPTED);
    }
    output::error(&format!("{error:#}"));
    match error.downcast_ref::<Fault>() {
        Some(Fault::Interrupted { signal, .. }) => ExitCode::from(signal.exit_code()),
        _ => ExitCode::FAILURE,
    }
}
