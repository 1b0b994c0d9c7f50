//! Expands macros to folds and calls. Sources: `parser/macro.go`, `cel/library.go` and `ext/` of cel-go.

use crate::{
    tree::{
        ADD, CONDITIONAL, Call, Comprehension, EQUALS, Expr, Expression, Fault, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR,
        NOT_STRICTLY_FALSE, Select, Tree,
    },
    value::Literal,
};

/// Name of the accumulator of a fold.
pub(super) const ACCUMULATOR: &str = "@result";

/// Name of the variable of a fold that has none.
const UNUSED: &str = "#unused";

/// Name of the list that `sortBy` sorts.
const SORTED: &str = "@__sortBy_input__";

type Expanded = Result<Tree, Fault>;

/// Expands a call of a macro; `None` if it is no macro.
pub(super) fn expand(at: usize, name: &str, target: Option<&Tree>, args: &[Tree]) -> Option<Expanded> {
    let new = Builder { at };
    let Some(target) = target else {
        return match (name, args) {
            ("has", [field]) => Some(new.has(field)),
            _ => None,
        };
    };
    Some(match (name, args) {
        ("all", [a, holds]) => one(a, QUANTIFIER).and_then(|names| new.all(target, names, holds)),
        ("all", [a, b, holds]) => two(a, b).and_then(|names| new.all(target, names, holds)),
        ("exists", [a, holds]) => one(a, QUANTIFIER).and_then(|names| new.exists(target, names, holds)),
        ("exists", [a, b, holds]) => two(a, b).and_then(|names| new.exists(target, names, holds)),
        ("existsOne" | "exists_one", [a, holds]) => {
            one(a, QUANTIFIER).and_then(|names| new.exists_one(target, names, holds))
        }
        ("existsOne" | "exists_one", [a, b, holds]) => two(a, b).and_then(|names| new.exists_one(target, names, holds)),
        ("map", [a, item]) => one(a, TRANSFORMATION).and_then(|names| new.list(target, names, None, item)),
        ("map", [a, filter, item]) => {
            one(a, TRANSFORMATION).and_then(|names| new.list(target, names, Some(filter), item))
        }
        ("filter", [a, filter]) => one(a, TRANSFORMATION).and_then(|names| new.list(target, names, Some(filter), a)),
        ("transformList", [a, b, item]) => two(a, b).and_then(|names| new.list(target, names, None, item)),
        ("transformList", [a, b, filter, item]) => {
            two(a, b).and_then(|names| new.list(target, names, Some(filter), item))
        }
        ("transformMap", [a, b, rest @ .., value]) if rest.len() < 2 => two(a, b).and_then(|names| {
            let entry = vec![new.ident(&names.0)?, value.clone()];
            new.map(target, names, rest.first(), entry)
        }),
        ("transformMapEntry", [a, b, rest @ .., entry]) if rest.len() < 2 => {
            two(a, b).and_then(|names| new.map(target, names, rest.first(), vec![entry.clone()]))
        }
        ("optMap", [name, value]) => simple(name, "optMap() variable name must be a simple identifier")
            .and_then(|name| new.when_there(target, new.call("optional.of", [new.bind_value(&name, target, value)?])?)),
        ("optFlatMap", [name, value]) => simple(name, "optFlatMap() variable name must be a simple identifier")
            .and_then(|name| new.when_there(target, new.bind_value(&name, target, value)?)),
        ("sortBy", [a, key]) => one(a, TRANSFORMATION).and_then(|names| {
            let keys = new.list(&new.ident(SORTED)?, names, None, key)?;
            new.bind(SORTED, target.clone(), new.member(&new.ident(SORTED)?, "@sortByAssociatedKeys", [keys])?)
        }),
        _ => return None,
    })
}

/// Messages for an argument that is no name.
const QUANTIFIER: &str = "argument must be a simple name";
const TRANSFORMATION: &str = "argument is not an identifier";

/// The names of the variables of a fold.
type Names = (Box<str>, Option<Box<str>>);

fn simple(name: &Tree, otherwise: &'static str) -> Result<Box<str>, Fault> {
    match &name.expr {
        Expr::Ident(name) => Ok(name.trim_start_matches('.').into()),
        _ => Err(Fault::new(name.at, otherwise)),
    }
}

fn variable(name: &Tree, otherwise: &'static str) -> Result<Box<str>, Fault> {
    match simple(name, otherwise)? {
        known if *known == *"__result__" => {
            Err(Fault::new(name.at, "iteration variable overwrites accumulator variable"))
        }
        name => Ok(name),
    }
}

fn one(name: &Tree, otherwise: &'static str) -> Result<Names, Fault> {
    Ok((variable(name, otherwise)?, None))
}

fn two(first: &Tree, second: &Tree) -> Result<Names, Fault> {
    let (a, b) = (variable(first, QUANTIFIER)?, variable(second, QUANTIFIER)?);
    if a == b {
        return Err(Fault::new(second.at, format!("duplicate variable name: {a}")));
    }
    Ok((a, Some(b)))
}

/// Builds the nodes of an expansion, all of which are at the place of the call.
struct Builder {
    at: usize,
}

