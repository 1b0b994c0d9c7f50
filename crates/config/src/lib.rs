//! Configuration: documents, checked and compiled into a [`Snapshot`], which requests use without a lock.
//!
//! [`load`] takes the source's files as bytes ([`SourceFile`]). It returns a [`Snapshot`], or every [`Problem`] with
//! its file, its path in the document and its fix. [`LoadCache::load_around`] returns a snapshot even if documents have
//! problems: these stay in their last good state, as [`HeldBackDocument`]s. Nothing here opens a file (the caller lends
//! [`ReadFile`] for the certificates that a configuration names), reads a clock or logs.
//!
//! The steps: `document` parses bytes to values and keeps each key; `check` validates the values by hand, because a
//! decoder would stop at the first problem; `Snapshot::compile` joins them, and `matcher` indexes the rules. Compiling
//! cannot fail: `check` reports every fault. `reload` caches these results, and selects the state of each document.
//!
//! Hooks are numbered as upstream orders them (`docs/reference/webhook-semantics.md` §3): those of static
//! configurations first, then by the name of their configuration, byte by byte, and then by their order in it. The keys
//! of documents are in `docs/configuration.md`.

mod canary;
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

pub use self::{
    canary::{Canaries, CanaryPair},
    check::{
        break_glass::break_glass,
        namespace::NAME_LABEL,
        url::{UrlProblem, parse_url},
        webhooks::{CALL_AT_ONCE, ENTRY_STATES, NOT_STATIC, STATIC, is_misspelt},
    },
    describe::describe_protocol,
    document::problem::{Note, Problem, nearest_words},
    matcher::{Match, MatchKind, MatchSet, Ruled, WantedVersion},
    reload::{
        checked_file::{CheckedFile, HeldBackDocument, LastGoodDocuments},
        load_cache::{LoadCache, LoadResult, RefusedFiles},
        relaxation::Relaxation,
    },
};
use self::{
    check::{CheckedContent, names::Identities},
    document::{
        Dialect,
        node::{Node, ProblemReport, Value},
    },
    matcher::{Matcher, PreviousIndex},
};
pub use gatepost_api::exempt::Eligibility;
use gatepost_api::{
    Bypass, Enforcement, FailurePolicy, Hook, HookType, Labels, ResourceInitializers, Review, Rollout, Selector,
    Served, exempt::eligibility, registration::Segment,
};
use gatepost_cel::Condition;
use gatepost_policy::{Definition, Policy};

/// One file of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Name relative to the source, for problems. The ending `.json` selects JSON, `.yaml` and `.yml` select YAML. Any
    /// other file is JSON if it parses as JSON, otherwise YAML.
    pub name: String,
    /// Content of the file.
    pub bytes: Bytes,
}

/// Reads a file that the configuration refers to, by its path as written.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> std::io::Result<Vec<u8>>;

/// Called between the steps of long work, so that other work on the same core can run first.
pub type Pause<'a> = &'a dyn Fn();

/// Does not pause: for callers that have a core to themselves.
pub const NO_PAUSE: Pause<'static> = &|| ();

/// Part of a document, and the place of the document.
#[derive(Debug)]
pub struct Placed<T> {
    /// The part.
    pub item: Arc<T>,
    /// Name of the document's file in the source.
    pub file: String,
    /// Path of the document in the file, as in a [`Problem`].
    pub path: String,
    /// Annotation [`ENTRY_STATES`] of a policy, with the state of each of its bindings, if any.
    pub states: Option<Box<str>>,
}

impl<T> Clone for Placed<T> {
    fn clone(&self) -> Self {
        let Self { item, file, path, states } = self;
        Self { item: Arc::clone(item), file: file.clone(), path: path.clone(), states: states.clone() }
    }
}

impl<T> Placed<T> {
    /// Returns the known states of the policy's bindings, by their names.
    pub fn states(&self) -> HashMap<&str, &str> {
        self.states.iter().flat_map(|states| states.split(' ')).filter_map(|state| state.split_once('=')).collect()
    }
}

/// Origin of a hook, and the parts of its entry that [`Hook`] does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the configuration.
    pub configuration: Arc<str>,
    /// Failure policy as written. The hook's own is `Ignore` during the rollout.
    pub declared_policy: FailurePolicy,
    /// True if the entry has `rollout.createAs: Ignore`.
    pub rolling_out: bool,
    /// Bound on the time without a successful probe, and the effect of exceeding it.
    pub rollout: Rollout,
    /// Conditions that a request must meet before the hook is called.
    pub conditions: Arc<[Condition]>,
    /// State of the entry, from the annotation [`ENTRY_STATES`], if any.
    pub state: Option<Box<str>>,
    /// Name of the entry's file in the source.
    pub file: String,
    /// Path of the entry, as in a [`Problem`].
    pub path: String,
}

