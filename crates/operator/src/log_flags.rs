//! Flags for the log: level and format. Lines go to stderr.

use std::{env, io};

use tracing_subscriber::{EnvFilter, filter::LevelFilter, fmt::MakeWriter};

/// Environment variable with the level of the log.
const LEVEL_VARIABLE: &str = "GATEPOST_LOG";

/// Disables the log of kube-rs, which has a line for each failed call, every second while an apiserver is unavailable.
/// The callers log such a failure once.
const QUIET: &str = "kube_client=off";

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Level and format of the log.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Log")]
pub struct Logging {
    /// Format of log lines (on stderr)
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,

    /// Level of the log: error, warn, info, debug or trace [default: $GATEPOST_LOG, or info]
    ///
    /// Or a list of levels by module: "info,gatepost::hooks=debug".
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

/// Returns the filter for a level or a list by module. Without a general level in the list, other modules are at info.
fn filter(level: &str) -> Result<EnvFilter, String> {
    // An unknown word would be parsed as a module, and disable all other modules.
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    if let Some(word) = level.split(',').find(|one| !one.contains('=') && !is_level(one.trim())) {
        return Err(format!("{:?} is no level", word.trim()));
    }
    let others = if level.split(',').all(|one| one.contains('=')) { "info," } else { "" };
    EnvFilter::builder().parse(format!("{others}{QUIET},{level}")).map_err(|error| error.to_string())
}

impl Logging {
    /// Sends log lines of this level and format to the writer.
    ///
    /// # Errors
    /// A message about an invalid level.
    pub fn send_to<W>(&self, writer: W) -> Result<(), String>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let (from, level) = match (&self.log_level, env::var(LEVEL_VARIABLE)) {
            (Some(level), _) => ("--log-level", level.clone()),
            (None, Ok(level)) => (LEVEL_VARIABLE, level),
            (None, Err(_)) => ("--log-level", "info".to_owned()),
        };
        let filter = filter(&level).map_err(|why| {
            format!(
                "{from} {level:?} is not understood: {why}; say error, warn, info, debug or trace, or a list as \
                 \"info,gatepost::hooks=debug\""
            )
        })?;
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
        let started = match self.log_format {
            LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
            LogFormat::Json => lines.json().flatten_event(true).try_init(),
        };
        started.map_err(|error| format!("cannot start logging: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_level_that_is_not_a_level_is_refused() {
        for wrong in ["warning", "err", "", "verbose", "info,", "debug,gatepost::hooks"] {
            assert!(filter(wrong).is_err(), "{wrong:?}");
        }
        for (right, most) in [("warn", LevelFilter::WARN), ("INFO", LevelFilter::INFO), ("off", LevelFilter::OFF)] {
            assert_eq!(filter(right).unwrap().max_level_hint(), Some(most), "{right:?}");
        }
        let modules = filter("gatepost::hooks=debug").unwrap().to_string();
        assert!(modules.contains("info") && modules.contains("gatepost::hooks=debug"), "{modules}");
    }
}
