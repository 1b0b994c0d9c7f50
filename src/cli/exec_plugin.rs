//! `exec-plugin`: keeps the program that a kubeconfig names for credentials within bounds. Not for people.

use std::{ffi::OsString, io::Write as _, time::Duration};

use super::CommandExit;
use crate::{app::resources::lower_file_limit, kube::plugin};

/// Run a kubeconfig's exec plugin, and end it when its time is up or it prints too much
#[derive(Debug, clap::Args)]
#[command(name = plugin::COMMAND, hide = true)]
pub struct ExecPlugin {
    /// Seconds it may take
    seconds: u64,

    /// The plugin
    plugin: OsString,

    /// Arguments of the plugin
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl ExecPlugin {
    /// Ends with the plugin's own code, or one that says why it was ended.
    pub fn run(self) -> CommandExit {
        lower_file_limit();
        match plugin::run(self.plugin, self.arguments, Duration::from_secs(self.seconds)) {
            // The pipe is closed where the sidecar has ended meanwhile.
            Ok(printed) => drop(std::io::stdout().write_all(&printed)),
            Err(broken) => return CommandExit::Plugin(broken.code()),
        }
        CommandExit::Good
    }
}
