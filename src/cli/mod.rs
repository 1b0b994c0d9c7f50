//! Commands: one file each. They parse, call, and print; the work is done elsewhere.

pub mod adopt;
pub mod ask;
pub mod audit;
pub mod break_glass;
pub mod certificates;
pub mod check;
pub mod crd;
pub mod demo;
pub mod drain;
pub mod exec_plugin;
pub mod hazards;
pub mod health;
pub mod hook;
mod hook_listener;
pub mod import;
pub mod logging;
mod plural;
pub mod read_proxy;
pub mod register;
pub mod replicas;
pub mod review;
pub mod runlevels;
pub mod serve;
mod service;
pub mod size;
mod source;
pub mod status;
pub mod yaml;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};

use crate::{
    kube::plugin,
    telemetry::{Throttle, log},
};

/// Exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandExit {
    /// Everything asked for was done.
    Good,
    /// It was not: the message is on stderr, or the problems on stdout.
    Failed,
    /// The command line is not understood, in a way that clap does not know of; as clap ends, too.
    Misused,
    /// Asked to stop, and reviews were still under way when time was up.
    NotDrained,
    /// Asked to stop twice.
    Aborted,
    /// The verdict that was asked for is no.
    Denied,
    /// Everything that was asked for is shown, and a replica has a fault.
    Faulty,
    /// A plugin was ended, or has failed, with this code; only the package hears of it.
    Plugin(u8),
}

impl From<CommandExit> for ExitCode {
    fn from(ending: CommandExit) -> Self {
        Self::from(match ending {
            CommandExit::Good => 0,
            CommandExit::Failed => 1,
            CommandExit::Misused => 2,
            CommandExit::NotDrained => 3,
            CommandExit::Aborted => 4,
            CommandExit::Denied => 5,
            CommandExit::Faulty => 6,
            CommandExit::Plugin(code) => code,
        })
    }
}

const MANUAL: &str = "\
Try it:
  gatepost demo
      A sidecar, hooks and reviews in one process: what it does, in ten seconds.
  gatepost check examples/config/minimal
      Is this configuration valid? Every problem, with its place and its fix.
  gatepost serve --config examples/config/minimal --plaintext
      Serve gRPC on 127.0.0.1:9440, and the admin pages on 127.0.0.1:9441.
  gatepost status
      The configuration that each replica has in force; with --wait, the end of a change.
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
    BreakGlass(break_glass::BreakGlassCommand),
    Certificates(certificates::Certificates),
    Check(check::Check),
    Crd(crd::Crd),
    Demo(demo::Demo),
    Status(status::Status),
    Audit(audit::AuditCommand),
    Drain(drain::Drain),
    #[command(name = plugin::COMMAND, hide = true)]
    ExecPlugin(exec_plugin::ExecPlugin),
    Health(health::Health),
    ReadProxy(read_proxy::ReadProxy),
    Review(review::ReviewArgs),
    Hook(hook::HookArgs),
    Import(import::Import),
    Register(register::Register),
    Release(adopt::Release),
    Runlevels(runlevels::Runlevels),
}

/// Parses the command line and does what it says.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(log_panic_location));
    // On Linux a process that replaces itself by this path is this very program, also where its file was replaced.
    plugin::kept_by("/proc/self/exe".into());
    let ending = match CommandLine::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Adopt(adopt) => adopt.run(),
        Command::BreakGlass(break_glass) => break_glass.run(),
        Command::Certificates(certificates) => certificates.run(),
        Command::Check(check) => check.run(),
        Command::Crd(crd) => crd.run(),
        Command::Demo(demo) => demo.run(),
        Command::Status(status) => status.run(),
        Command::Audit(audit) => audit.run(),
        Command::Drain(drain) => drain.run(),
        Command::ExecPlugin(plugin) => plugin.run(),
        Command::Health(health) => health.run(),
        Command::ReadProxy(proxy) => proxy.run(),
        Command::Review(review) => review.run(),
        Command::Hook(hook) => hook.run(),
        Command::Import(import) => import.run(),
        Command::Register(register) => register.run(),
        Command::Release(release) => release.run(),
        Command::Runlevels(runlevels) => runlevels.run(),
    };
    logging::close();
    ending.into()
}

/// A panic is a bug of ours, and only its place may be printed: its message may quote an object.
fn log_panic_location(panic: &std::panic::PanicHookInfo<'_>) {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    // A panic that can be brought about again and again must not fill the log.
    static PANICS: Throttle = Throttle::new();
    if let Some(held_back) = PANICS.pass() {
        let more = if held_back > 0 { format!(" ({held_back} more before it)") } else { String::new() };
        log::line(&format!("gatepost: panic at {place}{more}; this is a bug in gatepost, please report it"));
    }
}

/// A duration as people write it.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write a duration like 10s or 500ms"))
}

/// Prints on stderr why a command failed.
fn complain(what: &dyn std::fmt::Display) -> CommandExit {
    log::line(&format!("gatepost: {what}"));
    CommandExit::Failed
}

/// The same of flags that do not go together, in a way that clap does not know of.
fn misused(command: &str, what: &dyn std::fmt::Display) -> CommandExit {
    complain(&format_args!("{what}; see `gatepost {command} --help`"));
    CommandExit::Misused
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// As the manual has them.
    #[test]
    fn each_ending_has_a_number_of_its_own() {
        let endings = [
            CommandExit::Good,
            CommandExit::Failed,
            CommandExit::Misused,
            CommandExit::NotDrained,
            CommandExit::Aborted,
            CommandExit::Denied,
            CommandExit::Faulty,
        ];
        for (number, ending) in (0_u8..).zip(endings) {
            // An `ExitCode` can be looked at in no other way.
            assert_eq!(format!("{:?}", ExitCode::from(ending)), format!("{:?}", ExitCode::from(number)), "{ending:?}");
            assert!(MANUAL.contains(&format!("\n  {number}  ")), "{number}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed_and_its_manual_complete() {
        let mut command = CommandLine::command();
        command.clone().debug_assert();
        command.build();
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            assert!(sub.get_about().is_some(), "{} says nothing of itself", sub.get_name());
            for argument in sub.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {} says nothing", sub.get_name(), argument.get_id());
            }
        }
        assert!(command.render_long_help().to_string().contains("Exit codes:"));
    }
}
