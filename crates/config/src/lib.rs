//! Configuration: documents as people write them, checked whole and compiled into a [`Snapshot`], which requests use
//! without a lock.
//!
//! The source's files go in as bytes ([`SourceFile`]); either a [`Snapshot`] comes out, or every [`Problem`] at once,
//! each with its file, its path in the document and how to fix it. Nothing here opens a file (the caller lends
//! [`ReadFile`] for the certificates a configuration names), reads a clock or logs.
//!
//! The way in, one file a step: `document` (bytes to values, each key kept) → `check` (values to what they mean, by
//! hand, because a decoder would stop at the first problem) → `matcher` (rules to an index). Compiling cannot fail;
//! all that could is a problem that the check reports.
//!
//! Hooks are numbered as upstream orders them (`docs/reference/webhook-semantics.md` §3): those of static
//! configurations first, then by the name of their configuration, byte by byte, and then by their order in it. The keys
//! people may write are in `docs/configuration.md`.

pub(crate) mod check;
pub mod coverage;
#[cfg(test)]
mod definitions_tests;
mod describe;
mod document;
pub mod hazards;
mod matcher;
mod reload;

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use self::{
    check::{Checked, names::Identities},
    document::{
        Dialect,
        node::{Node, ProblemReport, Value},
    },
    matcher::{Matcher, PreviousIndex},
};
pub use self::{
    check::{
        break_glass::break_glass,
        names::is_dns_label,
        namespace::NAME_LABEL,
        url::{UrlProblem, parse_url},
        webhooks::{CALL_AT_ONCE, ENTRY_STATES, NOT_STATIC, STATIC, is_misspelt},
    },
    describe::describe_protocol,
    document::problem::{Note, Problem, nearest_words},
    matcher::{HookSet, How, Matched, WantedVersion},
    reload::{
        checked_file::{CheckedFile, HeldBackDocument, LastGoodDocuments},
        load_cache::{LoadCache, Loaded, RefusedFiles},
        relaxation::Relaxation,
    },
};
pub use gatepost_api::exempt::Eligibility;
use gatepost_api::{
    Bypass, FailurePolicy, Hook, HookType, Labels, ResourceInitializers, Review, Rollout, Selector, Served,
    exempt::eligibility, registration::Segment,
};
use gatepost_cel::Condition;

/// One file of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Name relative to the source; problems speak of it. One that ends in `.json` is read as JSON, one that ends in
    /// `.yaml` or `.yml` as YAML, any other as what it is.
    pub name: String,
    /// The content.
    pub bytes: Bytes,
}

/// Reads a file that the configuration refers to, its path as written there.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> std::io::Result<Vec<u8>>;

/// Called between two steps of what takes long, so that whoever shares a core with others may let them go first.
pub type Pause<'a> = &'a dyn Fn();

/// For whoever has a core to itself.
pub const NO_PAUSE: Pause<'static> = &|| ();

/// Origin of a hook, and the parts of its entry that the hook itself does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The name of the configuration that holds it.
    pub configuration: Arc<str>,
    /// The failure policy as written. The hook's own is `Ignore` while it is being rolled out.
    pub declared_policy: FailurePolicy,
    /// True while `rollout.createAs: Ignore` stands in the entry.
    pub rolling_out: bool,
    /// Bound on the time that it may go unproven, and the effect of passing it.
    pub rollout: Rollout,
    /// Conditions that a request must meet before the hook is asked.
    pub conditions: Arc<[Condition]>,
    /// Word for the state that its entry is in, by [`ENTRY_STATES`].
    pub state: Option<Box<str>>,
    /// The file it stands in, named as the source names it.
    pub file: String,
    /// Its place there, as in a [`Problem`].
    pub path: String,
}

/// A configuration that was checked and compiled. It does not change; a new one takes its place.
#[derive(Debug)]
pub struct Snapshot {
    /// Every hook, in order.
    pub hooks: Vec<Arc<Hook>>,
    origins: Vec<Arc<Origin>>,
    matcher: Matcher,
    namespaces: HashMap<Arc<str>, Arc<Labels>>,
    initializers: Vec<ResourceInitializers>,
    /// File and place of each of them, in the same order.
    initializer_places: Vec<Vec<(String, String)>>,
    /// Their places in this list, by resource.
    initialized: HashMap<Box<str>, Vec<usize>>,
    bypasses: Vec<Arc<Bypass>>,
    /// Is any hook asked about the configuration of admission?
    static_hooks: bool,
    /// Does any hook validate?
    validates: bool,
    /// Numbers of the mutating hooks, in order, each with that of its segment.
    mutating: Vec<(u32, u32)>,
    notes: Vec<Note>,
    findings: Vec<hazards::Finding>,
}

/// Checks the files and compiles what they say. No file at all is a configuration without hooks.
///
/// # Errors
/// Every problem that there is, in the order of the files and of what is written in them.
pub fn load(files: &[SourceFile], read: ReadFile<'_>) -> Result<Snapshot, Vec<Problem>> {
    LoadCache::default().load(files, read, NO_PAUSE)
}

