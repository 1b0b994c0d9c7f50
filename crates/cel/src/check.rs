//! Check: types and names of a parsed expression, and the program to evaluate. Faults are refused here and never found
//! out by a request.

use cel::{
    common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, SelectExpr, operators},
    parser::Expression,
};

use super::{
    folds, functions, macros,
    names::{qualified, type_name, undeclared},
    parse::parse,
    program::{Node, Program, Variable},
    types::{Type, Unknowns},
    value::Literal,
};

/// Greatest depth of the tree with its macros expanded.
const DEEPEST: usize = 300;

/// Most nodes of the tree with its macros expanded: some of them repeat what they are given.
const MOST_NODES: usize = 20_000;

/// Compiles an expression that must say yes or no.
///
/// # Errors
/// The text says what is wrong with it.
pub(super) fn compile(text: &str) -> Result<Program, String> {
    let tree = parse(text)?;
    let mut checker = Checker::default();
    let (root, found) = checker.expression(&tree)?;
    match checker.unknowns.known(&found) {
        Type::Bool => Ok(Program {
            root,
            slots: checker.most_slots,
            reads_objects: checker.reads_objects,
            asks_authorizer: checker.asks_authorizer,
        }),
        other => Err(format!("must evaluate to bool but got {other}")),
    }
}

pub(super) type Checked = (Node, Type);

/// A variable of a macro, in scope.
pub(super) struct Local {
    pub(super) name: String,
    pub(super) slot: usize,
    of: Type,
}

#[derive(Default)]
pub(super) struct Checker {
    pub(super) unknowns: Unknowns,
    pub(super) locals: Vec<Local>,
    most_slots: usize,
    depth: usize,
    nodes: usize,
    reads_objects: bool,
    asks_authorizer: bool,
    /// Number of calls of `format` around this: items in them may be of several types.
    pub(super) formats: usize,
}

