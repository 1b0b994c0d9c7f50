//! A checked expression, ready to be evaluated.

use std::cell::Cell;

use crate::{
    compatibility::{Change, KubernetesVersion},
    functions::{
        Cost, Function,
        regex::{self, Pattern},
    },
    meter::{Allowance, Fault, Memory, Meter},
    tree::LOGICAL_NOT,
    value::{Literal, Value},
};

/// A variable of every expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    Object,
    OldObject,
    Request,
    /// Null in match conditions, as upstream.
    NamespaceObject,
    /// The parameters of a policy.
    Params,
    Authorizer,
    /// `authorizer.requestResource`, which is one name.
    RequestResource,
}

/// Use of a variable of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariableAccess {
    /// `variables.name`
    Value,
    /// `variables.?name`
    Optional,
    /// `has(variables.name)`
    Presence,
}

/// One node of a program.
#[derive(Debug)]
pub(super) enum Node {
    Literal(Literal),
    Variable(Variable),
    /// A variable of a policy, by its index.
    Composed(usize, VariableAccess),
    /// A macro variable, by its slot.
    Local(usize),
    /// `operand.field`, `operand.?field`, or several of them in a row.
    Select {
        operand: Box<Node>,
        path: Box<[Field]>,
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
        /// True if several signatures fit, so that only the evaluation selects one.
        ambiguous: bool,
    },
    /// `matches` with a literal pattern.
    Matches {
        text: Box<Node>,
        pattern: Box<Pattern>,
        /// Number of characters of the pattern, as written.
        len: u64,
    },
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Ternary(Box<[Node; 3]>),
    NotStrictlyFalse(Box<Node>),
    /// `in` with a list of primitive literals.
    InLiterals {
        sought: Box<Node>,
        list: Literal,
    },
    /// `or`; `orValue` if `plain`, whose second operand is no optional.
    OptionalOr {
        first: Box<Node>,
        second: Box<Node>,
        plain: bool,
    },
    List(Box<[(Node, bool)]>),
    Map(Box<[(Node, Node, bool)]>),
    /// A message of this name; each field is true if it is optional.
    Message(Box<str>, Box<[(Box<str>, Node, bool)]>),
    Fold(Box<Fold>),
    Quantifier(Box<Quantifier>),
    /// Appends items to an accumulator in place.
    Append {
        slot: usize,
        items: Box<[(Node, bool)]>,
    },
    /// Inserts an entry, or a map of entries, into an accumulator in place.
    Insert {
        slot: usize,
        key: Box<Node>,
        value: Option<Box<Node>>,
    },
}

/// A field that is selected; `.?` if it is optional.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: Box<str>,
    pub(super) optional: bool,
}

/// The values that a loop goes through, and the slots of its variables.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) of: Node,
    pub(super) first: usize,
    pub(super) second: Option<usize>,
}

/// `all` or `exists`: a loop whose accumulator is a bool.
#[derive(Debug)]
pub(super) struct Quantifier {
    pub(super) range: Range,
    pub(super) holds: Node,
    /// The value of `holds` that ends the loop: true for `exists`.
    pub(super) decides: bool,
}

/// A loop over a list or map.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Range,
    pub(super) accumulator: usize,
    pub(super) start: Node,
    pub(super) go_on: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// A checked expression that can be evaluated.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) root: Node,
    /// Maximum number of live macro variables.
    pub(super) slots: usize,
    /// What it uses.
    pub(super) uses: Uses,
    /// Depth of the tree, and of the variables that it uses.
    pub(super) depth: usize,
    /// The version by whose rules it is evaluated.
    pub(super) version: KubernetesVersion,
    /// What of it is otherwise in another version.
    pub(super) changes: Box<[&'static Change]>,
}

/// What an expression uses, itself or by the variables that it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    /// `object` or `oldObject`.
    pub(super) objects: bool,
    pub(super) authorizer: bool,
    /// `namespaceObject`.
    pub(super) namespace: bool,
    pub(super) params: bool,
}

impl Uses {
    /// Adds what another expression uses.
    pub(super) fn add(&mut self, other: Self) {
        self.objects |= other.objects;
        self.authorizer |= other.authorizer;
        self.namespace |= other.namespace;
        self.params |= other.params;
    }
}