/// A checked and compiled configuration. It is immutable; a reload replaces it.
#[derive(Debug)]
pub struct Snapshot {
    /// Every hook, in order.
    pub hooks: Vec<Arc<Hook>>,
    origins: Vec<Arc<Origin>>,
    matcher: Matcher,
    namespaces: HashMap<Arc<str>, Arc<Labels>>,
    initializers: Vec<ResourceInitializers>,
    /// Files and paths of the initializers, in the same order as `initializers`.
    initializer_places: Vec<Vec<(String, String)>>,
    /// Indexes in `initializers`, by resource.
    initializer_indexes: HashMap<Box<str>, Vec<usize>>,
    bypasses: Vec<Arc<Bypass>>,
    /// Every policy that is bound: the mutating ones, then the validating ones, each by name.
    policies: Vec<Arc<Policy>>,
    /// Places of the policies, in the same order as `policies`.
    policy_places: Vec<Placed<Definition>>,
    policy_matcher: Matcher,
    /// True if any hook is called for admission configuration.
    any_hook_sees_admission_config: bool,
    /// True if any hook validates.
    validates: bool,
    hook_canaries: Canaries,
    policy_canaries: Canaries,
    /// True if any hook or policy has the enforcement `Shadow`, or decides a part of the requests in shadow.
    has_shadows: bool,
    /// Numbers of the mutating hooks, in order, each with the number of its segment.
    mutating: Vec<(u32, u32)>,
    notes: Vec<Note>,
    findings: Vec<hazards::Finding>,
}

/// Checks and compiles the files. Without files, the configuration has no hooks.
///
/// # Errors
/// Every problem, in the order of the files and of their content.
pub fn load(files: &[SourceFile], read: ReadFile<'_>) -> Result<Snapshot, Vec<Problem>> {
    LoadCache::default().load(files, read, NO_PAUSE)
}

/// Checks and compiles one `LabelSelector` as kube-apiserver does; `null` matches everything. Problems have `name` as
/// their file.
///
/// # Errors
/// Every problem.
pub fn checked_selector(name: &str, selector: &serde_json::Value) -> Result<Selector, Vec<Problem>> {
    let (value, report) = (Value::from(selector), ProblemReport::default());
    let compiled = check::selector::check(&Node::document(&value, name, None, &report), Dialect::Kubernetes);
    match report.into_problems() {
        none if none.is_empty() => Ok(compiled),
        problems => Err(problems),
    }
}

/// Checks one of Kubernetes' two webhook configurations exactly as kube-apiserver does on creation, except for CEL,
/// which [`Condition::compile`] checks. Problems have `name` as their file.
///
/// # Errors
/// Every problem.
pub fn checked_webhook_configuration(name: &str, document: &serde_json::Value) -> Result<Vec<Hook>, Vec<Problem>> {
    let configuration = check::webhook_configuration(name, &Value::from(document))?;
    Ok(configuration.hooks.into_iter().map(|(hook, _)| Arc::unwrap_or_clone(hook)).collect())
}

