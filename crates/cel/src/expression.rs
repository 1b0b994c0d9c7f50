//! A compiled expression of a policy.

use crate::{
    authorization::AccessCheck,
    check,
    compatibility::Change,
    environment::{Declaration, Environment, Expected, RESERVED_NAMES, is_escaped},
    meter::{Fault, Stop},
    program::{Program, Uses},
    types::Type,
};

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    text: Box<str>,
    pub(super) program: Program,
    of: Type,
    pub(super) expected: Expected,
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The message describes the fault of the expression.
    pub fn compile(text: &str, environment: &Environment, expected: Expected) -> Result<Self, String> {
        let (program, of) = check::compile(text, environment, expected)?;
        Ok(Self { text: text.into(), program, of, expected })
    }

    /// Returns the expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns what of the expression is otherwise in another version of Kubernetes.
    pub fn changes(&self) -> &[&'static Change] {
        &self.program.changes
    }

    /// Returns true if the expression, or a variable that it uses, uses `object` or `oldObject`.
    pub fn reads_objects(&self) -> bool {
        self.program.uses.objects
    }

    /// Returns true if the expression, or a variable that it uses, uses `authorizer`.
    pub fn uses_authorizer(&self) -> bool {
        self.program.uses.authorizer
    }

    /// Returns true if the expression, or a variable that it uses, uses `namespaceObject`.
    pub fn uses_namespace(&self) -> bool {
        self.program.uses.namespace
    }

    /// Returns true if the expression, or a variable that it uses, uses `params`.
    pub fn uses_params(&self) -> bool {
        self.program.uses.params
    }

    /// Returns the type of a variable with this expression, what it uses, and its depth.
    pub(super) fn declaration(&self) -> (Type, Uses, usize) {
        (self.of.of_variable(), self.program.uses, self.program.depth)
    }
}

impl Environment {
    /// Declares `variables.NAME` for the expressions that are compiled from now on. The evaluator must get the
    /// variables in the order of their declarations.
    ///
    /// # Errors
    /// The name is not valid, or is declared. The text says which.
    pub fn declare(&mut self, name: &str, variable: &Expression) -> Result<(), String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) || !name.bytes().all(is_name) {
            return Err(format!("name is not a valid CEL identifier: {name:?}"));
        }
        if RESERVED_NAMES.contains(&name) {
            return Err(format!("name is a reserved word: {name:?}"));
        }
        if is_escaped(name) {
            return Err(format!(
                "the name {name:?} contains `__word__`, which kube-apiserver unescapes: rename the variable"
            ));
        }
        if self.index_of(name).is_some() {
            return Err(format!("the variable {name:?} is declared twice"));
        }
        let (of, uses, depth) = variable.declaration();
        self.variables.push(Declaration { name: name.into(), of, uses, depth });
        Ok(())
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.expected) == (&other.text, other.expected)
    }
}

impl Eq for Expression {}

/// The value of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A bool.
    Bool(bool),
    /// A string.
    String(String),
    /// Null.
    Null,
    /// Any other value, as JSON text: the fields of an `Object`, or a JSON patch.
    Json(String),
}

/// The reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The expression results in this error. The message is in upstream's words, and does not name the expression.
    Error(String),
    /// The value of a mutation cannot be written as JSON. The message is the whole one that upstream gives.
    Conversion(String),
    /// The evaluation takes more steps than allowed. Evaluate again with a larger allowance, on a thread that may
    /// block.
    TooLong,
    /// An access check has no decision yet. Evaluate again with one.
    Undecided(Box<AccessCheck>),
    /// The deadline has passed.
    Deadline,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Error(why) => Self::Error(why.into_owned()),
            Fault::Stop(Stop::TooLong) => Self::TooLong,
            Fault::Stop(Stop::Undecided(check)) => Self::Undecided(check),
            Fault::Stop(Stop::Deadline) => Self::Deadline,
            Fault::Stop(stop @ Stop::Cost) => Self::Error(stop.text().to_owned()),
        }
    }
}

/// The result of an evaluation, and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The value, or the reason why there is none.
    pub result: Result<Output, Failure>,
    /// The cost of the expression, without its variables.
    pub cost: u64,
    /// The cost of the variables that were first used by this expression. As in upstream, the caller subtracts it from
    /// the budget before `cost`.
    pub variables_cost: u64,
}