impl Fold {
    /// Returns the same loop in a form that is evaluated faster, if it is one of `all` or `exists`, which alone are
    /// written so.
    pub(super) fn reduced(self) -> Node {
        let is_accumulator = |node: &Node| matches!(node, Node::Local(slot) if *slot == self.accumulator);
        let decides = match (&self.start, &self.go_on, &self.step) {
            (Node::Literal(Literal::Bool(true)), Node::NotStrictlyFalse(condition), Node::And(both))
                if is_accumulator(condition) && is_accumulator(&both[0]) =>
            {
                Some(false)
            }
            (Node::Literal(Literal::Bool(false)), Node::NotStrictlyFalse(condition), Node::Or(both))
                if is_accumulator(&both[0])
                    && matches!(&**condition, Node::Call { function, args, .. }
                        if function.name == LOGICAL_NOT && args.first().is_some_and(is_accumulator)) =>
            {
                Some(true)
            }
            _ => None,
        };
        match (decides.filter(|_| is_accumulator(&self.result)), self) {
            (Some(decides), Self { range, step: Node::And(both) | Node::Or(both), .. }) => {
                let [_, holds] = *both;
                Node::Quantifier(Box::new(Quantifier { range, holds, decides }))
            }
            (_, fold) => Node::Fold(Box::new(fold)),
        }
    }
}

impl Node {
    /// Returns the selection of a field of a value.
    pub(super) fn select(operand: Self, field: Field) -> Self {
        match operand {
            Self::Select { operand, path } => Self::Select { operand, path: path.into_iter().chain([field]).collect() },
            operand => Self::Select { operand: operand.into(), path: [field].into() },
        }
    }

    /// Returns true if this is a variable or a part of one. As upstream, a selection from any other value costs more.
    pub(super) fn is_attribute(&self) -> bool {
        matches!(
            self,
            Self::Variable(_) | Self::Composed(..) | Self::Local(_) | Self::Select { .. } | Self::Index { .. }
        )
    }

    /// Returns true if the evaluation of this pays one for what a selection begins with. As a branch of a conditional
    /// or as an index, it does not cost that.
    pub(super) fn has_base_cost(&self) -> bool {
        match self {
            Self::Select { operand, .. } | Self::Index { operand, .. } if operand.is_attribute() => {
                operand.has_base_cost()
            }
            Self::Select { operand, .. } | Self::Index { operand, .. } => !matches!(**operand, Self::Ternary(_)),
            node => node.is_attribute(),
        }
    }

    /// Returns true if this is the request, or a part of it.
    pub(super) fn is_part_of_request(&self) -> bool {
        match self {
            Self::Variable(Variable::Request) => true,
            Self::Select { operand, .. } | Self::Index { operand, .. } => operand.is_part_of_request(),
            _ => false,
        }
    }

    /// Returns a call of a function. Prepares literal arguments, such as patterns.
    pub(super) fn call(function: &'static Function, mut nodes: Vec<Self>, ambiguous: bool) -> Result<Self, String> {
        if matches!(function.name, "matches" | "find" | "findAll")
            && let Some(Node::Literal(Literal::String(pattern))) = nodes.get(1)
        {
            let compiled = regex::compiled(pattern).map_err(|why| format!("invalid matches argument: {why}"))?;
            if function.name == "matches" && function.cost == Cost::Pattern {
                let len = pattern.chars().count() as u64;
                return Ok(Node::Matches { text: nodes.swap_remove(0).into(), pattern: compiled.into(), len });
            }
        }
        if function.name == "@in"
            && !ambiguous
            && let Some(Node::Literal(Literal::List(items))) = nodes.get(1)
        {
            // As upstream, the sought value is not evaluated.
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

    /// Returns the result of a conversion of a literal; `None` for other functions. As upstream, a failed conversion is
    /// an error.
    pub(super) fn fold_conversion(function: &Function, literal: &Literal) -> Result<Option<Self>, String> {
        const CONVERSIONS: [&str; 10] =
            ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];
        if !CONVERSIONS.contains(&function.name) {
            return Ok(None);
        }
        if function.name == "dyn" {
            return Ok(Some(Node::Literal(literal.clone())));
        }
        let steps = Cell::new(u64::MAX);
        let (allowance, memory) = (Allowance { steps: &steps, over: &|| false }, Memory::default());
        let literal =
            match (function.call)(&[literal.into()], &Meter::new(&allowance, &memory, KubernetesVersion::default())) {
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
