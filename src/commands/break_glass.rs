//! `break-glass`: skips all hooks, initializers and policies, or named ones, for a bounded time.

mod destination;

use std::{
    io,
    time::{Duration, SystemTime},
};

use gatepost_operator::command::{CommandExit, block_on, complain, misused, print};
use serde_json::{Value, json};

use self::destination::{Destination, DestinationArgs, MissingName, WriteError};
use gatepost_api::{BreakGlass, bypass::MAX_OPEN_TIME};
use gatepost_config::{Problem, SourceFile};

const EXAMPLES: &str = "\
Examples:
  gatepost break-glass --for 15m --reason 'the webhook node is gone' --everything --config /etc/gatepost
  gatepost break-glass --for 1h --reason INC-4711 --hook no-latest.example.com --config /etc/gatepost
  gatepost break-glass --end --config /etc/gatepost
  gatepost break-glass --for 15m --reason 'etcd is down' --everything --file /run/gatepost/break-glass.yaml
  gatepost break-glass --for 15m --reason INC-4711 --everything --source kubernetes
  gatepost break-glass --for 15m --reason INC-4711 --everything --source etcd --etcd-endpoint https://etcd.example:2379

What it does:
  Writes a BreakGlass document. Every sidecar that reads it opens within a second or two, whatever else is wrong with the
  configuration, and however old that is. It closes by itself. While it is open, every response has a warning, every
  audit record names it, and the log says so once a minute.

Who may:
  Anybody who may write the configuration: by the permissions of the folder, the role in etcd (readwrite on the prefix),
  or RBAC (create, patch and delete on breakglasses.gatepost.dev). --file counts only where
  `gatepost serve --break-glass-file` names it, and it belongs to root or to the user that serves.

Exit codes:
  0  open, or closed
  1  not: why is on stderr
  2  the command line is not understood, no sidecar would accept the document, or there is no hook, initializer or policy
     of that name

Names of hooks, initializers and policies:
  They are looked up in the source, or with --file in the sidecar at --admin. If not all are known, since the source does
  not answer or a document of it cannot be served, a name is accepted as it is, with a warning.";

/// Open everything, or hooks, initializers and policies by name, for a bounded time
///
/// For emergencies: requests skip hooks without being checked, also while the configuration is stale. For requests that
/// should always skip hooks, write a bypass rule into the configuration.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct BreakGlassCommand {
    /// Time it stays open, at most 24h
    #[arg(long = "for", value_name = "DURATION", value_parser = bounded, required_unless_present = "end")]
    duration: Option<Duration>,

    /// Reason; it is in every warning and audit record
    #[arg(long, value_name = "TEXT", required_unless_present = "end")]
    reason: Option<String>,

    /// Name of a hook, initializer or policy that is not called; repeat for more. Unknown names are refused
    #[arg(long, value_name = "NAME", required_unless_present_any = ["everything", "end"])]
    hook: Vec<String>,

    /// Call no hook, and no initializer, at all
    #[arg(long, conflicts_with = "hook")]
    everything: bool,

    /// Close it now
    #[arg(long, conflicts_with_all = ["duration", "reason", "hook", "everything"])]
    end: bool,

    /// Name of the document; opening it again under the same name replaces it
    #[arg(long, value_name = "NAME", default_value = "break-glass")]
    name: String,

    /// User who opens it [default: $SUDO_USER, $USER or $LOGNAME]
    #[arg(long, value_name = "TEXT")]
    by: Option<String>,

    #[command(flatten)]
    destination: DestinationArgs,
}

fn bounded(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time.subsec_nanos() == 0 && (Duration::from_secs(1)..=MAX_OPEN_TIME).contains(&time) => Ok(time),
        Ok(_) => Err("write a duration in whole seconds from 1s to 24h".to_owned()),
        Err(error) => Err(format!("{error}; write a duration like 15m or 1h")),
    }
}

/// Returns the duration in hours, minutes and seconds. Durations of Kubernetes have no unit for days.
fn spelled(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let written = parts.iter().filter(|(number, _)| *number > 0).map(|(number, unit)| format!("{number}{unit}"));
    written.collect::<Vec<_>>().join(" ")
}

