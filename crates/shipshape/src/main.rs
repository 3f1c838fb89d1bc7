//! Shipshape: one executable for every service and for the command line that talks to them.

mod admin;
mod arguments;
mod audit;
mod cloud;
mod config;
mod data_dir;
mod demo;
mod listening;
mod metrics;
mod open_files;
mod opening;
mod portal;
mod process;
mod readiness;
mod services;
mod sim;
mod store;
mod supervisor;
mod task_test;
mod telemetry;
mod tell;
mod up;
mod version;

use std::future::Future;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use clap_complete::env::{CompleteEnv, Shells};

use anyhow::Context as _;
use arguments::{Cli, Command, ConfigCommand, ConfigOutput, TaskCommand, UpFlags, VersionOutput};
use clap_complete::Shell;
use cli::commands::{self, Desk, Interrupted, complete};
use cli::{Environment, output};
use config::{ConfigErrors, Flag, Loaded};
use process::Process;
use supervisor::Fault;
use telemetry::Telemetry;
use up::Service;
use version::Version;

/// What a shell expects for a command that was asked wrongly.
const BAD_USAGE: u8 = 2;

/// What a shell expects for a command that was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// How long blocking calls may hold the process after everything else has ended.
const LINGER_MAX: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // A shell that completes a word asks by a variable; it is answered before anything else.
    let here = std::env::current_dir().ok();
    let completing = CompleteEnv::with_factory(Cli::command).var(complete::VARIABLE);
    match completing.try_complete(std::env::args_os(), here.as_deref()) {
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
    let desk = Desk::new(environment, cli.settings.data_dir.as_ref().map(PathBuf::from));
    match &cli.command {
        Command::Up(up) => {
            let loaded = load_for_up(cli, up, environment)?;
            serve(loaded, environment, |process| up::run(process, environment, up.demo))
        }
        Command::Frontend(_) => serve(load()?, environment, |process| up::alone(process, Service::Frontend)),
        Command::Portal(flags) => {
            serve(load()?, environment, |process| up::portal_alone(process, desk.client(&flags.connect)))
        }
        Command::Actuator(_) => serve(load()?, environment, |process| up::alone(process, Service::Actuator)),
        Command::Scheduler(_) => {
            serve(load()?, environment, |process| up::alone(process, Service::Scheduler))
        }
        Command::Backend(_) => serve(load()?, environment, |process| up::alone(process, Service::Backend)),
        Command::Sim(command) if command.runs() => {
            serve(load()?, environment, |process| sim::run(process, command))
        }
        Command::Sim(command) => ask(sim::ask(command, &load()?.config)),
        Command::Store(command) => ask(store::run(command, &load()?.config)),
        Command::Audit(command) => ask(audit::run(command, &load()?.config)),
        Command::Config(ConfigCommand::Check) => output::show(&load()?.summary()),
        Command::Config(ConfigCommand::Show { output: ConfigOutput::Toml, origin }) => {
            output::show(&load()?.to_toml(*origin)?)
        }
        Command::Config(ConfigCommand::Show { output: ConfigOutput::Json, origin }) => {
            output::show(&load()?.to_json(*origin)?)
        }
        Command::Version { command: Some(command), .. } => ask(commands::version(command, &desk)),
        Command::Version { output: VersionOutput::Text, .. } => output::show(&Version::current().to_text()),
        Command::Version { output: VersionOutput::Json, .. } => output::show(&Version::current().to_json()?),
        Command::Task(TaskCommand::Client(command)) => ask(commands::task(command, &desk)),
        Command::Task(TaskCommand::Test(flags)) => ask(task_test::test(flags)),
        Command::Manifest(command) => ask(commands::manifest(command, &desk)),
        Command::Schedule(command) => ask(commands::schedule(command, &desk)),
        Command::Cluster(command) => ask(commands::cluster(command, &desk)),
        Command::Operation(command) => ask(commands::operation(command, &desk)),
        Command::Cloud(command) => ask(commands::cloud(command, &desk)),
        Command::Budget(command) => ask(commands::budget(command, &desk)),
        Command::Plan(command) => ask(commands::plan(command, &desk)),
        Command::Why(command) => ask(commands::why(command, &desk)),
        Command::Events(command) => ask(commands::events(command, &desk)),
        Command::Context(command) => commands::context(command, &desk),
        Command::Completion { shell } => output::show(&completion(*shell)?),
    }
}

/// The settings of `up`, which takes more for granted than services alone do.
fn load_for_up(cli: &Cli, up: &UpFlags, environment: &Environment) -> Result<Loaded, ConfigErrors> {
    let load = |flags: &[Flag]| config::load(cli.settings.config.as_deref(), environment, flags);
    // What happens is told on standard output; the log is for what goes wrong. That a cluster does not answer is told as well.
    let quiet = Flag::Default { key: "log.level", value: "warn,kube_client=off".to_owned() };
    let mut flags = [cli.flags(), vec![quiet]].concat();
    let loaded = load(&flags)?;
    // A fleet that was made for a demonstration stays where it is, whether or not the story goes on.
    if up.demo.is_none() && !demo::was_given_in(loaded.config.data_dir.as_ref()) {
        return Ok(loaded);
    }
    flags.extend(demo::defaults());
    load(&flags)
}

/// The script that lets a shell ask this executable for completions, names on the server included.
fn completion(shell: Shell) -> anyhow::Result<String> {
    let shells = Shells::builtins();
    let completer =
        shells.completer(&shell.to_string()).context("the shell is one of those that are known")?;
    let executable = std::env::current_exe().context("this executable has no path")?;
    let mut script = Vec::new();
    let executable = executable.to_string_lossy();
    completer.write_registration(complete::VARIABLE, "shipshape", "shipshape", &executable, &mut script)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Runs a command that asks and ends.
fn ask(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(command);
    runtime.shutdown_timeout(LINGER_MAX);
    ended
}

/// Runs services in a runtime of their own, with logs and traces.
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
    let ended = runtime.block_on(async {
        let telemetry = Telemetry::start(&loaded.config, colour)?;
        let ended = match Process::new(loaded.config) {
            Ok(process) => services(process).await,
            Err(error) => Err(error),
        };
        telemetry.finish().await;
        ended
    });
    runtime.shutdown_timeout(LINGER_MAX);
    ended
}

/// Says what is wrong with the command line, or gives the help that was asked for.
fn usage(error: &clap::Error) -> ExitCode {
    // In colour where that is wanted; a closed output is no reason to fail.
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let masked = config::redacted(&text);
    if masked == text {
        let _ = error.print();
    } else {
        output::complain(masked.trim_start_matches("error: "));
    }
    ExitCode::from(BAD_USAGE)
}

/// Says what went wrong, one line for each error, and chooses the exit code.
fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(errors) = error.downcast_ref::<ConfigErrors>() {
        errors.sentences().iter().for_each(|sentence| output::complain(sentence));
        return ExitCode::from(BAD_USAGE);
    }
    if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
        output::note(&interrupted.to_string());
        return ExitCode::from(INTERRUPTED);
    }
    output::complain(&format!("{error:#}"));
    match error.downcast_ref::<Fault>() {
        Some(Fault::Insisted { signal, .. }) => ExitCode::from(signal.exit_code()),
        _ => ExitCode::FAILURE,
    }
}
