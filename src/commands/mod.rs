//! Commands: they parse flags, run, and print the result.
//!
//! Most commands have a module of their own. `release` is in [`adopt`], `drain` in [`replicas`], and the hidden exec-plugin command is in this
//! file. `audit`, `certificates`, `crd` and `health` are in the crate `gatepost-operator`. The modules `examine`,
//! `hook_listener`, `load` and `source` are no commands: they have code that commands share.

pub mod adopt;
mod apply;
pub mod break_glass;
pub mod check;
pub mod demo;
mod examine;
pub mod hook;
mod hook_listener;
pub mod import;
mod load;
pub mod policy;
pub mod read_proxy;
pub mod register;
pub mod replicas;
pub mod review;
pub mod runlevels;
pub mod serve;
mod source;
pub mod status;

use std::{ffi::OsString, fmt::Display, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use gatepost_operator::{
    audit, certificates,
    command::{CommandExit, Logging, print, write_lines_by},
    crd, health,
};

use crate::{
    runtime::{resources::lower_file_limit, threads::lower_priority},
    telemetry::{
        Throttle,
        log::{self, LogLines},
    },
};
use gatepost_kube_support::plugin;

const MANUAL: &str = "\
Try it:
  gatepost demo
      A sidecar, hooks and reviews in one process: what it does, in ten seconds.
  gatepost check examples/config/minimal
      Is this configuration valid? Every problem, with its place and its fix.
  gatepost serve --config examples/config/minimal --plaintext
      Serve gRPC on 127.0.0.1:9440, and the admin pages on 127.0.0.1:9441.
  gatepost policy test examples/policies
      Do the policies decide as their tests say? Without a cluster and without a server.
  gatepost status
      The configuration that each replica has in force.
  gatepost apply -f images.yaml --config /etc/gatepost --wait
      Check a document with the rest of the configuration, write it, and wait until every replica has it in force.
  gatepost audit --denied --since 1h --name shop/web-0
      Why it was denied an hour ago: from the audit log, rotated files included.
  curl -s 127.0.0.1:9441/configz
      The configuration in force, how fresh it is, and where each hook stands.

Environment:
  GATEPOST_LOG  what is logged where --log-level is not given: error, warn, info, debug or trace

Exit codes:
  0  done; for serve: asked to stop, and every review in flight was finished
  1  not done; what to do about it is on stderr (check: the problems are on stdout)
  2  the command line is not understood
  3  serve: asked to stop, but reviews were still in flight when time was up
  4  serve: asked to stop again, a second later or more, and stopped at once
  5  review: denied
  6  status: a replica's certificate, its registration or an initializer is at fault";

/// An admission sidecar for Kubernetes apiservers: one review in, the same bytes out to every hook, one verdict back.
///
/// The apiserver calls Gatepost once for each write. Gatepost calls every hook that matches, all at the same time, from
/// one shared copy of the bytes, and returns one verdict. The configuration is read every second and swapped
/// atomically. If it cannot be read for five seconds, every request is refused rather than decided by outdated rules.
#[derive(Debug, Parser)]
#[command(name = "gatepost", version, after_long_help = MANUAL, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Adopt(adopt::AdoptCommand),
    Apply(apply::Apply),
    BreakGlass(break_glass::BreakGlassCommand),
    Certificates(certificates::Certificates),
    Check(check::Check),
    Crd(crd::Crd),
    Demo(demo::Demo),
    Status(status::Status),
    Audit(audit::AuditCommand),
    Drain(replicas::Drain),
    #[command(name = plugin::COMMAND, hide = true)]
    ExecPlugin(ExecPlugin),
    Health(health::Health),
    Policy(policy::PolicyArgs),
    ReadProxy(read_proxy::ReadProxy),
    Review(review::ReviewArgs),
    Hook(hook::HookArgs),
    Import(import::Import),
    Register(register::Register),
    Release(adopt::Release),
    Runlevels(runlevels::Runlevels),
}

/// Run a kubeconfig's exec plugin, and kill it if it times out or prints too much
#[derive(Debug, clap::Args)]
#[command(name = plugin::COMMAND, hide = true)]
struct ExecPlugin {
    /// Timeout of the plugin in seconds
    seconds: u64,

    /// The plugin
    plugin: OsString,

