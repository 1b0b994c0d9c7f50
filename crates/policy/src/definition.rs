//! Definitions: the compiled documents of policies.

use std::{collections::HashSet, fmt, sync::Arc};

use gatepost_api::{Canary, Enforcement, FailurePolicy, HookType, names};
use gatepost_cel::{Change, Condition, Environment, Expected, Expression, KubernetesVersion};

use crate::{
    binding::Binding,
    check::{Fault, Faults, REFUSED, UNDECIDED},
    document::{
        AuditAnnotationDocument, MutationDocument, NamedExpression, PolicyDocument, Reinvocation, ValidationDocument,
    },
    matching::{MatchResources, ParamKind},
    schema::CustomSchemas,
};

/// Maximum number of match conditions, as upstream.
const MAX_MATCH_CONDITIONS: usize = 64;

/// Maximum number of audit annotations, as upstream.
const MAX_AUDIT_ANNOTATIONS: usize = 20;

/// Maximum length of the expression of an audit annotation, as upstream.
const MAX_VALUE_EXPRESSION_BYTES: usize = 5 << 10;

const WRITE_EXPRESSION: &str = "write an expression in CEL";

/// Reason of a denial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// The object is invalid.
    #[default]
    Invalid,
    /// The user may not do this.
    Forbidden,
    /// The object is too large.
    RequestEntityTooLarge,
}

impl Reason {
    const ALL: [Self; 3] = [Self::Invalid, Self::Forbidden, Self::RequestEntityTooLarge];

    /// Returns the name, as in a status and in a policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::Forbidden => "Forbidden",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
        }
    }

    /// Returns the HTTP status code.
    pub const fn code(self) -> i32 {
        match self {
            Self::Invalid => 422,
            Self::Forbidden => 403,
            Self::RequestEntityTooLarge => 413,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A validation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    /// Message of a denial, without white space around it; may be empty.
    pub(super) message: Box<str>,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: Reason,
}

/// An audit annotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AuditAnnotation {
    pub(super) key: Box<str>,
    pub(super) value: Expression,
}

/// A mutation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    JsonPatch(Expression),
    ApplyConfiguration(Expression),
}

impl Mutation {
    pub(super) const fn expression(&self) -> &Expression {
        match self {
            Self::JsonPatch(expression) | Self::ApplyConfiguration(expression) => expression,
        }
    }
}

/// A policy without its bindings, compiled.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Kind of the policy.
    pub hook_type: HookType,
    /// Effect of an evaluation that fails.
    pub failure_policy: FailurePolicy,
    /// Enforcement that the policy's annotation asks for. No field of Kubernetes' documents: whoever reads the
    /// annotation sets it.
    pub enforcement: Option<Enforcement>,
    /// Set if it is to replace another policy, by an annotation as above.
    pub canary: Option<Canary>,
    /// Version of Kubernetes by whose rules the policy is compiled and decided.
    pub version: KubernetesVersion,
    /// Requests that the policy is about.
    pub constraints: MatchResources,
    /// Kind of the params.
    pub param_kind: Option<ParamKind>,
    /// Whether mutations are evaluated again if the object changes after them.
    pub reinvocation: Reinvocation,
    pub(super) conditions: Vec<Condition>,
    pub(super) variables: Vec<(Box<str>, Expression)>,
    pub(super) validations: Vec<Validation>,
    pub(super) audit_annotations: Vec<AuditAnnotation>,
    pub(super) mutations: Vec<Mutation>,
}

/// A policy with those of its bindings that have one enforcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The policy itself.
    pub definition: Arc<Definition>,
    /// Bindings, in the order in which they are evaluated.
    pub bindings: Vec<Arc<Binding>>,
    /// True if evaluations that fail have no effect, whatever the failure policy is.
    pub fails_open: bool,
    /// Effect of its rejections. The outcome of the policy does not depend on it.
    pub enforcement: Enforcement,
    /// Schemas of the custom resources into whose objects it may merge configurations.
    pub schemas: Arc<CustomSchemas>,
}

impl Policy {
    /// Returns true if evaluations that fail have no effect.
    pub(super) fn ignores_errors(&self) -> bool {
        self.fails_open || self.definition.failure_policy == FailurePolicy::Ignore
    }
}

