//! Reads the bytes of the source's files into documents, with the path of each value.

pub(crate) mod node;
pub(crate) mod problem;
pub(crate) mod unique_names;

use std::{collections::BTreeSet, io};

use self::{
    node::{Node, ProblemReport, Value},
    problem::{Problem, quoted},
};
use super::{Pause, SourceFile};
use gatepost_api::HookType;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: usize = 64 << 20;

/// Bytes of YAML between two pauses: about 250 µs of work.
const BYTES_PER_PAUSE: usize = 2 << 10;

/// Content of one file.
#[derive(Debug)]
pub(crate) struct Documents {
    /// Documents in the order written, without empty ones. Null stands for YAML that could not be read.
    values: Vec<Value>,
    unreadable: Vec<Unreadable>,
    /// True if some map has a duplicate key. The report finds its place.
    has_duplicate_keys: bool,
    /// True if the last key has no value: the file may be incomplete.
    ends_with_key: bool,
}

/// Fault of a file that cannot be read.
#[derive(Debug)]
struct Unreadable {
    /// Line and column.
    place: Option<(u64, u64)>,
    what: String,
    fix: &'static str,
}

impl Documents {
    /// Reads a file, with pauses. Keeps the documents before an unreadable one, so that their problems are reported,
    /// too.
    pub(super) fn read(source: &SourceFile, pause: Pause<'_>) -> Self {
        let mut documents =
            Self { values: Vec::new(), unreadable: Vec::new(), has_duplicate_keys: false, ends_with_key: false };
        match std::str::from_utf8(&source.bytes) {
            _ if source.bytes.len() > MAX_FILE_BYTES => documents.unreadable(
                None,
                format!("is larger than {} MiB", MAX_FILE_BYTES >> 20),
                "split the file, or see whether it is the right one",
            ),
            Err(error) => documents.unreadable(
                None,
                format!("is not UTF-8 text from byte {} on", error.valid_up_to()),
                "save the file as UTF-8",
            ),
            Ok(text) if is_json(&source.name, text) => documents.read_json(text, pause),
            Ok(text) => {
                documents.read_yaml(text, pause);
                documents.ends_with_key = ends_with_key(text);
            }
        }
        documents.has_duplicate_keys = documents.values.iter().any(|document| {
            pause();
            document.has_duplicate_key()
        });
        documents
    }

    /// Frees the documents, with pauses.
    pub(super) fn discard(self, pause: Pause<'_>) {
        for document in self.values {
            drop(document);
            pause();
        }
    }

