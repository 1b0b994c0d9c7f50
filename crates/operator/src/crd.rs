//! `crd`: prints the definitions that a cluster needs to store our configuration.

use gatepost_api::schema::definitions;

use super::command::{CommandExit, complain, print_whole, yaml};

const EXAMPLES: &str = "\
Examples:
  gatepost crd | kubectl apply -f -
  kubectl explain admissioncontrolconfigurations.externalAdmissionHooks
  kubectl get acc

Exit codes:
  0  printed
  1  not; stderr says why";

/// Print the CustomResourceDefinitions of Gatepost's own kinds
///
/// Prints AdmissionControlConfiguration and BreakGlass of gatepost.dev/v1alpha1 as YAML, with schemas and rules by
/// which an apiserver refuses most of what `gatepost check` would. Touches no cluster.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Crd {}

impl Crd {
    /// Prints the definitions.
    pub fn run(self) -> CommandExit {
        match text().and_then(print_whole) {
            Ok(()) => CommandExit::Good,
            Err(error) => complain(&error),
        }
    }
}

/// Returns both definitions, each as a document.
fn text() -> Result<String, String> {
    Ok(definitions().iter().map(yaml).collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_definitions_are_read_back_unchanged() {
        let printed: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text().unwrap()).unwrap();
        assert_eq!(printed, definitions());
    }
}
