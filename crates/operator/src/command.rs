//! Command: what commands share: how they end, what they print, and what they read.

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

/// Writer of lines on stderr, where a log is written there as well.
static LINE_WRITER: OnceLock<fn(&str)> = OnceLock::new();

/// Writes what commands print on stderr by this function from now on.
pub fn write_lines_by(write: fn(&str)) {
    // A second one changes nothing.
    let _ = LINE_WRITER.set(write);
}

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

/// Prints on stdout. A reader that has closed it (`| head`) has seen enough.
pub fn print(text: impl AsRef<[u8]>) -> CommandExit {
    let _ = io::stdout().lock().write_all(text.as_ref());
    CommandExit::Good
}

/// Prints a document on stdout.
///
/// # Errors
/// It was not written as a whole.
pub fn print_whole(text: String) -> Result<(), String> {
    io::stdout().write_all(text.as_bytes()).map_err(|error| format!("stdout: {error}"))
}

/// Prints on stderr why a command failed.
pub fn complain(what: &dyn Display) -> CommandExit {
    let line = format!("gatepost: {what}");
    match LINE_WRITER.get() {
        Some(write) => write(&line),
        // Where stderr is closed there is no reader.
        None => drop(writeln!(io::stderr(), "{line}")),
    }
    CommandExit::Failed
}

/// Prints on stderr why flags do not go together, in a way that clap does not know of.
pub fn misused(command: &str, what: &dyn Display) -> CommandExit {
    complain(&format_args!("{what}; see `gatepost {command} --help`"));
    CommandExit::Misused
}

/// Prints the result of a command, or why there is none.
pub fn finish(result: Result<(String, CommandExit), impl Display>) -> CommandExit {
    match result {
        Ok((text, exit)) => {
            print(&text);
            exit
        }
        Err(error) => complain(&error),
    }
}

/// Runs asynchronous work on this thread.
///
/// # Errors
/// The operating system gives us no event queue.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let output = runtime.block_on(work);
    // Dropped, it would wait for reads of files and look-ups of names, of which some never end.
    runtime.shutdown_background();
    Ok(output)
}

/// The error and its fix.
pub fn with_fix(error: KubeError) -> String {
    format!("{error}; {}", error.fix())
}

/// `1 hook`, `2 hooks`.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Parser of a flag that takes one of these words.
pub fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    words: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words.map(|(word, _)| word))
        .map(move |given| words.iter().find(|(word, _)| *word == given).map_or(words[0].1, |(_, value)| *value))
}

/// A duration as people write it.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write a duration like 10s or 500ms"))
}

/// One YAML document that we and Kubernetes' tools read back as the same value, with its keys in alphabetical order.
/// Words that YAML 1.1 takes for numbers or booleans are quoted; text of several lines is written as such, and a long
/// line stays one.
///
/// # Errors
/// The serializer's words, should it meet a value it cannot write.
pub fn yaml(value: &Value) -> Result<String, String> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| error.to_string())
}

/// The apiserver that `--kubeconfig` and `--context` name.
pub fn access(kubeconfig: Option<PathBuf>, context: Option<String>) -> KubeAccess {
    match kubeconfig {
        Some(path) if path.as_os_str() == "in-cluster" => KubeAccess::InCluster,
        path => KubeAccess::find(path, context),
    }
}

/// Replaces a file, so that a reader sees the old one or the new one. The umask applies to `mode`, and not to
/// `exact_mode`.
///
/// # Errors
/// The file cannot be written; nothing is left behind.
pub fn replace_file(path: &Path, bytes: &[u8], mode: u32, exact_mode: Option<u32>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden: a source passes over names that begin with a dot.
    let draft = path.with_file_name(format!(".{name}.{}", process::id()));
    let written = || {
        // One that was left behind may have another mode.
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
