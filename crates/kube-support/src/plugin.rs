//! Plugin: the program that a kubeconfig names for credentials, kept within bounds.
//!
//! The package waits for such a program without end, and takes whatever it prints into memory. So the program is
//! started by a process of ours in between, which ends it when its time is up or when it prints too much.

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

/// The command of ours that keeps a plugin.
pub const COMMAND: &str = "exec-plugin";
/// Timeouts of a plugin, without and with a person who has to log in.
const PLUGIN_TIMEOUTS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));
/// Time after which a plugin has surely ended, or was ended.
pub(super) const MAX_PLUGIN_TIME: Duration = PLUGIN_TIMEOUTS.1.saturating_add(Duration::from_secs(10));
/// The most that a plugin may print: far more than a token, or a certificate and those before it.
const LARGEST: usize = 1 << 20;
/// Interval of the look for the end of a plugin that prints no more.
const LOOK: Duration = Duration::from_millis(5);

/// The program that has [`COMMAND`].
static KEEPER: OnceLock<PathBuf> = OnceLock::new();

/// Has plugins started by this program, which has [`COMMAND`]. Unless a user of this library calls it, they are
/// unbounded.
pub fn kept_by(program: PathBuf) {
    // A second call says the same.
    let _ = KEEPER.set(program);
}

/// Puts the keeper before the plugin, where the kubeconfig names one.
pub(super) fn keep(config: &mut Config) {
    let Some((keeper, exec)) = KEEPER.get().and_then(|path| path.to_str()).zip(config.auth_info.exec.as_mut()) else {
        return;
    };
    let patience = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => PLUGIN_TIMEOUTS.0,
        _ => PLUGIN_TIMEOUTS.1,
    };
    if let Some(plugin) = exec.command.replace(keeper.to_owned()) {
        let before = [COMMAND.to_owned(), patience.as_secs().to_string(), plugin];
        exec.args = Some(before.into_iter().chain(exec.args.take().unwrap_or_default()).collect());
    }
}

/// Reasons why a plugin's output is worth nothing, as exit statuses of our own process in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It cannot be started.
    Unstarted,
    /// Its time was up.
    Late,
    /// It printed too much.
    TooMuch,
    /// It has failed, with this code.
    Failed(u8),
}

impl Broken {
    /// The exit code that stands for it; a plugin that ends with one of the first three is misunderstood.
    pub fn code(self) -> u8 {
        match self {
            Self::Unstarted => 230,
            Self::Late => 231,
            Self::TooMuch => 232,
            Self::Failed(code) => code,
        }
    }

    /// Failure of the plugin that the status stands for, in words.
    pub(super) fn exit_reason(status: ExitStatus) -> String {
        let kept = |broken: Self| KEEPER.get().is_some() && status.code() == Some(broken.code().into());
        match () {
            () if kept(Self::Unstarted) => "cannot be started; see that it is there and may be run".to_owned(),
            () if kept(Self::Late) => "did not end in time, and was ended".to_owned(),
            () if kept(Self::TooMuch) => format!("printed more than {LARGEST} bytes, and was ended"),
            () => format!("failed with {status}"),
        }
    }
}

/// Runs the plugin, and gives what it has printed.
///
/// # Errors
/// [`Broken`]; the plugin has ended then, or is killed.
pub fn run(plugin: OsString, arguments: Vec<OsString>, patience: Duration) -> Result<Vec<u8>, Broken> {
    let by = Instant::now() + patience;
    let mut command = Command::new(plugin);
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().map_err(|_| Broken::Unstarted)?;
    let ended = printed(&mut child, by).and_then(|printed| match wait(&mut child, by)? {
        status if status.success() => Ok(printed),
        status => Err(Broken::Failed(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1))),
    });
    if ended.is_err() {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

/// Output of the plugin. Read beside us: a child of its own that lives on may keep its stdout open.
fn printed(child: &mut Child, by: Instant) -> Result<Vec<u8>, Broken> {
    let stdout = child.stdout.take().ok_or(Broken::Unstarted)?;
    let (sender, printed) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read: io::Result<usize> = stdout.take(LARGEST as u64 + 1).read_to_end(&mut bytes);
        // The receiver is gone where time was up.
        let _ = sender.send(read.map(|_| bytes));
    });
    match printed.recv_timeout(by.saturating_duration_since(Instant::now())) {
        Ok(Ok(bytes)) if bytes.len() > LARGEST => Err(Broken::TooMuch),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Broken::Failed(1)),
        Err(_) => Err(Broken::Late),
    }
}

fn wait(child: &mut Child, by: Instant) -> Result<ExitStatus, Broken> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < by => thread::sleep(LOOK),
            Ok(None) => return Err(Broken::Late),
            Err(_) => return Err(Broken::Failed(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> Result<Vec<u8>, Broken> {
        run("/bin/sh".into(), vec!["-c".into(), script.into()], patience)
    }

    #[test]
    fn a_plugin_is_ended_when_its_time_is_up_or_it_prints_too_much() {
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(50));
        assert_eq!(shell("printf token", long), Ok(b"token".to_vec()));
        assert_eq!(shell("printf token; exit 3", long), Err(Broken::Failed(3)));
        assert_eq!(run("/nowhere/plugin".into(), Vec::new(), long), Err(Broken::Unstarted));
        assert_eq!(shell("exec tr '\\0' a </dev/zero", long), Err(Broken::TooMuch));
        for hangs in ["exec sleep 1000", "exec >&-; exec sleep 1000", "sleep 2 & exec sleep 1000"] {
            assert_eq!(shell(hangs, short), Err(Broken::Late), "{hangs}");
        }
    }
}
