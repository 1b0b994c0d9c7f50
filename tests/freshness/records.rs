//! Records: the lines of a sidecar's audit log, as far as freshness is concerned.

use serde::Deserialize;

use crate::Fallible;

/// Name of a change's hook: its number is the proof of which configuration decided, whatever revision the sidecar
/// gives.
pub(crate) fn hook(change: usize) -> String {
    format!("change-{change}.example.com")
}

/// One verdict of one sidecar. Times are microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Which sidecar.
    pub(crate) sidecar: usize,
    /// Which of the reviews that it was asked.
    pub(crate) review: usize,
    /// The revision that the line names, where that is a store's.
    pub(crate) named: Option<u64>,
    /// Time at which the decision began.
    pub(crate) began: u64,
    /// Time at which it was reached.
    pub(crate) ended: u64,
    /// State that decided.
    pub(crate) basis: Basis,
}

/// State that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// No configuration: it was refused as too old.
    Refused,
    /// The configuration of that revision, and the hook that was asked belongs to that change.
    Used {
        /// Revision that the sidecar gives.
        revision: u64,
        /// Change in the hook's name.
        change: usize,
    },
}

#[derive(Deserialize)]
struct Line {
    time_us: u64,
    took_us: u64,
    uid: String,
    revision: String,
    reason: Option<String>,
    hooks: Vec<Hook>,
}

#[derive(Deserialize)]
struct Hook {
    hook: String,
}

/// Reads a sidecar's log. Every line must be understood: what is passed over in silence proves nothing.
pub(crate) fn read(sidecar: usize, log: &str) -> Fallible<Vec<Record>> {
    log.lines().map(|line| record(sidecar, line).map_err(|error| format!("{error} in {line}").into())).collect()
}

fn record(sidecar: usize, line: &str) -> Fallible<Record> {
    let line: Line = serde_json::from_str(line)?;
    let basis = match (line.reason.as_deref(), &*line.hooks) {
        (Some("LoadingConfiguration"), []) => Basis::Refused,
        (_, [only]) => Basis::Used { revision: line.revision.parse()?, change: change(&only.hook)? },
        (_, hooks) => return Err(format!("{} hooks were asked, and every change has one", hooks.len()).into()),
    };
    let (review, named) = (line.uid.parse()?, line.revision.parse().ok());
    let began = line.time_us.saturating_sub(line.took_us);
    Ok(Record { sidecar, review, named, began, ended: line.time_us, basis })
}

fn change(hook: &str) -> Fallible<usize> {
    let number = hook.strip_prefix("change-").and_then(|rest| rest.strip_suffix(".example.com"));
    Ok(number.ok_or("the hook of no change")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_sidecars_write_them() {
        let log = concat!(
            r#"{"time_us":5000,"uid":"1","revision":"17","config_age_ms":3,"allowed":true,"took_us":800,"#,
            r#""hooks":[{"hook":"change-7.example.com","outcome":"allowed","took_us":700}]}"#,
            "\n",
            r#"{"time_us":6000,"uid":"2","revision":"17","config_age_ms":6000,"allowed":false,"code":503,"#,
            r#""reason":"LoadingConfiguration","took_us":1,"hooks":[]}"#,
            "\n",
        );
        let used = Basis::Used { revision: 17, change: 7 };
        assert_eq!(
            read(2, log).unwrap(),
            [
                Record { sidecar: 2, review: 1, named: Some(17), began: 4200, ended: 5000, basis: used },
                Record { sidecar: 2, review: 2, named: Some(17), began: 5999, ended: 6000, basis: Basis::Refused },
            ]
        );
    }

    #[test]
    fn unknown_records_are_errors() {
        let line = |revision: &str, reason: &str, hooks: &str| {
            format!(
                r#"{{"time_us":1,"took_us":1,"uid":"1","revision":"{revision}","reason":"{reason}","hooks":[{hooks}]}}"#
            )
        };
        let asked = r#"{"hook":"change-1.example.com"}"#;
        assert!(read(0, &line("1", "", asked)).is_ok());
        for wrong in [
            line("sha256:00", "", asked),
            line("1", "", ""),
            line("1", "LoadingConfiguration", asked).replace("change-1", "change-x"),
            line("1", "", &format!("{asked},{asked}")),
            line("1", "", r#"{"hook":"other.example.com"}"#),
            line("1", "", asked).replace(r#""uid":"1""#, r#""uid":"x""#),
            "{\"time_us\":1".to_owned(),
        ] {
            assert!(read(0, &wrong).is_err(), "{wrong}");
        }
    }
}
