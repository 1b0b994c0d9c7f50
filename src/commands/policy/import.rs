//! `policy import`: translates policies of Kyverno into admission policies of Kubernetes.

use std::path::PathBuf;

use gatepost_operator::command::{CommandExit, complain, finish, yaml};
use serde_json::Value;

use super::{
    document::{Field, Problems, documents, file_problem, files_below, read_text},
    translate::{is_kyverno_policy, translation},
};

const EXAMPLES: &str = "\
Examples:
  gatepost policy import kyverno/ > policies.yaml && gatepost check policies.yaml
  gatepost policy test kyverno/            # runs their kyverno-test.yaml on the same translation

Translated are ValidatingPolicy and MutatingPolicy of policies.kyverno.io, and the namespaced ones,
where their expressions are plain CEL. A ClusterPolicy has no counterpart in CEL, and neither has a
ConstraintTemplate in Rego.

Exit codes:
  0  every policy is on stdout, with its binding; comments say what was left out
  1  some policies are not translated: stderr says which and why. The others are on stdout";

/// Translate policies of Kyverno into admission policies of Kubernetes
///
/// Prints a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy, with a binding, for each policy. What has no
/// counterpart (Kyverno's own functions in expressions, images, mode JSON, existing objects) is a problem with its path.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct PolicyImportArgs {
    /// Files with policies; or folders, with the folders in them
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

impl PolicyImportArgs {
    /// Prints the translated policies, and then the problems.
    pub(super) fn run(&self) -> CommandExit {
        let problems = Problems::default();
        let text = match self.translated(&problems) {
            Ok(text) => text,
            Err(error) => return complain(&error),
        };
        let problems = problems.into_vec();
        for problem in &problems {
            complain(problem);
        }
        let exit = if problems.is_empty() { CommandExit::Good } else { CommandExit::Failed };
        finish(Ok::<_, String>((text, exit)))
    }

    fn translated(&self, problems: &Problems) -> Result<String, String> {
        let mut output = String::new();
        for path in &self.paths {
            let before = (output.len(), problems.len());
            let files = if path.is_dir() { files_below(path, true, problems) } else { vec![path.clone()] };
            for path in files {
                let file = path.display().to_string();
                let all = read_text(&path).and_then(|text| documents(&file, &text));
                let all = all.unwrap_or_else(|problem| {
                    problems.add(problem);
                    Vec::new()
                });
                let all: Vec<_> = all.into_iter().flat_map(unlisted).collect();
                let has_several = all.len() > 1;
                for (index, document) in all.iter().enumerate() {
                    let field = Field::document(document, &file, has_several.then_some(index), problems);
                    if !is_kyverno_policy(document) {
                        report_engine(&field);
                        continue;
                    }
                    let Some(translation) = translation(&field) else { continue };
                    for (index, document) in translation.documents.iter().enumerate() {
                        output.push_str("---\n");
                        if index == 0 {
                            let notes = translation.notes.iter().map(|note| format!("# {note}\n"));
                            output.push_str(&format!("# {} of {file}\n", translation.name));
                            output.extend(notes);
                        }
                        output.push_str(&yaml(document)?);
                    }
                }
            }
            if before == (output.len(), problems.len()) {
                let (file, fix) = (path.display().to_string(), "name the file of one, or leave others in Kyverno");
                let what = "has no policy of policies.kyverno.io";
                problems.add(file_problem(&file, what, "so nothing is translated", fix));
            }
        }
        Ok(output)
    }
}

/// Returns the items of a list that kubectl has printed, or the document itself.
fn unlisted(mut document: Value) -> Vec<Value> {
    let is_list = document["kind"] == "List";
    match document.get_mut("items").filter(|_| is_list).map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => vec![document],
    }
}

/// Reports policies of other engines. Tests and objects are passed over.
fn report_engine(field: &Field<'_>) {
    let api_version = field.value["apiVersion"].as_str().unwrap_or_default();
    if api_version.starts_with("kyverno.io/") || api_version.contains(".gatekeeper.sh/") {
        field.problem(
            format!("is a {} of {api_version}", field.value["kind"].as_str().unwrap_or("document")),
            "which is not translated",
            "leave it where it is enforced, or write its rule with `gatepost policy new`",
        );
    }
}
