//! Notes on mutating hooks with `reinvocationPolicy: IfNeeded` that make an apiserver call hooks with `Never` again,
//! too, and on hooks whose side effects affect dry runs.
//!
//! If a later admission plugin or webhook changes the object, the apiserver calls the webhook of a whole segment again.
//! The review does not state that it is the second one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    Note, Origin,
    coverage::{Atom, atoms_of},
};
use gatepost_api::{FailurePolicy, Hook, Operation, Reinvocation, SideEffects};

const WHY: &str = "so these are called again, too, where something behind Gatepost changes the object";

const FIX: &str = "unless they are safe to call again, write isolate: true on the hooks with IfNeeded, or on those with \
                   Never where these are fewer, and register again (in a MutatingWebhookConfiguration it is the annotation \
                   gatepost.dev/isolate: \"true\")";

/// Maximum number of reinvoked hooks that a note names.
const MAX_NAMED_HOOKS: usize = 3;

/// Maximum number of comparisons for one configuration, to bound the time to milliseconds. Later hooks get no note.
const MAX_COMPARISONS: usize = 20_000;

/// Returns notes on these hooks, in order. `mutating` has the numbers of the mutating hooks, each with its segment.
pub(crate) fn notes(hooks: &[Arc<Hook>], origins: &[Arc<Origin>], mutating: &[(u32, u32)]) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut left = MAX_COMPARISONS;
    for segment in mutating.chunk_by(|(_, one), (_, other)| one == other) {
        let numbers = segment.iter().map(|(number, _)| *number as usize);
        let (again, once): (Vec<usize>, Vec<usize>) =
            numbers.partition(|number| hooks[*number].reinvocation == Reinvocation::IfNeeded);
        if again.is_empty() || once.is_empty() {
            continue;
        }
        let once = ByResource::of(hooks, &once);
        for number in again {
            let others = once.sharing_requests_with(&hooks[number], &mut left);
            if others.is_empty() {
                continue;
            }
            let Origin { file, path, .. } = &*origins[number];
            notes.push(Note {
                file: file.clone(),
                path: path.clone(),
                what: format!(
                    "hook {:?} has reinvocationPolicy: IfNeeded in one segment with {}, with Never and some of the same \
                     requests",
                    hooks[number].name,
                    names_and_count(others.iter().map(|other| &*hooks[*other].name)),
                ),
                why: WHY.to_owned(),
                fix: FIX.to_owned(),
            });
        }
    }
    notes
}

/// Joins names to `"a", "b", "c" and 2 more`.
fn names_and_count<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(MAX_NAMED_HOOKS);
    let named: Vec<_> = names.take(MAX_NAMED_HOOKS).map(|name| format!("{name:?}")).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

/// Atoms of hooks, each with the hook's number, by resource without subresource.
struct ByResource(BTreeMap<Box<str>, Vec<(Atom, usize)>>);

impl ByResource {
    fn of(hooks: &[Arc<Hook>], numbers: &[usize]) -> Self {
        let mut by_resource: BTreeMap<Box<str>, Vec<(Atom, usize)>> = BTreeMap::new();
        for number in numbers {
            for atom in changeable(&hooks[*number]) {
                by_resource.entry(atom.resource().0.into()).or_default().push((atom, *number));
            }
        }
        Self(by_resource)
    }

    /// Returns the numbers of the hooks that match some request that `hook` matches. Counts `left` down per comparison,
    /// and stops at 0.
    fn sharing_requests_with(&self, hook: &Hook, left: &mut usize) -> BTreeSet<usize> {
        let mut numbers = BTreeSet::new();
        if *left == 0 {
            return numbers;
        }
        for atom in changeable(hook) {
            let (all, named) = match atom.resource().0 {
                "*" => (Some(self.0.values()), None),
                resource => (None, Some([resource, "*"].into_iter().filter_map(|resource| self.0.get(resource)))),
            };
            let others = all.into_iter().flatten().chain(named.into_iter().flatten()).flatten();
            let compared = others.take(*left).inspect(|_| *left -= 1);
            let shared = compared.filter(|(other, _)| atom.overlaps(other) || atom.shares_objects_with(other));
            numbers.extend(shared.map(|(_, number)| *number));
        }
        numbers
    }
}

/// Returns the atoms of the hook without DELETE: a deleted object does not change, so it is reviewed only once.
fn changeable(hook: &Hook) -> impl Iterator<Item = Atom> {
    atoms_of(hook).into_iter().filter_map(|mut atom| {
        atom.operations.remove(Operation::Delete.as_str());
        (!atom.operations.is_empty()).then_some(atom)
    })
}

const DRY_RUN_TOOLS: &str = "kubectl diff, kubectl apply --dry-run=server, and GitOps tools that compare so, such as Argo CD \
                      and Flux";

const DRY_RUN_FIX: &str =
    "write sideEffects: None if a call changes nothing, or NoneOnDryRun if it changes nothing in a dry run";