impl Definition {
    /// Checks and compiles a policy as the newest kube-apiserver does when it is created.
    ///
    /// # Errors
    /// All faults. Paths are relative to `spec`.
    pub fn compile(document: PolicyDocument) -> Result<Self, Vec<Fault>> {
        Self::compile_for(document, KubernetesVersion::default())
    }

    /// As [`compile`](Self::compile), with the expressions of this version.
    ///
    /// # Errors
    /// All faults. Paths are relative to `spec`.
    pub fn compile_for(document: PolicyDocument, version: KubernetesVersion) -> Result<Self, Vec<Fault>> {
        let mut compiler = Compiler::new(document.param_kind.is_some(), document.hook_type, version);
        let (hook_type, constraints) = (document.hook_type, &document.match_constraints);
        let faults = &mut compiler.faults;
        if constraints.rules.is_empty() {
            let fix = "name the resources it is about";
            faults.add("matchConstraints.resourceRules", "is empty".to_owned(), REFUSED, fix);
        }
        faults.check_resources("matchConstraints", constraints, hook_type);
        if let Some(kind) = &document.param_kind {
            faults.check_param_kind(kind);
        }
        let conditions = compiler.conditions(&document.match_conditions);
        let variables = compiler.variables(&document.variables);
        let validations = compiler.validations(&document.validations);
        let audit_annotations = compiler.audit_annotations(&document.name, &document.audit_annotations);
        let mutations = compiler.mutations(&document.mutations);
        compiler.check_lists(&document);
        compiler.faults.end(Self {
            name: document.name.into(),
            hook_type,
            failure_policy: document.failure_policy,
            enforcement: None,
            canary: None,
            version,
            constraints: document.match_constraints,
            param_kind: document.param_kind,
            reinvocation: document.reinvocation,
            conditions,
            variables,
            validations,
            audit_annotations,
            mutations,
        })
    }

    /// Returns what is otherwise in another version of Kubernetes, each with the path below `spec` of its expression.
    pub fn changes(&self) -> Vec<(String, &'static Change)> {
        let mut all = Vec::new();
        let mut add = |path: String, changes: &[&'static Change]| {
            all.extend(changes.iter().map(|change| (path.clone(), *change)));
        };
        for (at, condition) in self.conditions.iter().enumerate() {
            add(format!("matchConditions[{at}].expression"), condition.changes());
        }
        for (at, (_, variable)) in self.variables.iter().enumerate() {
            add(format!("variables[{at}].expression"), variable.changes());
        }
        for (at, validation) in self.validations.iter().enumerate() {
            add(format!("validations[{at}].expression"), validation.expression.changes());
            if let Some(message) = &validation.message_expression {
                add(format!("validations[{at}].messageExpression"), message.changes());
            }
        }
        for (at, annotation) in self.audit_annotations.iter().enumerate() {
            add(format!("auditAnnotations[{at}].valueExpression"), annotation.value.changes());
        }
        for (at, mutation) in self.mutations.iter().enumerate() {
            let field = if matches!(mutation, Mutation::JsonPatch(_)) { "jsonPatch" } else { "applyConfiguration" };
            add(format!("mutations[{at}].{field}.expression"), mutation.expression().changes());
        }
        all
    }

    /// Returns true if a mutation is an `ApplyConfiguration`.
    pub fn applies_configurations(&self) -> bool {
        self.mutations.iter().any(|mutation| matches!(mutation, Mutation::ApplyConfiguration(_)))
    }

    /// Returns the number of mutations.
    pub fn mutations(&self) -> usize {
        self.mutations.len()
    }

    /// Returns true if the policy uses `object` or `oldObject`.
    pub fn reads_objects(&self) -> bool {
        self.conditions.iter().any(Condition::reads_objects) || self.any_expression(Expression::reads_objects)
    }

    /// Returns true if the policy uses `authorizer`.
    pub fn uses_authorizer(&self) -> bool {
        self.conditions.iter().any(Condition::uses_authorizer) || self.any_expression(Expression::uses_authorizer)
    }

    /// Returns true if the policy uses `namespaceObject`. In match conditions it is null.
    pub fn uses_namespace(&self) -> bool {
        self.any_expression(Expression::uses_namespace)
    }

