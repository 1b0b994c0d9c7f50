//! Evaluates a program for one input.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::{
    access,
    authorization::Authorizer,
    compatibility::KubernetesVersion,
    input::{Input, JsonDocument, Part},
    meter::{Fault, Meter},
    program::{Field, Fold, Node, Program, Quantifier, Range, Variable, VariableAccess},
    value::{List, Literal, Map, Message, Value},
};

/// Costs of creating a list, a map and a message.
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
const MESSAGE_COST: u64 = 40;

/// What expressions of a policy can use besides the input.
pub(super) trait PolicyScope<'a> {
    /// Returns the value of the variable of this index, evaluating it on its first use.
    fn variable(&self, index: usize, outer: &Meter<'_>) -> Result<Value<'a>, Fault>;

    /// Returns the object of parameters.
    fn params(&self) -> Option<&'a JsonDocument<'a>>;

    /// Returns false if each use of `authorizer` is an error.
    fn has_authorizer(&self) -> bool;

    /// Returns false if `namespaceObject` is null.
    fn has_namespace(&self) -> bool;
}

/// Walks a program for one input.
pub(super) struct Interpreter<'a, 'm> {
    pub(super) input: &'a Input<'a>,
    pub(super) meter: &'m Meter<'m>,
    /// Values of macro variables.
    pub(super) slots: SmallVec<[Value<'a>; 4]>,
    /// Slots whose value is `Pending`, and what they are to have.
    pending: SmallVec<[(usize, &'a Node); 1]>,
    /// Variables and parameters, if the expression is one of a policy.
    pub(super) policy: Option<&'m dyn PolicyScope<'a>>,
}

type ValueResult<'a> = Result<Value<'a>, Fault>;

/// The value of a selection. A value that is optional is not boxed yet: mostly, the next selection or `orValue` takes it.
enum SelectedValue<'a> {
    Plain(Value<'a>),
    Optional(Option<Value<'a>>),
}

impl<'a> From<Value<'a>> for SelectedValue<'a> {
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Optional(inner) => Self::Optional(inner.map(Rc::unwrap_or_clone)),
            plain => Self::Plain(plain),
        }
    }
}

impl SelectedValue<'_> {
    /// Takes the value out of an optional one.
    fn unwrapped(self) -> Self {
        match self {
            Self::Plain(value) => value.into(),
            optional => optional,
        }
    }
}

impl<'a> From<SelectedValue<'a>> for Value<'a> {
    fn from(selected: SelectedValue<'a>) -> Self {
        match selected {
            SelectedValue::Plain(value) => value,
            SelectedValue::Optional(inner) => Value::optional(inner),
        }
    }
}

type SelectionResult<'a> = Result<SelectedValue<'a>, Fault>;

/// Returns the value of a program.
pub(super) fn value<'a>(
    program: &'a Program,
    input: &'a Input<'a>,
    policy: Option<&dyn PolicyScope<'a>>,
    meter: &Meter<'_>,
) -> ValueResult<'a> {
    let mut slots = SmallVec::new();
    slots.resize(program.slots, Value::Null);
    Interpreter { input, meter, slots, pending: SmallVec::new(), policy }.value(&program.root)
}