/// Checks and compiles one `LabelSelector` as kube-apiserver does; `null` matches everything. `name` is what problems
/// call it.
///
/// # Errors
/// Every problem that there is.
pub fn checked_selector(name: &str, selector: &serde_json::Value) -> Result<Selector, Vec<Problem>> {
    let (value, report) = (Value::from(selector), ProblemReport::default());
    let compiled = check::selector::check(&Node::document(&value, name, None, &report), Dialect::Kubernetes);
    match report.into_problems() {
        none if none.is_empty() => Ok(compiled),
        problems => Err(problems),
    }
}

/// Checks one of Kubernetes' two webhook configurations exactly as kube-apiserver does on creation, but for CEL, which
/// is not evaluated here. `name` is what problems call the document.
///
/// # Errors
/// Every problem that there is.
pub fn checked_webhook_configuration(name: &str, document: &serde_json::Value) -> Result<Vec<Hook>, Vec<Problem>> {
    let configuration = check::webhook_configuration(name, &Value::from(document))?;
    Ok(configuration.hooks.into_iter().map(|(hook, _)| Arc::unwrap_or_clone(hook)).collect())
}

/// The mutating hooks, each with the number of its segment.
fn in_segments(hooks: &[Arc<Hook>]) -> Vec<(u32, u32)> {
    let (mut segment, mut is_open) = (0, false);
    let mutating = (0..).zip(hooks).filter(|(_, hook)| hook.hook_type == HookType::Mutating);
    let place = |(index, hook): (u32, &Arc<Hook>)| {
        segment += u32::from(hook.isolated || !is_open);
        is_open = !hook.isolated;
        (index, segment)
    };
    mutating.map(place).collect()
}

impl Snapshot {
    /// A configuration without hooks.
    pub fn empty() -> Self {
        Self::compile(Checked::default(), &PreviousIndex::default(), NO_PAUSE)
    }

    /// Rules are filed sooner where they were among the former ones.
    fn compile(checked: Checked, former: &PreviousIndex, pause: Pause<'_>) -> Self {
        let checked = checked.finished();
        let (mut hooks, mut origins, mut bypasses) = (Vec::new(), Vec::new(), Vec::new());
        let (mut initializers, mut initializer_places) = (Vec::new(), Vec::new());
        // Configurations of two kinds may share a name; their hooks are then counted together.
        for namesakes in checked.configurations.chunk_by(|a, b| (a.prefix, &a.name) == (b.prefix, &b.name)) {
            let mut identities = Identities::default();
            for configuration in namesakes {
                for (hook, origin) in &configuration.hooks {
                    hooks.push(match namesakes {
                        [_] => Arc::clone(hook),
                        _ => {
                            let id = identities.next(configuration.prefix, &configuration.name, &hook.name);
                            Arc::new(Hook { id, ..Hook::clone(hook) })
                        }
                    });
                    origins.push(Arc::clone(origin));
                }
                pause();
                initializers.extend_from_slice(&configuration.initializers);
                initializer_places.extend_from_slice(&configuration.initializer_places);
                bypasses.extend(configuration.bypasses.iter().map(|(bypass, _)| Arc::clone(bypass)));
            }
        }
        let mut initialized = HashMap::<Box<str>, Vec<usize>>::default();
        for (at, ResourceInitializers { resource, .. }) in initializers.iter().enumerate() {
            initialized.entry(resource.clone()).or_default().push(at);
        }
        let matcher = Matcher::after(former, &hooks);
        pause();
        let mut notes = checked.notes;
        notes.extend(check::rules::notes(&hooks, &origins));
        notes.extend(check::called_again::dry_run_notes(&hooks, &origins));
        Self {
            matcher,
            static_hooks: hooks.iter().any(|hook| hook.sees_admission_config),
            validates: hooks.iter().any(|hook| hook.hook_type == HookType::Validating),
            mutating: in_segments(&hooks),
            hooks,
            origins,
            namespaces: checked.namespaces.into_iter().collect(),
            initializers,
            initializer_places,
            initialized,
            bypasses,
            notes,
            findings: Vec::new(),
        }
    }

    /// Puts the hooks that mean this request into `out`, ascending and each once, in place of what `out` held: those
    /// with a rule for it, and those that would have one in another version. Hooks are not asked about some things
    /// at all (`docs/reference/webhook-semantics.md` §2). Allocates nothing up to 32 matches. Selectors are not looked
    /// at: they need labels.
    pub fn matching(&self, review: &Review, out: &mut HookSet) {
        self.matching_where(review, None, out);
    }

    /// The same, where it is known in which versions an apiserver serves what.
    pub fn matching_where(&self, review: &Review, served: Option<&Served>, out: &mut HookSet) {
        self.matcher.matching(&self.hooks, review, served, out);
    }

    /// Is there any hook of that type?
    pub fn has(&self, hook_type: HookType) -> bool {
        match hook_type {
            HookType::Validating => self.validates,
            HookType::Mutating => !self.mutating.is_empty(),
        }
    }