impl Builder {
    fn node(&self, expr: Expr) -> Expanded {
        Expression::new(self.at, expr).ok_or_else(Fault::too_deep)
    }

    fn ident(&self, name: &str) -> Expanded {
        self.node(Expr::Ident(name.into()))
    }

    fn accumulator(&self) -> Expanded {
        self.ident(ACCUMULATOR)
    }

    fn literal(&self, literal: Literal) -> Expanded {
        self.node(Expr::Literal(literal))
    }

    fn call(&self, name: &'static str, args: impl Into<Vec<Tree>>) -> Expanded {
        self.node(Expr::Call(Call { name: name.into(), target: None, args: args.into() }))
    }

    fn member(&self, target: &Tree, name: &'static str, args: impl Into<Vec<Tree>>) -> Expanded {
        self.node(Expr::Call(Call { name: name.into(), target: Some(target.clone()), args: args.into() }))
    }

    fn has(&self, field: &Tree) -> Expanded {
        match &field.expr {
            Expr::Select(Select { operand, field, .. }) => {
                self.node(Expr::Select(Select { operand: operand.clone(), field: field.clone(), test: true }))
            }
            _ => Err(Fault::new(field.at, "invalid argument to has() macro")),
        }
    }

    fn fold(
        &self,
        range: &Tree,
        (first, second): Names,
        start: Expr,
        go_on: Tree,
        step: Tree,
        result: Tree,
    ) -> Expanded {
        let (range, accumulator, start) = (range.clone(), ACCUMULATOR.into(), self.node(start)?);
        let fold = Comprehension { range, first, second, accumulator, start, go_on, step, result };
        self.node(Expr::Comprehension(Box::new(fold)))
    }

    fn all(&self, range: &Tree, names: Names, holds: &Tree) -> Expanded {
        let go_on = self.call(NOT_STRICTLY_FALSE, [self.accumulator()?])?;
        let step = self.call(LOGICAL_AND, [self.accumulator()?, holds.clone()])?;
        self.fold(range, names, Expr::Literal(Literal::Bool(true)), go_on, step, self.accumulator()?)
    }

    fn exists(&self, range: &Tree, names: Names, holds: &Tree) -> Expanded {
        let go_on = self.call(NOT_STRICTLY_FALSE, [self.call(LOGICAL_NOT, [self.accumulator()?])?])?;
        let step = self.call(LOGICAL_OR, [self.accumulator()?, holds.clone()])?;
        self.fold(range, names, Expr::Literal(Literal::Bool(false)), go_on, step, self.accumulator()?)
    }

    fn exists_one(&self, range: &Tree, names: Names, holds: &Tree) -> Expanded {
        let more = self.call(ADD, [self.accumulator()?, self.literal(Literal::Int(1))?])?;
        let step = self.call(CONDITIONAL, [holds.clone(), more, self.accumulator()?])?;
        let result = self.call(EQUALS, [self.accumulator()?, self.literal(Literal::Int(1))?])?;
        let always = self.literal(Literal::Bool(true))?;
        self.fold(range, names, Expr::Literal(Literal::Int(0)), always, step, result)
    }

    /// Builds a list of items.
    fn list(&self, range: &Tree, names: Names, filter: Option<&Tree>, item: &Tree) -> Expanded {
        let more = self.call(ADD, [self.accumulator()?, self.node(Expr::List(vec![(item.clone(), false)]))?])?;
        self.filtered(range, names, Expr::List(Vec::new()), filter, more)
    }

    /// Builds a map: of keys and values, or of the entries of maps.
    fn map(&self, range: &Tree, names: Names, filter: Option<&Tree>, mut entry: Vec<Tree>) -> Expanded {
        entry.insert(0, self.accumulator()?);
        let more = self.call("cel.@mapInsert", entry)?;
        self.filtered(range, names, Expr::Map(Vec::new()), filter, more)
    }

    fn filtered(&self, range: &Tree, names: Names, start: Expr, filter: Option<&Tree>, more: Tree) -> Expanded {
        let step = match filter {
            Some(filter) => self.call(CONDITIONAL, [filter.clone(), more, self.accumulator()?])?,
            None => more,
        };
        self.fold(range, names, start, self.literal(Literal::Bool(true))?, step, self.accumulator()?)
    }

    /// Binds one more variable in an expression.
    fn bind(&self, name: &str, value: Tree, result: Tree) -> Expanded {
        self.node(Expr::Comprehension(Box::new(Comprehension {
            range: self.node(Expr::List(Vec::new()))?,
            first: UNUSED.into(),
            second: None,
            accumulator: name.into(),
            start: value,
            go_on: self.literal(Literal::Bool(false))?,
            step: self.ident(name)?,
            result,
        })))
    }

    fn bind_value(&self, name: &str, target: &Tree, result: &Tree) -> Expanded {
        self.bind(name, self.member(target, "value", [])?, result.clone())
    }

    fn when_there(&self, target: &Tree, then: Tree) -> Expanded {
        self.call(CONDITIONAL, [self.member(target, "hasValue", [])?, then, self.call("optional.none", [])?])
    }
}
