//! A checked expression, ready to be evaluated.

use std::cell::Cell;

use crate::{
    functions::{
        Function,
        regex::{self, Pattern},
    },
    meter::{Allowance, Fault, Meter},
    value::{Literal, Value},
};

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

    /// A call of a function. What literal arguments decide is prepared here.
    pub(super) fn call(function: &'static Function, mut nodes: Vec<Self>, ambiguous: bool) -> Result<Self, String> {
        if matches!(function.name, "matches" | "find" | "findAll")
            && let Some(Node::Literal(Literal::String(pattern))) = nodes.get(1)
        {
            let compiled = regex::compiled(pattern).map_err(|why| format!("invalid matches argument: {why}"))?;
            if function.name == "matches" {
                let len = pattern.chars().count() as u64;
                return Ok(Node::Matches { text: nodes.swap_remove(0).into(), pattern: compiled.into(), len });
            }
        }
        if function.name == "@in"
            && !ambiguous
            && let Some(Node::Literal(Literal::List(items))) = nodes.get(1)
        {
            // As upstream, which does not look at what is sought there.
            if items.is_empty() {
                return Ok(Node::Literal(Literal::Bool(false)));
            }
            if items.iter().all(Literal::is_primitive)
                && let (Some(Node::Literal(list)), Some(sought)) = (nodes.pop(), nodes.pop())
            {
                return Ok(Node::InLiterals { sought: sought.into(), list });
            }
        }
        Ok(Node::Call { function, args: nodes.into(), ambiguous })
    }

    /// The result of a conversion of a literal; `None` for other functions. A conversion that fails is refused, as
    /// upstream does.
    pub(super) fn folded(function: &Function, literal: &Literal) -> Result<Option<Self>, String> {
        const CONVERSIONS: [&str; 10] =
            ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];
        if !CONVERSIONS.contains(&function.name) {
            return Ok(None);
        }
        if function.name == "dyn" {
            return Ok(Some(Node::Literal(literal.clone())));
        }
        let steps = Cell::new(u64::MAX);
        let allowance = Allowance { steps: &steps, over: &|| false };
        let literal = match (function.call)(&[literal.into()], &Meter::new(&allowance)) {
            Ok(Value::Type(name)) => Literal::Type(name),
            Ok(Value::Bool(yes)) => Literal::Bool(yes),
            Ok(Value::Int(number)) => Literal::Int(number),
            Ok(Value::Uint(number)) => Literal::Uint(number),
            Ok(Value::Double(number)) => Literal::Double(number),
            Ok(Value::String(text)) => Literal::String(text.as_str().into()),
            Ok(Value::Bytes(bytes)) => Literal::Bytes(bytes.as_ref().into()),
            Ok(Value::Duration(span)) => Literal::Duration(span),
            Ok(Value::Timestamp(time)) => Literal::Timestamp(time),
            Ok(_) => return Ok(None),
            Err(Fault::Error(why)) => return Err(why.into_owned()),
            Err(Fault::Stop(stop)) => return Err(stop.text().to_owned()),
        };
        Ok(Some(Node::Literal(literal)))
    }
}
