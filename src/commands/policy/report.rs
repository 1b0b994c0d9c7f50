//! Reports of test runs: lines for people, and JUnit XML for machines.

use std::{fmt::Write as _, time::Duration};

use clap::ValueEnum;
use gatepost_config::Problem;
use gatepost_operator::command::counted;
use serde_json::Value;

/// Value of `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// One line for each test.
    Text,
    /// XML as JUnit writes it.
    Junit,
}

/// Results of all suites.
#[derive(Debug, Default)]
pub(super) struct RunReport {
    pub(super) suites: Vec<SuiteReport>,
    /// Problems for which suites were not run.
    pub(super) problems: Vec<Problem>,
}

/// Results of one suite.
#[derive(Debug)]
pub(super) struct SuiteReport {
    pub(super) file: String,
    pub(super) name: String,
    /// Remarks that are no failures.
    pub(super) notes: Vec<String>,
    pub(super) tests: Vec<TestReport>,
}

/// Result of one test.
#[derive(Debug)]
pub(super) struct TestReport {
    pub(super) name: String,
    /// Differences to the expected outcome; none if the test has passed.
    pub(super) differences: Vec<String>,
    /// Explanations of the differences.
    pub(super) explanations: Vec<String>,
    /// Remarks, of a test that has passed, too.
    pub(super) notes: Vec<String>,
    pub(super) took: Duration,
}

impl TestReport {
    fn has_passed(&self) -> bool {
        self.differences.is_empty()
    }
}

impl RunReport {
    fn tests(&self) -> impl Iterator<Item = &TestReport> {
        self.suites.iter().flat_map(|suite| &suite.tests)
    }

    /// Returns true if there are tests, all of them have passed, and nothing was left out.
    pub(super) fn is_good(&self) -> bool {
        self.problems.is_empty() && self.tests().next().is_some() && self.tests().all(TestReport::has_passed)
    }

    /// Returns the report in that format.
    pub(super) fn written(&self, format: ReportFormat) -> String {
        match format {
            ReportFormat::Text => self.text(),
            ReportFormat::Junit => self.junit(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for suite in &self.suites {
            let _ = writeln!(text, "{} ({})", suite.file, suite.name);
            for note in &suite.notes {
                let _ = writeln!(text, "  note  {note}");
            }
            for test in &suite.tests {
                let _ = writeln!(text, "  {}  {}", if test.has_passed() { "ok  " } else { "FAIL" }, test.name);
                for line in test.differences.iter().chain(&test.explanations).chain(&test.notes) {
                    // Messages may quote objects.
                    let plain = line.replace(|sign: char| sign.is_control(), " ");
                    let _ = writeln!(text, "        {plain}");
                }
            }
        }
        for problem in &self.problems {
            let _ = writeln!(text, "{problem}");
        }
        let passed = self.tests().filter(|test| test.has_passed()).count();
        let _ = write!(text, "{passed} passed, {} failed", self.tests().count() - passed);
        if !self.problems.is_empty() {
            let _ = write!(text, ", {}", counted(self.problems.len(), "problem"));
        }
        text.push('\n');
        text
    }

    fn junit(&self) -> String {
        let total = self.tests().count();
        let failed = self.tests().filter(|test| !test.has_passed()).count();
        let errors = self.problems.len();
        let took: Duration = self.tests().map(|test| test.took).sum();
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            xml,
            "<testsuites tests=\"{}\" failures=\"{failed}\" errors=\"{errors}\" time=\"{:.6}\">",
            total + errors,
            took.as_secs_f64()
        );
        for suite in &self.suites {
            let failed = suite.tests.iter().filter(|test| !test.has_passed()).count();
            let took: Duration = suite.tests.iter().map(|test| test.took).sum();
            let _ = writeln!(
                xml,
                "  <testsuite name=\"{}\" file=\"{}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" time=\"{:.6}\">",
                escaped(&suite.name),
                escaped(&suite.file),
                suite.tests.len(),
                took.as_secs_f64()
            );
            for test in &suite.tests {
                let (name, class) = (escaped(&test.name), escaped(&suite.name));
                let took = test.took.as_secs_f64();
                let _ = write!(xml, "    <testcase name=\"{name}\" classname=\"{class}\" time=\"{took:.6}\"");
                if test.has_passed() && test.notes.is_empty() {
                    xml.push_str("/>\n");
                    continue;
                }
                xml.push_str(">\n");
                if !test.has_passed() {
                    let lines: Vec<&str> =
                        test.differences.iter().chain(&test.explanations).map(String::as_str).collect();
                    let (message, lines) = (escaped(&test.differences.join("; ")), escaped(&lines.join("\n")));
                    let _ = writeln!(xml, "      <failure message=\"{message}\">{lines}</failure>");
                }
                if !test.notes.is_empty() {
                    let _ = writeln!(xml, "      <system-out>{}</system-out>", escaped(&test.notes.join("\n")));
                }
                xml.push_str("    </testcase>\n");
            }
            xml.push_str("  </testsuite>\n");
        }
        if errors > 0 {
            let _ = writeln!(
                xml,
                "  <testsuite name=\"problems\" tests=\"{errors}\" failures=\"0\" errors=\"{errors}\" time=\"0\">"
            );
            for problem in &self.problems {
                let (file, text) = (escaped(&problem.file), escaped(&problem.to_string()));
                let _ = writeln!(
                    xml,
                    "    <testcase name=\"{file}\" classname=\"problems\" time=\"0\">\n      <error \
                     message=\"{text}\"/>\n    </testcase>"
                );
            }
            xml.push_str("  </testsuite>\n");
        }
        xml.push_str("</testsuites>\n");
        xml
    }
}

/// Escapes text for an attribute or the content of an element. Characters that XML does not have are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // An attribute would have spaces in their place.
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            sign if sign.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            sign => escaped.push(sign),
        }
    }
    escaped
}

