//! Results: the dated folder of one run, written as the run goes so that an interrupted one keeps what it has.

mod finding;
mod readme;
mod row;

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

pub(crate) use finding::{Finding, Findings};
pub(crate) use row::Row;
use serde::Serialize;

use crate::{Fallible, machine};

const HEADER: &str = "figure,size,hooks,naive,ours,ratio,target,met";

/// A dated folder: README.md, summary.csv, raw/.
#[derive(Debug)]
pub(crate) struct Results {
    folder: PathBuf,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Results {
    /// Makes `PARENT/DATE-LABEL` and begins its README.
    pub(crate) fn begin(parent: &Path, label: &str, pinning: &str) -> Fallible<Self> {
        let arguments: Vec<String> = env::args().skip(1).collect();
        let command = format!("loadtest/compare {}", arguments.join(" "));
        let results = Self::folder(parent, label, command.trim_end(), pinning)?;
        results.write("summary.csv", &format!("{HEADER}\n"))?;
        Ok(results)
    }

    /// The same without a summary, for who writes their own.
    pub(crate) fn folder(parent: &Path, label: &str, command: &str, pinning: &str) -> Fallible<Self> {
        let folder = parent.join(format!("{}-{label}", machine::stamp()));
        fs::create_dir_all(folder.join("raw"))?;
        fs::write(folder.join("README.md"), readme::beginning(label, command, pinning))?;
        println!("writing {}", folder.display());
        Ok(Self { folder, rows: Vec::new(), notes: Vec::new() })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// Path of a file of raw data.
    pub(crate) fn raw(&self, name: &str) -> PathBuf {
        self.folder.join("raw").join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Fallible<()> {
        Ok(fs::write(self.folder.join(name), text)?)
    }

    /// Adds to the end of a file.
    pub(crate) fn append(&self, name: &str, text: &str) -> Fallible<()> {
        let mut file = OpenOptions::new().append(true).open(self.folder.join(name))?;
        Ok(file.write_all(text.as_bytes())?)
    }

    /// Keeps the raw data of a cell.
    pub(crate) fn keep(&self, name: &str, data: &impl Serialize) -> Fallible<()> {
        Ok(fs::write(self.raw(&format!("{name}.json")), serde_json::to_string(data)?)?)
    }

    /// Adds a row to the summary and says it.
    pub(crate) fn row(&mut self, row: Row) -> Fallible<()> {
        println!("{row}");
        self.append("summary.csv", &format!("{}\n", row.csv()))?;
        self.rows.push(row);
        Ok(())
    }

    /// Remembers something the reader must know, and says it.
    pub(crate) fn note(&mut self, note: String) {
        println!("  {note}");
        self.notes.push(note);
    }

    /// Ends the README with the table and prints it once more.
    pub(crate) fn finish(self) -> Fallible<()> {
        self.append("README.md", &readme::end(&self.rows, &self.notes))?;
        println!("\n{}", row::HEADING);
        for row in &self.rows {
            println!("{row}");
        }
        let missed = self.rows.iter().filter(|row| row.is_missed()).count();
        println!("\n{missed} target(s) missed; {}", self.folder.display());
        Ok(())
    }
}
