//! Shared parts of the commands: exit status, output, flags for the log and for Gatepost's own Service, and file writes.

use std::{
    env,
    fmt::{self, Display},
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::OnceLock,
    time::Duration,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gatepost_api::names::is_dns_label;
use gatepost_kube_support::{KubeAccess, KubeError};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tracing_subscriber::{EnvFilter, filter::LevelFilter, fmt::MakeWriter};

/// Writer of lines to stderr, set if a log is written there, too.
static LINE_WRITER: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the function that writes the lines of commands to stderr.
pub fn write_lines_by(write: fn(&str)) {
    // A second call has no effect.
    let _ = LINE_WRITER.set(write);
}

/// Exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandExit {
    /// The command succeeded.
    Good,
    /// The command failed: the message is on stderr, or the problems are on stdout.
    Failed,
    /// The command line is invalid in a way that clap cannot check. clap exits with the same status.
    Misused,
    /// Shutdown was requested, and reviews were still in progress at the drain timeout.
    NotDrained,
    /// Shutdown was requested twice.
    Aborted,
    /// The requested verdict is a denial.
    Denied,
    /// The output is complete, and a replica has a fault.
    Faulty,
    /// An exec plugin failed or was killed, with this code, which only kube-rs reads.
    Plugin(u8),
}

impl From<CommandExit> for ExitCode {
    fn from(exit: CommandExit) -> Self {
        Self::from(match exit {
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

/// Prints on stdout. Ignores errors, as a reader that has closed stdout (`| head`) needs no more.
pub fn print(text: impl AsRef<[u8]>) -> CommandExit {
    let _ = io::stdout().lock().write_all(text.as_ref());
    CommandExit::Good
}

/// Prints a document on stdout.
///
/// # Errors
/// A message, if the document was not written completely.
pub fn print_whole(text: String) -> Result<(), String> {
    io::stdout().write_all(text.as_bytes()).map_err(|error| format!("stdout: {error}"))
}

/// Prints on stderr why a command failed.
pub fn complain(what: &dyn Display) -> CommandExit {
    let line = format!("gatepost: {what}");
    match LINE_WRITER.get() {
        Some(write) => write(&line),
        // Nobody reads a closed stderr.
        None => drop(writeln!(io::stderr(), "{line}")),
    }
    CommandExit::Failed
}

/// Prints on stderr why the flags are invalid, for rules that clap cannot check.
pub fn misused(command: &str, what: &dyn Display) -> CommandExit {
    complain(&format_args!("{what}; see `gatepost {command} --help`"));
    CommandExit::Misused
}

/// Prints the result of a command, or its error.
pub fn finish(result: Result<(String, CommandExit), impl Display>) -> CommandExit {
    match result {
        Ok((text, exit)) => {
            print(&text);
            exit
        }
        Err(error) => complain(&error),
    }
}

/// Runs a future on this thread.
///
/// # Errors
/// A message, if the operating system provides no event queue.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let output = runtime.block_on(work);
    // Dropping the runtime would wait for file reads and name lookups, some of which never end.
    runtime.shutdown_background();
    Ok(output)
}

/// Returns the error with its fix.
pub fn with_fix(error: KubeError) -> String {
    format!("{error}; {}", error.fix())
}

/// Returns the number with its noun, such as `1 hook` or `2 hooks`.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns the parser of a flag that takes one of these words.
pub fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    words: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words.map(|(word, _)| word))
        .map(move |given| words.iter().find(|(word, _)| *word == given).map_or(words[0].1, |(_, value)| *value))
}

/// Parses a duration such as `10s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write a duration like 10s or 500ms"))
}

/// Returns the value as one YAML document, which our parser and those of Kubernetes' tools read back as the same value.
/// Keys are sorted, words that YAML 1.1 reads as numbers or booleans are quoted, and long lines are not folded.
///
/// # Errors
/// The serializer's message, if it cannot write a value.
pub fn yaml(value: &Value) -> Result<String, String> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| error.to_string())
}

/// Returns the access to the apiserver that `--kubeconfig` and `--context` name.
pub fn access(kubeconfig: Option<PathBuf>, context: Option<String>) -> KubeAccess {
    match kubeconfig {
        Some(path) if path.as_os_str() == "in-cluster" => KubeAccess::InCluster,
        path => KubeAccess::find(path, context),
    }
}