impl Checker {
    pub(super) fn expression(&mut self, tree: &Expression) -> Result<Checked, String> {
        self.enter()?;
        let checked = match &tree.expr {
            Expr::Unspecified => Err("a part of the expression is empty".to_owned()),
            Expr::Literal(literal) => Ok(self::literal(literal)),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(&list.elements, &list.optional_indices),
            Expr::Map(map) => self.map(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Struct(message) => Err(format!("messages ({}) cannot be made here", message.type_name)),
            Expr::Comprehension(fold) => self.comprehension(fold),
        };
        self.leave();
        checked
    }

    /// One node deeper.
    pub(super) fn enter(&mut self) -> Result<(), String> {
        self.depth += 1;
        self.nodes += 1;
        if self.depth > DEEPEST || self.nodes > MOST_NODES {
            return Err("the expression is too large, or nested too deep, once its macros are written out".to_owned());
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    fn ident(&mut self, name: &str) -> Result<Checked, String> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(local) = self.locals.iter().rev().find(|local| local.name == name) {
            return Ok((Node::Local(local.slot), local.of.clone()));
        }
        let variable = |variable, of: &str| Ok((Node::Variable(variable), Type::written(of)));
        match name {
            "object" => {
                self.reads_objects = true;
                variable(Variable::Object, "dyn")
            }
            "oldObject" => {
                self.reads_objects = true;
                variable(Variable::OldObject, "dyn")
            }
            "request" => variable(Variable::Request, "kubernetes.AdmissionRequest"),
            "namespaceObject" => variable(Variable::NamespaceObject, "kubernetes.Namespace"),
            "authorizer" => {
                self.asks_authorizer = true;
                variable(Variable::Authorizer, "kubernetes.authorization.Authorizer")
            }
            name => match type_name(name) {
                Some(name) => Ok((Node::Literal(Literal::Type(name)), Type::Meta)),
                None => Err(undeclared(name)),
            },
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Checked, String> {
        // The name of a type, and of one variable, has dots in it.
        if let Some(name) = qualified(&select.operand).map(|path| format!("{path}.{}", select.field))
            && !self.is_local(&name)
        {
            if let Some(known) = type_name(&name) {
                return Ok((Node::Literal(Literal::Type(known)), Type::Meta));
            }
            if name == "authorizer.requestResource" && !select.test {
                self.asks_authorizer = true;
                let of = Type::written("kubernetes.authorization.ResourceCheck");
                return Ok((Node::Variable(Variable::RequestResource), of));
            }
        }
        let (operand, of) = self.expression(&select.operand)?;
        let found = self.field(&of, &select.field)?;
        let (operand, field) = (Box::new(operand), select.field.as_str().into());
        if select.test {
            return Ok((Node::Has { operand, field }, Type::Bool));
        }
        Ok((Node::Select { operand, field, optional: false }, found))
    }

    /// The type of a field.
    fn field(&mut self, of: &Type, field: &str) -> Result<Type, String> {
        match self.unknowns.seen(of) {
            Type::Dyn => Ok(Type::Dyn),
            unknown @ Type::Var(_) => {
                self.unknowns.fits(&Type::Dyn, &unknown);
                Ok(Type::Dyn)
            }
            Type::Map(_, value) => Ok(Type::clone(&value)),
            Type::Optional(inner) => Ok(match self.field(&inner, field)? {
                optional @ Type::Optional(_) => optional,
                plain => Type::Optional(plain.into()),
            }),
            Type::Struct(_, fields) => {
                let found = fields.iter().find(|(name, _)| *name == field);
                found.map(|(_, of)| Type::written(of)).ok_or_else(|| format!("undefined field '{field}'"))
            }
            other => Err(format!("type '{}' does not support field selection", self.unknowns.known(&other))),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Result<Checked, String> {
        let CallExpr { func_name: name, target, args } = call;
        let Some(target) = target else { return self.global(name, args) };
        // `sets.contains(…)` is no member of anything.
        if let Some(path) = qualified(target)
            && !self.is_local(&path)
        {
            let whole = format!("{path}.{name}");
            if functions::find(&whole).is_some() {
                return self.global(&whole, args);
            }
        }
        if let Some(expanded) = macros::expanded(name, target, args) {
            return self.expression(&expanded?);
        }
        match (name.as_str(), args.as_slice()) {
            ("or" | "orValue", [other]) => return self.optional_or(target, other, name == "orValue"),
            ("format", [items]) => return self.format(target, items),
            _ => {}
        }
        let target = self.expression(target)?;
        self.function(name, Some(target), args)
    }

    fn global(&mut self, name: &str, args: &[Expression]) -> Result<Checked, String> {
        match (name, args) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => {
                let both = Box::new([self.boolean(a)?, self.boolean(b)?]);
                Ok((if name == operators::LOGICAL_AND { Node::And(both) } else { Node::Or(both) }, Type::Bool))
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let condition = self.boolean(condition)?;
                let ((yes, a), (no, b)) = (self.expression(yes)?, self.expression(no)?);
                let found = self.joined(&a, &b).ok_or_else(|| self.no_overload("_?_:_", &[Type::Bool, a, b]))?;
                Ok((Node::Ternary(Box::new([condition, yes, no])), found))
            }
            (operators::NOT_STRICTLY_FALSE, [condition]) => {
                Ok((Node::NotStrictlyFalse(self.boolean(condition)?.into()), Type::Bool))
            }
            (operators::INDEX | operators::OPT_INDEX, [operand, index]) => {
                self.index(operand, index, name == operators::OPT_INDEX)
            }
            (operators::OPT_SELECT, [operand, field]) => self.optional_select(operand, field),
            ("cel.@mapInsert", [map, rest @ ..]) => self.insert(map, rest),
            _ => self.function(name, None, args),
        }
    }

    fn boolean(&mut self, tree: &Expression) -> Result<Node, String> {
        let (node, found) = self.expression(tree)?;
        if self.unknowns.fits(&found, &Type::Bool) {
            return Ok(node);
        }
        Err(format!("expected type 'bool' but found '{}'", self.unknowns.known(&found)))
    }

    /// One type for both; `None` where there is none.
    fn joined(&mut self, a: &Type, b: &Type) -> Option<Type> {
        let both = Type::Var(self.unknowns.add(1));
        let fits = self.unknowns.fits(a, &both) && self.unknowns.fits(b, &both);
        fits.then(|| self.unknowns.seen(&both))
    }

    fn optional_select(&mut self, operand: &Expression, field: &Expression) -> Result<Checked, String> {
        let (operand, of) = self.expression(operand)?;
        let Expr::Literal(LiteralValue::String(field)) = &field.expr else {
            return Err("an optional field must be a name".to_owned());
        };
        let found = match self.field(&of, field.inner())? {
            optional @ Type::Optional(_) => optional,
            plain => Type::Optional(plain.into()),
        };
        Ok((Node::Select { operand: operand.into(), field: field.inner().into(), optional: true }, found))
    }

    fn index(&mut self, operand: &Expression, index: &Expression, optional: bool) -> Result<Checked, String> {
        let ((operand, of), (index, by)) = (self.expression(operand)?, self.expression(index)?);
        let (inner, is_optional) = match self.unknowns.seen(&of) {
            Type::Optional(inner) => (self.unknowns.seen(&inner), true),
            plain => (plain, false),
        };
        let found = match &inner {
            Type::Dyn => Some(Type::Dyn),
            Type::Var(_) => self.unknowns.fits(&Type::Dyn, &inner).then_some(Type::Dyn),
            Type::List(item) => self.unknowns.fits(&by, &Type::Int).then(|| Type::clone(item)),
            Type::Map(key, value) => self.unknowns.fits(&by, key).then(|| Type::clone(value)),
            _ => None,
        };
        let found = found.ok_or_else(|| self.no_overload("_[_]", &[of, by]))?;
        let found = if optional || is_optional { Type::Optional(found.into()) } else { found };
        Ok((Node::Index { operand: operand.into(), index: index.into(), optional }, found))
    }

    fn optional_or(&mut self, first: &Expression, second: &Expression, plain: bool) -> Result<Checked, String> {
        let ((first, a), (second, b)) = (self.expression(first)?, self.expression(second)?);
        let inner = Type::Var(self.unknowns.add(1));
        let wanted = Type::Optional(inner.clone().into());
        let behind = if plain { inner.clone() } else { wanted.clone() };
        if !self.unknowns.fits(&a, &wanted) || !self.unknowns.fits(&b, &behind) {
            return Err(self.no_overload(if plain { "orValue" } else { "or" }, &[a, b]));
        }
        Ok((Node::OptionalOr { first: first.into(), second: second.into(), plain }, behind))
    }

    fn comprehension(&mut self, fold: &ComprehensionExpr) -> Result<Checked, String> {
        let (range, of) = self.expression(&fold.iter_range)?;
        let (first, second) = folds::variables(&mut self.unknowns, &of, fold.iter_var2.is_some())?;
        let (start, gathered_type) = self.expression(&fold.accu_init)?;
        let outside = self.locals.len();
        let gathered = self.local(&fold.accu_var, gathered_type.clone());
        let first = self.local(&fold.iter_var, first);
        let second = fold.iter_var2.as_ref().zip(second).map(|(name, of)| self.local(name, of));
        let go_on = self.boolean(&fold.loop_cond)?;
        let (step, step_type) = self.expression(&fold.loop_step)?;
        if !self.unknowns.fits(&step_type, &gathered_type) {
            let (wanted, found) = (self.unknowns.known(&gathered_type), self.unknowns.known(&step_type));
            return Err(format!("expected type '{wanted}' but found '{found}'"));
        }
        // The result sees what was gathered, and no variable of the loop.
        self.locals.truncate(outside + 1);
        let (result, result_type) = self.expression(&fold.result)?;
        self.locals.truncate(outside);
        let fold = super::program::Fold { range, first, second, gathered, start, go_on, step, result };
        Ok((Node::Fold(Box::new(fold)), result_type))
    }

    fn local(&mut self, name: &str, of: Type) -> usize {
        let slot = self.locals.len();
        self.locals.push(Local { name: name.to_owned(), slot, of });
        self.most_slots = self.most_slots.max(slot + 1);
        slot
    }

    fn is_local(&self, path: &str) -> bool {
        let first = path.split('.').next().unwrap_or(path);
        self.locals.iter().any(|local| local.name == first)
    }

    pub(super) fn no_overload(&self, name: &str, types: &[Type]) -> String {
        let types: Vec<_> = types.iter().map(|of| self.unknowns.known(of).to_string()).collect();
        format!("found no matching overload for '{name}' applied to '({})'", types.join(", "))
    }
}

fn literal(literal: &LiteralValue) -> Checked {
    let (literal, of) = match literal {
        LiteralValue::Boolean(yes) => (Literal::Bool(*yes.inner()), Type::Bool),
        LiteralValue::Bytes(bytes) => (Literal::Bytes(bytes.inner().into()), Type::Bytes),
        LiteralValue::Double(number) => (Literal::Double(*number.inner()), Type::Double),
        LiteralValue::Int(number) => (Literal::Int(*number.inner()), Type::Int),
        LiteralValue::Null => (Literal::Null, Type::Null),
        LiteralValue::String(text) => (Literal::String(text.inner().into()), Type::String),
        LiteralValue::UInt(number) => (Literal::Uint(*number.inner()), Type::Uint),
    };
    (Node::Literal(literal), of)
}