    fn read_json(&mut self, text: &str, pause: Pause<'_>) {
        for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            pause();
            match document {
                Ok(Value::Null) => {}
                Ok(document) => self.values.push(document),
                Err(error) => self.unreadable(
                    Some((error.line() as u64, error.column() as u64)),
                    format!("cannot be read as JSON: {}", without_place(&error.to_string())),
                    "correct the JSON",
                ),
            }
        }
    }

    fn read_yaml(&mut self, text: &str, pause: Pause<'_>) {
        let mut steps = Steps { rest: text.as_bytes(), pause };
        for document in serde_saphyr::read_with_options::<_, Value>(&mut steps, yaml_options()) {
            match document {
                Ok(Value::Null) => {}
                Ok(document) => self.values.push(document),
                Err(error) => {
                    self.unreadable(
                        error.location().map(|at| (at.line(), at.column())),
                        format!("cannot be read as YAML: {}", without_place(&error.to_string())),
                        "correct the YAML",
                    );
                    self.values.push(Value::Null);
                }
            }
        }
    }

    fn unreadable(&mut self, place: Option<(u64, u64)>, what: String, fix: &'static str) {
        self.unreadable.push(Unreadable { place, what, fix });
    }

    /// Returns true if some of the file could not be read, or if it has no document.
    pub(super) fn is_incomplete(&self) -> bool {
        self.values.is_empty() || !self.unreadable.is_empty()
    }

    /// Reports unreadable content, and a file without a document: it may be empty because it is being written.
    pub(super) fn report(&self, file: &str, report: &ProblemReport) {
        if self.values.is_empty() && self.unreadable.is_empty() {
            report.add(Problem::nothing_written(file, "holds no document"));
        }
        for Unreadable { place, what, fix } in &self.unreadable {
            let path = place.map_or(String::new(), |(line, column)| format!("line {line}, column {column}"));
            report.add(Problem { file: file.into(), path, what: what.clone(), why: UNREAD.into(), fix: (*fix).into() });
        }
    }

    /// Visits each document. The items of a list are documents of their own: of a `v1` List, as kubectl prints it, or
    /// of a typed one, whose items need not repeat its kind.
    pub(super) fn each(
        &self,
        file: &str,
        report: &ProblemReport,
        mut visit: impl FnMut(&Node<'_>, Option<DocumentKind>),
    ) {
        let several = self.values.len() > 1;
        for (index, document) in self.values.iter().enumerate() {
            let root = Node::document(document, file, several.then_some(index), report);
            if self.has_duplicate_keys {
                report_duplicate_keys(&root);
            }
            let is_last = index + 1 == self.values.len();
            if self.ends_with_key && is_last {
                let items = root.key("items");
                let last = items.items().last().unwrap_or(root);
                let webhooks = last.key("webhooks");
                // An apiserver accepts a null list. Here, the file may be incomplete.
                let _ = webhooks.present() || !webhooks.is_written() || webhooks.is_list();
            }
            let listed = DocumentKind::listed(document);
            if listed.is_some() || is_list(document) {
                root.is_map_of(&["apiVersion", "kind", "metadata", "items"]);
                let items = root.key("items");
                if items.required("which is not taken for an empty list", "list the documents; [] is none")
                    && items.is_list()
                {
                    items.items().for_each(|item| visit(&item, listed));
                }
            } else if *document != Value::Null {
                visit(&root, None);
            }
        }
    }
}

/// Returns true if the YAML ends with a key, apart from comments.
fn ends_with_key(text: &str) -> bool {
    let code = |line: &'_ str| match line.trim_start().starts_with('#') {
        true => String::new(),
        false => line.split(" #").next().unwrap_or_default().trim().to_owned(),
    };
    text.lines().rev().map(code).find(|line| !line.is_empty()).is_some_and(|line| line.ends_with(':'))
}

/// Consequence of unreadable content.
const UNREAD: &str = "so nothing behind that place is known";

/// A reader that pauses before each step. Parsing YAML takes a hundred times as long as writing it, and the crate does
/// not pause by itself.
struct Steps<'a> {
    rest: &'a [u8],
    pause: Pause<'a>,
}

impl io::Read for Steps<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (self.pause)();
        let step = buf.len().min(BYTES_PER_PAUSE);
        self.rest.read(&mut buf[..step])
    }
}

/// Returns true if the file is JSON by its name. With any other name, such as that of a cluster's object, it is JSON if
/// it parses as JSON. (A YAML parser reads almost any JSON, too, but not as fast.)
fn is_json(name: &str, text: &str) -> bool {
    let name = name.to_ascii_lowercase();
    match [".json", ".yaml", ".yml"].into_iter().find(|ending| name.ends_with(ending)) {
        Some(ending) => ending == ".json",
        None => text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(),
    }
}

fn is_list(document: &Value) -> bool {
    document.text_of("kind") == Some("List") && document.text_of("apiVersion") == Some("v1")
}

/// Reports every duplicate key, at any depth.
pub(super) fn report_duplicate_keys(at: &Node<'_>) {
    let mut seen = BTreeSet::new();
    for (key, entry) in at.entries() {
        if !seen.insert(key) {
            entry.problem(
                "is written more than once in the same map",
                "so one of them would be lost",
                "keep one of them",
            );
        }
        report_duplicate_keys(&entry);
    }
    at.items().for_each(|item| report_duplicate_keys(&item));
}

/// Limits inputs that are small as text and huge once expanded (aliases of aliases), and deep nesting. Ten thousand
/// hooks fit well.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 4_000_000,
            max_nodes: 2_000_000,
            max_depth: 64,
            max_aliases: 10_000,
            max_reader_input_bytes: Some(MAX_FILE_BYTES),
            // One anchor with many aliases is a good way to write many hooks; `alias_limits` bounds its cost.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        // The only policy that keeps both entries of a duplicate key. `report_duplicate_keys` then reports all; the
        // crate's own check would stop at the first.
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        reject_unsupported_tags: true,
        strict_booleans: true,
        with_snippet: false,
    }
}