    /// Arguments of the plugin
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl ExecPlugin {
    /// Runs the plugin and prints its output. Exits with the plugin's code if it fails, or with a code of our own if it
    /// cannot be started, times out or prints too much.
    fn run(self) -> CommandExit {
        lower_file_limit();
        match plugin::run(self.plugin, self.arguments, Duration::from_secs(self.seconds)) {
            // If the sidecar has exited meanwhile, the pipe is closed, which `print` ignores.
            Ok(printed) => print(printed),
            Err(broken) => CommandExit::Plugin(broken.code()),
        }
    }
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(log_panic_location));
    write_lines_by(log::line);
    // On Linux, this path is the running program even if its file was replaced.
    plugin::set_supervisor("/proc/self/exe".into());
    let exit = match CommandLine::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Adopt(adopt) => adopt.run(),
        Command::Apply(apply) => apply.run(),
        Command::BreakGlass(break_glass) => break_glass.run(),
        Command::Certificates(certificates) => certificates.run(start_log),
        Command::Check(check) => check.run(),
        Command::Crd(crd) => crd.run(),
        Command::Demo(demo) => demo.run(),
        Command::Status(status) => status.run(),
        Command::Audit(audit) => audit.run(),
        Command::Drain(drain) => drain.run(),
        Command::ExecPlugin(plugin) => plugin.run(),
        Command::Health(health) => health.run(),
        Command::Policy(policy) => policy.run(),
        Command::ReadProxy(proxy) => proxy.run(),
        Command::Review(review) => review.run(),
        Command::Hook(hook) => hook.run(),
        Command::Import(import) => import.run(),
        Command::Register(register) => register.run(),
        Command::Release(release) => release.run(),
        Command::Runlevels(runlevels) => runlevels.run(),
    };
    // Writes the remaining lines; gives up if stderr blocks.
    log::close(LOG_CLOSE_TIMEOUT);
    exit.into()
}

/// Maximum time that the process waits at its end for its last log lines.
const LOG_CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Starts the log of a long-running command: lines on stderr, written by a thread of its own so that no command waits
/// for stderr. The code that logs ensures that no line has the content of an object.
///
/// # Errors
/// A message, if the level is invalid or the operating system provides no thread.
fn start_log(logging: &Logging) -> Result<(), String> {
    logging.send_to(|| LogLines)?;
    log::start(lower_priority).map_err(|error| format!("cannot start logging: {error}"))
}

/// Returns any error as text.
fn text(error: impl Display) -> String {
    error.to_string()
}

/// Logs the location of a panic, which is a bug of ours. The message is not logged, because it may quote an object.
fn log_panic_location(panic: &std::panic::PanicHookInfo<'_>) {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    // A panic that a caller can trigger repeatedly must not fill the log.
    static PANICS: Throttle = Throttle::new();
    if let Some(suppressed) = PANICS.pass() {
        let more = if suppressed > 0 { format!(" ({suppressed} more before it)") } else { String::new() };
        log::line(&format!("gatepost: panic at {place}{more}; this is a bug in gatepost, please report it"));
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_manual() {
        let exits = [
            CommandExit::Good,
            CommandExit::Failed,
            CommandExit::Misused,
            CommandExit::NotDrained,
            CommandExit::Aborted,
            CommandExit::Denied,
            CommandExit::Faulty,
        ];
        for (number, exit) in (0_u8..).zip(exits) {
            // An `ExitCode` can be looked at in no other way.
            assert_eq!(format!("{:?}", ExitCode::from(exit)), format!("{:?}", ExitCode::from(number)), "{exit:?}");
            assert!(MANUAL.contains(&format!("\n  {number}  ")), "{number}");
        }
    }

    #[test]
    fn every_command_and_flag_has_a_help_text() {
        let mut command = CommandLine::command();
        command.clone().debug_assert();
        command.build();
        let mut commands: Vec<_> = command.get_subcommands().collect();
        while let Some(sub) = commands.pop() {
            if sub.get_name() == "help" {
                continue;
            }
            assert!(sub.get_about().is_some(), "{} says nothing of itself", sub.get_name());
            for argument in sub.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {} says nothing", sub.get_name(), argument.get_id());
            }
            commands.extend(sub.get_subcommands());
        }
        assert!(command.render_long_help().to_string().contains("Exit codes:"));
    }
}