/// Maximum number of differences of two objects that are shown.
const MAX_DIFFERENCES: usize = 10;

/// Returns the differences of two JSON values, each with its path.
pub(super) fn json_differences(wanted: &Value, got: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    compare("", Some(wanted), Some(got), &mut differences);
    let more = differences.len().saturating_sub(MAX_DIFFERENCES);
    differences.truncate(MAX_DIFFERENCES);
    if more > 0 {
        differences.push(format!("and {}", counted(more, "more difference")));
    }
    differences
}

fn compare(path: &str, wanted: Option<&Value>, got: Option<&Value>, differences: &mut Vec<String>) {
    match (wanted, got) {
        (wanted, got) if wanted == got => {}
        (Some(Value::Object(wanted)), Some(Value::Object(got))) => {
            let new = got.keys().filter(|key| !wanted.contains_key(*key));
            for key in wanted.keys().chain(new) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(&path, wanted.get(key), got.get(key), differences);
            }
        }
        (Some(Value::Array(wanted)), Some(Value::Array(got))) => {
            for index in 0..wanted.len().max(got.len()) {
                compare(&format!("{path}[{index}]"), wanted.get(index), got.get(index), differences);
            }
        }
        (wanted, got) => {
            let shown = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
            differences.push(format!("result: {path} is {}, expected {}", shown(got), shown(wanted)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_of_objects_have_paths() {
        let (wanted, got) = (json!({"a": {"b": [1, 2]}, "c": 1}), json!({"a": {"b": [1, 3, 4]}, "d": 1}));
        let differences = [
            "result: a.b[1] is 3, expected 2",
            "result: a.b[2] is 4, expected absent",
            "result: c is absent, expected 1",
            "result: d is 1, expected absent",
        ];
        assert_eq!(json_differences(&wanted, &got), differences);
        assert!(json_differences(&wanted, &wanted).is_empty());
        let (long, longer) = (json!(vec![0; 20]), json!(vec![1; 20]));
        assert_eq!(json_differences(&long, &longer).len(), MAX_DIFFERENCES + 1);
    }

    #[test]
    fn xml_has_no_character_that_ends_it() {
        assert_eq!(escaped("<a href=\"b\">&\u{1b}\n"), "&lt;a href=&quot;b&quot;&gt;&amp;\u{fffd}&#10;");
    }

    #[test]
    fn report_without_tests_is_not_good() {
        assert!(!RunReport::default().is_good());
        assert_eq!(RunReport::default().written(ReportFormat::Text), "0 passed, 0 failed\n");
    }
}