/// Removes line and column from the end of a parser's message: our messages begin with them.
fn without_place(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let end = line.find(" at line ").or_else(|| line.find(" (line ")).unwrap_or(line.len());
    line[..end].trim_end_matches([',', ':', ' ']).into()
}

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DocumentKind {
    /// An `AdmissionControlConfiguration`.
    Configuration,
    /// One of Kubernetes' two webhook configurations.
    Webhooks(HookType),
    /// A namespace with its labels.
    Namespace,
    /// A break-glass, which opens hooks for a limited time.
    BreakGlass,
    /// One of Kubernetes' two admission policies.
    Policy(HookType),
    /// A binding of such a policy.
    PolicyBinding(HookType),
    /// The definition of a custom resource.
    CustomResource,
}

const KINDS: [DocumentKind; 10] = [
    DocumentKind::Configuration,
    DocumentKind::Webhooks(HookType::Validating),
    DocumentKind::Webhooks(HookType::Mutating),
    DocumentKind::Namespace,
    DocumentKind::BreakGlass,
    DocumentKind::Policy(HookType::Validating),
    DocumentKind::Policy(HookType::Mutating),
    DocumentKind::PolicyBinding(HookType::Validating),
    DocumentKind::PolicyBinding(HookType::Mutating),
    DocumentKind::CustomResource,
];

const FIX: &str = "write apiVersion: gatepost.dev/v1alpha1 and kind: AdmissionControlConfiguration or BreakGlass; \
     ValidatingWebhookConfiguration, MutatingWebhookConfiguration, ValidatingAdmissionPolicy, \
     MutatingAdmissionPolicy or a binding of these, of admissionregistration.k8s.io/v1; CustomResourceDefinition of \
     apiextensions.k8s.io/v1; or Namespace of v1";

/// Versions in which policies and their bindings are read, the newest first. Their fields are the same.
const POLICY_VERSIONS: [&str; 3] = [
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1alpha1",
];

/// Consequence of an unknown kind.
const UNKNOWN: &str = "so what it is to mean is not known here";

/// Returns the kind of the webhook configurations with hooks of this type.
pub(crate) const fn webhooks_kind(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => "ValidatingWebhookConfiguration",
        HookType::Mutating => "MutatingWebhookConfiguration",
    }
}

impl DocumentKind {
    /// Returns the newest `apiVersion`, and the `kind`.
    fn written(self) -> (&'static str, &'static str) {
        match self {
            Self::Configuration => ("gatepost.dev/v1alpha1", "AdmissionControlConfiguration"),
            Self::Webhooks(hook_type) => (POLICY_VERSIONS[0], webhooks_kind(hook_type)),
            Self::Namespace => ("v1", "Namespace"),
            Self::BreakGlass => ("gatepost.dev/v1alpha1", "BreakGlass"),
            Self::Policy(HookType::Validating) => (POLICY_VERSIONS[0], "ValidatingAdmissionPolicy"),
            Self::Policy(HookType::Mutating) => (POLICY_VERSIONS[0], "MutatingAdmissionPolicy"),
            Self::PolicyBinding(HookType::Validating) => (POLICY_VERSIONS[0], "ValidatingAdmissionPolicyBinding"),
            Self::PolicyBinding(HookType::Mutating) => (POLICY_VERSIONS[0], "MutatingAdmissionPolicyBinding"),
            Self::CustomResource => ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        }
    }

    /// Returns true if a document with this `apiVersion` and `kind` is of this kind.
    fn is_written(self, version: &str, kind: &str) -> bool {
        let (newest, own) = self.written();
        let is_policy = matches!(self, Self::Policy(_) | Self::PolicyBinding(_));
        kind == own && (version == newest || is_policy && POLICY_VERSIONS.contains(&version))
    }

