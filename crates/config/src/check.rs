//! Checks documents, compiles them, and reports every problem.

pub(crate) mod break_glass;
pub(crate) mod bypass;
pub(crate) mod called_again;
pub(crate) mod client_config;
pub(crate) mod configuration;
pub(crate) mod custom_resources;
pub(crate) mod hook;
pub(crate) mod initializers;
pub(crate) mod names;
pub(crate) mod namespace;
pub(crate) mod never_matches;
pub(crate) mod policies;
pub(crate) mod rules;
pub(crate) mod selector;
pub(crate) mod url;
pub(crate) mod webhooks;

use std::{collections::HashSet, sync::Arc};

use self::configuration::Configuration;
use super::{
    NO_PAUSE, Note, Pause, Placed, ReadFile,
    document::{
        DocumentKind, Documents,
        node::{Node, ProblemReport, Value},
        problem::{Problem, quoted},
        unique_names::{UniqueNames, first_use},
    },
};
use gatepost_api::BreakGlass;
use gatepost_policy::{Binding, CustomSchema, Definition};

/// Content of the checked documents.
#[derive(Debug, Default)]
pub(crate) struct CheckedContent {
    /// Documents with hooks, initializers or bypasses, in the order written.
    pub(super) configurations: Vec<Arc<Configuration>>,
    pub(super) namespaces: Vec<namespace::Named>,
    /// Break-glass documents, each with its file and the path of its `hooks`.
    pub(super) break_glass_documents: Vec<(BreakGlass, (String, String))>,
    pub(super) policies: Vec<Placed<Definition>>,
    pub(super) bindings: Vec<Placed<Binding>>,
    /// Schemas of custom resources, one for each version.
    pub(super) schemas: Vec<Arc<CustomSchema>>,
    pub(super) notes: Vec<Note>,
}

/// Returns every problem within these files and between them.
pub(super) fn problems<'a>(files: impl Iterator<Item = (&'a str, &'a Documents)>, read: ReadFile<'_>) -> Vec<Problem> {
    let report = ProblemReport::default();
    let (mut checked, mut used) = (CheckedContent::default(), UniqueNames::default());
    files.for_each(|(name, documents)| checked.add(name, documents, read, &report, &mut used, NO_PAUSE));
    report.into_problems()
}

impl CheckedContent {
    /// Adds the documents of one file and reports their problems. Pauses before each document.
    pub(super) fn add(
        &mut self,
        file: &str,
        documents: &Documents,
        read: ReadFile<'_>,
        report: &ProblemReport,
        used: &mut UniqueNames,
        pause: Pause<'_>,
    ) {
        documents.report(file, report);
        used.unclear |= documents.is_incomplete();
        documents.each(file, report, |document, listed| {
            pause();
            let Some(kind) = kind_of(document, listed) else {
                used.unclear = true;
                return;
            };
            let metadata = document.key("metadata");
            let place = metadata.key("name");
            match place.value {
                Value::Text(name) => first_use(&mut used.objects, (kind, name.clone()), &place, kind.noun(), name),
                _ => used.unclear = true,
            }
            match kind {
                DocumentKind::Configuration => {
                    self.configurations.extend(configuration::check(document, read, used).map(Arc::new));
                }
                DocumentKind::Webhooks(_) if webhooks::is_our_own(document) => webhooks::refuse_our_own(document),
                DocumentKind::Webhooks(hook_type) => {
                    self.configurations.extend(webhooks::check(document, hook_type, read).map(Arc::new));
                }
                DocumentKind::BreakGlass => {
                    let break_glass = break_glass::check(document);
                    self.break_glass_documents
                        .extend(break_glass.map(|break_glass| (break_glass, document.key("hooks").place())));
                }
                DocumentKind::Namespace => self.namespaces.extend(namespace::check(document)),
                DocumentKind::Policy(hook_type) => self.policies.extend(policies::policy(document, hook_type)),
                DocumentKind::PolicyBinding(hook_type) => self.bindings.extend(policies::binding(document, hook_type)),
                DocumentKind::CustomResource => self.schemas.extend(custom_resources::check(document)),
            }
        });
    }

