//! Aggregates: types of lists and maps that an expression spells out.

use std::sync::Arc;

use cel::{common::ast::EntryExpr, parser::Expression};

use super::{
    check::{Checked, Checker},
    program::Node,
    types::Type,
    value::Literal,
};

impl Checker {
    /// A list, whose items are all of one type.
    pub(super) fn list(&mut self, elements: &[Expression], optional: &[usize]) -> Result<Checked, String> {
        // The second of each says whether the item is left out where it is missing.
        let mut items = Vec::with_capacity(elements.len());
        let mut common: Option<Type> = None;
        for (at, element) in elements.iter().enumerate() {
            let (node, mut found) = self.expression(element)?;
            let is_optional = optional.contains(&at);
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

    pub(super) fn map<'t>(&mut self, entries: impl Iterator<Item = &'t EntryExpr>) -> Result<Checked, String> {
        let (mut nodes, mut keys, mut values) = (Vec::new(), None, None);
        for entry in entries {
            let EntryExpr::MapEntry(entry) = entry else { return Err("a map has keys and values".to_owned()) };
            let (key, key_type) = self.expression(&entry.key)?;
            let (value, mut value_type) = self.expression(&entry.value)?;
            if entry.optional {
                value_type = self.inside_optional(value_type)?;
            }
            keys = Some(self.homogeneous(keys, key_type)?);
            values = Some(self.homogeneous(values, value_type)?);
            nodes.push((key, value, entry.optional));
        }
        let first = self.unknowns.add(2);
        let (key, value) = (keys.unwrap_or(Type::Var(first)), values.unwrap_or(Type::Var(first + 1)));
        if let odd @ (Type::Double | Type::Null | Type::Bytes) = self.unknowns.known(&key) {
            return Err(format!("a map has no keys of type '{odd}' here"));
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

    fn inside_optional(&mut self, found: Type) -> Result<Type, String> {
        let inner = Type::Var(self.unknowns.add(1));
        if self.unknowns.fits(&found, &Type::Optional(inner.clone().into())) {
            return Ok(inner);
        }
        Err(format!("expected type 'optional_type' but found '{}'", self.unknowns.known(&found)))
    }

    fn homogeneous(&mut self, common: Option<Type>, found: Type) -> Result<Type, String> {
        let Some(common) = common else { return Ok(found) };
        let joined = self.joined(&common, &found);
        let (wanted, got) = (self.unknowns.known(&common), self.unknowns.known(&found));
        joined.filter(|_| wanted == got).ok_or_else(|| format!("expected type '{wanted}' but found '{got}'"))
    }
}

/// The items, where all of them are literals.
fn literals(items: &[(Node, bool)]) -> Option<Box<[Literal]>> {
    let literal = |(node, optional): &(Node, bool)| match node {
        Node::Literal(literal) if !optional => Some(literal.clone()),
        _ => None,
    };
    items.iter().map(literal).collect()
}