    /// Number of the segment of the mutating hook number `index`, from 1, and of all segments: one of each isolated
    /// hook, and one of the hooks between two of these.
    pub fn segment(&self, index: u32) -> Option<Segment> {
        let place = self.mutating.binary_search_by_key(&index, |(mutating, _)| *mutating).ok()?;
        let ((_, number), (_, of)) = (self.mutating.get(place)?, self.mutating.last()?);
        Some(Segment { number: *number, of: *of })
    }

    /// Every mutating hook, in order, with its segment.
    pub fn segments(&self) -> impl Iterator<Item = (&Hook, Segment)> {
        let with_segment = |(index, _): &(u32, u32)| Some((&**self.hooks.get(*index as usize)?, self.segment(*index)?));
        self.mutating.iter().filter_map(with_segment)
    }

    /// Mutating hooks that stand before hook number `index`.
    pub fn mutating_before(&self, index: u32) -> usize {
        self.mutating.partition_point(|(mutating, _)| *mutating < index)
    }

    /// The rules that let requests past hooks, in the order of their configurations.
    pub fn bypasses(&self) -> &[Arc<Bypass>] {
        &self.bypasses
    }

    /// Eligibility of this request for hooks, whatever the rules are.
    pub fn eligibility(&self, review: &Review) -> Eligibility {
        eligibility(review, self.static_hooks)
    }

    /// Origin of hook number `index`.
    pub fn origin(&self, index: u32) -> Option<&Origin> {
        self.origins.get(index as usize).map(|origin| &**origin)
    }

    /// The labels of a namespace that the configuration holds, `kubernetes.io/metadata.name` among them.
    pub fn namespace_labels(&self, namespace: &str) -> Option<&Labels> {
        self.namespaces.get(namespace).map(|labels| &**labels)
    }

    /// The namespaces that the configuration holds, in no order.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, &Labels)> {
        self.namespaces.iter().map(|(name, labels)| (&**name, &**labels))
    }

    /// Does this selector match a namespace that the configuration holds? One that asks for nothing but the name needs
    /// no document: every namespace has that label. `None` where nobody knows.
    pub fn selects_namespace(&self, selector: &Selector, namespace: &str) -> Option<bool> {
        if let Some(labels) = self.namespaces.get(namespace) {
            return Some(selector.matches(labels));
        }
        let by_name = selector.0.iter().all(|requirement| requirement.key() == NAME_LABEL);
        by_name.then(|| selector.matches(&[(NAME_LABEL, namespace)].into_iter().collect()))
    }

    /// The same, with notes of whoever has read the files before its own.
    #[must_use]
    pub fn noted(mut self, notes: &[Note]) -> Self {
        self.notes.splice(0..0, notes.iter().cloned());
        self
    }

    /// Notes that are no problems, and should be known.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Notes on hooks that are called again for the sake of others. Made when they are asked for: they compare rules.
    pub fn called_again(&self) -> Vec<Note> {
        check::called_again::notes(&self.hooks, &self.origins, &self.mutating)
    }

    /// The same, with the labels of these namespaces in the place of what the configuration holds of them.
    #[must_use]
    pub fn with_namespaces(mut self, namespaces: impl IntoIterator<Item = (Box<str>, Labels)>) -> Self {
        self.namespaces.extend(namespaces.into_iter().map(|(name, labels)| (name.into(), labels.into())));
        self
    }

    /// The same, with what was found in it.
    #[must_use]
    pub fn with_findings(self, findings: Vec<hazards::Finding>) -> Self {
        Self { findings, ..self }
    }

    /// Hazards of it, as far as they were looked for.
    pub fn findings(&self) -> &[hazards::Finding] {
        &self.findings
    }

    /// The initializers of each resource, in the order of their configurations.
    pub fn initializers(&self) -> &[ResourceInitializers] {
        &self.initializers
    }

    /// Would every write be allowed by it? No hook is asked, and no resource has initializers.
    pub fn allows_every_write(&self) -> bool {
        self.hooks.is_empty() && self.initializers.is_empty()
    }

    /// Number of initializers; one of several resources counts for each.
    pub fn initializer_count(&self) -> usize {
        self.initializers.iter().map(|entry| entry.initializers.len()).sum()
    }

    /// Names of initializers that a process may claim; of several resources, more than once.
    pub fn claimed(&self) -> impl Iterator<Item = &Arc<str>> {
        let all = self.initializers.iter().flat_map(|entry| &entry.initializers);
        all.filter(|one| one.attach.is_some()).map(|one| &one.name)
    }

    /// Names of all initializers, whoever acts for them; of several resources, more than once.
    pub fn initializer_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.initializers.iter().flat_map(|entry| &entry.initializers).map(|one| &one.name)
    }

    /// The initializers of one resource, where it has any. Allocates nothing.
    pub fn initializers_of(&self, group: &str, resource: &str) -> Option<&ResourceInitializers> {
        let places = self.initialized.get(resource)?;
        places.iter().filter_map(|at| self.initializers.get(*at)).find(|entry| *entry.api_group == *group)
    }
}