    /// Adds the content of other files.
    pub(super) fn join(&mut self, other: &Self) {
        self.configurations.extend_from_slice(&other.configurations);
        self.namespaces.extend_from_slice(&other.namespaces);
        self.break_glass_documents.extend_from_slice(&other.break_glass_documents);
        self.policies.extend_from_slice(&other.policies);
        self.bindings.extend_from_slice(&other.bindings);
        self.schemas.extend_from_slice(&other.schemas);
        self.notes.extend_from_slice(&other.notes);
    }

    /// Sorts the configurations, static ones first, then by name, and adds notes on names that no hook has.
    pub(super) fn finish(mut self) -> Self {
        self.configurations.sort_by(|a, b| (a.prefix.is_empty(), &a.name).cmp(&(b.prefix.is_empty(), &b.name)));
        self.notes.extend(names_of_no_hook(&self));
        self
    }
}

/// Returns a note for each name in a bypass or break-glass that no hook, initializer or policy has. The name may be a
/// mistake, or the hook may be added later.
fn names_of_no_hook(checked: &CheckedContent) -> Vec<Note> {
    let configurations = &checked.configurations;
    let bypasses = configurations.iter().flat_map(|configuration| &configuration.bypasses);
    let bypasses = bypasses.map(|(bypass, place)| ("bypass", &bypass.name, &bypass.hooks, place));
    let break_glass_documents = checked
        .break_glass_documents
        .iter()
        .map(|(break_glass, place)| ("break-glass", &break_glass.name, &break_glass.hooks, place));
    let naming: Vec<_> = bypasses.chain(break_glass_documents).filter(|(_, _, named, _)| !named.is_empty()).collect();
    if naming.is_empty() {
        return Vec::new();
    }
    let mut hooks: HashSet<&str> = configurations.iter().flat_map(|c| &c.hooks).map(|(hook, _)| &*hook.name).collect();
    // A bypass can name initializers and policies, too.
    let entries = configurations.iter().flat_map(|configuration| &configuration.initializers);
    hooks.extend(entries.flat_map(|entry| &entry.initializers).map(|one| &*one.name));
    hooks.extend(checked.policies.iter().map(|placed| &*placed.item.name));
    let mut notes = Vec::new();
    for (what, name, named, (file, path)) in naming {
        for hook in named.iter().filter(|hook| !hooks.contains(&***hook)) {
            notes.push(Note {
                file: file.clone(),
                path: path.clone(),
                what: format!("no hook, initializer or policy is called {}", quoted(hook)),
                why: format!("so the {what} {name} does nothing for it"),
                fix: "correct the name, or remove it where the hook is not to come".to_owned(),
            });
        }
    }
    notes
}

/// Returns the kind of a document. An item of a typed list may omit its kind, but must not have a different one.
fn kind_of(document: &Node<'_>, listed: Option<DocumentKind>) -> Option<DocumentKind> {
    let Some(kind) = listed else { return DocumentKind::of(document) };
    let states_kind = document.key("apiVersion").present() || document.key("kind").present();
    if states_kind && DocumentKind::of(document)? != kind {
        document.key("kind").problem(
            "is not what the list says its items are",
            "so one of them is wrong",
            "use a List of apiVersion v1",
        );
        return None;
    }
    Some(kind)
}

/// Checks one document, which must be one of Kubernetes' two webhook configurations.
pub(super) fn webhook_configuration(name: &str, document: &Value) -> Result<Configuration, Vec<Problem>> {
    let report = ProblemReport::default();
    let at = Node::document(document, name, None, &report);
    let no_file: ReadFile<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
    let configuration = match DocumentKind::of(&at) {
        Some(DocumentKind::Webhooks(hook_type)) => webhooks::check(&at, hook_type, no_file),
        Some(_) => {
            at.key("kind").problem(
                "is not a webhook configuration",
                "and only such are read here",
                "write ValidatingWebhookConfiguration",
            );
            None
        }
        None => None,
    };
    match (report.into_problems(), configuration) {
        (none, Some(configuration)) if none.is_empty() => Ok(configuration),
        (problems, _) => Err(problems),
    }
}
