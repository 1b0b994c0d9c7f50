//! Dry runs: notes on hooks that no dry run may reach, since a call may change something in the world.

use std::sync::Arc;

use crate::{
    model::{FailurePolicy, Hook, SideEffects},
    snapshot::{Note, Origin},
};

const MAKERS: &str = "kubectl diff, kubectl apply --dry-run=server, and GitOps tools that compare so, such as Argo CD \
                      and Flux";

const FIX: &str =
    "write sideEffects: None if a call changes nothing, or NoneOnDryRun if it changes nothing in a dry run";

/// Consequences for dry runs, hook by hook in their order.
pub(crate) fn notes(hooks: &[Arc<Hook>], origins: &[Arc<Origin>]) -> Vec<Note> {
    let noted = |(hook, origin): (&Arc<Hook>, &Arc<Origin>)| {
        let (says, comes_of_it) = consequence(hook)?;
        Some(Note {
            file: origin.file.clone(),
            path: origin.path.clone(),
            what: format!("hook {:?} {says}", hook.name),
            why: format!("so dry runs of what it wants to see {comes_of_it} ({MAKERS})"),
            fix: FIX.to_owned(),
        })
    };
    hooks.iter().zip(origins).filter_map(noted).collect()
}

fn consequence(hook: &Hook) -> Option<(String, &'static str)> {
    let declared = hook.side_effects;
    Some(match declared {
        SideEffects::None | SideEffects::NoneOnDryRun => return None,
        SideEffects::Undeclared if hook.failure_policy == FailurePolicy::Ignore => {
            ("does not declare sideEffects".to_owned(), "pass it unseen")
        }
        SideEffects::Undeclared => ("does not declare sideEffects".to_owned(), "are refused"),
        SideEffects::Some | SideEffects::Unknown => {
            (format!("declares sideEffects: {}", declared.as_str()), "are refused, whatever its failurePolicy")
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::snapshot::{SourceFile, load};

    #[test]
    fn a_hook_that_no_dry_run_reaches_is_noted_with_what_comes_of_it() {
        for (more, says) in [
            ("", Some("does not declare sideEffects, so dry runs of what it wants to see are refused (kubectl diff")),
            ("failurePolicy: Ignore", Some("wants to see pass it unseen")),
            (
                "sideEffects: Some",
                Some("declares sideEffects: Some, so dry runs of what it wants to see are refused, whatever"),
            ),
            ("sideEffects: Unknown", Some("declares sideEffects: Unknown")),
            ("sideEffects: None", None),
            ("sideEffects: NoneOnDryRun", None),
        ] {
            let text = format!(
                "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: a}}\n\
                 externalAdmissionHooks:\n- name: h.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  \
                 rules: []\n  {more}\n"
            );
            let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
            let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("good");
            let notes: Vec<_> = snapshot.notes().iter().map(ToString::to_string).collect();
            assert_eq!(notes.len(), usize::from(says.is_some()), "{more}: {notes:?}");
            if let Some(says) = says {
                assert!(notes[0].contains("externalAdmissionHooks[0]: hook \"h.example.com\""), "{notes:?}");
                assert!(notes[0].contains(says), "{more}: {notes:?}");
            }
        }
    }
}
