//! Calls: which of a function's signatures is meant, and what is done beforehand.

use std::cell::Cell;

use cel::parser::Expression;

use super::{
    check::{Checked, Checker},
    fault::Fault,
    functions, macros,
    meter::{Allowance, Meter},
    names::undeclared,
    pattern,
    program::Node,
    time::Zone,
    types::Type,
    value::{Literal, Value},
};

impl Checker {
    pub(super) fn function(
        &mut self,
        name: &str,
        target: Option<Checked>,
        args: &[Expression],
    ) -> Result<Checked, String> {
        let member = target.is_some();
        let mut given: Vec<_> = target.into_iter().collect();
        for arg in args {
            given.push(self.expression(arg)?);
        }
        self.resolved(name, member, given)
    }

    /// The call of a function with checked arguments, by all signatures that fit. Types found for unknowns by one of them
    /// count for the next ones.
    pub(super) fn resolved(&mut self, name: &str, member: bool, given: Vec<Checked>) -> Result<Checked, String> {
        let (nodes, types): (Vec<_>, Vec<_>) = given.into_iter().unzip();
        let Some(function) = functions::find(name)
            .filter(|function| function.signatures.iter().any(|signature| signature.member == member))
        else {
            return Err(undeclared(name));
        };
        let mut found: Option<Type> = None;
        let mut fitting = 0;
        let candidates = function.signatures.iter();
        for signature in candidates.filter(|one| one.member == member && one.arguments.len() == types.len()) {
            let mark = self.unknowns.mark();
            let first = self.unknowns.add(2);
            let mut pairs = types.iter().zip(&signature.arguments);
            if !pairs.all(|(given, wanted)| self.unknowns.fits(given, &wanted.numbered_from(first))) {
                self.unknowns.go_back(mark);
                continue;
            }
            fitting += 1;
            let result = self.unknowns.seen(&signature.result.numbered_from(first));
            found = Some(match found {
                Some(other) if other != Type::Dyn && self.unknowns.known(&other) != self.unknowns.known(&result) => {
                    Type::Dyn
                }
                Some(other) => other,
                None => result,
            });
        }
        let Some(found) = found else { return Err(self.no_overload(name, &types)) };
        if let [_, Node::Literal(Literal::String(zone))] = &nodes[..]
            && name.starts_with("get")
            && Zone::parse(zone).is_none()
        {
            return Err(format!("time zone '{zone}' is not known here: write it as Europe/Berlin or +01:00"));
        }
        if let [Node::Literal(literal)] = &nodes[..]
            && let Some(known) = folded(function, literal)?
        {
            return Ok((known, found));
        }
        Ok((self.made_ready(function, nodes, fitting > 1)?, found))
    }

    fn made_ready(
        &self,
        function: &'static functions::Function,
        mut nodes: Vec<Node>,
        ambiguous: bool,
    ) -> Result<Node, String> {
        if matches!(function.name, "matches" | "find" | "findAll")
            && let Some(Node::Literal(Literal::String(pattern))) = nodes.get(1)
        {
            let compiled = pattern::compiled(pattern).map_err(|why| format!("invalid matches argument: {why}"))?;
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
        // `gathered + [item]` of a macro: copied each time it would take time by the square.
        if function.name == "_+_"
            && let [Node::Local(slot), Node::List(_)] = nodes[..]
            && self.locals.iter().any(|local| local.slot == slot && local.name == macros::GATHERED)
            && let Some(Node::List(items)) = nodes.pop()
        {
            return Ok(Node::Append { slot, items });
        }
        Ok(Node::Call { function, args: nodes.into(), ambiguous })
    }

    pub(super) fn insert(&mut self, map: &Expression, rest: &[Expression]) -> Result<Checked, String> {
        let (map, of) = self.expression(map)?;
        let (Node::Local(slot), Type::Map(key, value)) = (map, self.unknowns.seen(&of)) else {
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
}

/// A conversion of a literal, done once. One that fails is refused, as upstream does.
fn folded(function: &functions::Function, literal: &Literal) -> Result<Option<Node>, String> {
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
