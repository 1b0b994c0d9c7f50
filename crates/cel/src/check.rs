//! Checks the types and names of a parsed expression, and builds the program. Rejects faults before any request.

use std::sync::Arc;

use crate::{
    compatibility::{self, Change, Effect},
    environment::{Environment, Expected},
    functions::{
        self, Function,
        format::{self, Verb},
    },
    lexer::{Kind, tokens},
    macros,
    parse::parse,
    program::{Field, Fold, Node, Program, Range, Uses, Variable, VariableAccess},
    time::Zone,
    tree::{
        CONDITIONAL, Call, Comprehension, Expr, Expression, INDEX, LOGICAL_AND, LOGICAL_OR, MapEntry, Message,
        NOT_STRICTLY_FALSE, OPT_INDEX, OPT_SELECT, Select, Tree,
    },
    types::{self, Type, Unknowns, type_name},
    value::{Literal, Value},
};

/// Maximum depth of an expression and the variables that it uses, which are evaluated within it.
const MAX_COMPOSED_DEPTH: usize = 300;

/// Maximum number of nodes after the expansion of macros, some of which repeat their arguments.
const MAX_EXPANDED_NODES: usize = 20_000;

/// Compiles an expression. Returns its program and its type.
///
/// # Errors
/// The text describes the fault.
pub(super) fn compile(text: &str, environment: &Environment, expected: Expected) -> Result<(Program, Type), String> {
    let tree = parse(text)?;
    let mut checker = Checker {
        environment,
        unknowns: Unknowns::default(),
        locals: Vec::new(),
        max_slots: 0,
        depth: 0,
        max_depth: 0,
        variables_depth: 0,
        nodes: 0,
        uses: Uses::default(),
        formats: 0,
        changes: Vec::new(),
    };
    if has_backquoted_name(text) {
        checker.note(&compatibility::BACKQUOTES)?;
    }
    let (root, found) = checker.expression(&tree)?;
    let found = checker.unknowns.resolve_all(&found);
    expected.check(&found)?;
    let depth = checker.max_depth + checker.variables_depth;
    if depth > MAX_COMPOSED_DEPTH {
        return Err(format!(
            "the expression and the variables that it uses are nested more than {MAX_COMPOSED_DEPTH} deep"
        ));
    }
    let Checker { max_slots: slots, uses, changes, .. } = checker;
    Ok((Program { root, slots, uses, depth, version: environment.version, changes: changes.into() }, found))
}

type TypedNode = (Node, Type);

/// A checked argument, and a type in it that cannot be formatted as text.
type Argument = (TypedNode, Option<Type>);

/// A variable of a macro in scope.
struct Local {
    name: String,
    slot: usize,
    of: Type,
}

struct Checker<'e> {
    environment: &'e Environment,
    unknowns: Unknowns,
    locals: Vec<Local>,
    max_slots: usize,
    depth: usize,
    max_depth: usize,
    /// Depth of the deepest variable that the expression uses.
    variables_depth: usize,
    nodes: usize,
    uses: Uses,
    /// Number of enclosing calls of `format`: items in these may be of several types.
    formats: usize,
    /// What is otherwise in another version.
    changes: Vec<&'static Change>,
}

