//! Program: an expression checked and made ready to be evaluated.

use super::{functions::Function, pattern::Pattern, value::Literal};

/// A variable of every expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    Object,
    OldObject,
    Request,
    /// Declared, and null in every match condition. As upstream.
    NamespaceObject,
    Authorizer,
    /// `authorizer.requestResource`: one name.
    RequestResource,
}

/// One step.
#[derive(Debug)]
pub(super) enum Node {
    Literal(Literal),
    Variable(Variable),
    /// A variable of a macro.
    Local(usize),
    Select {
        operand: Box<Node>,
        field: Box<str>,
        optional: bool,
    },
    Has {
        operand: Box<Node>,
        field: Box<str>,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    Call {
        function: &'static Function,
        args: Box<[Node]>,
        /// Is it only known in the evaluation which of its signatures is meant?
        ambiguous: bool,
    },
    /// `matches` of a pattern that the expression spells out.
    Matches {
        text: Box<Node>,
        pattern: Box<Pattern>,
        /// Characters of the pattern as it was written.
        len: u64,
    },
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Ternary(Box<[Node; 3]>),
    NotStrictlyFalse(Box<Node>),
    /// `in` a list of primitive literals.
    InLiterals {
        sought: Box<Node>,
        list: Literal,
    },
    /// `or`, and `orValue` where a plain value comes behind.
    OptionalOr {
        first: Box<Node>,
        second: Box<Node>,
        plain: bool,
    },
    List(Box<[(Node, bool)]>),
    Map(Box<[(Node, Node, bool)]>),
    Fold(Box<Fold>),
    /// Accumulator with one more item, in place.
    Append {
        slot: usize,
        items: Box<[(Node, bool)]>,
    },
    /// Accumulator with an entry, or a map of entries, in place.
    Insert {
        slot: usize,
        key: Box<Node>,
        value: Option<Box<Node>>,
    },
}

/// A loop over a list or map.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Node,
    pub(super) first: usize,
    pub(super) second: Option<usize>,
    pub(super) gathered: usize,
    pub(super) start: Node,
    pub(super) go_on: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// An expression checked and made ready.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) root: Node,
    /// Most variables of macros alive at once.
    pub(super) slots: usize,
    /// Does it look at the object, or the old one?
    pub(super) reads_objects: bool,
    /// Does it ask what a user may do?
    pub(super) asks_authorizer: bool,
}

impl Node {
    /// A variable, or what lies in one. As upstream counts: the rest is not looked into for nothing.
    pub(super) fn is_attribute(&self) -> bool {
        matches!(self, Self::Variable(_) | Self::Local(_) | Self::Select { .. } | Self::Index { .. } | Self::Has { .. })
    }
}
