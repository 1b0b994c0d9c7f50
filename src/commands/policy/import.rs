//! `policy import`: translates policies of Kyverno and Gatekeeper into admission policies of Kubernetes.

use std::path::PathBuf;

use gatepost_operator::command::{CommandExit, complain, finish, yaml};
use serde_json::Value;

use super::{
    cluster::text_at,
    document::{Field, Problems, documents, file_problem, files_below, read_text},
    gatekeeper::{self, Purpose, is_constraint, is_template},
    translate::{is_kyverno_policy, translation},
};

const EXAMPLES: &str = "\
Examples:
  gatepost policy import kyverno/ > policies.yaml && gatepost check policies.yaml
  gatepost policy test kyverno/            # runs their kyverno-test.yaml on the same translation
  gatepost policy import template.yaml constraint.yaml > policies.yaml

Translated are ValidatingPolicy and MutatingPolicy of policies.kyverno.io, and the namespaced ones,
where their expressions are plain CEL. Of Gatekeeper, each constraint with its ConstraintTemplate,
if that is in CEL. A ClusterPolicy has no counterpart in CEL, and neither has a template in Rego.

Exit codes:
  0  every policy is on stdout, with its binding; comments say what was left out
  1  some policies are not translated: stderr says which and why. The others are on stdout";

/// Translate policies of Kyverno and Gatekeeper into admission policies of Kubernetes
///
/// Prints a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy, with a binding, for each policy and constraint. What
/// has no counterpart (Rego, Kyverno's own functions in expressions, images, mode JSON, existing objects) is a problem
/// with its path.
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
        let mut of_gatekeeper = Vec::new();
        for path in &self.paths {
            let before = (output.len(), problems.len(), of_gatekeeper.len());
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
                    if is_template(document) || is_constraint(document) {
                        let (file, document) = (file.clone(), document.clone());
                        of_gatekeeper.push(GatekeeperDocument { file, index: has_several.then_some(index), document });
                        continue;
                    }
                    if !is_kyverno_policy(document) {
                        report_engine(&field);
                        continue;
                    }
                    let Some(translation) = translation(&field) else { continue };
                    let title = one_line(&format!("{} of {file}", translation.name));
                    write(&mut output, &title, &translation.notes, &translation.documents)?;
                }
            }
            if before == (output.len(), problems.len(), of_gatekeeper.len()) {
                let (file, fix) = (path.display().to_string(), "name the file of one, or leave others where they are");
                let what = "has no policy of policies.kyverno.io, and no constraint of Gatekeeper";
                problems.add(file_problem(&file, what, "so nothing is translated", fix));
            }
        }
        translate_constraints(&of_gatekeeper, problems, &mut output)?;
        Ok(output)
    }
}

/// Returns a text for a comment, which ends with its line: a name must not add documents to the output.
fn one_line(text: &str) -> String {
    text.replace(|letter: char| letter.is_control() || matches!(letter, '\u{85}' | '\u{2028}' | '\u{2029}'), " ")
}

/// Adds translated documents, after a comment with their title and the omitted parts.
fn write(output: &mut String, title: &str, notes: &[String], documents: &[Value]) -> Result<(), String> {
    for (index, document) in documents.iter().enumerate() {
        output.push_str("---\n");
        if index == 0 {
            output.push_str(&format!("# {title}\n"));
            output.extend(notes.iter().map(|note| format!("# {note}\n")));
        }
        output.push_str(&yaml(document)?);
    }
    Ok(())
}

/// A document of Gatekeeper, with its place.
struct GatekeeperDocument {
    file: String,
    index: Option<usize>,
    document: Value,
}

impl GatekeeperDocument {
    fn field<'a>(&'a self, problems: &'a Problems) -> Field<'a> {
        Field::document(&self.document, &self.file, self.index, problems)
    }
}

/// Translates the constraints among these documents by the templates among them, which may be in other files.
fn translate_constraints(all: &[GatekeeperDocument], problems: &Problems, output: &mut String) -> Result<(), String> {
    let (templates, constraints): (Vec<_>, Vec<_>) = all.iter().partition(|one| is_template(&one.document));
    let of_kind = |kind: &str| {
        let mut own = constraints.iter().filter(move |one| one.document["kind"] == kind);
        own.next().is_some()
    };
    for one in &templates {
        let field = one.field(problems);
        let Some(template) = gatekeeper::template(&field) else { continue };
        if !of_kind(template.kind) {
            let fix =
                format!("name the file of a constraint, too, as `kubectl get {} -o yaml` prints it", template.kind);
            field.problem("has no constraint among these files", "so it decides nothing", fix);
        }
        for constraint in constraints.iter().filter(|one| one.document["kind"] == template.kind) {
            let field = constraint.field(problems);
            let Some(own) = gatekeeper::translation(&template, &field, Purpose::Serve) else { continue };
            if !own.matches_original {
                let fix = "write a rule for what generates them";
                field.problem("matches generated objects only", "which no request has before they exist", fix);
                continue;
            }
            let name = text_at(field.value, "/metadata/name");
            let title = one_line(&format!("{} {name} of {}", template.kind, constraint.file));
            match own.is_enforced {
                true => write(output, &title, &[], &own.documents)?,
                false => output.push_str(&format!("# {title} is left out: none of its actions is for admission\n")),
            }
        }
    }
    let kind_of = |one: &&GatekeeperDocument| text_at(&one.document, "/spec/crd/spec/names/kind").to_owned();
    let kinds: Vec<_> = templates.iter().map(kind_of).collect();
    for constraint in constraints.iter().filter(|one| !kinds.iter().any(|kind| one.document["kind"] == *kind)) {
        let fix = "name the file of its ConstraintTemplate, too";
        constraint.field(problems).problem("has no template among these files", "so its rule is not known", fix);
    }
    Ok(())
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
