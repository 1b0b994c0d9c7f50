//! Limits for exec plugins, the programs that a kubeconfig names for credentials.
//!
//! kube-rs waits for a plugin without a timeout, and reads all of its output into memory. A supervising process of ours
//! therefore starts the plugin, and kills it when it times out or prints too much.

use std::{
    ffi::OsString,
    io::{self, Read},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use kube::{Config, config::ExecInteractiveMode};

/// Subcommand of our program that supervises a plugin.
pub const COMMAND: &str = "exec-plugin";
/// Timeouts of a plugin: if it is never interactive, and if a person may have to log in.
const PLUGIN_TIMEOUTS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));
/// Time after which a plugin has certainly ended or was killed.
pub(super) const MAX_PLUGIN_TIME: Duration = PLUGIN_TIMEOUTS.1.saturating_add(Duration::from_secs(10));
/// Maximum output of a plugin, in bytes: far more than a token or a certificate chain.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// Interval of checks whether a plugin has exited that prints no more.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Program with the subcommand [`COMMAND`].
static SUPERVISOR: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program that supervises plugins by its subcommand [`COMMAND`]. If it is never set, plugins run without
/// limits.
pub fn set_supervisor(program: PathBuf) {
    // A second call passes the same program.
    let _ = SUPERVISOR.set(program);
}

/// Runs the kubeconfig's exec plugin, if any, under the supervisor.
pub(super) fn supervise(config: &mut Config) {
    let Some((supervisor, exec)) = SUPERVISOR.get().and_then(|path| path.to_str()).zip(config.auth_info.exec.as_mut())
    else {
        return;
    };
    let patience = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => PLUGIN_TIMEOUTS.0,
        _ => PLUGIN_TIMEOUTS.1,
    };
    if let Some(plugin) = exec.command.replace(supervisor.to_owned()) {
        let before = [COMMAND.to_owned(), patience.as_secs().to_string(), plugin];
        exec.args = Some(before.into_iter().chain(exec.args.take().unwrap_or_default()).collect());
    }
}

/// Reasons why a plugin has no usable output, reported as exit codes of the supervising process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginError {
    /// The plugin cannot be started.
    NotStarted,
    /// The plugin timed out.
    TimedOut,
    /// The plugin printed too much.
    OutputTooLarge,
    /// The plugin failed with this code.
    Failed(u8),
}

impl PluginError {
    /// Returns the exit code for the reason. A plugin that exits with one of the first three codes is misreported.
    pub fn code(self) -> u8 {
        match self {
            Self::NotStarted => 230,
            Self::TimedOut => 231,
            Self::OutputTooLarge => 232,
            Self::Failed(code) => code,
        }
    }

    /// Returns the reason of the plugin's failure, for messages.
    pub(super) fn exit_reason(status: ExitStatus) -> String {
        let kept = |broken: Self| SUPERVISOR.get().is_some() && status.code() == Some(broken.code().into());
        match () {
            () if kept(Self::NotStarted) => "cannot be started; see that it is there and may be run".to_owned(),
            () if kept(Self::TimedOut) => "did not end in time, and was ended".to_owned(),
            () if kept(Self::OutputTooLarge) => format!("printed more than {MAX_OUTPUT_BYTES} bytes, and was ended"),
            () => format!("failed with {status}"),
        }
    }
}

/// Runs the plugin, and returns its output.
///
/// # Errors
/// [`PluginError`]; the plugin has then exited or was killed.
pub fn run(plugin: OsString, arguments: Vec<OsString>, patience: Duration) -> Result<Vec<u8>, PluginError> {
    let by = Instant::now() + patience;
    let mut command = Command::new(plugin);
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().map_err(|_| PluginError::NotStarted)?;
    let ended = printed(&mut child, by).and_then(|printed| match wait(&mut child, by)? {
        status if status.success() => Ok(printed),
        status => Err(PluginError::Failed(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1))),
    });
    if ended.is_err() {
        // The plugin may have exited by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

/// Returns the plugin's output. Reads on another thread, as a child of the plugin may keep its stdout open.
fn printed(child: &mut Child, by: Instant) -> Result<Vec<u8>, PluginError> {
    let stdout = child.stdout.take().ok_or(PluginError::NotStarted)?;
    let (sender, printed) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read: io::Result<usize> = stdout.take(MAX_OUTPUT_BYTES as u64 + 1).read_to_end(&mut bytes);
        // The receiver is gone after a timeout.
        let _ = sender.send(read.map(|_| bytes));
    });
    match printed.recv_timeout(by.saturating_duration_since(Instant::now())) {
        Ok(Ok(bytes)) if bytes.len() > MAX_OUTPUT_BYTES => Err(PluginError::OutputTooLarge),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(PluginError::Failed(1)),
        Err(_) => Err(PluginError::TimedOut),
    }
}

fn wait(child: &mut Child, by: Instant) -> Result<ExitStatus, PluginError> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < by => thread::sleep(EXIT_POLL_INTERVAL),
            Ok(None) => return Err(PluginError::TimedOut),
            Err(_) => return Err(PluginError::Failed(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> Result<Vec<u8>, PluginError> {
        run("/bin/sh".into(), vec!["-c".into(), script.into()], patience)
    }

    #[test]
    fn a_plugin_is_ended_when_its_time_is_up_or_it_prints_too_much() {
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(50));
        assert_eq!(shell("printf token", long), Ok(b"token".to_vec()));
        assert_eq!(shell("printf token; exit 3", long), Err(PluginError::Failed(3)));
        assert_eq!(run("/nowhere/plugin".into(), Vec::new(), long), Err(PluginError::NotStarted));
        assert_eq!(shell("exec tr '\\0' a </dev/zero", long), Err(PluginError::OutputTooLarge));
        for hangs in ["exec sleep 1000", "exec >&-; exec sleep 1000", "sleep 2 & exec sleep 1000"] {
            assert_eq!(shell(hangs, short), Err(PluginError::TimedOut), "{hangs}");
        }
    }
}
