//! The names that an expression may use, and the types that it may evaluate to. Source:
//! `k8s.io/apiserver/pkg/admission/plugin/cel/{compile,composition}.go`.

use crate::{
    compatibility::KubernetesVersion,
    program::Uses,
    types::{JSON_PATCH_NAME, OBJECT_NAME, Type},
};

/// Variables and types that an expression may use, beyond `object`, `oldObject`, `request`, `namespaceObject` and
/// `authorizer`. The default is that of match conditions of webhooks.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    is_policy: bool,
    has_params: bool,
    has_patch_types: bool,
    has_no_authorizer: bool,
    pub(super) version: KubernetesVersion,
    pub(super) variables: Vec<Declaration>,
}

/// A declared variable of a policy.
#[derive(Clone, Debug)]
pub(super) struct Declaration {
    pub(super) name: Box<str>,
    pub(super) of: Type,
    pub(super) uses: Uses,
    pub(super) depth: usize,
}

/// Names that no variable may have. Source: `k8s.io/apiserver/pkg/cel/escaping.go`.
pub(super) const RESERVED_NAMES: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

impl Environment {
    /// Returns the environment of a policy: with `variables`, none of which is declared yet, and with `params` if
    /// `has_params`.
    pub fn policy(has_params: bool) -> Self {
        Self { is_policy: true, has_params, ..Self::default() }
    }

    /// Adds the types of mutations: `Object{…}`, `Object.spec{…}` and `JSONPatch{…}`; and `jsonpatch.escapeKey`.
    pub fn with_patch_types(self) -> Self {
        Self { has_patch_types: true, ..self }
    }

    /// Removes `authorizer`, which message expressions cannot use.
    pub fn without_authorizer(self) -> Self {
        Self { has_no_authorizer: true, ..self }
    }

    /// Sets the Kubernetes version whose results and costs the programs reproduce. The newest by default.
    pub fn of_version(self, version: KubernetesVersion) -> Self {
        Self { version, ..self }
    }

    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|declared| *declared.name == *name)
    }

    pub(super) fn variable(&self, index: usize) -> &Declaration {
        &self.variables[index]
    }

    pub(super) const fn is_policy(&self) -> bool {
        self.is_policy
    }

    pub(super) const fn has_params(&self) -> bool {
        self.has_params
    }

    pub(super) const fn has_patch_types(&self) -> bool {
        self.has_patch_types
    }

    pub(super) const fn has_authorizer(&self) -> bool {
        !self.has_no_authorizer
    }
}

/// Returns true if kube-apiserver finds no variable of this name, because it replaces `__word__` in it.
pub(super) fn is_escaped(name: &str) -> bool {
    let mut rest = name;
    while let Some((_, behind)) = rest.split_once("__") {
        let word = behind.bytes().take_while(|byte| *byte != b'_').count();
        if word > 0 && behind[word..].starts_with("__") {
            return true;
        }
        // The next pair may share an underscore with this one.
        rest = &rest[rest.len() - behind.len() - 1..];
    }
    false
}

/// What an expression must evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A bool: conditions and validations.
    Bool,
    /// A string: message expressions.
    String,
    /// A string or null: values of audit annotations.
    StringOrNull,
    /// Anything: variables.
    Any,
    /// An `Object`: apply configurations.
    ObjectPatch,
    /// A list of `JSONPatch`: JSON patches.
    JsonPatch,
}

impl Expected {
    /// Checks the type of an expression.
    pub(super) fn check(self, found: &Type) -> Result<(), String> {
        let (fits, wanted) = match self {
            Self::Bool => (*found == Type::Bool, "bool"),
            Self::String => (*found == Type::String, "string"),
            Self::StringOrNull => (matches!(found, Type::String | Type::Null), "one of [string null_type]"),
            Self::Any => return Ok(()),
            Self::ObjectPatch => (matches!(found, Type::Object(name) if **name == *OBJECT_NAME), "Object"),
            Self::JsonPatch => {
                let is_patch = |item: &Type| matches!(item, Type::Struct(JSON_PATCH_NAME, _));
                (matches!(found, Type::List(item) if is_patch(item)), "list(JSONPatch)")
            }
        };
        if fits { Ok(()) } else { Err(format!("must evaluate to {wanted} but got {found:#}")) }
    }
}