/// Replaces a file atomically: a reader sees the old one or the new one. The umask applies to `mode`, but not to
/// `exact_mode`.
///
/// # Errors
/// The file cannot be written; no draft is left behind.
pub fn replace_file(path: &Path, bytes: &[u8], mode: u32, exact_mode: Option<u32>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden, as sources skip names that begin with a dot.
    let draft = path.with_file_name(format!(".{name}.{}", process::id()));
    let written = || {
        // A draft left behind may have another mode.
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
        file.write_all(bytes)?;
        if let Some(mode) = exact_mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    written().inspect_err(|_| drop(fs::remove_file(&draft)))
}

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

/// Default port of a Service in a registration. source: k8s.io/api/admissionregistration/v1, ServiceReference.
const PORT: u16 = 443;

/// Default name of our registration.
pub const REGISTRATION: &str = "gatepost";

/// Gatepost's own Service: `NAMESPACE/NAME`, or `NAMESPACE/NAME:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Port of the Service, not of its Pods.
    pub port: u16,
}

impl std::str::FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write NAMESPACE/NAME or NAMESPACE/NAME:PORT, as in gatepost/gatepost".to_owned();
        let (namespace, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?),
            None => (rest, PORT),
        };
        match is_dns_label(namespace) && is_dns_label(name) {
            true => Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), port }),
            false => Err(wrong()),
        }
    }
}

impl Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, port } = self;
        match *port {
            PORT => write!(f, "{namespace}/{name}"),
            port => write!(f, "{namespace}/{name}:{port}"),
        }
    }
}

impl Service {
    /// Returns the reference for a `clientConfig`, with this path.
    pub fn reference(&self, path: &str) -> Value {
        json!({"namespace": self.namespace, "name": self.name, "port": self.port, "path": path})
    }

    /// Returns true if a `clientConfig` names this Service, on any port.
    pub fn is_named_by(&self, client_config: &Value) -> bool {
        let of = &client_config["service"];
        of["namespace"] == *self.namespace && of["name"] == *self.name
    }

    /// Returns the name that an apiserver expects in the certificate.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;

    fn read_back(value: &Value) -> Value {
        serde_saphyr::from_str(&yaml(value).unwrap()).unwrap()
    }

    #[test]
    fn yaml_quotes_words_that_look_like_other_types() {
        let words = [
            "on",
            "NO",
            "y",
            "~",
            "null",
            "1e3",
            "0x1f",
            "1_000",
            "010",
            "12:30:45",
            "2026-11-21",
            "*",
            "*/*",
            "",
            " a",
            "a: b",
            "- a",
            "# a",
            "a\nb\n",
            "a\n\n\n",
            "\n",
            "é\u{7}",
        ];
        let value = json!({ "words": words, "number": 30, "yes": true, "none": null, "empty": {}, "list": [] });
        assert_eq!(read_back(&value), value);
        assert!(yaml(&value).unwrap().contains("- \"on\"") || yaml(&value).unwrap().contains("- 'on'"));
    }

    #[test]
    fn yaml_does_not_wrap_long_lines() {
        let value = json!({ "caBundle": "LS0t".repeat(500), "words": "a b ".repeat(100) + "c" });
        assert_eq!(read_back(&value), value);
        assert_eq!(yaml(&value).unwrap().lines().count(), 2);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\u{e9}]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,8}", inner, 0..5)
                    .prop_map(|map| Value::from(map.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn yaml_is_read_back_as_the_same_value(value in values()) {
            let value = json!({ "it": value });
            prop_assert_eq!(read_back(&value), value);
        }
    }

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

    #[test]
    fn service_is_read_as_it_is_written() {
        for (text, port) in [("gatepost/gatepost", 443), ("a/b:8443", 8443), ("a/b:443", 443)] {
            let service: Service = text.parse().unwrap();
            assert_eq!(service.port, port);
            assert_eq!(service.to_string(), text.trim_end_matches(":443"));
        }
        for text in ["", "a", "a/", "/b", "a/b/c", "a/b:0", "a/b:x", "a/b:", "a/b:65536", "A/b", "a/b.c", "a b/c"] {
            assert!(text.parse::<Service>().is_err(), "{text}");
        }
    }

    #[test]
    fn service_is_recognised_in_a_client_config() {
        let service: Service = "ns/name".parse().unwrap();
        assert!(service.is_named_by(&json!({"service": service.reference("/validate")})));
        assert!(service.is_named_by(&json!({"service": {"namespace": "ns", "name": "name", "port": 8443}})));
        for other in [json!({"service": {"namespace": "ns", "name": "n"}}), json!({"url": "https://ns/name"}), json!(0)]
        {
            assert!(!service.is_named_by(&other), "{other}");
        }
        assert_eq!(service.server_name(), "name.ns.svc");
    }
}
