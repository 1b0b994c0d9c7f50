//! The tree of a parsed expression, and the fault of a text that has none.

use std::{borrow::Cow, rc::Rc};

use crate::value::Literal;

/// Maximum depth of a tree, in which macros are expanded: an operand in as many operators as upstream allows.
const MAX_DEPTH: usize = 251;

pub(super) const CONDITIONAL: &str = "_?_:_";
pub(super) const LOGICAL_AND: &str = "_&&_";
pub(super) const LOGICAL_OR: &str = "_||_";
pub(super) const LOGICAL_NOT: &str = "!_";
pub(super) const NEGATE: &str = "-_";
pub(super) const ADD: &str = "_+_";
pub(super) const EQUALS: &str = "_==_";
pub(super) const INDEX: &str = "_[_]";
pub(super) const OPT_INDEX: &str = "_[?_]";
pub(super) const OPT_SELECT: &str = "_?._";
pub(super) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";

/// A node, which macros may share.
pub(super) type Tree = Rc<Expression>;

/// A node of the tree.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) expr: Expr,
    /// Its place in the text, in bytes; of an operator that of its sign.
    pub(super) at: usize,
    depth: usize,
}

#[derive(Debug)]
pub(super) enum Expr {
    Literal(Literal),
    /// A name, with a dot in front if it was written so.
    Ident(Box<str>),
    Select(Select),
    Call(Call),
    /// Items; each is true if it is optional.
    List(Vec<(Tree, bool)>),
    Map(Vec<MapEntry>),
    Message(Message),
    Comprehension(Box<Comprehension>),
}

/// `operand.field`, or the test whether it is there.
#[derive(Debug)]
pub(super) struct Select {
    pub(super) operand: Tree,
    pub(super) field: Box<str>,
    pub(super) test: bool,
}

/// `name(args)`, or `target.name(args)`; the operators are global functions.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: Cow<'static, str>,
    pub(super) target: Option<Tree>,
    pub(super) args: Vec<Tree>,
}

/// `key: value`, or `?key: value`.
#[derive(Debug)]
pub(super) struct MapEntry {
    pub(super) key: Tree,
    pub(super) value: Tree,
    pub(super) optional: bool,
}

/// `name{field: value}`
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: Box<str>,
    pub(super) fields: Vec<Field>,
}

/// `name: value`, or `?name: value`.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: Box<str>,
    pub(super) value: Tree,
    pub(super) optional: bool,
}

/// A loop over a list or map, which only macros write.
#[derive(Debug)]
pub(super) struct Comprehension {
    pub(super) range: Tree,
    pub(super) first: Box<str>,
    pub(super) second: Option<Box<str>>,
    pub(super) accumulator: Box<str>,
    pub(super) start: Tree,
    pub(super) go_on: Tree,
    pub(super) step: Tree,
    pub(super) result: Tree,
}

impl Expression {
    /// Returns the node, or `None` if it would be too deep.
    pub(super) fn new(at: usize, expr: Expr) -> Option<Tree> {
        let deepest = |trees: &mut dyn Iterator<Item = &Tree>| trees.map(|tree| tree.depth).max().unwrap_or(0);
        let below = match &expr {
            Expr::Literal(_) | Expr::Ident(_) => 0,
            Expr::Select(select) => select.operand.depth,
            Expr::Call(call) => deepest(&mut call.target.iter().chain(&call.args)),
            Expr::List(items) => deepest(&mut items.iter().map(|(item, _)| item)),
            Expr::Map(entries) => deepest(&mut entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
            Expr::Message(message) => deepest(&mut message.fields.iter().map(|field| &field.value)),
            Expr::Comprehension(fold) => {
                deepest(&mut [&fold.range, &fold.start, &fold.go_on, &fold.step, &fold.result].into_iter())
            }
        };
        (below < MAX_DEPTH).then(|| Rc::new(Self { expr, at, depth: below + 1 }))
    }

    /// Returns a path such as `a.b.c`; `None` for any other tree.
    pub(super) fn qualified(&self) -> Option<String> {
        match &self.expr {
            Expr::Ident(name) => Some(name.strip_prefix('.').unwrap_or(name).to_owned()),
            Expr::Select(select) if !select.test => Some(format!("{}.{}", select.operand.qualified()?, select.field)),
            _ => None,
        }
    }
}

/// A fault of the text.
#[derive(Debug)]
pub(super) struct Fault {
    /// Its place in bytes; `None` for the text as a whole.
    pub(super) at: Option<usize>,
    pub(super) what: String,
}

impl Fault {
    pub(super) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at: Some(at), what: what.into() }
    }

    pub(super) fn syntax(at: usize, what: impl std::fmt::Display) -> Self {
        Self::new(at, format!("Syntax error: {what}"))
    }

    pub(super) fn too_deep() -> Self {
        Self {
            at: None,
            what: "the expression is nested more than 250 deep, once its macros are written out".to_owned(),
        }
    }

    pub(super) fn message(&self, text: &str) -> String {
        let Some(at) = self.at else { return self.what.clone() };
        let before = text.get(..at).unwrap_or(text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        let (number, column) = (before.matches('\n').count() + 1, line.chars().count() + 1);
        format!("ERROR: <input>:{number}:{column}: {}", self.what)
    }
}