/// Returns a note for each hook that enforces and whose declared side effects affect dry runs, in order.
pub(crate) fn dry_run_notes(hooks: &[Arc<Hook>], origins: &[Arc<Origin>]) -> Vec<Note> {
    let noted = |(hook, origin): (&Arc<Hook>, &Arc<Origin>)| {
        let (fault, effect) = consequence(hook)?;
        Some(Note {
            file: origin.file.clone(),
            path: origin.path.clone(),
            what: format!("hook {:?} {fault}", hook.name),
            why: format!("so dry runs of what it wants to see {effect} ({DRY_RUN_TOOLS})"),
            fix: DRY_RUN_FIX.to_owned(),
        })
    };
    hooks.iter().zip(origins).filter_map(noted).collect()
}

fn consequence(hook: &Hook) -> Option<(String, &'static str)> {
    let declared = hook.side_effects;
    if !hook.enforcement.denies() {
        return None;
    }
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
    use std::fmt::Write as _;

    use crate::{SourceFile, load};

    const PODS: &str = "operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]";

    const NEVER: &str = "sideEffects: None";

    const IF_NEEDED: &str = "sideEffects: None, reinvocationPolicy: IfNeeded";

    const APART: &str = "sideEffects: None, reinvocationPolicy: IfNeeded, isolate: true";

    /// Notes on hooks with these rules, of which each has these settings.
    fn notes(hooks: &[(&str, &str)]) -> Vec<String> {
        let mut text = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {name: a}\n\
                        externalAdmissionHooks:\n"
            .to_owned();
        for (n, (rule, more)) in hooks.iter().enumerate() {
            let _ = writeln!(
                text,
                "- {{name: h{n}.example.com, type: Mutating, clientConfig: {{url: 'grpc://127.0.0.1:1'}}, \
                 rules: [{{{rule}}}], {more}}}"
            );
        }
        let file = SourceFile { name: "a.yaml".into(), bytes: text.into() };
        let snapshot = load(&[file], &|_| Err(std::io::ErrorKind::NotFound.into())).expect("good");
        snapshot.called_again().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_hook_that_is_called_again_with_another_is_named_with_what_to_do() {
        let notes = notes(&[(PODS, NEVER), (PODS, IF_NEEDED), (PODS, NEVER), (PODS, NEVER), (PODS, NEVER)]);
        let [note] = &*notes else { panic!("{notes:?}") };
        assert!(note.contains("a.yaml: externalAdmissionHooks[1]: hook \"h1.example.com\" has"), "{note}");
        assert!(
            note.contains("with \"h0.example.com\", \"h2.example.com\", \"h3.example.com\" and 1 more, with"),
            "{note}"
        );
        assert!(note.contains("write isolate: true"), "{note}");
    }

    #[test]
    fn hooks_of_which_none_is_called_again_for_another_are_not_noted() {
        let other = |from: &str, to: &str| PODS.replace(from, to);
        for hooks in [
            vec![(PODS, NEVER), (PODS, NEVER)],
            vec![(PODS, IF_NEEDED), (PODS, IF_NEEDED)],
            vec![(PODS, NEVER), (PODS, APART), (PODS, NEVER)],
            vec![(&*other("pods", "services"), NEVER), (PODS, IF_NEEDED)],
            vec![(&*other("pods", "pods/status"), NEVER), (PODS, IF_NEEDED)],
            vec![(&*other("''", "example.com"), NEVER), (PODS, IF_NEEDED)],
            vec![(&*other("CREATE", "UPDATE"), NEVER), (PODS, IF_NEEDED)],
            vec![(&*other("CREATE", "DELETE"), NEVER), (&*other("CREATE", "UPDATE, DELETE"), IF_NEEDED)],
        ] {
            assert_eq!(notes(&hooks), Vec::<String>::new(), "{hooks:?}");
        }
    }

    #[test]
    fn so_many_rules_are_compared_and_no_more() {
        let updates = PODS.replace("CREATE", "UPDATE");
        let many = |number, hook| std::iter::repeat_n(hook, number);
        let hooks: Vec<_> = many(200, (&*updates, NEVER)).chain(many(200, (PODS, IF_NEEDED))).collect();
        let compared_first = [&hooks[..], &[(PODS, NEVER)]].concat();
        assert!((1..200).contains(&notes(&compared_first).len()));
    }

    #[test]
    fn rules_that_differ_and_mean_one_request_are_noted() {
        let other = |from: &str, to: &str| PODS.replace(from, to);
        for (never, if_needed) in [
            (&*other("pods", "'*'"), PODS),
            (PODS, &*other("pods", "'*'")),
            (&*other("[pods]", "[services, pods]"), PODS),
            (&*other("''", "'*'"), PODS),
            (&*other("CREATE", "'*'"), PODS),
        ] {
            let notes = notes(&[(if_needed, IF_NEEDED), (never, NEVER)]);
            assert!(notes.len() == 1 && notes[0].contains("h1.example.com"), "{never} {if_needed}: {notes:?}");
        }
    }

    #[test]
    fn a_hook_that_no_dry_run_reaches_is_noted_with_what_comes_of_it() {
        for (more, fault) in [
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
            assert_eq!(notes.len(), usize::from(fault.is_some()), "{more}: {notes:?}");
            if let Some(fault) = fault {
                assert!(notes[0].contains("externalAdmissionHooks[0]: hook \"h.example.com\""), "{notes:?}");
                assert!(notes[0].contains(fault), "{more}: {notes:?}");
            }
        }
    }
}
