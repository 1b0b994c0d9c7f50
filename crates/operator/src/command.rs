//! Shared parts of the commands: exit status, output, parsers of flags, and file writes.

use std::{
    fmt::Display,
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::OnceLock,
    time::Duration,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gatepost_kube_support::{KubeAccess, KubeError};
use serde_json::Value;
use tokio::runtime::Builder;

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
}
