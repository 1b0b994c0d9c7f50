//! `policy new`: writes a policy, its binding and its test from a template.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use clap::builder::PossibleValuesParser;
use gatepost_api::names::is_dns_subdomain;
use gatepost_operator::command::{CommandExit, finish};

use super::catalogue::{TEMPLATES, Template};

const EXAMPLES: &str = "\
Examples:
  gatepost policy new --list
  gatepost policy new pinned-images --from no-latest-tag
      Writes pinned-images/policy.yaml and its test; try it by `gatepost policy test pinned-images`.
  gatepost policy new pinned-images --from no-latest-tag policies/images

Exit codes:
  0  written, or listed
  1  nothing was written; stderr says what to do";

/// Write a policy, its binding and its test from a template
///
/// The files have comments that explain them, and the test passes as it is: change the policy, and run the test again
/// with `gatepost policy test`. No file is overwritten.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct PolicyNewArgs {
    /// Name of the new policy
    #[arg(required_unless_present = "list")]
    name: Option<String>,

    /// Folder to write to; created if it does not exist [default: NAME]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Template to begin with
    #[arg(long, value_name = "TEMPLATE", required_unless_present = "list", value_parser = template_names())]
    from: Option<String>,

    /// List the templates
    #[arg(long, conflicts_with_all = ["name", "from"])]
    list: bool,
}

fn template_names() -> PossibleValuesParser {
    PossibleValuesParser::new(TEMPLATES.iter().map(|template| template.name))
}

impl PolicyNewArgs {
    /// Writes the files, or lists the templates.
    pub(super) fn run(self) -> CommandExit {
        finish(self.output().map(|text| (text, CommandExit::Good)))
    }

    fn output(self) -> Result<String, String> {
        let (Some(name), Some(template)) = (&self.name, self.from.as_deref().and_then(Template::find)) else {
            return Ok(listing());
        };
        if !is_dns_subdomain(name) {
            return Err(format!(
                "{name:?} is not a name, so no apiserver would accept the policy; write lower-case letters, digits \
                 and -, at most 253"
            ));
        }
        let folder = self.folder.unwrap_or_else(|| PathBuf::from(name));
        write(&folder, name, template)
    }
}

/// Returns the templates, each with its sentence.
fn listing() -> String {
    let width = TEMPLATES.iter().map(|template| template.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for template in TEMPLATES {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {}", template.name, template.sentence());
    }
    text
}

/// Writes the files of a template. Writes none if one of them exists.
fn write(folder: &Path, name: &str, template: Template) -> Result<String, String> {
    let existing =
        template.files.iter().map(|(file, _)| folder.join(file)).find(|path| path.symlink_metadata().is_ok());
    if let Some(path) = existing {
        let path = path.display();
        return Err(format!("{path} exists, and is not overwritten; remove it, or name another folder"));
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}; name another folder", folder.display()))?;
    let mut text = String::new();
    for (file, content) in template.renamed(name) {
        let path = folder.join(file);
        let written = OpenOptions::new().write(true).create_new(true).open(&path);
        written
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .map_err(|error| format!("{}: {error}; the files before it are written", path.display()))?;
        let _ = writeln!(text, "wrote {}", path.display());
    }
    let _ = writeln!(text, "test it: gatepost policy test {}", folder.display());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_objects() {
        for name in ["a", "a-1", "a.b", "1"] {
            assert!(is_dns_subdomain(name), "{name}");
        }
        let long = "a".repeat(254);
        for name in ["", "A", "a_b", "-a", "a-", "a..b", "a/b", "..", &long] {
            assert!(!is_dns_subdomain(name), "{name}");
        }
    }
}