impl<'a> Interpreter<'a, '_> {
    pub(super) fn value(&mut self, node: &'a Node) -> ValueResult<'a> {
        match node {
            Node::Literal(literal) => Value::of(literal, self.meter),
            Node::Variable(variable) => self.variable(*variable),
            Node::Composed(index, access) => self.composed(*index, *access),
            Node::Local(slot) => {
                self.meter.pay(1)?;
                match &self.slots[*slot] {
                    Value::Failed(error) => Err(Fault::Error((**error).clone())),
                    Value::Pending => self.bound(*slot),
                    value => Ok(value.clone()),
                }
            }
            Node::Select { .. } | Node::Index { .. } => self.selection(node).map(Value::from),
            Node::Has { operand, field } => self.presence(operand, field).map(Value::Bool),
            Node::Call { function, args, ambiguous } => {
                let mut values: SmallVec<[Value<'a>; 3]> = SmallVec::new();
                let mut failed = None;
                for (at, arg) in args.iter().enumerate() {
                    let error = match self.value(arg) {
                        Ok(value) => {
                            values.push(value);
                            continue;
                        }
                        Err(stop @ Fault::Stop(_)) => return Err(stop),
                        Err(error) => error,
                    };
                    // As upstream, the second of two arguments is evaluated, and the call is paid for if all are.
                    let is_binary = match (function.name, &args[..]) {
                        ("format", _) | ("find" | "findAll", [_, Node::Literal(_)]) => false,
                        _ => args.len() == 2,
                    };
                    if at + 1 < args.len() && !is_binary {
                        return Err(error);
                    }
                    values.push(Value::Failed(Rc::default()));
                    failed = failed.or(Some(error));
                }
                match failed {
                    None => function.call(&values, *ambiguous, self.meter),
                    Some(error) => function.fail(&values, error, *ambiguous, self.meter),
                }
            }
            Node::Matches { text, pattern, len } => {
                let text = self.value(text)?;
                let size = access::size(&text, self.meter)?;
                self.meter.pay((size + 1).div_ceil(10).saturating_mul(len.div_ceil(4)))?;
                match text {
                    Value::String(text) => pattern.is_match(text.as_str(), self.meter).map(Value::Bool),
                    _ => Err(Fault::no_such_overload()),
                }
            }
            Node::And(both) => self.logical(both, false),
            Node::Or(both) => self.logical(both, true),
            Node::Ternary(parts) => match self.value(&parts[0])? {
                Value::Bool(yes) => {
                    let branch = &parts[if yes { 1 } else { 2 }];
                    let value = self.value(branch);
                    if branch.has_base_cost() {
                        self.meter.refund(1);
                    }
                    value
                }
                _ => Err(Fault::no_such_overload()),
            },
            Node::NotStrictlyFalse(condition) => {
                let value = self.value(condition);
                self.meter.pay(1)?;
                match value {
                    Ok(Value::Bool(yes)) => Ok(Value::Bool(yes)),
                    Err(stop @ Fault::Stop(_)) => Err(stop),
                    _ => Ok(Value::Bool(true)),
                }
            }
            Node::InLiterals { sought, list } => self.in_literals(sought, list),
            Node::OptionalOr { first, second, plain } => match self.selection(first)?.unwrapped() {
                SelectedValue::Optional(Some(value)) if *plain => Ok(value),
                there @ SelectedValue::Optional(Some(_)) => Ok(there.into()),
                SelectedValue::Optional(None) => self.value(second),
                SelectedValue::Plain(value) if self.meter.version < KubernetesVersion::V1_37 => Ok(value),
                SelectedValue::Plain(_) => Err(Fault::no_such_overload()),
            },
            Node::List(items) => {
                let items = self.items(items);
                self.pay_for(LIST_COST, items).map(|items| Value::List(Rc::new(items)))
            }
            Node::Map(entries) => {
                let map = self.map(entries);
                self.pay_for(MAP_COST, map).map(|map| Value::Map(Rc::new(map)))
            }
            Node::Message(name, fields) => {
                let message = self.message(name, fields);
                self.pay_for(MESSAGE_COST, message).map(|message| Value::Message(Rc::new(message)))
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Quantifier(quantifier) => self.quantifier(quantifier),
            Node::Append { slot, items } => self.append(*slot, items),
            Node::Insert { slot, key, value } => self.insert(*slot, key, value.as_deref()),
        }
    }

    fn variable(&self, variable: Variable) -> ValueResult<'a> {
        self.meter.pay(1)?;
        let document = match variable {
            Variable::Request => return Ok(Value::Struct(Part::Request, &self.input.request)),
            Variable::NamespaceObject if self.policy.is_some_and(|policy| !policy.has_namespace()) => {
                return Ok(Value::Null);
            }
            Variable::Authorizer | Variable::RequestResource
                if self.policy.is_some_and(|policy| !policy.has_authorizer()) =>
            {
                let name = if variable == Variable::Authorizer { "authorizer" } else { "authorizer.requestResource" };
                return Err(Fault::error(format!("no such attribute(s): {name}")));
            }
            Variable::Authorizer => return Ok(Value::Authorizer(Rc::new(Authorizer::new(&self.input.decisions)))),
            Variable::RequestResource => {
                let Input { decisions, request, .. } = self.input;
                return Ok(Value::Authorizer(Rc::new(Authorizer::of_resource(decisions, request.access()))));
            }
            Variable::Object => &self.input.object,
            Variable::OldObject => &self.input.old_object,
            Variable::NamespaceObject => &self.input.namespace,
            Variable::Params => {
                let params = self.policy.and_then(PolicyScope::params);
                return params.map_or(Ok(Value::Null), |params| params.root(self.meter).map(Value::from));
            }
        };
        document.as_ref().map_or(Ok(Value::Null), |document| document.root(self.meter).map(Value::from))
    }

    /// Returns a variable of the policy, which is evaluated on its first use.
    fn composed(&self, index: usize, access: VariableAccess) -> ValueResult<'a> {
        self.meter.pay(1)?;
        let Some(policy) = self.policy else { return Err(Fault::error("there are no variables here")) };
        let value = policy.variable(index, self.meter);
        match access {
            VariableAccess::Presence => value.map(|_| Value::Bool(true)),
            VariableAccess::Value => {
                self.meter.pay(1)?;
                value
            }
            VariableAccess::Optional => {
                let value = Value::optional(Some(value?));
                self.meter.pay(1).map(|()| value)
            }
        }
    }

    /// Evaluates a selection, or another node. As upstream, only what a selection begins with is taken out of an
    /// optional value: one in the middle has no parts.
    fn selection(&mut self, node: &'a Node) -> SelectionResult<'a> {
        match node {
            Node::Select { operand, path } => {
                let mut of = self.qualified(operand)?;
                for field in path {
                    let is_optional = field.optional || matches!(of, SelectedValue::Optional(_));
                    let found = self.select(of, field);
                    of = self.pay_for_selection(found, is_optional)?;
                    if matches!(of, SelectedValue::Optional(None)) {
                        break;
                    }
                }
                Ok(of)
            }
            Node::Index { operand, index, optional } => {
                let of = self.qualified(operand)?;
                if matches!(of, SelectedValue::Optional(None)) {
                    return Ok(of);
                }
                let is_optional = *optional || matches!(of, SelectedValue::Optional(_));
                let by = self.value(index);
                if index.has_base_cost() {
                    self.meter.refund(1);
                }
                let found = by.and_then(|by| self.index(of, &by, *optional, matches!(**index, Node::Literal(_))));
                self.pay_for_selection(found, is_optional)
            }
            other => self.value(other).map(SelectedValue::from),
        }
    }

    /// Pays for a selection, even if it failed, unless it is optional.
    fn pay_for_selection(&self, found: SelectionResult<'a>, is_optional: bool) -> SelectionResult<'a> {
        let is_free = match &found {
            Ok(found) => matches!(found, SelectedValue::Optional(None)),
            Err(Fault::Error(_)) => is_optional,
            Err(Fault::Stop(_)) => true,
        };
        if !is_free {
            self.meter.pay(1)?;
        }
        found
    }

    /// Evaluates the operand of a selection, which costs one more unless it is a variable, a part of one or a
    /// conditional.
    fn qualified(&mut self, operand: &'a Node) -> SelectionResult<'a> {
        // Most selections are from an object, or from a part of one in a loop.
        if let Node::Local(slot) = operand
            && let Value::Json(part) = self.slots[*slot]
        {
            self.meter.pay(1)?;
            return Ok(SelectedValue::Plain(Value::Json(part)));
        }
        let found = self.selection(operand);
        match operand {
            Node::Ternary(_) => found,
            operand if operand.is_attribute() => found,
            _ => self.pay_for(1, found),
        }
    }

    fn select(&self, of: SelectedValue<'a>, Field { name, optional }: &Field) -> SelectionResult<'a> {
        let absent = || Fault::no_such_key(name);
        match of {
            // Most selections are from parts of objects, whose members are never optional values.
            SelectedValue::Plain(Value::Json(of)) if !optional && !of.is_list() => {
                of.member(name, self.meter)?.map(|value| SelectedValue::Plain(value.into())).ok_or_else(absent)
            }
            SelectedValue::Plain(Value::Json(of)) | SelectedValue::Optional(Some(Value::Json(of))) if !of.is_list() => {
                Ok(SelectedValue::Optional(of.member(name, self.meter)?.map(Value::from)))
            }
            SelectedValue::Optional(None) => Ok(of),
            SelectedValue::Optional(Some(of)) => self.optional_field(&of, name).map(SelectedValue::Optional),
            SelectedValue::Plain(of) if *optional => self.optional_field(&of, name).map(SelectedValue::Optional),
            SelectedValue::Plain(Value::Null) => Err(absent()),
            SelectedValue::Plain(of) => {
                access::field(&of, name, self.meter)?.map(SelectedValue::Plain).ok_or_else(absent)
            }
        }
    }

    /// Returns a field, if there is one. A value without fields has none.
    fn optional_field(&self, of: &Value<'a>, field: &str) -> Result<Option<Value<'a>>, Fault> {
        match of {
            of if access::is_list(of) => Err(Fault::no_such_overload()),
            Value::Message(message) if !message.has(field) => Ok(None),
            Value::Map(_) | Value::Json(_) | Value::Struct(..) | Value::Message(_) => {
                access::field(of, field, self.meter)
            }
            _ => Ok(None),
        }
    }

    /// Evaluates `has`. As upstream, the test costs as much as what it begins with, which is free. So nothing is paid
    /// for a test that is not reached, or whose field an optional value does not have.
    fn presence(&mut self, operand: &'a Node, field: &str) -> Result<bool, Fault> {
        let found = match self.qualified(operand) {
            Ok(SelectedValue::Plain(of)) => return self.has(&of, field),
            Ok(SelectedValue::Optional(Some(of))) => self.has(&of, field),
            Ok(SelectedValue::Optional(None)) => Ok(false),
            Err(error) => Err(error),
        };
        if !matches!(found, Ok(true)) {
            self.meter.refund(1);
        }
        found
    }

    fn has(&self, of: &Value<'a>, field: &str) -> Result<bool, Fault> {
        match of {
            Value::Json(node) if !node.is_list() => node.has_member(field, self.meter),
            of => Ok(self.optional_field(of, field)?.is_some()),
        }
    }

    /// Returns a field or item. The error names a missing key only if the key is literal: others may come from an
    /// object.
    fn index(&self, of: SelectedValue<'a>, by: &Value<'a>, optional: bool, named: bool) -> SelectionResult<'a> {
        let of = match of {
            SelectedValue::Optional(None) => return Ok(of),
            SelectedValue::Optional(Some(of)) => return self.item(&of, by).map(SelectedValue::Optional),
            SelectedValue::Plain(of) if optional => return self.item(&of, by).map(SelectedValue::Optional),
            SelectedValue::Plain(of) => of,
        };
        self.item(&of, by)?.map(SelectedValue::Plain).ok_or_else(|| match by {
            Value::String(key) if named => Fault::no_such_key(key.as_str()),
            Value::Int(place) if named && access::is_list(&of) => Fault::error(format!("index out of bounds: {place}")),
            Value::Int(_) | Value::Uint(_) | Value::Double(_) if access::is_list(&of) => Fault::out_of_range(),
            _ => Fault::error("no such key"),
        })
    }

    /// Returns a field or item, `None` if there is none, as of a value that has none.
    fn item(&self, of: &Value<'a>, by: &Value<'a>) -> Result<Option<Value<'a>>, Fault> {
        if !matches!(by, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_)) {
            return Err(Fault::error(format!("invalid qualifier type: {}", by.type_name())));
        }
        if !access::is_list(of) {
            return match of {
                Value::Map(_) | Value::Json(_) | Value::Struct(..) | Value::Message(_) => {
                    access::entry(of, by, self.meter)
                }
                _ => Ok(None),
            };
        }
        let place = match by {
            Value::Int(place) => usize::try_from(*place).ok(),
            Value::Uint(place) if i64::try_from(*place).is_ok() => usize::try_from(*place).ok(),
            Value::Double(place) if place.fract() == 0.0 && place.abs() < i64::MAX as f64 => {
                (*place >= 0.0).then_some(*place as usize)
            }
            Value::Uint(_) | Value::Double(_) => return Err(Fault::error("unsupported index value in list")),
            _ => return Err(Fault::error("unsupported index type in list")),
        };
        place.map_or(Ok(None), |place| access::list_item(of, place, self.meter))
    }

    /// Evaluates `&&` or `||`. An error on one side counts only if the other side does not decide.
    fn logical(&mut self, both: &'a [Node; 2], decides: bool) -> ValueResult<'a> {
        let first = match self.value(&both[0]) {
            Ok(Value::Bool(yes)) if yes == decides => return Ok(Value::Bool(decides)),
            Err(stop @ Fault::Stop(_)) => return Err(stop),
            first => first,
        };
        let second = match self.value(&both[1]) {
            Ok(Value::Bool(yes)) if yes == decides => return Ok(Value::Bool(decides)),
            Err(stop @ Fault::Stop(_)) => return Err(stop),
            second => second,
        };
        match (first, second) {
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decides)),
            (Err(error), _) | (Ok(Value::Bool(_)), Err(error)) => Err(error),
            _ => Err(Fault::no_such_overload()),
        }
    }

    /// Searches a literal list as upstream does, by the hash of the value.
    fn in_literals(&mut self, sought: &'a Node, list: &'a Literal) -> ValueResult<'a> {
        let sought = self.value(sought)?;
        let Literal::List(items) = list else { return Err(Fault::no_such_overload()) };
        self.meter.step(items.len() as u64)?;
        match &sought {
            Value::String(sought) => {
                let is_it = |item: &Literal| matches!(item, Literal::String(item) if **item == *sought.as_str());
                Ok(Value::Bool(items.iter().any(is_it)))
            }
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) => {
                for item in items {
                    if access::is_same(&item.into(), &sought, self.meter)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            odd if access::has_no_hash(odd) => {
                Err(Fault::error(format!("internal error: a {} has no hash", odd.type_name())))
            }
            _ => Ok(Value::Bool(false)),
        }
    }

    fn items(&mut self, nodes: &'a [(Node, bool)]) -> Result<List<'a>, Fault> {
        let mut items = List::with_room(self.meter.list(nodes.len())?, nodes.len());
        for (node, optional) in nodes {
            match self.value(node)? {
                Value::Optional(Some(inner)) if *optional => items.fill(Value::clone(&inner)),
                Value::Optional(None) if *optional => {}
                _ if *optional => return Err(Fault::no_such_overload()),
                value => items.fill(value),
            }
        }
        Ok(items)
    }

    /// Pays for the creation of a value, even if it failed.
    fn pay_for<T>(&self, cost: u64, made: Result<T, Fault>) -> Result<T, Fault> {
        if !matches!(made, Err(Fault::Stop(_))) {
            self.meter.pay(cost)?;
        }
        made
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Result<Map<'a>, Fault> {
        let mut map = Map::default();
        map.reserve(entries.len(), self.meter)?;
        for (key, value, optional) in entries {
            let (key, value) = (self.value(key)?, self.value(value)?);
            let value = match value {
                Value::Optional(Some(inner)) if *optional => Value::clone(&inner),
                Value::Optional(None) if *optional => continue,
                _ if *optional => return Err(Fault::no_such_overload()),
                value => value,
            };
            self.pay_for_key(&key)?;
            if !map.set(key, value) {
                return Err(Fault::error("unsupported key type"));
            }
        }
        Ok(map)
    }

    /// Makes a message.
    fn message(&mut self, name: &'a str, fields: &'a [(Box<str>, Node, bool)]) -> Result<Message<'a>, Fault> {
        // A field takes about as much memory as two items.
        let room = self.meter.list(fields.len().saturating_mul(2))?;
        let mut made = Vec::with_capacity(fields.len());
        for (field, node, optional) in fields {
            let value = match self.value(node)? {
                Value::Optional(Some(inner)) if *optional => Value::clone(&inner),
                Value::Optional(None) if *optional => continue,
                _ if *optional => return Err(Fault::no_such_overload()),
                value => value,
            };
            made.push((&**field, value));
        }
        let message = Message::new(name, made, room);
        if message.is_json_patch() {
            for (field, value) in &message.fields {
                if *field != "value" && !matches!(value, Value::String(_)) {
                    let of = value.go_type();
                    return Err(Fault::error(format!("unexpected type {of} for JSONPatchType '{field}' field")));
                }
            }
        }
        Ok(message)
    }

    /// Pays for the second copy of a key, by which a map finds it.
    fn pay_for_key(&self, key: &Value<'a>) -> Result<(), Fault> {
        match key {
            Value::String(text) => self.meter.make(text.as_str().len()),
            _ => Ok(()),
        }
    }

    /// Returns the value that a macro binds to a name, evaluating it on its first use.
    fn bound(&mut self, slot: usize) -> ValueResult<'a> {
        let pending = self.pending.iter().rev().find(|(pending, _)| *pending == slot);
        let Some((_, node)) = pending.copied() else { return Ok(Value::Null) };
        // It is evaluated among the variables outside of the macro.
        let inside: SmallVec<[Value<'a>; 4]> = self.slots.drain(slot..).collect();
        let value = self.value(node);
        self.slots.truncate(slot);
        self.slots.extend(inside);
        self.slots[slot] = match &value {
            Ok(value) => value.clone(),
            Err(Fault::Error(error)) => Value::Failed(Rc::new(error.clone())),
            Err(stop) => return Err(stop.clone()),
        };
        value
    }

    fn fold(&mut self, fold: &'a Fold) -> ValueResult<'a> {
        let range = self.value(&fold.range.of)?;
        let pending = self.pending.len();
        let start = match &fold.start {
            // Only a name is bound.
            start if matches!(&range, Value::Literals(items) if items.is_empty()) => {
                self.pending.push((fold.accumulator, start));
                Value::Pending
            }
            start => self.value(start)?,
        };
        self.reserve_slot(fold.accumulator);
        self.slots[fold.accumulator] = start;
        self.rounds(&fold.range, &range, |this| {
            if matches!(this.value(&fold.go_on)?, Value::Bool(false)) {
                return Ok(false);
            }
            // An error becomes the accumulator, since the next round might not need it.
            let accumulator = match this.value(&fold.step) {
                Ok(value) => value,
                Err(Fault::Error(error)) => Value::Failed(Rc::new(error)),
                Err(stop) => return Err(stop),
            };
            this.slots[fold.accumulator] = accumulator;
            Ok(true)
        })?;
        let result = self.value(&fold.result);
        self.slots[fold.accumulator] = Value::Null;
        self.pending.truncate(pending);
        result
    }

    /// Evaluates `all` or `exists`, which cost what their parts do that are not evaluated here.
    fn quantifier(&mut self, quantifier: &'a Quantifier) -> ValueResult<'a> {
        let Quantifier { range, holds, decides } = quantifier;
        let of = self.value(&range.of)?;
        let go_on_cost = if *decides { 3 } else { 2 };
        let (mut is_decided, mut failed) = (false, None);
        self.rounds(range, &of, |this| {
            this.meter.pay(go_on_cost)?;
            if is_decided {
                return Ok(false);
            }
            this.meter.pay(1)?;
            match this.value(holds) {
                Ok(Value::Bool(yes)) => is_decided = yes == *decides,
                Err(stop @ Fault::Stop(_)) => return Err(stop),
                // The first error counts, unless a later round decides.
                Ok(_) => failed = failed.take().or_else(|| Some(Fault::no_such_overload())),
                Err(error) => failed = failed.take().or(Some(error)),
            }
            Ok(true)
        })?;
        self.meter.pay(1)?;
        match failed {
            Some(error) if !is_decided => Err(error),
            _ => Ok(Value::Bool(is_decided == *decides)),
        }
    }

    fn reserve_slot(&mut self, slot: usize) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Value::Null);
        }
    }

    /// Calls `round` with each item of a loop in the slots of its variables, until it returns false.
    fn rounds(
        &mut self,
        range: &Range,
        of: &Value<'a>,
        mut round: impl FnMut(&mut Self) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        self.reserve_slot(range.second.unwrap_or(range.first));
        let (keys, len) = match access::list_len(of, self.meter)? {
            Some(len) => (None, len),
            None => {
                let keys = access::keys(of, self.meter)?;
                let len = keys.len();
                (Some(keys), len)
            }
        };
        for at in 0..len {
            self.meter.round()?;
            let (first, second) = match (&keys, range.second) {
                (Some(keys), None) => (keys[at].clone(), None),
                (Some(keys), Some(_)) => (keys[at].clone(), access::entry(of, &keys[at], self.meter)?),
                (None, None) => (access::list_item(of, at, self.meter)?.unwrap_or(Value::Null), None),
                (None, Some(_)) => (Value::Int(at as i64), access::list_item(of, at, self.meter)?),
            };
            self.slots[range.first] = first;
            if let Some(slot) = range.second {
                self.slots[slot] = second.unwrap_or(Value::Null);
            }
            if !round(self)? {
                break;
            }
        }
        for slot in [Some(range.first), range.second].into_iter().flatten() {
            self.slots[slot] = Value::Null;
        }
        Ok(())
    }

    fn append(&mut self, slot: usize, items: &'a [(Node, bool)]) -> ValueResult<'a> {
        let more = self.items(items);
        let more = self.pay_for(LIST_COST + 2, more)?;
        match std::mem::replace(&mut self.slots[slot], Value::Null) {
            Value::List(mut list) => {
                Rc::make_mut(&mut list).append(more, self.meter)?;
                Ok(Value::List(list))
            }
            literals @ Value::Literals(_) => {
                let mut list = access::items(&literals, self.meter)?;
                list.append(more, self.meter)?;
                Ok(Value::List(Rc::new(list)))
            }
            Value::Failed(error) => Err(Fault::Error((*error).clone())),
            _ => Err(Fault::no_such_overload()),
        }
    }

    fn insert(&mut self, slot: usize, key: &'a Node, value: Option<&'a Node>) -> ValueResult<'a> {
        // As upstream, an argument that fails keeps those behind it from being evaluated if there are three.
        if let (Value::Failed(error), Some(_)) = (&self.slots[slot], value) {
            let error = Fault::Error((**error).clone());
            return self.pay_for(1, Err(error));
        }
        let key = self.value(key);
        let key = self.pay_for(if value.is_some() && key.is_err() { 1 } else { 2 }, key)?;
        let value = value.map(|value| self.value(value)).transpose()?;
        let mut map = match std::mem::replace(&mut self.slots[slot], Value::Null) {
            Value::Map(map) => map,
            Value::Failed(error) => return Err(Fault::Error((*error).clone())),
            _ => return Err(Fault::no_such_overload()),
        };
        let made = Rc::make_mut(&mut map);
        let entries = match value {
            Some(value) => vec![(key, value)],
            None => access::entries(&key, self.meter)?,
        };
        made.reserve(entries.len(), self.meter)?;
        for (key, value) in entries {
            self.pay_for_key(&key)?;
            if !made.insert(key, value) {
                return Err(Fault::error("insert failed: key already exists"));
            }
        }
        Ok(Value::Map(map))
    }
}