impl Checker<'_> {
    fn expression(&mut self, tree: &Expression) -> Result<TypedNode, String> {
        self.enter()?;
        let checked = match &tree.expr {
            Expr::Literal(literal) => Ok((Node::Literal(literal.clone()), type_of(literal))),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(entries),
            Expr::Message(message) => self.message(message),
            Expr::Comprehension(fold) => self.comprehension(fold),
        };
        self.leave();
        checked
    }

    /// Counts one more node, one level deeper.
    fn enter(&mut self) -> Result<(), String> {
        self.depth += 1;
        self.max_depth = self.max_depth.max(self.depth);
        self.nodes += 1;
        if self.nodes > MAX_EXPANDED_NODES {
            return Err("the expression is too large, once its macros are written out".to_owned());
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn ident(&mut self, name: &str) -> Result<TypedNode, String> {
        let global = name.strip_prefix('.');
        let name = global.unwrap_or(name);
        if let Some(local) = self.locals.iter().rev().find(|local| local.name == name) {
            if global.is_none() || self.environment.version < compatibility::LEADING_DOT.since {
                let mut checked = (Node::Local(local.slot), local.of.clone());
                // As upstream, a type is known by its name, whatever the variable holds.
                if self.unknowns.resolve_outer(&local.of) == Type::Meta {
                    let known = type_name(name).ok_or_else(|| format!("reference to undefined type: {name}"))?;
                    checked.0 = Node::Literal(Literal::Type(known));
                }
                return global.map_or(Ok(()), |_| self.note(&compatibility::LEADING_DOT)).map(|()| checked);
            }
            self.note(&compatibility::LEADING_DOT)?;
        }
        let variable = |variable, of: &str| Ok((Node::Variable(variable), Type::parse(of)));
        match name {
            "object" => {
                self.uses.objects = true;
                variable(Variable::Object, "dyn")
            }
            "oldObject" => {
                self.uses.objects = true;
                variable(Variable::OldObject, "dyn")
            }
            "request" => variable(Variable::Request, "kubernetes.AdmissionRequest"),
            "namespaceObject" => {
                self.uses.namespace = true;
                variable(Variable::NamespaceObject, "kubernetes.Namespace")
            }
            "authorizer" if self.environment.has_authorizer() => {
                self.uses.authorizer = true;
                variable(Variable::Authorizer, "kubernetes.authorization.Authorizer")
            }
            "params" if self.environment.has_params() => {
                self.uses.params = true;
                variable(Variable::Params, "dyn")
            }
            "variables" if self.environment.is_policy() => {
                Err("'variables' has no value of its own: write variables.NAME".to_owned())
            }
            name => match type_name(name) {
                Some(name) => Ok((Node::Literal(Literal::Type(name)), Type::Meta)),
                None => Err(undeclared(name)),
            },
        }
    }

    fn select(&mut self, select: &Select) -> Result<TypedNode, String> {
        // Names of types, and of one variable, have dots.
        if let Some(name) = select.operand.qualified().map(|path| format!("{path}.{}", select.field))
            && !self.is_local(&name)
        {
            if let Some(known) = type_name(&name) {
                return Ok((Node::Literal(Literal::Type(known)), Type::Meta));
            }
            if name == "authorizer.requestResource" && !select.test && self.environment.has_authorizer() {
                self.uses.authorizer = true;
                let of = Type::parse("kubernetes.authorization.ResourceCheck");
                return Ok((Node::Variable(Variable::RequestResource), of));
            }
        }
        if self.is_variables(&select.operand) {
            let access = if select.test { VariableAccess::Presence } else { VariableAccess::Value };
            return self.variable(&select.field, access);
        }
        let (operand, of) = self.expression(&select.operand)?;
        let found = self.selected(&of, &select.field, false)?;
        let field = select.field.clone();
        if select.test {
            return Ok((Node::Has { operand: operand.into(), field }, Type::Bool));
        }
        Ok((Node::select(operand, Field { name: field, optional: false }), found))
    }

    /// Returns true if this is the name `variables`, and not that of a macro variable.
    fn is_variables(&self, tree: &Expression) -> bool {
        let is_named = matches!(&tree.expr, Expr::Ident(name) if name.strip_prefix('.').unwrap_or(name) == "variables");
        is_named && self.environment.is_policy() && !self.is_local("variables")
    }

    /// Returns a variable of the policy.
    fn variable(&mut self, name: &str, access: VariableAccess) -> Result<TypedNode, String> {
        let index = self.environment.index_of(name).ok_or_else(|| format!("undefined field '{name}'"))?;
        let declared = self.environment.variable(index);
        self.uses.add(declared.uses);
        self.variables_depth = self.variables_depth.max(declared.depth);
        let of = match access {
            VariableAccess::Value => declared.of.clone(),
            VariableAccess::Optional => Type::Optional(declared.of.clone().into()),
            VariableAccess::Presence => Type::Bool,
        };
        Ok((Node::Composed(index, access), of))
    }

    /// Checks a message that is made from its fields.
    fn message(&mut self, message: &Message) -> Result<TypedNode, String> {
        let name = message.name.strip_prefix('.').unwrap_or(&message.name);
        if !self.environment.has_patch_types() {
            return Err(format!("messages cannot be constructed here: {name}"));
        }
        let of = Type::message(name).ok_or_else(|| undeclared(name))?;
        let mut fields = Vec::with_capacity(message.fields.len());
        for entry in &message.fields {
            let (value, mut given) = self.expression(&entry.value)?;
            if entry.optional {
                given = self.inside_optional(given)?;
            }
            let wanted = self.field(&of, &entry.name)?;
            if !self.unknowns.fits(&given, &wanted) {
                let given = self.unknowns.resolve_all(&given);
                let field = &entry.name;
                return Err(format!("expected type of field '{field}' is '{wanted}' but provided type is '{given}'"));
            }
            if fields.iter().any(|(known, ..): &(Box<str>, Node, bool)| **known == *entry.name) {
                return Err(format!("the field '{}' is set twice", entry.name));
            }
            fields.push((entry.name.clone(), value, entry.optional));
        }
        Ok((Node::Message(name.into(), fields.into()), of))
    }

    /// Returns the function of this name, if the environment has it.
    fn find(&self, name: &str, member: bool) -> Option<&'static Function> {
        functions::find(name, member, self.environment.version)
            .filter(|_| self.environment.has_patch_types() || !name.starts_with("jsonpatch."))
    }

    /// Notes a change of what the expression uses. Fails if the version of the environment lacks it.
    fn note(&mut self, change: &'static Change) -> Result<(), String> {
        let (version, Change { symbol, since, effect }) = (self.environment.version, change);
        match effect {
            Effect::Added if version < *since => {
                return Err(format!("`{symbol}` needs Kubernetes {since}, and this is to compile in {version}"));
            }
            Effect::Removed if version >= *since => {
                return Err(format!("Kubernetes {since} has no `{symbol}`, and this is to compile in {version}"));
            }
            _ => {}
        }
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
        Ok(())
    }

    /// Returns what is otherwise in another version about a call whose types fit.
    fn change(&self, name: &str, member: bool, nodes: &[Node], types: &[Type]) -> Option<&'static Change> {
        let resolved = |at: usize| types.get(at).map(|of| self.unknowns.resolve_all(of));
        match (name, member, nodes) {
            ("includes", true, _) => Some(&compatibility::INCLUDES),
            ("isMask", true, _) => Some(&compatibility::IS_MASK),
            ("startsWith", ..) => Some(&compatibility::STARTS_WITH),
            ("endsWith", ..) => Some(&compatibility::ENDS_WITH),
            ("matches", false, _) => Some(&compatibility::MATCHES),
            ("duration", false, [_]) => (resolved(0)? == Type::Int).then_some(&compatibility::DURATION_OF_INT),
            ("indexOf" | "lastIndexOf", true, [_, sought, _]) => match sought {
                Node::Literal(Literal::String(text)) if !text.is_empty() => None,
                _ if name == "indexOf" => Some(&compatibility::INDEX_OF),
                _ => Some(&compatibility::LAST_INDEX_OF),
            },
            ("lists.range", false, [Node::Literal(Literal::Int(0..=1_000_000))]) => None,
            ("lists.range", false, _) => Some(&compatibility::RANGE),
            ("dyn", false, [part]) if part.is_part_of_request() => match resolved(0) {
                Some(Type::Struct(..) | Type::List(_) | Type::Map(..)) => Some(&compatibility::PART_OF_REQUEST),
                _ => None,
            },
            ("@in", false, [_, map]) if map.is_part_of_request() => {
                (resolved(0)? == Type::Dyn).then_some(&compatibility::PART_OF_REQUEST)
            }
            _ => None,
        }
    }

    /// Returns the type of a field that is selected from a value of this type.
    fn selected(&mut self, of: &Type, field: &str, optional: bool) -> Result<Type, String> {
        match self.unknowns.resolve_outer(of) {
            Type::Optional(inner) => Ok(Type::Optional(self.field(&inner, field)?.into())),
            plain if optional => Ok(Type::Optional(self.field(&plain, field)?.into())),
            plain => self.field(&plain, field),
        }
    }

    /// Returns the type of a field.
    fn field(&mut self, of: &Type, field: &str) -> Result<Type, String> {
        match self.unknowns.resolve_outer(of) {
            Type::Dyn | Type::Object(_) => Ok(Type::Dyn),
            unknown @ Type::Var(_) => {
                self.unknowns.fits(&Type::Dyn, &unknown);
                Ok(Type::Dyn)
            }
            Type::Map(_, value) => Ok(Type::clone(&value)),
            Type::Struct(_, fields) => {
                let found = fields.iter().find(|(name, _)| *name == field);
                found.map(|(_, of)| Type::parse(of)).ok_or_else(|| format!("undefined field '{field}'"))
            }
            other => Err(format!("type '{}' does not support field selection", self.unknowns.resolve_all(&other))),
        }
    }

    fn call(&mut self, call: &Call) -> Result<TypedNode, String> {
        let Call { name, target, args } = call;
        let Some(target) = target else { return self.global(name.strip_prefix('.').unwrap_or(name), args) };
        // `sets.contains(…)` is the whole name of a function, not a member of a value.
        if let Some(path) = target.qualified()
            && !self.is_local(&path)
        {
            let whole = format!("{path}.{name}");
            if self.find(&whole, false).is_some() {
                return self.global(&whole, args);
            }
        }
        match (name.as_ref(), args.as_slice()) {
            ("or" | "orValue", [other]) => return self.optional_or(target, other, name == "orValue"),
            ("format", [items]) => return self.format(target, items),
            _ => {}
        }
        let target = self.expression(target)?;
        self.function(name, Some(target), args)
    }

    fn global(&mut self, name: &str, args: &[Tree]) -> Result<TypedNode, String> {
        match (name, args) {
            (LOGICAL_AND | LOGICAL_OR, [a, b]) => {
                let both = Box::new([self.boolean(a)?, self.boolean(b)?]);
                Ok((if name == LOGICAL_AND { Node::And(both) } else { Node::Or(both) }, Type::Bool))
            }
            (CONDITIONAL, [condition, yes, no]) => {
                let condition = self.boolean(condition)?;
                let ((yes, a), (no, b)) = (self.expression(yes)?, self.expression(no)?);
                let found = self.common_type(&a, &b).ok_or_else(|| self.no_overload("_?_:_", &[Type::Bool, a, b]))?;
                Ok((Node::Ternary(Box::new([condition, yes, no])), found))
            }
            (NOT_STRICTLY_FALSE, [condition]) => {
                Ok((Node::NotStrictlyFalse(self.boolean(condition)?.into()), Type::Bool))
            }
            (INDEX | OPT_INDEX, [operand, index]) => self.index(operand, index, name == OPT_INDEX),
            (OPT_SELECT, [operand, field]) => self.optional_select(operand, field),
            ("cel.@mapInsert", [map, rest @ ..]) => self.insert(map, rest),
            _ => self.function(name, None, args),
        }
    }

    fn boolean(&mut self, tree: &Expression) -> Result<Node, String> {
        let (node, found) = self.expression(tree)?;
        if self.unknowns.fits(&found, &Type::Bool) {
            return Ok(node);
        }
        Err(format!("expected type 'bool' but found '{}'", self.unknowns.resolve_all(&found)))
    }

    /// Returns a type for both; `None` if there is none.
    fn common_type(&mut self, a: &Type, b: &Type) -> Option<Type> {
        let both = Type::Var(self.unknowns.add(1));
        let fits = self.unknowns.fits(a, &both) && self.unknowns.fits(b, &both);
        fits.then(|| self.unknowns.resolve_outer(&both))
    }

    fn optional_select(&mut self, operand: &Expression, field: &Expression) -> Result<TypedNode, String> {
        let Expr::Literal(Literal::String(field)) = &field.expr else {
            return Err("an optional field must be a name".to_owned());
        };
        if self.is_variables(operand) {
            return self.variable(field, VariableAccess::Optional);
        }
        let (operand, of) = self.expression(operand)?;
        let found = self.selected(&of, field, true)?;
        Ok((Node::select(operand, Field { name: field.clone(), optional: true }), found))
    }

    fn index(&mut self, operand: &Expression, index: &Expression, optional: bool) -> Result<TypedNode, String> {
        let name = if optional { OPT_INDEX } else { INDEX };
        let ((operand, of), (index, by)) = (self.expression(operand)?, self.expression(index)?);
        let Some(function) = self.find(name, false) else { return Err(undeclared(name)) };
        let types = [of, by];
        let (found, _) = self.overload(function, false, &types).ok_or_else(|| self.no_overload(name, &types))?;
        if let Node::Literal(literal) = &index
            && !literal.is_primitive()
        {
            return Err(format!("invalid qualifier type: {}", Value::from(literal).type_name()));
        }
        Ok((Node::Index { operand: operand.into(), index: index.into(), optional }, found))
    }

    fn optional_or(&mut self, first: &Expression, second: &Expression, plain: bool) -> Result<TypedNode, String> {
        let ((first, a), (second, b)) = (self.expression(first)?, self.expression(second)?);
        let inner = Type::Var(self.unknowns.add(1));
        let wanted = Type::Optional(inner.clone().into());
        let behind = if plain { inner.clone() } else { wanted.clone() };
        if !self.unknowns.fits(&a, &wanted) || !self.unknowns.fits(&b, &behind) {
            return Err(self.no_overload(if plain { "orValue" } else { "or" }, &[a, b]));
        }
        if !matches!(self.unknowns.resolve_outer(&a), Type::Optional(_)) {
            self.note(if plain { &compatibility::OR_VALUE } else { &compatibility::OR })?;
        }
        Ok((Node::OptionalOr { first: first.into(), second: second.into(), plain }, behind))
    }

    fn comprehension(&mut self, fold: &Comprehension) -> Result<TypedNode, String> {
        let (range, of) = self.expression(&fold.range)?;
        let (first, second) = types::variables(&mut self.unknowns, &of, fold.second.is_some())?;
        let (start, accumulator_type) = self.expression(&fold.start)?;
        let outside = self.locals.len();
        let accumulator = self.local(&fold.accumulator, accumulator_type.clone());
        let first = self.local(&fold.first, first);
        let second = fold.second.as_ref().zip(second).map(|(name, of)| self.local(name, of));
        let go_on = self.boolean(&fold.go_on)?;
        let (step, step_type) = self.expression(&fold.step)?;
        if !self.unknowns.fits(&step_type, &accumulator_type) {
            let (wanted, found) = (self.unknowns.resolve_all(&accumulator_type), self.unknowns.resolve_all(&step_type));
            return Err(format!("expected type '{wanted}' but found '{found}'"));
        }
        // The result may use the accumulator, but no variable of the loop.
        self.locals.truncate(outside + 1);
        let (result, result_type) = self.expression(&fold.result)?;
        self.locals.truncate(outside);
        let range = Range { of: range, first, second };
        Ok((Fold { range, accumulator, start, go_on, step, result }.reduced(), result_type))
    }

    fn local(&mut self, name: &str, of: Type) -> usize {
        let slot = self.locals.len();
        self.locals.push(Local { name: name.to_owned(), slot, of });
        self.max_slots = self.max_slots.max(slot + 1);
        slot
    }

    fn is_local(&self, path: &str) -> bool {
        let first = path.split('.').next().unwrap_or(path);
        self.locals.iter().any(|local| local.name == first)
    }

    fn no_overload(&self, name: &str, types: &[Type]) -> String {
        let types: Vec<_> = types.iter().map(|of| self.unknowns.resolve_all(of).to_string()).collect();
        format!("found no matching overload for '{name}' applied to '({})'", types.join(", "))
    }

    fn function(&mut self, name: &str, target: Option<TypedNode>, args: &[Tree]) -> Result<TypedNode, String> {
        let member = target.is_some();
        let mut given: Vec<_> = target.into_iter().collect();
        for arg in args {
            given.push(self.expression(arg)?);
        }
        // As upstream, the first argument must be a pattern, too: there, it is checked in the place of the second.
        if let ("matches", false, Some(Expr::Literal(Literal::String(text)))) =
            (name, member, args.first().map(|arg| &arg.expr))
        {
            functions::regex::compiled(text).map_err(|why| format!("invalid matches argument: {why}"))?;
        }
        self.resolve(name, member, given)
    }

    /// Returns the type of a call, and how many signatures fit. Types that one signature infers for unknowns apply to
    /// the next ones, too.
    fn overload(&mut self, function: &Function, member: bool, types: &[Type]) -> Option<(Type, usize)> {
        let mut found: Option<Type> = None;
        let mut fitting = 0;
        let candidates = function.signatures.iter();
        for signature in candidates.filter(|one| one.member == member && one.arguments.len() == types.len()) {
            let mark = self.unknowns.mark();
            let first = self.unknowns.add(2);
            let mut pairs = types.iter().zip(&signature.arguments);
            if !pairs.all(|(given, wanted)| self.unknowns.fits(given, &wanted.numbered_from(first))) {
                self.unknowns.roll_back(mark);
                continue;
            }
            fitting += 1;
            let result = self.unknowns.resolve(&signature.result.numbered_from(first));
            found = Some(match found {
                // As upstream, different unknowns are different types.
                Some(other) if other != result => Type::Dyn,
                Some(other) => other,
                None => result,
            });
        }
        found.map(|found| (found, fitting))
    }

    /// Resolves a call with checked arguments to all signatures that fit.
    fn resolve(&mut self, name: &str, member: bool, given: Vec<TypedNode>) -> Result<TypedNode, String> {
        let (mut nodes, types): (Vec<_>, Vec<_>) = given.into_iter().unzip();
        let Some(function) = self.find(name, member) else { return Err(undeclared(name)) };
        let found = self.overload(function, member, &types);
        let change = self.change(name, member, &nodes, &types);
        // A signature that newer versions lack is missed by its types.
        if let Some(change) = change.filter(|change| found.is_some() || change.effect == Effect::Removed) {
            self.note(change)?;
        }
        let Some((found, fitting)) = found else { return Err(self.no_overload(name, &types)) };
        if let [_, Node::Literal(Literal::String(zone))] = &nodes[..]
            && name.starts_with("get")
            && Zone::parse(zone).is_none()
        {
            return Err(format!("time zone '{zone}' is not known here: write it as Europe/Berlin or +01:00"));
        }
        if let [Node::Literal(literal)] = &nodes[..]
            && let Some(known) = Node::fold_conversion(function, literal)?
        {
            return Ok((known, found));
        }
        // Append `accumulator + [item]` of a macro in place: a copy for each item would take quadratic time.
        if name == "_+_"
            && let [Node::Local(slot), Node::List(_)] = nodes[..]
            && self.locals.iter().any(|local| local.slot == slot && local.name == macros::ACCUMULATOR)
            && let Some(Node::List(items)) = nodes.pop()
        {
            return Ok((Node::Append { slot, items }, found));
        }
        Ok((Node::call(function, nodes, fitting > 1)?, found))
    }

    fn insert(&mut self, map: &Expression, rest: &[Tree]) -> Result<TypedNode, String> {
        let (map, of) = self.expression(map)?;
        let (Node::Local(slot), Type::Map(key, value)) = (map, self.unknowns.resolve_outer(&of)) else {
            return Err(undeclared("cel.@mapInsert"));
        };
        match rest {
            [k, v] => {
                let ((k, a), (v, b)) = (self.expression(k)?, self.expression(v)?);
                if !self.unknowns.fits(&a, &key) || !self.unknowns.fits(&b, &value) {
                    return Err(self.no_overload("cel.@mapInsert", &[of, a, b]));
                }
                Ok((Node::Insert { slot, key: k.into(), value: Some(v.into()) }, of))
            }
            [entry] => {
                let (entry, found) = self.expression(entry)?;
                if !self.unknowns.fits(&found, &of) {
                    return Err(self.no_overload("cel.@mapInsert", &[of, found]));
                }
                Ok((Node::Insert { slot, key: entry.into(), value: None }, of))
            }
            _ => Err(undeclared("cel.@mapInsert")),
        }
    }

    /// Checks a list, whose items must be of one type.
    fn list(&mut self, items: &[(Tree, bool)]) -> Result<TypedNode, String> {
        let mut checked = Vec::with_capacity(items.len());
        for (item, optional) in items {
            checked.push((self.expression(item)?, *optional));
        }
        self.list_of(checked)
    }

    /// Builds a list of checked items. The flag of each item is true if the item is optional, and so omitted if it is
    /// absent.
    fn list_of(&mut self, checked: Vec<(TypedNode, bool)>) -> Result<TypedNode, String> {
        let mut items = Vec::with_capacity(checked.len());
        let mut common: Option<Type> = None;
        for ((node, mut found), is_optional) in checked {
            if is_optional {
                found = self.inside_optional(found)?;
            }
            common = Some(self.homogeneous(common, found)?);
            items.push((node, is_optional));
        }
        let item = common.unwrap_or_else(|| Type::Var(self.unknowns.add(1)));
        let node = match literals(&items) {
            Some(literals) => Node::Literal(Literal::List(literals)),
            None => Node::List(items.into()),
        };
        Ok((node, Type::List(item.into())))
    }

    fn map(&mut self, entries: &[MapEntry]) -> Result<TypedNode, String> {
        let mut checked = Vec::with_capacity(entries.len());
        for entry in entries {
            checked.push((self.expression(&entry.key)?, self.expression(&entry.value)?, entry.optional));
        }
        self.map_of(checked)
    }

    /// Builds a map of checked entries.
    fn map_of(&mut self, entries: Vec<(TypedNode, TypedNode, bool)>) -> Result<TypedNode, String> {
        let (mut nodes, mut keys, mut values) = (Vec::new(), None, None);
        for ((key, key_type), (value, mut value_type), optional) in entries {
            if optional {
                value_type = self.inside_optional(value_type)?;
            }
            keys = Some(self.homogeneous(keys, key_type)?);
            values = Some(self.homogeneous(values, value_type)?);
            nodes.push((key, value, optional));
        }
        let first = self.unknowns.add(2);
        let (key, value) = (keys.unwrap_or(Type::Var(first)), values.unwrap_or(Type::Var(first + 1)));
        // Maps cannot look up keys of other types. Nested keys would also let types grow exponentially.
        match self.unknowns.resolve_all(&key) {
            Type::Bool | Type::Int | Type::Uint | Type::String | Type::Dyn => {}
            odd => return Err(format!("map keys of type '{odd}' are not supported")),
        }
        for (key, ..) in &nodes {
            if let Node::Literal(key) = key
                && !matches!(key, Literal::Bool(_) | Literal::Int(_) | Literal::Uint(_) | Literal::String(_))
            {
                return Err(format!("map keys of type '{}' are not supported", Value::from(key).type_name()));
            }
        }
        let literal = |(key, value, optional): &(Node, Node, bool)| match (key, value) {
            (Node::Literal(key), Node::Literal(value)) if !optional => Some((key.clone(), value.clone())),
            _ => None,
        };
        let node = match nodes.iter().map(literal).collect() {
            Some(literals) => Node::Literal(Literal::Map(literals)),
            None => Node::Map(nodes.into()),
        };
        Ok((node, Type::Map(Arc::new(key), Arc::new(value))))
    }

    fn inside_optional(&self, found: Type) -> Result<Type, String> {
        match self.unknowns.resolve_outer(&found) {
            Type::Optional(inner) => Ok(Type::clone(&inner)),
            Type::Dyn => Ok(Type::Dyn),
            other => Err(format!("expected type 'optional_type' but found '{}'", self.unknowns.resolve_all(&other))),
        }
    }

    fn homogeneous(&mut self, common: Option<Type>, found: Type) -> Result<Type, String> {
        let Some(common) = common else { return Ok(found) };
        let fits = self.unknowns.fits(&common, &found);
        let (wanted, got) = (self.unknowns.resolve_all(&common), self.unknowns.resolve_all(&found));
        match (fits, self.formats) {
            (true, 0) if wanted != got => Err(format!("expected type '{wanted}' but found '{got}'")),
            (false, 0) => Err(format!("expected type '{wanted}' but found '{got}'")),
            (true, _) => Ok(common.or_more_general(&found).clone()),
            (false, _) => Ok(Type::Dyn),
        }
    }

    /// Checks a call of `format`. If the format and the list of its arguments are literal, they must fit each other.
    fn format(&mut self, target: &Expression, items: &Expression) -> Result<TypedNode, String> {
        self.formats += 1;
        let format = self.expression(target)?;
        let items = match &items.expr {
            Expr::List(list) => {
                self.enter()?;
                let mut arguments = Vec::with_capacity(list.len());
                for (item, _) in list {
                    arguments.push(self.argument(item)?);
                }
                if let Expr::Literal(Literal::String(format)) = &target.expr {
                    let known = |((_, of), odd): &Argument| (self.unknowns.resolve_all(of), odd.clone());
                    format::check(format, &arguments.iter().map(known).collect::<Vec<_>>())?;
                }
                let items = arguments.into_iter().zip(list).map(|((checked, _), (_, optional))| (checked, *optional));
                let items = self.list_of(items.collect())?;
                self.leave();
                items
            }
            _ => self.expression(items)?,
        };
        self.formats -= 1;
        self.resolve("format", true, vec![format, items])
    }

    /// Checks one argument, with every value in literal lists and maps.
    fn argument(&mut self, tree: &Expression) -> Result<Argument, String> {
        let mut odd = None;
        let mut note = |checker: &Self, (checked, inner): Argument| {
            let of = checker.unknowns.resolve_all(&checked.1);
            odd = odd.take().or(inner).or((!Verb::String.takes(&of)).then_some(of));
            checked
        };
        let checked = match &tree.expr {
            Expr::List(list) => {
                self.enter()?;
                let mut items = Vec::with_capacity(list.len());
                for (item, optional) in list {
                    let argument = self.argument(item)?;
                    items.push((note(self, argument), *optional));
                }
                let checked = self.list_of(items)?;
                self.leave();
                checked
            }
            Expr::Map(map) => {
                self.enter()?;
                let mut entries = Vec::with_capacity(map.len());
                for entry in map {
                    let (key, value) = (self.argument(&entry.key)?, self.argument(&entry.value)?);
                    entries.push((note(self, key), note(self, value), entry.optional));
                }
                let checked = self.map_of(entries)?;
                self.leave();
                checked
            }
            _ => {
                let checked = self.expression(tree)?;
                note(self, (checked, None))
            }
        };
        Ok((checked, odd))
    }
}

/// Returns the type of a literal as it is written.
fn type_of(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
        _ => Type::Dyn,
    }
}

/// Returns true if the expression has a name in backquotes.
fn has_backquoted_name(text: &str) -> bool {
    text.contains('`') && tokens(text).0.iter().any(|token| token.kind == Kind::EscapedIdentifier)
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}'")
}

/// Returns the items if all of them are literals.
fn literals(items: &[(Node, bool)]) -> Option<Box<[Literal]>> {
    let literal = |(node, optional): &(Node, bool)| match node {
        Node::Literal(literal) if !optional => Some(literal.clone()),
        _ => None,
    };
    items.iter().map(literal).collect()
}
