//! Finding: one figure beside what it is compared with, against its target; and all findings of a run.

use std::{fmt, path::Path, time::Instant};

use serde::Serialize;

use super::Results;
use crate::{Fallible, machine, targets::Target};

const HEADER: &str = "figure,cell,unit,beside,ours,value,target,met\n";

/// One line of the summary.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) figure: &'static str,
    /// Conditions that it is measured under.
    pub(crate) cell: String,
    pub(crate) unit: &'static str,
    /// Requirement to compare with, if there is one.
    pub(crate) beside: Option<f64>,
    pub(crate) ours: f64,
    /// Judged by the target: a difference, a ratio, or what `ours` is.
    pub(crate) value: f64,
    /// None for reading only.
    pub(crate) target: Option<Target>,
    /// There are too few samples to judge it.
    pub(crate) few: bool,
}

impl Finding {
    /// Verdict on the target.
    fn met(&self) -> &'static str {
        match (self.target, self.few) {
            (None, _) => "-",
            (Some(_), true) => "too few samples",
            (Some(target), false) if target.is_met(self.value) => "yes",
            (Some(_), false) => "no",
        }
    }

    fn target(&self) -> String {
        self.target.map(|target| target.to_string()).unwrap_or_default()
    }

    fn beside(&self) -> String {
        self.beside.map(|beside| format!("{beside:.3}")).unwrap_or_default()
    }

    fn csv(&self) -> String {
        let Self { figure, cell, unit, ours, value, .. } = self;
        let (beside, target, met) = (self.beside(), self.target(), self.met());
        format!("{figure},{cell},{unit},{beside},{ours:.3},{value:.3},{target},{met}\n")
    }

    fn markdown(&self) -> String {
        let Self { figure, cell, unit, ours, value, .. } = self;
        let (beside, target, met) = (self.beside(), self.target(), self.met());
        format!("| {figure} | {cell} | {unit} | {beside} | {ours:.3} | {value:.3} | {target} | {met} |\n")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, cell, unit, ours, value, .. } = self;
        let (beside, target, met) = (self.beside(), self.target(), self.met());
        write!(f, "{figure:<28} {cell:<24} {unit:<5} {beside:>10} {ours:>10.3} {value:>10.3} {target:>8}  {met}")
    }
}

/// A folder of results that ends with a table of findings.
#[derive(Debug)]
pub(crate) struct Findings {
    results: Results,
    findings: Vec<Finding>,
    began: Instant,
}

impl Findings {
    /// Makes the folder.
    pub(crate) fn begin(parent: &Path, label: &str, command: &str, pinning: &str) -> Fallible<Self> {
        let results = Results::folder(parent, label, command, pinning)?;
        results.write("summary.csv", HEADER)?;
        Ok(Self { results, findings: Vec::new(), began: Instant::now() })
    }

    /// Adds a finding and says it.
    pub(crate) fn add(&mut self, finding: Finding) -> Fallible<()> {
        println!("{finding}");
        self.results.append("summary.csv", &finding.csv())?;
        self.findings.push(finding);
        Ok(())
    }

    /// Keeps raw data.
    pub(crate) fn keep(&self, name: &str, data: &impl Serialize) -> Fallible<()> {
        self.results.keep(name, data)
    }

    /// Ends the README with the table; `notes` are what the reader must know.
    pub(crate) fn finish(self, notes: &[String]) -> Fallible<()> {
        let mut text = format!(
            "\n- load average when it ended: {}\n- the whole run took {} s\n",
            machine::load_average(),
            self.began.elapsed().as_secs()
        );
        notes.iter().for_each(|note| text.push_str(&format!("- {note}\n")));
        text.push_str("\n| figure | cell | unit | beside | ours | value | target | met |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
        self.findings.iter().for_each(|finding| text.push_str(&finding.markdown()));
        let missed = self.findings.iter().filter(|finding| finding.met() == "no").count();
        text.push_str(&format!("\nMissed: {missed}\n"));
        self.results.append("README.md", &text)?;
        println!("\n{missed} target(s) missed; {}", self.results.path().display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_judged_by_its_value() {
        let finding = |value, few, target| {
            let (beside, cell) = (Some(2.0), "2K".to_owned());
            Finding { figure: "f", cell, unit: "ms", beside, ours: 2.0 + value, value, target, few }.csv()
        };
        let most = Some(Target::AtMost(1.0));
        assert_eq!(finding(1.0, false, most), "f,2K,ms,2.000,3.000,1.000,<=1,yes\n");
        assert_eq!(finding(1.01, false, most), "f,2K,ms,2.000,3.010,1.010,<=1,no\n");
        assert_eq!(finding(1.01, true, most), "f,2K,ms,2.000,3.010,1.010,<=1,too few samples\n");
        assert_eq!(finding(1.01, false, None), "f,2K,ms,2.000,3.010,1.010,,-\n");
    }
}
