//! Results: the dated folder of one run, written as the run goes so that an interrupted one keeps what it has.

mod readme;
mod row;

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

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
        let folder = parent.join(format!("{}-{label}", machine::stamp()));
        fs::create_dir_all(folder.join("raw"))?;
        fs::write(folder.join("README.md"), readme::beginning(label, pinning))?;
        fs::write(folder.join("summary.csv"), format!("{HEADER}\n"))?;
        println!("writing {}", folder.display());
        Ok(Self { folder, rows: Vec::new(), notes: Vec::new() })
    }

    /// Keeps the raw data of a cell.
    pub(crate) fn keep(&self, name: &str, data: &impl Serialize) -> Fallible<()> {
        Ok(fs::write(self.folder.join("raw").join(format!("{name}.json")), serde_json::to_string(data)?)?)
    }

    /// Adds a row to the summary and says it.
    pub(crate) fn row(&mut self, row: Row) -> Fallible<()> {
        println!("{row}");
        let mut summary = OpenOptions::new().append(true).open(self.folder.join("summary.csv"))?;
        writeln!(summary, "{}", row.csv())?;
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
        let mut readme = OpenOptions::new().append(true).open(self.folder.join("README.md"))?;
        readme.write_all(readme::end(&self.rows, &self.notes).as_bytes())?;
        println!("\n{}", row::HEADING);
        for row in &self.rows {
            println!("{row}");
        }
        let missed = self.rows.iter().filter(|row| row.is_missed()).count();
        println!("\n{missed} target(s) missed; {}", self.folder.display());
        Ok(())
    }
}
