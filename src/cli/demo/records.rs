//! The sidecar's audit log, read as it grows: the outcome of each review.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::Read,
    path::Path,
    time::Duration,
};

use serde::Deserialize;

use super::wait::until;

/// The audit record of one review, as far as the demo shows it. The sidecar's `docs/audit.md` has the whole.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Record {
    uid: String,
    pub(super) generation: u64,
    pub(super) took_us: u64,
    pub(super) hooks: Vec<Asked>,
}

/// Outcome of one hook.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Asked {
    pub(super) hook: String,
    pub(super) outcome: String,
    pub(super) failure: Option<String>,
    took_us: u64,
}

impl Asked {
    pub(super) fn took(&self) -> Duration {
        Duration::from_micros(self.took_us)
    }
}

/// The records so far.
pub(super) struct Records {
    file: File,
    /// The beginning of a line whose end is yet to be written.
    rest: Vec<u8>,
    unclaimed: HashMap<String, Record>,
    /// Number of reviews.
    pub(super) reviews: usize,
    /// Number of hooks asked.
    pub(super) asked: usize,
    /// Numbers of reviews decided under each generation.
    pub(super) by_generation: BTreeMap<u64, usize>,
}

impl Records {
    /// Reads the log at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(Self {
            file,
            rest: Vec::new(),
            unclaimed: HashMap::new(),
            reviews: 0,
            asked: 0,
            by_generation: BTreeMap::new(),
        })
    }

    /// The record of one review, once it is written.
    pub(super) async fn of(&mut self, uid: &str) -> Result<Record, String> {
        let mut found = None;
        until("the review's audit record", || {
            self.read_on()?;
            found = self.unclaimed.remove(uid);
            Ok(found.is_some())
        })
        .await?;
        found.ok_or_else(|| "no audit record".to_owned())
    }

    /// Waits for the records of so many reviews in all.
    pub(super) async fn all(&mut self, reviews: usize) -> Result<(), String> {
        until("the last audit records", || {
            self.read_on()?;
            Ok(self.reviews >= reviews)
        })
        .await
    }

    fn read_on(&mut self) -> Result<(), String> {
        self.file.read_to_end(&mut self.rest).map_err(|error| format!("cannot read the audit log: {error}"))?;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        for record in serde_json::Deserializer::from_slice(&whole).into_iter::<Record>() {
            let record = record.map_err(|error| format!("a damaged audit record: {error}"))?;
            self.reviews += 1;
            self.asked += record.hooks.len();
            *self.by_generation.entry(record.generation).or_default() += 1;
            self.unclaimed.insert(record.uid.clone(), record);
        }
        Ok(())
    }
}