impl BreakGlassCommand {
    /// Writes the document, or removes it with `--end`, and prints the result.
    pub fn run(self) -> CommandExit {
        let destination = match self.destination.clone().open(&self.name) {
            Ok(destination) => destination,
            Err(error @ WriteError::NoFolder(_)) => return complain(&error),
            Err(error) => return misused("break-glass", &error),
        };
        block_on(self.write(&destination)).unwrap_or_else(|error| complain(&error))
    }

    async fn write(&self, destination: &Destination) -> CommandExit {
        if self.end {
            return match destination.remove().await {
                Ok(()) => print(format!(
                    "closed: {destination} is removed; sidecars that read it follow within a second or two\n"
                )),
                Err(error) => complain(&error),
            };
        }
        let document = self.document(SystemTime::now());
        let break_glass = match checked(&document) {
            Ok(break_glass) => break_glass,
            Err(problem) => return misused("break-glass", &problem),
        };
        let missing = self.missing().await;
        match &missing {
            Some(MissingName::Unknown(why)) => return misused("break-glass", why),
            // A name that cannot be checked is only a warning, as the command is for emergencies.
            Some(MissingName::Doubtful(why)) => drop(complain(&format_args!("warning: {why}"))),
            None => {}
        }
        match destination.write(&document).await {
            Ok(()) => print(self.describe(&break_glass, destination, missing.is_some())),
            Err(error) => complain(&error),
        }
    }

    /// Returns the first name in `--hook` that no hook, initializer or policy has; `None` if all exist.
    async fn missing(&self) -> Option<MissingName> {
        if self.hook.is_empty() {
            return None;
        }
        match self.destination.clone().names().await {
            Ok(names) => names.missing(&self.hook),
            Err(error) => Some(MissingName::Doubtful(error.to_string())),
        }
    }

    /// Returns the document, opened at `now` in whole seconds.
    fn document(&self, now: SystemTime) -> Value {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let opened = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
        let duration = self.duration.unwrap_or_default();
        let mut document = json!({
            "apiVersion": "gatepost.dev/v1alpha1",
            "kind": "BreakGlass",
            "metadata": { "name": self.name },
            "opened": humantime::format_rfc3339_seconds(opened).to_string(),
            "for": spelled(duration),
            "until": humantime::format_rfc3339(opened + duration).to_string(),
            "reason": self.reason,
        });
        if !self.hook.is_empty() {
            document["hooks"] = self.hook.clone().into();
        }
        let names = ["SUDO_USER", "USER", "LOGNAME"];
        if let Some(by) = self.by.clone().or_else(|| names.iter().find_map(|name| std::env::var(name).ok())) {
            document["by"] = by.into();
        }
        document
    }

    fn describe(&self, break_glass: &BreakGlass, destination: &Destination, doubtful: bool) -> String {
        let what = match &*break_glass.hooks {
            [] => "EVERYTHING is open: no hook, initializer or policy is called".to_owned(),
            hooks => {
                let look =
                    "\n  look     at `notes` on /configz: a name that no hook, initializer or policy has opens nothing";
                format!("open: no longer called are {}{}", hooks.join(", "), if doubtful { look } else { "" })
            }
        };
        format!(
            "{what}\n  until    {} ({} from now; it closes by itself)\n  reason   {}\n  written  {destination}\n  end it   {}\n",
            humantime::format_rfc3339(break_glass.until()),
            spelled(break_glass.duration),
            break_glass.reason,
            end_command(std::env::args()),
        )
    }
}

/// Returns the document as every sidecar parses it, or its problems.
fn checked(document: &Value) -> Result<BreakGlass, String> {
    let files = [SourceFile { name: "break-glass.json".to_owned(), bytes: document.to_string().into() }];
    let no_file = |_: &str| Err(io::ErrorKind::NotFound.into());
    if let Err(problems) = gatepost_config::load(&files, &no_file) {
        // The file does not exist, so its name would not help the user.
        let output = |problem: Problem| Problem { file: "what was asked for".to_owned(), ..problem }.to_string();
        return Err(problems.into_iter().map(output).collect::<Vec<_>>().join("\n"));
    }
    gatepost_config::break_glass(&files)
        .pop()
        .ok_or_else(|| "the document opens nothing; this is a bug in gatepost".to_owned())
}