/// Returns the numbers of the mutating hooks, each with the number of its segment.
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
    /// Returns a configuration without hooks.
    pub fn empty() -> Self {
        Self::compile(CheckedContent::default(), &PreviousIndex::default(), NO_PAUSE)
    }

    /// Compiles checked documents. Reuses the index of `former` if few hooks have changed.
    fn compile(checked: CheckedContent, former: &PreviousIndex, pause: Pause<'_>) -> Self {
        let mut checked = checked.finish();
        let (mut hooks, mut origins, mut bypasses) = (Vec::new(), Vec::new(), Vec::new());
        let (mut initializers, mut initializer_places) = (Vec::new(), Vec::new());
        // Configurations of two kinds may share a name; their hooks then share the numbering of ids.
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
        let mut initializer_indexes = HashMap::<Box<str>, Vec<usize>>::default();
        for (at, ResourceInitializers { resource, .. }) in initializers.iter().enumerate() {
            initializer_indexes.entry(resource.clone()).or_default().push(at);
        }
        let mut notes = std::mem::take(&mut checked.notes);
        check::hook::sort(&mut hooks, &mut origins, &mut notes);
        let matcher = Matcher::from_previous(former, &hooks);
        pause();
        let (policies, policy_places) = check::policies::bound(&checked, &mut notes);
        notes.extend(check::rules::notes(&hooks, &origins));
        notes.extend(check::called_again::dry_run_notes(&hooks, &origins));
        notes.extend(check::hook::unenforced_notes(&hooks, &origins));
        let hook_canaries = Canaries::of_hooks(&hooks, &origins, &in_segments(&hooks), &mut notes);
        let policy_canaries = Canaries::of_policies(&policies, &policy_places, &mut notes);
        Self {
            matcher,
            any_hook_sees_admission_config: hooks.iter().any(|hook| hook.sees_admission_config),
            has_shadows: hooks.iter().any(|hook| hook.enforcement == Enforcement::Shadow)
                || policies.iter().any(|policy| policy.enforcement == Enforcement::Shadow)
                || !(hook_canaries.is_empty() && policy_canaries.is_empty()),
            hook_canaries,
            policy_canaries,
            validates: hooks.iter().any(|hook| hook.hook_type == HookType::Validating),
            mutating: in_segments(&hooks),
            hooks,
            origins,
            namespaces: checked.namespaces.into_iter().collect(),
            initializers,
            initializer_places,
            initializer_indexes,
            bypasses,
            policy_matcher: Matcher::new(&policies),
            policies,
            policy_places,
            notes,
            findings: Vec::new(),
        }
    }

    /// Returns the hooks that are to replace others.
    pub fn hook_canaries(&self) -> &Canaries {
        &self.hook_canaries
    }

    /// Returns the policies that are to replace others.
    pub fn policy_canaries(&self) -> &Canaries {
        &self.policy_canaries
    }

    /// Returns the same snapshot, in which every hook and policy decides every request.
    pub fn without_canaries(mut self) -> Self {
        (self.hook_canaries, self.policy_canaries) = (Canaries::default(), Canaries::default());
        self
    }

    /// Returns every policy that has a binding: the mutating ones, then the validating ones, each by name.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// Returns the place of policy number `index`.
    pub fn policy_place(&self, index: usize) -> Option<&Placed<Definition>> {
        self.policy_places.get(index)
    }

    /// Replaces the content of `out` by the policies with a rule for this request, in ascending order and each once.
    /// Does not compare selectors, names of objects, rules that exclude requests, and bindings.
    pub fn matching_policies(&self, review: &Review, served: Option<&Served>, out: &mut MatchSet) {
        match self.policies.is_empty() {
            true => out.clear(),
            false => self.policy_matcher.matching(&self.policies, review, served, out),
        }
    }

    /// Returns true if a policy of that type is bound.
    pub fn has_policies(&self, hook_type: HookType) -> bool {
        // Mutating policies come first.
        let policy = if hook_type == HookType::Mutating { self.policies.first() } else { self.policies.last() };
        policy.is_some_and(|policy| policy.definition.hook_type == hook_type)
    }

    /// Replaces the content of `out` by the hooks that match this request, in ascending order and each once: those with
    /// a rule for it, and those with a rule for it in another version. Some requests match no hook at all
    /// (`docs/reference/webhook-semantics.md` §2). Does not compare selectors, which need labels. `served` has the
    /// versions in which an apiserver serves its resources, if they are known. Allocates nothing up to 32 matches.
    pub fn matching(&self, review: &Review, served: Option<&Served>, out: &mut MatchSet) {
        self.matcher.matching(&self.hooks, review, served, out);
    }

    /// Returns true if there is a hook of that type.
    pub fn has(&self, hook_type: HookType) -> bool {
        match hook_type {
            HookType::Validating => self.validates,
            HookType::Mutating => !self.mutating.is_empty(),
        }
    }

    /// Returns the segment of the mutating hook number `index`: its number, from 1, and the number of segments. Each
    /// isolated hook is a segment, and the hooks between two isolated ones are a segment.
    pub fn segment(&self, index: u32) -> Option<Segment> {
        let place = self.mutating.binary_search_by_key(&index, |(mutating, _)| *mutating).ok()?;
        let ((_, number), (_, of)) = (self.mutating.get(place)?, self.mutating.last()?);
        Some(Segment { number: *number, of: *of })
    }

    /// Returns every mutating hook, in order, with its segment.
    pub fn segments(&self) -> impl Iterator<Item = (&Hook, Segment)> {
        let with_segment = |(index, _): &(u32, u32)| Some((&**self.hooks.get(*index as usize)?, self.segment(*index)?));
        self.mutating.iter().filter_map(with_segment)
    }

    /// Returns the number of mutating hooks before hook number `index`.
    pub fn mutating_before(&self, index: u32) -> usize {
        self.mutating.partition_point(|(mutating, _)| *mutating < index)
    }

    /// Returns the rules that exempt requests from hooks, in the order of their configurations.
    pub fn bypasses(&self) -> &[Arc<Bypass>] {
        &self.bypasses
    }

    /// Returns the eligibility of this request for hooks, whatever their rules are.
    pub fn eligibility(&self, review: &Review) -> Eligibility {
        eligibility(review, self.any_hook_sees_admission_config)
    }

    /// Returns true if hook number `index` takes objects in protobuf, and nothing reads them in JSON for it: its match
    /// conditions do not.
    pub fn takes_protobuf(&self, index: u32) -> bool {
        let (hook, origin) = (self.hooks.get(index as usize), self.origin(index));
        hook.is_some_and(|hook| hook.takes_protobuf)
            && origin.is_some_and(|origin| !origin.conditions.iter().any(Condition::reads_objects))
    }

    /// Returns the origin of hook number `index`.
    pub fn origin(&self, index: u32) -> Option<&Origin> {
        self.origins.get(index as usize).map(|origin| &**origin)
    }

    /// Returns the labels of a namespace in the configuration, including `kubernetes.io/metadata.name`.
    pub fn namespace_labels(&self, namespace: &str) -> Option<&Labels> {
        self.namespaces.get(namespace).map(|labels| &**labels)
    }

    /// Returns the namespaces in the configuration, in no order.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, &Labels)> {
        self.namespaces.iter().map(|(name, labels)| (&**name, &**labels))
    }

    /// Returns true if the selector matches a namespace. A selector on the name alone needs no document of the
    /// namespace: every namespace has this label. `None` if the labels are unknown.
    pub fn selects_namespace(&self, selector: &Selector, namespace: &str) -> Option<bool> {
        if let Some(labels) = self.namespaces.get(namespace) {
            return Some(selector.matches(labels));
        }
        let by_name = selector.0.iter().all(|requirement| requirement.key() == NAME_LABEL);
        by_name.then(|| selector.matches(&[(NAME_LABEL, namespace)].into_iter().collect()))
    }

    /// Returns the snapshot with these notes, which come from reading the files, before its own.
    #[must_use]
    pub fn noted(mut self, notes: &[Note]) -> Self {
        self.notes.splice(0..0, notes.iter().cloned());
        self
    }

    /// Returns the notes, which are no problems.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns notes on hooks that make an apiserver call others again. Compares rules on each call.
    pub fn called_again(&self) -> Vec<Note> {
        check::called_again::notes(&self.hooks, &self.origins, &self.mutating)
    }

    /// Returns the snapshot with the labels of these namespaces in place of those in the configuration.
    #[must_use]
    pub fn with_namespaces(mut self, namespaces: impl IntoIterator<Item = (Box<str>, Labels)>) -> Self {
        self.namespaces.extend(namespaces.into_iter().map(|(name, labels)| (name.into(), labels.into())));
        self
    }

    /// Returns the snapshot with these findings.
    #[must_use]
    pub fn with_findings(self, findings: Vec<hazards::Finding>) -> Self {
        Self { findings, ..self }
    }

    /// Returns the findings of [`Snapshot::with_findings`].
    pub fn findings(&self) -> &[hazards::Finding] {
        &self.findings
    }

    /// Returns the initializers of each resource, in the order of their configurations.
    pub fn initializers(&self) -> &[ResourceInitializers] {
        &self.initializers
    }

    /// Returns true if a hook or policy decides after the verdict.
    pub fn has_shadows(&self) -> bool {
        self.has_shadows
    }

    /// Returns true if every write is allowed, because there are no hooks, no policies and no initializers.
    pub fn allows_every_write(&self) -> bool {
        self.hooks.is_empty() && self.policies.is_empty() && self.initializers.is_empty()
    }

    /// Returns the number of initializers. An initializer of several resources counts for each.
    pub fn initializer_count(&self) -> usize {
        self.initializers.iter().map(|entry| entry.initializers.len()).sum()
    }

    /// Returns the names of initializers that a process may claim, once for each resource.
    pub fn claimable(&self) -> impl Iterator<Item = &Arc<str>> {
        let all = self.initializers.iter().flat_map(|entry| &entry.initializers);
        all.filter(|one| one.attach.is_some()).map(|one| &one.name)
    }

    /// Returns the names of all initializers, once for each resource.
    pub fn initializer_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.initializers.iter().flat_map(|entry| &entry.initializers).map(|one| &one.name)
    }

    /// Returns the initializers of one resource, if it has any. Allocates nothing.
    pub fn initializers_of(&self, group: &str, resource: &str) -> Option<&ResourceInitializers> {
        let places = self.initializer_indexes.get(resource)?;
        places.iter().filter_map(|at| self.initializers.get(*at)).find(|entry| *entry.api_group == *group)
    }
}