    /// Returns true if the policy uses `params`.
    pub fn uses_params(&self) -> bool {
        self.conditions.iter().any(Condition::uses_params) || self.any_expression(Expression::uses_params)
    }

    /// Returns true if this holds for an expression that is not a match condition. An expression has what its variables
    /// have.
    fn any_expression(&self, has: impl Fn(&Expression) -> bool) -> bool {
        self.validations
            .iter()
            .any(|validation| has(&validation.expression) || validation.message_expression.as_ref().is_some_and(&has))
            || self.audit_annotations.iter().any(|annotation| has(&annotation.value))
            || self.mutations.iter().any(|mutation| has(mutation.expression()))
    }
}

/// Compiles the expressions of one policy.
struct Compiler {
    faults: Faults,
    hook_type: HookType,
    /// Names for match conditions, which have no variables.
    plain: Environment,
    /// Names for everything else.
    environment: Environment,
}

impl Compiler {
    fn new(has_params: bool, hook_type: HookType, version: KubernetesVersion) -> Self {
        let plain = Environment::policy(has_params).of_version(version);
        Self { faults: Faults::default(), hook_type, environment: plain.clone(), plain }
    }

    /// Adds the fault of an expression that does not compile.
    fn report<T>(&mut self, path: String, compiled: Result<T, String>) -> Option<T> {
        const FIX: &str = "correct the expression; where an apiserver accepts it as it is, leave this policy there";
        let one_line = |why: &str| why.split_whitespace().collect::<Vec<_>>().join(" ");
        compiled
            .map_err(|why| self.faults.add(path, format!("cannot be evaluated: {}", one_line(&why)), UNDECIDED, FIX))
            .ok()
    }

    /// Compiles an expression that must not be empty.
    fn expression(
        &mut self,
        path: String,
        text: &str,
        environment: &Environment,
        expected: Expected,
    ) -> Option<Expression> {
        if !self.faults.requires(&path, text, WRITE_EXPRESSION) {
            return None;
        }
        self.report(path, Expression::compile(text, environment, expected))
    }

    fn conditions(&mut self, documents: &[NamedExpression]) -> Vec<Condition> {
        self.faults.bounds("matchConditions", documents.len(), MAX_MATCH_CONDITIONS, "join some of them with &&");
        let mut seen = HashSet::new();
        let mut conditions = Vec::new();
        for (at, NamedExpression { name, expression }) in documents.iter().enumerate().take(MAX_MATCH_CONDITIONS) {
            let path = format!("matchConditions[{at}].name");
            if !names::is_qualified_name(name) {
                let fix = "write a name of at most 63 letters, digits, -, _ and dots";
                self.faults.add(path, format!("{name:?} is not a name"), REFUSED, fix);
            } else if !seen.insert(name) {
                self.faults.add(path, format!("{name:?} is listed twice"), REFUSED, "rename one, or remove one");
            }
            let path = format!("matchConditions[{at}].expression");
            if self.faults.requires(&path, expression, WRITE_EXPRESSION) {
                let compiled = Condition::compile_in(name, expression, &self.plain);
                conditions.extend(self.report(path, compiled));
            }
        }
        conditions
    }

    fn variables(&mut self, documents: &[NamedExpression]) -> Vec<(Box<str>, Expression)> {
        let mut variables = Vec::with_capacity(documents.len());
        for (at, NamedExpression { name, expression }) in documents.iter().enumerate() {
            let environment = self.environment.clone();
            let path = format!("variables[{at}].expression");
            let compiled = self.expression(path, expression, &environment, Expected::Any);
            // As upstream, a variable at fault does not make those that use it faulty, too.
            let Some(variable) = compiled.or_else(|| Expression::compile("dyn(0)", &environment, Expected::Any).ok())
            else {
                continue;
            };
            if let Err(why) = self.environment.declare(name, &variable) {
                let fix = "write a name of letters, digits and _, once";
                self.faults.add(format!("variables[{at}].name"), why, UNDECIDED, fix);
            }
            variables.push((name.clone(), variable));
        }
        variables
    }