/// Returns the shell command that undoes the break-glass of the command line `words`.
fn end_command(words: impl Iterator<Item = String>) -> String {
    const VALUES: [&str; 4] = ["--for", "--reason", "--hook", "--by"];
    let mut words = words;
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let flag = word.split('=').next().unwrap_or_default();
        if VALUES.contains(&flag) {
            if flag == word {
                words.next();
            }
        } else if word != "--everything" {
            kept.push(quoted(&word));
        }
    }
    kept.push("--end".to_owned());
    kept.join(" ")
}

/// Returns the word, quoted for a shell if necessary.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        command: BreakGlassCommand,
    }

    fn parsed(words: &[&str]) -> Result<BreakGlassCommand, clap::Error> {
        let always = ["break-glass", "--config", "/etc/gatepost"];
        Line::try_parse_from(always.iter().chain(words)).map(|line| line.command)
    }

    #[test]
    fn break_glass_needs_a_scope_a_reason_and_an_end() {
        assert!(parsed(&["--for", "15m", "--reason", "x"]).is_err(), "neither a hook nor everything");
        assert!(parsed(&["--for", "15m", "--everything"]).is_err(), "no reason");
        assert!(parsed(&["--reason", "x", "--everything"]).is_err(), "no end");
        assert!(parsed(&["--for", "25h", "--reason", "x", "--everything"]).is_err(), "too long");
        assert!(parsed(&["--for", "15m", "--reason", "x", "--everything", "--hook", "h"]).is_err());
        assert!(parsed(&["--end", "--everything"]).is_err());
        assert!(parsed(&["--end"]).is_ok());
        let nowhere = Line::try_parse_from(["break-glass", "--end"]).map(|line| line.command.destination.open("x"));
        assert!(!matches!(nowhere, Ok(Ok(_))), "{nowhere:?}");
        assert!(parsed(&["--end", "--file", "x"]).is_err(), "two places");
    }

    #[test]
    fn break_glass_document_reflects_the_flags() {
        let reason = "tricky: \"quotes\", #comment and - dash";
        let command = parsed(&["--for", "1h 30m", "--reason", reason, "--hook", "a.example.com", "--by", "ann: #1"]);
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_225_600_123);
        let break_glass = checked(&command.expect("good").document(now)).expect("sound");
        assert_eq!(
            (&*break_glass.name, &*break_glass.reason, &*break_glass.opened_by),
            ("break-glass", reason, "ann: #1")
        );
        assert_eq!(*break_glass.hooks, ["a.example.com".into()]);
        assert_eq!(
            (break_glass.opened, break_glass.duration),
            (now - Duration::from_millis(123), Duration::from_secs(5400))
        );
    }

    #[test]
    fn break_glass_durations_are_spelled_without_days() {
        for (seconds, spelt) in [(1, "1s"), (900, "15m"), (5401, "1h 30m 1s"), (86_400, "24h")] {
            assert_eq!(spelled(Duration::from_secs(seconds)), spelt);
            assert_eq!(bounded(spelt), Ok(Duration::from_secs(seconds)));
        }
        assert!(bounded("1500ms").is_err() && bounded("1day 1s").is_err());
    }

    #[test]
    fn break_glass_that_no_sidecar_accepts_is_not_written() {
        let command = parsed(&["--for", "15m", "--reason", "two\nlines", "--everything"]).expect("parsed");
        let problem = checked(&command.document(SystemTime::now())).expect_err("refused");
        assert!(problem.contains("reason: holds a line break"), "{problem}");
    }

    #[test]
    fn break_glass_end_command_keeps_the_destination() {
        let line = [
            "gatepost",
            "break-glass",
            "--for=15m",
            "--reason",
            "a b",
            "--hook",
            "h",
            "--name",
            "x",
            "--everything",
            "--config",
            "/a b",
        ];
        let output = end_command(line.iter().map(|word| (*word).to_owned()));
        assert_eq!(output, "gatepost break-glass --name x --config '/a b' --end");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