    /// Returns a noun for messages.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Configuration | Self::Webhooks(_) => "the configuration",
            Self::Namespace => "the namespace",
            Self::BreakGlass => "the break-glass",
            Self::Policy(_) => "the policy",
            Self::PolicyBinding(_) => "the binding",
            Self::CustomResource => "the custom resource",
        }
    }

    /// Returns the kind of a document; `None` if unknown. Reports nothing.
    pub(crate) fn written_in(document: &Value) -> Option<Self> {
        let (version, name) = (document.text_of("apiVersion")?, document.text_of("kind")?);
        KINDS.into_iter().find(|kind| kind.is_written(version, name))
    }

    /// Returns the kind of a document. Reports a missing or unknown kind.
    pub(crate) fn of(at: &Node<'_>) -> Option<Self> {
        if !matches!(at.value, Value::Map(_)) {
            at.problem(format!("the document is {}, not a map", at.value.kind()), UNKNOWN, FIX);
            return None;
        }
        let (version, kind) = (at.key("apiVersion"), at.key("kind"));
        let both = version.required(UNKNOWN, FIX) & kind.required(UNKNOWN, FIX);
        let (version_text, kind_text) = if both { (version.text()?, kind.text()?) } else { return None };
        if let Some(found) = KINDS.into_iter().find(|kind| kind.is_written(version_text, kind_text)) {
            return Some(found);
        }
        if let Some(meant) = KINDS.into_iter().find(|kind| kind.written().1 == kind_text) {
            version.problem(
                format!("{} is not a version of {kind_text}", quoted(version_text)),
                UNKNOWN,
                format!("write {}", meant.written().0),
            );
        } else if version_text == Self::Configuration.written().0 {
            let ours = Self::Configuration.written();
            kind.problem(
                format!("{} is not a kind of {}", quoted(kind_text), ours.0),
                UNKNOWN,
                format!("write {} or {}", ours.1, Self::BreakGlass.written().1),
            );
        } else {
            at.problem(format!("{} of {} is not read here", quoted(kind_text), quoted(version_text)), UNKNOWN, FIX);
        }
        None
    }

    /// Returns the kind of the items of a typed list, which need not repeat it.
    pub(crate) fn listed(document: &Value) -> Option<Self> {
        let (version, kind) = (document.text_of("apiVersion")?, document.text_of("kind")?.strip_suffix("List")?);
        KINDS.into_iter().find(|known| *known != Self::Configuration && known.is_written(version, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_read_in_short_steps() {
        let item = "- {name: a, values: [1, 2]}\n";
        let bytes = item.repeat(200 * BYTES_PER_PAUSE / item.len()).into_bytes().into();
        let pauses = std::cell::Cell::new(0);
        let source = SourceFile { name: "a.yaml".into(), bytes };
        let documents = Documents::read(&source, &|| pauses.set(pauses.get() + 1));
        assert!(documents.unreadable.is_empty() && documents.values.len() == 1);
        assert!(pauses.get() >= 199, "{} pauses", pauses.get());
    }

    #[test]
    fn a_key_at_the_end_of_yaml_is_seen_behind_comments() {
        for text in ["a:", "a: 1\nb:\n", "b:  # none\n\n  # and no more", "- c:\n"] {
            assert!(ends_with_key(text), "{text}");
        }
        for text in ["", "a: null\n", "a: 1\n# b:\n", "a:\nb: []", "a: ~", "- a"] {
            assert!(!ends_with_key(text), "{text}");
        }
    }

    #[test]
    fn a_name_without_an_ending_leaves_it_to_the_text() {
        let json = r#"{"a": "\u007f"}"#;
        for (name, text, wanted) in [
            ("a.json", "a: b", true),
            ("a.JSON", json, true),
            ("a.yaml", json, false),
            ("a.yml", json, false),
            ("things/a", json, true),
            ("things/a.b", json, true),
            ("things/a", "{a: b}", false),
            ("things/a", "a: b", false),
            ("things/a", "", false),
        ] {
            assert_eq!(is_json(name, text), wanted, "{name}: {text}");
        }
    }
}

/// Schema that a configuration is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Gatepost's own, with what the designs that led to it allowed.
    Gatepost,
    /// Kubernetes' own, to the letter: `docs/reference/webhook-semantics.md` §5 and §14.
    Kubernetes,
}