    fn validations(&mut self, documents: &[ValidationDocument]) -> Vec<Validation> {
        let environment = self.environment.clone();
        let of_messages = environment.clone().without_authorizer();
        let mut validations = Vec::with_capacity(documents.len());
        for (at, document) in documents.iter().enumerate() {
            let path = |field: &str| format!("validations[{at}].{field}");
            let ValidationDocument { expression, message, message_expression, reason } = document;
            let compiled = self.expression(path("expression"), expression, &environment, Expected::Bool);
            let message_expression = match message_expression.is_empty() {
                true => None,
                false => self.expression(path("messageExpression"), message_expression, &of_messages, Expected::String),
            };
            let trimmed = message.trim();
            if trimmed.is_empty() && !message.is_empty() {
                self.faults.add(path("message"), "is empty".to_owned(), REFUSED, "write a message, or remove it");
            }
            if trimmed.contains(['\n', '\r']) {
                self.faults.add(path("message"), "has line breaks".to_owned(), REFUSED, "write it in one line");
            }
            let known = |name: &str| Reason::ALL.into_iter().find(|known| known.as_str() == name);
            let reason = match reason {
                None => Reason::default(),
                Some(name) => known(name).unwrap_or_else(|| {
                    let fix = "write Invalid, Forbidden or RequestEntityTooLarge";
                    self.faults.add(path("reason"), format!("{name:?} is not a reason"), REFUSED, fix);
                    Reason::default()
                }),
            };
            let message = trimmed.into();
            validations.extend(compiled.map(|expression| Validation {
                expression,
                message,
                message_expression,
                reason,
            }));
        }
        validations
    }

    fn audit_annotations(&mut self, policy: &str, documents: &[AuditAnnotationDocument]) -> Vec<AuditAnnotation> {
        self.faults.bounds("auditAnnotations", documents.len(), MAX_AUDIT_ANNOTATIONS, "remove some of them");
        let environment = self.environment.clone();
        let mut seen = HashSet::new();
        let mut annotations = Vec::with_capacity(documents.len());
        for (at, AuditAnnotationDocument { key, value_expression }) in documents.iter().enumerate() {
            let path = |field: &str| format!("auditAnnotations[{at}].{field}");
            if !names::is_qualified_name(&format!("{policy}/{key}")) {
                let fix = "write a name of at most 63 letters, digits, -, _ and dots";
                self.faults.add(path("key"), format!("{key:?} is not a name"), REFUSED, fix);
            }
            if !seen.insert(key) {
                self.faults.add(path("key"), format!("{key:?} is listed twice"), REFUSED, "rename one, or remove one");
            }
            if value_expression.trim().len() > MAX_VALUE_EXPRESSION_BYTES {
                let what = format!("has more than {MAX_VALUE_EXPRESSION_BYTES} bytes");
                self.faults.add(path("valueExpression"), what, REFUSED, "write a shorter expression, or use variables");
                continue;
            }
            let path = path("valueExpression");
            let compiled = self.expression(path, value_expression, &environment, Expected::StringOrNull);
            annotations.extend(compiled.map(|value| AuditAnnotation { key: key.clone(), value }));
        }
        annotations
    }

    fn mutations(&mut self, documents: &[MutationDocument]) -> Vec<Mutation> {
        let environment = self.environment.clone().with_patch_types();
        let mut mutations = Vec::with_capacity(documents.len());
        for (at, document) in documents.iter().enumerate() {
            let path = |field: &str| format!("mutations[{at}].{field}.expression");
            mutations.extend(match document {
                MutationDocument::JsonPatch(text) => {
                    self.expression(path("jsonPatch"), text, &environment, Expected::JsonPatch).map(Mutation::JsonPatch)
                }
                MutationDocument::ApplyConfiguration(text) => self
                    .expression(path("applyConfiguration"), text, &environment, Expected::ObjectPatch)
                    .map(Mutation::ApplyConfiguration),
            });
        }
        mutations
    }

    /// Checks that the policy does something.
    fn check_lists(&mut self, document: &PolicyDocument) {
        const WHY: &str = "so the policy would do nothing";
        let is_empty = || "is empty".to_owned();
        if self.hook_type == HookType::Mutating {
            if document.mutations.is_empty() {
                self.faults.add("mutations", is_empty(), WHY, "write a mutation");
            }
        } else if document.validations.is_empty() && document.audit_annotations.is_empty() {
            self.faults.add("validations", is_empty(), WHY, "write a validation, or an audit annotation");
        }
    }
}
